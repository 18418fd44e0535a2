// SPDX-License-Identifier: Apache-2.0
// The family softmax_topk: its fields, tensors and sizes, its plans and when each is chosen, its launch. The kernels are
// kernel_templates/softmax_topk/*.cu; this file and they share args.h, and each kernel asserts the sizes computed here.
//
//   stream   one CTA a row; every architecture, every V; many rows, and batch_invariant
//   cluster  one cluster a row, the row in registers; few rows, sm_90 on
//   split    several CTAs a row, the last one merges; few rows elsewhere, and rows too long for a cluster
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "ops/family.h"
#include "reference/reference.h"
#include "softmax_topk/args.h"

typedef quern_softmax_topk_spec spec_t;
typedef quern_softmax_topk_args args_t;
typedef quern_softmax_topk_sizes sizes_t;

// ---- lists

static const qn_name in_names[] = {{"f32", QUERN_F32}, {"f16", QUERN_F16}, {"bf16", QUERN_BF16}, {NULL, 0}};
static const qn_name index_names[] = {{"i32", QUERN_I32}, {"i64", QUERN_I64}, {NULL, 0}};
static const qn_name value_names[] = {
    {"prob", QUERN_VALUE_PROB}, {"logprob", QUERN_VALUE_LOGPROB}, {"logit", QUERN_VALUE_LOGIT}, {NULL, 0}};
static const qn_name norm_names[] = {{"all", QUERN_NORM_ALL}, {"topk", QUERN_NORM_TOPK}, {NULL, 0}};

enum { MOST_V = 1 << 21, MOST_K = 2048 };

#define AT(member) offsetof(spec_t, member)
static const qn_field fields[] = {
    {.name = "V",
     .type = QN_INT,
     .offset = AT(V),
     .required = true,
     .min = 1,
     .max = MOST_V,
     .doc = "vocabulary: logits a row"},
    {.name = "K",
     .type = QN_INT,
     .offset = AT(K),
     .required = true,
     .min = 1,
     .max = MOST_K,
     .doc = "winners a row, at most V"},
    {.name = "in", .type = QN_ENUM, .offset = AT(in), .required = true, .names = in_names, .doc = "type of logits"},
    {.name = "index",
     .type = QN_ENUM,
     .offset = AT(index),
     .initial = QUERN_I32,
     .names = index_names,
     .doc = "type of indices"},
    {.name = "value",
     .type = QN_ENUM,
     .offset = AT(value),
     .initial = QUERN_VALUE_PROB,
     .names = value_names,
     .doc = "what values holds"},
    {.name = "norm",
     .type = QN_ENUM,
     .offset = AT(norm),
     .initial = QUERN_NORM_ALL,
     .names = norm_names,
     .doc = "softmax over all V or over the K kept"},
    {.name = "temperature",
     .type = QN_FLAG,
     .offset = AT(temperature),
     .max = 1,
     .doc = "1: a temperature for each row is given"},
    {.name = "lse", .type = QN_FLAG, .offset = AT(lse), .max = 1, .doc = "1: log-sum-exp of each row is written"},
    {.name = "token",
     .type = QN_FLAG,
     .offset = AT(token),
     .max = 1,
     .doc = "1: log-probability and rank of one given token a row are written"},
    {.name = "batch_invariant",
     .type = QN_FLAG,
     .offset = AT(batch_invariant),
     .max = 1,
     .doc = "1: a row's bits do not depend on rows or on its address"},
};
#undef AT

static const qn_field sizes[] = {
    {.name = "rows",
     .type = QN_INT,
     .offset = offsetof(sizes_t, rows),
     .required = true,
     .min = 0,
     .max = INT32_MAX,
     .doc = "rows of logits"},
};
static const size_t size_args_offset[] = {offsetof(args_t, rows)};

#define AT(member) offsetof(args_t, member)
static const qn_tensor tensors[] = {
    {.name = "logits",
     .direction = QN_INPUT,
     .axes = {"rows", "V"},
     .dtype_field = "in",
     .pointer_offset = AT(logits),
     .stride_offset = {AT(logits_stride_rows)},
     .doc = "one row of logits a sequence"},
    {.name = "temperature",
     .direction = QN_INPUT,
     .axes = {"rows"},
     .dtype = QUERN_F32,
     .flag = "temperature",
     .pointer_offset = AT(temperature),
     .doc = "divides x - max"},
    {.name = "token",
     .direction = QN_INPUT,
     .axes = {"rows"},
     .dtype = QUERN_I32,
     .flag = "token",
     .pointer_offset = AT(token),
     .doc = "a token whose log-probability and rank are wanted"},
    {.name = "values",
     .direction = QN_OUTPUT,
     .axes = {"rows", "K"},
     .dtype = QUERN_F32,
     .pointer_offset = AT(values),
     .stride_offset = {AT(values_stride_rows)},
     .doc = "of the winners, in order"},
    {.name = "indices",
     .direction = QN_OUTPUT,
     .axes = {"rows", "K"},
     .dtype_field = "index",
     .pointer_offset = AT(indices),
     .stride_offset = {AT(indices_stride_rows)},
     .doc = "of the winners, in order"},
    {.name = "lse",
     .direction = QN_OUTPUT,
     .axes = {"rows"},
     .dtype = QUERN_F32,
     .flag = "lse",
     .pointer_offset = AT(lse),
     .doc = "log of the sum of e^(x / T) over all V"},
    {.name = "token_value",
     .direction = QN_OUTPUT,
     .axes = {"rows"},
     .dtype = QUERN_F32,
     .flag = "token",
     .pointer_offset = AT(token_value),
     .doc = "the token's log-probability over all V"},
    {.name = "token_rank",
     .direction = QN_OUTPUT,
     .axes = {"rows"},
     .dtype = QUERN_I32,
     .flag = "token",
     .pointer_offset = AT(token_rank),
     .doc = "how many elements come before the token"},
};
#undef AT

