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

#include "quern/tune_subject.h"
#include "support/cache_fixture.h"
#include "support/gpu_cases.h"
#include "tune/measure.h"
#include "tune/results.h"

static gpu g;

enum { BUDGET_SECONDS = 6, SLACK_SECONDS = 20 };

// One range of sizes of one spec, as `quern tune` takes it.
typedef struct tuned {
    const tune_subject *subject;
    quern_any_spec spec;
    qn_space space;
    _Alignas(16) unsigned char sizes[128];
    device device;
    quern *q; // that makes the ops which are checked
} tuned;

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static void tuned_make(tuned *t, const char *text, int64_t size)
{
    memset(t, 0, sizeof *t);
    assert_int_equal(quern_spec_parse(text, &t->spec), QUERN_OK);
    t->subject = tune_find_subject(t->spec.base.family);
    assert_non_null(t->subject);
    const qn_family *family = t->subject->family;
    memcpy(t->sizes, &family->sizes_bytes, sizeof(size_t));
    memcpy(t->sizes + family->sizes[0].offset, &size, sizeof size);
    t->space = (qn_space){family, &t->spec.base, g.arch, family->bucket_of(t->sizes)};
    assert_int_equal(device_look(0, &t->device), QUERN_OK);
}

// Every hostile case on an op; the first difference.
static quern_status check_op(void *user, const quern_op *op)
{
    const tuned *t = user;
    return tune_check(t->subject, t->q, &t->device, &t->spec.base, op);
}

static bool fill(void *user, const qn_tensor *tensor, size_t copy, void *host, size_t elements)
{
    const tuned *t = user;
    return t->subject->fill && t->subject->fill(&t->spec.base, t->sizes, tensor, copy, host, elements);
}

static void search_on_device(tuned *t, qn_search *search)
{
    quern_options scratch_options = QUERN_OPTIONS_INIT;
    quern *scratch = NULL;
    qn_measure *measure = NULL;
    const qn_search_options options = {
        .seconds = BUDGET_SECONDS, .first_repeats = 5, .repeats = 20, .draws = 8, .seed = 1};
    scratch_options.mode = QUERN_MODE_OFF;
    assert_int_equal(quern_open(&scratch_options, &scratch), QUERN_OK);
    t->q = scratch;
    const qn_measure_options how = {.q = scratch,
                                    .driver = g.driver,
                                    .space = &t->space,
                                    .sizes = t->sizes,
                                    .compile_threads = 8,
                                    .most_copies = t->subject->most_copies ? t->subject->most_copies(t->sizes) : 0,
                                    .fill = fill,
                                    .check = check_op,
                                    .user = t};
    if (qn_measure_open(&how, &measure) != QUERN_OK) fail_msg("%s", quern_message());
    const qn_timer timer = qn_measure_timer(measure);
    double began = seconds();
    quern_status status = qn_search_run(&t->space, &options, &timer, search);
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

static void put_results(const char *file, const tuned *t, const qn_search *search)
{
    qn_fingerprint fingerprint;
    qn_tune_list rows = QN_TUNE_LIST_INIT;
    qn_text sizes = QN_TEXT_INIT;
    qn_sizes_write(t->subject->family, t->sizes, &sizes);
    quern_store store = cache_open(file);
    assert_int_equal(qn_fingerprint_read(g.driver, 0, &fingerprint), QUERN_OK);
    const qn_tune_device here = qn_fingerprint_device(&fingerprint);
    assert_int_equal(qn_tune_results(search, &t->space, &here, qn_text_string(&sizes), 1, &rows), QUERN_OK);
    if (qn_sqlite_tune_put(&store, rows.row, rows.count, false, NULL) != QUERN_OK) fail_msg("%s", quern_message());
    qn_tune_list_fini(&rows);
    qn_text_fini(&sizes);
    qn_sqlite_close(&store);
}

static void prepare_and_check(const char *file, tuned *t, const qn_config *winner)
{
    quern_options options = QUERN_OPTIONS_INIT;
    quern *q = NULL;
    quern_op *op = NULL;
    quern_kernel_info info = QUERN_KERNEL_INFO_INIT;
    qn_text config = QN_TEXT_INIT;
    options.cache_file = file;
    assert_int_equal(quern_open(&options, &q), QUERN_OK);
    t->q = q;
    if (quern_prepare(q, &t->spec.base, 0, &op) != QUERN_OK) fail_msg("%s", quern_message());
    assert_int_equal(quern_op_describe(op, quern_op_variant_for(op, t->sizes), 0, &info), QUERN_OK);
    qn_config_write(t->subject->family, winner, &config);
    assert_string_equal(info.chosen, "tuned (this device)");
    assert_string_equal(info.config, qn_text_string(&config));
    if (check_op(t, op) != QUERN_OK) fail_msg("%s", quern_message());
    qn_text_fini(&config);
    quern_op_release(op);
    quern_close(q);
}

static void tune_shortly(const char *text, int64_t size)
{
    char folder[64];
    tuned t;
    qn_search search;
    gpu_skip_without_device(&g);
    tuned_make(&t, text, size);
    cache_folder_make(folder);

    search_on_device(&t, &search);
    print_search(&t.space, &search);
    put_results(cache_path(folder, "tuned.db"), &t, &search);
    prepare_and_check(cache_path(folder, "tuned.db"), &t, &search.trial[search.winner].config);

    qn_search_fini(&search);
    cache_folder_remove(folder);
}

static void a_short_tune_ends_in_time_with_a_right_winner_that_prepare_takes(void **state)
{
    (void)state;
    tune_shortly("softmax_topk V=8192 K=16 in=bf16", 8);
}

static void so_does_one_of_gate(void **state)
{
    (void)state;
    tune_shortly("gate E=256 K=8 in=f32 bias=1", 4096);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_short_tune_ends_in_time_with_a_right_winner_that_prepare_takes),
        cmocka_unit_test(so_does_one_of_gate),
    };
    gpu_open(&g);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    gpu_close(&g);
    return failed;
}
