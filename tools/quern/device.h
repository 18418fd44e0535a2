// SPDX-License-Identifier: Apache-2.0
// A GPU for the command's own use: the command makes its own context (the device's primary one), which the library
// never does. Used by run, bench, doctor and the choice of architectures.
#ifndef QUERN_TOOLS_DEVICE_H
#define QUERN_TOOLS_DEVICE_H

#include <stdbool.h>

#include "cuda/driver.h"

typedef struct device {
    const qn_driver *driver;
    int ordinal;
    CUdevice handle;
    CUcontext context; // NULL: only looked at
    char name[128];
    int cc; // 90
    int sm_count;
    int64_t l2_bytes, memory_bytes;
    int driver_version; // 13000
} device;

// How many GPUs the driver shows. DRIVER_NOT_FOUND, DRIVER_TOO_OLD, NO_DEVICE (for none at all).
quern_status device_count(int *count);

quern_status device_look(int ordinal, device *d); // what it is, without a context
quern_status device_open(int ordinal, device *d); // with its context current on this thread
void device_close(device *d);

// "gpu" or "gpu:1" → ordinal; false for another word.
bool device_parse(const char *word, int *ordinal);

// A driver call's result as status and message.
quern_status device_check(const device *d, const char *call, CUresult result);
#define DEVICE_TRY(d, call, ...) QN_TRY(device_check((d), #call, (d)->driver->call(__VA_ARGS__)))

#endif
