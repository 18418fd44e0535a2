// SPDX-License-Identifier: Apache-2.0
// Images on devices: which device is current, what it is, loading an image as a CUlibrary and making its kernel ready.
// Called by prepare.c and custom.c. Makes no context, changes none.
//   (1) Loading may happen while other streams are captured: the thread's capture mode is exchanged around it.
//   (2) A library is loaded once a quern, and made ready on each device that asks (attributes, module loading forced).
//   (3) A stored image that the driver refuses is replaced once. A fresh one that is refused is LOAD_FAILED.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/private.h"

// ---- the current device

// Asked for before the driver is, for whom an ordinal without a device is an error.
static bool is_present(const qn_driver *driver, int ordinal, int *count)
{
    *count = 0;
    return driver->cuDeviceGetCount(count) == CUDA_SUCCESS && ordinal >= 0 && ordinal < *count;
}

static quern_status no_context(const qn_driver *driver, CUresult result)
{
    if (result == CUDA_SUCCESS)
        return qn_fail(
            QUERN_NO_CONTEXT,
            "no context is current on this thread: make one current first (cuCtxSetCurrent with your context "
            "or the device's primary one; in a program of the runtime API, cudaSetDevice does)");
    qn_driver_fail(driver, QUERN_DRIVER_ERROR, "cuCtxGetCurrent", result);
    if (result != CUDA_ERROR_NOT_INITIALIZED) return QUERN_DRIVER_ERROR;
    return qn_fail_in(QUERN_DRIVER_ERROR, "CUDA does not survive a fork: device work needs a process of its own");
}

static quern_status load_driver(quern *q, const qn_driver **driver)
{
    *driver = atomic_load_explicit(&q->driver, memory_order_acquire);
    if (*driver) return QUERN_OK;
    QN_TRY(qn_driver_load(q->driver_file, driver));
    atomic_store_explicit(&q->driver, *driver, memory_order_release);
    return QUERN_OK;
}

quern_status qn_device_current(quern *q, int ordinal, qn_here *here)
{
    here->context = NULL;
    QN_TRY(load_driver(q, &here->driver));
    const qn_driver *driver = here->driver;
    // Without a context, asking for its device would be an error of the API's, which tools report.
    CUresult result = driver->cuCtxGetCurrent(&here->context);
    if (result != CUDA_SUCCESS || !here->context) return no_context(driver, result);
    result = driver->cuCtxGetDevice(&here->handle);
    if (result != CUDA_SUCCESS) return qn_driver_fail(driver, QUERN_DRIVER_ERROR, "cuCtxGetDevice", result);
    if (ordinal == here->handle || ordinal == QUERN_DEVICE_CURRENT) return QUERN_OK;
    CUdevice wanted;
    int count;
    if (!is_present(driver, ordinal, &count))
        return qn_fail(QUERN_NO_DEVICE, "device = %d: 0 … %d are present", ordinal, count - 1);
    result = driver->cuDeviceGet(&wanted, ordinal);
    if (result != CUDA_SUCCESS) return qn_driver_fail(driver, QUERN_DRIVER_ERROR, "cuDeviceGet", result);
    if (wanted == here->handle) return QUERN_OK;
    return qn_fail(QUERN_WRONG_CONTEXT,
                   "device = %d, but the current context is of device %d: make a context of device %d current, "
                   "or pass QUERN_DEVICE_CURRENT",
                   ordinal, (int)here->handle, ordinal);
}

static quern_status no_target(const qn_device *device)
{
    size_t count;
    const qn_arch *known = qn_arch_list(&count);
    qn_text names = QN_TEXT_INIT;
    for (size_t i = 0; i < count; i++) qn_text_putf(&names, "%s%s", i ? ", " : "", known[i].name);
    quern_status status = qn_fail(QUERN_NO_PLAN, "%s: Quern %s has plans for %s, none of which runs on it",
                                  device->name, quern_version(), qn_text_string(&names));
    qn_text_fini(&names);
    return status;
}

quern_status qn_device_read(const qn_driver *driver, CUdevice handle, qn_device *device)
{
    int major = 0, minor = 0, sm_count = 0;
    char name[128] = "";
    CUresult result = driver->cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, handle);
    if (result == CUDA_SUCCESS)
        result = driver->cuDeviceGetAttribute(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, handle);
    if (result == CUDA_SUCCESS)
        result = driver->cuDeviceGetAttribute(&sm_count, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, handle);
    if (result != CUDA_SUCCESS) return qn_driver_fail(driver, QUERN_DRIVER_ERROR, "cuDeviceGetAttribute", result);
    driver->cuDeviceGetName(name, sizeof name, handle);
    device->handle = handle;
    device->cc = major * 10 + minor;
    device->limits.sm_count = sm_count;
    device->limits.driver = driver;
    snprintf(device->name, sizeof device->name, "device %d (%s, compute capability %d.%d)", (int)handle, name, major,
             minor);
    device->target_count = qn_arch_targets(device->cc, device->targets);
    if (device->target_count) return QUERN_OK;
    return no_target(device);
}

