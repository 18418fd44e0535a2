// SPDX-License-Identifier: Apache-2.0
// The functional model finds bugs: faults planted in copies of kernels are reported. Where the fault is one of family
// text, the copy is the generated text with one place replaced; tensor-core faults are in tests/simt/kernels/tile.cu.
// Each fault must be reported by every build that is listed for it, in order and shuffled, and the text without it by
// none. "Wrong result": the comparison with the reference shows it.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/tensor_map.h"
#include "support/check.h"
#include "support/hostile.h"
#include "support/instructions.h"
#include "support/simt.h"

enum { BY_ASAN = 1, BY_ACCESS = 2, BY_BOTH = 3 };
static const struct {
    model_build build;
    unsigned bit;
} builds[] = {{MODEL_ASAN, BY_ASAN}, {MODEL_ACCESS, BY_ACCESS}};
static const model_order orders[] = {{false, 1}, {true, 5}};
static quern *q;

// ---- faults in family text

typedef struct fault {
    const char *name, *case_name; // a hostile case whose plan has the text
    const char *from, *to;
    unsigned by;
    const char *words; // of the report, alternatives between '|'
} fault;

static char *plant(const char *source, void *user)
{
    const fault *f = user;
    return simt_replace(source, f->from, f->to);
}

// The report of one run; "" when nothing was found. To be freed.
static char *run(model *m, const hostile_case *c, model_order order)
{
    const qn_arch *arch;
    hostile_data data;
    qn_text report = QN_TEXT_INIT;
    assert_int_equal(qn_arch_find("sm_90a", &arch), QUERN_OK);
    assert_true(hostile_data_make(c, &data));
    quern_status status = model_run_on(m, q, &c->spec.base, arch, &data.args.base, order, &report);
    if (status != QUERN_OK && status != QUERN_LAUNCH_FAILED) fail_msg("%s", quern_message());
    qn_text_puts(&report, "");
    if (status == QUERN_OK && check_outputs(&c->spec, &data.args, &report) > 0) qn_text_puts(&report, "wrong result\n");
    hostile_data_free(&data);
    assert_int_equal(qn_text_check(&report), QUERN_OK);
    return report.bytes;
}

static void check_fault(const fault *f)
{
    const hostile_case *c = hostile_case_named(f->case_name);
    for (size_t b = 0; b < QN_COUNT(builds); b++) {
        model *m = simt_model_any(builds[b].build);
        for (size_t o = 0; o < QN_COUNT(orders); o++) {
            char context[128];
            snprintf(context, sizeof context, "%s, %s build, %s", f->name, model_build_name[builds[b].build],
                     orders[o].shuffle ? "shuffled" : "in order");

            model_set_edit(m, NULL, NULL);
            char *sound = run(m, c, orders[o]);
            simt_expect_clean(sound, context);
            free(sound);
            if (!(f->by & builds[b].bit)) continue;
            model_set_edit(m, plant, (void *)f);
            char *faulty = run(m, c, orders[o]);
            model_set_edit(m, NULL, NULL);

            simt_expect_fault(faulty, f->words, context);
            free(faulty);
        }
    }
}

static void a_missing_barrier_is_reported(void **state)
{
    (void)state;
    static const fault f = {"missing barrier", "m0_normal", "1) meanwhile();\n    __syncthreads();",
                            "1) meanwhile();", BY_ACCESS,   "race"};
    check_fault(&f);
}

static void a_wrong_mask_is_reported(void **state)
{
    (void)state;
    static const fault f = {"wrong mask",
                            "m0_normal",
                            "__ballot_sync(kFullMask, hit)",
                            "__ballot_sync(0x7FFFFFFFu, hit)",
                            BY_BOTH,
                            "is not in its own mask"};
    check_fault(&f);
}

static void a_shared_memory_overrun_is_reported(void **state)
{
    (void)state;
    static const fault f = {"overrun",
                            "m0_normal",
                            "    s.top[warp_index()] = top;",
                            "    s.top[warp_index() + kWarps] = top;",
                            BY_BOTH,
                            "use-after-poison|outside every piece|race"};
    check_fault(&f);
}

static void an_uninitialised_read_is_reported(void **state)
{
    (void)state;
    static const fault f = {"uninitialised read",
                            "m0_normal",
                            "s.tail[warp_index()] = 0;",
                            ";",
                            BY_ACCESS,
                            "bytes that nothing has written"};
    check_fault(&f);
}

static void a_missing_wait_before_exit_is_reported(void **state)
{
    (void)state;
    static const fault f = {"missing wait for the lists",
                            "m1_normal",
                            "    wait_for(s, kListsHere);",
                            "    ;",
                            BY_ACCESS,
                            "without a wait on its mbarrier|in flight|race|still uses|has ended|nothing has written"};
    check_fault(&f);
}

static void a_missing_wait_for_what_was_copied_ahead_is_reported(void **state)
{
    (void)state;
    static const fault f = {"missing wait for what was copied ahead",
                            "fr03_v2049_set0",
                            "    while (!mbarrier_try_wait_parity(ahead.here + step, 0)) {\n    }\n",
                            "",
                            BY_ACCESS,
                            "without a wait on its mbarrier|in flight|race|still uses|has ended|nothing has written"};
    check_fault(&f);
}