enum { PLAN_STREAM = 1, PLAN_CLUSTER, PLAN_SPLIT };
static const qn_name plan_names[] = {
    {"stream", PLAN_STREAM}, {"cluster", PLAN_CLUSTER}, {"split", PLAN_SPLIT}, {NULL, 0}};
enum { KEEP_VECTORS = 1, KEEP_MAXIMA, KEEP_SHARED };
static const qn_name keep_names[] = {
    {"vectors", KEEP_VECTORS}, {"maxima", KEEP_MAXIMA}, {"shared", KEEP_SHARED}, {NULL, 0}};
enum { BY_BINS = 1, BY_BISECTION, BY_OWN_MAXIMA };
static const qn_name threshold_names[] = {
    {"bins", BY_BINS}, {"bisection", BY_BISECTION}, {"own", BY_OWN_MAXIMA}, {NULL, 0}};

enum knob { PLAN, BLOCK, CTAS, LOCAL_K, UNROLL, CLUSTER, GROUP, KEEP, THRESHOLD, SHARES, KNOBS };
static const qn_knob knobs[] = {
    [PLAN] = {"plan", {PLAN_STREAM, PLAN_CLUSTER, PLAN_SPLIT}, 3, plan_names, "how rows are dealt to CTAs"},
    [BLOCK] = {"block", {128, 256, 512, 1024}, 4, NULL, "threads a CTA"},
    [CTAS] = {"ctas", {1, 2, 3, 4, 6, 8}, 6, NULL, "CTAs an SM that registers are kept for"},
    [LOCAL_K] =
        {"local_k", {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 14, 16, 20, 24, 32}, 16, NULL, "candidate slots a thread"},
    [UNROLL] = {"unroll", {1, 2, 4, 8}, 4, NULL, "stream, split: vectors a thread has in flight"},
    [CLUSTER] = {"cluster", {2, 4, 8, 16}, 4, NULL, "cluster: CTAs a row"},
    [GROUP] = {"group", {1, 2, 4, 8, 16, 32}, 6, NULL, "cluster: threads a group maximum is of"},
    [KEEP] =
        {"keep",
         {KEEP_VECTORS, KEEP_MAXIMA, KEEP_SHARED},
         3,
         keep_names,
         "cluster: what stays in registers; of maxima, a few vectors are read again; shared: the row in shared memory"},
    [THRESHOLD] = {"threshold",
                   {BY_BINS, BY_BISECTION, BY_OWN_MAXIMA},
                   3,
                   threshold_names,
                   "cluster: how it is found; bisection is for few maxima; own: each CTA bisects its own"},
    [SHARES] = {"shares", {2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128}, 13, NULL, "split: CTAs a row"},
};

// ---- shapes

static const char *word_of(const qn_name *names, int value)
{
    while (names->name && names->value != value) names++;
    return names->name ? names->name : "";
}

static int ceil_div(int64_t a, int64_t b)
{
    return (int)((a + b - 1) / b);
}
static int element_bytes(const spec_t *s)
{
    return s->in == QUERN_F32 ? 4 : 2;
}
static int per_vector(const spec_t *s)
{
    return 16 / element_bytes(s);
}

// 16-byte vectors that cover a row: at least, and at most (rows start at any element).
static int fewest_vectors(const spec_t *s)
{
    return ceil_div(s->V, per_vector(s));
}
static int most_vectors(const spec_t *s)
{
    return ceil_div(s->V + per_vector(s) - 1, per_vector(s));
}

// Those that one CTA streams: a row's, or with plan=split a share's.
static int shares_of(const qn_config *c)
{
    return c->value[PLAN] == PLAN_SPLIT ? c->value[SHARES] : 1;
}
static int fewest_streamed(const spec_t *s, const qn_config *c)
{
    return fewest_vectors(s) / shares_of(c);
}
static int most_streamed(const spec_t *s, const qn_config *c)
{
    return ceil_div(most_vectors(s), shares_of(c));
}

// ---- stream and split: the sample, the list, shared memory (sample.cuh, finish.cuh, stream.cuh)

typedef struct stream_numbers {
    int sample; // vectors a thread
    int rank;   // 0: no threshold
    int slots, sorted, bins;
    int shared_bytes;
} stream_numbers;

// A sixteenth of the row, 8 vectors a thread at most; all of it if that is little.
static int sample_vectors(int vectors, int block)
{
    if (vectors <= 4 * block) return ceil_div(vectors, block);
    int sample = ceil_div(vectors, 16 * (int64_t)block);
    return sample > 8 ? 8 : sample;
}

