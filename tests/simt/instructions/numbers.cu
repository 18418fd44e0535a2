// SPDX-License-Identifier: Apache-2.0
// Arithmetic of device.cuh, convert.cuh and narrow.cuh, and its warp operations, atomics, loads and barriers: two warps. in: three
// operands a, b, c of four words a thread. out: four words a thread.
#include "case.cuh"

#include "../../../kernel_templates/common/convert.cuh"
#include "../../../kernel_templates/common/narrow.cuh"

constexpr int kWords = 4;

// A number in the order of the floats, for their distance.
QN_DEVICE u32 ordered(u32 word)
{
    return word >> 31 ? ~word : word | 0x80000000u;
}

// What the approximation gave; `exact` when it is within `ulps` of it, or when both are NaN.
QN_DEVICE u32 judged(float result, u32 exact, u32 ulps)
{
    const u32 word = as_word(result);
    if (result != result) return word_as<float>(exact) != word_as<float>(exact) ? exact : word;
    if ((word ^ exact) >> 31) return word; // the sign is never left open
    const u32 distance = max(ordered(word), ordered(exact)) - min(ordered(word), ordered(exact));
    return distance <= ulps ? exact : word;
}

// NaN with the payload that is not specified made one.
QN_DEVICE u32 without_payload(float x)
{
    return x != x ? 0x7FFFFFFFu : as_word(x);
}
QN_DEVICE u32 without_payload_f16x2(u32 pair)
{
    const u32 low = (pair & 0x7FFFu) > 0x7C00u ? 0x7FFFu : pair & 0xFFFFu;
    return ((pair >> 16 & 0x7FFFu) > 0x7C00u ? 0x7FFFu : pair >> 16) << 16 | low;
}

QN_DEVICE u32 approximate_number(u32 which, u32 a, u32 exact, u32 ulps)
{
    const float x = word_as<float>(a);
    switch (which) {
    case 20:
        return judged(ex2(x), exact, ulps);
    case 21:
        return judged(ex2_ftz(x), exact, ulps);
    case 22:
        return judged(sqrt_approximate(x), exact, ulps);
    case 23:
        return judged(sqrt_approximate_ftz(x), exact, ulps);
    case 24:
        return judged(reciprocal(x), exact, ulps);
    case 25:
        return judged(reciprocal_ftz(x), exact, ulps);
    default:
        return judged(log_natural(x), exact, ulps);
    }
}

QN_DEVICE u32 exact_number(u32 which, u32 a, u32 b, u32 c)
{
    const float x = word_as<float>(a), y = word_as<float>(b);
    switch (which) {
    case 0:
        return u32_saturated(x);
    case 1:
        return without_payload(f32_from_f16((u16)a));
    case 2:
        return as_word(max_or_nan(x, y));
    case 3:
        return max_or_nan_bf16x2(a, b);
    case 4:
        return max_or_nan_f16x2(a, b);
    case 5:
        return either_not_less_bf16x2(a, b);
    case 6:
        return either_not_less_f16x2(a, b);
    case 7:
        return not_less_mask_bf16x2(a, b);
    case 8:
        return not_less_mask_f16x2(a, b);
    case 9:
        return without_payload(whole_above(x));
    case 10:
        return pack_bf16x2(x, y);
    case 11:
        return pack_f16x2(x, y);
    case 12:
        return permute_bytes(a, b, c);
    case 13:
        return (u32)dot_s8x4(a, b, (i32)c);
    case 14:
        return multiply_f16x2(a, b);
    case 15:
        return multiply_bf16x2(a, b);
    case 16:
        return without_payload_f16x2(f16x2_of_e4m3x2(a));
    case 17:
        return (u32)__popc(a) | (u32)__clz((int)a) << 8 | (u32)__ffs((int)a) << 16;
    case 18:
        return __umulhi(a, b);
    default:
        return as_word(saturate(x));
    }
}

QN_DEVICE u32 warp_number(u32 which, u32 a, u32 b)
{
    const u32 half = threadIdx.x % 32 < 16 ? 0xFFFFu : 0xFFFF0000u;
    u32 same;
    int all;
    switch (which) {
    case 30:
        return __shfl_sync(~0u, a, (int)b, 8);
    case 31:
        return __shfl_xor_sync(~0u, a, (int)b);
    case 32:
        return __shfl_up_sync(~0u, a, b, 16);
    case 33:
        return __ballot_sync(~0u, a & 1);
    case 34:
        return (u32)__any_sync(~0u, a == b);
    case 35:
        return __reduce_add_sync(~0u, a);
    case 36:
        return __reduce_max_sync(~0u, a);
    case 37:
        return __reduce_min_sync(~0u, a);
    case 38:
        return lane_mask_below();
    case 43:
        return __shfl_down_sync(~0u, a, b, 16);
    case 44:
        return (u32)__all_sync(~0u, a != b);
    case 45:
        return __match_any_sync(~0u, a & 3);
    case 46:
        return __match_any_sync(half, (u64)(b & 1) << 32 | (a & 1)); // each half of the warp for itself
    case 47:
        same = __match_all_sync(~0u, a, &all);
        return same ^ (all ? 0x55555555u : 0);
    case 48:
        return __reduce_and_sync(~0u, a | b);
    case 49:
        return __reduce_or_sync(half, a & b);
    case 50:
        return __reduce_xor_sync(~0u, a);
    case 51:
        return (u32)__reduce_min_sync(~0u, (i32)a);
    default:
        return (u32)__reduce_max_sync(half, (i32)a);
    }
}