static void a_missing_wait_for_a_row_in_shared_memory_is_reported(void **state)
{
    (void)state;
    static const fault f = {"missing wait for a row in shared memory",
                            "again_k256_quantised",
                            "if constexpr (IN_SHARED) cp_async_wait_group<VECTORS - 1 - u>();",
                            "",
                            BY_ACCESS,
                            "without a wait|in flight|race|still uses|has ended|nothing has written"};
    check_fault(&f);
}

static void a_missing_fence_of_the_mbarriers_is_reported(void **state)
{
    (void)state;
    static const fault f = {
        "missing fence of the mbarriers", "m1_normal", "    fence_mbarrier_init();", "    ;", BY_ACCESS,
        "is not ordered before this use"};
    check_fault(&f);
}

static void an_overflow_that_is_not_repaired_is_reported(void **state)
{
    (void)state;
    static const fault f = {
        "overflow unrepaired",
        "m0_one_warp",
        "if (QN_UNLIKELY(binned != kBinned)) exact_share(share.row, share.begin, share.end, need, binned);",
        ";",
        BY_BOTH,
        "wrong result|nothing has written|outside every piece|use-after-poison|race"};
    check_fault(&f);
}

// ---- faults of a tile

typedef struct tile_params {
    _Alignas(64) unsigned char a[QM_TENSOR_MAP_BYTES], b[QM_TENSOR_MAP_BYTES];
    float *out, *sums;
} tile_params;

static float tile_number(int i)
{
    return (float)(i * 7 % 11 - 5); // exact in bf16, and so are all sums
}

static void make_map(unsigned char *map, void *matrix, uint32_t rows)
{
    qm_tensor_fault wrong;
    const uint64_t dims[] = {64, rows}, strides[] = {128};
    const uint32_t box[] = {64, rows}, steps[] = {1, 1};
    if (qm_tensor_map_encode_tiled(map, 9, 2, matrix, dims, strides, box, steps, 0, 3, 0, 0, &wrong))
        fail_msg("%s", wrong.text);
}

static uint16_t *make_matrix(model *m, const char *name, int rows, int first)
{
    uint16_t *x = model_alloc(m, name, (size_t)rows * 128, NULL, true);
    assert_non_null(x);
    for (int i = 0; i < rows * 64; i++) {
        float value = tile_number(first + i);
        uint32_t bits;
        memcpy(&bits, &value, 4);
        x[i] = (uint16_t)(bits >> 16);
    }
    return x;
}

static bool tile_is_right(const tile_params *p)
{
    for (int row = 0; row < 64; row++) {
        float sum = 0;
        for (int k = 0; k < 64; k++) sum += (float)(k + 1) * tile_number(row * 64 + k);
        if (p->sums[row] != sum) return false;
        for (int column = 0; column < 8; column++) {
            float dot = 0;
            for (int k = 0; k < 64; k++) dot += tile_number(row * 64 + k) * tile_number(3 + column * 64 + k);
            if (p->out[row * 8 + column] != dot) return false;
        }
    }
    return true;
}

static char *run_tile(model *m, int fault_number, model_order order)
{
    char defines[32];
    tile_params p;
    memset(&p, 0, sizeof p);
    snprintf(defines, sizeof defines, "FAULT=%d", fault_number);
    char *source = simt_kernel("tile.cu", defines);
    make_map(p.a, make_matrix(m, "a", 64, 0), 64);
    make_map(p.b, make_matrix(m, "b", 8, 3), 8);
    p.out = model_alloc(m, "out", 64 * 8 * 4, NULL, false), p.sums = model_alloc(m, "sums", 64 * 4, NULL, false);
    simt_launch launch = {.grid = 1,
                          .threads = 128,
                          .cluster = 1,
                          .shared_bytes = 16384,
                          .params = &p,
                          .params_bytes = sizeof p,
                          .order = order};
    char *report = simt_run(m, source, &launch);
    if (!*report && !tile_is_right(&p)) {
        free(report);
        report = qn_strdup("wrong result\n");
    }
    model_free(m);
    free(source);
    return report;
}

static void check_tile(int number, unsigned by, const char *words)
{
    for (size_t b = 0; b < QN_COUNT(builds); b++) {
        model *m = simt_model_any(builds[b].build);
        for (size_t o = 0; o < QN_COUNT(orders); o++) {
            char context[128];
            snprintf(context, sizeof context, "tile fault %d, %s build, %s", number, model_build_name[builds[b].build],
                     orders[o].shuffle ? "shuffled" : "in order");
            char *sound = run_tile(m, 0, orders[o]);
            simt_expect_clean(sound, context);
            free(sound);
            if (!(by & builds[b].bit)) continue;
            char *faulty = run_tile(m, number, orders[o]);
            simt_expect_fault(faulty, words, context);
            free(faulty);
        }
    }
}