// Least rank in a sample of so many of the vectors that leaves fewer than K candidates about once in 10^5 rows: the
// winners in the sample are Poisson with mean K · share. Square roots and sums only, so that every machine plans alike.
static int sample_rank(int64_t K, int sampled, int vectors)
{
    if (2 * K > vectors) return 0; // maxima of vectors say little when so many of them hold winners
    if (sampled >= vectors) return (int)K;
    double mean = (double)K * sampled / vectors, rank = ceil(mean + 4.0 * sqrt(mean) + 3.0);
    if (rank > (double)K) rank = (double)K;
    return 2 * rank <= sampled ? (int)rank : 0;
}

static stream_numbers stream_of(const spec_t *s, const qn_config *c)
{
    stream_numbers n;
    int block = c->value[BLOCK], warps = block / 32;
    n.sample = sample_vectors(most_streamed(s, c), block);
    n.rank = sample_rank(s->K, n.sample * block, fewest_streamed(s, c));
    n.slots = c->value[LOCAL_K] * block;
    n.sorted = (int)((s->K + s->K / 4 + 256 + 1) / 2 * 2);
    n.bins = s->K <= 512 ? 1024 : 2048;
    int bin_words = n.bins > 1056 ? n.bins : 1056, number = most_vectors(s) <= 65536 ? 2 : 4;
    n.shared_bytes = n.slots * (16 + number) + n.sorted * 8 + (bin_words + 8 * warps + 4 + 6) * 4 + 20 + 16 + 24;
    return n;
}

// Slots a thread that lists overflow in about one row of 10^7 with, winners lying anywhere; and no fewer than the exact
// selection needs.
static int stream_local_k(const spec_t *s, const qn_config *c)
{
    int block = c->value[BLOCK], warps = block / 32, vectors = fewest_streamed(s, c);
    int sampled = sample_vectors(most_streamed(s, c), block) * block, rank = sample_rank(s->K, sampled, vectors);
    int least = ceil_div(s->K > 256 ? s->K : 256, block);
    if (rank == 0) return least;
    double share = sampled < vectors ? (double)sampled / vectors : 1.0;
    double upper = (rank + 5.2 * sqrt(rank) + 9.0) / share / warps;
    double slots = 1.08 * (upper + 5.0 * sqrt(rank / share / warps) + 8.0);
    int a_thread = ceil_div((int64_t)slots, 32), enough = ceil_div((int64_t)vectors * per_vector(s), block);
    if (a_thread > enough) a_thread = enough;
    return a_thread > least ? a_thread : least;
}

// The nearest choice of a knob that is not less than value; the largest if there is none.
static int choice_at_least(enum knob knob, int value)
{
    for (size_t i = 0; i < knobs[knob].choice_count; i++)
        if (knobs[knob].choices[i] >= value) return knobs[knob].choices[i];
    return knobs[knob].choices[knobs[knob].choice_count - 1];
}

static bool stream_fits(const spec_t *s, const qn_arch *arch, const qn_config *c)
{
    int bytes = stream_of(s, c).shared_bytes;
    return bytes <= arch->shared_cta && (int64_t)(bytes + 1024) * c->value[CTAS] <= arch->shared_sm &&
           c->value[CTAS] * c->value[BLOCK] <= arch->max_threads_sm;
}

// With a token's rank to count among 16-bit logits, two CTAs of 512 have too few registers for four vectors on their way: those
// of a row's shares but on sm_90, those of a row before sm_90.
static void spare_registers(const spec_t *s, const qn_arch *arch, qn_config *c)
{
    const bool few = s->token && element_bytes(s) == 2 && c->value[BLOCK] == 512 && c->value[CTAS] == 2;
    const bool spills = c->value[PLAN] == PLAN_SPLIT ? arch->cc != 90 : arch->cc < 90;
    if (few && spills && c->value[UNROLL] == 4) c->value[UNROLL] = 2;
}

static int choice_below(enum knob knob, int value)
{
    int below = knobs[knob].choices[0];
    for (size_t i = 0; i < knobs[knob].choice_count; i++)
        if (knobs[knob].choices[i] < value) below = knobs[knob].choices[i];
    return below;
}

// Winners of real rows bunch in warps: a third more entries than rows need whose winners lie anywhere, where that costs
// no CTA and leaves L1 an eighth of the memory. ANALYSIS.md has the counts.
static void lengthen_lists(const spec_t *s, const qn_arch *arch, qn_config *c)
{
    const int need = stream_local_k(s, c), most = need + (need + 2) / 3;
    if (s->K <= 8 && c->value[CTAS] > 2) return; // so few that the room is better used by steps_ahead
    for (;;) {
        qn_config longer = *c;
        longer.value[LOCAL_K] = choice_at_least(LOCAL_K, c->value[LOCAL_K] + 1);
        int64_t bytes = (int64_t)(stream_of(s, &longer).shared_bytes + 1024) * c->value[CTAS];
        if (longer.value[LOCAL_K] == c->value[LOCAL_K] || longer.value[LOCAL_K] > most) return;
        if (!stream_fits(s, arch, &longer) || bytes > arch->shared_sm / 8 * 7) return;
        *c = longer;
    }
}

