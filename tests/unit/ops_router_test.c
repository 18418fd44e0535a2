// SPDX-License-Identifier: Apache-2.0
// The launches of router: how many there are, what each does, and how much workspace they need; with the family alone, and
// once through the runtime with the fake driver.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "ops/router.h"
#include "router/args_mapped.h"
#include "runtime/private.h"
#include "support/compile_check.h"
#include "support/fake_driver.h"
#include "support/fake_nvrtc.h"
#include "support/runtime_fixture.h"

static const qn_family *const family = &qn_family_router;
static _Alignas(256) unsigned char memory[1 << 16]; // stands for every tensor: nothing is read

typedef struct made {
    quern_any_spec spec;
    qn_config config;
    qn_plan plan;
} made;

static made make(const char *text, const char *arch, int64_t N)
{
    made m;
    quern_router_sizes sizes = QUERN_ROUTER_SIZES_INIT;
    sizes.N = N;
    memset(&m, 0, sizeof m);
    if (quern_spec_parse(text, &m.spec) != QUERN_OK) fail_msg("%s", quern_message());
    family->choose(&m.spec.base, compile_arch(arch), family->bucket_of(&sizes), &m.config);
    if (family->plan(&m.spec.base, compile_arch(arch), &m.config, &m.plan) != QUERN_OK) fail_msg("%s", quern_message());
    return m;
}

static quern_router_args args_of(int64_t N)
{
    quern_router_args args = QUERN_ROUTER_ARGS_INIT;
    args.N = N, args.x = args.w = memory, args.bias = (float *)memory, args.weights = (float *)memory;
    args.ids = args.logits = (void *)memory, args.workspace = memory;
    return args;
}

// A launch that says "whole" has no gate after it: then its kernel has one.
static void assert_gate_is_launched(const made *m, const qn_launch *launch, size_t stage)
{
    const qn_kernel_plan *k = &m->plan.stage[stage];
    router_params p;
    memcpy(&p, launch->params, sizeof p);
    if (!strncmp(k->template_path, "gate/", 5) || strstr(k->entry, "_logits") || p.part != ROUTER_WHOLE) return;
    for (size_t i = 0; i < k->constant_count; i++)
        if (!strcmp(k->constants[i].name, "FUSED") && !k->constants[i].value)
            fail_msg("%s is launched as a whole and was made without a gate", k->entry);
}

// The stages that a launch runs, as text: "whole", "parts gate", "logits gate-kernel".
static void run(const made *m, int64_t N, int sm_count, char *text, qn_launch *last)
{
    static const char *const parts[] = {"whole", "parts", "gate"};
    const qn_device_limits limits = {sm_count};
    quern_router_args args = args_of(N);
    text[0] = 0;
    for (size_t s = 0; s < m->plan.stage_count; s++) {
        qn_launch launch = {.skip = false};
        family->launch(&m->spec.base, &m->config, &m->plan, &limits, &args.base, s, &launch);
        if (launch.skip) continue;
        assert_gate_is_launched(m, &launch, s);
        router_params p;
        memcpy(&p, launch.params, sizeof p);
        bool is_gate = !strncmp(m->plan.stage[s].template_path, "gate/", 5);
        bool is_logits = !is_gate && strstr(m->plan.stage[s].entry, "_logits");
        if (text[0]) strcat(text, " ");
        strcat(text, is_gate ? "gate-kernel" : is_logits ? "logits" : parts[p.part]);
        *last = launch;
    }
}

static void assert_stages(const char *spec, const char *arch, int64_t N, int sm_count, const char *want)
{
    char text[64];
    qn_launch last;
    made m = make(spec, arch, N);
    run(&m, N, sm_count, text, &last);
    if (strcmp(text, want))
        fail_msg("'%s' on %s, N %lld, %d SMs: %s, must be %s", spec, arch, (long long)N, sm_count, text, want);
}

static const char spec_bf16[] = "router D=4096 E=256 K=8 in=bf16 w=bf16 bias=1";
static const char spec_f32[] = "router D=4096 E=256 K=8 in=f32 w=f32 w_layout=DE";
static const char spec_same[] = "router D=4096 E=256 K=8 in=bf16 w=bf16 batch_invariant=1";

