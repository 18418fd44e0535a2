// SPDX-License-Identifier: Apache-2.0
// A CUDA driver made of plain C, for tests without a GPU: it takes the place of libcuda (qn_driver_replace), keeps what
// it is given, counts every call, and can be told to fail. It is strict where the real one is:
//   - a launch needs a current context of the kernel's device, a shared-memory opt-in above 48 KiB, and leave for
//     clusters above 8
//   - loading while some stream captures fails, unless this thread's capture mode is relaxed (a driver that loads
//     lazily lets it pass; one that loads eagerly does not)
//   - as with lazy loading, an image that is bad, or for another architecture, is refused (200, 209) when its kernel is
//     asked for; with .eager when it is loaded
//   - a handle that was given back is freed, so that ASan sees a use of it
#ifndef TEST_FAKE_DRIVER_H
#define TEST_FAKE_DRIVER_H

#include <stdatomic.h>
#include <stdbool.h>

#include "cuda/driver.h"

enum { FAKE_MAX_DEVICES = 8, FAKE_MAX_PARAMS = 4096 };

// One driver function: how often it was called, and what the next calls answer.
typedef struct fake_call {
    _Atomic long count;
    _Atomic int fail;  // a CUresult
    _Atomic int times; // so many calls fail with it; -1: all
} fake_call;

typedef struct fake_launch {
    unsigned grid[3], block[3];
    unsigned cluster; // 1: none
    bool overlaps;    // may begin before the launch ahead of it has ended
    unsigned shared;
    CUstream stream;
    int device;
    char entry[128];
    int arch;                // of the image: 90, 100, …
    unsigned char image[16]; // its XXH3-128
    const void *param;       // address of the one parameter, as given; valid inside on_launch only
    size_t param_bytes;      // copied bytes: fake_driver.param_bytes, or the size given with CU_LAUNCH_PARAM_BUFFER
    unsigned char params[FAKE_MAX_PARAMS];
} fake_launch;

typedef struct fake_driver_state {
    struct {
#define X(name, parameters) fake_call name;
        QN_DRIVER_LIST(X)
#undef X
    } call;             // fake_driver.call.cuLibraryLoadData.count; .fail = CUDA_ERROR_INVALID_IMAGE, .times = 1
    size_t param_bytes; // how many bytes of the parameter a launch copies
    int sm_count;       // of every device; 0: what its architecture's usual part has
    bool take_any_arch; // no 209 for images of another architecture
    bool eager;         // CUDA_MODULE_LOADING=EAGER: images are looked at when they are loaded
    _Atomic int capture_status; // what cuStreamIsCapturing says for streams that this driver did not make
    _Atomic long live_libraries, live_allocations;
    void (*on_launch)(const fake_launch *); // may do the kernel's work; may be NULL
    fake_launch last;                       // the last launch that succeeded
} fake_driver_state;
extern fake_driver_state fake_driver;

// Installs a driver with devices of these compute capabilities (90, 86 …), everything zero, no context current on this
// thread; and removes it, after which the real one is used again. Not while another thread is inside a call.
void fake_driver_install(int device_count, const int *cc);
void fake_driver_remove(void);

// A context of a device: its primary one, and another one that is not. Make it current with fake_driver_enter.
CUcontext fake_driver_context(int device);
CUcontext fake_driver_other_context(int device);
void fake_driver_enter(CUcontext context); // this thread; NULL: none; counts as no call
CUcontext fake_driver_current(void);       // this thread's; counts as no call

#endif
