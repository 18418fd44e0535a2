// SPDX-License-Identifier: Apache-2.0
// The model's bodies of common/device.cuh: the same names, in the same order. Approximations are exact here, then moved
// inside the bound that the manual gives, by the seed.
#ifndef QN_MODEL_DEVICE_H
#define QN_MODEL_DEVICE_H

#include "words.h"

// ---- shared memory: the scope counts as the device does, each piece has a place of its own

#define QN_SHARED_FIRST        size_t qn_at = 0
#define QN_SHARED_FROM(offset) size_t qn_at = offset
#define QN_SHARED(Type, name)                                                                                          \
    Type &name =                                                                                                       \
        *static_cast<Type *>(::qm::shared_take(qn_at, sizeof(Type), alignof(Type), {__FILE__, __LINE__, "QN_SHARED"}))
#define QN_SHARED_ARRAY(Type, name, count)                                                                             \
    Type *name = static_cast<Type *>(                                                                                  \
        ::qm::shared_take(qn_at, sizeof(Type) * (count), alignof(Type), {__FILE__, __LINE__, "QN_SHARED_ARRAY"}))

// ---- arithmetic

namespace qm {
static inline float flushed(float x)
{
    return __builtin_fabsf(x) < 0x1p-126f ? __builtin_copysignf(0.f, x) : x;
}
static inline float half_value(unsigned short h)
{
    unsigned sign = (h & 0x8000u) << 16, exponent = h >> 10 & 31, fraction = h & 0x3FFu;
    if (exponent == 31) return unbits<float>(sign | 0x7F800000u | fraction << 13);
    if (exponent) return unbits<float>(sign | (exponent + 112) << 23 | fraction << 13);
    float tiny = (float)fraction * 0x1p-24f;
    return sign ? -tiny : tiny;
}
static inline float bf16_value(unsigned h)
{
    return unbits<float>((h & 0xFFFFu) << 16);
}

// The larger of two 16-bit floats as they are stored: either NaN gives the canonical one, -0 is below +0.
static inline unsigned larger(unsigned a, unsigned b, unsigned infinity)
{
    if ((a & 0x7FFF) > infinity || (b & 0x7FFF) > infinity) return 0x7FFF;
    int order_a = a & 0x8000 ? -(int)(a & 0x7FFF) - 1 : (int)a, order_b = b & 0x8000 ? -(int)(b & 0x7FFF) - 1 : (int)b;
    return order_a >= order_b ? a : b;
}
static inline unsigned larger_pair(unsigned a, unsigned b, unsigned infinity)
{
    return larger(a >> 16, b >> 16, infinity) << 16 | larger(a & 0xFFFF, b & 0xFFFF, infinity);
}
} // namespace qm

static inline float ex2(float x)
{
    return qm::approximate((float)exp2((double)x), qm::unbits<unsigned>(qm::bits(x)), 2);
}
template <class T> static inline T *computed_here(T *address)
{
    return address;
}
static inline float ex2_ftz(float x)
{
    x = qm::flushed(x);
    return qm::flushed(qm::approximate((float)exp2((double)x), qm::unbits<unsigned>(qm::bits(x)), 2));
}
static inline float sqrt_approximate(float x)
{
    return qm::approximate(sqrtf(x), qm::unbits<unsigned>(qm::bits(x)), 1);
}
static inline float sqrt_approximate_ftz(float x)
{
    return qm::flushed(sqrt_approximate(qm::flushed(x)));
}
static inline float reciprocal(float x)
{
    return qm::approximate((float)(1.0 / (double)x), qm::unbits<unsigned>(qm::bits(x)), 1);
}
static inline float reciprocal_ftz(float x)
{
    return qm::flushed(reciprocal(qm::flushed(x)));
}
static inline float log_natural(float x)
{
    return qm::approximate((float)log((double)x), qm::unbits<unsigned>(qm::bits(x)), 1);
}
static inline unsigned lane_mask_below()
{
    return (1u << threadIdx.x % 32) - 1;
}
static inline unsigned u32_saturated(float x)
{
    return !(x > 0.f) ? 0u : x >= 4294967296.f ? 0xFFFFFFFFu : (unsigned)x;
}
static inline float saturate(float x)
{
    return !(x > 0.f) ? 0.f : x < 1.f ? x : 1.f;
}
static inline float f32_from_f16(unsigned short bits)
{
    return qm::half_value(bits);
}

static inline float max_or_nan(float a, float b)
{
    return a != a || b != b ? qm::unbits<float>(0x7FFFFFFF) : qm::max_f32(a, b);
}