static void up_to_64_tokens_are_one_launch_where_all_its_CTAs_are_resident(void **state)
{
    (void)state;
    static const int64_t few[] = {1, 2, 8, 16, 33, 64};
    static const char *const archs[] = {"sm_80", "sm_90a", "sm_100a"};
    for (size_t a = 0; a < QN_COUNT(archs); a++) {
        int sms = compile_arch(archs[a])->sm_count;
        for (size_t i = 0; i < QN_COUNT(few); i++) {
            assert_stages(spec_bf16, archs[a], few[i], sms, "whole");
            assert_stages(spec_f32, archs[a], few[i], sms, "whole");
            assert_stages(spec_same, archs[a], few[i], sms, "whole");
        }
    }
}

// Where the gate does not fit beside the parts it is a launch of its own; run() asserts that a whole one has it.
static void a_kernel_without_room_for_the_gate_is_followed_by_one(void **state)
{
    (void)state;
    static const char *const specs[] = {spec_bf16,
                                        spec_f32,
                                        spec_same,
                                        "router D=7168 E=256 K=8 in=bf16 w=bf16 bias=1",
                                        "router D=7168 E=256 K=8 in=bf16 w=bf16 batch_invariant=1",
                                        "router D=65536 E=64 K=32 in=f32 w=f32"};
    static const char *const archs[] = {"sm_80", "sm_86", "sm_89", "sm_90a", "sm_100a", "sm_120a", "sm_121a"};
    for (size_t i = 0; i < QN_COUNT(specs) * QN_COUNT(archs) * 64; i++) {
        const char *spec = specs[i / 64 / QN_COUNT(archs)], *arch = archs[i / 64 % QN_COUNT(archs)];
        int64_t N = 1 + (int64_t)(i % 64);
        char text[64];
        qn_launch last;
        made m = make(spec, arch, N);
        run(&m, N, compile_arch(arch)->sm_count, text, &last);
        if (strcmp(text, "whole") && strcmp(text, "parts gate"))
            fail_msg("'%s' on %s, N %d: %s", spec, arch, (int)N, text);
    }
}

static void on_a_part_of_a_device_they_are_two(void **state)
{
    (void)state;
    assert_stages(spec_bf16, "sm_90a", 8, 16, "parts gate");
    assert_stages(spec_bf16, "sm_90a", 64, 16, "parts gate");
    assert_stages(spec_same, "sm_90a", 64, 16, "parts gate");
}

static void more_tokens_are_two_launches(void **state)
{
    (void)state;
    assert_stages(spec_bf16, "sm_80", 65, 108, "parts gate");
    assert_stages(spec_bf16, "sm_80", 60000, 108, "logits gate-kernel");
    assert_stages(spec_bf16, "sm_90a", 65, 132, "parts gate-kernel");
    assert_stages(spec_f32, "sm_90a", 65, 132, "parts gate");
    assert_stages(spec_bf16, "sm_90a", 300, 132, "parts gate-kernel");
    assert_stages(spec_bf16, "sm_90a", 60000, 132, "parts gate-kernel");
    assert_stages(spec_f32, "sm_80", 60000, 108, "logits gate-kernel");
    assert_stages(spec_same, "sm_90a", 65, 132, "logits gate-kernel");
    assert_stages(spec_same, "sm_90a", 60000, 132, "logits gate-kernel");
}

// What gate/problem.cuh and multicast.cu count by.
static int64_t worker_of(const gate_parts *parts, int64_t block)
{
    return (int64_t)((uint32_t)((block + 1) * parts->workers - 1) / parts->blocks);
}