static void an_mbarrier_count_off_by_one_is_reported(void **state)
{
    (void)state;
    check_tile(1, BY_BOTH, "deadlock");
}

static void an_unswizzled_read_is_reported(void **state)
{
    (void)state;
    check_tile(2, BY_BOTH, "wrong result");
}

static void an_accumulator_used_before_its_wait_is_reported(void **state)
{
    (void)state;
    check_tile(3, BY_ASAN, "use-after-poison");
}

static void a_wrong_descriptor_stride_is_reported(void **state)
{
    (void)state;
    check_tile(4, BY_BOTH, "is in no piece|outside every piece|wrong result");
}

static void a_tile_used_before_it_is_there_is_reported(void **state)
{
    (void)state;
    check_tile(5, BY_ACCESS, "in flight|without a wait|nothing has written");
}

// ---- a fault of a cluster: in the kernel of the copies' micro-tests, CTA 0 sends from its shared memory and CTA 1 waits

static char *run_send(model *m, const char *source, const instruction_file *file, const instruction_case *c,
                      model_order order)
{
    const instruction_words *want = instruction_expected(c, 90);
    uint32_t *in = model_alloc(m, "in", 4 * c->in.count, NULL, true);
    uint32_t *out = model_alloc(m, "out", 4 * want->count, NULL, false);
    assert_true(in && out);
    memcpy(in, c->in.word, 4 * c->in.count);
    instruction_params params = {.in = (uintptr_t)in, .out = (uintptr_t)out, .which = c->which};
    simt_launch launch = {.grid = (int)c->ctas,
                          .threads = file->threads,
                          .cluster = (int)c->ctas,
                          .shared_bytes = file->shared,
                          .params = &params,
                          .params_bytes = sizeof params,
                          .order = order};
    char *report = simt_run(m, source, &launch), text[200];
    if (!*report && *instruction_difference(want, out, text)) {
        free(report);
        report = qn_strdup("wrong result\n");
    }
    model_free(m);
    return report;
}

static void a_missing_cluster_barrier_before_exit_is_reported(void **state)
{
    static const char end[] = "    cluster_arrive();\n    cluster_wait();\n}\n"; // of the function, once in the text
    const instruction_case *c = NULL;
    const qn_arch *arch;
    instruction_file file;
    qn_text sound = QN_TEXT_INIT;
    (void)state;
    instruction_file_read("copy", &file);
    for (size_t i = 0; i < file.count; i++)
        if (!strcmp(file.cases[i].name, "cp.async.bulk.send")) c = &file.cases[i];
    assert_non_null(c);
    assert_int_equal(qn_arch_find("sm_90a", &arch), QUERN_OK);
    assert_int_equal(instruction_source(&file, arch, &sound), QUERN_OK);
    char *faulty = simt_replace(qn_text_string(&sound), end, "}\n");
    for (size_t b = 0; b < QN_COUNT(builds); b++) {
        model *m = simt_model_any(builds[b].build);
        for (size_t o = 0; o < QN_COUNT(orders); o++) {
            char *report = run_send(m, qn_text_string(&sound), &file, c, orders[o]);
            simt_expect_clean(report, "cluster barrier before exit");
            free(report);
            report = run_send(m, faulty, &file, c, orders[o]);
            simt_expect_fault(report, "in flight when the CTA ends|has ended|still reads",
                              "no cluster barrier before exit");
            free(report);
        }
    }
    free(faulty);
    qn_text_fini(&sound);
    instruction_file_fini(&file);
}

// ---- set-up

static int open_quern(void **state)
{
    (void)state;
    quern_options options = QUERN_OPTIONS_INIT;
    options.mode = QUERN_MODE_OFF;
    return quern_open(&options, &q) == QUERN_OK ? 0 : -1;
}

static int close_all(void **state)
{
    (void)state;
    simt_close();
    quern_close(q);
    return 0;
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_missing_barrier_is_reported),
        cmocka_unit_test(a_wrong_mask_is_reported),
        cmocka_unit_test(an_mbarrier_count_off_by_one_is_reported),
        cmocka_unit_test(an_unswizzled_read_is_reported),
        cmocka_unit_test(a_shared_memory_overrun_is_reported),
        cmocka_unit_test(an_uninitialised_read_is_reported),
        cmocka_unit_test(an_accumulator_used_before_its_wait_is_reported),
        cmocka_unit_test(a_wrong_descriptor_stride_is_reported),
        cmocka_unit_test(a_missing_cluster_barrier_before_exit_is_reported),
        cmocka_unit_test(a_missing_wait_before_exit_is_reported),
        cmocka_unit_test(a_missing_wait_for_what_was_copied_ahead_is_reported),
        cmocka_unit_test(a_missing_wait_for_a_row_in_shared_memory_is_reported),
        cmocka_unit_test(a_missing_fence_of_the_mbarriers_is_reported),
        cmocka_unit_test(an_overflow_that_is_not_repaired_is_reported),
        cmocka_unit_test(a_tile_used_before_it_is_there_is_reported),
    };
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, open_quern, close_all);
}
