// SPDX-License-Identifier: Apache-2.0
// Where the time of a first launch goes: the driver's calls through a table that times each, and the library's own steps
// through the ranges that it names for NVTX tools. For one sample on one thread; bench_first.c prints it.
#ifndef QUERN_TOOLS_BENCH_PHASES_H
#define QUERN_TOOLS_BENCH_PHASES_H

#include "cuda/driver.h"

typedef enum first_phase {
    FIRST_OPEN,      // quern_open
    FIRST_DATABASE,  // the database is opened and asked for tuning results
    FIRST_SOURCE,    // texts of the kernels and their keys
    FIRST_ROWS,      // each kernel's row: read, verified, copied
    FIRST_LOAD,      // cuLibraryLoadData
    FIRST_KERNEL,    // cuLibraryGetKernel
    FIRST_FUNCTION,  // cuKernelGetFunction, which loads the module
    FIRST_ATTRIBUTE, // attributes of kernels and of the device
    FIRST_PLAN,      // what else quern_prepare does
    FIRST_WORKSPACE, // allocated and set
    FIRST_LAUNCH,    // the first cuLaunchKernelEx
    FIRST_PATH,      // what else the launch does
    FIRST_WAIT,      // cuStreamSynchronize
    FIRST_PHASES
} first_phase;

typedef struct first_part {
    const char *name;
    double ms;
    int count; // calls or ranges
} first_part;

// From now on until the end of the process, calls and ranges are timed. driver is the real one.
void bench_phases_watch(const qn_driver *driver);
void bench_phases_add(first_phase phase, double ms); // what the caller times itself
double bench_phases_ms(first_phase phase);           // so far
const first_part *bench_phases_all(void);            // FIRST_PHASES of them

#endif