// Blocks are dealt to clusters once each, in runs as long as each other but for a block; no tile has more parts than there
// is room for, nor a launch more CTAs than it may.
static void assert_dealt(const quern_router_spec *s, const qn_config *c, int sm_count, int64_t N)
{
    const int64_t blocks = (s->D + 63) / 64, slices = c->value[QN_ROUTER_SLICES];
    qn_router_deal deal = qn_router_deal_of(s, c, sm_count, N);
    assert_true(deal.clusters >= 1 && deal.tiles * c->value[QN_ROUTER_TOKENS] * c->value[QN_ROUTER_CLUSTER_N] >= N);
    if (deal.clusters > 1) assert_true(deal.clusters * qn_router_cluster(c) <= sm_count);
    if (!deal.parts.blocks) return;
    assert_int_equal(deal.parts.blocks, deal.tiles * blocks);
    assert_true(slices > 1 && deal.parts.workers == deal.clusters && deal.parts.tile_blocks == blocks);
    assert_true((uint64_t)deal.parts.blocks * (uint64_t)deal.clusters <= UINT32_MAX);
    for (int64_t w = 0; w < deal.clusters; w++) {
        int64_t begin = w * deal.parts.blocks / deal.clusters, end = (w + 1) * deal.parts.blocks / deal.clusters;
        assert_true(end > begin);
        assert_int_equal(worker_of(&deal.parts, begin), w);
        assert_int_equal(worker_of(&deal.parts, end - 1), w);
    }
    for (int64_t tile = 0; tile < deal.tiles && tile < 300; tile++)
        assert_in_range(worker_of(&deal.parts, (tile + 1) * blocks - 1) - worker_of(&deal.parts, tile * blocks), 0,
                        slices - 1);
}

static void multicast_deals_every_block_once(void **state)
{
    (void)state;
    static const char *const specs[] = {"router D=7168 E=384 K=6 in=bf16 w=bf16", "router D=64 E=60 K=6 in=bf16 w=bf16",
                                        "router D=4096 E=256 K=6 in=bf16 w=bf16"};
    static const int clusters[][2] = {{1, 3}, {2, 3}, {2, 2}, {1, 1}}, slices[] = {1, 2, 3, 5, 10, 16};
    static const int64_t tokens[] = {1, 64, 65, 300, 512, 700, 1024, 4096, 5000, 16384, 1000000, INT32_MAX};
    for (size_t i = 0; i < QN_COUNT(specs) * QN_COUNT(clusters) * QN_COUNT(slices) * QN_COUNT(tokens); i++) {
        quern_any_spec spec;
        const int *cluster = clusters[i / 3 % 4];
        qn_config c = {.value = {[QN_ROUTER_PLAN] = QN_ROUTER_MULTICAST,
                                 [QN_ROUTER_TOKENS] = 128,
                                 [QN_ROUTER_SLICES] = slices[i / 12 % QN_COUNT(slices)],
                                 [QN_ROUTER_CLUSTER_N] = cluster[0],
                                 [QN_ROUTER_CLUSTER_E] = cluster[1],
                                 [QN_ROUTER_CTAS] = 120}};
        assert_int_equal(quern_spec_parse(specs[i % 3], &spec), QUERN_OK);
        int64_t N = tokens[i / 12 / QN_COUNT(slices)];
        assert_dealt((const quern_router_spec *)(void *)&spec, &c, 132, N);
        assert_dealt((const quern_router_spec *)(void *)&spec, &c, 17, N);
    }
}

// Where whole tiles are dealt, the kernel counts them by two numbers.
static void multicast_deals_whole_tiles_evenly(void **state)
{
    (void)state;
    static const int64_t tokens[] = {4097, 8192, 60000, INT32_MAX};
    for (size_t i = 0; i < QN_COUNT(tokens); i++) {
        const qn_device_limits limits = {132};
        made m = make("router D=4096 E=256 K=8 in=bf16 w=bf16 logits=1", "sm_90a", tokens[i]);
        const int64_t rows = m.config.value[QN_ROUTER_TOKENS] * m.config.value[QN_ROUTER_CLUSTER_N];
        quern_router_args args = args_of(tokens[i]);
        qn_launch launch = {.skip = false};
        router_multicast_params p;
        assert_int_equal(m.config.value[QN_ROUTER_PLAN], QN_ROUTER_MULTICAST);
        family->launch(&m.spec.base, &m.config, &m.plan, &limits, &args.base, 0, &launch);
        memcpy(&p, launch.params, sizeof p);
        int64_t clusters = launch.grid[0] / (uint32_t)qn_router_cluster(&m.config);
        assert_true(!p.parts.blocks && !p.mapped && p.p.tokens == tokens[i]);
        assert_true(p.tiles_more < clusters);
        assert_int_equal(p.tiles_each * clusters + p.tiles_more, (tokens[i] + rows - 1) / rows);
    }
}

