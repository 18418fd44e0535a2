// SPDX-License-Identifier: Apache-2.0
// The functional model's engine: every feature gives what the definition says, in order and shuffled; every misuse is
// reported by the builds that can see it, and the run goes on after it. Kernels: tests/simt/kernels.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/simt.h"

enum { THREADS = 128, WORDS = 64 };
static const model_build both[] = {MODEL_ASAN, MODEL_ACCESS};

// ---- features

typedef struct feature_params {
    const uint32_t *in;
    uint32_t *out, *flags;
    int which;
} feature_params;

static uint32_t lanes_of(uint32_t t, uint32_t from)
{
    return (t & ~31u) | (from & 31);
}

static uint32_t expect_shuffles(uint32_t t)
{
    uint32_t lane = t % 32;
    uint32_t up = lane ? t - 1 : t, down = lane % 8 < 6 ? t + 2 : t;
    return lanes_of(t, 3) + 3 * up + 5 * down + 7 * (t ^ 16) + (lane < 8 ? 11 * lanes_of(t, 1) : 0) + 13 * (t ^ 1);
}

static uint32_t expect_votes(uint32_t t)
{
    uint32_t lane = t % 32, low = lane < 16 ? 0xAAAAu : 0, least = (uint32_t)-5;
    uint32_t most = (uint32_t)-1, same = 15u << (lane & ~3u); // of lane - 5, unsigned: lane 4 has the largest
    return low ^ same * 3 ^ 0xFFFFFFFFu * 5 ^ 496u << 3 ^ least * 7 ^ most * 11 ^ 0u << 20 ^ 1u << 30 ^ 1u << 29 ^
           0u << 28;
}

static uint32_t expect_atomics(void)
{
    uint32_t sum = 0, mixed = 0;
    for (uint32_t i = 0; i < THREADS; i++) sum += i, mixed ^= i;
    return sum + 3 * 127 + 5 * 7 + 7 * 0xFFFFFFFFu + 11 * mixed + 13 * (THREADS % 10) + 17;
}

static uint32_t expect_ring(uint32_t t)
{
    uint32_t sum = 0;
    for (uint32_t i = 0; i < 64; i++) sum += 1000 + i;
    return t < 32 ? 0 : sum;
}

static uint32_t expected(int which, uint32_t block, uint32_t blocks, uint32_t t)
{
    switch (which) {
    case 0:
        return expect_shuffles(t);
    case 1:
        return expect_votes(t);
    case 2:
        return t >= 32 && t < 64 ? 300 + 3 * ((t + 1) % 32) : 0;
    case 3:
        return 1;
    case 4:
        return expect_atomics();
    case 5:
        return 127 - t + 1000 + 127 - t;
    case 6:
        return 1000 * ((block + blocks - 1) % blocks) + 127 - t;
    case 7:
        return expect_ring(t);
    case 8:
        return 1000 + t % 64 + 1000 + (127 - t + 1) % 64;
    case 9:
        return (t ^ 1) + 1000 + (t ^ 1);
    case 10:
        return block ? 0 : 4711;
    case 11:
        return 17;
    default:
        return 1063 + 70000;
    }
}

static const char *const feature_names[] = {"shuffles",
                                            "votes",
                                            "named barriers",
                                            "barriers with a reduction",
                                            "atomics",
                                            "pieces of shared memory",
                                            "clusters",
                                            "a ring of copies",
                                            "groups of copies",
                                            "operations on registers",
                                            "CTAs that wait for each other",
                                            "a flag",
                                            "others"};

