// SPDX-License-Identifier: Apache-2.0
// NVRTC: found and loaded at run time (notes in the .c), and one compile with a time limit.
#ifndef QN_CUDA_NVRTC_H
#define QN_CUDA_NVRTC_H

#include <nvrtc.h>

#include "base/text.h"
#include "cuda/arch.h"

typedef struct qn_nvrtc {
    nvrtcResult (*nvrtcVersion)(int *major, int *minor);
    nvrtcResult (*nvrtcGetNumSupportedArchs)(int *count);
    nvrtcResult (*nvrtcGetSupportedArchs)(int *archs);
    nvrtcResult (*nvrtcCreateProgram)(nvrtcProgram *, const char *, const char *, int, const char *const *,
                                      const char *const *);
    nvrtcResult (*nvrtcDestroyProgram)(nvrtcProgram *);
    nvrtcResult (*nvrtcCompileProgram)(nvrtcProgram, int, const char *const *);
    nvrtcResult (*nvrtcGetCUBINSize)(nvrtcProgram, size_t *);
    nvrtcResult (*nvrtcGetCUBIN)(nvrtcProgram, char *);
    nvrtcResult (*nvrtcGetProgramLogSize)(nvrtcProgram, size_t *);
    nvrtcResult (*nvrtcGetProgramLog)(nvrtcProgram, char *);
    const char *(*nvrtcGetErrorString)(nvrtcResult);
    nvrtcResult (*nvrtcSetFlowCallback)(nvrtcProgram, int (*)(void *, void *), void *); // NULL before 12.8
    int major, minor;
    char path[512];
    char identity[96]; // "nvrtc 13.0 build <GNU build-id>", or "nvrtc 12.0 sum <XXH3-128>": the toolchain column
} qn_nvrtc;

// Loads NVRTC (file, or when NULL the search of nvrtc_search.c). The first success stays for the process, whatever is
// asked for later. NVRTC_NOT_FOUND lists each path tried and why it failed.
quern_status qn_nvrtc_load(const char *file, bool ignore_environment, const qn_nvrtc **nvrtc);
void qn_nvrtc_replace(const qn_nvrtc *fake); // tests; NULL goes back

// Whether this NVRTC compiles for an architecture, by its list and, for suffixed names, its version.
bool qn_nvrtc_has_arch(const qn_nvrtc *nvrtc, const qn_arch *arch);

typedef struct qn_compile {
    const char *source, *name;  // name: what the log calls the text
    const char *const *options; // in the order that the key holds; includes --gpu-architecture
    size_t option_count;
    int timeout_ms; // -1: none
    quern_cancel_fn cancel;
    void *cancel_user;
    const char *entry;                                     // the kernel; NULL: the first one
    const char *const *header_names, *const *header_texts; // by name; what an #include finds
    size_t header_count;
} qn_compile;

typedef struct qn_compiled {
    qn_text image; // a cubin
    qn_text log;   // the compiler's
    int64_t compile_us;
    int registers, shared_bytes, local_bytes; // read from the cubin's own sections (-1: could not be read)
} qn_compiled;

// COMPILE_FAILED (message: the log, the options), COMPILE_TIMEOUT, CANCELLED, OUT_OF_MEMORY; WOULD_COMPILE after a fork
// during a compile (nvrtc_guard.h).
quern_status qn_nvrtc_compile(const qn_nvrtc *nvrtc, const qn_compile *request, qn_compiled *compiled);
void qn_compiled_fini(qn_compiled *compiled);

// Registers, static shared and local bytes of a kernel (entry NULL: the first one), read from the cubin. -1 where not
// found; safe on any bytes.
void qn_cubin_resources(const void *image, size_t bytes, const char *entry, int *registers, int *shared, int *local);
// Whether the cubin has a kernel of this name. Safe on any bytes.
bool qn_cubin_has_entry(const void *image, size_t bytes, const char *entry);
// Bytes of the kernel's parameters; -1 where the cubin does not say. Safe on any bytes.
int qn_cubin_parameter_bytes(const void *image, size_t bytes, const char *entry);
// ELF magic, machine EM_CUDA, and the section table inside the bytes.
bool qn_cubin_is_plausible(const void *image, size_t bytes);

#endif
