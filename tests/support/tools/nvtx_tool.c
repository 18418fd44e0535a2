// SPDX-License-Identifier: Apache-2.0
// A tool that takes NVTX ranges, as Nsight Systems does: its injection library, for tests. It writes "+name;" for a push
// and "-;" for a pop into a text that the test reads. With NVTX_TOOL_REFUSES set it wants nothing.
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

typedef void (*any_function)(void);
typedef struct callback_table {
    size_t bytes;
    int (*module_functions)(int module, any_function ***places, unsigned *count);
} callback_table;

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

EXPORT int InitializeInjectionNvtx2(const void *(*get_table)(uint32_t))
{
    const callback_table *callbacks = get_table(1);
    any_function **places = NULL;
    unsigned count = 0;

    if (getenv("NVTX_TOOL_REFUSES")) return 0;
    if (!callbacks || callbacks->bytes < sizeof *callbacks) return 0;
    for (int module = 1; module <= 6; module++) { // every place of every module can be written to
        if (!callbacks->module_functions(module, &places, &count) || places[0]) return 0;
        for (unsigned i = 1; i < count; i++) *places[i] = NULL;
    }
    if (callbacks->module_functions(0, &places, &count) || callbacks->module_functions(7, &places, &count)) return 0;
    if (!callbacks->module_functions(1, &places, &count) || count <= 11) return 0;
    *places[9] = (any_function)push;
    *places[11] = (any_function)pop;
    return 1;
}
