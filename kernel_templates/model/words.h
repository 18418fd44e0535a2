// SPDX-License-Identifier: Apache-2.0
// CUDA's words as a C++ compiler reads them: qualifiers, built-in variables and types, and the intrinsics that families
// use as CUDA spells them (common/device.cuh lists them). Included by shim.h before the kernel's text.
#ifndef QN_MODEL_WORDS_H
#define QN_MODEL_WORDS_H

#include "engine.h"

#define __global__
#define __device__
#define __launch_bounds__(...)
#define __cluster_dims__(...)
#define __grid_constant__
#define __forceinline__ inline __attribute__((always_inline))
#define __align__(n)    __attribute__((aligned(n)))
// Shared memory comes from QN_SHARED: a bare declaration is an error here.
#define __shared__ static_assert(false, "declare shared memory by QN_SHARED");

#define threadIdx (::qm::self->tid)
#define blockIdx  (::qm::self->bid)
#define blockDim  (::qm::self->bdim)
#define gridDim   (::qm::self->gdim)
#undef assert
#define assert(condition) ((condition) ? (void)0 : ::qm::fail({__FILE__, __LINE__, "assert"}, "%s", #condition))

// ---- vector types

#define QM_VECTOR2(name, T, bytes)                                                                                     \
    struct alignas(bytes) name##2                                                                                      \
    {                                                                                                                  \
        T x, y;                                                                                                        \
    };                                                                                                                 \
    static inline name##2 make_##name##2(T x, T y)                                                                     \
    {                                                                                                                  \
        return {x, y};                                                                                                 \
    }
#define QM_VECTOR4(name, T, bytes)                                                                                     \
    struct alignas(bytes) name##4                                                                                      \
    {                                                                                                                  \
        T x, y, z, w;                                                                                                  \
    };                                                                                                                 \
    static inline name##4 make_##name##4(T x, T y, T z, T w)                                                           \
    {                                                                                                                  \
        return {x, y, z, w};                                                                                           \
    }
QM_VECTOR2(uint, unsigned, 8)
QM_VECTOR4(uint, unsigned, 16)
QM_VECTOR2(float, float, 8)
QM_VECTOR4(float, float, 16)
QM_VECTOR2(ulonglong, unsigned long long, 16)
#undef QM_VECTOR2
#undef QM_VECTOR4

// ---- arithmetic

// The C library's, declared here: its C++ headers cost a third of a kernel's compile.
extern "C" {
double exp2(double) noexcept;
double log(double) noexcept;
float fmaf(float, float, float) noexcept;
float fabsf(float) noexcept;
float sqrtf(float) noexcept;
}

template <class T> static constexpr T max(T a, T b)
{
    return a < b ? b : a;
}
template <class T> static constexpr T min(T a, T b)
{
    return b < a ? b : a;
}

namespace qm {
// fmaxf and fminf of the device: a NaN loses, -0 is below +0; the library's leave the zeros open.
static inline float max_f32(float a, float b)
{
    return a != a ? b : b != b ? a : a == b ? (__builtin_signbit(a) ? b : a) : a > b ? a : b;
}
static inline float min_f32(float a, float b)
{
    return a != a ? b : b != b ? a : a == b ? (__builtin_signbit(a) ? a : b) : a < b ? a : b;
}
} // namespace qm
static inline float fmaxf(float a, float b)
{
    return qm::max_f32(a, b);
}
static inline float fminf(float a, float b)
{
    return qm::min_f32(a, b);
}

static inline unsigned __float_as_uint(float x)
{
    return qm::unbits<unsigned>(qm::bits(x));
}
static inline float __uint_as_float(unsigned x)
{
    return qm::unbits<float>(qm::bits(x));
}
static inline float __int_as_float(int x)
{
    return qm::unbits<float>(qm::bits(x));
}
static inline int __popc(unsigned x)
{
    return __builtin_popcount(x);
}
static inline int __clz(int x)
{
    return x ? __builtin_clz((unsigned)x) : 32;
}
static inline int __ffs(int x)
{
    return __builtin_ffs(x);
}
static inline unsigned __umulhi(unsigned a, unsigned b)
{
    return (unsigned)((unsigned long long)a * b >> 32);
}
static inline float __fmul_rn(float a, float b)
{
    return a * b;
}
static inline float __fadd_rn(float a, float b)
{
    return a + b;
}
static inline float __fsub_rn(float a, float b)
{
    return a - b;
}

// Bytes of the eight in b:a, chosen by the nibbles of s (their low three bits; the fourth repeats the sign).
static inline unsigned __byte_perm(unsigned a, unsigned b, unsigned s)
{
    unsigned long long bytes = (unsigned long long)b << 32 | a;
    unsigned result = 0;
    for (int i = 0; i < 4; i++) {
        unsigned nibble = s >> 4 * i & 15, byte = (unsigned)(bytes >> 8 * (nibble & 7)) & 255;
        result |= (nibble & 8 ? (byte >> 7 ? 255u : 0u) : byte) << 8 * i;
    }
    return result;
}

// ---- memory: hints have no meaning here

template <class T> static inline T __ldg(const T *p, QM_HERE)
{
    qm::load_constant(p, sizeof *p, QM_AT("ld.global.nc"));
    return *p;
}

// ---- barriers

