// SPDX-License-Identifier: Apache-2.0
// Looking at GPUs and making one's context current (device.h).
#include "device.h"

#include <string.h>

#include "base/text.h"

quern_status device_check(const device *d, const char *call, CUresult result)
{
    return result == CUDA_SUCCESS ? QUERN_OK : qn_driver_fail(d->driver, QUERN_DRIVER_ERROR, call, result);
}

quern_status device_count(int *count)
{
    device d = {0};
    int n = 0;
    QN_TRY(qn_driver_load(NULL, &d.driver));
    DEVICE_TRY(&d, cuDeviceGetCount, &n);
    if (n == 0) return qn_fail(QUERN_NO_DEVICE, "the driver shows no GPU (is CUDA_VISIBLE_DEVICES empty?)");
    *count = n;
    return QUERN_OK;
}

static quern_status attribute(const device *d, CUdevice_attribute which, int *value)
{
    DEVICE_TRY(d, cuDeviceGetAttribute, value, which, d->handle);
    return QUERN_OK;
}

quern_status device_look(int ordinal, device *out)
{
    device d = {.ordinal = ordinal};
    int count, major, minor, l2;
    size_t memory;
    QN_TRY(device_count(&count));
    if (ordinal < 0 || ordinal >= count)
        return qn_fail(QUERN_NO_DEVICE, "there is no GPU %d: the driver shows 0 to %d", ordinal, count - 1);
    QN_TRY(qn_driver_load(NULL, &d.driver));
    DEVICE_TRY(&d, cuDeviceGet, &d.handle, ordinal);
    DEVICE_TRY(&d, cuDeviceGetName, d.name, (int)sizeof d.name, d.handle);
    DEVICE_TRY(&d, cuDriverGetVersion, &d.driver_version);
    QN_TRY(attribute(&d, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, &major));
    QN_TRY(attribute(&d, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, &minor));
    QN_TRY(attribute(&d, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, &d.sm_count));
    QN_TRY(attribute(&d, CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE, &l2));
    DEVICE_TRY(&d, cuDeviceTotalMem, &memory, d.handle);
    d.cc = 10 * major + minor;
    d.l2_bytes = l2;
    d.memory_bytes = (int64_t)memory;
    *out = d;
    return QUERN_OK;
}

quern_status device_open(int ordinal, device *out)
{
    device d;
    QN_TRY(device_look(ordinal, &d));
    DEVICE_TRY(&d, cuDevicePrimaryCtxRetain, &d.context, d.handle);
    CUresult result = d.driver->cuCtxSetCurrent(d.context);
    if (result != CUDA_SUCCESS) {
        (void)d.driver->cuDevicePrimaryCtxRelease(d.handle);
        return device_check(&d, "cuCtxSetCurrent", result);
    }
    *out = d;
    return QUERN_OK;
}

void device_close(device *d)
{
    if (!d->context) return;
    (void)d->driver->cuCtxSetCurrent(NULL);
    (void)d->driver->cuDevicePrimaryCtxRelease(d->handle);
    d->context = NULL;
}

bool device_parse(const char *word, int *ordinal)
{
    int64_t number = 0;
    if (strncmp(word, "gpu", 3) != 0) return false;
    if (word[3] == ':' && (!qn_parse_int(word + 4, &number) || number < 0 || number > 1023)) return false;
    if (word[3] != ':' && word[3] != 0) return false;
    *ordinal = (int)number;
    return true;
}