static void check_feature(model *m, const char *source, int which, model_order order)
{
    const bool wide = which == 6 || which == 10;
    const int blocks = wide ? 4 : 1;
    char context[128];
    feature_params p = {NULL, NULL, NULL, which};
    uint32_t *in = model_alloc(m, "in", WORDS * 4, (void *)4, true);
    p.in = in, p.out = model_alloc(m, "out", (size_t)blocks * THREADS * 4, NULL, false);
    p.flags = model_alloc(m, "flags", 64, NULL, false);
    assert_non_null(p.flags);
    for (uint32_t i = 0; i < WORDS; i++) in[i] = 1000 + i;
    simt_launch launch = {.grid = blocks,
                          .threads = THREADS,
                          .cluster = which == 6 ? 4 : 1,
                          .shared_bytes = 4096,
                          .params = &p,
                          .params_bytes = sizeof p,
                          .order = order};

    char *report = simt_run(m, source, &launch);

    snprintf(context, sizeof context, "%s, %s by %s, seed %u", feature_names[which],
             order.shuffle ? "shuffled" : "in order", model_compiler(m), (unsigned)order.seed);
    simt_expect_clean(report, context);
    for (int i = 0; i < blocks * THREADS; i++) {
        uint32_t want = expected(which, (uint32_t)(i / THREADS), (uint32_t)blocks, (uint32_t)(i % THREADS));
        if (p.out[i] != want)
            fail_msg("%s: thread %d gives %u, not %u", context, i, (unsigned)p.out[i], (unsigned)want);
    }
    free(report);
    model_free(m);
}

static void check_features(model *m)
{
    char *source = simt_kernel("features.cu", "");
    for (int which = 0; which < (int)QN_COUNT(feature_names); which++) {
        check_feature(m, source, which, (model_order){false, 1});
        for (uint32_t seed = 1; seed <= 5; seed++) check_feature(m, source, which, (model_order){true, seed});
    }
    free(source);
}

static void every_feature_works_in_every_order(void **state)
{
    (void)state;
    for (size_t i = 0; i < QN_COUNT(both); i++) check_features(simt_model_any(both[i]));
}

static void every_feature_works_by_either_compiler(void **state)
{
    (void)state;
    check_features(simt_model(MODEL_PLAIN, "g++"));
    check_features(simt_model(MODEL_ACCESS, "clang++"));
    check_features(simt_model(MODEL_ASAN, "clang++"));
}

static void a_seed_repeats_a_run_exactly(void **state)
{
    (void)state;
    model *m = simt_model_any(MODEL_PLAIN);
    char *source = simt_kernel("misuse.cu", ""), *first = NULL;
    struct {
        const uint32_t *in;
        uint32_t *out;
        int which, zero;
    } p = {NULL, NULL, 44, 0};
    for (int run = 0; run < 2; run++) {
        p.in = model_alloc(m, "in", WORDS * 4, NULL, true), p.out = model_alloc(m, "out", THREADS * 4, NULL, false);
        simt_launch launch = {.grid = 1,
                              .threads = THREADS,
                              .cluster = 1,
                              .shared_bytes = 2048,
                              .params = &p,
                              .params_bytes = sizeof p,
                              .order = {true, 77}};
        char *report = simt_run(m, source, &launch);
        if (first) assert_string_equal(first, report);
        free(first);
        first = report;
        model_free(m);
    }
    free(first);
    free(source);
}

// ---- misuse

enum { SEEN_BY_PLAIN = 1, SEEN_BY_ASAN = 2, SEEN_BY_ACCESS = 4, SEEN_BY_ALL = 7, SEEN_BY_MSAN = 8 };
typedef struct misuse {
    int which;
    unsigned seen_by;
    const char *words; // alternatives between '|'
    int cluster;       // 0: none
    const char *arch;
} misuse;

