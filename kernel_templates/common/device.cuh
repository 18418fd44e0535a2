// SPDX-License-Identifier: Apache-2.0
// Every instruction that C++ has no word for: one small function an instruction, with its PTX name, its operands and
// the first architecture that has it. The functional model defines the same functions for the CPU (QN_MODEL) and leaves
// this body out. Nothing else in common/ but the copy and matrix instructions' own files, and nothing in the families,
// holds asm.
//
// Used as CUDA spells them, in both bodies: threadIdx.x, blockIdx.x, gridDim.x, __syncthreads, __syncwarp,
// __shfl_sync, __shfl_xor_sync, __shfl_up_sync, __ballot_sync, __any_sync, __reduce_{add,max,min}_sync (u32),
// atomicAdd, atomicMax (u32, shared and global), __popc, __clz, __ffs, __umulhi, __float_as_uint, __uint_as_float,
// __ldg, __ldcs, fmaf, fmaxf, fminf, fabsf, min, max, make_uint4.
#pragma once

#include "types.cuh"

#ifndef QN_MODEL

// ---- shared memory: one dynamic buffer, cut in the order of the declarations. QN_SHARED_FIRST opens a scope of
// declarations at offset 0, QN_SHARED_FROM at another; declaring the same pieces in the same order elsewhere names the same memory.
extern __shared__ __align__(1024) unsigned char qn_raw[];

template <class T> QN_DEVICE T *qn_take(u32 &at, u32 count)
{
    at = (at + (u32)alignof(T) - 1) & ~((u32)alignof(T) - 1);
    T *piece = reinterpret_cast<T *>(qn_raw + at);
    at += count * (u32)sizeof(T);
    return piece;
}
#define QN_SHARED_FIRST                    u32 qn_at = 0
#define QN_SHARED_FROM(offset)             u32 qn_at = offset
#define QN_SHARED(Type, name)              Type &name = *qn_take<Type>(qn_at, 1)
#define QN_SHARED_ARRAY(Type, name, count) Type *name = qn_take<Type>(qn_at, count)

// ---- the compiler

// Keeps the compiler from computing an address only where it is used; no instruction. All.
template <class T> QN_DEVICE T *computed_here(T *address)
{
    asm volatile("" : "+l"(address));
    return address;
}

// ---- arithmetic

