// SPDX-License-Identifier: Apache-2.0
// ldmatrix, stmatrix, movmatrix: one warp. in: 32 words, the row (0 … 31, of 16 bytes) that each lane addresses; then
// 128 words of shared memory; then 4 words a lane. out: 4 words a lane, then shared memory afterwards.
#include "case.cuh"

#include "../../../kernel_templates/common/matrix.cuh"

#define LOAD(number, name, count)                                                                                      \
    case number: {                                                                                                     \
        u32 words[count];                                                                                              \
        name(words, memory + 4 * row);                                                                                 \
        for (int i = 0; i < count; i++) r[i] = words[i];                                                               \
        break;                                                                                                         \
    }
#define STORE(number, name, count)                                                                                     \
    case number: {                                                                                                     \
        u32 words[count];                                                                                              \
        for (int i = 0; i < count; i++) words[i] = r[i];                                                               \
        name(memory + 4 * row, words);                                                                                 \
        break;                                                                                                         \
    }

extern "C" __global__ void __launch_bounds__(THREADS) QN_ENTRY(const __grid_constant__ Case test)
{
    QN_SHARED_FIRST;
    QN_SHARED_ARRAY(uint4, vectors, 32);
    u32 *memory = reinterpret_cast<u32 *>(vectors);
    const int t = threadIdx.x;
    const u32 row = test.in[t];
    u32 r[4];
    for (int i = 0; i < 4; i++) memory[32 * i + t] = test.in[32 + 32 * i + t];
    take(r, test.in + 160);
    __syncwarp();
    switch (test.which) {
        LOAD(0, ldmatrix_x1, 1)
        LOAD(1, ldmatrix_x2, 2)
        LOAD(2, ldmatrix_x4, 4)
        LOAD(3, ldmatrix_x1_trans, 1)
        LOAD(4, ldmatrix_x2_trans, 2)
        LOAD(5, ldmatrix_x4_trans, 4)
#if QN_ARCH >= 90
        STORE(6, stmatrix_x1, 1)
        STORE(7, stmatrix_x2, 2)
        STORE(8, stmatrix_x4, 4)
        STORE(9, stmatrix_x1_trans, 1)
        STORE(10, stmatrix_x2_trans, 2)
        STORE(11, stmatrix_x4_trans, 4)
#endif
    case 12:
        r[0] = movmatrix_trans(r[0]);
        break;
    }
    __syncwarp();
    give(test.out, r);
    for (int i = 0; i < 4; i++) test.out[128 + 32 * i + t] = memory[32 * i + t];
}
