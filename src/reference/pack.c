// SPDX-License-Identifier: Apache-2.0
// Packing index keys: numbers to the codes of a layout and back (quern.h section 7.4). Host only; every quotient is made
// in f64 and rounded once.
#include <math.h>
#include <string.h>

#include "base/status.h"
#include "quern/quern.h"
#include "reference/formats.h"

static const int64_t MOST_ELEMENTS = INT64_MAX / 8;

static quern_status check(quern_indexer_layout layout, const void *x, int64_t rows, int64_t columns, const void *values,
                          const void *scales, const void *tensor_scale)
{
    if (layout < QUERN_INDEXER_NVFP4_HEADS || layout > QUERN_INDEXER_FP8_SHARED)
        return qn_fail(QUERN_BAD_ARGUMENT, "layout = %d: there is no such layout", (int)layout);
    if (rows < 0 || columns < 0 || (columns && rows > MOST_ELEMENTS / columns))
        return qn_fail(QUERN_BAD_SIZE, "rows = %lld, columns = %lld: out of range", (long long)rows,
                       (long long)columns);
    if (columns % 32) return qn_fail(QUERN_BAD_SIZE, "columns = %lld: a multiple of 32 is needed", (long long)columns);
    if (layout == QUERN_INDEXER_NVFP4_HEADS && !tensor_scale)
        return qn_fail(QUERN_MISSING_ARGUMENT, "tensor_scale is NULL, and nvfp4_heads has one");
    if (rows && columns && (!x || !values || !scales))
        return qn_fail(QUERN_MISSING_ARGUMENT, "%s is NULL", !x ? "x" : !values ? "values" : "scales");
    return QUERN_OK;
}

// ---- packing

static quern_status check_finite(const float *x, int64_t rows, int64_t columns)
{
    for (int64_t i = 0; i < rows * columns; i++)
        if (!isfinite(x[i]))
            return qn_fail(QUERN_BAD_VALUE, "x[%lld, %lld] = %g: there is no code for it", (long long)(i / columns),
                           (long long)(i % columns), (double)x[i]);
    return QUERN_OK;
}

static double largest(const float *x, int64_t count)
{
    double most = 0;
    for (int64_t i = 0; i < count; i++)
        if (fabs((double)x[i]) > most) most = fabs((double)x[i]);
    return most;
}

static void put_e2m1(const float *x, int64_t count, double scale, uint8_t *values)
{
    for (int64_t i = 0; i < count; i += 2)
        values[i / 2] = (uint8_t)(qn_f64_to_e2m1(x[i] / scale) | qn_f64_to_e2m1(x[i + 1] / scale) << 4);
}

// The least power of two that brings the largest of 32 to 6 or below.
static uint8_t mxfp4_scale(double most)
{
    int exponent = -126;
    while (exponent < 127 && ldexp(6, exponent) < most) exponent++;
    return (uint8_t)(exponent + 127);
}

static void pack_mxfp4(const float *x, int64_t groups, uint8_t *values, uint8_t *scales)
{
    for (int64_t g = 0; g < groups; g++) {
        scales[g] = mxfp4_scale(largest(x + 32 * g, 32));
        put_e2m1(x + 32 * g, 32, qn_ue8m0_to_f64(scales[g]), values + 16 * g);
    }
}

static void pack_nvfp4(const float *x, int64_t groups, double tensor, uint8_t *values, uint8_t *scales)
{
    for (int64_t g = 0; g < groups; g++) {
        uint8_t code = qn_f64_to_e4m3(largest(x + 16 * g, 16) / 6 / tensor);
        scales[g] = code ? code : 1; // 0 would leave nothing of the block
        put_e2m1(x + 16 * g, 16, (double)qn_e4m3_to_f32(scales[g]) * tensor, values + 8 * g);
    }
}

static void pack_fp8(const float *x, int64_t rows, int64_t columns, uint8_t *values, void *scales)
{
    for (int64_t r = 0; r < rows; r++) {
        double most = largest(x + r * columns, columns);
        float scale = most > 0 ? (float)(most / 448) : 1.0f;
        if (scale == 0) scale = 0x1p-149f;
        memcpy((char *)scales + r * 4, &scale, sizeof scale);
        for (int64_t c = 0; c < columns; c++)
            values[r * columns + c] = qn_f64_to_e4m3((double)x[r * columns + c] / scale);
    }
}

quern_status quern_pack(quern_indexer_layout layout, const float *x, int64_t rows, int64_t columns, void *values,
                        void *scales, float *tensor_scale)
{
    QN_TRY(check(layout, x, rows, columns, values, scales, tensor_scale));
    QN_TRY(check_finite(x, rows, columns));
    if (layout == QUERN_INDEXER_FP8_SHARED) {
        pack_fp8(x, rows, columns, values, scales);
    } else if (layout == QUERN_INDEXER_MXFP4_SHARED) {
        pack_mxfp4(x, rows * columns / 32, values, scales);
    } else {
        double most = largest(x, rows * columns);
        if (!(*tensor_scale > 0) && *tensor_scale != 0)
            return qn_fail(QUERN_BAD_VALUE, "tensor_scale = %g: it must be above 0, or 0 to be made",
                           (double)*tensor_scale);
        if (*tensor_scale == 0) *tensor_scale = most > 0 ? fmaxf((float)(most / 2688), 0x1p-149f) : 1.0f;
        pack_nvfp4(x, rows * columns / 16, (double)*tensor_scale, values, scales);
    }
    return QUERN_OK;
}

// ---- unpacking

quern_status quern_unpack(quern_indexer_layout layout, const void *values, const void *scales,
                          const float *tensor_scale, int64_t rows, int64_t columns, float *x)
{
    const uint8_t *value = values, *scale = scales;
    QN_TRY(check(layout, x, rows, columns, values, scales, tensor_scale));
    for (int64_t i = 0; i < rows * columns; i++) {
        if (layout == QUERN_INDEXER_FP8_SHARED) {
            float row;
            memcpy(&row, scale + i / columns * 4, sizeof row);
            x[i] = (float)((double)qn_e4m3_to_f32(value[i]) * (double)row);
        } else if (layout == QUERN_INDEXER_MXFP4_SHARED) {
            x[i] = (float)(qn_e2m1_at(value, i) * qn_ue8m0_to_f64(scale[i / 32]));
        } else {
            x[i] = (float)(qn_e2m1_at(value, i) * (double)qn_e4m3_to_f32(scale[i / 16]) * (double)*tensor_scale);
        }
    }
    return QUERN_OK;
}
