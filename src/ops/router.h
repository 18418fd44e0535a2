// SPDX-License-Identifier: Apache-2.0
// What the files of the family router share: router.c (lists, checks, launch), router_shape.c (what a configuration needs),
// router_plan.c (configuration to kernels), router_multicast.c (that plan's launch), router_maps.c (tensor maps) and
// router_choose.c (which configuration serves which sizes).
#ifndef QN_OPS_ROUTER_H
#define QN_OPS_ROUTER_H

#include "cuda/driver.h"
#include "ops/family.h"
#include "router/args_mapped.h"

// Plans are numbered for ever: tables of tuning results name them.
enum {
    QN_ROUTER_ROWS = 1,
    QN_ROUTER_FRAGMENTS,
    QN_ROUTER_WIDE,
    QN_ROUTER_DEEP,
    QN_ROUTER_TILES,
    QN_ROUTER_EXACT,
    QN_ROUTER_MULTICAST
};
enum { QN_ROUTER_PARTS = 1, QN_ROUTER_WHOLE }; // sums

enum qn_router_knob {
    QN_ROUTER_PLAN,
    QN_ROUTER_SUMS,
    QN_ROUTER_TOKENS,
    QN_ROUTER_EXPERTS,
    QN_ROUTER_SLICES,
    QN_ROUTER_CHUNK,
    QN_ROUTER_STAGES,
    QN_ROUTER_GATE,
    QN_ROUTER_CLUSTER_N,
    QN_ROUTER_CLUSTER_E,
    QN_ROUTER_CTAS,
    QN_ROUTER_GATE_CTAS,
    QN_ROUTER_KNOBS
};
extern const qn_knob qn_router_knobs[QN_ROUTER_KNOBS];
extern const qn_name qn_router_plan_names[], qn_router_type_names[];

enum { QN_ROUTER_MOST_SLICES = 16, QN_ROUTER_BUCKETS = 15 };
extern const int64_t qn_router_bucket_last[QN_ROUTER_BUCKETS]; // tokens

// What the kernels call SLICES and SLICE: slices of equal length, of whole steps, none of them empty.
typedef struct qn_router_cut {
    int slices, slice;
} qn_router_cut;

qn_router_cut qn_router_cut_of(const quern_router_spec *s, const qn_config *c);

// What a kernel needs.
typedef struct qn_router_shape {
    int threads, registers;      // registers: about what a thread needs; with less the compiler would spill
    int shared, gate_at;         // bytes; where the gate's pieces begin, behind those of the products
    int units;                   // rows
    int groups;                  // wide, deep, multicast
    int multiply_warps;          // fragments
    int block, warps_m, warps_n; // tiles, exact
} qn_router_shape;

// whole: through all of D; fused: with the gate.
qn_router_shape qn_router_shape_of(const quern_router_spec *s, const qn_config *c, bool whole, bool fused);
bool qn_router_has_room(const qn_arch *arch, const qn_router_shape *n);

// Many experts need many threads, for which there may be too few registers: then the sums are a kernel of their own.
bool qn_router_is_fused(const quern_router_spec *s, const qn_arch *arch, const qn_config *c);

bool qn_router_is_tile(const qn_config *c); // one that its plan has
quern_status qn_router_check_tile(const qn_config *c);

// Of a gate by a CTA: bytes of shared memory, registers a thread.
int qn_router_gate_shared(const quern_router_spec *s, int threads, int slices);
int qn_router_gate_registers(const quern_router_spec *s);
void qn_router_gate_spec(const quern_router_spec *s, quern_gate_spec *gate); // of the gate that follows logits

quern_status qn_router_plan(const quern_spec *spec, const qn_arch *arch, const qn_config *config, qn_plan *plan);
void qn_router_choose(const quern_spec *spec, const qn_arch *arch, size_t bucket, qn_config *config);

// A launch of the plan multicast: maps, and a grid of whole clusters.
int qn_router_cluster(const qn_config *c);
quern_status qn_router_multicast_check(const quern_router_spec *s, const qn_config *c);
// How work is dealt to so many SMs: parts, whole tiles, clusters. The launch of the gate needs it too.
typedef struct qn_router_deal {
    gate_parts parts;
    int64_t tiles, clusters;
} qn_router_deal;
qn_router_deal qn_router_deal_of(const quern_router_spec *s, const qn_config *c, int sm_count, int64_t N);
void qn_router_multicast_launch(const quern_router_spec *s, const qn_config *c, const qn_device_limits *limits,
                                const router_params *p, qn_launch *out);
// Maps of x, in boxes of x_rows, and of w. False: an input that TMA cannot take, or the driver refused.
bool qn_router_make_maps(const quern_router_spec *s, const qn_config *c, const qn_driver *driver,
                         const router_params *p, int64_t x_rows, router_map *x, router_map *w);

// ---- small helpers

static inline const char *word_of(const qn_name *names, int value)
{
    while (names->name && names->value != value) names++;
    return names->name ? names->name : "";
}

static inline int64_t ceil_div(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

static inline int64_t round_up(int64_t a, int64_t b)
{
    return ceil_div(a, b) * b;
}

static inline int64_t most_of(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static inline int64_t least_of(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static inline int64_t pitch_of(const quern_router_spec *s)
{
    return round_up(s->E, 4); // words of a token, in whole vectors
}

static inline int gate_threads(const quern_router_spec *s)
{
    return (int)round_up(s->E, 32);
}

static inline bool is_grouped(const quern_router_spec *s)
{
    return s->topk_group < s->n_group && !s->given_ids;
}

static inline bool is_half(const quern_router_spec *s) // tensor cores can have it
{
    return s->in == s->w && s->in != QUERN_F32;
}

static inline int bytes_of(quern_dtype type)
{
    return type == QUERN_F32 ? 4 : 2;
}

#endif
