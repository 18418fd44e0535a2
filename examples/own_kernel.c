/* SPDX-License-Identifier: Apache-2.0
 * A kernel of one's own through Quern's path: compiled once for the device at hand, kept in the database under its complete
 * content, found by the next run of this program (or of another), and launched with any geometry inside its limits. */
#include <math.h>

#include "example.h"

enum { N = 100000, THREADS = 256 };

static const char header[] = "#pragma once\n"
                             "__device__ inline float axpy(float a, float x, float y) { return fmaf(a, x, y); }\n";
static const char source[] =
    "#include \"axpy.h\"\n"
    "extern \"C\" __global__ void axpy_kernel(const float *x, float *y, float a, int n)\n"
    "{\n"
    "    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)\n"
    "        y[i] = SCALE * axpy(a, x[i], y[i]);\n"
    "}\n";

/* The kernel's parameters, as the members of a structure. */
typedef struct parameters {
    CUdeviceptr x, y;
    float a;
    int n;
} parameters;

int main(void)
{
    static const char *const options[] = {"--std=c++17", "-DSCALE=0.5f"};
    static const quern_header headers[] = {{"axpy.h", header}};
    static float x[N], y[N];
    static const char *const from[] = {"compiled", "memory", "a sealed database", "the user's database"};
    CUdevice device;
    CUcontext context;
    CUdeviceptr d_x, d_y;
    CUDA(cuInit(0));
    CUDA(cuDeviceGet(&device, 0));
    CUDA(cuDevicePrimaryCtxRetain(&context, device));
    CUDA(cuCtxSetCurrent(context));

    quern *q = NULL;
    quern_kernel *kernel = NULL;
    quern_kernel_info info = QUERN_KERNEL_INFO_INIT;
    quern_source description = QUERN_SOURCE_INIT;
    description.source = source, description.entry = "axpy_kernel";
    description.options = options, description.option_count = 2;
    description.headers = headers, description.header_count = 1;
    description.threads = THREADS, description.parameter_bytes = sizeof(parameters);
    QUERN(quern_open(NULL, &q));
    QUERN(quern_prepare_source(q, &description, QUERN_DEVICE_CURRENT, &kernel));
    QUERN(quern_kernel_describe(kernel, &info));
    printf("%s for %s: from %s, %d registers\n", info.entry, info.arch, from[info.origin], info.registers);

    for (int i = 0; i < N; i++) x[i] = (float)i, y[i] = 1.0f;
    CUDA(cuMemAlloc(&d_x, sizeof x));
    CUDA(cuMemAlloc(&d_y, sizeof y));
    CUDA(cuMemcpyHtoD(d_x, x, sizeof x));
    CUDA(cuMemcpyHtoD(d_y, y, sizeof y));
    parameters p = {d_x, d_y, 2.0f, N};
    quern_geometry geometry = QUERN_GEOMETRY_INIT;
    geometry.grid[0] = 64, geometry.threads[0] = 128, geometry.threads[1] = geometry.threads[2] = 1;
    QUERN(quern_launch_packed(kernel, &geometry, &p, sizeof p, NULL)); /* y = (2x + 1) / 2 */
    CUDA(cuStreamSynchronize(NULL));
    CUDA(cuMemcpyDtoH(y, d_y, sizeof y));

    int wrong = 0;
    for (int i = 0; i < N; i++) wrong += y[i] != fmaf(2.0f, x[i], 1.0f) * 0.5f;
    printf("%d of %d elements differ from the host's\n", wrong, N);
    quern_kernel_release(kernel);
    quern_close(q);
    CUDA(cuMemFree(d_x));
    CUDA(cuMemFree(d_y));
    CUDA(cuDevicePrimaryCtxRelease(device));
    return wrong ? 2 : 0;
}
