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
    {.name = "V", .type = QN_INT, .offset = AT(V), .required = true, .min = 1, .max = MOST_V, .doc = "vocabulary: logits a row"},
    {.name = "K", .type = QN_INT, .offset = AT(K), .required = true, .min = 1, .max = MOST_K, .doc = "winners a row, at most V"},
    {.name = "in", .type = QN_ENUM, .offset = AT(in), .required = true, .names = in_names, .doc = "type of logits"},
    {.name = "index", .type = QN_ENUM, .offset = AT(index), .initial = QUERN_I32, .names = index_names, .doc = "type of indices"},
    {.name = "value", .type = QN_ENUM, .offset = AT(value), .initial = QUERN_VALUE_PROB, .names = value_names, .doc = "what values holds"},
    {.name = "norm", .type = QN_ENUM, .offset = AT(norm), .initial = QUERN_NORM_ALL, .names = norm_names, .doc = "softmax over all V or over the K kept"},
    {.name = "temperature", .type = QN_FLAG, .offset = AT(temperature), .max = 1, .doc = "1: a temperature for each row is given"},
    {.name = "lse", .type = QN_FLAG, .offset = AT(lse), .max = 1, .doc = "1: log-sum-exp of each row is written"},
    {.name = "token", .type = QN_FLAG, .offset = AT(token), .max = 1, .doc = "1: log-probability and rank of one given token a row are written"},
    {.name = "batch_invariant", .type = QN_FLAG, .offset = AT(batch_invariant), .max = 1, .doc = "1: a row's bits do not depend on rows or on its address"},
};
#undef AT

static const qn_field sizes[] = {
    {.name = "rows", .type = QN_INT, .offset = offsetof(sizes_t, rows), .required = true, .min = 0, .max = INT32_MAX, .doc = "rows of logits"},
};
static const size_t size_args_offset[] = {offsetof(args_t, rows)};

#define AT(member) offsetof(args_t, member)
static const qn_tensor tensors[] = {
    {.name = "logits", .direction = QN_INPUT, .axes = {"rows", "V"}, .dtype_field = "in", .pointer_offset = AT(logits), .stride_offset = {AT(logits_stride_rows)}, .doc = "one row of logits a sequence"},
    {.name = "temperature", .direction = QN_INPUT, .axes = {"rows"}, .dtype = QUERN_F32, .flag = "temperature", .pointer_offset = AT(temperature), .doc = "divides x - max"},
    {.name = "token", .direction = QN_INPUT, .axes = {"rows"}, .dtype = QUERN_I32, .flag = "token", .pointer_offset = AT(token), .doc = "a token whose log-probability and rank are wanted"},
    {.name = "values", .direction = QN_OUTPUT, .axes = {"rows", "K"}, .dtype = QUERN_F32, .pointer_offset = AT(values), .stride_offset = {AT(values_stride_rows)}, .doc = "of the winners, in order"},
    {.name = "indices", .direction = QN_OUTPUT, .axes = {"rows", "K"}, .dtype_field = "index", .pointer_offset = AT(indices), .stride_offset = {AT(indices_stride_rows)}, .doc = "of the winners, in order"},
    {.name = "lse", .direction = QN_OUTPUT, .axes = {"rows"}, .dtype = QUERN_F32, .flag = "lse", .pointer_offset = AT(lse), .doc = "log of the sum of e^(x / T) over all V"},
    {.name = "token_value", .direction = QN_OUTPUT, .axes = {"rows"}, .dtype = QUERN_F32, .flag = "token", .pointer_offset = AT(token_value), .doc = "the token's log-probability over all V"},
    {.name = "token_rank", .direction = QN_OUTPUT, .axes = {"rows"}, .dtype = QUERN_I32, .flag = "token", .pointer_offset = AT(token_rank), .doc = "how many elements come before the token"},
};
#undef AT

enum { PLAN_STREAM = 1 };
static const qn_name plan_names[] = {{"stream", PLAN_STREAM}, {NULL, 0}};

enum knob { PLAN, BLOCK, CTAS, LOCAL_K, UNROLL, KNOBS };
static const qn_knob knobs[] = {
    [PLAN] = {"plan", {PLAN_STREAM}, 1, plan_names, "how rows are dealt to CTAs"},
    [BLOCK] = {"block", {128, 256, 512, 1024}, 4, NULL, "threads a CTA"},
    [CTAS] = {"ctas", {1, 2, 3, 4, 6, 8}, 6, NULL, "CTAs an SM that registers are kept for"},
    [LOCAL_K] = {"local_k", {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 14, 16, 20, 24, 32}, 16, NULL, "candidate slots a thread"},
    [UNROLL] = {"unroll", {1, 2, 4, 8}, 4, NULL, "vectors a thread has in flight"},
};

// ---- shapes

static int ceil_div(int64_t a, int64_t b) { return (int)((a + b - 1) / b); }
static int element_bytes(const spec_t *s) { return s->in == QUERN_F32 ? 4 : 2; }
static int per_vector(const spec_t *s) { return 16 / element_bytes(s); }