// An atomic on this thread's own word, which holds a: what it was, and what it is.
QN_DEVICE void atomic_number(u32 which, u32 *word, u32 a, u32 b, u32 c, u32 (&before_and_after)[2])
{
    *word = a;
    switch (which) {
    case 60:
        before_and_after[0] = atomicAdd(word, b);
        break;
    case 61:
        before_and_after[0] = atomicMin(word, b);
        break;
    case 62:
        before_and_after[0] = atomicMax(word, b);
        break;
    case 63:
        before_and_after[0] = atomicAnd(word, b);
        break;
    case 64:
        before_and_after[0] = atomicOr(word, b);
        break;
    case 65:
        before_and_after[0] = atomicXor(word, b);
        break;
    case 66:
        before_and_after[0] = atomicExch(word, b);
        break;
    case 67:
        before_and_after[0] = atomicCAS(word, c, b);
        break;
    default:
        before_and_after[0] = atomic_increment_wrapped(word, b);
        break;
    }
    before_and_after[1] = *word;
}

// In shared memory, then in device memory, which must give the same.
QN_DEVICE u32 atomic_numbers(u32 which, u32 *shared, u32 *global, u32 a, u32 b, u32 c)
{
    u32 here[2], there[2];
    atomic_number(which, global, a, b, c, there);
    if (which == 68) return there[0] == a ? there[1] : ~there[0]; // atom.global.inc: this one's wrapper is for no other
    atomic_number(which, shared, a, b, c, here);
    return here[0] == a && there[0] == a && here[1] == there[1] ? here[1] : ~(here[0] ^ there[0] ^ a);
}

// Each load of the same words, and stores that others poll.
QN_DEVICE void memory_words(const u32 *in, u32 *out, u32 (&r)[kWords])
{
    const u32 t = threadIdx.x;
    const u32 *four = in + 4 * t;
    prefetch_l2(four);
    const uint4 once = load_once(reinterpret_cast<const uint4 *>(four));
    const uint4 streaming = load_streaming(reinterpret_cast<const uint4 *>(four));
    const uint4 polled = load_polled(reinterpret_cast<const uint4 *>(four));
    const u64 two = load_l2(reinterpret_cast<const u64 *>(four + 2));
    r[0] = load_l2(four) + once.y + streaming.z + polled.w;
    r[1] = load_polled(four + 1) + once.z + streaming.w + polled.x;
    r[2] = (u32)two + once.w + streaming.x + polled.y;
    r[3] = (u32)(two >> 32) + once.x + streaming.y + polled.z;
    out += kWords * THREADS; // behind what every thread gives
    store_polled(out + t, once.x);
    store_polled(reinterpret_cast<uint2 *>(out + THREADS) + t, make_uint2(once.y, once.z));
    store_polled(reinterpret_cast<uint4 *>(out + 3 * THREADS) + t, once);
    __threadfence_block();
    fence_device();
}

// Counters by atomics, of a CTA and of the device, the second from 0 to 9 again and again: how often each number was given.
QN_DEVICE void counters(u32 *shared, u32 *out, u32 (&r)[kWords])
{
    const u32 t = threadIdx.x;
    u32 *global = out + kWords * THREADS, *given = shared + 2;
    if (t == 0) shared[0] = *global = 0;
    given[t] = given[THREADS + t] = 0;
    __syncthreads();
    atomicAdd(given + atomic_increment_wrapped(shared, 3 * THREADS), 1u);
    atomicAdd(given + THREADS + atomic_increment_wrapped(global, 9), 1u);
    __syncthreads();
    r[0] = given[t];
    r[1] = given[THREADS + t];
    r[2] = shared[0];
    r[3] = load_l2(global);
}

// Warp 0 hands its words to warp 1 by barrier 1, which hands them back, from the last to the first, by barrier 2.
QN_DEVICE void barriers(u32 *shared, const u32 (&a)[kWords], u32 (&r)[kWords])
{
    const u32 t = threadIdx.x, lane = t % 32;
    if (t < 32) {
        shared[lane] = a[0];
        barrier_arrive(1, THREADS);
        barrier_sync(2, THREADS);
        r[0] = shared[32 + lane];
    } else {
        barrier_sync(1, THREADS);
        shared[32 + lane] = shared[31 - lane];
        r[0] = shared[lane];
        barrier_arrive(2, THREADS);
    }
    r[1] = block_any(a[1] == t);
    r[2] = block_any(false);
    launch_dependents(); // nothing depends on this launch, and none is before it
    wait_for_previous_launch();
    r[3] = 1;
}

extern "C" __global__ void __launch_bounds__(THREADS) QN_ENTRY(const __grid_constant__ Case test)
{
    QN_SHARED_FIRST;
    QN_SHARED_ARRAY(u32, shared, 2 + 2 * THREADS);
    const u32 which = test.which;
    u32 a[kWords], b[kWords], c[kWords], r[kWords];
    take(a, test.in);
    take(b, test.in + kWords * THREADS);
    take(c, test.in + 2 * kWords * THREADS);
    for (int i = 0; i < kWords; i++) {
        r[i] = 0;
        if (which < 20) r[i] = exact_number(which, a[i], b[i], c[i]);
        if (which >= 20 && which < 30) r[i] = approximate_number(which, a[i], b[i], c[i]);
        if ((which >= 30 && which < 40) || (which >= 43 && which < 60)) r[i] = warp_number(which, a[i], b[i]);
        if (which >= 60)
            r[i] =
                atomic_numbers(which, shared + threadIdx.x, test.out + (i * THREADS + threadIdx.x), a[i], b[i], c[i]);
    }
    if (which == 40) memory_words(test.in, test.out, r);
    if (which == 41) counters(shared, test.out, r);
    if (which == 42) barriers(shared, a, r);
    give(test.out, r);
}
