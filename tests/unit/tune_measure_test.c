// SPDX-License-Identifier: Apache-2.0
// The timer on a device, over the fake driver and the fake NVRTC: what is launched with which pointers, what inputs hold,
// failures that are a candidate's, and that everything is given back. Which one is faster is not asked here.
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "cache/tune.h"
#include "softmax_topk/args.h"
#include "support/fake_driver.h"
#include "support/fake_nvrtc.h"
#include "support/runtime_fixture.h"
#include "tune/measure.h"
#include "tune/results.h"

static const int hopper[] = {90};

enum { MAX_POINTERS = 16, ROWS = 8 };
static struct {
    const void *logits[MAX_POINTERS];
    size_t logits_count, launches;
    const float *temperature;
    bool is_random; // the logits of the last launch
} seen;

static void on_launch(const fake_launch *launch)
{
    const softmax_topk_params *p = launch->param;
    size_t i = 0;
    while (i < seen.logits_count && seen.logits[i] != p->logits) i++;
    if (i == seen.logits_count && i < MAX_POINTERS) seen.logits[seen.logits_count++] = p->logits;
    seen.launches++;
    seen.temperature = p->temperature;
    const float *x = p->logits;
    seen.is_random = isfinite(x[0]) && isfinite(x[1]) && x[0] != x[1] && fabsf(x[0]) < 30;
}

typedef struct fixture {
    quern *q;
    quern_softmax_topk_spec spec;
    quern_softmax_topk_sizes sizes;
    qn_space space;
    qn_measure_options options;
    qn_config own;
    quern_status verdict; // of check
    long checks;
    bool stopped;
} fixture;

static quern_status on_check(void *user, const quern_op *op)
{
    fixture *f = user;
    assert_int_equal(quern_op_variants(op), 1);
    f->checks++;
    return f->verdict == QUERN_OK ? QUERN_OK : qn_fail(f->verdict, "row 3 is wrong\nin two lines");
}

static bool on_fill(void *user, const qn_tensor *tensor, size_t copy, void *host, size_t elements)
{
    (void)user, (void)copy;
    if (strcmp(tensor->name, "temperature")) return false;
    for (size_t i = 0; i < elements; i++) ((float *)host)[i] = 0.5f;
    return true;
}

static bool on_stopped(void *user)
{
    return ((fixture *)user)->stopped;
}

static int set_up(void **state)
{
    static fixture f;
    runtime_devices_make(hopper, 1);
    fake_driver.on_launch = on_launch;
    memset(&seen, 0, sizeof seen);
    memset(&f, 0, sizeof f);
    quern_options options = runtime_options("", NULL);
    options.mode = QUERN_MODE_OFF;
    f.q = runtime_open(&options);
    f.spec = runtime_spec(5000, 8);
    f.spec.temperature = 1;
    f.sizes = (quern_softmax_topk_sizes){sizeof f.sizes, ROWS};
    f.space = (qn_space){&qn_family_softmax_topk, &f.spec.base, NULL, 1};
    assert_int_equal(qn_arch_find("sm_90a", &f.space.arch), QUERN_OK);
    f.space.family->choose(f.space.spec, f.space.arch, 1, &f.own);
    f.options = (qn_measure_options){.q = f.q,
                                     .space = &f.space,
                                     .sizes = &f.sizes,
                                     .compile_threads = 2,
                                     .fill = on_fill,
                                     .check = on_check,
                                     .stopped = on_stopped,
                                     .user = &f};
    assert_int_equal(qn_driver_load(NULL, &f.options.driver), QUERN_OK);
    *state = &f;
    return 0;
}

static int tear_down(void **state)
{
    fixture *f = *state;
    quern_close(f->q);
    long allocations = fake_driver.live_allocations, libraries = fake_driver.live_libraries;
    runtime_devices_remove();
    return allocations || libraries ? -1 : 0; // something was not given back
}

