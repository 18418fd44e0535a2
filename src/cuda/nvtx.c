// SPDX-License-Identifier: Apache-2.0
// The client's side of NVTX 3's injection protocol, as far as ranges need it. Called by src/runtime.
//
//   tool library ── InitializeInjectionNvtx2(get_table) ──► asks get_table for two tables:
//     callbacks      module number → array of places, indexed by the function's number; the tool writes its functions there
//     version        the protocol's version, and a call by which the tool says its own
//
//   (1) A function that the tool leaves out is not called.
//   (2) The library is opened once and never closed: the tool may have started threads.
#include "cuda/nvtx.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

enum { TABLE_CALLBACKS = 1, TABLE_VERSION = 3, PROTOCOL_VERSION = 3 };
enum { MODULE_CORE = 1, MODULES = 7, RANGE_PUSH_A = 9, RANGE_POP = 11, MOST_FUNCTIONS = 16 };

// Core, CUDA, OpenCL, CUDA run time, core 2, synchronisation: how many places each has, the first of which is unused. Tools
// may want all of them, though only two functions are called here.
static const unsigned module_sizes[MODULES] = {0, 16, 9, 15, 7, 16, 7};

typedef void (*any_function)(void);

typedef struct callback_table {
    size_t bytes;
    int (*module_functions)(int module, any_function ***places, unsigned *count);
} callback_table;

typedef struct version_table {
    size_t bytes;
    uint32_t version, reserved;
    void (*set_tool_version)(uint32_t version);
} version_table;

static any_function functions[MODULES][MOST_FUNCTIONS]; // the tool's
static any_function *places[MODULES][MOST_FUNCTIONS + 1];
static qn_nvtx ranges;
static const qn_nvtx *loaded; // NULL: no tool
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int is_tried;
static _Atomic(const qn_nvtx *) replacement;

static int module_functions(int module, any_function ***out, unsigned *count)
{
    if (module < MODULE_CORE || module >= MODULES) return 0;
    for (unsigned i = 1; i < module_sizes[module]; i++) places[module][i] = &functions[module][i];
    if (out) *out = places[module];
    if (count) *count = module_sizes[module];
    return 1;
}

static void set_tool_version(uint32_t version)
{
    (void)version;
}

static const void *get_table(uint32_t id)
{
    static const callback_table callbacks = {sizeof callbacks, module_functions};
    static const version_table version = {sizeof version, PROTOCOL_VERSION, 0, set_tool_version};

    if (id == TABLE_CALLBACKS) return &callbacks;
    return id == TABLE_VERSION ? &version : NULL;
}

static void load(const char *file)
{
    int (*initialize)(const void *(*)(uint32_t));
    void *library = dlopen(file, RTLD_LAZY | RTLD_LOCAL);
    void *symbol = library ? dlsym(library, "InitializeInjectionNvtx2") : NULL;

    if (!symbol) {
        if (library) dlclose(library);
        return;
    }
    memcpy(&initialize, &symbol, sizeof initialize);
    if (!initialize(get_table)) return;
    memcpy(&ranges.push, &functions[MODULE_CORE][RANGE_PUSH_A], sizeof ranges.push);
    memcpy(&ranges.pop, &functions[MODULE_CORE][RANGE_POP], sizeof ranges.pop);
    if (ranges.push && ranges.pop) loaded = &ranges;
}

void qn_nvtx_replace(const qn_nvtx *other)
{
    atomic_store_explicit(&replacement, other, memory_order_release);
}

const qn_nvtx *qn_nvtx_load(const char *file)
{
    const qn_nvtx *replaced = atomic_load_explicit(&replacement, memory_order_acquire);

    if (replaced) return replaced;
    if (!file || !*file) return NULL;
    pthread_mutex_lock(&lock);
    if (!is_tried) load(file);
    is_tried = 1;
    const qn_nvtx *found = loaded;
    pthread_mutex_unlock(&lock);
    return found;
}

void qn_nvtx_push(const qn_nvtx *nvtx, const char *prefix, const char *name)
{
    char text[640];

    if (!nvtx) return;
    snprintf(text, sizeof text, "%s%s", prefix, name);
    nvtx->push(text);
}

void qn_nvtx_pop(const qn_nvtx *nvtx)
{
    if (nvtx) nvtx->pop();
}