static const misuse misuses[] = {
    {0, SEEN_BY_ALL, "is not in its own mask", 0, NULL},
    {1, SEEN_BY_ALL, "deadlock|which have ended", 0, NULL},
    {2, SEEN_BY_ALL, "deadlock", 0, NULL},
    {3, SEEN_BY_ALL, "have ended|deadlock", 0, NULL},
    {4, SEEN_BY_ALL, "reads lane 20, which is not in the mask", 0, NULL},
    {5, SEEN_BY_ALL, "deadlock", 0, NULL},
    {10, SEEN_BY_ALL, "have ended|deadlock", 0, NULL},
    {11, SEEN_BY_ALL, "deadlock", 0, NULL},
    {12, SEEN_BY_ALL, "as one for", 0, NULL},
    {13, SEEN_BY_ALL, "a multiple of 32", 0, NULL},
    {14, SEEN_BY_ALL, "a reduction mixed", 0, NULL},
    {15, SEEN_BY_ALL, "0 to 15", 0, NULL},
    {16, SEEN_BY_ALL, "have arrived at barrier 3 when the CTA ends", 0, NULL},
    {17, SEEN_BY_ALL, "a second time without a wait", 2, NULL},
    {18, SEEN_BY_ALL, "waits without an arrive", 2, NULL},
    {18, SEEN_BY_ALL, "is not in sm_80", 0, "sm_80"},
    {19, SEEN_BY_ALL, "different numbers of registers", 0, NULL},
    {20, SEEN_BY_ALL, "the launch gives 2048", 0, NULL},
    {21, SEEN_BY_ASAN | SEEN_BY_ACCESS, "use-after-poison|outside every piece", 0, NULL},
    {22, SEEN_BY_ACCESS, "bytes that nothing has written", 0, NULL},
    {23, SEEN_BY_ACCESS, "race: a store of another thread is not ordered before this load|nothing has written", 0,
     NULL},
    {24, SEEN_BY_ACCESS, "race: a load of another thread|race: a store of another thread", 0, NULL},
    {25, SEEN_BY_ACCESS, "race: a store of another thread is not ordered before this store", 0, NULL},
    {26, SEEN_BY_ACCESS, "race: a store of another thread|nothing has written|race: a load", 0, NULL},
    {30, SEEN_BY_ASAN | SEEN_BY_ACCESS, "use-after-poison|'in' has 256 bytes, this is byte 256", 0, NULL},
    {31, SEEN_BY_ASAN | SEEN_BY_ACCESS, "use-after-poison|outside every buffer", 0, NULL},
    {32, SEEN_BY_ALL, "a store to an input", 0, NULL},
    {33, SEEN_BY_ALL, "which is no memory of the kernel|runtime error", 0, NULL},
    {34, SEEN_BY_ALL, "not aligned to 4 bytes|runtime error", 0, NULL},
    {36, SEEN_BY_ALL, "outside every buffer", 0, NULL},
    {40, SEEN_BY_ALL, "more arrivals than the mbarrier's count 2", 0, NULL},
    {41, SEEN_BY_PLAIN | SEEN_BY_ACCESS, "bytes were overwritten|bytes of an mbarrier", 0, NULL},
    {42, SEEN_BY_ALL, "no mbarrier was initialised", 0, NULL},
    {43, SEEN_BY_ALL, "initialised again", 0, NULL},
    {44, SEEN_BY_ALL, "deadlock", 0, NULL},
    {45, SEEN_BY_ALL, "only arrivals may be remote", 2, NULL},
    {46, SEEN_BY_ACCESS, "is not ordered before this use|no mbarrier", 0, NULL},
    {47, SEEN_BY_ALL, "the transaction count would pass", 0, NULL},
    {48, SEEN_BY_ALL, "parity 2", 0, NULL},
    {50, SEEN_BY_ASAN | SEEN_BY_ACCESS, "use-after-poison|bytes of a copy in flight", 0, NULL},
    {51, SEEN_BY_ACCESS, "without a wait on its mbarrier", 0, NULL},
    {52, SEEN_BY_ACCESS, "without a wait on its mbarrier|in flight", 0, NULL},
    {53, SEEN_BY_ACCESS, "still reads", 0, NULL},
    {54, SEEN_BY_ALL, "the destination is that of an operation in flight", 0, NULL},
    {55, SEEN_BY_ALL, "in flight when the CTA ends", 0, NULL},
    {56, SEEN_BY_ACCESS, "without a fence.proxy.async", 0, NULL},
    {60, SEEN_BY_ACCESS, "whose group was not waited for|in flight", 0, NULL},
    {61, SEEN_BY_ACCESS, "race|in flight|not waited for", 0, NULL},
    {70, SEEN_BY_ASAN, "use-after-poison", 0, NULL},
    {80, SEEN_BY_ACCESS, "still uses its shared memory|has ended", 2, NULL},
    {81, SEEN_BY_ALL, "rank 2 in a cluster of 2", 2, NULL},
    {82, SEEN_BY_ACCESS, "race", 2, NULL},
    {83, SEEN_BY_ALL, "CTA 0 of the cluster has ended", 2, NULL},
    {90, SEEN_BY_ALL, "stack of|stack-overflow", 0, NULL},
    {91, SEEN_BY_PLAIN, "a loop that never waits", 0, NULL},
    {92, SEEN_BY_ASAN | SEEN_BY_ACCESS, "shift exponent 32", 0, NULL},
    {93, SEEN_BY_ASAN | SEEN_BY_ACCESS, "outside the range of representable values", 0, NULL},
    {94, SEEN_BY_ALL, "t < 100", 0, NULL},
    {95, SEEN_BY_ASAN | SEEN_BY_ACCESS, "out of bounds|stack-buffer-overflow", 0, NULL},
    {96, SEEN_BY_ALL, "signal 8|division by zero", 0, NULL},
    {97, SEEN_BY_MSAN, "use-of-uninitialized-value", 0, NULL},
};