// Fewer CTAs an SM first, then shorter lists, until it fits. Lists of K + 1 entries always do.
static void choose_stream(const spec_t *s, const qn_arch *arch, int block, int ctas, qn_config *c)
{
    if (c->value[PLAN] != PLAN_SPLIT) c->value[PLAN] = PLAN_STREAM;
    c->value[BLOCK] = block;
    c->value[CTAS] = ctas;
    c->value[UNROLL] = 4;
    c->value[LOCAL_K] = choice_at_least(LOCAL_K, stream_local_k(s, c));
    while (!stream_fits(s, arch, c) && c->value[CTAS] > 1) c->value[CTAS] = choice_below(CTAS, c->value[CTAS]);
    while (!stream_fits(s, arch, c) && c->value[LOCAL_K] > 1)
        c->value[LOCAL_K] = choice_below(LOCAL_K, c->value[LOCAL_K]);
    lengthen_lists(s, arch, c);
}

static quern_status check_list(const spec_t *s, const qn_config *c, int slots, int sorted)
{
    if (slots >= 256 && slots < 65536 && slots >= s->K && sorted >= s->K) return QUERN_OK;
    return qn_fail(QUERN_NO_PLAN, "plan=%s block=%d local_k=%d makes %d candidate slots; K=%lld needs %lld … 65535",
                   word_of(plan_names, c->value[PLAN]), c->value[BLOCK], c->value[LOCAL_K], slots, (long long)s->K,
                   (long long)(s->K > 256 ? s->K : 256));
}

static void add_list_constants(qn_kernel_plan *k, int slots, int sorted, int bins)
{
    qn_plan_constant(k, "SLOTS", slots);
    qn_plan_constant(k, "SORTED", sorted);
    qn_plan_constant(k, "BINS", bins);
}

static int ahead_bytes(int block)
{
    return block * 16 + 8;
}

// Vectors a thread that are copied to shared memory while the threshold is found: 32 KiB an SM, which come in that time;
// with more than two CTAs an SM, whose rows follow one another, 8. They take what lists leave of six sevenths of the
// memory: where the L1 has less than the rest, loads wait for room in it. ANALYSIS.md has times.
static int steps_ahead(const spec_t *s, const qn_arch *arch, const qn_config *c, int shared_bytes)
{
    const int block = c->value[BLOCK], ctas = c->value[CTAS];
    if (arch->cc < 90 || s->batch_invariant || c->value[PLAN] != PLAN_STREAM) return 0;
    // Registers would spill.
    if (s->token || s->temperature || most_vectors(s) / (block * c->value[UNROLL]) > 32) return 0;
    int most = ctas > 2 ? 8 : 2048 / (block * ctas), steps = 0;
    const int whole = (int)(s->V / per_vector(s)); // vectors of a row that no end cuts, at least; some are left
    if (most > (whole - 1) / block) most = (whole - 1) / block;
    while (steps < most &&
           (int64_t)(shared_bytes + (steps + 1) * ahead_bytes(block) + 1024) * ctas <= arch->shared_sm / 7 * 6)
        steps++;
    return steps;
}

// What a share of plan "split" leaves for the one that merges (split.cu).
static int64_t record_bytes(const spec_t *s)
{
    return 16 + 16 * ((s->K + 1) / 2);
}

static quern_status plan_stream(const spec_t *s, const qn_arch *arch, const qn_config *c, qn_kernel_plan *k)
{
    stream_numbers n = stream_of(s, c);
    const int ahead = steps_ahead(s, arch, c, n.shared_bytes);
    QN_TRY(check_list(s, c, n.slots, n.sorted));
    if (c->value[PLAN] == PLAN_SPLIT && fewest_streamed(s, c) < 1) {
        return qn_fail(QUERN_NO_PLAN, "plan=split shares=%d: a row has only %d vectors", c->value[SHARES],
                       fewest_vectors(s));
    }
    k->template_path = c->value[PLAN] == PLAN_SPLIT ? "softmax_topk/split.cu" : "softmax_topk/stream.cu";
    k->cluster = 1;
    k->dynamic_shared = n.shared_bytes + ahead * ahead_bytes(c->value[BLOCK]);
    qn_plan_constant(k, "UNROLL", c->value[UNROLL]);
    qn_plan_constant(k, "AHEAD", ahead);
    qn_plan_constant(k, "SAMPLE", n.sample);
    qn_plan_constant(k, "RANK", n.rank);
    if (c->value[PLAN] == PLAN_SPLIT) {
        qn_plan_constant(k, "SHARES", c->value[SHARES]);
        qn_plan_constant(k, "RECORD_BYTES", record_bytes(s));
    }
    add_list_constants(k, n.slots, n.sorted, n.bins);
    return QUERN_OK;
}

// ---- split

// Shares that fill the SMs twice over, each with enough vectors for its threads and for K winners; 0: no use. Below four
// of them, or with many winners, one large CTA a row is as fast, unless the row is very long.
static int split_shares(const spec_t *s, const qn_arch *arch, int64_t rows)
{
    int64_t most = fewest_vectors(s) / 256, of_k = fewest_vectors(s) / (2 * s->K), wanted = 2 * arch->sm_count / rows;
    const bool very_long = fewest_vectors(s) > 32768;
    if (!very_long && (arch->max_cluster > 1 || s->K > 256)) return 0;
    if (most > of_k) most = of_k;
    if (most > wanted) most = wanted;
    int shares = 0;
    for (size_t i = 0; i < knobs[SHARES].choice_count; i++)
        if (knobs[SHARES].choices[i] <= most) shares = knobs[SHARES].choices[i];
    return shares >= 4 ? shares : 0;
}

