// SPDX-License-Identifier: Apache-2.0
// The model's bodies of common/wgmma.cuh, wgmma_tf32.cuh, wgmma_fp8.cuh and wgmma_int8.cuh. The work is in
// wgmma.cpp, the arithmetic in tensor_core.cpp.
#pragma once
#include "engine.h"
#include "tensor_core.h"

namespace qm {

// What one wgmma is. Integer forms use the signs and no format but the width.
struct WgmmaForm {
    int n, k;
    bool integer;
    Format a, b, sum; // sum: f32 or f16
    bool a_signed, b_signed;
    bool a_mn_major, b_mn_major, negate_a, negate_b;
};

// d: this lane's accumulators. a: its 4 registers, or null when A is in shared memory. Returns once the warpgroup
// issued.
void wgmma(const WgmmaForm &form, void *d, const u32 *a, u64 a_descriptor, u64 b_descriptor, bool accumulate, Place at);
void wgmma_fence(Place at);
void wgmma_commit(Place at);
void wgmma_wait(unsigned pending, Place at);

constexpr WgmmaForm wgmma_float(int n, int k, Format a, Format b, Format sum, int trans_a, int trans_b, int scale_a,
                                int scale_b)
{
    return WgmmaForm{n, k, false, a, b, sum, false, false, trans_a == 1, trans_b == 1, scale_a == -1, scale_b == -1};
}
constexpr WgmmaForm wgmma_integer(int n, bool a_signed, bool b_signed)
{
    return WgmmaForm{n,        32,       true,  Format::e4m3, Format::e4m3, Format::f32,
                     a_signed, b_signed, false, false,        false,        false};
}

} // namespace qm

static inline void wgmma_fence(QM_HERE)
{
    qm::wgmma_fence(QM_AT("wgmma.fence"));
}
static inline void wgmma_commit_group(QM_HERE)
{
    qm::wgmma_commit(QM_AT("wgmma.commit_group"));
}
template <int Pending> static inline void wgmma_wait_group(QM_HERE)
{
    qm::wgmma_wait(Pending, QM_AT("wgmma.wait_group"));
}
template <int Count> static inline void wgmma_fence_operand(float (&)[Count]) {}
template <int Count> static inline void wgmma_fence_operand(unsigned (&)[Count]) {}
template <int Count> static inline void wgmma_fence_operand(int (&)[Count]) {}