quern_status qn_lacks_arch(const qn_nvrtc *nvrtc, const char *who, const qn_arch *const *targets, size_t count)
{
    qn_text text = QN_TEXT_INIT;
    int known = 0;
    for (size_t i = 0; i < count; i++) qn_text_putf(&text, "%s%s", i ? ", " : "", targets[i]->name);
    qn_text_putf(&text, "; NVRTC %d.%d (%s) compiles for", nvrtc->major, nvrtc->minor, nvrtc->path);
    nvrtc->nvrtcGetNumSupportedArchs(&known);
    int *list = known > 0 ? calloc((size_t)known, sizeof *list) : NULL;
    if (list && nvrtc->nvrtcGetSupportedArchs(list) == NVRTC_SUCCESS)
        for (int i = 0; i < known; i++) qn_text_putf(&text, "%s%d", i ? ", " : " ", list[i]);
    free(list);
    quern_status status = qn_fail(QUERN_NVRTC_LACKS_ARCH,
                                  "%s: tried %s: name a newer NVRTC ($QUERN_NVRTC, options.nvrtc_file), or serve the "
                                  "kernels from a sealed cache",
                                  who, qn_text_string(&text));
    qn_text_fini(&text);
    return status;
}

// ---- loading

// What the driver says of an image that is not for it, as opposed to a machine in trouble.
static bool is_refusal(CUresult result)
{
    switch (result) {
    case CUDA_ERROR_INVALID_IMAGE:
    case CUDA_ERROR_NO_BINARY_FOR_GPU:
    case CUDA_ERROR_INVALID_PTX:
    case CUDA_ERROR_UNSUPPORTED_PTX_VERSION:
    case CUDA_ERROR_INVALID_SOURCE:
    case CUDA_ERROR_FILE_NOT_FOUND:
    case CUDA_ERROR_SHARED_OBJECT_SYMBOL_NOT_FOUND:
    case CUDA_ERROR_SHARED_OBJECT_INIT_FAILED:
    case CUDA_ERROR_NOT_FOUND:
        return true;
    default:
        return false;
    }
}

typedef struct attempt {
    const char *call; // that failed
    CUresult result;
} attempt;

#define ATTEMPT(a, function, ...) ((a)->call = #function, ((a)->result = driver->function(__VA_ARGS__)) == CUDA_SUCCESS)

static bool load_library(const qn_driver *driver, qn_entry *entry, attempt *a)
{
    if (entry->library) return true;
    // The image outlives the library, so that the driver need not copy it.
    CUlibraryOption options[] = {CU_LIBRARY_BINARY_IS_PRESERVED};
    void *values[] = {NULL};
    CUlibrary library = NULL;
    if (!ATTEMPT(a, cuLibraryLoadData, &library, entry->image.bytes.bytes, NULL, NULL, 0, options, values, 1))
        return false;
    if (!ATTEMPT(a, cuLibraryGetKernel, &entry->kernel, library, entry->image.entry)) {
        driver->cuLibraryUnload(library);
        return false;
    }
    entry->library = library;
    return true;
}

// Attributes are the kernel's on this device, shared by whoever uses the image: they only grow.
static bool allow_shared(const qn_driver *driver, const qn_entry *entry, CUdevice device, int bytes, attempt *a)
{
    const CUfunction_attribute most = CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
    int statically = entry->image.shared_bytes > 0 ? entry->image.shared_bytes : 0, now = 0;
    if (bytes + statically <= QN_DEFAULT_SHARED) return true;
    if (driver->cuKernelGetAttribute(&now, most, entry->kernel, device) == CUDA_SUCCESS && now >= bytes) return true;
    return ATTEMPT(a, cuKernelSetAttribute, most, bytes, entry->kernel, device);
}

static bool make_ready(const qn_driver *driver, qn_entry *entry, CUdevice device, qn_shape shape, attempt *a)
{
    CUfunction function;
    if (!load_library(driver, entry, a)) return false;
    // Lazy loading: this is what really loads the module into the current context.
    if (!ATTEMPT(a, cuKernelGetFunction, &function, entry->kernel)) return false;
    if (!allow_shared(driver, entry, device, shape.dynamic_shared, a)) return false;
    return shape.cluster <= QN_PORTABLE_CLUSTER ||
           ATTEMPT(a, cuKernelSetAttribute, CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 1, entry->kernel,
                   device);
}

static void unload_unused(const qn_driver *driver, qn_entry *entry)
{
    if (!entry->library || entry->uses) return;
    driver->cuLibraryUnload(entry->library); // at exit the driver may be gone already: nothing is left to do then
    entry->library = NULL;
    entry->kernel = NULL;
}