static bool choose_split(const spec_t *s, const qn_arch *arch, int64_t rows, qn_config *c)
{
    int shares = split_shares(s, arch, rows);
    if (shares == 0) return false;
    c->value[PLAN] = PLAN_SPLIT;
    c->value[SHARES] = shares;
    choose_stream(s, arch, fewest_streamed(s, c) >= 2048 ? 512 : 256, 2, c);
    spare_registers(s, arch, c);
    return true;
}

static size_t split_bytes(const spec_t *s, const qn_config *c, int64_t rows)
{
    if (rows <= 0 || rows > SOFTMAX_TOPK_TICKETS) return 0; // then each row has one CTA
    return SOFTMAX_TOPK_TICKETS * sizeof(uint32_t) + (size_t)(rows * c->value[SHARES] * record_bytes(s));
}

// ---- cluster (cluster.cu)

typedef struct cluster_numbers {
    int vectors, maxima; // a thread; of the cluster
    int list;            // entries of one CTA's list
    int slots, sorted, bins;
    int shared_bytes;
} cluster_numbers;

static cluster_numbers cluster_of(const spec_t *s, const qn_config *c)
{
    cluster_numbers n;
    const int block = c->value[BLOCK], ctas = c->value[CLUSTER], warps = block / 32;
    const bool by_bins = s->K >= 64 * ctas && c->value[THRESHOLD] != BY_OWN_MAXIMA; // cluster_row.cuh: kByBins
    n.vectors = ceil_div(most_vectors(s), (int64_t)block * ctas);
    n.maxima = (c->value[THRESHOLD] == BY_OWN_MAXIMA ? 1 : ctas) * block / c->value[GROUP];
    n.list = c->value[LOCAL_K] * block / ctas;
    n.slots = ctas * (n.list + 2) / 2 / warps * warps;
    n.sorted = (int)((s->K + s->K / 4 + 256 + 1) / 2 * 2);
    n.bins = 1024;
    n.shared_bytes = (c->value[KEEP] == KEEP_SHARED ? n.vectors * block : n.list) * 16 +
                     ctas * ((n.list + 2) * 8 + 16 + 4) + n.list * 12 + (by_bins ? 2 : n.list) * 8 +
                     (n.maxima + block / c->value[GROUP]) * 4 + (n.sorted + 3) * 8 + (1056 + 7 * warps + 4 + 4) * 4 +
                     16 + 24;
    return n;
}

// About what cluster.cu needs, read off its builds; beyond the cap it would spill.
static int cluster_registers(const spec_t *s, const qn_arch *arch, const cluster_numbers *n, const qn_config *c)
{
    int extras = (s->temperature ? 6 : 0) + (s->token ? 8 : 0), wide = element_bytes(s) == 4;
    if (c->value[KEEP] == KEEP_SHARED) return 48 + extras;
    if (c->value[KEEP] == KEEP_MAXIMA) return (arch->cc >= 100 ? 42 : 40) + extras + n->vectors * 3;
    return wide ? 38 + extras + n->vectors * 4 : 34 + extras + n->vectors * 6;
}

static quern_status plan_cluster(const spec_t *s, const qn_arch *arch, const qn_config *c, qn_kernel_plan *k)
{
    cluster_numbers n = cluster_of(s, c);
    int registers = arch->registers_sm / (c->value[BLOCK] * c->value[CTAS]);
    if (s->batch_invariant) return qn_fail(QUERN_NO_PLAN, "plan=cluster with batch_invariant=1: use plan=stream");
    if (c->value[CLUSTER] > arch->max_cluster) {
        return qn_fail(QUERN_NO_PLAN, "plan=cluster cluster=%d: %s has clusters of at most %d", c->value[CLUSTER],
                       arch->name, arch->max_cluster);
    }
    if (n.maxima < 2 * s->K || c->value[BLOCK] / c->value[GROUP] < 4) {
        return qn_fail(QUERN_NO_PLAN,
                       "plan=cluster cluster=%d block=%d group=%d has %d group maxima, K=%lld needs %lld; lower group",
                       c->value[CLUSTER], c->value[BLOCK], c->value[GROUP], n.maxima, (long long)s->K,
                       (long long)(2 * s->K));
    }
    if (c->value[THRESHOLD] != BY_BINS && n.maxima > 1024) {
        return qn_fail(QUERN_NO_PLAN, "plan=cluster threshold=%s: %d group maxima, at most 1024; raise group",
                       word_of(threshold_names, c->value[THRESHOLD]), n.maxima);
    }
    if (n.vectors > 32 || cluster_registers(s, arch, &n, c) > registers) {
        return qn_fail(QUERN_NO_PLAN,
                       "plan=cluster: %d vectors a thread need about %d registers, block=%d ctas=%d leave %d",
                       n.vectors, cluster_registers(s, arch, &n, c), c->value[BLOCK], c->value[CTAS], registers);
    }
    if (n.list < 32 || n.list % 2) {
        return qn_fail(QUERN_NO_PLAN, "plan=cluster local_k=%d: a list has %d entries, at least 32; raise local_k",
                       c->value[LOCAL_K], n.list);
    }
    QN_TRY(check_list(s, c, n.slots, n.sorted));
    k->template_path = "softmax_topk/cluster.cu";
    k->cluster = c->value[CLUSTER];
    k->dynamic_shared = n.shared_bytes;
    qn_plan_constant(k, "VECTORS", n.vectors);
    qn_plan_constant(k, "GROUP", c->value[GROUP]);
    qn_plan_constant(k, "LOOK_AGAIN", c->value[KEEP] == KEEP_MAXIMA);
    qn_plan_constant(k, "IN_SHARED", c->value[KEEP] == KEEP_SHARED);
    qn_plan_constant(k, "SEARCH", c->value[THRESHOLD] != BY_BINS);
    qn_plan_constant(k, "OWN_BOUND", c->value[THRESHOLD] == BY_OWN_MAXIMA);
    add_list_constants(k, n.slots, n.sorted, n.bins);
    return QUERN_OK;
}