// The constant of a kernel, 0 where it has none of that name.
static int64_t constant_of(const qn_kernel_plan *k, const char *name)
{
    for (size_t i = 0; i < k->constant_count; i++)
        if (!strcmp(k->constants[i].name, name)) return k->constants[i].value;
    return 0;
}

static void the_gate_of_parts_has_a_warp_a_token_up_to_4096(void **state)
{
    (void)state;
    static const char *const specs[] = {"router D=7168 E=384 K=6 in=bf16 w=bf16 bias=1", spec_bf16};
    for (size_t i = 0; i < QN_COUNT(specs); i++) {
        made m = make(specs[i], "sm_90a", 4096);
        const qn_kernel_plan *gate = &m.plan.stage[1];
        assert_int_equal(m.config.value[QN_ROUTER_PLAN], QN_ROUTER_MULTICAST);
        assert_string_equal(gate->template_path, "gate/lanes.cu");
        assert_int_equal(gate->threads, 256);
        assert_int_equal(constant_of(gate, "LANES"), 32);
        assert_int_equal(constant_of(gate, "PARTS"), m.config.value[QN_ROUTER_SLICES]);
        assert_int_equal(constant_of(gate, "PART_STRIDE"), i == 0 ? 384 : 256);
        assert_int_equal(constant_of(gate, "DEPENDENT"), 1);
    }
}

// A gate alone has CTAs of one warp there, because it copies its rows; one that waits for a launch before it does not.
static void the_gate_of_more_than_8192_has_eight_warps_a_CTA(void **state)
{
    (void)state;
    static const char *const specs[] = {spec_bf16, "router D=4096 E=256 K=6 in=f32 w=f32 bias=1"};
    for (size_t i = 0; i < QN_COUNT(specs); i++) {
        made m = make(specs[i], "sm_90a", 16384);
        const qn_kernel_plan *gate = &m.plan.stage[1];
        assert_string_equal(gate->template_path, "gate/lanes.cu");
        assert_int_equal(gate->threads, 256);
        assert_int_equal(constant_of(gate, "LANES"), 8);
        assert_int_equal(constant_of(gate, "DEPENDENT"), 1);
    }
}

// The gate's CTAs begin where products are done: no SM may take more than its share of them, and none may be left for later.
static void each_SM_has_its_share_of_the_gate_of_parts(void **state)
{
    (void)state;
    static const char *const specs[] = {"router D=7168 E=384 K=6 in=bf16 w=bf16 bias=1", spec_bf16};
    static const int64_t tokens[] = {128, 256, 512, 1024, 2048, 4096, 8192};
    const qn_arch *arch = compile_arch("sm_90a");
    for (size_t i = 0; i < QN_COUNT(specs) * QN_COUNT(tokens); i++) {
        char text[64];
        qn_launch gate;
        made m = make(specs[i % 2], "sm_90a", tokens[i / 2]);
        run(&m, tokens[i / 2], arch->sm_count, text, &gate);
        int an_sm = arch->shared_sm / (m.plan.stage[1].dynamic_shared + 1024);
        assert_string_equal(text, "parts gate-kernel");
        assert_true(an_sm * arch->sm_count >= (int)gate.grid[0]);
        assert_true((an_sm - 1) * arch->sm_count < (int)gate.grid[0]);
    }
}

// What each CTA of the cluster with the most to do does for N tokens: blocks of 64 of D times tokens and experts.
static int64_t longest_run(const made *m, int sm_count, int64_t N)
{
    const quern_router_spec *s = (const quern_router_spec *)(const void *)&m->spec;
    const int64_t blocks = (s->D + 63) / 64;
    qn_router_deal deal = qn_router_deal_of(s, &m->config, sm_count, N);
    int64_t tiles = (deal.tiles + deal.clusters - 1) / deal.clusters;
    int64_t run = deal.parts.blocks ? (deal.parts.blocks + deal.clusters - 1) / deal.clusters : tiles * blocks;
    return run * m->config.value[QN_ROUTER_TOKENS] * m->config.value[QN_ROUTER_EXPERTS];
}

