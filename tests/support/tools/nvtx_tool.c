// SPDX-License-Identifier: Apache-2.0
// A tool that takes NVTX ranges, as Nsight Systems does: its injection library, for tests, by NVTX's own header. It writes
// "+name;" for a push and "-;" for a pop into a text that the test reads. It wants nothing with NVTX_TOOL_REFUSES set,
// or of a client that does not offer all that the header says.
#include <nvtx3/nvToolsExt.h>

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

static char text[65536];

EXPORT const char *nvtx_tool_text(void)
{
    return text;
}

EXPORT void nvtx_tool_clear(void)
{
    text[0] = 0;
}

static int push(const char *name)
{
    size_t used = strlen(text);
    snprintf(text + used, sizeof text - used, "+%s;", name);
    return 0;
}

static int pop(void)
{
    size_t used = strlen(text);
    snprintf(text + used, sizeof text - used, "-;");
    return 0;
}

// Every place of every module is there and can be written to, and there are no other modules.
static int has_every_place(const NvtxExportTableCallbacks *callbacks)
{
    static const unsigned sizes[NVTX_CB_MODULE_SIZE] = {
        [NVTX_CB_MODULE_CORE] = NVTX_CBID_CORE_SIZE,     [NVTX_CB_MODULE_CUDA] = NVTX_CBID_CUDA_SIZE,
        [NVTX_CB_MODULE_OPENCL] = NVTX_CBID_OPENCL_SIZE, [NVTX_CB_MODULE_CUDART] = NVTX_CBID_CUDART_SIZE,
        [NVTX_CB_MODULE_CORE2] = NVTX_CBID_CORE2_SIZE,   [NVTX_CB_MODULE_SYNC] = NVTX_CBID_SYNC_SIZE};
    NvtxFunctionTable table = NULL;
    unsigned count = 0;

    for (int module = NVTX_CB_MODULE_CORE; module < NVTX_CB_MODULE_SIZE; module++) {
        if (!callbacks->GetModuleFunctionTable((NvtxCallbackModule)module, &table, &count)) return 0;
        if (count != sizes[module] || table[0]) return 0;
        for (unsigned i = 1; i < count; i++) *table[i] = NULL;
    }
    return !callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_INVALID, &table, &count) &&
           !callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_SIZE, &table, &count);
}

EXPORT int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t get_table)
{
    const NvtxExportTableCallbacks *callbacks = get_table(NVTX_ETID_CALLBACKS);
    const NvtxExportTableVersionInfo *version = get_table(NVTX_ETID_VERSIONINFO);
    NvtxFunctionTable table = NULL;
    unsigned count = 0;

    if (getenv("NVTX_TOOL_REFUSES") || get_table(NVTX_ETID_INVALID)) return 0;
    if (!callbacks || callbacks->struct_size < sizeof *callbacks || !has_every_place(callbacks)) return 0;
    if (!version || version->struct_size < sizeof *version || version->version != NVTX_VERSION) return 0;
    version->SetInjectionNvtxVersion(NVTX_VERSION);
    if (!callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE, &table, &count)) return 0;
    *table[NVTX_CBID_CORE_RangePushA] = (NvtxFunctionPointer)push;
    *table[NVTX_CBID_CORE_RangePop] = (NvtxFunctionPointer)pop;
    return 1;
}
