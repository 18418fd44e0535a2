// SPDX-License-Identifier: Apache-2.0
// The CUDA Driver API as a table of functions, loaded once a process when it is first needed.
//   (1) Nothing here is called before qn_driver_load; without libcuda it fails and may succeed later.
//   (2) The library is never closed.
//   (3) Tests replace the table (qn_driver_replace) by fakes: everything above goes through it.
#ifndef QN_CUDA_DRIVER_H
#define QN_CUDA_DRIVER_H

#include <cuda.h>

#include "base/status.h"

// name, parameters. All are in driver 12.0 and later. Each is loaded under the name that cuda.h maps it to (for
// example cuCtxCreate → cuCtxCreate_v4 is not used here, so that 12.x drivers do).
#define QN_DRIVER_LIST(X)                                                                                              \
    X(cuInit, (unsigned flags))                                                                                        \
    X(cuDriverGetVersion, (int *version))                                                                              \
    X(cuGetErrorName, (CUresult error, const char **text))                                                             \
    X(cuGetErrorString, (CUresult error, const char **text))                                                           \
    X(cuDeviceGetCount, (int *count))                                                                                  \
    X(cuDeviceGet, (CUdevice * device, int ordinal))                                                                   \
    X(cuDeviceGetName, (char *name, int bytes, CUdevice device))                                                       \
    X(cuDeviceGetAttribute, (int *value, CUdevice_attribute attribute, CUdevice device))                               \
    X(cuDeviceTotalMem, (size_t * bytes, CUdevice device))                                                             \
    X(cuDevicePrimaryCtxRetain, (CUcontext * context, CUdevice device))                                                \
    X(cuDevicePrimaryCtxRelease, (CUdevice device))                                                                    \
    X(cuCtxGetCurrent, (CUcontext * context))                                                                          \
    X(cuCtxSetCurrent, (CUcontext context))                                                                            \
    X(cuCtxGetDevice, (CUdevice * device))                                                                             \
    X(cuCtxSynchronize, (void))                                                                                        \
    X(cuLibraryLoadData, (CUlibrary * library, const void *code, CUjit_option *jit, void **jit_values,                 \
                          unsigned jit_count, CUlibraryOption *options, void **values, unsigned count))                \
    X(cuLibraryUnload, (CUlibrary library))                                                                            \
    X(cuLibraryGetKernel, (CUkernel * kernel, CUlibrary library, const char *name))                                    \
    X(cuLibraryGetGlobal, (CUdeviceptr * address, size_t * bytes, CUlibrary library, const char *name))                \
    X(cuKernelGetFunction, (CUfunction * function, CUkernel kernel))                                                   \
    X(cuKernelGetAttribute, (int *value, CUfunction_attribute attribute, CUkernel kernel, CUdevice device))            \
    X(cuKernelSetAttribute, (CUfunction_attribute attribute, int value, CUkernel kernel, CUdevice device))             \
    X(cuLaunchKernelEx, (const CUlaunchConfig *config, CUfunction function, void **parameters, void **extra))          \
    X(cuOccupancyMaxActiveBlocksPerMultiprocessor, (int *count, CUfunction function, int threads, size_t shared))      \
    X(cuOccupancyMaxActiveClusters, (int *count, CUfunction function, const CUlaunchConfig *config))                   \
    X(cuThreadExchangeStreamCaptureMode, (CUstreamCaptureMode * mode))                                                 \
    X(cuStreamIsCapturing, (CUstream stream, CUstreamCaptureStatus * status))                                          \
    X(cuTensorMapEncodeTiled,                                                                                          \
      (CUtensorMap * map, CUtensorMapDataType type, cuuint32_t rank, void *address, const cuuint64_t *dims,            \
       const cuuint64_t *strides, const cuuint32_t *box, const cuuint32_t *steps, CUtensorMapInterleave interleave,    \
       CUtensorMapSwizzle swizzle, CUtensorMapL2promotion promotion, CUtensorMapFloatOOBfill fill))                    \
    X(cuMemAlloc, (CUdeviceptr * address, size_t bytes))                                                               \
    X(cuMemFree, (CUdeviceptr address))                                                                                \
    X(cuMemcpyHtoD, (CUdeviceptr to, const void *from, size_t bytes))                                                  \
    X(cuMemcpyDtoH, (void *to, CUdeviceptr from, size_t bytes))                                                        \
    X(cuMemsetD32Async, (CUdeviceptr to, unsigned word, size_t count, CUstream stream))                                \
    X(cuStreamCreate, (CUstream * stream, unsigned flags))                                                             \
    X(cuStreamDestroy, (CUstream stream))                                                                              \
    X(cuStreamSynchronize, (CUstream stream))                                                                          \
    X(cuStreamBeginCapture, (CUstream stream, CUstreamCaptureMode mode))                                               \
    X(cuStreamEndCapture, (CUstream stream, CUgraph * graph))                                                          \
    X(cuGraphInstantiateWithFlags, (CUgraphExec * exec, CUgraph graph, unsigned long long flags))                      \
    X(cuGraphLaunch, (CUgraphExec exec, CUstream stream))                                                              \
    X(cuGraphExecDestroy, (CUgraphExec exec))                                                                          \
    X(cuGraphDestroy, (CUgraph graph))                                                                                 \
    X(cuEventCreate, (CUevent * event, unsigned flags))                                                                \
    X(cuEventRecord, (CUevent event, CUstream stream))                                                                 \
    X(cuEventSynchronize, (CUevent event))                                                                             \
    X(cuEventElapsedTime, (float *ms, CUevent start, CUevent end))                                                     \
    X(cuEventDestroy, (CUevent event))

// cuda.h makes some of these names macros (cuMemAlloc → cuMemAlloc_v2); member names and symbols follow it alike.
typedef struct qn_driver {
#define X(name, parameters) CUresult(*name) parameters;
    QN_DRIVER_LIST(X)
#undef X
} qn_driver;

// Loads libcuda (file, or the default names when NULL), and calls cuInit. The first success stays for the process.
// DRIVER_NOT_FOUND lists each path tried and why; DRIVER_TOO_OLD names the missing function and the driver's version;
// NO_DEVICE when cuInit finds none.
quern_status qn_driver_load(const char *file, const qn_driver **driver);
const char *qn_driver_path(void); // where it was loaded from; "" before

void qn_driver_replace(const qn_driver *fake); // tests; NULL goes back

// A failed driver call as a status and a message: "cuLaunchKernelEx: CUDA_ERROR_… (text)".
quern_status qn_driver_fail(const qn_driver *driver, quern_status status, const char *call, CUresult result);

#endif