static char *run_misuse(model *m, const char *source, const misuse *u, model_order order)
{
    struct {
        const uint32_t *in;
        uint32_t *out;
        int which, zero;
    } p = {NULL, NULL, u->which, 0};
    p.in = model_alloc(m, "in", WORDS * 4, NULL, true), p.out = model_alloc(m, "out", THREADS * 4, NULL, false);
    int cluster = u->cluster ? u->cluster : 1;
    simt_launch launch = {.arch = u->arch,
                          .grid = cluster,
                          .threads = THREADS,
                          .cluster = cluster,
                          .shared_bytes = 2048,
                          .params = &p,
                          .params_bytes = sizeof p,
                          .order = order};
    char *report = simt_run(m, source, &launch);
    model_free(m);
    return report;
}

static void check_misuses(model *m, unsigned seen_by, const char *build)
{
    static const misuse none = {100, 0, "", 0, NULL};
    char *source = simt_kernel("misuse.cu", "");
    for (size_t i = 0; i < QN_COUNT(misuses); i++) {
        const misuse *u = &misuses[i];
        if (!(u->seen_by & seen_by)) continue;
        char context[96];
        snprintf(context, sizeof context, "misuse %d, %s build by %s", u->which, build, model_compiler(m));

        char *report = run_misuse(m, source, u, (model_order){false, 1});
        simt_expect_fault(report, u->words, context);
        free(report);

        char *after = run_misuse(m, source, &none, (model_order){false, 1});
        simt_expect_clean(after, context);
        free(after);
    }
    free(source);
}

static void every_misuse_is_reported_by_the_plain_build(void **state)
{
    (void)state;
    check_misuses(simt_model_any(MODEL_PLAIN), SEEN_BY_PLAIN, "plain");
}

static void every_misuse_is_reported_by_the_asan_build(void **state)
{
    (void)state;
    check_misuses(simt_model(MODEL_ASAN, "g++"), SEEN_BY_ASAN, "asan");
}

static void every_misuse_is_reported_by_the_access_build(void **state)
{
    (void)state;
    check_misuses(simt_model(MODEL_ACCESS, "clang++"), SEEN_BY_ACCESS, "access");
    check_misuses(simt_model(MODEL_ACCESS, "g++"), SEEN_BY_ACCESS, "access");
}

// On request: it is the only build that follows registers, and a third engine to compile.
static void every_misuse_is_reported_by_the_msan_build(void **state)
{
    (void)state;
    if (!getenv("QUERN_TEST_MSAN")) {
        print_message("skipped: set QUERN_TEST_MSAN=1 to run the build with MemorySanitizer (clang++)\n");
        skip();
    }
    check_misuses(simt_model(MODEL_MSAN, "clang++"), SEEN_BY_MSAN, "msan");
    check_features(simt_model(MODEL_MSAN, "clang++"));
}

static void a_report_names_line_block_warp_and_lane(void **state)
{
    (void)state;
    static const misuse one = {4, 0, "", 0, NULL};
    char *source = simt_kernel("misuse.cu", "");

    char *report = run_misuse(simt_model_any(MODEL_PLAIN), source, &one, (model_order){false, 1});

    simt_expect_fault(report, "in shfl.sync.idx at /quern/tests/simt/kernels/misuse.cu:", "place");
    simt_expect_fault(report, ", block 0, warp 0, lane ", "lane");
    simt_expect_fault(report, "called from misuse at misuse.cu:", "caller");
    simt_expect_fault(report, "block 0 warps 1..3 lanes ffffffff: ", "positions of the others");
    free(report);
    free(source);
}

// ---- launches