static qn_measure *open_measure(fixture *f)
{
    qn_measure *m = NULL;
    if (qn_measure_open(&f->options, &m) != QUERN_OK) fail_msg("%s", quern_message());
    return m;
}

static void inputs_rotate_and_hold_numbers(void **state)
{
    fixture *f = *state;
    qn_measure *m = open_measure(f);
    const qn_timer timer = qn_measure_timer(m);
    qn_timing timing;

    if (timer.measure(timer.self, &f->own, 5, 0, &timing) != QUERN_OK) fail_msg("%s", quern_message());

    assert_true(seen.launches >= 20);
    assert_true(seen.logits_count >= 2);
    assert_true(seen.is_random);
    assert_non_null(seen.temperature);
    assert_true(seen.temperature[0] == 0.5f && seen.temperature[ROWS - 1] == 0.5f);
    assert_true(timing.median_us > 0 && timing.low_us <= timing.median_us && timing.median_us <= timing.high_us);
    qn_measure_close(m);
}

static void no_more_sets_of_inputs_are_made_than_are_wanted(void **state)
{
    fixture *f = *state;
    qn_timing timing;
    f->options.most_copies = 3;
    qn_measure *m = open_measure(f);
    const qn_timer timer = qn_measure_timer(m);
    if (timer.measure(timer.self, &f->own, 5, 0, &timing) != QUERN_OK) fail_msg("%s", quern_message());
    assert_int_equal(seen.logits_count, 3);
    assert_true(seen.launches >= 20);
    qn_measure_close(m);
}

static void a_candidate_that_does_not_compile_is_its_own_failure(void **state)
{
    fixture *f = *state;
    qn_measure *m = open_measure(f);
    const qn_timer timer = qn_measure_timer(m);
    qn_timing timing = {7, 7, 7};
    fake_nvrtc.fail = NVRTC_ERROR_COMPILATION;
    fake_nvrtc.times = 1;

    assert_int_equal(timer.measure(timer.self, &f->own, 5, 0, &timing), QUERN_COMPILE_FAILED);

    assert_true(timing.median_us == 7);
    assert_int_equal(seen.launches, 0);
    assert_false(timer.lost(timer.self));
    assert_int_equal(timer.measure(timer.self, &f->own, 5, 0, &timing), QUERN_COMPILE_FAILED); // remembered
    qn_measure_close(m);
}

static void announced_configurations_compile_each_once(void **state)
{
    fixture *f = *state;
    qn_configs list = QN_CONFIGS_INIT;
    qn_measure *m = open_measure(f);
    const qn_timer timer = qn_measure_timer(m);
    qn_timing timing;
    assert_int_equal(qn_space_seeds(&f->space, &list), QUERN_OK);
    assert_int_equal(qn_space_neighbours(&f->space, &f->own, &list), QUERN_OK);
    size_t count = list.count < 12 ? list.count : 12;

    assert_int_equal(timer.announce(timer.self, list.item, count), QUERN_OK);
    for (size_t i = count; i-- > 0;) // the other way round, so that both threads are met at work
        if (timer.measure(timer.self, &list.item[i], 1, 0, &timing) != QUERN_OK) fail_msg("%s", quern_message());

    assert_int_equal(fake_nvrtc.compiles, count);
    qn_configs_fini(&list);
    qn_measure_close(m);
}

static void what_is_announced_anew_replaces_what_waits(void **state)
{
    fixture *f = *state;
    qn_configs list = QN_CONFIGS_INIT;
    fake_nvrtc.delay_ms = 30;
    qn_measure *m = open_measure(f);
    const qn_timer timer = qn_measure_timer(m);
    assert_int_equal(qn_space_neighbours(&f->space, &f->own, &list), QUERN_OK);
    assert_true(list.count > 8);

    assert_int_equal(timer.announce(timer.self, list.item, list.count), QUERN_OK);
    assert_int_equal(timer.announce(timer.self, NULL, 0), QUERN_OK);
    qn_measure_close(m); // waits for what is under way only

    assert_true(fake_nvrtc.compiles <= 2);
    qn_configs_fini(&list);
}

