// SPDX-License-Identifier: Apache-2.0
// The fake driver as a libcuda.so.1, for programs that link the real one: the examples run on it where there is no GPU.
// Kernels do nothing, so results are not right; every call's rules are checked (support/fake_driver.h). FAKE_CUDA_DEVICES
// lists compute capabilities, "90,100"; default: one device, 90.
//
// Each function is a jump through a place that is filled when the library is loaded. x86-64 only.
#include <stdlib.h>
#include <string.h>

#include "support/fake_driver.h"

#define TEXT_(name) #name
#define TEXT(name)  TEXT_(name) // the name that cuda.h gives it: cuMemAlloc → cuMemAlloc_v2

#define X(name, parameters)                                                                                            \
    __attribute__((used, visibility("hidden"))) void *fake_place_##name;                                               \
    __asm__(".text\n.globl " TEXT(name) "\n.type " TEXT(name) ",@function\n" TEXT(name) ":\n\tjmp *fake_place_" #name  \
                                                                                        "(%rip)\n");
QN_DRIVER_LIST(X)
#undef X

__attribute__((constructor)) static void fill(void)
{
    int cc[FAKE_MAX_DEVICES] = {90}, count = 0;
    const char *list = getenv("FAKE_CUDA_DEVICES");
    const qn_driver *table;
    for (; list && *list && count < FAKE_MAX_DEVICES; list += strcspn(list, ","), list += *list == ',')
        cc[count++] = atoi(list);
    fake_driver_install(count ? count : 1, cc);
    fake_driver.param_bytes = 64;
    if (qn_driver_load(NULL, &table) != QUERN_OK) abort();
#define X(name, parameters) memcpy(&fake_place_##name, &table->name, sizeof table->name);
    QN_DRIVER_LIST(X)
#undef X
}

// NVRTC asks a libcuda that it finds for the driver's cache. There is none.
__attribute__((visibility("default"))) CUresult cuGetExportTable(const void **table, const CUuuid *id)
{
    (void)id;
    *table = NULL;
    return CUDA_ERROR_NOT_FOUND;
}
