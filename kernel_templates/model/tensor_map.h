/* SPDX-License-Identifier: Apache-2.0
 * Tensor maps of the functional model: what cuTensorMapEncodeTiled is to the device. For whoever stands in for the
 * driver on the host side (C), and for tma.cpp, which reads what is written here. The 128 bytes are the model's own
 * and mean nothing to a GPU, nor the other way round. The rules are those that the driver's manual states. */
#ifndef QM_TENSOR_MAP_H
#define QM_TENSOR_MAP_H

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#define QM_TENSOR_MAP_BYTES 128
#define QM_TENSOR_MAP_MARK  0x70616D726F736E74ull /* everything else is not a map of this model */

typedef struct qm_tensor_map {
    uint64_t mark;
    uint64_t address;
    uint64_t stride[4];     /* bytes, of dimensions 1 and up */
    uint32_t dim_less_1[5]; /* elements */
    uint16_t box[5];        /* elements, before the element strides */
    uint8_t step[5];
    uint8_t type, rank, interleave, swizzle, fill;
} qm_tensor_map;

/* The driver's enumerations, by number (cuda.h). */
enum { QM_TENSOR_TYPES = 16, QM_TENSOR_TF32 = 11, QM_TENSOR_TF32_FTZ = 12, QM_TENSOR_PACKED = 13 };

typedef struct qm_tensor_fault {
    char text[160]; /* argument, value found, what is allowed */
} qm_tensor_fault;

static inline int __attribute__((format(printf, 2, 3)))
qm_tensor_refuse(qm_tensor_fault *fault, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(fault->text, sizeof fault->text, format, arguments);
    va_end(arguments);
    return 1; /* CUDA_ERROR_INVALID_VALUE */
}

static inline int qm_tensor_check_kinds(unsigned type, uint32_t rank, unsigned interleave, unsigned swizzle,
                                        unsigned promotion, unsigned fill, qm_tensor_fault *fault)
{
    int floating = type >= 6 && type <= 12;
    if (type >= QM_TENSOR_TYPES)
        return qm_tensor_refuse(fault, "tensorDataType = %u: must be 0 to %d", type, QM_TENSOR_TYPES - 1);
    if (rank < 1 || rank > 5) return qm_tensor_refuse(fault, "tensorRank = %u: must be 1 to 5", rank);
    if (interleave > 2) return qm_tensor_refuse(fault, "interleave = %u: must be 0 to 2", interleave);
    if (swizzle > 6) return qm_tensor_refuse(fault, "swizzle = %u: must be 0 to 6", swizzle);
    if (promotion > 3) return qm_tensor_refuse(fault, "l2Promotion = %u: must be 0 to 3", promotion);
    if (fill > 1) return qm_tensor_refuse(fault, "oobFill = %u: must be 0 or 1", fill);
    if (fill && !floating) return qm_tensor_refuse(fault, "oobFill = 1: NaN needs a floating type, not %u", type);
    if (interleave && rank < 3) return qm_tensor_refuse(fault, "tensorRank = %u: must be 3 to 5 with interleave", rank);
    if (interleave == 2 && swizzle != 1)
        return qm_tensor_refuse(fault, "swizzle = %u: must be 1 (32B) with interleave 32B", swizzle);
    return 0;
}

static inline int qm_tensor_check_shape(unsigned type, uint32_t rank, const void *address, const uint64_t *dims,
                                        const uint64_t *strides, unsigned interleave, qm_tensor_fault *fault)
{
    unsigned align = interleave == 2 || type > QM_TENSOR_PACKED ? 32 : 16;
    if ((uintptr_t)address % align)
        return qm_tensor_refuse(fault, "globalAddress %p: must be aligned to %u bytes", address, align);
    for (uint32_t i = 0; i < rank; i++)
        if (dims[i] < 1 || dims[i] > 1ull << 32)
            return qm_tensor_refuse(fault, "globalDim[%u] = %llu: must be 1 to 2^32", i, (unsigned long long)dims[i]);
    unsigned inner = type > QM_TENSOR_PACKED ? 128 : type == QM_TENSOR_PACKED ? 2 : 1;
    if (dims[0] % inner)
        return qm_tensor_refuse(fault, "globalDim[0] = %llu: must be a multiple of %u for packed type %u",
                                (unsigned long long)dims[0], inner, type);
    for (uint32_t i = 0; i + 1 < rank; i++)
        if (strides[i] % align || strides[i] >= 1ull << 40)
            return qm_tensor_refuse(fault, "globalStrides[%u] = %llu: must be a multiple of %u below 2^40", i,
                                    (unsigned long long)strides[i], align);
    return 0;
}