// Plans change at the ends of buckets, and how work is dealt with every tile: nowhere do more tokens make for less work, nor do
// many leave two fifths of the SMs idle.
static void more_tokens_are_never_less_work(void **state)
{
    (void)state;
    static const char *const specs[] = {"router D=7168 E=384 K=6 in=bf16 w=bf16 bias=1", spec_bf16,
                                        "router D=2048 E=128 K=8 in=f16 w=f16"};
    for (size_t i = 0; i < QN_COUNT(specs); i++) {
        int64_t most = 0;
        for (int64_t N = 65; N < 20000; N += 31) {
            made m = make(specs[i], "sm_90a", N);
            assert_int_equal(m.config.value[QN_ROUTER_PLAN], QN_ROUTER_MULTICAST);
            int64_t now = longest_run(&m, 132, N);
            const quern_router_spec *spec = (const quern_router_spec *)(const void *)&m.spec;
            int64_t all = N * ((spec->D + 63) / 64) * spec->E; // of all CTAs
            if (N > 512 && 6 * now * 132 > 10 * all)
                fail_msg("'%s' N %d: %d of %d", specs[i], (int)N, (int)now, (int)(all / 132));
            if (20 * now < 19 * most) fail_msg("'%s' N %d: %d, before %d", specs[i], (int)N, (int)now, (int)most);
            most = now > most ? now : most;
        }
    }
}

static void more_experts_than_threads_have_registers_for_are_two_launches(void **state)
{
    (void)state;
    assert_stages("router D=4096 E=1024 K=32 in=f32 w=f32 batch_invariant=1", "sm_80", 4, 108, "parts gate");
}

static void the_workspace_grows_with_N_and_keeps_the_clean_part_apart(void **state)
{
    (void)state;
    static const int64_t N[] = {1, 2, 8, 9, 64, 65, 100, 1000, 5000, 70000};
    static const char *const specs[] = {spec_bf16, spec_f32, spec_same};
    for (size_t t = 0; t < QN_COUNT(specs); t++) {
        const size_t clean = 64 * 16 * 256 * 4;
        for (size_t i = 0; i < QN_COUNT(N); i++) {
            made m = make(specs[t], "sm_90a", N[i]);
            quern_router_sizes sizes = QUERN_ROUTER_SIZES_INIT;
            sizes.N = N[i];
            size_t bytes = family->workspace(&m.spec.base, &m.config, &sizes);
            if (N[i] <= 64) assert_true(bytes > 0 && bytes <= clean);
            if (N[i] > 64) assert_true(bytes >= clean + (size_t)N[i] * 256 * 4);
        }
    }
}

static void logits_that_are_asked_for_need_no_workspace_of_their_own(void **state)
{
    (void)state;
    char text[64];
    qn_launch last;
    quern_router_sizes sizes = QUERN_ROUTER_SIZES_INIT;
    sizes.N = 60000;
    made m = make("router D=4096 E=256 K=8 in=bf16 w=bf16 logits=1", "sm_90a", sizes.N);
    assert_int_equal(family->workspace(&m.spec.base, &m.config, &sizes), 0);
    run(&m, sizes.N, 132, text, &last);
    gate_params gate;
    memcpy(&gate, last.params, sizeof gate);
    assert_ptr_equal(gate.logits, memory);
    assert_true(gate.logits_stride == 256 && gate.aligned == 1 && gate.N == 60000);
}

// The logits of one token are stored in pairs wherever they begin at one, and the gate loads them by 16 bytes.
static void one_row_of_logits_is_aligned_whatever_its_stride(void **state)
{
    (void)state;
    const qn_device_limits limits = {132};
    for (int64_t N = 1; N <= 2; N++) {
        made m = make("router D=4096 E=256 K=8 in=bf16 w=bf16 logits=1", "sm_90a", 60000);
        quern_router_args args = args_of(N);
        args.logits_stride_N = 257;
        unsigned seen = 0;
        for (size_t stage = 0; stage < m.plan.stage_count; stage++) {
            qn_launch launch = {.skip = false};
            family->launch(&m.spec.base, &m.config, &m.plan, &limits, &args.base, stage, &launch);
            if (launch.skip) continue;
            gate_params gate;
            router_params p;
            memcpy(&gate, launch.params, sizeof gate);
            memcpy(&p, launch.params, sizeof p);
            if (!strncmp(m.plan.stage[stage].template_path, "gate/", 5))
                assert_int_equal(gate.aligned, N == 1);
            else
                assert_int_equal(p.logits_are, N == 1 ? ROUTER_LOGITS_PAIRS : ROUTER_LOGITS_EACH);
            seen++;
        }
        assert_true(seen >= 2);
    }
}

