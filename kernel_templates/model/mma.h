// SPDX-License-Identifier: Apache-2.0
// The model's bodies of common/mma.cuh: the same names, each with its shape and types. The work is in mma.cpp, the
// arithmetic in tensor_core.cpp.
#pragma once
#include "engine.h"
#include "tensor_core.h"

namespace qm {

// What one form of mma.sync is. Integer forms have format f32 unused and their signs instead.
struct MmaForm {
    int k;
    bool integer, saturate;
    Format a, b, sum;        // floating forms; sum: f32 or f16
    bool a_signed, b_signed; // integer forms
    int since;               // compute capability * 10
};
void mma_sync(const MmaForm &form, void *d, const u32 *a, const u32 *b, const void *c, Place at);

constexpr MmaForm mma_float(int k, Format a, Format b, Format sum, int since)
{
    return MmaForm{k, false, false, a, b, sum, false, false, since};
}
constexpr MmaForm mma_integer(int k, bool a_signed, bool b_signed, bool saturate)
{
    return MmaForm{k, true, saturate, Format::f32, Format::f32, Format::f32, a_signed, b_signed, 80};
}

} // namespace qm

#define QM_MMA(name, T, nd, na, nb, ...)                                                                               \
    static inline void name(T(&d)[nd], const unsigned(&a)[na], const unsigned(&b)[nb], const T(&c)[nd], QM_HERE)       \
    {                                                                                                                  \
        using qm::Format;                                                                                              \
        static constexpr qm::MmaForm form = __VA_ARGS__;                                                               \
        qm::mma_sync(form, d, a, b, c, QM_AT(#name));                                                                  \
    }

QM_MMA(mma_m16n8k8_f32_f16, float, 4, 2, 1, qm::mma_float(8, Format::f16, Format::f16, Format::f32, 75))
QM_MMA(mma_m16n8k16_f32_f16, float, 4, 4, 2, qm::mma_float(16, Format::f16, Format::f16, Format::f32, 80))
QM_MMA(mma_m16n8k8_f16_f16, unsigned, 2, 2, 1, qm::mma_float(8, Format::f16, Format::f16, Format::f16, 75))
QM_MMA(mma_m16n8k16_f16_f16, unsigned, 2, 4, 2, qm::mma_float(16, Format::f16, Format::f16, Format::f16, 80))
QM_MMA(mma_m16n8k8_f32_bf16, float, 4, 2, 1, qm::mma_float(8, Format::bf16, Format::bf16, Format::f32, 80))
QM_MMA(mma_m16n8k16_f32_bf16, float, 4, 4, 2, qm::mma_float(16, Format::bf16, Format::bf16, Format::f32, 80))

QM_MMA(mma_m16n8k4_f32_tf32, float, 4, 2, 1, qm::mma_float(4, Format::tf32, Format::tf32, Format::f32, 80))
QM_MMA(mma_m16n8k8_f32_tf32, float, 4, 4, 2, qm::mma_float(8, Format::tf32, Format::tf32, Format::f32, 80))

QM_MMA(mma_m16n8k16_s32_s8_s8, int, 4, 2, 1, qm::mma_integer(16, true, true, false))
QM_MMA(mma_m16n8k16_s32_s8_u8, int, 4, 2, 1, qm::mma_integer(16, true, false, false))
QM_MMA(mma_m16n8k16_s32_u8_s8, int, 4, 2, 1, qm::mma_integer(16, false, true, false))
QM_MMA(mma_m16n8k16_s32_u8_u8, int, 4, 2, 1, qm::mma_integer(16, false, false, false))
QM_MMA(mma_m16n8k32_s32_s8_s8, int, 4, 4, 2, qm::mma_integer(32, true, true, false))
QM_MMA(mma_m16n8k32_s32_s8_u8, int, 4, 4, 2, qm::mma_integer(32, true, false, false))
QM_MMA(mma_m16n8k32_s32_u8_s8, int, 4, 4, 2, qm::mma_integer(32, false, true, false))
QM_MMA(mma_m16n8k32_s32_u8_u8, int, 4, 4, 2, qm::mma_integer(32, false, false, false))
QM_MMA(mma_m16n8k32_s32_s8_s8_sat, int, 4, 4, 2, qm::mma_integer(32, true, true, true))
QM_MMA(mma_m16n8k32_s32_u8_u8_sat, int, 4, 4, 2, qm::mma_integer(32, false, false, true))

QM_MMA(mma_m16n8k32_f32_e4m3_e4m3, float, 4, 4, 2, qm::mma_float(32, Format::e4m3, Format::e4m3, Format::f32, 89))
QM_MMA(mma_m16n8k32_f32_e4m3_e5m2, float, 4, 4, 2, qm::mma_float(32, Format::e4m3, Format::e5m2, Format::f32, 89))
QM_MMA(mma_m16n8k32_f32_e5m2_e4m3, float, 4, 4, 2, qm::mma_float(32, Format::e5m2, Format::e4m3, Format::f32, 89))
QM_MMA(mma_m16n8k32_f32_e5m2_e5m2, float, 4, 4, 2, qm::mma_float(32, Format::e5m2, Format::e5m2, Format::f32, 89))
QM_MMA(mma_m16n8k32_f16_e4m3_e4m3, unsigned, 2, 4, 2, qm::mma_float(32, Format::e4m3, Format::e4m3, Format::f16, 89))
QM_MMA(mma_m16n8k32_f16_e5m2_e5m2, unsigned, 2, 4, 2, qm::mma_float(32, Format::e5m2, Format::e5m2, Format::f16, 89))
QM_MMA(mma_m16n8k16_f32_e4m3_e4m3, float, 4, 2, 1, qm::mma_float(16, Format::e4m3, Format::e4m3, Format::f32, 89))
QM_MMA(mma_m16n8k16_f32_e5m2_e5m2, float, 4, 2, 1, qm::mma_float(16, Format::e5m2, Format::e5m2, Format::f32, 89))

#undef QM_MMA
