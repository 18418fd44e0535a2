// SPDX-License-Identifier: Apache-2.0
// attention on the host: what a launch refuses, strides in any order, what the kernels are told, splits and workspace.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "attention/args.h"
#include "cuda/driver.h"
#include "ops/attention.h"

static _Alignas(256) char memory[1024];

static quern_attention_spec parse(const char *text)
{
    quern_any_spec spec, full;
    const qn_family *family;
    quern_attention_spec result;
    if (quern_spec_parse(text, &spec) != QUERN_OK || qn_spec_complete(&spec.base, &family, &full) != QUERN_OK)
        fail_msg("'%s': %s", text, quern_message());
    memcpy(&result, &full, sizeof result);
    return result;
}

static quern_attention_args args_of(int64_t B, int64_t Sq, int64_t Sk, int64_t Hq, int64_t Hkv)
{
    quern_attention_args a = QUERN_ATTENTION_ARGS_INIT;
    a.B = B, a.Sq = Sq, a.Sk = Sk, a.Hq = Hq, a.Hkv = Hkv;
    a.q = a.k = a.v = a.out = memory;
    return a;
}

static quern_status check(const char *text, const quern_attention_args *a, bool *empty)
{
    quern_attention_spec spec = parse(text);
    *empty = false;
    return qn_family_attention.check_args(&spec.base, &a->base, empty);
}

static void sizes_that_make_no_sense_are_refused(void **state)
{
    (void)state;
    bool empty;
    quern_attention_args a = args_of(1, 4, 8, 6, 4);
    assert_int_equal(check("attention", &a, &empty), QUERN_BAD_SIZE); // 6 heads on 4
    a = args_of(1, 4, 8, 6, 0);
    assert_int_equal(check("attention", &a, &empty), QUERN_BAD_SIZE);
    a = args_of(-1, 4, 8, 4, 4);
    assert_int_equal(check("attention", &a, &empty), QUERN_BAD_SIZE);
    a = args_of(1, INT32_MAX, 8, 64, 1);
    assert_int_equal(check("attention", &a, &empty), QUERN_BAD_SIZE); // rows past 2^31
    a = args_of(1, 4, 8, 4, 4), a.v = NULL;
    assert_int_equal(check("attention", &a, &empty), QUERN_MISSING_ARGUMENT);
    assert_int_equal(check("attention kv_alias=1", &a, &empty), QUERN_OK); // v is not asked for
    a = args_of(1, 4, 8, 4, 4), a.q = memory + 1;
    assert_int_equal(check("attention", &a, &empty), QUERN_MISALIGNED);
    a = args_of(2, 4, 8, 4, 4);
    assert_int_equal(check("attention layout=varlen", &a, &empty), QUERN_OK); // Tq = 0: nothing to do
    assert_true(empty);
    a.Tq = 5, a.Tk = 5;
    assert_int_equal(check("attention layout=varlen", &a, &empty), QUERN_MISSING_ARGUMENT); // cu_q
}

static void nothing_to_do_is_a_success(void **state)
{
    (void)state;
    bool empty;
    for (int i = 0; i < 3; i++) {
        quern_attention_args a = args_of(i == 0 ? 0 : 2, i == 1 ? 0 : 4, 8, i == 2 ? 0 : 4, 4);
        a.q = a.k = a.v = a.out = NULL;
        if (i) a.k = a.v = memory;
        assert_int_equal(check("attention", &a, &empty), QUERN_OK);
        assert_true(empty);
    }
    quern_attention_args a = args_of(2, 4, 0, 4, 4); // no keys: results are written
    a.k = a.v = NULL;
    assert_int_equal(check("attention", &a, &empty), QUERN_OK);
    assert_false(empty);
}