static inline void __syncthreads(QM_HERE)
{
    qm::barrier(0, 0, qm::BARRIER_SYNC, 0, QM_AT("__syncthreads"));
}
static inline void __syncwarp(unsigned mask = 0xFFFFFFFFu, QM_HERE)
{
    qm::warp_op(mask, nullptr, nullptr, QM_AT("__syncwarp"));
}
// For no more than the CTA, where fence_device is for all: what is published to another CTA by it is reported.
static inline void __threadfence_block(QM_HERE)
{
    qm::thread_fence(qm::SCOPE_CTA, QM_AT("__threadfence_block"));
}

// ---- warp operations

template <class T> static inline T __shfl_sync(unsigned mask, T v, int from, int width = 32, QM_HERE)
{
    unsigned lane = qm::self->lane, w = (unsigned)width - 1;
    return qm::unbits<T>(
        qm::shuffle(mask, qm::bits(v), (lane & ~w) | ((unsigned)from & w), false, QM_AT("shfl.sync.idx")));
}
template <class T> static inline T __shfl_xor_sync(unsigned mask, T v, int with, int width = 32, QM_HERE)
{
    unsigned lane = qm::self->lane, from = lane ^ (unsigned)with;
    bool own = from > (lane | ((unsigned)width - 1));
    return qm::unbits<T>(qm::shuffle(mask, qm::bits(v), from & 31, own, QM_AT("shfl.sync.bfly")));
}
template <class T> static inline T __shfl_up_sync(unsigned mask, T v, unsigned by, int width = 32, QM_HERE)
{
    unsigned lane = qm::self->lane;
    bool own = (lane & ((unsigned)width - 1)) < by;
    return qm::unbits<T>(qm::shuffle(mask, qm::bits(v), (lane - by) & 31, own, QM_AT("shfl.sync.up")));
}
template <class T> static inline T __shfl_down_sync(unsigned mask, T v, unsigned by, int width = 32, QM_HERE)
{
    unsigned lane = qm::self->lane;
    bool own = (lane & ((unsigned)width - 1)) + by >= (unsigned)width;
    return qm::unbits<T>(qm::shuffle(mask, qm::bits(v), (lane + by) & 31, own, QM_AT("shfl.sync.down")));
}
static inline unsigned __ballot_sync(unsigned mask, int value, QM_HERE)
{
    return qm::ballot(mask, value != 0, QM_AT("vote.sync.ballot"));
}
static inline int __any_sync(unsigned mask, int value, QM_HERE)
{
    return qm::ballot(mask, value != 0, QM_AT("vote.sync.any")) != 0;
}
static inline int __all_sync(unsigned mask, int value, QM_HERE)
{
    return qm::ballot(mask, value != 0, QM_AT("vote.sync.all")) == mask;
}
template <class T> static inline unsigned __match_any_sync(unsigned mask, T v, QM_HERE)
{
    return qm::match(false, mask, qm::bits(v), QM_AT("match.sync.any"));
}
template <class T> static inline unsigned __match_all_sync(unsigned mask, T v, int *all, QM_HERE)
{
    unsigned same = qm::match(true, mask, qm::bits(v), QM_AT("match.sync.all"));
    *all = same != 0;
    return same;
}
#define QM_REDUX(name, op)                                                                                             \
    static inline unsigned name(unsigned mask, unsigned v, QM_HERE)                                                    \
    {                                                                                                                  \
        return qm::reduce(op, false, mask, v, QM_AT("redux.sync"));                                                    \
    }                                                                                                                  \
    static inline int name(unsigned mask, int v, QM_HERE)                                                              \
    {                                                                                                                  \
        return (int)qm::reduce(op, true, mask, (unsigned)v, QM_AT("redux.sync"));                                      \
    }
QM_REDUX(__reduce_add_sync, qm::ATOMIC_ADD)
QM_REDUX(__reduce_min_sync, qm::ATOMIC_MIN)
QM_REDUX(__reduce_max_sync, qm::ATOMIC_MAX)
QM_REDUX(__reduce_and_sync, qm::ATOMIC_AND)
QM_REDUX(__reduce_or_sync, qm::ATOMIC_OR)
QM_REDUX(__reduce_xor_sync, qm::ATOMIC_XOR)
#undef QM_REDUX

// ---- atomics of a word: relaxed, as CUDA's are

#define QM_ATOMIC(name, op)                                                                                            \
    static inline unsigned name(unsigned *p, unsigned v, QM_HERE)                                                      \
    {                                                                                                                  \
        return qm::atomic(op, p, v, 0, qm::RELAXED, QM_AT(#name));                                                     \
    }
QM_ATOMIC(atomicAdd, qm::ATOMIC_ADD)
QM_ATOMIC(atomicMin, qm::ATOMIC_MIN)
QM_ATOMIC(atomicMax, qm::ATOMIC_MAX)
QM_ATOMIC(atomicAnd, qm::ATOMIC_AND)
QM_ATOMIC(atomicOr, qm::ATOMIC_OR)
QM_ATOMIC(atomicXor, qm::ATOMIC_XOR)
QM_ATOMIC(atomicExch, qm::ATOMIC_EXCH)
#undef QM_ATOMIC
static inline unsigned atomicCAS(unsigned *p, unsigned compare, unsigned v, QM_HERE)
{
    return qm::atomic(qm::ATOMIC_CAS, p, v, compare, qm::RELAXED, QM_AT("atomicCAS"));
}

#endif