static inline int qm_tensor_check_box(unsigned type, uint32_t rank, const uint32_t *box, const uint32_t *steps,
                                      unsigned interleave, unsigned swizzle, qm_tensor_fault *fault)
{
    static const unsigned char bits[QM_TENSOR_TYPES] = {8, 16, 32, 32, 64, 64, 16, 32, 64, 16, 32, 32, 32, 4, 4, 6};
    static const unsigned span[7] = {~0u, 32, 64, 128, 128, 128, 128};
    for (uint32_t i = 0; i < rank; i++) {
        if (box[i] < 1 || box[i] > 256) return qm_tensor_refuse(fault, "boxDim[%u] = %u: must be 1 to 256", i, box[i]);
        if (steps[i] < 1 || steps[i] > 8)
            return qm_tensor_refuse(fault, "elementStrides[%u] = %u: must be 1 to 8", i, steps[i]);
    }
    unsigned inner = box[0] * bits[type];
    if (type > QM_TENSOR_PACKED && box[0] != 128)
        return qm_tensor_refuse(fault, "boxDim[0] = %u: must be 128 for packed type %u", box[0], type);
    if (interleave == 0 && type <= QM_TENSOR_PACKED && inner % 128)
        return qm_tensor_refuse(fault, "boxDim[0] = %u: %u bytes, must be a multiple of 16", box[0], inner / 8);
    if (interleave == 0 && inner / 8 > span[swizzle])
        return qm_tensor_refuse(fault, "boxDim[0] = %u: %u bytes, at most %u with swizzle %u", box[0], inner / 8,
                                span[swizzle], swizzle);
    return 0;
}

/* The driver's arguments in the driver's order, then where a refusal is put. Returns the driver's result: 0, or 1
 * (CUDA_ERROR_INVALID_VALUE) with the map untouched. */
static inline int qm_tensor_map_encode_tiled(void *map, unsigned type, uint32_t rank, void *address,
                                             const uint64_t *dims, const uint64_t *strides, const uint32_t *box,
                                             const uint32_t *steps, unsigned interleave, unsigned swizzle,
                                             unsigned promotion, unsigned fill, qm_tensor_fault *fault)
{
    qm_tensor_map record;
    if ((uintptr_t)map % 64) return qm_tensor_refuse(fault, "tensorMap %p: must be aligned to 64 bytes", map);
    if (qm_tensor_check_kinds(type, rank, interleave, swizzle, promotion, fill, fault)) return 1;
    if (qm_tensor_check_shape(type, rank, address, dims, strides, interleave, fault)) return 1;
    if (qm_tensor_check_box(type, rank, box, steps, interleave, swizzle, fault)) return 1;
    memset(&record, 0, sizeof record);
    record.mark = QM_TENSOR_MAP_MARK;
    record.address = (uintptr_t)address;
    for (uint32_t i = 0; i < rank; i++) {
        if (i) record.stride[i - 1] = strides[i - 1];
        record.dim_less_1[i] = (uint32_t)(dims[i] - 1);
        record.box[i] = (uint16_t)box[i];
        record.step[i] = (uint8_t)steps[i];
    }
    record.type = (uint8_t)type, record.rank = (uint8_t)rank;
    record.interleave = (uint8_t)interleave, record.swizzle = (uint8_t)swizzle, record.fill = (uint8_t)fill;
    memset(map, 0, QM_TENSOR_MAP_BYTES);
    memcpy(map, &record, sizeof record);
    return 0;
}

#endif