// ---- pairs of 16-bit floats

static inline unsigned max_or_nan_bf16x2(unsigned a, unsigned b)
{
    return qm::larger_pair(a, b, 0x7F80);
}
static inline unsigned max_or_nan_f16x2(unsigned a, unsigned b)
{
    return qm::larger_pair(a, b, 0x7C00);
}
static inline bool either_not_less_bf16x2(unsigned a, unsigned b)
{
    return !(qm::bf16_value(a) < qm::bf16_value(b)) || !(qm::bf16_value(a >> 16) < qm::bf16_value(b >> 16));
}
static inline bool either_not_less_f16x2(unsigned a, unsigned b)
{
    return !(qm::half_value((unsigned short)a) < qm::half_value((unsigned short)b)) ||
           !(qm::half_value((unsigned short)(a >> 16)) < qm::half_value((unsigned short)(b >> 16)));
}
static inline unsigned not_less_mask_bf16x2(unsigned a, unsigned b)
{
    return (qm::bf16_value(a) < qm::bf16_value(b) ? 0u : 0xFFFFu) |
           (qm::bf16_value(a >> 16) < qm::bf16_value(b >> 16) ? 0u : 0xFFFF0000u);
}
static inline unsigned not_less_mask_f16x2(unsigned a, unsigned b)
{
    return (qm::half_value((unsigned short)a) < qm::half_value((unsigned short)b) ? 0u : 0xFFFFu) |
           (qm::half_value((unsigned short)(a >> 16)) < qm::half_value((unsigned short)(b >> 16)) ? 0u : 0xFFFF0000u);
}

// ---- memory

// What other CTAs store comes from here: the rest of the grid may run before each such load.
template <class T> static inline T load_l2(const T *word, QM_HERE)
{
    qm::spin(QM_AT("ld.global.cg"));
    return *word;
}
static inline uint4 load_once(const uint4 *vector, QM_HERE)
{
    qm::load_constant(vector, sizeof *vector, QM_AT("ld.global.nc"));
    return *vector;
}
template <class T> static inline T load_polled(const T *words, QM_HERE)
{
    T value;
    qm::relaxed_load(&value, words, sizeof value, QM_AT("ld.relaxed.gpu"));
    return value;
}
template <class T> static inline void store_polled(T *words, const std::common_type_t<T> &value, QM_HERE)
{
    qm::relaxed_store(words, &value, sizeof value, QM_AT("st.relaxed.gpu"));
}
static inline uint4 load_streaming(const uint4 *vector)
{
    return *vector;
}
static inline void prefetch_l2(const void *) {}
static inline void fence_device(QM_HERE)
{
    qm::thread_fence(qm::SCOPE_DEVICE, QM_AT("fence.acq_rel.gpu"));
}
static inline unsigned atomic_increment_wrapped(unsigned *word, unsigned last, QM_HERE)
{
    return qm::atomic(qm::ATOMIC_INC, word, last, 0, qm::RELAXED, QM_AT("atom.inc"));
}

// ---- barriers of a CTA

static inline bool block_any(bool value, QM_HERE)
{
    return qm::barrier(0, 0, qm::BARRIER_OR, value, QM_AT("barrier.cta.red.or")) != 0;
}

static inline void barrier_sync(unsigned id, unsigned threads, QM_HERE)
{
    qm::barrier((int)id, (int)threads, qm::BARRIER_SYNC, 0, QM_AT("barrier.sync"));
}
static inline void barrier_arrive(unsigned id, unsigned threads, QM_HERE)
{
    qm::barrier((int)id, (int)threads, qm::BARRIER_ARRIVE, 0, QM_AT("barrier.arrive"));
}

// ---- launches that overlap: here they run one after another

static inline void launch_dependents() {}
static inline void wait_for_previous_launch() {}

// ---- clusters

static inline unsigned cluster_rank()
{
    return qm::self->rank;
}
template <class T> static inline T *cluster_map(T *place, unsigned rank, QM_HERE)
{
    return static_cast<T *>(qm::map_shared(const_cast<std::remove_const_t<T> *>(place), rank, QM_AT("mapa")));
}
static inline void cluster_arrive_relaxed(QM_HERE)
{
    qm::cluster_arrive(QM_AT("barrier.cluster.arrive.relaxed"), false);
}
static inline void cluster_arrive(QM_HERE)
{
    qm::cluster_arrive(QM_AT("barrier.cluster.arrive.release"));
}
static inline void cluster_wait(QM_HERE)
{
    qm::cluster_wait(QM_AT("barrier.cluster.wait.acquire"));
}

#endif