// The least tiles that a plan of many tokens has; a launch of smaller ones that has too many CTAs is refused by the driver.
static void more_tokens_than_there_are_ctas_for_are_refused(void **state)
{
    (void)state;
    const qn_device_limits limits = {132};
    bool empty = false;
    made m = make("router D=8 E=1024 K=8 in=bf16 w=bf16", "sm_90a", INT32_MAX);
    quern_router_args args = args_of(134217720);
    assert_int_equal(family->check_args(&m.spec.base, &args.base, &empty), QUERN_OK);
    args.N = 134217721;
    assert_int_equal(family->check_args(&m.spec.base, &args.base, &empty), QUERN_BAD_SIZE);
    assert_non_null(strstr(quern_message(), "N = 134217721: 0 … 134217720"));
    made eight = make("router D=8 E=8 K=2 in=bf16 w=bf16", "sm_90a", INT32_MAX);
    args.N = INT32_MAX;
    assert_int_equal(family->check_args(&eight.spec.base, &args.base, &empty), QUERN_OK);

    m.config.value[QN_ROUTER_PLAN] = QN_ROUTER_ROWS, m.config.value[QN_ROUTER_SUMS] = QN_ROUTER_WHOLE;
    m.config.value[QN_ROUTER_TOKENS] = m.config.value[QN_ROUTER_EXPERTS] = 1;
    qn_launch launch = {.grid = {1, 1, 1}};
    family->launch(&m.spec.base, &m.config, &m.plan, &limits, &args.base, 0, &launch);
    assert_int_equal(launch.grid[0], 0);
}

static void alignment_is_that_of_every_row(void **state)
{
    (void)state;
    const qn_device_limits limits = {132};
    made m = make(spec_bf16, "sm_90a", 8);
    quern_router_args args = args_of(8);
    qn_launch launch = {.skip = false};
    router_params p;
    family->launch(&m.spec.base, &m.config, &m.plan, &limits, &args.base, 0, &launch);
    memcpy(&p, launch.params, sizeof p);
    assert_true(p.x_aligned && p.w_aligned);
    args.x_stride_N = 4097, args.N = 1; // one row: nothing steps by its stride
    family->launch(&m.spec.base, &m.config, &m.plan, &limits, &args.base, 0, &launch);
    memcpy(&p, launch.params, sizeof p);
    assert_true(p.x_aligned && p.x_stride == 4096);
    args.N = 8, args.w = memory + 2;
    family->launch(&m.spec.base, &m.config, &m.plan, &limits, &args.base, 0, &launch);
    memcpy(&p, launch.params, sizeof p);
    assert_true(!p.x_aligned && !p.w_aligned && p.x_stride == 4097 && p.w_stride == 4096);
}

// ---- maps

static cuuint32_t box_rows[4];
static unsigned maps;

static CUresult CUDAAPI note_map(CUtensorMap *map, CUtensorMapDataType type, cuuint32_t rank, void *base,
                                 const cuuint64_t *dims, const cuuint64_t *strides, const cuuint32_t *box,
                                 const cuuint32_t *steps, CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle,
                                 CUtensorMapL2promotion promotion, CUtensorMapFloatOOBfill fill)
{
    (void)map, (void)type, (void)rank, (void)base, (void)dims, (void)strides, (void)steps;
    (void)interleave, (void)swizzle, (void)promotion, (void)fill;
    if (maps < QN_COUNT(box_rows)) box_rows[maps] = box[1];
    maps++;
    return CUDA_SUCCESS;
}

// Launches N tokens by plan wide; whether the kernel may use the maps.
static bool wide_is_mapped(const qn_driver *driver, int64_t N, const quern_router_args *args)
{
    const qn_device_limits limits = {132, driver};
    made m = make(spec_bf16, "sm_90a", N);
    qn_launch launch = {.skip = false};
    router_params p;
    assert_int_equal(m.config.value[QN_ROUTER_PLAN], QN_ROUTER_WIDE);
    maps = 0;
    family->launch(&m.spec.base, &m.config, &m.plan, &limits, &args->base, 0, &launch);
    memcpy(&p, launch.params, sizeof p);
    assert_int_equal(p.tokens, N);
    return p.x_aligned && p.w_aligned;
}