// [B, S, H, d] in memory as [B, H, S, d], and with room between; elements may not share a place.
static void strides_lie_in_any_order(void **state)
{
    (void)state;
    bool empty;
    quern_attention_args a = args_of(2, 3, 5, 4, 4);
    a.q_stride_S = 64, a.q_stride_H = 3 * 64, a.q_stride_B = 4 * 3 * 64;
    assert_int_equal(check("attention", &a, &empty), QUERN_OK);
    a.q_stride_H = 3 * 64 - 1;
    assert_int_equal(check("attention", &a, &empty), QUERN_BAD_STRIDE);
    a.q_stride_H = 3 * 64, a.q_stride_B = 64; // two sequences in one place
    assert_int_equal(check("attention", &a, &empty), QUERN_BAD_STRIDE);
    a.q_stride_B = 64, a.q_stride_S = 128, a.q_stride_H = 3 * 128; // batches innermost
    assert_int_equal(check("attention", &a, &empty), QUERN_OK);
    a.q_stride_H = -64;
    assert_int_equal(check("attention", &a, &empty), QUERN_BAD_STRIDE);
    a.q_stride_H = INT64_MAX / 4;
    assert_int_equal(check("attention", &a, &empty), QUERN_BAD_STRIDE);
    a = args_of(1, 3, 5, 4, 4), a.q_stride_B = 1; // one sequence: nothing steps by it
    assert_int_equal(check("attention", &a, &empty), QUERN_OK);
}

// ---- what the kernels are told

static attention_params launch(const char *text, const quern_attention_args *a, size_t bucket, qn_launch *out)
{
    static qn_plan plan;
    quern_attention_spec spec = parse(text);
    const qn_device_limits limits = {108};
    const qn_arch *arch;
    qn_config config;
    attention_params p;
    assert_int_equal(qn_arch_find("sm_80", &arch), QUERN_OK);
    qn_attention_choose(&spec.base, arch, bucket, &config);
    assert_int_equal(qn_attention_plan(&spec.base, arch, &config, &plan), QUERN_OK);
    memset(out, 0, sizeof *out);
    qn_family_attention.launch(&spec.base, &config, &plan, &limits, &a->base, 0, out);
    memcpy(&p, out->params, sizeof p);
    return p;
}

static void strides_of_zero_step_over_what_is_inside(void **state)
{
    (void)state;
    qn_launch out;
    quern_attention_args a = args_of(2, 100, 50, 4, 2);
    attention_params p = launch("attention d=128 dv=64", &a, QN_ATTENTION_MANY, &out);
    assert_int_equal(p.q_stride.head, 128);
    assert_int_equal(p.q_stride.position, 4 * 128);
    assert_int_equal(p.q_stride.batch, 100 * 4 * 128);
    assert_int_equal(p.v_stride.batch, 50 * 2 * 64);
    assert_int_equal(p.out_stride.position, 4 * 64);
    assert_int_equal(p.aligned, 15);
    a.k_stride_S = 64, a.k_stride_H = 50 * 64; // heads first; the batch's stride follows
    p = launch("attention d=64", &a, QN_ATTENTION_MANY, &out);
    assert_int_equal(p.k_stride.batch, 2 * 50 * 64);
    a.k_stride_H = 50 * 64 + 1;
    p = launch("attention d=64", &a, QN_ATTENTION_MANY, &out);
    assert_int_equal(p.aligned & 2, 0);
    a = args_of(2, 100, 50, 4, 2), a.v = memory + 2, a.out = memory + 4;
    p = launch("attention d=64", &a, QN_ATTENTION_MANY, &out);
    assert_int_equal(p.aligned, 1 | 2 | 8);
}

