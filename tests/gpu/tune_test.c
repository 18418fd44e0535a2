// SPDX-License-Identifier: Apache-2.0
// Tuning on a device, with a budget of seconds: the search ends in time, its winner is right on hostile inputs and comes
// out of the table at the next prepare. That it is faster is not asserted. Without a device it is skipped.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "support/cache_fixture.h"
#include "support/check.h"
#include "support/gpu.h"
#include "tune/measure.h"
#include "tune/results.h"

static gpu g;

enum { ROWS = 8, BUDGET_SECONDS = 6, SLACK_SECONDS = 20 };

static void skip_without_device(void)
{
    if (g.driver) return;
    print_message("skipped: no device (%s)\n", g.why);
    skip();
}

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static quern_softmax_topk_spec make_spec(void)
{
    quern_softmax_topk_spec spec = QUERN_SOFTMAX_TOPK_SPEC_INIT;
    spec.V = 8192, spec.K = 16, spec.in = QUERN_BF16;
    return spec;
}

// Every pattern of the hostile list on an op; the first difference.
static quern_status check_op(void *user, const quern_op *op)
{
    const quern_softmax_topk_spec *spec = user;
    qn_text report = QN_TEXT_INIT;
    hostile_case c;
    for (size_t i = 0; hostile_pattern(i, spec, 4, &c) && !report.length; i++) {
        hostile_data data;
        gpu_case device;
        assert_true(hostile_data_make(&c, &data));
        gpu_case_make(&g, &data, op, NULL, &device);
        assert_int_equal(quern_softmax_topk(op, &device.args, NULL), QUERN_OK);
        GPU_MUST(&g, cuCtxSynchronize());
        gpu_case_download(&g, &device, &data);
        check_case(&data, &report);
        gpu_case_free(&g, &device);
        hostile_data_free(&data);
    }
    quern_status status = report.length ? qn_fail(QUERN_INTERNAL, "%s", qn_text_string(&report)) : QUERN_OK;
    qn_text_fini(&report);
    return status;
}

static void search_on_device(const qn_space *space, quern_softmax_topk_spec *spec, qn_search *search)
{
    quern_options scratch_options = QUERN_OPTIONS_INIT;
    quern *scratch = NULL;
    qn_measure *measure = NULL;
    quern_softmax_topk_sizes sizes = QUERN_SOFTMAX_TOPK_SIZES_INIT;
    const qn_search_options options = {
        .seconds = BUDGET_SECONDS, .first_repeats = 5, .repeats = 20, .draws = 8, .seed = 1};
    sizes.rows = ROWS;
    scratch_options.mode = QUERN_MODE_OFF;
    assert_int_equal(quern_open(&scratch_options, &scratch), QUERN_OK);
    const qn_measure_options how = {.q = scratch,
                                    .driver = g.driver,
                                    .space = space,
                                    .sizes = &sizes,
                                    .compile_threads = 8,
                                    .check = check_op,
                                    .user = spec};
    if (qn_measure_open(&how, &measure) != QUERN_OK) fail_msg("%s", quern_message());
    const qn_timer timer = qn_measure_timer(measure);
    double began = seconds();
    quern_status status = qn_search_run(space, &options, &timer, search);
    double took = seconds() - began;
    qn_measure_close(measure);
    quern_close(scratch);
    if (status != QUERN_OK) fail_msg("%s", quern_message());
    print_message("%.1f s, %zu trials\n", took, search->count);
    assert_true(took < BUDGET_SECONDS + SLACK_SECONDS);
}

static void print_search(const qn_space *space, const qn_search *search)
{
    size_t counts[6] = {0};
    static const char *const words[] = {QN_TUNE_BEST,  QN_TUNE_SLOWER, QN_TUNE_EQUAL,
                                        QN_TUNE_WRONG, QN_TUNE_FAILED, QN_TUNE_TIMEOUT};
    for (size_t i = 0; i < search->count; i++)
        for (size_t w = 0; w < QN_COUNT(words); w++)
            counts[w] += search->trial[i].status && !strcmp(search->trial[i].status, words[w]);
    for (size_t w = 0; w < QN_COUNT(words); w++) print_message("%s %zu  ", words[w], counts[w]);
    const qn_trial *winner = &search->trial[search->winner];
    qn_text config = QN_TEXT_INIT;
    qn_config_write(space->family, &winner->config, &config);
    print_message("\nown %.2f us, best %.2f us: %s\n", search->trial[0].timing.median_us, winner->timing.median_us,
                  qn_text_string(&config));
    qn_text_fini(&config);
    assert_int_equal(counts[0], 1);
    assert_int_equal(counts[3], 0); // a wrong candidate is a wrong kernel
}

static void put_results(const char *file, const qn_space *space, const qn_search *search)
{
    qn_fingerprint fingerprint;
    qn_tune_list rows = QN_TUNE_LIST_INIT;
    quern_store store = cache_open(file);
    assert_int_equal(qn_fingerprint_read(g.driver, 0, &fingerprint), QUERN_OK);
    const qn_tune_device device = qn_fingerprint_device(&fingerprint);
    assert_int_equal(qn_tune_results(search, space, &device, "rows=8", 1, &rows), QUERN_OK);
    if (qn_sqlite_tune_put(&store, rows.row, rows.count, false, NULL) != QUERN_OK) fail_msg("%s", quern_message());
    qn_tune_list_fini(&rows);
    qn_sqlite_close(&store);
}

static void prepare_and_check(const char *file, quern_softmax_topk_spec *spec, const qn_config *winner)
{
    quern_options options = QUERN_OPTIONS_INIT;
    quern *q = NULL;
    quern_op *op = NULL;
    quern_kernel_info info = QUERN_KERNEL_INFO_INIT;
    quern_softmax_topk_sizes sizes = QUERN_SOFTMAX_TOPK_SIZES_INIT;
    qn_text config = QN_TEXT_INIT;
    options.cache_file = file;
    sizes.rows = ROWS;
    assert_int_equal(quern_open(&options, &q), QUERN_OK);
    if (quern_prepare(q, &spec->base, 0, &op) != QUERN_OK) fail_msg("%s", quern_message());
    assert_int_equal(quern_op_describe(op, quern_op_variant_for(op, &sizes), 0, &info), QUERN_OK);
    qn_config_write(&qn_family_softmax_topk, winner, &config);
    assert_string_equal(info.chosen, "tuned (this device)");
    assert_string_equal(info.config, qn_text_string(&config));
    if (check_op(spec, op) != QUERN_OK) fail_msg("%s", quern_message());
    qn_text_fini(&config);
    quern_op_release(op);
    quern_close(q);
}

static void a_short_tune_ends_in_time_with_a_right_winner_that_prepare_takes(void **state)
{
    (void)state;
    skip_without_device();
    char folder[64];
    quern_softmax_topk_spec spec = make_spec();
    quern_softmax_topk_sizes sizes = QUERN_SOFTMAX_TOPK_SIZES_INIT;
    qn_search search;
    sizes.rows = ROWS;
    const qn_space space = {&qn_family_softmax_topk, &spec.base, g.arch, qn_family_softmax_topk.bucket_of(&sizes)};
    cache_folder_make(folder);

    search_on_device(&space, &spec, &search);
    print_search(&space, &search);
    put_results(cache_path(folder, "tuned.db"), &space, &search);
    prepare_and_check(cache_path(folder, "tuned.db"), &spec, &search.trial[search.winner].config);

    qn_search_fini(&search);
    cache_folder_remove(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_short_tune_ends_in_time_with_a_right_winner_that_prepare_takes),
    };
    gpu_open(&g);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    gpu_close(&g);
    return failed;
}