// Rows of a box that lie outside the tensor take longer than rows that are there (kernel_templates/router/ANALYSIS.md).
static void wide_asks_for_no_row_that_is_not_there(void **state)
{
    (void)state;
    qn_driver driver = {.cuTensorMapEncodeTiled = note_map};
    static const int64_t tokens[] = {17, 33, 64};
    for (size_t i = 0; i < QN_COUNT(tokens); i++) {
        quern_router_args args = args_of(tokens[i]);
        assert_true(wide_is_mapped(&driver, tokens[i], &args));
        assert_int_equal(maps, 2);
        assert_true(box_rows[0] == tokens[i] && box_rows[1] <= 64);
    }
    quern_router_args args = args_of(33);
    assert_false(wide_is_mapped(NULL, 33, &args));
    args.x = memory + 2; // not for TMA
    assert_false(wide_is_mapped(&driver, 33, &args));
    assert_int_equal(maps, 0);
}

// ---- through the runtime

static bool overlapped[4];
static long launched;

static void note(const fake_launch *launch)
{
    if (launched < 4) overlapped[launched] = launch->overlaps;
    launched++;
}

static void the_second_launch_may_begin_before_the_first_has_ended(void **state)
{
    (void)state;
    static const int cc[] = {90};
    quern_options options = runtime_options("", NULL);
    quern_any_spec spec;
    quern_op *op = NULL;
    quern_router_args args = args_of(65536);
    fake_nvrtc_install(13, 0);
    fake_driver_install(1, cc);
    fake_driver_enter(fake_driver_context(0));
    quern *q = runtime_open(&options);
    assert_int_equal(quern_spec_parse(spec_bf16, &spec), QUERN_OK);
    if (quern_prepare(q, &spec.base, 0, &op) != QUERN_OK) fail_msg("%s", quern_message());
    fake_driver.on_launch = note;

    launched = 0;
    assert_int_equal(quern_router(op, &args, NULL), QUERN_SMALL_WORKSPACE);
    assert_int_equal(launched, 0);
    args.workspace_bytes = SIZE_MAX;
    assert_int_equal(quern_router(op, &args, NULL), QUERN_OK);
    assert_int_equal(launched, 2);
    assert_true(!overlapped[0] && overlapped[1]);
    launched = 0, args.N = 8;
    assert_int_equal(quern_router(op, &args, NULL), QUERN_OK);
    assert_int_equal(launched, 1);
    launched = 0, args.N = 0;
    assert_int_equal(quern_router(op, &args, NULL), QUERN_OK);
    assert_int_equal(launched, 0);

    quern_op_release(op);
    quern_close(q);
    fake_driver_enter(NULL);
    fake_driver_remove();
    fake_nvrtc_remove();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(up_to_64_tokens_are_one_launch_where_all_its_CTAs_are_resident),
        cmocka_unit_test(a_kernel_without_room_for_the_gate_is_followed_by_one),
        cmocka_unit_test(on_a_part_of_a_device_they_are_two),
        cmocka_unit_test(more_tokens_are_two_launches),
        cmocka_unit_test(multicast_deals_every_block_once),
        cmocka_unit_test(multicast_deals_whole_tiles_evenly),
        cmocka_unit_test(the_gate_of_parts_has_a_warp_a_token_up_to_4096),
        cmocka_unit_test(the_gate_of_more_than_8192_has_eight_warps_a_CTA),
        cmocka_unit_test(each_SM_has_its_share_of_the_gate_of_parts),
        cmocka_unit_test(more_tokens_are_never_less_work),
        cmocka_unit_test(more_experts_than_threads_have_registers_for_are_two_launches),
        cmocka_unit_test(the_workspace_grows_with_N_and_keeps_the_clean_part_apart),
        cmocka_unit_test(logits_that_are_asked_for_need_no_workspace_of_their_own),
        cmocka_unit_test(one_row_of_logits_is_aligned_whatever_its_stride),
        cmocka_unit_test(more_tokens_than_there_are_ctas_for_are_refused),
        cmocka_unit_test(alignment_is_that_of_every_row),
        cmocka_unit_test(wide_asks_for_no_row_that_is_not_there),
        cmocka_unit_test(the_second_launch_may_begin_before_the_first_has_ended),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