// 16-bit inputs: transposes are allowed.
#define QM_WGMMA_16(name, T, per, A, B, S)                                                                             \
    template <int N, int TransA = 0, int TransB = 0, int ScaleA = 1, int ScaleB = 1>                                   \
    static inline void name(T(&d)[N / per], unsigned long long a, unsigned long long b, bool accumulate, QM_HERE)      \
    {                                                                                                                  \
        static_assert(N >= 8 && N <= 256 && N % 8 == 0, "wgmma has N of 8, 16, ... 256");                              \
        static constexpr qm::WgmmaForm form =                                                                          \
            qm::wgmma_float(N, 16, qm::Format::A, qm::Format::B, qm::Format::S, TransA, TransB, ScaleA, ScaleB);       \
        qm::wgmma(form, d, nullptr, a, b, accumulate, QM_AT(#name));                                                   \
    }                                                                                                                  \
    template <int N, int TransB = 0, int ScaleA = 1, int ScaleB = 1>                                                   \
    static inline void name(T(&d)[N / per], const unsigned(&a)[4], unsigned long long b, bool accumulate, QM_HERE)     \
    {                                                                                                                  \
        static_assert(N >= 8 && N <= 256 && N % 8 == 0, "wgmma has N of 8, 16, ... 256");                              \
        static constexpr qm::WgmmaForm form =                                                                          \
            qm::wgmma_float(N, 16, qm::Format::A, qm::Format::B, qm::Format::S, 0, TransB, ScaleA, ScaleB);            \
        qm::wgmma(form, d, a, 0, b, accumulate, QM_AT(#name));                                                         \
    }

// tf32 and fp8: K-major only.
#define QM_WGMMA(name, T, per, k, A, B, S)                                                                             \
    template <int N, int ScaleA = 1, int ScaleB = 1>                                                                   \
    static inline void name(T(&d)[N / per], unsigned long long a, unsigned long long b, bool accumulate, QM_HERE)      \
    {                                                                                                                  \
        static_assert(N >= 8 && N <= 256 && N % 8 == 0, "wgmma has N of 8, 16, ... 256");                              \
        static constexpr qm::WgmmaForm form =                                                                          \
            qm::wgmma_float(N, k, qm::Format::A, qm::Format::B, qm::Format::S, 0, 0, ScaleA, ScaleB);                  \
        qm::wgmma(form, d, nullptr, a, b, accumulate, QM_AT(#name));                                                   \
    }                                                                                                                  \
    template <int N, int ScaleA = 1, int ScaleB = 1>                                                                   \
    static inline void name(T(&d)[N / per], const unsigned(&a)[4], unsigned long long b, bool accumulate, QM_HERE)     \
    {                                                                                                                  \
        static_assert(N >= 8 && N <= 256 && N % 8 == 0, "wgmma has N of 8, 16, ... 256");                              \
        static constexpr qm::WgmmaForm form =                                                                          \
            qm::wgmma_float(N, k, qm::Format::A, qm::Format::B, qm::Format::S, 0, 0, ScaleA, ScaleB);                  \
        qm::wgmma(form, d, a, 0, b, accumulate, QM_AT(#name));                                                         \
    }

#define QM_WGMMA_INT(name, a_signed, b_signed)                                                                         \
    template <int N>                                                                                                   \
    static inline void name(int(&d)[N / 2], unsigned long long a, unsigned long long b, bool accumulate, QM_HERE)      \
    {                                                                                                                  \
        static_assert(N == 8 || N == 24 || N % 16 == 0, "integer wgmma has N of 8, 24 and the multiples of 16");       \
        static constexpr qm::WgmmaForm form = qm::wgmma_integer(N, a_signed, b_signed);                                \
        qm::wgmma(form, d, nullptr, a, b, accumulate, QM_AT(#name));                                                   \
    }                                                                                                                  \
    template <int N>                                                                                                   \
    static inline void name(int(&d)[N / 2], const unsigned(&a)[4], unsigned long long b, bool accumulate, QM_HERE)     \
    {                                                                                                                  \
        static_assert(N == 8 || N == 24 || N % 16 == 0, "integer wgmma has N of 8, 24 and the multiples of 16");       \
        static constexpr qm::WgmmaForm form = qm::wgmma_integer(N, a_signed, b_signed);                                \
        qm::wgmma(form, d, a, 0, b, accumulate, QM_AT(#name));                                                         \
    }

QM_WGMMA_16(wgmma_f32_bf16, float, 2, bf16, bf16, f32)
QM_WGMMA_16(wgmma_f32_f16, float, 2, f16, f16, f32)
QM_WGMMA_16(wgmma_f16_f16, unsigned, 4, f16, f16, f16)
QM_WGMMA(wgmma_f32_tf32, float, 2, 8, tf32, tf32, f32)
QM_WGMMA(wgmma_f32_e4m3_e4m3, float, 2, 32, e4m3, e4m3, f32)
QM_WGMMA(wgmma_f32_e4m3_e5m2, float, 2, 32, e4m3, e5m2, f32)
QM_WGMMA(wgmma_f32_e5m2_e4m3, float, 2, 32, e5m2, e4m3, f32)
QM_WGMMA(wgmma_f32_e5m2_e5m2, float, 2, 32, e5m2, e5m2, f32)
QM_WGMMA(wgmma_f16_e4m3_e4m3, unsigned, 4, 32, e4m3, e4m3, f16)
QM_WGMMA(wgmma_f16_e5m2_e5m2, unsigned, 4, 32, e5m2, e5m2, f16)
QM_WGMMA_INT(wgmma_s32_s8_s8, true, true)
QM_WGMMA_INT(wgmma_s32_s8_u8, true, false)
QM_WGMMA_INT(wgmma_s32_u8_s8, false, true)
QM_WGMMA_INT(wgmma_s32_u8_u8, false, false)

#undef QM_WGMMA_16
#undef QM_WGMMA
#undef QM_WGMMA_INT
