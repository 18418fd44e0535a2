// SPDX-License-Identifier: Apache-2.0
// See tensor_map.h. The rules are those the driver's manual states for cuTensorMapEncodeTiled.
#include "tensor_map.h"
#include "tma.h"

#include <cstdarg>
#include <cstdio>

namespace {

char fault[256];

__attribute__((format(printf, 1, 2))) int refuse(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(fault, sizeof fault, format, arguments);
    va_end(arguments);
    return 1; // CUDA_ERROR_INVALID_VALUE
}

enum { TYPES = 16, PACKED_8B = 13, PACKED_16B = 14, PACKED_6B = 15 };
constexpr int kBits[TYPES] = {8, 16, 32, 32, 64, 64, 16, 32, 64, 16, 32, 32, 32, 4, 4, 6};
constexpr bool kFloating[TYPES] = {false, false, false, false, false, false, true,  true,
                                   true,  true,  true,  true,  true,  false, false, false};

int check_shape(unsigned type, uint32_t rank, const void *address, const uint64_t *dims, const uint64_t *strides,
                unsigned interleave)
{
    uint64_t align = interleave == 2 || type == PACKED_16B || type == PACKED_6B ? 32 : 16;
    if (reinterpret_cast<uintptr_t>(address) % align)
        return refuse("globalAddress %p: must be aligned to %llu bytes", address,
                      static_cast<unsigned long long>(align));
    for (uint32_t i = 0; i < rank; i++)
        if (dims[i] < 1 || dims[i] > 1ull << 32)
            return refuse("globalDim[%u] = %llu: must be 1 … 2^32", i, static_cast<unsigned long long>(dims[i]));
    if ((type == PACKED_16B || type == PACKED_6B) && dims[0] % 128)
        return refuse("globalDim[0] = %llu: must be a multiple of 128 for packed types",
                      static_cast<unsigned long long>(dims[0]));
    if (type == PACKED_8B && dims[0] % 2)
        return refuse("globalDim[0] = %llu: must be even for a packed type", static_cast<unsigned long long>(dims[0]));
    for (uint32_t i = 0; i + 1 < rank; i++)
        if (strides[i] % align || strides[i] >= 1ull << 40)
            return refuse("globalStrides[%u] = %llu: must be a multiple of %llu below 2^40", i,
                          static_cast<unsigned long long>(strides[i]), static_cast<unsigned long long>(align));
    return 0;
}

int check_box(unsigned type, uint32_t rank, const uint32_t *box, const uint32_t *steps, unsigned interleave,
              unsigned swizzle)
{
    for (uint32_t i = 0; i < rank; i++) {
        if (box[i] < 1 || box[i] > 256) return refuse("boxDim[%u] = %u: must be 1 … 256", i, box[i]);
        if (steps[i] < 1 || steps[i] > 8) return refuse("elementStrides[%u] = %u: must be 1 … 8", i, steps[i]);
    }
    if ((type == PACKED_16B || type == PACKED_6B) && box[0] != 128)
        return refuse("boxDim[0] = %u: must be 128 for packed types", box[0]);
    uint32_t inner = box[0] * kBits[type] / 8;
    if (interleave == 0 && box[0] * kBits[type] % 128)
        return refuse("boxDim[0] = %u elements are %u bytes: must be a multiple of 16", box[0], inner);
    static const uint32_t span[7] = {~0u, 32, 64, 128, 128, 128, 128};
    if (interleave == 0 && inner > span[swizzle])
        return refuse("boxDim[0] = %u elements are %u bytes: at most %u with this swizzle", box[0], inner,
                      span[swizzle]);
    return 0;
}

} // namespace

int qm_tensor_map_encode_tiled(void *map, unsigned type, uint32_t rank, void *address, const uint64_t *dims,
                               const uint64_t *strides, const uint32_t *box, const uint32_t *steps, unsigned interleave,
                               unsigned swizzle, unsigned promotion, unsigned fill)
{
    if (reinterpret_cast<uintptr_t>(map) % 64) return refuse("tensorMap %p: must be aligned to 64 bytes", map);
    if (type >= TYPES) return refuse("tensorDataType = %u: must be 0 … %d", type, TYPES - 1);
    if (rank < 1 || rank > 5) return refuse("tensorRank = %u: must be 1 … 5", rank);
    if (interleave > 2) return refuse("interleave = %u: must be 0 … 2", interleave);
    if (swizzle > 6) return refuse("swizzle = %u: must be 0 … 6", swizzle);
    if (promotion > 3) return refuse("l2Promotion = %u: must be 0 … 3", promotion);
    if (fill > 1) return refuse("oobFill = %u: must be 0 or 1", fill);
    if (fill && !kFloating[type]) return refuse("oobFill = 1: NaN fill needs a floating type, not %u", type);
    if (interleave && rank < 3) return refuse("tensorRank = %u: must be 3 … 5 with interleave", rank);
    if (interleave == 2 && swizzle != 1) return refuse("swizzle = %u: must be 1 (32B) with interleave 32B", swizzle);
    if (check_shape(type, rank, address, dims, strides, interleave)) return 1;
    if (check_box(type, rank, box, steps, interleave, swizzle)) return 1;

    qm::MapRecord record = {};
    record.mark = qm::kMapMark;
    record.address = reinterpret_cast<uintptr_t>(address);
    for (uint32_t i = 0; i < rank; i++) {
        if (i) record.stride[i - 1] = strides[i - 1];
        record.dim_less_1[i] = static_cast<uint32_t>(dims[i] - 1);
        record.box[i] = static_cast<uint16_t>(box[i]);
        record.step[i] = static_cast<uint8_t>(steps[i]);
    }
    record.type = static_cast<uint8_t>(type);
    record.rank = static_cast<uint8_t>(rank);
    record.interleave = static_cast<uint8_t>(interleave);
    record.swizzle = static_cast<uint8_t>(swizzle);
    record.fill = static_cast<uint8_t>(fill);
    memset(map, 0, QM_TENSOR_MAP_BYTES);
    memcpy(map, &record, sizeof record);
    return 0;
}

const char *qm_tensor_map_fault(void)
{
    return fault;
}