static void a_device_in_trouble_is_noticed(void **state)
{
    fixture *f = *state;
    qn_measure *m = open_measure(f);
    const qn_timer timer = qn_measure_timer(m);
    qn_timing timing;
    fake_driver.call.cuStreamSynchronize.fail = CUDA_ERROR_ILLEGAL_ADDRESS;
    fake_driver.call.cuStreamSynchronize.times = -1;

    assert_int_not_equal(timer.measure(timer.self, &f->own, 5, 0, &timing), QUERN_OK);

    assert_true(timer.lost(timer.self));
    fake_driver.call.cuStreamSynchronize.times = 0;
    qn_measure_close(m);
}

static void no_room_on_the_device_names_the_tensor(void **state)
{
    fixture *f = *state;
    qn_measure *m = NULL;
    fake_driver.call.cuMemAlloc.fail = CUDA_ERROR_OUT_OF_MEMORY;
    fake_driver.call.cuMemAlloc.times = 1;

    assert_int_equal(qn_measure_open(&f->options, &m), QUERN_DRIVER_ERROR);

    assert_non_null(strstr(quern_message(), "logits"));
    assert_null(m);
}

static qn_search_options short_search(void)
{
    return (qn_search_options){.seconds = 3, .first_repeats = 2, .repeats = 8, .draws = 4, .seed = 1};
}

static void a_whole_search_gives_rows_for_the_table(void **state)
{
    fixture *f = *state;
    qn_search search;
    qn_tune_list rows = QN_TUNE_LIST_INIT;
    const qn_tune_device device = {"fake", 90, 132, 1, 2, 13};
    const qn_search_options options = short_search();
    qn_measure *m = open_measure(f);
    const qn_timer timer = qn_measure_timer(m);

    if (qn_search_run(&f->space, &options, &timer, &search) != QUERN_OK) fail_msg("%s", quern_message());

    assert_true(f->checks >= 1);
    assert_int_equal(qn_tune_results(&search, &f->space, &device, "rows=8", 77, &rows), QUERN_OK);
    assert_true(rows.count >= 2);
    size_t best = 0;
    for (size_t i = 0; i < rows.count; i++) {
        assert_int_equal(qn_tune_check(&rows.row[i]), QUERN_OK);
        assert_true(qn_tune_same_problem(&rows.row[0], &rows.row[i]));
        best += !strcmp(rows.row[i].status, QN_TUNE_BEST);
    }
    assert_int_equal(best, 1);
    assert_string_equal(rows.row[0].bucket, "rows 5..14");
    qn_tune_list_fini(&rows);
    qn_search_fini(&search);
    qn_measure_close(m);
}

static void a_search_whose_candidates_are_all_wrong_fails(void **state)
{
    fixture *f = *state;
    qn_search search;
    const qn_search_options options = short_search();
    f->verdict = QUERN_INTERNAL;
    qn_measure *m = open_measure(f);
    const qn_timer timer = qn_measure_timer(m);

    assert_int_equal(qn_search_run(&f->space, &options, &timer, &search), QUERN_INTERNAL);

    assert_non_null(strstr(quern_message(), "row 3 is wrong"));
    qn_measure_close(m);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(inputs_rotate_and_hold_numbers),
        TEST(no_more_sets_of_inputs_are_made_than_are_wanted),
        TEST(a_candidate_that_does_not_compile_is_its_own_failure),
        TEST(announced_configurations_compile_each_once),
        TEST(what_is_announced_anew_replaces_what_waits),
        TEST(a_device_in_trouble_is_noticed),
        TEST(no_room_on_the_device_names_the_tensor),
        TEST(a_whole_search_gives_rows_for_the_table),
        TEST(a_search_whose_candidates_are_all_wrong_fails),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