static int64_t power_above(int64_t least)
{
    int64_t power = 1;
    while (power < least) power *= 2;
    return power;
}

// The cluster of the measured best for so many rows (ANALYSIS.md), narrower for short rows. False: no cluster fits.
static bool choose_cluster(const spec_t *s, const qn_arch *arch, int64_t rows, qn_config *c)
{
    static const struct {
        int rows, cluster, block, ctas;
    } width[] = {{4, 16, 512, 1}, {14, 8, 512, 1}, {30, 8, 512, 2}, {62, 4, 512, 2}, {66, 2, 1024, 1}};
    size_t w = 0;
    while (w < QN_COUNT(width) && rows > width[w].rows) w++;
    if (w == QN_COUNT(width)) return false;
    int cluster = width[w].cluster < arch->max_cluster ? width[w].cluster : arch->max_cluster, block = width[w].block;
    while (cluster > 2 && fewest_vectors(s) <= cluster / 2 * block) cluster /= 2;
    if (arch->max_cluster < 2 || fewest_vectors(s) <= block) return false;
    if (s->K > 256 && cluster < 8 && (cluster < 4 || fewest_vectors(s) < 4 * s->K))
        return false; // pairs are no faster than one CTA a row; maxima of so few vectors bound little

    const bool own = s->K <= 8; // so few that each CTA may order K elements of its own
    int64_t wanted = own ? 64 * cluster : s->K <= 50 ? 256 : s->K <= 256 ? 1024 : 4 * power_above(s->K);
    int64_t group = cluster * block / power_above(wanted), list = 4 * power_above(s->K) / cluster;
    if (list < 128) list = 128;
    if (list > 768) list = 768; // more takes the room in L1 that vectors are read again from
    int64_t local_k = list * cluster / block;
    c->value[PLAN] = PLAN_CLUSTER;
    c->value[BLOCK] = block;
    c->value[CTAS] = width[w].ctas;
    c->value[LOCAL_K] = choice_at_least(LOCAL_K, local_k < 1 ? 1 : (int)local_k);
    c->value[CLUSTER] = cluster;
    c->value[GROUP] = group < 1 ? 1 : group > 32 ? 32 : (int)group;
    c->value[THRESHOLD] = own ? BY_OWN_MAXIMA : s->K <= 50 ? BY_BISECTION : BY_BINS;
    c->value[KEEP] = KEEP_VECTORS;
    cluster_numbers n = cluster_of(s, c);
    if (cluster_registers(s, arch, &n, c) <= arch->registers_sm / (block * c->value[CTAS])) return true;
    c->value[KEEP] = KEEP_SHARED;
    n = cluster_of(s, c);
    if (n.shared_bytes > arch->shared_cta || (int64_t)(n.shared_bytes + 1024) * c->value[CTAS] > arch->shared_sm)
        c->value[KEEP] = KEEP_MAXIMA;
    return true;
}

// ---- buckets of rows

static const int64_t bucket_last[] = {4, 14, 30, 62, 66, 132, 264, 528, INT32_MAX};

static int64_t bucket_first(size_t bucket)
{
    return bucket ? bucket_last[bucket - 1] + 1 : 1;
}

static void bucket_name(size_t bucket, char *text, size_t bytes)
{
    if (bucket + 1 == QN_COUNT(bucket_last))
        snprintf(text, bytes, "rows %lld…", (long long)bucket_first(bucket));
    else
        snprintf(text, bytes, "rows %lld..%lld", (long long)bucket_first(bucket), (long long)bucket_last[bucket]);
}

static void bucket_sizes(size_t bucket, void *out)
{
    static const int64_t typical[QN_COUNT(bucket_last)] = {1, 8, 30, 62, 64, 128, 256, 512, 4096};
    *(sizes_t *)out = (sizes_t){sizeof(sizes_t), typical[bucket]};
}

static size_t bucket_of(const void *in)
{
    size_t bucket = 0;
    while (bucket + 1 < QN_COUNT(bucket_last) && ((const sizes_t *)in)->rows > bucket_last[bucket]) bucket++;
    return bucket;
}

// ---- choose

// The smallest block that leaves a thread some vectors.
static int block_for(const spec_t *s, int most)
{
    int block = 128;
    while (block < most && block * 4 < fewest_vectors(s)) block *= 2;
    return block;
}

static quern_status plan(const quern_spec *base, const qn_arch *arch, const qn_config *config, qn_plan *out);

