/* SPDX-License-Identifier: Apache-2.0
 * Tensor maps of the functional model: what cuTensorMapEncodeTiled is to the device. Called by whoever stands in for the
 * driver (the runner's driver table, tests); C and C++. The 128 bytes it writes are the model's own and mean nothing to
 * a GPU, nor the other way round. */
#ifndef QM_TENSOR_MAP_H
#define QM_TENSOR_MAP_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { QM_TENSOR_MAP_BYTES = 128 };

/* The driver's arguments in the driver's order, enumerations as their numbers (cuda.h). Returns the driver's result: 0,
 * or 1 (CUDA_ERROR_INVALID_VALUE) with the map untouched; qm_tensor_map_fault says what was wrong. */
int qm_tensor_map_encode_tiled(void *map, unsigned type, uint32_t rank, void *address, const uint64_t *dims,
                               const uint64_t *strides, const uint32_t *box, const uint32_t *steps, unsigned interleave,
                               unsigned swizzle, unsigned promotion, unsigned fill);

/* The last refusal: argument, value found, allowed range. "" before any. */
const char *qm_tensor_map_fault(void);

#ifdef __cplusplus
}
#endif
#endif
