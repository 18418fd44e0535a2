// SPDX-License-Identifier: Apache-2.0
// The functional model of the GPU, from the host's side: kernels' source text is compiled for the CPU and run in a
// runner process of its own, on device memory that both see at the same addresses. Used by `quern run --device model`
// and by tests/simt. The engine and its page for readers are in kernel_templates/model/.
//
//   model.c            spec and host arguments → launches; what the command calls
//   model_toolchain.c  the C++ compiler, the model's folder, compiled objects kept in a cache folder
//   model_files.c      its files and their bound; model_work.c: folders that compilers write to
//   model_memory.c     device memory: a window of addresses
//   model_runner.c     the runner process and what is said to it
#ifndef QUERN_TOOLS_MODEL_H
#define QUERN_TOOLS_MODEL_H

#include "base/text.h"
#include "cuda/arch.h"
#include "ops/family.h"
#include "quern/quern.h"

// Runs a spec on the model of `arch`: pointers in host_args are host memory; outputs are written when all is well.
// note says how it ran. UNSUPPORTED without a C++ compiler. A fault of the kernel is LAUNCH_FAILED, and its whole report
// goes to stderr. $QUERN_MODEL, as in "access,seed=7", chooses another build than plain and an order. What is compiled is
// kept in the folder "model" of the user's cache, MODEL_CACHE_MIB at most; where that folder is not safe, in a temporary
// one. progress (may be NULL) is called while the engine is compiled, which takes half a minute, once; kept:
// where, or NULL.
enum { MODEL_CACHE_MIB = 256 };
typedef void (*model_progress)(size_t done, size_t total, const char *kept);
quern_status model_run(quern *q, const quern_spec *spec, const char *arch, const quern_args *host_args,
                       model_progress progress, char *note, size_t note_bytes);

// What model_run would say of $QUERN_MODEL: BAD_VALUE.
quern_status model_check_variable(void);

// ---- for tests

// What a build finds is in kernel_templates/model/README.md. MSAN needs clang++.
typedef enum model_build { MODEL_PLAIN, MODEL_ASAN, MODEL_ACCESS, MODEL_MSAN, MODEL_BUILDS } model_build;
extern const char *const model_build_name[MODEL_BUILDS];

typedef struct model_settings {
    model_build build;
    const char *compiler;  // NULL: $CXX, else g++, else clang++
    const char *templates; // kernel_templates; NULL: $QUERN_TEMPLATES, the installed ones, the tree this was built from
    const char *cache;     // folder for compiled objects, made if missing; NULL: the user's cache, else a temporary one
    int64_t cap_bytes;     // of that folder, least recently used first; 0: no bound
    model_progress progress; // may be NULL
} model_settings;

typedef struct model model; // one build and its runner; for one thread

// UNSUPPORTED: no C++ compiler (or not clang++ for MSAN), or no model folder; the message says what was tried.
quern_status model_open(const model_settings *settings, model **out);
void model_close(model *m);
const char *model_compiler(const model *m); // "g++ (Debian 12.2.0-14) 12.2.0"

// Order of execution: as written, or drawn from a seed (operations in flight land late by it, too).
typedef struct model_order {
    bool shuffle;
    uint32_t seed;
} model_order;

// Device memory: `bytes` bytes whose address has the same remainder by 256 as `like` (an alignment is part of a case),
// surrounded by nothing. Zeroed. NULL: the window is full. Lives until model_free.
void *model_alloc(model *m, const char *name, size_t bytes, const void *like, bool input);
void model_free(model *m); // all of it

// Compiled kernels: begin starts a compile in the background, or says that enough are running (*busy); compile waits for
// it. COMPILE_FAILED with the compiler's first lines.
quern_status model_compile_begin(model *m, const char *source, bool *busy);
quern_status model_compile(model *m, const char *source, qn_text *object);

typedef struct model_launch_request {
    const char *source; // complete text, as NVRTC gets it, with the macro QN_ENTRY
    uint32_t grid[3];
    int threads, cluster, shared_bytes, resident; // resident: CTAs at a time; 0 = one cluster
    const void *params;
    size_t params_bytes;
    model_order order;
} model_launch_request;

typedef struct model_counts {
    uint64_t switches, operations, barriers, landings, accesses;
} model_counts;

// Runs a launch on the buffers that exist. LAUNCH_FAILED: a fault; its report, or the sanitizer's, is put to *report.
// counts may be NULL.
quern_status model_launch(model *m, const qn_arch *arch, const model_launch_request *request, qn_text *report,
                          model_counts *counts);

// model_run with a model of one's own; *report gets the fault's report and a line that says which kernel and order.
quern_status model_run_on(model *m, quern *q, const quern_spec *spec, const qn_arch *arch, const quern_args *host_args,
                          model_order order, qn_text *report);
// The same with one configuration in place of the chosen ones.
quern_status model_run_config(model *m, const quern_spec *spec, const qn_arch *arch, const qn_config *config,
                              const quern_args *host_args, model_order order, qn_text *report);
// Lets a test change the text of kernels that model_run_on and model_run_config run (planted faults): edit returns the
// new text, from malloc. NULL: as it is.
typedef char *(*model_edit)(const char *source, void *user);
void model_set_edit(model *m, model_edit edit, void *user);
// Starts compiling what model_run_on will need; *busy: not all of it, ask again later.
quern_status model_run_begin(model *m, quern *q, const quern_spec *spec, const qn_arch *arch,
                             const quern_args *host_args, bool *busy);

#endif
