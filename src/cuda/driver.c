// SPDX-License-Identifier: Apache-2.0
// Loading libcuda. Called by runtime, tune and tools when a device is first needed; never by a compile or a look-up.
// Symbols come from dlsym under the name that cuda.h maps a function to (cuMemAlloc → cuMemAlloc_v2): the entry point
// whose signature the compiler has checked.
#include "cuda/driver.h"

#include <dlfcn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"

typedef struct loaded {
    qn_driver driver;
    char path[512];
} loaded;

// The first success, never freed. Threads that load at the same time all do the work, and one result is kept: there is
// no lock that a fork could leave taken.
static _Atomic(loaded *) current;
static _Atomic(const qn_driver *) replacement; // tests

#define NAME_(name) #name
#define NAME(name)  NAME_(name)

static const char *const default_names[] = {"libcuda.so.1", "libcuda.so"};

// A function by its mapped name; cuda.h of 12.8 and later maps one to a name that drivers before 12.8 do not have yet.
static void *find(void *library, const char *name)
{
    void *found = dlsym(library, name);
    if (!found && !strcmp(name, "cuEventElapsedTime_v2")) found = dlsym(library, "cuEventElapsedTime");
    return found;
}

static quern_status too_old(const qn_driver *driver, const char *path, const char *name)
{
    int version = 0;

    if (driver->cuDriverGetVersion) driver->cuDriverGetVersion(&version);
    return qn_fail(QUERN_DRIVER_TOO_OLD,
                   "%s has no function %s: it serves CUDA %d.%d, and Quern needs 12.0 or later; update the driver",
                   path, name, version / 1000, version % 1000 / 10);
}

static quern_status fill(void *library, const char *path, qn_driver *driver)
{
    const char *missing = NULL;

    memset(driver, 0, sizeof *driver);
#define X(name, parameters)                                                                                            \
    {                                                                                                                  \
        void *found = find(library, NAME(name));                                                                       \
        if (!found && !missing) missing = NAME(name);                                                                  \
        memcpy(&driver->name, &found, sizeof found);                                                                   \
    }
    QN_DRIVER_LIST(X)
#undef X
    return missing ? too_old(driver, path, missing) : QUERN_OK;
}

static quern_status start(const qn_driver *driver, const char *path)
{
    CUresult result = driver->cuInit(0);
    if (result == CUDA_SUCCESS) return QUERN_OK;
    quern_status status = result == CUDA_ERROR_NO_DEVICE ? QUERN_NO_DEVICE : QUERN_DRIVER_ERROR;
    return qn_fail_in(qn_driver_fail(driver, status, "cuInit", result), "%s", path);
}

// The file that the library really is, for messages; the name it was asked by where the loader does not tell.
static void note_path(void *library, const char *name, char path[512])
{
    Dl_info info;
    void *symbol = dlsym(library, "cuInit");
    snprintf(path, 512, "%s", symbol && dladdr(symbol, &info) && info.dli_fname ? info.dli_fname : name);
}

// Opens the first name that is a library; says in *tried why the others are not.
static void *open_first(const char *const *names, size_t count, qn_text *tried, const char **opened)
{
    for (size_t i = 0; i < count; i++) {
        void *library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
        if (library) {
            *opened = names[i];
            return library;
        }
        const char *reason = dlerror();
        qn_text_putf(tried, "\n  %s: %s", names[i], reason ? reason : "not opened");
    }
    return NULL;
}

static quern_status load(const char *file, loaded *to)
{
    qn_text tried = QN_TEXT_INIT;
    const char *opened = NULL;
    void *handle = file ? open_first(&file, 1, &tried, &opened)
                        : open_first(default_names, QN_COUNT(default_names), &tried, &opened);
    quern_status status = QUERN_OK;

    if (!handle) {
        status =
            qn_fail(QUERN_DRIVER_NOT_FOUND,
                    "the CUDA driver was not found; compiling and filling a cache need none, launching does. Tried:%s",
                    qn_text_string(&tried));
    } else {
        note_path(handle, opened, to->path);
        status = fill(handle, to->path, &to->driver);
        if (status == QUERN_OK) status = start(&to->driver, to->path);
    }
    qn_text_fini(&tried);
    return status;
}

// Loads and publishes; gives the one that is kept.
static quern_status load_and_keep(const char *file, loaded **kept)
{
    loaded *made = malloc(sizeof *made), *first = NULL;

    if (!made) return qn_fail(QUERN_OUT_OF_MEMORY, "no memory for the driver's table");
    quern_status status = load(file, made);
    if (status == QUERN_OK && atomic_compare_exchange_strong(&current, &first, made)) {
        *kept = made;
        return QUERN_OK;
    }
    free(made);
    if (status == QUERN_OK) *kept = first;
    return status;
}

quern_status qn_driver_load(const char *file, const qn_driver **driver)
{
    const qn_driver *fake = atomic_load_explicit(&replacement, memory_order_acquire);
    loaded *have = atomic_load_explicit(&current, memory_order_acquire);

    if (!fake && !have) QN_TRY(load_and_keep(file, &have));
    *driver = fake ? fake : &have->driver;
    return QUERN_OK;
}

const char *qn_driver_path(void)
{
    const loaded *have = atomic_load_explicit(&current, memory_order_acquire);
    return have ? have->path : "";
}

void qn_driver_replace(const qn_driver *fake)
{
    atomic_store_explicit(&replacement, fake, memory_order_release);
}

// What the person can do about an error whose own text does not say it.
static const char *hint_of(CUresult result)
{
    switch (result) {
    case CUDA_ERROR_NOT_INITIALIZED:
        return "; CUDA does not survive fork: start device work in a process of its own";
    case CUDA_ERROR_INVALID_IMAGE:
        return "; the image is damaged, or made by a compiler newer than the driver";
    case CUDA_ERROR_NO_BINARY_FOR_GPU:
        return "; the image is for another architecture than this device's";
    case CUDA_ERROR_UNSUPPORTED_PTX_VERSION:
        return "; the compiler is newer than the driver: update the driver or use an older NVRTC";
    case CUDA_ERROR_SYSTEM_DRIVER_MISMATCH:
        return "; libcuda and the kernel module differ: restart the machine or reinstall the driver";
    case CUDA_ERROR_STUB_LIBRARY:
        return "; this libcuda is the toolkit's stub for linking: name the driver's own (driver_file)";
    default:
        return "";
    }
}

quern_status qn_driver_fail(const qn_driver *driver, quern_status status, const char *call, CUresult result)
{
    const char *name = NULL, *text = NULL;

    if (driver->cuGetErrorName) driver->cuGetErrorName(result, &name);
    if (driver->cuGetErrorString) driver->cuGetErrorString(result, &text);
    if (!name) return qn_fail(status, "%s: CUDA error %d%s", call, (int)result, hint_of(result));
    return qn_fail(status, "%s: %s (%s)%s", call, name, text ? text : "no text", hint_of(result));
}