// A stride that nothing steps by decides neither what is aligned nor what TMA can load.
static void an_axis_of_one_decides_no_alignment(void **state)
{
    (void)state;
    qn_launch out;
    quern_attention_args a = args_of(1, 100, 50, 4, 2);
    a.q_stride_B = a.k_stride_B = a.v_stride_B = a.out_stride_B = 1000001; // one sequence
    attention_params p = launch("attention d=128", &a, QN_ATTENTION_MANY, &out);
    assert_int_equal(p.aligned, 15);
    assert_int_equal(p.q_stride.batch % 8 | p.k_stride.batch % 8, 0);
    a.B = 2;
    p = launch("attention d=128", &a, QN_ATTENTION_MANY, &out);
    assert_int_equal(p.aligned, 0);
    assert_true(p.q_stride.batch == 1000001 && p.out_stride.batch == 1000001);

    a = args_of(3, 1, 50, 4, 1); // one query, one KV head
    a.q_stride_S = 999, a.k_stride_H = 129, a.k_stride_S = 128, a.k_stride_B = 50 * 128, a.q_stride_B = 512;
    p = launch("attention d=128", &a, QN_ATTENTION_DECODE_8, &out);
    assert_int_equal(p.aligned, 15);
    a.q_stride_B = 0; // steps over all inside it, as ever
    p = launch("attention d=128", &a, QN_ATTENTION_DECODE_8, &out);
    assert_int_equal(p.q_stride.batch, 999);
    assert_int_equal(p.aligned & 1, 0);

    a = args_of(2, 1, 0, 4, 2), a.Tq = 2, a.pages = 1, a.columns = 1, a.k_stride_B = 4 * 128 + 1; // one page
    a.cu_q = a.block_table = (void *)memory, a.q_stride_B = 3; // ragged: no axis of batches
    p = launch("attention d=128 cu_q=1 layout=paged page=64", &a, QN_ATTENTION_DECODE_8, &out);
    assert_int_equal(p.aligned, 15);
    assert_int_equal(p.q_stride.position, 4 * 128); // of two rows, though Sq is 1
    a.pages = 2;
    p = launch("attention d=128 cu_q=1 layout=paged page=64", &a, QN_ATTENTION_DECODE_8, &out);
    assert_int_equal(p.aligned & 2, 0);
}

// Sizes that no memory has room for: a number that no caller can give, and no overflow.
static void a_workspace_that_no_number_says_is_the_largest(void **state)
{
    (void)state;
    quern_attention_spec spec = parse("attention d=576 dv=512 kv_split=128 layout=varlen");
    quern_attention_sizes n = QUERN_ATTENTION_SIZES_INIT;
    const qn_arch *arch;
    qn_config config;
    assert_int_equal(qn_arch_find("sm_80", &arch), QUERN_OK);
    qn_attention_choose(&spec.base, arch, QN_ATTENTION_DECODE_8, &config);
    n.B = n.Sq = n.Hq = n.Hkv = n.Tq = n.Tk = INT32_MAX;
    assert_true(qn_family_attention.workspace(&spec.base, &config, &n) == SIZE_MAX);
    n.B = 6568, n.Sq = 16, n.Hkv = 103, n.Hq = 13184, n.Tk = 456505758;
    assert_true(qn_family_attention.workspace(&spec.base, &config, &n) == SIZE_MAX);
    n.B = 1, n.Sq = 1, n.Hq = n.Hkv = 8, n.Tk = 8192;
    assert_in_range(qn_family_attention.workspace(&spec.base, &config, &n), 1 << 20, 1 << 25);
}

static void windows_and_scale_arrive_as_they_are_meant(void **state)
{
    (void)state;
    qn_launch out;
    quern_attention_args a = args_of(1, 40, 50, 1, 1);
    attention_params p = launch("attention causal=1 window_left=9223372036854775807", &a, QN_ATTENTION_MANY, &out);
    assert_int_equal(p.window_right, 0);
    assert_int_equal(p.window_left, ATTENTION_NO_LIMIT);
    assert_float_equal(p.scale, 0.125, 0);
    p = launch("attention scale=-0.5 window_right=7", &a, QN_ATTENTION_MANY, &out);
    assert_int_equal(p.window_right, 7);
    assert_float_equal(p.scale, 0.5, 0); // its sign is the kernel's
}

// ---- splits

static void ctas_come_in_even_waves_and_never_more_than_splits(void **state)
{
    (void)state;
    qn_launch out;
    quern_attention_args a = args_of(1, 1, 32768, 32, 8);
    a.workspace = memory;
    attention_params p = launch("attention d=128", &a, QN_ATTENTION_DECODE_16, &out);
    assert_int_equal(p.split, 1024);
    assert_int_equal(p.split_most, 32);
    assert_int_equal(p.pack, 4);
    assert_int_equal(out.grid[0], 8);
    assert_true(out.grid[1] >= 16 && out.grid[1] <= 32);
    a = args_of(32, 1, 8192, 32, 8); // a CTA a tile makes an even wave of 132 SMs
    a.workspace = memory;
    p = launch("attention d=128", &a, QN_ATTENTION_DECODE_16, &out);
    assert_int_equal(p.split_most, 16);
    assert_int_equal(p.split_long, 1);
    assert_int_equal(p.split_ctas, 1);
    assert_int_equal(out.grid[1], 1);
    a.B = 40; // no number does: the last eighth of the 16 splits have a CTA each
    p = launch("attention d=128", &a, QN_ATTENTION_DECODE_16, &out);
    assert_true(p.split_long >= 1 && p.split_long <= 2);
    assert_int_equal(p.split_ctas, p.split_long + 2);
    assert_int_equal(out.grid[1], p.split_ctas);
    a.B = 4096; // tiles by the thousand fill the device
    p = launch("attention d=128", &a, QN_ATTENTION_DECODE_16, &out);
    assert_int_equal(out.grid[0], 4096 * 8);
    assert_int_equal(p.split_ctas, 1);
    a = args_of(1, 1, 100, 32, 8); // one split needs no workspace
    p = launch("attention d=128", &a, QN_ATTENTION_DECODE_16, &out);
    assert_int_equal(p.split_most, 1);
    assert_null(p.workspace);
}

