// SPDX-License-Identifier: Apache-2.0
// What the files of the family attention share: attention.c (lists, checks, launch), attention_plan.c (configuration to
// kernels, and which configuration serves which sizes), a file each of the plans wgmma, heads and stream (attention_wgmma.c,
// attention_heads.c, attention_stream.c) and attention_maps.c (tensor maps).
#ifndef QN_OPS_ATTENTION_H
#define QN_OPS_ATTENTION_H

#include "ops/family.h"

// Plans are numbered for ever: tables of tuning results name them.
enum { QN_ATTENTION_PREFILL = 1, QN_ATTENTION_DECODE, QN_ATTENTION_WGMMA, QN_ATTENTION_STREAM, QN_ATTENTION_HEADS };

// rows: queries (times packed heads) a CTA; keys: of a block; warps: over the rows (stream: over the keys); columns: warps
// that share a row's keys and output columns; slots: blocks of K or V in shared memory; ctas: an SM.
enum qn_attention_knob {
    QN_ATTENTION_PLAN,
    QN_ATTENTION_ROWS,
    QN_ATTENTION_KEYS,
    QN_ATTENTION_WARPS,
    QN_ATTENTION_COLUMNS,
    QN_ATTENTION_SLOTS,
    QN_ATTENTION_CTAS,
    QN_ATTENTION_KNOBS
};
extern const qn_knob qn_attention_knobs[QN_ATTENTION_KNOBS];

// Buckets of sizes: few queries a sequence (decode) by the rows that a KV head's queries make, then many, and very many.
enum {
    QN_ATTENTION_DECODE_8,
    QN_ATTENTION_DECODE_16,
    QN_ATTENTION_DECODE_64,
    QN_ATTENTION_MANY,
    QN_ATTENTION_LONG,
    QN_ATTENTION_BUCKETS
};
enum { QN_ATTENTION_LONG_QUERIES = 6144 }; // a sequence, from which on they are very many

// What a plan needs of an SM, in numbers: what is refused, and what `quern show plan` prints.
typedef struct qn_attention_budget {
    int threads;
    int registers;      // a thread, about
    int shared_bytes;   // a CTA
    int tensor_columns; // of tensor memory, for the native sm_100a kernel of this shape; 0 without tensor memory
} qn_attention_budget;

qn_attention_budget qn_attention_budget_of(const quern_attention_spec *spec, const qn_arch *arch,
                                           const qn_config *config);
void qn_attention_budget_text(const quern_spec *spec, const qn_arch *arch, const qn_config *config, qn_text *text);
quern_status qn_attention_plan(const quern_spec *spec, const qn_arch *arch, const qn_config *config, qn_plan *plan);
// Whether merge.cu is a stage of the plan: of decode's tiles, of those of few rows.
bool qn_attention_has_merge(const qn_config *config);
void qn_attention_choose(const quern_spec *spec, const qn_arch *arch, size_t bucket, qn_config *config);

// Bytes from a row of so many elements to the next: an odd number of 16-byte pieces, for which reading eight rows at a
// time meets no bank twice.
int qn_attention_pitch_bytes(int elements);

// ---- plan=stream (attention_stream.c)

struct attention_params;
quern_status qn_attention_stream_check(const quern_attention_spec *spec, const qn_config *config);
int qn_attention_stream_shared(const quern_attention_spec *spec, const qn_config *config);
int qn_attention_stream_registers(const quern_attention_spec *spec, const qn_config *config);
int qn_attention_stream_threads(const qn_config *config);
// False: none of its blocks serves the spec.
bool qn_attention_stream_choose(const quern_spec *spec, const qn_arch *arch, int rows, qn_config *config);

// ---- tensors for TMA (attention_maps.c)

struct attention_map;
struct qn_driver;
// Whether TMA can load q, k and v, and rows of out begin at multiples of 16 bytes. pages: of k and v.
bool qn_attention_is_mapped(const quern_attention_spec *spec, const struct qn_driver *driver,
                            const struct attention_params *params, int64_t pages);
// Boxes of 64 columns and so many rows. False: the driver refused.
bool qn_attention_map_queries(const quern_attention_spec *spec, const struct qn_driver *driver,
                              const struct attention_params *params, int64_t queries, int rows,
                              struct attention_map *map);
bool qn_attention_map_keys(const quern_attention_spec *spec, const struct qn_driver *driver,
                           const struct attention_params *params, int64_t pages, bool values, int rows,
                           struct attention_map *map);

// Splits that may not depend on the device are made for one of so many SMs.
enum { QN_ATTENTION_USUAL_SMS = 132 };

// ---- plan=heads (attention_heads.c)

quern_status qn_attention_heads_check(const quern_attention_spec *spec, const qn_arch *arch, const qn_config *config);
int qn_attention_heads_shared(const quern_attention_spec *spec, const qn_config *config);
int qn_attention_heads_registers(const quern_attention_spec *spec, const qn_config *config);
int qn_attention_heads_threads(const qn_config *config);
int qn_attention_heads_box(const quern_attention_spec *spec, const qn_config *config);
bool qn_attention_heads_choose(const quern_spec *spec, const qn_arch *arch, qn_config *config);
// Keys a split for so many tiles, and the most parts that launches of at most so many tiles have.
enum { QN_ATTENTION_HEADS_SPLIT = 256 }; // the least
int64_t qn_attention_heads_split(const quern_attention_spec *spec, const qn_config *config, int64_t tiles,
                                 int64_t keys);
int64_t qn_attention_heads_parts(const quern_attention_spec *spec, const qn_config *config, int64_t tiles);
// Fills the parameters of the first stage. False: the driver refused a map.
bool qn_attention_heads_launch(const quern_attention_spec *spec, const qn_config *config,
                               const qn_device_limits *limits, const struct attention_params *params, int64_t pages,
                               qn_launch *out);

// ---- plan=wgmma (attention_wgmma.c)

quern_status qn_attention_wgmma_check(const quern_attention_spec *spec, const qn_arch *arch, const qn_config *config);
int qn_attention_wgmma_shared(const quern_attention_spec *spec, const qn_config *config);
int qn_attention_wgmma_registers(const quern_attention_spec *spec, const qn_config *config);
int qn_attention_wgmma_threads(const qn_config *config);
const char *qn_attention_wgmma_template(const qn_config *config);
// is_long: very many queries a sequence. False: none of its tiles serves the spec.
bool qn_attention_wgmma_choose(const quern_attention_spec *spec, const qn_arch *arch, bool is_long, qn_config *config);
// Fills the parameters of the first stage, from those of every attention kernel and from out->grid, which is that of the
// plan "prefill" with these rows. queries: positions of q; pages: of k and v. False: the driver refused a map.
bool qn_attention_wgmma_launch(const quern_attention_spec *spec, const qn_config *config,
                               const qn_device_limits *limits, const struct attention_params *params, int64_t queries,
                               int64_t pages, qn_launch *out);

#endif