// Vectors a thread has in flight, fewer where registers would spill. In rows after rows, 8: the CTAs of an SM that stream
// then read for the one that samples or finishes. In one wave less, so that work begins early; 2 where a thread's share is
// short. ANALYSIS.md has times.
static int stream_unroll(const spec_t *s, const qn_arch *arch, size_t bucket, const qn_config *c)
{
    const int each = fewest_streamed(s, c) / c->value[BLOCK];
    const bool spills = s->token && s->in == QUERN_F32 && s->K > 256;
    if (bucket_first(bucket) > 4 * (int64_t)arch->sm_count) return each >= 24 && !spills ? 8 : 4;
    return each < 24 || spills ? 2 : 4;
}

// A CTA a row: the whole SM for it while there are SMs enough, two an SM while that is one wave, small ones for more rows.
static void choose_rows(const spec_t *s, const qn_arch *arch, size_t bucket, qn_config *c)
{
    const int64_t first = bucket_first(bucket), last = bucket_last[bucket];
    const bool many = first > 2 * (int64_t)arch->sm_count;
    if (last <= arch->sm_count)
        choose_stream(s, arch, block_for(s, 1024), 1, c);
    else if (many && s->K <= 256)
        choose_stream(s, arch, block_for(s, 256), 4, c);
    else
        choose_stream(s, arch, block_for(s, 512), 2, c);
    c->value[UNROLL] = stream_unroll(s, arch, bucket, c);
    spare_registers(s, arch, c);
}

// Clusters where they fit, else shares where rows are few or very long, else a CTA a row. batch_invariant: one
// configuration for all.
static void choose(const quern_spec *base, const qn_arch *arch, size_t bucket, qn_config *config)
{
    const spec_t *s = (const spec_t *)base;
    const int64_t rows = bucket_last[bucket];
    qn_plan made;
    memset(config, 0, sizeof *config);
    if (s->batch_invariant) {
        choose_stream(s, arch, block_for(s, 512), 2, config);
        return;
    }
    if (choose_cluster(s, arch, rows, config) && plan(base, arch, config, &made) == QUERN_OK) return;
    memset(config, 0, sizeof *config);
    if (choose_split(s, arch, rows, config) && plan(base, arch, config, &made) == QUERN_OK) return;
    memset(config, 0, sizeof *config);
    choose_rows(s, arch, bucket, config);
}

// ---- plan

static void write_entry(const spec_t *s, const qn_config *c, char *entry)
{
    snprintf(entry, QN_MAX_ENTRY, "softmax_topk_V%lld_K%lld_%s%s%s%s%s%s%s%s_%s", (long long)s->V, (long long)s->K,
             word_of(in_names, (int)s->in), s->index == QUERN_I64 ? "_i64" : "",
             s->value == QUERN_VALUE_PROB    ? ""
             : s->value == QUERN_VALUE_LOGIT ? "_logit"
                                             : "_logprob",
             s->norm == QUERN_NORM_TOPK ? "_topk" : "", s->temperature ? "_temperature" : "", s->lse ? "_lse" : "",
             s->token ? "_token" : "", s->batch_invariant ? "_invariant" : "", word_of(plan_names, c->value[PLAN]));
}

static void add_spec_constants(const spec_t *s, qn_kernel_plan *k)
{
    static const int in[] = {[QUERN_F32] = 1, [QUERN_F16] = 2, [QUERN_BF16] = 3}; // elements.cuh: ElementOf
    qn_plan_constant(k, "V", s->V);
    qn_plan_constant(k, "K", s->K);
    qn_plan_constant(k, "IN", in[s->in]);
    qn_plan_constant(k, "INDEX_BYTES", s->index == QUERN_I64 ? 8 : 4);
    qn_plan_constant(k, "VALUE", s->value == QUERN_VALUE_PROB ? 0 : s->value == QUERN_VALUE_LOGPROB ? 1 : 2);
    qn_plan_constant(k, "NORM", s->norm == QUERN_NORM_TOPK);
    qn_plan_constant(k, "TEMPERATURE", s->temperature);
    qn_plan_constant(k, "LSE", s->lse);
    qn_plan_constant(k, "TOKEN", s->token);
    qn_plan_constant(k, "BATCH_INVARIANT", s->batch_invariant);
}

static quern_status check_sm(const qn_arch *arch, const qn_kernel_plan *k)
{
    if (k->threads * k->min_ctas > arch->max_threads_sm) {
        return qn_fail(QUERN_NO_PLAN, "block=%d with ctas=%d: %s holds %d threads an SM", k->threads, k->min_ctas,
                       arch->name, arch->max_threads_sm);
    }
    if (k->dynamic_shared > arch->shared_cta || (int64_t)(k->dynamic_shared + 1024) * k->min_ctas > arch->shared_sm) {
        return qn_fail(QUERN_NO_PLAN,
                       "block=%d with ctas=%d needs %d × %d bytes of shared memory, %s has %d a CTA and %d an SM; "
                       "lower local_k or ctas",
                       k->threads, k->min_ctas, k->min_ctas, k->dynamic_shared, arch->name, arch->shared_cta,
                       arch->shared_sm);
    }
    return QUERN_OK;
}