// The splits of a CTA are one part, unless the caller has said how large parts are; then which they are is not the device's:
// launch's has 108 SMs, but two CTAs a tile fill one of 132.
static void splits_of_a_cta_are_one_part(void **state)
{
    (void)state;
    qn_launch out;
    quern_attention_args a = args_of(16, 1, 8192, 32, 8);
    a.workspace = memory;
    attention_params p = launch("attention d=64", &a, QN_ATTENTION_DECODE_16, &out);
    assert_int_equal(p.joins, 1);
    assert_int_equal(p.split_long, 2);
    assert_int_equal(launch("attention d=128", &a, QN_ATTENTION_DECODE_16, &out).joins, 1);
    assert_int_equal(launch("attention d=512", &a, QN_ATTENTION_DECODE_16, &out).joins, 1);
    assert_int_equal(launch("attention d=128 kv_split=512", &a, QN_ATTENTION_DECODE_16, &out).joins, 0);
    assert_int_equal(launch("attention d=128 batch_invariant=1", &a, QN_ATTENTION_DECODE_16, &out).joins, 0);
}

// Parts of few tiles are added by the second stage, on all SMs; of 16 rows and less.
static void parts_of_few_tiles_have_a_stage_of_their_own(void **state)
{
    (void)state;
    qn_launch out;
    quern_attention_args a = args_of(1, 1, 32768, 32, 8);
    a.workspace = memory;
    assert_int_equal(launch("attention d=128", &a, QN_ATTENTION_DECODE_16, &out).merges, 0);
    assert_int_equal(launch("attention d=512", &a, QN_ATTENTION_DECODE_16, &out).merges, 0);
    assert_int_equal(launch("attention d=512 batch_invariant=1", &a, QN_ATTENTION_DECODE_16, &out).merges, 1);
    a.B = 16;
    assert_int_equal(launch("attention d=512", &a, QN_ATTENTION_DECODE_16, &out).merges, 1);
}

// Of very many splits the last quarter have a CTA each, as far as a grid's second axis goes: 65535.
static void a_tile_has_no_more_ctas_than_a_grid(void **state)
{
    (void)state;
    static const int64_t keys[] = {1 << 17, 1 << 20, 20000000, 1 << 30};
    for (size_t i = 0; i < QN_COUNT(keys); i++) {
        qn_launch out;
        quern_attention_args a = args_of(1, 1, keys[i], 32, 8);
        a.workspace = memory;
        attention_params p = launch("attention d=128 kv_split=64", &a, QN_ATTENTION_DECODE_16, &out);
        int64_t rest = keys[i] / 64 / 4;
        assert_int_equal(p.split_most, keys[i] / 64);
        assert_int_equal(out.grid[1], p.split_ctas);
        assert_int_equal(p.split_ctas - p.split_long, rest < 32768 ? rest : 32768);
        assert_true(p.split_long >= 1 && out.grid[1] <= 65535);
    }
}