// ex2.approx.ftz.f32: 2^x, relative error about 2^-22; subnormal arguments and results become 0. All.
QN_DEVICE float ex2_ftz(float x)
{
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

// ex2.approx.f32: 2^x, relative error about 2^-22; subnormals kept. All.
QN_DEVICE float ex2(float x)
{
    float y;
    asm("ex2.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

// sqrt.approx.f32: relative error 2^-23; subnormals kept. All.
QN_DEVICE float sqrt_approximate(float x)
{
    float y;
    asm("sqrt.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

// sqrt.approx.ftz.f32: the same; subnormal arguments and results become 0. All.
QN_DEVICE float sqrt_approximate_ftz(float x)
{
    float y;
    asm("sqrt.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

// rcp.approx.f32: 1 / x within 1 ulp; subnormals kept, ±0 gives ±inf, ±inf gives ±0. All.
QN_DEVICE float reciprocal(float x)
{
    float y;
    asm("rcp.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

// rcp.approx.ftz.f32: the same; subnormal arguments and results become 0. All.
QN_DEVICE float reciprocal_ftz(float x)
{
    float y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

// mov %lanemask_lt: a bit for each lane below this one. Read once and kept: the compiler doesn't make it again. All.
QN_DEVICE u32 lane_mask_below()
{
    u32 mask;
    asm volatile("mov.u32 %0, %%lanemask_lt;" : "=r"(mask));
    return mask;
}

// Natural logarithm, within 1 ulp, subnormals kept (the compiler's own sequence, lg2 and a polynomial). All.
QN_DEVICE float log_natural(float x)
{
    return logf(x);
}

// cvt.rzi.u32.f32: towards zero, saturating; NaN gives 0. All.
QN_DEVICE u32 u32_saturated(float x)
{
    u32 y;
    asm("cvt.rzi.u32.f32 %0, %1;" : "=r"(y) : "f"(x));
    return y;
}

// add.sat.f32 with 0: x where it lies between 0 and 1, else the nearer of them; NaN gives 0, subnormals are kept. All.
QN_DEVICE float saturate(float x)
{
    float y;
    asm("add.sat.f32 %0, %1, 0f00000000;" : "=f"(y) : "f"(x));
    return y;
}

// cvt.f32.f16: exact, subnormals kept. sm_53.
QN_DEVICE float f32_from_f16(u16 bits)
{
    float y;
    asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(bits));
    return y;
}

// max.NaN.f32: the larger; NaN if either is NaN. sm_80.
QN_DEVICE float max_or_nan(float a, float b)
{
    float y;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(y) : "f"(a), "f"(b));
    return y;
}

// ---- pairs of 16-bit floats in one word, low half first

// max.NaN.bf16x2: the larger of each pair; NaN (0x7FFF) where either is NaN. sm_80.
QN_DEVICE u32 max_or_nan_bf16x2(u32 a, u32 b)
{
    u32 y;
    asm("max.NaN.bf16x2 %0, %1, %2;" : "=r"(y) : "r"(a), "r"(b));
    return y;
}

// max.NaN.f16x2: the same for f16. sm_80.
QN_DEVICE u32 max_or_nan_f16x2(u32 a, u32 b)
{
    u32 y;
    asm("max.NaN.f16x2 %0, %1, %2;" : "=r"(y) : "r"(a), "r"(b));
    return y;
}

// setp.geu.bf16x2: is either half of a >= the same half of b, or is one of those two NaN? sm_90; two f32 compares before.
QN_DEVICE bool either_not_less_bf16x2(u32 a, u32 b)
{
    if constexpr (QN_ARCH >= 90) {
        int y;
        asm("{\n.reg .pred p, q;\nsetp.geu.bf16x2 p|q, %1, %2;\nor.pred p, p, q;\nselp.s32 %0, 1, 0, p;\n}"
            : "=r"(y)
            : "r"(a), "r"(b));
        return y != 0;
    } else {
        return !(__uint_as_float(a << 16) < __uint_as_float(b << 16)) ||
               !(__uint_as_float(a & 0xFFFF0000u) < __uint_as_float(b & 0xFFFF0000u));
    }
}

// setp.geu.f16x2: the same for f16. sm_53.
QN_DEVICE bool either_not_less_f16x2(u32 a, u32 b)
{
    int y;
    asm("{\n.reg .pred p, q;\nsetp.geu.f16x2 p|q, %1, %2;\nor.pred p, p, q;\nselp.s32 %0, 1, 0, p;\n}"
        : "=r"(y)
        : "r"(a), "r"(b));
    return y != 0;
}

// set.geu.u32.bf16x2: 0xFFFF in each half of a that is >= that half of b, or where one of the two is NaN; 0 in others.
// sm_90; two f32 compares before.
QN_DEVICE u32 not_less_mask_bf16x2(u32 a, u32 b)
{
    if constexpr (QN_ARCH >= 90) {
        u32 y;
        asm("set.geu.u32.bf16x2 %0, %1, %2;" : "=r"(y) : "r"(a), "r"(b));
        return y;
    } else {
        return (__uint_as_float(a << 16) < __uint_as_float(b << 16) ? 0u : 0xFFFFu) |
               (__uint_as_float(a & 0xFFFF0000u) < __uint_as_float(b & 0xFFFF0000u) ? 0u : 0xFFFF0000u);
    }
}

// set.geu.u32.f16x2: the same for f16. sm_53.
QN_DEVICE u32 not_less_mask_f16x2(u32 a, u32 b)
{
    u32 y;
    asm("set.geu.u32.f16x2 %0, %1, %2;" : "=r"(y) : "r"(a), "r"(b));
    return y;
}

// ---- memory

// ld.global.cg: from L2, past an L1 that other CTAs' stores do not reach. All.
QN_DEVICE u32 load_l2(const u32 *word)
{
    return __ldcg(word);
}
QN_DEVICE u64 load_l2(const u64 *word)
{
    return __ldcg(word);
}
QN_DEVICE float load_l2(const float *word)
{
    return __ldcg(word);
}

// ld.global.cs.v4.u32: what is read once; it leaves the caches first. It stays where it is written between other work,
// where __ldcs may be moved. All.
QN_DEVICE uint4 load_streaming(const uint4 *vector)
{
    uint4 v;
    asm volatile("ld.global.cs.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(vector));
    return v;
}

// ld.global.nc.L1::no_allocate.v4.u32: what is read once, past L1. All.
QN_DEVICE uint4 load_once(const uint4 *vector)
{
    uint4 v;
    asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(vector));
    return v;
}

// ld.relaxed.gpu.global, of four words and of one, that other CTAs may be storing; each is as one of them left it. sm_70.
QN_DEVICE uint4 load_polled(const uint4 *words)
{
    uint4 v;
    asm volatile("ld.relaxed.gpu.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(words)
                 : "memory");
    return v;
}

QN_DEVICE u32 load_polled(const u32 *word)
{
    u32 v;
    asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(v) : "l"(word) : "memory");
    return v;
}

// st.relaxed.gpu.global: words that other CTAs poll, one, two or four of them. sm_70.
QN_DEVICE void store_polled(u32 *word, u32 value)
{
    asm volatile("st.relaxed.gpu.global.u32 [%0], %1;" ::"l"(word), "r"(value) : "memory");
}
QN_DEVICE void store_polled(uint2 *words, const uint2 &value)
{
    asm volatile("st.relaxed.gpu.global.v2.u32 [%0], {%1, %2};" ::"l"(words), "r"(value.x), "r"(value.y) : "memory");
}
QN_DEVICE void store_polled(uint4 *words, const uint4 &value)
{
    asm volatile("st.relaxed.gpu.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(words), "r"(value.x), "r"(value.y),
                 "r"(value.z), "r"(value.w)
                 : "memory");
}

// prefetch.global.L2: a hint; the address need not be valid. All.
QN_DEVICE void prefetch_l2(const void *address)
{
    asm volatile("prefetch.global.L2 [%0];" ::"l"(address));
}

// fence.acq_rel.gpu (membar.gl): this thread's earlier accesses come before its later ones for the whole device. All.
QN_DEVICE void fence_device()
{
    __threadfence();
}

// atom.inc.u32 (global or shared): *word = *word >= last ? 0 : *word + 1, returns what it was. All.
QN_DEVICE u32 atomic_increment_wrapped(u32 *word, u32 last)
{
    return atomicInc(word, last);
}

// ---- barriers of a CTA

// barrier.cta.red.or.pred: __syncthreads, and true for all if value is for any thread of the CTA. All.
QN_DEVICE bool block_any(bool value)
{
    return __syncthreads_or(value) != 0;
}

// barrier.sync: whole warps, `threads` threads in all, meet at barrier `id` (1 to 15). All.
QN_DEVICE void barrier_sync(u32 id, u32 threads)
{
    asm volatile("barrier.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

// barrier.arrive: the same without waiting. All.
QN_DEVICE void barrier_arrive(u32 id, u32 threads)
{
    asm volatile("barrier.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

// ---- launches that overlap. sm_90; before, no launch does, and these are nothing

// griddepcontrol.launch_dependents: the launch that depends on this one may begin, once every CTA said so or ended.
QN_DEVICE void launch_dependents()
{
    if constexpr (QN_ARCH >= 90) asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}

// griddepcontrol.wait: until the launches before this one have ended and their stores are to be seen.
QN_DEVICE void wait_for_previous_launch()
{
    if constexpr (QN_ARCH >= 90) asm volatile("griddepcontrol.wait;" ::: "memory");
}

// ---- clusters. sm_90

// mov %cluster_ctarank: this CTA's number in its cluster.
QN_DEVICE u32 cluster_rank()
{
    u32 rank;
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
}

// mapa.u64: the same place of shared memory in CTA `rank` of the cluster, as a generic address.
template <class T> QN_DEVICE T *cluster_map(T *place, u32 rank)
{
    u64 mapped;
    asm("mapa.u64 %0, %1, %2;" : "=l"(mapped) : "l"(reinterpret_cast<u64>(place)), "r"(rank));
    return reinterpret_cast<T *>(mapped);
}

// barrier.cluster.arrive.relaxed.aligned: arrives, orders nothing: "I exist".
QN_DEVICE void cluster_arrive_relaxed()
{
    asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
}

// barrier.cluster.arrive.release.aligned: arrives; this thread's earlier stores are seen by whoever waits.
QN_DEVICE void cluster_arrive()
{
    asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
}

// barrier.cluster.wait.acquire.aligned: until every thread of the cluster arrived.
QN_DEVICE void cluster_wait()
{
    asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

#endif