static void a_launch_outside_the_architecture_is_refused(void **state)
{
    (void)state;
    model *m = simt_model_any(MODEL_PLAIN);
    char *source = simt_kernel("misuse.cu", "");
    char params[24] = {0};
    struct {
        simt_launch launch;
        const char *words;
    } wrong[] = {
        {{.grid = 1, .threads = 128, .cluster = 1, .shared_bytes = 300000}, "the architecture has"},
        {{.grid = 32, .threads = 128, .cluster = 32}, "a cluster of 32 CTAs"},
        {{.grid = 3, .threads = 128, .cluster = 2}, "no multiple of the cluster"},
        {{.grid = 1, .threads = 2000, .cluster = 1}, "threads: 1 to 1024"},
        {{.grid = 1, .threads = 128, .cluster = 1, .params_bytes = 16},
         "parameter structure has 24 bytes, the plan says 16"},
    };
    for (size_t i = 0; i < QN_COUNT(wrong); i++) {
        wrong[i].launch.params = params;
        if (!wrong[i].launch.params_bytes) wrong[i].launch.params_bytes = sizeof params;
        char *report = simt_run(m, source, &wrong[i].launch);
        simt_expect_fault(report, wrong[i].words, "launch");
        free(report);
    }
    free(source);
}

static void a_wait_for_a_cta_that_is_not_resident_is_reported(void **state)
{
    (void)state;
    model *m = simt_model_any(MODEL_PLAIN);
    char *source = simt_kernel("features.cu", "");
    feature_params p = {NULL, NULL, NULL, 10};
    p.in = model_alloc(m, "in", WORDS * 4, NULL, true), p.out = model_alloc(m, "out", 4 * THREADS * 4, NULL, false);
    p.flags = model_alloc(m, "flags", 64, NULL, false);
    simt_launch launch = {.grid = 4,
                          .threads = THREADS,
                          .cluster = 1,
                          .shared_bytes = 4096,
                          .resident = 1,
                          .params = &p,
                          .params_bytes = sizeof p};

    char *report = simt_run(m, source, &launch);

    simt_expect_fault(report, "all lanes poll", "one resident CTA");
    free(report);
    free(source);
    model_free(m);
}

static void a_bare_shared_declaration_does_not_compile(void **state)
{
    (void)state;
    model *m = simt_model_any(MODEL_PLAIN);
    qn_text object = QN_TEXT_INIT;
    const char *source = "#define QN_ENTRY bare\nstruct P { int n; };\n"
                         "extern \"C\" __global__ void bare(P p) { __shared__ int s[4]; s[0] = p.n; }\n";

    assert_int_equal(model_compile(m, source, &object), QUERN_COMPILE_FAILED);

    assert_non_null(strstr(quern_message(), "QN_SHARED"));
    qn_text_fini(&object);
}

static void a_compiler_that_does_not_exist_is_unsupported(void **state)
{
    (void)state;
    model *m = NULL;
    model_settings settings = {.build = MODEL_PLAIN, .compiler = "no-such-compiler"};

    assert_int_equal(model_open(&settings, &m), QUERN_UNSUPPORTED);

    assert_null(m);
    if (!strstr(quern_message(), "no-such-compiler")) fail_msg("%s", quern_message());
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_feature_works_in_every_order),
        cmocka_unit_test(every_feature_works_by_either_compiler),
        cmocka_unit_test(a_seed_repeats_a_run_exactly),
        cmocka_unit_test(every_misuse_is_reported_by_the_plain_build),
        cmocka_unit_test(every_misuse_is_reported_by_the_asan_build),
        cmocka_unit_test(every_misuse_is_reported_by_the_access_build),
        cmocka_unit_test(every_misuse_is_reported_by_the_msan_build),
        cmocka_unit_test(a_report_names_line_block_warp_and_lane),
        cmocka_unit_test(a_launch_outside_the_architecture_is_refused),
        cmocka_unit_test(a_wait_for_a_cta_that_is_not_resident_is_reported),
        cmocka_unit_test(a_bare_shared_declaration_does_not_compile),
        cmocka_unit_test(a_compiler_that_does_not_exist_is_unsupported),
    };
    return cmocka_run_group_tests(tests, NULL, simt_close_models);
}