// The same keys give the same splits, whatever the batch and the heads.
static void splits_depend_on_the_number_of_keys_alone(void **state)
{
    (void)state;
    static const int64_t keys[] = {1, 100, 2048, 2049, 16384, 16385, 65536, 65537, 1 << 20};
    static const int64_t want[] = {256, 256, 256, 512, 512, 1024, 1024, 2048, 2048};
    qn_launch out;
    for (size_t i = 0; i < QN_COUNT(keys); i++) {
        for (int64_t B = 1; B <= 64; B *= 8) {
            quern_attention_args a = args_of(B, 1, keys[i], 8, 8 / (B % 8 + 1));
            a.workspace = memory;
            assert_int_equal(launch("attention", &a, QN_ATTENTION_DECODE_16, &out).split, want[i]);
            assert_int_equal(launch("attention batch_invariant=1", &a, QN_ATTENTION_DECODE_16, &out).split, 1024);
            assert_int_equal(launch("attention kv_split=192", &a, QN_ATTENTION_DECODE_16, &out).split, 192);
        }
    }
}

// Memory for the largest sizes is enough for all smaller ones.
static void the_workspace_grows_with_every_size(void **state)
{
    (void)state;
    const qn_arch *arch;
    assert_int_equal(qn_arch_find("sm_90a", &arch), QUERN_OK);
    static const char *const texts[] = {"attention d=128", "attention d=128 batch_invariant=1", "attention kv_split=64",
                                        "attention d=512", "attention d=512 kv_split=64"};
    for (size_t t = 0; t < QN_COUNT(texts); t++) {
        quern_attention_spec spec = parse(texts[t]);
        qn_config config;
        qn_attention_choose(&spec.base, arch, t < 3 ? QN_ATTENTION_DECODE_16 : QN_ATTENTION_DECODE_64, &config);
        size_t before = 0;
        for (int64_t keys = 1; keys < 300000; keys += keys / 3 + 1) {
            quern_attention_sizes n = {sizeof n, 3, 2, keys, 8, 2, 0, 0, 0, 0};
            size_t bytes = qn_family_attention.workspace(&spec.base, &config, &n);
            if (bytes < before) fail_msg("'%s': %zu bytes at %d keys, %zu before", texts[t], bytes, (int)keys, before);
            before = bytes;
            n.Sq = 5000; // prefill of as many keys: decode comes later
            assert_true(qn_family_attention.workspace(&spec.base, &config, &n) >= bytes);
        }
    }
}

// ---- plans of several stages

static unsigned encoded; // tensor maps

static CUresult CUDAAPI count_map(CUtensorMap *map, CUtensorMapDataType type, cuuint32_t rank, void *base,
                                  const cuuint64_t *dims, const cuuint64_t *strides, const cuuint32_t *box,
                                  const cuuint32_t *steps, CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle,
                                  CUtensorMapL2promotion promotion, CUtensorMapFloatOOBfill fill)
{
    (void)map, (void)type, (void)rank, (void)base, (void)dims, (void)strides, (void)box, (void)steps;
    (void)interleave, (void)swizzle, (void)promotion, (void)fill;
    encoded++;
    return CUDA_SUCCESS;
}

// Which stages of a launch run, a letter each ('.': left out), and how many maps are made for all of them.
static void assert_stages(const char *text, const quern_attention_args *a, size_t bucket, const char *runs,
                          unsigned maps)
{
    quern_attention_spec spec = parse(text);
    qn_driver driver = {.cuTensorMapEncodeTiled = count_map};
    const qn_device_limits limits = {132, &driver};
    const qn_arch *arch;
    qn_config config;
    qn_plan plan;
    qn_launch out;
    assert_int_equal(qn_arch_find("sm_90a", &arch), QUERN_OK);
    qn_attention_choose(&spec.base, arch, bucket, &config);
    assert_int_equal(qn_attention_plan(&spec.base, arch, &config, &plan), QUERN_OK);
    assert_int_equal(plan.stage_count, strlen(runs));
    encoded = 0;
    for (size_t i = 0; i < plan.stage_count; i++) {
        qn_family_attention.launch(&spec.base, &config, &plan, &limits, &a->base, i, &out);
        if (out.skip != (runs[i] == '.')) fail_msg("'%s', stage %zu: skip is %d", text, i, out.skip);
        assert_true(out.skip || (out.grid[0] > 0 && out.grid[1] > 0));
    }
    assert_int_equal(encoded, maps);
}

