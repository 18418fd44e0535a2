// SPDX-License-Identifier: Apache-2.0
// The fake driver: fake_driver.h says what it promises. Linked into every test; device memory is host memory.
#include "support/fake_driver.h"

#include <elf.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/key.h"
#include "cuda/arch.h"
#include "cuda/nvrtc.h"

fake_driver_state fake_driver;

// ---- objects behind the handles

typedef struct context {
    int device;
} context;

typedef struct kernel kernel;
typedef struct library {
    qn_text image;
    const void *preserved; // the caller's image, which it promised to keep as it was; NULL: no promise
    int arch;
    bool is_bad; // no cubin: known when a kernel is asked for
    kernel *kernels;
} library;

struct kernel {
    library *owner;
    kernel *next;
    char entry[128];
    int max_shared[FAKE_MAX_DEVICES]; // opt-in of each device
    int any_cluster[FAKE_MAX_DEVICES];
};

typedef struct stream {
    CUstreamCaptureStatus capturing;
    long launches; // since the capture began
} stream;

typedef struct graph {
    long launches;
} graph;

typedef struct event {
    struct timespec at;
} event;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int device_count, device_cc[FAKE_MAX_DEVICES];
static context primary[FAKE_MAX_DEVICES], other[FAKE_MAX_DEVICES];
static _Atomic int global_captures; // streams captured in the global mode
static _Thread_local context *current;
static _Thread_local CUstreamCaptureMode thread_mode; // 0: CU_STREAM_CAPTURE_MODE_GLOBAL

// Counts a call; true if it is to fail.
static bool enter(fake_call *call, CUresult *result)
{
    call->count++;
    int times = call->times;
    while (times > 0 && !atomic_compare_exchange_weak(&call->times, &times, times - 1)) {
    }
    if (!times || !call->fail) return false;
    *result = (CUresult)call->fail;
    return true;
}

#define ENTER(name)                                                                                                    \
    CUresult told;                                                                                                     \
    if (enter(&fake_driver.call.name, &told)) return told

static bool is_capture_unsafe(void)
{
    return global_captures > 0 && thread_mode != CU_STREAM_CAPTURE_MODE_RELAXED;
}

// ---- errors, devices, contexts