static quern_status plan(const quern_spec *base, const qn_arch *arch, const qn_config *config, qn_plan *out)
{
    const spec_t *s = (const spec_t *)base;
    qn_plan made;
    memset(&made, 0, sizeof made);
    qn_kernel_plan *k = &made.stage[0];
    made.stage_count = 1;
    k->threads = config->value[BLOCK];
    k->min_ctas = config->value[CTAS];
    k->params_bytes = sizeof(softmax_topk_params);
    add_spec_constants(s, k);
    qn_plan_constant(k, "LOCAL_K", config->value[LOCAL_K]);
    QN_TRY(config->value[PLAN] == PLAN_CLUSTER ? plan_cluster(s, arch, config, k) : plan_stream(s, arch, config, k));
    QN_TRY(check_sm(arch, k));
    write_entry(s, config, k->entry); // last: of the many configurations that a tuner asks about, most are refused
    *out = made;
    return QUERN_OK;
}

// ---- launch

static size_t workspace(const quern_spec *spec, const qn_config *config, const void *at_most)
{
    if (config->value[PLAN] != PLAN_SPLIT) return 0;
    int64_t rows = ((const sizes_t *)at_most)->rows;
    return split_bytes((const spec_t *)spec, config, rows < SOFTMAX_TOPK_TICKETS ? rows : SOFTMAX_TOPK_TICKETS);
}

static quern_status check(const quern_spec *base)
{
    const spec_t *s = (const spec_t *)base;
    if (s->K > s->V) {
        return qn_fail(QUERN_CONFLICT, "K = %lld with V = %lld: K must be 1 … min(V, 2048)", (long long)s->K,
                       (long long)s->V);
    }
    return QUERN_OK;
}

static quern_status check_args(const quern_spec *spec, const quern_args *args, bool *empty)
{
    return qn_check_rows(&qn_family_softmax_topk, spec, args, empty);
}

static void sizes_of(const quern_args *args, void *out)
{
    *(sizes_t *)out = (sizes_t){sizeof(sizes_t), ((const args_t *)args)->rows};
}

// A CTA or more a row. Clusters lie in rows of 2^16: 2^31 rows times a cluster's CTAs are more than one axis takes.
static void write_grid(const qn_config *c, int64_t rows, uint32_t *grid) // [3]
{
    const int64_t wide = 65536;
    int64_t ctas = rows;
    grid[1] = grid[2] = 1;
    if (c->value[PLAN] == PLAN_CLUSTER) {
        ctas = (rows < wide ? rows : wide) * c->value[CLUSTER];
        grid[1] = (uint32_t)ceil_div(rows, wide);
    } else if (c->value[PLAN] == PLAN_SPLIT && rows <= SOFTMAX_TOPK_TICKETS) {
        ctas = rows * c->value[SHARES];
    }
    grid[0] = (uint32_t)ctas;
}

QN_LAUNCH_PATH static void launch(const quern_spec *base, const qn_config *config, const qn_plan *made,
                                  const qn_device_limits *limits, const quern_args *base_args, size_t stage,
                                  qn_launch *out)
{
    const spec_t *s = (const spec_t *)base;
    const args_t *a = (const args_t *)base_args;
    (void)made, (void)limits, (void)stage;
    softmax_topk_params p = {
        .logits = a->logits,
        .temperature = s->temperature ? a->temperature : NULL,
        .token = s->token ? a->token : NULL,
        .values = a->values,
        .indices = a->indices,
        .lse = s->lse ? a->lse : NULL,
        .token_value = s->token ? a->token_value : NULL,
        .token_rank = s->token ? a->token_rank : NULL,
        .workspace = a->workspace,
        .logits_stride = a->logits_stride_rows ? a->logits_stride_rows : s->V,
        .values_stride = a->values_stride_rows ? a->values_stride_rows : s->K,
        .indices_stride = a->indices_stride_rows ? a->indices_stride_rows : s->K,
        .rows = a->rows,
    };
    write_grid(config, a->rows, out->grid);
    out->skip = false;
    memcpy(out->params, &p, sizeof p);
}

const qn_family qn_family_softmax_topk = {
    .name = "softmax_topk",
    .doc = "softmax and the K largest of each row: e^((x - max) / T) / sum, in order, with indices",
    .fields = fields,
    .field_count = QN_COUNT(fields),
    .spec_bytes = sizeof(spec_t),
    .sizes = sizes,
    .size_args_offset = size_args_offset,
    .size_count = QN_COUNT(sizes),
    .sizes_bytes = sizeof(sizes_t),
    .tensors = tensors,
    .tensor_count = QN_COUNT(tensors),
    .args_bytes = sizeof(args_t),
    .workspace_offset = offsetof(args_t, workspace),
    .workspace_bytes_offset = offsetof(args_t, workspace_bytes),
    .knobs = knobs,
    .knob_count = KNOBS,
    .check = check,
    .bucket_count = QN_COUNT(bucket_last),
    .bucket_name = bucket_name,
    .bucket_sizes = bucket_sizes,
    .bucket_of = bucket_of,
    .choose = choose,
    .plan = plan,
    .workspace = workspace,
    .workspace_word = 0,
    .check_args = check_args,
    .args_are_plain = true,
    .workspace_by_config = true,
    .sizes_of = sizes_of,
    .launch = launch,
    .reference = qn_reference_softmax_topk,
    .tolerance = qn_tolerance_softmax_topk,
};
