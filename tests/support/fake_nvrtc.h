// SPDX-License-Identifier: Apache-2.0
// An NVRTC made of plain C, for tests that count compiles: it takes the place of the real one (qn_nvrtc_replace). Its
// cubins are small true ELF files: machine, architecture, .text.<entry>, .nv.info, and the source's hash, so that two
// sources never give the same image and one source always does.
#ifndef TEST_FAKE_NVRTC_H
#define TEST_FAKE_NVRTC_H

#include <stdatomic.h>

#include "cuda/nvrtc.h"

typedef struct fake_nvrtc_state {
    int major, minor; // 13.0
    const int *archs; // its list; NULL: 75 80 86 87 88 89 90 100 103 110 120 121
    int arch_count;
    const char *identity; // NULL: "nvrtc 13.0 build fake"
    _Atomic int delay_ms; // a compile takes so long, polling the flow callback every few milliseconds
    _Atomic int fail;     // an nvrtcResult that nvrtcCompileProgram answers; 0: it works
    _Atomic int times;    // so many compiles fail with it; -1: all
    _Atomic int registers, local_bytes, shared_bytes; // written into the cubins; registers 32 at first
    _Atomic long compiles;                            // that were begun
    _Atomic long finished;                            // that gave a cubin
    _Atomic long running, most_running;               // at a time
    _Atomic long programs;                            // made and not destroyed
    char last_options[512];                           // of the last compile, each after a blank
} fake_nvrtc_state;
extern fake_nvrtc_state fake_nvrtc;

// Sets the state back and installs it with this version; fake_nvrtc_refresh after changing major, minor or identity.
void fake_nvrtc_install(int major, int minor);
void fake_nvrtc_refresh(void);
void fake_nvrtc_remove(void);

// The cubin it would make, for tests that put images into a store themselves. The caller frees *image with qn_text_fini.
void fake_cubin(const char *entry, int cc, const char *source, qn_text *image);

#endif