static CUresult init(unsigned flags)
{
    ENTER(cuInit);
    return flags ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

static CUresult driver_version(int *version)
{
    ENTER(cuDriverGetVersion);
    *version = 13000;
    return CUDA_SUCCESS;
}

static const struct {
    CUresult code;
    const char *name, *text;
} errors[] = {
    {CUDA_SUCCESS, "CUDA_SUCCESS", "no error"},
    {CUDA_ERROR_INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {CUDA_ERROR_OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {CUDA_ERROR_NOT_INITIALIZED, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
    {CUDA_ERROR_DEINITIALIZED, "CUDA_ERROR_DEINITIALIZED", "driver shutting down"},
    {CUDA_ERROR_NO_DEVICE, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
    {CUDA_ERROR_INVALID_DEVICE, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
    {CUDA_ERROR_INVALID_IMAGE, "CUDA_ERROR_INVALID_IMAGE", "device kernel image is invalid"},
    {CUDA_ERROR_INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    {CUDA_ERROR_NO_BINARY_FOR_GPU, "CUDA_ERROR_NO_BINARY_FOR_GPU",
     "no kernel image is available for execution on the device"},
    {CUDA_ERROR_INVALID_HANDLE, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
    {CUDA_ERROR_NOT_FOUND, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
    {CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES, "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES",
     "too many resources requested for launch"},
    {CUDA_ERROR_LAUNCH_FAILED, "CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"},
    {CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED",
     "operation not permitted when stream is capturing"},
    {CUDA_ERROR_INVALID_CLUSTER_SIZE, "CUDA_ERROR_INVALID_CLUSTER_SIZE", "invalid cluster size"},
};

static CUresult error_name(CUresult error, const char **text)
{
    ENTER(cuGetErrorName);
    *text = NULL;
    for (size_t i = 0; i < QN_COUNT(errors); i++) {
        if (errors[i].code == error) *text = errors[i].name;
    }
    return *text ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult error_text(CUresult error, const char **text)
{
    ENTER(cuGetErrorString);
    *text = NULL;
    for (size_t i = 0; i < QN_COUNT(errors); i++) {
        if (errors[i].code == error) *text = errors[i].text;
    }
    return *text ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult get_count(int *count)
{
    ENTER(cuDeviceGetCount);
    *count = device_count;
    return CUDA_SUCCESS;
}

static bool is_device(int device)
{
    return device >= 0 && device < device_count;
}

static CUresult get_device(CUdevice *device, int ordinal)
{
    ENTER(cuDeviceGet);
    if (!is_device(ordinal)) return CUDA_ERROR_INVALID_DEVICE;
    *device = ordinal;
    return CUDA_SUCCESS;
}

static CUresult device_name(char *name, int bytes, CUdevice device)
{
    ENTER(cuDeviceGetName);
    if (!is_device(device)) return CUDA_ERROR_INVALID_DEVICE;
    snprintf(name, (size_t)bytes, "Fake %d.%d", device_cc[device] / 10, device_cc[device] % 10);
    return CUDA_SUCCESS;
}

static CUresult device_attribute(int *value, CUdevice_attribute attribute, CUdevice device)
{
    const qn_arch *targets[8];

    ENTER(cuDeviceGetAttribute);
    if (!is_device(device)) return CUDA_ERROR_INVALID_DEVICE;
    const qn_arch *arch = qn_arch_targets(device_cc[device], targets) ? targets[0] : NULL;
    switch (attribute) {
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
        *value = device_cc[device] / 10;
        break;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR:
        *value = device_cc[device] % 10;
        break;
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT:
        *value = fake_driver.sm_count ? fake_driver.sm_count : arch ? arch->sm_count : 1;
        break;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN:
        *value = arch ? arch->shared_cta : 49152;
        break;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR:
        *value = arch ? arch->shared_sm : 65536;
        break;
    case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR:
        *value = arch ? arch->max_threads_sm : 1024;
        break;
    case CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR:
        *value = 65536;
        break;
    case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
        *value = 1024;
        break;
    case CU_DEVICE_ATTRIBUTE_WARP_SIZE:
        *value = 32;
        break;
    case CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE:
        *value = 50 << 20;
        break;
    case CU_DEVICE_ATTRIBUTE_CLOCK_RATE:
        *value = 1500000;
        break;
    case CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH:
        *value = arch && arch->max_cluster > 1;
        break;
    default:
        *value = 0;
        break;
    }
    return CUDA_SUCCESS;
}

static CUresult total_memory(size_t *bytes, CUdevice device)
{
    ENTER(cuDeviceTotalMem);
    if (!is_device(device)) return CUDA_ERROR_INVALID_DEVICE;
    *bytes = (size_t)80 << 30;
    return CUDA_SUCCESS;
}

static CUresult retain(CUcontext *out, CUdevice device)
{
    ENTER(cuDevicePrimaryCtxRetain);
    if (!is_device(device)) return CUDA_ERROR_INVALID_DEVICE;
    *out = (CUcontext)&primary[device];
    return CUDA_SUCCESS;
}

static CUresult release(CUdevice device)
{
    ENTER(cuDevicePrimaryCtxRelease);
    return is_device(device) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

static CUresult get_current(CUcontext *out)
{
    ENTER(cuCtxGetCurrent);
    *out = (CUcontext)current;
    return CUDA_SUCCESS;
}

static CUresult set_current(CUcontext handle)
{
    ENTER(cuCtxSetCurrent);
    current = (context *)handle;
    return CUDA_SUCCESS;
}

static CUresult context_device(CUdevice *device)
{
    ENTER(cuCtxGetDevice);
    if (!current) return CUDA_ERROR_INVALID_CONTEXT;
    *device = current->device;
    return CUDA_SUCCESS;
}

static CUresult context_synchronize(void)
{
    ENTER(cuCtxSynchronize);
    return current ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

// ---- libraries and kernels

// An ELF file's length by its own tables; 0 if it is none.
static size_t image_bytes(const void *code, int *arch)
{
    Elf64_Ehdr head;

    if (memcmp(code, ELFMAG, SELFMAG)) return 0;
    memcpy(&head, code, sizeof head);
    size_t end = head.e_shoff + (size_t)head.e_shnum * sizeof(Elf64_Shdr);
    size_t segments = head.e_phnum ? head.e_phoff + (size_t)head.e_phnum * sizeof(Elf64_Phdr) : 0;
    *arch = (int)(head.e_ident[EI_ABIVERSION] >= 8 ? head.e_flags >> 8 & 0xff : head.e_flags & 0xff);
    return end > segments ? end : segments;
}

// Code runs on its own major, from its own minor on; whether it is 'a' code the image does not tell.
static bool arch_runs_on(int arch, int device)
{
    int cc = device_cc[device];
    return fake_driver.take_any_arch || (arch / 10 == cc / 10 && arch <= cc);
}

static CUresult load(CUlibrary *out, const void *code, CUjit_option *jit, void **jit_values, unsigned jit_count,
                     CUlibraryOption *options, void **values, unsigned count)
{
    int arch = 0;

    ENTER(cuLibraryLoadData);
    (void)jit, (void)jit_values, (void)jit_count, (void)values;
    if (is_capture_unsafe()) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    size_t bytes = image_bytes(code, &arch);
    bool is_bad = !bytes || !qn_cubin_is_plausible(code, bytes);
    if (fake_driver.eager && is_bad) return CUDA_ERROR_INVALID_IMAGE;
    if (fake_driver.eager && current && !arch_runs_on(arch, current->device)) return CUDA_ERROR_NO_BINARY_FOR_GPU;
    library *made = calloc(1, sizeof *made);
    if (!made) return CUDA_ERROR_OUT_OF_MEMORY;
    if (!is_bad) qn_text_put(&made->image, code, bytes);
    if (made->image.failed) {
        free(made);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    made->is_bad = is_bad;
    made->arch = arch;
    for (unsigned i = 0; i < count && !is_bad; i++)
        if (options[i] == CU_LIBRARY_BINARY_IS_PRESERVED) made->preserved = code;
    fake_driver.live_libraries++;
    *out = (CUlibrary)made;
    return CUDA_SUCCESS;
}

// Reads the caller's image: ASan sees one that was freed too early.
static void check_promise(const library *l)
{
    if (l->preserved && memcmp(l->preserved, l->image.bytes, l->image.length) != 0) abort();
}

static CUresult unload(CUlibrary handle)
{
    library *l = (library *)handle;

    ENTER(cuLibraryUnload);
    if (!l) return CUDA_ERROR_INVALID_HANDLE;
    check_promise(l);
    while (l->kernels) {
        kernel *first = l->kernels;
        l->kernels = first->next;
        free(first);
    }
    qn_text_fini(&l->image);
    free(l);
    fake_driver.live_libraries--;
    return CUDA_SUCCESS;
}

static bool has_entry(const library *l, const char *name)
{
    int registers, shared, local;
    qn_cubin_resources(l->image.bytes, l->image.length, name, &registers, &shared, &local);
    return shared >= 0;
}

static CUresult get_kernel(CUkernel *out, CUlibrary handle, const char *name)
{
    library *l = (library *)handle;

    ENTER(cuLibraryGetKernel);
    if (l->is_bad) return CUDA_ERROR_INVALID_IMAGE;
    if (current && !arch_runs_on(l->arch, current->device)) return CUDA_ERROR_NO_BINARY_FOR_GPU;
    if (!has_entry(l, name)) return CUDA_ERROR_NOT_FOUND;
    kernel *made = calloc(1, sizeof *made);
    if (!made) return CUDA_ERROR_OUT_OF_MEMORY;
    made->owner = l;
    snprintf(made->entry, sizeof made->entry, "%s", name);
    pthread_mutex_lock(&lock);
    made->next = l->kernels;
    l->kernels = made;
    pthread_mutex_unlock(&lock);
    *out = (CUkernel)made;
    return CUDA_SUCCESS;
}

static CUresult get_function(CUfunction *out, CUkernel handle)
{
    ENTER(cuKernelGetFunction);
    if (!current) return CUDA_ERROR_INVALID_CONTEXT;
    if (is_capture_unsafe()) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    if (!arch_runs_on(((kernel *)handle)->owner->arch, current->device)) return CUDA_ERROR_NO_BINARY_FOR_GPU;
    *out = (CUfunction)handle;
    return CUDA_SUCCESS;
}

static CUresult kernel_attribute(int *value, CUfunction_attribute attribute, CUkernel handle, CUdevice device)
{
    const kernel *k = (const kernel *)handle;
    int registers, shared, local;

    ENTER(cuKernelGetAttribute);
    if (!is_device(device)) return CUDA_ERROR_INVALID_DEVICE;
    qn_cubin_resources(k->owner->image.bytes, k->owner->image.length, k->entry, &registers, &shared, &local);
    switch (attribute) {
    case CU_FUNC_ATTRIBUTE_NUM_REGS:
        *value = registers;
        break;
    case CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES:
        *value = shared;
        break;
    case CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES:
        *value = local;
        break;
    case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
        *value = 1024;
        break;
    case CU_FUNC_ATTRIBUTE_BINARY_VERSION:
        *value = k->owner->arch;
        break;
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
        *value = k->max_shared[device] ? k->max_shared[device] : 49152;
        break;
    default:
        *value = 0;
        break;
    }
    return CUDA_SUCCESS;
}

static CUresult set_attribute(CUfunction_attribute attribute, int value, CUkernel handle, CUdevice device)
{
    kernel *k = (kernel *)handle;
    const qn_arch *targets[8];

    ENTER(cuKernelSetAttribute);
    if (!is_device(device)) return CUDA_ERROR_INVALID_DEVICE;
    const qn_arch *arch = qn_arch_targets(device_cc[device], targets) ? targets[0] : NULL;
    if (attribute == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES) {
        if (arch && value > arch->shared_cta) return CUDA_ERROR_INVALID_VALUE;
        k->max_shared[device] = value;
    } else if (attribute == CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED) {
        k->any_cluster[device] = value;
    }
    return CUDA_SUCCESS;
}

// ---- launching

static unsigned cluster_of(const CUlaunchConfig *config)
{
    for (unsigned i = 0; i < config->numAttrs; i++) {
        const CUlaunchAttribute *a = &config->attrs[i];
        if (a->id == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION)
            return a->value.clusterDim.x * a->value.clusterDim.y * a->value.clusterDim.z;
    }
    return 1;
}

static bool overlaps(const CUlaunchConfig *config)
{
    for (unsigned i = 0; i < config->numAttrs; i++)
        if (config->attrs[i].id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION)
            return config->attrs[i].value.programmaticStreamSerializationAllowed != 0;
    return false;
}

static CUresult check_launch(const kernel *k, const CUlaunchConfig *config, unsigned cluster)
{
    unsigned threads = config->blockDimX * config->blockDimY * config->blockDimZ;

    if (!current) return CUDA_ERROR_INVALID_CONTEXT;
    int device = current->device;
    int most = k->max_shared[device] ? k->max_shared[device] : 49152;
    if (!arch_runs_on(k->owner->arch, device)) return CUDA_ERROR_NO_BINARY_FOR_GPU;
    if (!config->gridDimX || !config->gridDimY || !config->gridDimZ || !threads || threads > 1024)
        return CUDA_ERROR_INVALID_VALUE;
    if (config->gridDimX > 0x7fffffffu || config->gridDimY > 65535 || config->gridDimZ > 65535)
        return CUDA_ERROR_INVALID_VALUE;
    if (config->sharedMemBytes > (unsigned)most) return CUDA_ERROR_INVALID_VALUE;
    if (cluster > 16 || (cluster > 8 && !k->any_cluster[device])) return CUDA_ERROR_INVALID_CLUSTER_SIZE;
    if (cluster > 1 && (device_cc[device] < 90 || config->gridDimX % cluster)) return CUDA_ERROR_INVALID_CLUSTER_SIZE;
    return CUDA_SUCCESS;
}

// The parameter comes as kernelParams, or as a buffer with its size.
static void take_params(fake_launch *launch, void **parameters, void **extra)
{
    size_t bytes = fake_driver.param_bytes;

    for (; extra && *extra != CU_LAUNCH_PARAM_END; extra += 2) {
        if (*extra == CU_LAUNCH_PARAM_BUFFER_POINTER) launch->param = extra[1];
        if (*extra == CU_LAUNCH_PARAM_BUFFER_SIZE) bytes = *(size_t *)extra[1];
    }
    if (parameters) launch->param = parameters[0];
    launch->param_bytes = bytes < FAKE_MAX_PARAMS ? bytes : FAKE_MAX_PARAMS;
    if (launch->param) memcpy(launch->params, launch->param, launch->param_bytes);
}

static CUresult launch_kernel(const CUlaunchConfig *config, CUfunction function, void **parameters, void **extra)
{
    const kernel *k = (const kernel *)function;
    fake_launch launch;

    ENTER(cuLaunchKernelEx);
    memset(&launch, 0, sizeof launch);
    launch.cluster = cluster_of(config);
    launch.overlaps = overlaps(config);
    CUresult result = check_launch(k, config, launch.cluster);
    if (result != CUDA_SUCCESS) return result;
    launch.grid[0] = config->gridDimX, launch.grid[1] = config->gridDimY, launch.grid[2] = config->gridDimZ;
    launch.block[0] = config->blockDimX, launch.block[1] = config->blockDimY, launch.block[2] = config->blockDimZ;
    launch.shared = config->sharedMemBytes;
    launch.stream = config->hStream;
    launch.device = current->device;
    launch.arch = k->owner->arch;
    snprintf(launch.entry, sizeof launch.entry, "%s", k->entry);
    qn_hash hash = qn_hash_bytes(k->owner->image.bytes, k->owner->image.length);
    memcpy(launch.image, hash.bytes, sizeof launch.image);
    take_params(&launch, parameters, extra);
    if (fake_driver.on_launch) fake_driver.on_launch(&launch);
    pthread_mutex_lock(&lock);
    fake_driver.last = launch;
    pthread_mutex_unlock(&lock);
    return CUDA_SUCCESS;
}

static CUresult active_blocks(int *count, CUfunction function, int threads, size_t shared)
{
    ENTER(cuOccupancyMaxActiveBlocksPerMultiprocessor);
    (void)function, (void)shared;
    *count = 2048 / (threads > 0 ? threads : 2048);
    return CUDA_SUCCESS;
}

static CUresult active_clusters(int *count, CUfunction function, const CUlaunchConfig *config)
{
    ENTER(cuOccupancyMaxActiveClusters);
    (void)function;
    *count = (int)(132 / cluster_of(config));
    return CUDA_SUCCESS;
}

static CUresult encode_tiled(CUtensorMap *map, CUtensorMapDataType type, cuuint32_t rank, void *address,
                             const cuuint64_t *dims, const cuuint64_t *strides, const cuuint32_t *box,
                             const cuuint32_t *steps, CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle,
                             CUtensorMapL2promotion promotion, CUtensorMapFloatOOBfill fill)
{
    ENTER(cuTensorMapEncodeTiled);
    (void)type, (void)strides, (void)steps, (void)interleave, (void)swizzle, (void)promotion, (void)fill;
    if (!rank || rank > 5 || !dims || !box || ((uintptr_t)address & 15)) return CUDA_ERROR_INVALID_VALUE;
    memset(map, 0, sizeof *map);
    memcpy(map, &address, sizeof address);
    return CUDA_SUCCESS;
}

// ---- memory

static CUresult mem_alloc(CUdeviceptr *address, size_t bytes)
{
    ENTER(cuMemAlloc);
    if (!current) return CUDA_ERROR_INVALID_CONTEXT;
    if (!bytes) return CUDA_ERROR_INVALID_VALUE;
    if (is_capture_unsafe()) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    void *memory = aligned_alloc(256, (bytes + 255) & ~(size_t)255);
    if (!memory) return CUDA_ERROR_OUT_OF_MEMORY;
    memset(memory, 0xCD, bytes);
    fake_driver.live_allocations++;
    *address = (CUdeviceptr)(uintptr_t)memory;
    return CUDA_SUCCESS;
}

static CUresult mem_free(CUdeviceptr address)
{
    ENTER(cuMemFree);
    free((void *)(uintptr_t)address);
    fake_driver.live_allocations--;
    return CUDA_SUCCESS;
}

static CUresult copy_in(CUdeviceptr to, const void *from, size_t bytes)
{
    ENTER(cuMemcpyHtoD);
    memcpy((void *)(uintptr_t)to, from, bytes);
    return CUDA_SUCCESS;
}

static CUresult copy_out(void *to, CUdeviceptr from, size_t bytes)
{
    ENTER(cuMemcpyDtoH);
    memcpy(to, (const void *)(uintptr_t)from, bytes);
    return CUDA_SUCCESS;
}

static CUresult set_words(CUdeviceptr to, unsigned word, size_t count, CUstream handle)
{
    ENTER(cuMemsetD32Async);
    (void)handle;
    if (to & 3) return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < count; i++) ((unsigned *)(uintptr_t)to)[i] = word;
    return CUDA_SUCCESS;
}

// ---- streams, graphs, events

static CUresult exchange_mode(CUstreamCaptureMode *mode)
{
    ENTER(cuThreadExchangeStreamCaptureMode);
    CUstreamCaptureMode before = thread_mode;
    thread_mode = *mode;
    *mode = before;
    return CUDA_SUCCESS;
}

static CUresult is_capturing(CUstream handle, CUstreamCaptureStatus *status)
{
    ENTER(cuStreamIsCapturing);
    *status = (CUstreamCaptureStatus)fake_driver.capture_status;
    if ((uintptr_t)handle > 2) *status = ((stream *)handle)->capturing; // 0, 1, 2: the driver's own streams
    return CUDA_SUCCESS;
}

static CUresult stream_create(CUstream *out, unsigned flags)
{
    ENTER(cuStreamCreate);
    (void)flags;
    if (!current) return CUDA_ERROR_INVALID_CONTEXT;
    stream *made = calloc(1, sizeof *made);
    *out = (CUstream)made;
    return made ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult stream_destroy(CUstream handle)
{
    ENTER(cuStreamDestroy);
    free((stream *)handle);
    return CUDA_SUCCESS;
}

static CUresult stream_synchronize(CUstream handle)
{
    ENTER(cuStreamSynchronize);
    if ((uintptr_t)handle > 2 && ((stream *)handle)->capturing) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    return CUDA_SUCCESS;
}

static CUresult begin_capture(CUstream handle, CUstreamCaptureMode mode)
{
    stream *s = (stream *)handle;

    ENTER(cuStreamBeginCapture);
    if ((uintptr_t)handle <= 2 || s->capturing) return CUDA_ERROR_INVALID_VALUE;
    s->capturing = CU_STREAM_CAPTURE_STATUS_ACTIVE;
    s->launches = fake_driver.call.cuLaunchKernelEx.count;
    if (mode == CU_STREAM_CAPTURE_MODE_GLOBAL) global_captures++;
    return CUDA_SUCCESS;
}

static CUresult end_capture(CUstream handle, CUgraph *out)
{
    stream *s = (stream *)handle;

    ENTER(cuStreamEndCapture);
    if ((uintptr_t)handle <= 2 || !s->capturing) return CUDA_ERROR_INVALID_VALUE;
    s->capturing = CU_STREAM_CAPTURE_STATUS_NONE;
    if (global_captures > 0) global_captures--;
    graph *made = calloc(1, sizeof *made);
    if (!made) return CUDA_ERROR_OUT_OF_MEMORY;
    made->launches = fake_driver.call.cuLaunchKernelEx.count - s->launches;
    *out = (CUgraph)made;
    return CUDA_SUCCESS;
}

static CUresult instantiate(CUgraphExec *out, CUgraph handle, unsigned long long flags)
{
    ENTER(cuGraphInstantiateWithFlags);
    (void)flags;
    graph *made = malloc(sizeof *made);
    if (!made) return CUDA_ERROR_OUT_OF_MEMORY;
    *made = *(graph *)handle;
    *out = (CUgraphExec)made;
    return CUDA_SUCCESS;
}

static CUresult graph_launch(CUgraphExec exec, CUstream handle)
{
    ENTER(cuGraphLaunch);
    (void)handle;
    return exec ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

static CUresult exec_destroy(CUgraphExec exec)
{
    ENTER(cuGraphExecDestroy);
    free((graph *)exec);
    return CUDA_SUCCESS;
}

static CUresult graph_destroy(CUgraph handle)
{
    ENTER(cuGraphDestroy);
    free((graph *)handle);
    return CUDA_SUCCESS;
}

static CUresult event_create(CUevent *out, unsigned flags)
{
    ENTER(cuEventCreate);
    (void)flags;
    *out = (CUevent)calloc(1, sizeof(event));
    return *out ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult event_record(CUevent handle, CUstream s)
{
    ENTER(cuEventRecord);
    (void)s;
    clock_gettime(CLOCK_MONOTONIC, &((event *)handle)->at);
    return CUDA_SUCCESS;
}

static CUresult event_synchronize(CUevent handle)
{
    ENTER(cuEventSynchronize);
    (void)handle;
    return CUDA_SUCCESS;
}

static CUresult event_elapsed(float *ms, CUevent start, CUevent end)
{
    const struct timespec *a = &((event *)start)->at, *b = &((event *)end)->at;

    ENTER(cuEventElapsedTime);
    *ms = (float)((double)(b->tv_sec - a->tv_sec) * 1e3 + (double)(b->tv_nsec - a->tv_nsec) * 1e-6);
    return CUDA_SUCCESS;
}

static CUresult event_destroy(CUevent handle)
{
    ENTER(cuEventDestroy);
    free((event *)handle);
    return CUDA_SUCCESS;
}

static const qn_driver table = {
    .cuInit = init,
    .cuDriverGetVersion = driver_version,
    .cuGetErrorName = error_name,
    .cuGetErrorString = error_text,
    .cuDeviceGetCount = get_count,
    .cuDeviceGet = get_device,
    .cuDeviceGetName = device_name,
    .cuDeviceGetAttribute = device_attribute,
    .cuDeviceTotalMem = total_memory,
    .cuDevicePrimaryCtxRetain = retain,
    .cuDevicePrimaryCtxRelease = release,
    .cuCtxGetCurrent = get_current,
    .cuCtxSetCurrent = set_current,
    .cuCtxGetDevice = context_device,
    .cuCtxSynchronize = context_synchronize,
    .cuLibraryLoadData = load,
    .cuLibraryUnload = unload,
    .cuLibraryGetKernel = get_kernel,
    .cuKernelGetFunction = get_function,
    .cuKernelGetAttribute = kernel_attribute,
    .cuKernelSetAttribute = set_attribute,
    .cuLaunchKernelEx = launch_kernel,
    .cuOccupancyMaxActiveBlocksPerMultiprocessor = active_blocks,
    .cuOccupancyMaxActiveClusters = active_clusters,
    .cuThreadExchangeStreamCaptureMode = exchange_mode,
    .cuStreamIsCapturing = is_capturing,
    .cuTensorMapEncodeTiled = encode_tiled,
    .cuMemAlloc = mem_alloc,
    .cuMemFree = mem_free,
    .cuMemcpyHtoD = copy_in,
    .cuMemcpyDtoH = copy_out,
    .cuMemsetD32Async = set_words,
    .cuStreamCreate = stream_create,
    .cuStreamDestroy = stream_destroy,
    .cuStreamSynchronize = stream_synchronize,
    .cuStreamBeginCapture = begin_capture,
    .cuStreamEndCapture = end_capture,
    .cuGraphInstantiateWithFlags = instantiate,
    .cuGraphLaunch = graph_launch,
    .cuGraphExecDestroy = exec_destroy,
    .cuGraphDestroy = graph_destroy,
    .cuEventCreate = event_create,
    .cuEventRecord = event_record,
    .cuEventSynchronize = event_synchronize,
    .cuEventElapsedTime = event_elapsed,
    .cuEventDestroy = event_destroy,
};

void fake_driver_install(int count, const int *cc)
{
    memset(&fake_driver, 0, sizeof fake_driver);
    device_count = count < FAKE_MAX_DEVICES ? count : FAKE_MAX_DEVICES;
    for (int i = 0; i < device_count; i++) {
        device_cc[i] = cc[i];
        primary[i].device = other[i].device = i;
    }
    global_captures = 0;
    thread_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
    current = NULL;
    qn_driver_replace(&table);
}

void fake_driver_remove(void)
{
    qn_driver_replace(NULL);
}

CUcontext fake_driver_context(int device)
{
    return (CUcontext)&primary[device];
}

CUcontext fake_driver_other_context(int device)
{
    return (CUcontext)&other[device];
}

void fake_driver_enter(CUcontext handle)
{
    current = (context *)handle;
}

CUcontext fake_driver_current(void)
{
    return (CUcontext)current;
}
