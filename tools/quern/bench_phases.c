// SPDX-License-Identifier: Apache-2.0
// The parts of a first launch (bench_phases.h).
#include "bench_phases.h"

#include <string.h>

#include "command.h"
#include "cuda/nvtx.h"

enum { MAX_DEPTH = 8 };

static first_part parts[FIRST_PHASES] = {
    [FIRST_OPEN] = {"open the library", 0, 0},        [FIRST_DATABASE] = {"open the database, tuning results", 0, 0},
    [FIRST_SOURCE] = {"source texts and keys", 0, 0}, [FIRST_ROWS] = {"read and verify rows", 0, 0},
    [FIRST_LOAD] = {"cuLibraryLoadData", 0, 0},       [FIRST_KERNEL] = {"cuLibraryGetKernel", 0, 0},
    [FIRST_FUNCTION] = {"cuKernelGetFunction", 0, 0}, [FIRST_ATTRIBUTE] = {"attributes", 0, 0},
    [FIRST_PLAN] = {"the rest of prepare", 0, 0},     [FIRST_WORKSPACE] = {"workspace", 0, 0},
    [FIRST_LAUNCH] = {"cuLaunchKernelEx", 0, 0},      [FIRST_PATH] = {"the rest of the launch", 0, 0},
    [FIRST_WAIT] = {"wait for the kernel", 0, 0},
};

static const qn_driver *real;
static qn_driver timed;

void bench_phases_add(first_phase phase, double ms)
{
    parts[phase].ms += ms;
    parts[phase].count++;
}

double bench_phases_ms(first_phase phase)
{
    return parts[phase].ms;
}

const first_part *bench_phases_all(void)
{
    return parts;
}

// ---- the driver's calls

#define TIMED(phase, name, parameters, ...)                                                                            \
    static CUresult timed_##name parameters                                                                            \
    {                                                                                                                  \
        double start = command_seconds();                                                                              \
        CUresult result = real->name(__VA_ARGS__);                                                                     \
        bench_phases_add(phase, (command_seconds() - start) * 1e3);                                                    \
        return result;                                                                                                 \
    }

TIMED(FIRST_LOAD, cuLibraryLoadData,
      (CUlibrary * library, const void *code, CUjit_option *jit, void **jit_values, unsigned jit_count,
       CUlibraryOption *options, void **values, unsigned count),
      library, code, jit, jit_values, jit_count, options, values, count)
TIMED(FIRST_KERNEL, cuLibraryGetKernel, (CUkernel * kernel, CUlibrary library, const char *name), kernel, library, name)
TIMED(FIRST_FUNCTION, cuKernelGetFunction, (CUfunction * function, CUkernel kernel), function, kernel)
TIMED(FIRST_ATTRIBUTE, cuKernelGetAttribute,
      (int *value, CUfunction_attribute attribute, CUkernel kernel, CUdevice device), value, attribute, kernel, device)
TIMED(FIRST_ATTRIBUTE, cuKernelSetAttribute,
      (CUfunction_attribute attribute, int value, CUkernel kernel, CUdevice device), attribute, value, kernel, device)
TIMED(FIRST_ATTRIBUTE, cuDeviceGetAttribute, (int *value, CUdevice_attribute attribute, CUdevice device), value,
      attribute, device)
TIMED(FIRST_ATTRIBUTE, cuDeviceGetName, (char *name, int bytes, CUdevice device), name, bytes, device)
TIMED(FIRST_ATTRIBUTE, cuDriverGetVersion, (int *version), version)
TIMED(FIRST_LAUNCH, cuLaunchKernelEx,
      (const CUlaunchConfig *config, CUfunction function, void **parameters, void **extra), config, function,
      parameters, extra)

static void watch_driver(const qn_driver *driver)
{
    real = driver;
    timed = *driver;
    timed.cuLibraryLoadData = timed_cuLibraryLoadData;
    timed.cuLibraryGetKernel = timed_cuLibraryGetKernel;
    timed.cuKernelGetFunction = timed_cuKernelGetFunction;
    timed.cuKernelGetAttribute = timed_cuKernelGetAttribute;
    timed.cuKernelSetAttribute = timed_cuKernelSetAttribute;
    timed.cuDeviceGetAttribute = timed_cuDeviceGetAttribute;
    timed.cuDeviceGetName = timed_cuDeviceGetName;
    timed.cuDriverGetVersion = timed_cuDriverGetVersion;
    timed.cuLaunchKernelEx = timed_cuLaunchKernelEx;
    qn_driver_replace(&timed);
}

// ---- the library's ranges

static struct {
    first_phase phase; // FIRST_PHASES: one that is not counted
    double start;
} range[MAX_DEPTH];
static int depth;

static int push(const char *name)
{
    static const struct {
        const char *prefix;
        first_phase phase;
    } known[] = {{"quern:tuned ", FIRST_DATABASE}, {"quern:source ", FIRST_SOURCE}, {"quern:find ", FIRST_ROWS}};
    first_phase phase = FIRST_PHASES;
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if (!strncmp(name, known[i].prefix, strlen(known[i].prefix))) phase = known[i].phase;
    if (depth < MAX_DEPTH) {
        range[depth].phase = phase;
        range[depth].start = command_seconds();
    }
    return depth++;
}

static int pop(void)
{
    depth--;
    if (depth < MAX_DEPTH && range[depth].phase != FIRST_PHASES)
        bench_phases_add(range[depth].phase, (command_seconds() - range[depth].start) * 1e3);
    return depth;
}

void bench_phases_watch(const qn_driver *driver)
{
    static const qn_nvtx ranges = {push, pop};
    watch_driver(driver);
    qn_nvtx_replace(&ranges);
}