static bool try_load(qn_process *process, const qn_driver *driver, CUdevice device, qn_entry *entry, qn_shape shape,
                     attempt *a)
{
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    pthread_mutex_lock(&process->load_lock);
    bool exchanged = driver->cuThreadExchangeStreamCaptureMode(&mode) == CUDA_SUCCESS;
    bool ready = make_ready(driver, entry, device, shape, a);
    if (ready) entry->uses++;
    unload_unused(driver, entry);
    if (exchanged) driver->cuThreadExchangeStreamCaptureMode(&mode);
    pthread_mutex_unlock(&process->load_lock);
    return ready;
}

// The message says both what the driver said and why there is no other image.
static quern_status replace_refused(quern *q, qn_work *work)
{
    qn_message_mark why;
    qn_message_save(&why);
    quern_status status = qn_work_replace(q, work, why.text);
    if (status == QUERN_OK) return QUERN_OK;
    return qn_fail_in(status, "the stored image of %s was refused (%s) and cannot be made anew", work->entry_name,
                      why.text);
}

quern_status qn_load(quern *q, const qn_driver *driver, CUdevice device, qn_work *work, qn_shape shape,
                     CUkernel *kernel)
{
    qn_process *process = qn_process_of(q);
    if (!process) return QUERN_OUT_OF_MEMORY;
    for (bool is_second = false;; is_second = true) {
        attempt a = {0};
        qn_nvtx_push(q->nvtx, "quern:load ", work->entry_name);
        bool loaded = try_load(process, driver, device, work->entry, shape, &a);
        qn_nvtx_pop(q->nvtx);
        if (loaded) {
            *kernel = work->entry->kernel;
            qn_log_line(&q->log, "load", QUERN_LOG_DEBUG, "loaded device=%d arch=%s kernel=%s bytes=%zu spec=\"%s\"",
                        (int)device, work->arch->name, work->entry_name, work->entry->image.bytes.length,
                        work->spec_text);
            return QUERN_OK;
        }
        qn_driver_fail(driver, QUERN_LOAD_FAILED, a.call, a.result);
        bool is_fresh = work->entry->image.origin == QUERN_ORIGIN_COMPILED;
        if (is_second || is_fresh || !is_refusal(a.result))
            return qn_fail_in(QUERN_LOAD_FAILED, "%s of %s (%s) for %s",
                              !is_refusal(a.result) ? "loading the image"
                              : is_second           ? "the stored image was refused and so was the one made anew"
                                                    : "the driver refuses a freshly compiled image",
                              work->entry_name, work->spec_text, work->arch->name);
        QN_TRY(replace_refused(q, work));
    }
}

quern_status qn_load_here(quern *q, const qn_driver *driver, const qn_entry *entry)
{
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    CUfunction function;
    qn_process *process = qn_process_of(q);
    if (!process) return QUERN_OUT_OF_MEMORY;
    pthread_mutex_lock(&process->load_lock);
    bool exchanged = driver->cuThreadExchangeStreamCaptureMode(&mode) == CUDA_SUCCESS;
    CUresult result = driver->cuKernelGetFunction(&function, entry->kernel);
    if (exchanged) driver->cuThreadExchangeStreamCaptureMode(&mode);
    pthread_mutex_unlock(&process->load_lock);
    if (result == CUDA_SUCCESS) return QUERN_OK;
    return qn_driver_fail(driver, QUERN_LOAD_FAILED, "cuKernelGetFunction", result);
}

// ---- unloading

static void unload_relaxed(const qn_driver *driver, qn_entry *entry)
{
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    bool exchanged = driver->cuThreadExchangeStreamCaptureMode(&mode) == CUDA_SUCCESS;
    unload_unused(driver, entry);
    if (exchanged) driver->cuThreadExchangeStreamCaptureMode(&mode);
}

void qn_unload(quern *q, qn_entry *entry)
{
    const qn_driver *driver = atomic_load_explicit(&q->driver, memory_order_acquire);
    qn_process *process = atomic_load_explicit(&q->process, memory_order_acquire);
    if (!driver || !process || process->pid != getpid()) return; // a forked child has nothing of the device
    pthread_mutex_lock(&process->load_lock);
    if (entry->uses) entry->uses--;
    unload_relaxed(driver, entry);
    pthread_mutex_unlock(&process->load_lock);
}

void qn_entry_unload_all(quern *q)
{
    const qn_driver *driver = atomic_load_explicit(&q->driver, memory_order_acquire);
    if (!driver) return;
    for (size_t i = 0; i < QN_MEMORY_LISTS; i++)
        for (qn_entry *entry = atomic_load(&q->entries[i]); entry; entry = entry->next) {
            entry->uses = 0;
            unload_relaxed(driver, entry);
        }
}