// 16-byte vectors that cover a row: at least, and at most (rows start at any element).
static int fewest_vectors(const spec_t *s) { return ceil_div(s->V, per_vector(s)); }
static int most_vectors(const spec_t *s) { return ceil_div(s->V + per_vector(s) - 1, per_vector(s)); }

// ---- stream: the sample, the list, shared memory (sample.cuh, finish.cuh, stream.cu)

typedef struct stream_numbers {
    int sample; // vectors a thread
    int rank;   // 0: no threshold
    int slots, sorted, bins;
    int shared_bytes;
} stream_numbers;

// A sixteenth of the row, 8 vectors a thread at most; all of it if that is little.
static int sample_vectors(int vectors, int block)
{
    if (vectors <= 2 * block) return ceil_div(vectors, block);
    int sample = ceil_div(vectors, 16 * (int64_t)block);
    return sample > 8 ? 8 : sample;
}

// Least rank in the sample that leaves fewer than K candidates about once in 10^4 rows: the winners in the sample are
// Poisson with mean K · share. Square roots and sums only, so that every machine plans alike.
static int sample_rank(const spec_t *s, int sampled)
{
    double share = (double)sampled / fewest_vectors(s);
    if (share >= 1.0) return 2 * s->K <= fewest_vectors(s) ? (int)s->K : 0;
    double mean = (double)s->K * share, rank = ceil(mean + 3.72 * sqrt(mean) + 2.5);
    if (rank > (double)s->K) rank = (double)s->K;
    return 2 * rank <= sampled && 2 * s->K <= fewest_vectors(s) ? (int)rank : 0;
}

static stream_numbers stream_of(const spec_t *s, const qn_config *c)
{
    stream_numbers n;
    int block = c->value[BLOCK], warps = block / 32;
    n.sample = sample_vectors(most_vectors(s), block);
    n.rank = sample_rank(s, n.sample * block);
    n.slots = c->value[LOCAL_K] * block;
    n.sorted = (int)((s->K + s->K / 4 + 256 + 1) / 2 * 2);
    n.bins = s->K <= 512 ? 1024 : 2048;
    int bin_words = n.bins > 1056 ? n.bins : 1056, number = most_vectors(s) <= 65536 ? 2 : 4;
    n.shared_bytes = n.slots * (16 + number) + n.sorted * 8 + (bin_words + 8 * warps + 4 + 6) * 4 + 20;
    return n;
}