static void a_map_is_made_once_a_launch_and_stages_without_work_are_left_out(void **state)
{
    (void)state;
    quern_attention_args a = args_of(8, 1, 8192, 64, 1);
    a.workspace = memory;
    assert_stages("attention d=128", &a, QN_ATTENTION_DECODE_64, "hm.", 2);
    assert_stages("attention d=576 dv=512 kv_alias=1", &a, QN_ATTENTION_DECODE_64, "hm.", 1);
    assert_stages("attention d=128", &a, QN_ATTENTION_MANY, "w.", 3);
    assert_stages("attention d=128", &a, QN_ATTENTION_DECODE_8, "sm", 0);
    a.B = 200; // tiles enough for every SM to merge some
    assert_stages("attention d=128", &a, QN_ATTENTION_DECODE_8, "s.", 0);
    a.B = 8, a.Sk = 200; // one split
    assert_stages("attention d=128", &a, QN_ATTENTION_DECODE_8, "s.", 0);
    assert_stages("attention d=128", &a, QN_ATTENTION_DECODE_64, "h..", 2);
    a.k = memory + 2; // not for TMA
    assert_stages("attention d=128", &a, QN_ATTENTION_DECODE_64, "..d", 0);
    assert_stages("attention d=128", &a, QN_ATTENTION_MANY, ".p", 0);
}

// Of the plan "heads", as its merge is told.
static int split_of_heads(const char *text, const quern_attention_args *a)
{
    quern_attention_spec spec = parse(text);
    qn_driver driver = {.cuTensorMapEncodeTiled = count_map};
    const qn_device_limits limits = {132, &driver};
    const qn_arch *arch;
    qn_config config;
    qn_plan plan;
    qn_launch out;
    attention_params p;
    assert_int_equal(qn_arch_find("sm_90a", &arch), QUERN_OK);
    qn_attention_choose(&spec.base, arch, QN_ATTENTION_DECODE_64, &config);
    assert_int_equal(config.value[QN_ATTENTION_PLAN], QN_ATTENTION_HEADS);
    assert_int_equal(qn_attention_plan(&spec.base, arch, &config, &plan), QUERN_OK);
    qn_family_attention.launch(&spec.base, &config, &plan, &limits, &a->base, 1, &out);
    assert_false(out.skip);
    memcpy(&p, out.params, sizeof p);
    return p.split;
}

// Where sequences are ragged their number decides, not how many queries they might have.
static void heads_are_cut_by_all_sizes(void **state)
{
    (void)state;
    quern_attention_args a = args_of(8, 1, 8192, 64, 1);
    a.workspace = memory;
    assert_int_equal(split_of_heads("attention d=576 dv=512 kv_alias=1", &a), 512);
    a.B = 64, a.Sk = 4096;
    assert_int_equal(split_of_heads("attention d=576 dv=512 kv_alias=1", &a), 2048);
    assert_int_equal(split_of_heads("attention d=512 kv_split=128", &a), 128);
    a.Tq = 64, a.Tk = 64 * 4096, a.cu_q = a.cu_k = (const int32_t *)(const void *)memory;
    assert_int_equal(split_of_heads("attention d=512 layout=varlen", &a), 2048);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sizes_that_make_no_sense_are_refused),
        cmocka_unit_test(nothing_to_do_is_a_success),
        cmocka_unit_test(strides_lie_in_any_order),
        cmocka_unit_test(strides_of_zero_step_over_what_is_inside),
        cmocka_unit_test(an_axis_of_one_decides_no_alignment),
        cmocka_unit_test(a_workspace_that_no_number_says_is_the_largest),
        cmocka_unit_test(windows_and_scale_arrive_as_they_are_meant),
        cmocka_unit_test(ctas_come_in_even_waves_and_never_more_than_splits),
        cmocka_unit_test(splits_of_a_cta_are_one_part),
        cmocka_unit_test(parts_of_few_tiles_have_a_stage_of_their_own),
        cmocka_unit_test(a_tile_has_no_more_ctas_than_a_grid),
        cmocka_unit_test(splits_depend_on_the_number_of_keys_alone),
        cmocka_unit_test(the_workspace_grows_with_every_size),
        cmocka_unit_test(a_map_is_made_once_a_launch_and_stages_without_work_are_left_out),
        cmocka_unit_test(heads_are_cut_by_all_sizes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