// Slots a thread that lists overflow in about one row of 10^7 with, winners lying anywhere; and no fewer than the exact
// selection needs.
static int stream_local_k(const spec_t *s, int block)
{
    int sample = sample_vectors(most_vectors(s), block), rank = sample_rank(s, sample * block), warps = block / 32;
    int64_t least = s->K + 1 > 256 ? s->K + 1 : 256;
    if (rank == 0) return ceil_div(least, block);
    double share = (double)(sample * block) / fewest_vectors(s);
    if (share > 1.0) share = 1.0;
    double upper = (rank + 5.2 * sqrt(rank) + 9.0) / share / warps;
    double slots = 1.08 * (upper + 5.0 * sqrt(rank / share / warps) + 8.0);
    int a_warp = ceil_div((int64_t)slots, 32), enough = ceil_div(fewest_vectors(s) * (int64_t)per_vector(s), block);
    if (a_warp > enough) a_warp = enough;
    return a_warp > ceil_div(least, block) ? a_warp : ceil_div(least, block);
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

static int choice_below(enum knob knob, int value)
{
    int below = knobs[knob].choices[0];
    for (size_t i = 0; i < knobs[knob].choice_count; i++)
        if (knobs[knob].choices[i] < value) below = knobs[knob].choices[i];
    return below;
}

// Fewer CTAs an SM first, then shorter lists, until it fits. Lists of K + 1 entries always do.
static void choose_stream(const spec_t *s, const qn_arch *arch, int block, int ctas, qn_config *c)
{
    c->value[PLAN] = PLAN_STREAM;
    c->value[BLOCK] = block;
    c->value[CTAS] = ctas;
    c->value[UNROLL] = 4;
    c->value[LOCAL_K] = choice_at_least(LOCAL_K, stream_local_k(s, block));
    while (!stream_fits(s, arch, c) && c->value[CTAS] > 1) c->value[CTAS] = choice_below(CTAS, c->value[CTAS]);
    while (!stream_fits(s, arch, c) && c->value[LOCAL_K] > 1) c->value[LOCAL_K] = choice_below(LOCAL_K, c->value[LOCAL_K]);
}

static quern_status plan_stream(const spec_t *s, const qn_arch *arch, const qn_config *c, qn_kernel_plan *k)
{
    stream_numbers n = stream_of(s, c);
    int room = n.slots < n.sorted ? n.slots : n.sorted;
    if (n.slots < 256 || n.slots >= 65536 || room < s->K) {
        return qn_fail(QUERN_NO_PLAN, "plan=stream: local_k=%d with block=%d makes %d candidate slots, K=%lld needs %lld … 65535",
                       c->value[LOCAL_K], c->value[BLOCK], n.slots, (long long)s->K, (long long)(s->K > 256 ? s->K : 256));
    }
    if (n.shared_bytes > arch->shared_cta) {
        return qn_fail(QUERN_NO_PLAN, "plan=stream block=%d local_k=%d needs %d bytes of shared memory, %s has %d a CTA; lower local_k",
                       c->value[BLOCK], c->value[LOCAL_K], n.shared_bytes, arch->name, arch->shared_cta);
    }
    k->template_path = "softmax_topk/stream.cu";
    k->cluster = 1;
    k->dynamic_shared = n.shared_bytes;
    qn_plan_constant(k, "UNROLL", c->value[UNROLL]);
    qn_plan_constant(k, "SAMPLE", n.sample);
    qn_plan_constant(k, "RANK", n.rank);
    qn_plan_constant(k, "SLOTS", n.slots);
    qn_plan_constant(k, "SORTED", n.sorted);
    qn_plan_constant(k, "BINS", n.bins);
    return QUERN_OK;
}

// ---- buckets of rows

static const int64_t bucket_last[] = {4, 14, 30, 62, 66, 132, 264, 528, INT32_MAX};

static int64_t bucket_first(size_t bucket) { return bucket ? bucket_last[bucket - 1] + 1 : 1; }

static void bucket_name(size_t bucket, char *text, size_t bytes)
{
    if (bucket + 1 == QN_COUNT(bucket_last)) snprintf(text, bytes, "rows %lld…", (long long)bucket_first(bucket));
    else snprintf(text, bytes, "rows %lld..%lld", (long long)bucket_first(bucket), (long long)bucket_last[bucket]);
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

static void choose(const quern_spec *base, const qn_arch *arch, size_t bucket, qn_config *config)
{
    const spec_t *s = (const spec_t *)base;
    memset(config, 0, sizeof *config);
    bool many = bucket_first(bucket) > 4 * (int64_t)arch->sm_count;
    if (s->batch_invariant) choose_stream(s, arch, block_for(s, 512), 2, config);
    else if (many && s->K <= 256) choose_stream(s, arch, block_for(s, 256), 4, config);
    else choose_stream(s, arch, block_for(s, 512), 2, config);
}

// ---- plan

static const char *word_of(const qn_name *names, int value)
{
    while (names->name && names->value != value) names++;
    return names->name ? names->name : "";
}

static void write_entry(const spec_t *s, const qn_config *c, char *entry)
{
    snprintf(entry, QN_MAX_ENTRY, "softmax_topk_V%lld_K%lld_%s%s%s%s%s%s%s%s_%s", (long long)s->V, (long long)s->K,
             word_of(in_names, (int)s->in), s->index == QUERN_I64 ? "_i64" : "",
             s->value == QUERN_VALUE_PROB ? "" : s->value == QUERN_VALUE_LOGIT ? "_logit" : "_logprob",
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
    write_entry(s, config, k->entry);
    add_spec_constants(s, k);
    qn_plan_constant(k, "LOCAL_K", config->value[LOCAL_K]);
    if (k->threads < 32 || k->threads % 32 || k->threads * k->min_ctas > arch->max_threads_sm) {
        return qn_fail(QUERN_NO_PLAN, "block=%d with ctas=%d: %s holds %d threads an SM", k->threads, k->min_ctas, arch->name,
                       arch->max_threads_sm);
    }
    QN_TRY(plan_stream(s, arch, config, k));
    *out = made;
    return QUERN_OK;
}

// ---- launch

static size_t workspace(const quern_spec *spec, const qn_config *config, const void *at_most)
{
    (void)spec, (void)config, (void)at_most;
    return 0;
}

static quern_status check(const quern_spec *base)
{
    const spec_t *s = (const spec_t *)base;
    if (s->K > s->V) {
        return qn_fail(QUERN_CONFLICT, "K = %lld with V = %lld: K must be 1 … min(V, 2048)", (long long)s->K, (long long)s->V);
    }
    return QUERN_OK;
}

static quern_status check_args(const quern_spec *spec, const quern_args *base, bool *empty)
{
    const args_t *args = (const args_t *)base;
    if (args->rows < 0 || args->rows > INT32_MAX) {
        return qn_fail(QUERN_BAD_SIZE, "rows = %lld: must be 0 … 2147483647", (long long)args->rows);
    }
    *empty = args->rows == 0;
    return *empty ? QUERN_OK : qn_check_args(&qn_family_softmax_topk, spec, base);
}

static void sizes_of(const quern_args *args, void *out)
{
    *(sizes_t *)out = (sizes_t){sizeof(sizes_t), ((const args_t *)args)->rows};
}

static void launch(const quern_spec *base, const qn_config *config, const qn_plan *made, const qn_device_limits *limits,
                   const quern_args *base_args, size_t stage, qn_launch *out)
{
    const spec_t *s = (const spec_t *)base;
    const args_t *a = (const args_t *)base_args;
    (void)config, (void)made, (void)limits, (void)stage;
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
    out->grid[0] = (uint32_t)a->rows, out->grid[1] = 1, out->grid[2] = 1;
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
    .sizes_of = sizes_of,
    .launch = launch,
    .reference = qn_reference_softmax_topk,
};
