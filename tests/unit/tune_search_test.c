// SPDX-License-Identifier: Apache-2.0
// The search over a simulated timer: times follow from the configuration, with noise, failures, time-outs, wrong results
// and a clock that only the timer moves. The optimum is known by brute force.
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "cache/tune.h"
#include "support/tune_family.h"
#include "tune/search.h"

typedef struct simulation {
    double noise;        // of a median, relative; the spread is twice as wide
    double flat;         // how much of the time configurations have in common, us
    unsigned fail_every; // every so manieth configuration does not compile; the next one times out
    bool own_fails, own_is_wrong;
    bool best_is_wrong; // the results of what is fastest
    double compile_seconds;
    long stop_after, lose_after; // calls of measure; 0: never
    // state
    double clock;
    long measured, checked;
    uint64_t random;
    qn_config optimum, last_checked;
    double most_asked_us; // the longest call that was timed with full replays
} simulation;

static double random_unit(simulation *s)
{
    s->random = s->random * 6364136223846793005u + 1442695040888963407u;
    return (double)(s->random >> 11) / 9007199254740992.0;
}

// A bowl with its bottom at square, block 512, local_k 5, width 8, and a ridge between round and square.
static double true_us(const simulation *s, const qn_config *c)
{
    double block = log2(c->value[TF_BLOCK] / 512.0), depth = c->value[TF_DEPTH] - 5.0;
    double us = 4 + 0.8 * block * block + 0.05 * depth * depth;
    if (c->value[TF_FORM] == TF_SQUARE) {
        double width = log2(c->value[TF_WIDTH] / 8.0);
        us += 0.5 * width * width - 1.5;
    }
    return us + s->flat;
}

static unsigned number_of(const qn_config *c)
{
    unsigned n = 17;
    for (int k = 0; k < TF_KNOBS; k++) n = n * 31 + (unsigned)c->value[k];
    return n >> 3;
}

static bool is_own(const qn_config *c)
{
    return c->value[TF_FORM] == TF_ROUND && c->value[TF_BLOCK] == 256 && c->value[TF_DEPTH] == 2;
}

static quern_status failure_of(const simulation *s, const qn_config *c)
{
    if (is_own(c)) return s->own_fails ? qn_fail(QUERN_COMPILE_FAILED, "simulated") : QUERN_OK;
    if (!s->fail_every || !memcmp(c, &s->optimum, sizeof *c)) return QUERN_OK;
    if (number_of(c) % s->fail_every == 0) return qn_fail(QUERN_COMPILE_FAILED, "simulated: too many registers");
    if (number_of(c) % s->fail_every == 1) return qn_fail(QUERN_COMPILE_TIMEOUT, "simulated: too long");
    return QUERN_OK;
}

static quern_status on_measure(void *self, const qn_config *c, int repeats, double limit_us, qn_timing *timing)
{
    simulation *s = self;
    double us = true_us(s, c);
    s->measured++;
    s->clock += s->compile_seconds + repeats * us * 1e-4;
    if (s->lose_after && s->measured > s->lose_after)
        return qn_fail(QUERN_DRIVER_ERROR, "simulated: the context is lost");
    QN_TRY(failure_of(s, c));
    if (limit_us > 0 && us > limit_us) {
        *timing = (qn_timing){us, us, us};
        return QUERN_OK;
    }
    double noise = s->noise * us / sqrt(repeats / 5.0);
    timing->median_us = us + noise * (2 * random_unit(s) - 1);
    timing->low_us = timing->median_us - s->noise * us;
    timing->high_us = timing->median_us + s->noise * us;
    return QUERN_OK;
}

static quern_status on_announce(void *self, const qn_config *configs, size_t count)
{
    (void)self, (void)configs, (void)count;
    return QUERN_OK;
}

static quern_status on_check(void *self, const qn_config *c)
{
    simulation *s = self;
    s->checked++;
    s->last_checked = *c;
    if (s->own_is_wrong && is_own(c)) return qn_fail(QUERN_INTERNAL, "simulated: row 3, place 7");
    if (s->best_is_wrong && !memcmp(c, &s->optimum, sizeof *c)) return qn_fail(QUERN_INTERNAL, "simulated: row 1");
    return QUERN_OK;
}

static double on_seconds(void *self)
{
    return ((simulation *)self)->clock;
}

static bool on_stopped(void *self)
{
    const simulation *s = self;
    return s->stop_after && s->measured >= s->stop_after;
}

static bool on_lost(void *self)
{
    const simulation *s = self;
    return s->lose_after && s->measured > s->lose_after;
}

static qn_config find_optimum(const simulation *s)
{
    qn_configs all = QN_CONFIGS_INIT;
    size_t best = 0;
    tune_family_all(&all);
    for (size_t i = 0; i < all.count; i++)
        if (true_us(s, &all.item[i]) < true_us(s, &all.item[best])) best = i;
    qn_config optimum = all.item[best];
    qn_configs_fini(&all);
    return optimum;
}

static quern_status run_with(simulation *s, const qn_search_options *options, qn_search *search)
{
    const qn_space space = tune_family_space(0);
    const qn_timer timer = {s, on_announce, on_measure, on_check, on_seconds, on_stopped, on_lost};
    s->optimum = find_optimum(s);
    return qn_search_run(&space, options, &timer, search);
}

static qn_search run(simulation *s, double seconds)
{
    const qn_search_options options = {.seconds = seconds, .first_repeats = 5, .repeats = 40, .draws = 8, .seed = 1};
    qn_search search;
    if (run_with(s, &options, &search) != QUERN_OK) fail_msg("%s", quern_message());
    return search;
}

static const qn_trial *winner_of(const qn_search *search)
{
    size_t best = 0;
    for (size_t i = 0; i < search->count; i++)
        best += search->trial[i].status && !strcmp(search->trial[i].status, QN_TUNE_BEST);
    assert_int_equal(best, 1);
    assert_string_equal(search->trial[search->winner].status, QN_TUNE_BEST);
    return &search->trial[search->winner];
}

static void the_optimum_is_found_without_noise(void **state)
{
    (void)state;
    simulation s = {.random = 1};

    qn_search search = run(&s, 60);

    assert_memory_equal(&winner_of(&search)->config, &s.optimum, sizeof s.optimum);
    assert_true(search.is_complete);
    assert_memory_equal(&s.last_checked, &s.optimum, sizeof s.optimum);
    qn_search_fini(&search);
}

static void with_noise_the_winner_is_close_to_the_optimum(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 20; seed++) {
        simulation s = {.random = seed, .noise = 0.03};
        qn_search search = run(&s, 60);
        double got = true_us(&s, &winner_of(&search)->config), best = true_us(&s, &s.optimum);
        if (got > 1.05 * best) fail_msg("seed %d: %.3f us, the optimum has %.3f", (int)seed, got, best);
        qn_search_fini(&search);
    }
}

static void failures_and_timeouts_do_not_end_the_search(void **state)
{
    (void)state;
    simulation s = {.random = 5, .fail_every = 5};
    size_t failed = 0, timeouts = 0;

    qn_search search = run(&s, 60);

    assert_true(true_us(&s, &winner_of(&search)->config) < 1.1 * true_us(&s, &s.optimum));
    for (size_t i = 0; i < search.count; i++) {
        const qn_trial *t = &search.trial[i];
        if (!t->status) continue;
        failed += !strcmp(t->status, QN_TUNE_FAILED), timeouts += !strcmp(t->status, QN_TUNE_TIMEOUT);
        if (!strcmp(t->status, QN_TUNE_FAILED)) assert_non_null(strstr(t->note, "too many registers"));
    }
    assert_true(failed > 0);
    assert_true(timeouts > 0);
    qn_search_fini(&search);
}

static void a_gain_below_the_spread_does_not_win(void **state)
{
    (void)state;
    simulation s = {.random = 3, .flat = 500, .noise = 0.02}; // all within 1 %, the spread is 4 %

    qn_search search = run(&s, 60);

    assert_int_equal(search.winner, 0);
    assert_non_null(strstr(winner_of(&search)->note, "library's own"));
    qn_search_fini(&search);
}

static void what_is_fast_and_wrong_does_not_win(void **state)
{
    (void)state;
    simulation s = {.random = 1, .best_is_wrong = true};

    qn_search search = run(&s, 60);

    const qn_trial *winner = winner_of(&search);
    assert_memory_not_equal(&winner->config, &s.optimum, sizeof s.optimum);
    assert_memory_equal(&winner->config, &s.last_checked, sizeof s.last_checked);
    bool seen = false;
    for (size_t i = 0; i < search.count; i++) {
        if (memcmp(&search.trial[i].config, &s.optimum, sizeof s.optimum)) continue;
        assert_string_equal(search.trial[i].status, QN_TUNE_WRONG);
        assert_non_null(strstr(search.trial[i].note, "row 1"));
        seen = true;
    }
    assert_true(seen);
    qn_search_fini(&search);
}

static void the_own_choice_is_checked_too_before_it_stays(void **state)
{
    (void)state;
    simulation s = {.random = 3, .flat = 500, .noise = 0.02, .own_is_wrong = true};

    qn_search search = run(&s, 60);

    assert_string_equal(search.trial[0].status, QN_TUNE_WRONG);
    assert_int_not_equal(search.winner, 0);
    winner_of(&search);
    qn_search_fini(&search);
}

static void an_own_choice_that_fails_is_replaced(void **state)
{
    (void)state;
    simulation s = {.random = 1, .own_fails = true};

    qn_search search = run(&s, 60);

    assert_string_equal(search.trial[0].status, QN_TUNE_FAILED);
    assert_memory_equal(&winner_of(&search)->config, &s.optimum, sizeof s.optimum);
    qn_search_fini(&search);
}

static void time_is_kept(void **state)
{
    (void)state;
    for (double seconds = 1; seconds <= 32; seconds *= 2) {
        simulation s = {.random = 1, .compile_seconds = 0.1};
        qn_search search = run(&s, seconds);
        winner_of(&search);
        if (s.clock > seconds + 2) fail_msg("%.1f s of %.1f", s.clock, seconds);
        if (seconds == 1) assert_false(search.is_complete);
        qn_search_fini(&search);
    }
}

static void more_time_is_never_worse_without_noise(void **state)
{
    (void)state;
    double before = INFINITY;
    for (double seconds = 1; seconds <= 64; seconds *= 2) {
        simulation s = {.random = 1, .compile_seconds = 0.2};
        qn_search search = run(&s, seconds);
        double us = true_us(&s, &winner_of(&search)->config);
        assert_true(us <= before);
        before = us;
        qn_search_fini(&search);
    }
}

static void a_stop_keeps_what_was_found(void **state)
{
    (void)state;
    simulation s = {.random = 1, .stop_after = 20};

    qn_search search = run(&s, 60);

    assert_true(true_us(&s, &winner_of(&search)->config) <= true_us(&s, &search.trial[0].config));
    assert_true(s.measured <= 20); // no final: somebody waits
    assert_true(s.checked > 0);
    assert_false(search.is_complete);
    qn_search_fini(&search);
}

static void a_stop_before_anything_was_timed_is_cancelled(void **state)
{
    (void)state;
    simulation s = {.random = 1, .stop_after = 1, .measured = 1};
    const qn_search_options options = {.seconds = 60, .first_repeats = 5, .repeats = 40};
    qn_search search;

    assert_int_equal(run_with(&s, &options, &search), QUERN_CANCELLED);
    assert_null(search.trial);
}

static void a_lost_device_ends_the_search_at_once(void **state)
{
    (void)state;
    simulation s = {.random = 1, .lose_after = 10};

    qn_search search = run(&s, 60);

    assert_int_equal(s.measured, 11);
    winner_of(&search);
    qn_search_fini(&search);
}

static void nothing_that_works_is_an_error_with_its_reason(void **state)
{
    (void)state;
    simulation s = {.random = 1, .lose_after = 1, .measured = 1};
    const qn_search_options options = {.seconds = 60, .first_repeats = 5, .repeats = 40};
    qn_search search;

    assert_int_equal(run_with(&s, &options, &search), QUERN_INTERNAL);
    assert_non_null(strstr(quern_message(), "the context is lost"));
}

static void a_former_winner_is_among_the_first_trials(void **state)
{
    (void)state;
    simulation s = {.random = 1, .stop_after = 12};
    const qn_config also = {{TF_SQUARE, 512, 5, 8}};
    const qn_search_options options = {.seconds = 60, .first_repeats = 5, .repeats = 40, .also = &also};
    qn_search search;

    assert_int_equal(run_with(&s, &options, &search), QUERN_OK);
    assert_memory_equal(&winner_of(&search)->config, &also, sizeof also);
    qn_search_fini(&search);
}

static void a_grid_times_every_pair(void **state)
{
    (void)state;
    simulation s = {.random = 1};
    const qn_search_options options = {
        .seconds = 60, .first_repeats = 5, .repeats = 40, .grid_knob = TF_DEPTH, .grid_other = TF_BLOCK};
    qn_search search;
    qn_configs grid = QN_CONFIGS_INIT;
    const qn_space space = tune_family_space(0);

    assert_int_equal(run_with(&s, &options, &search), QUERN_OK);

    assert_int_equal(qn_space_grid(&space, &winner_of(&search)->config, TF_DEPTH, TF_BLOCK, &grid), QUERN_OK);
    for (size_t i = 0; i < grid.count; i++) {
        bool timed = false;
        for (size_t t = 0; t < search.count; t++)
            timed |= search.trial[t].repeats && !memcmp(&search.trial[t].config, &grid.item[i], sizeof grid.item[i]);
        assert_true(timed);
    }
    qn_configs_fini(&grid);
    qn_search_fini(&search);
}

static void count_progress(void *user, const qn_search_progress *progress)
{
    qn_search_progress *last = user;
    assert_true(progress->timed >= last->timed);
    assert_true(progress->timed <= progress->known);
    assert_true(progress->seconds_left <= 60);
    *last = *progress;
}

static void progress_is_told(void **state)
{
    (void)state;
    simulation s = {.random = 1};
    qn_search_progress last = {0};
    const qn_search_options options = {
        .seconds = 60, .first_repeats = 5, .repeats = 40, .progress = count_progress, .user = &last};
    qn_search search;

    assert_int_equal(run_with(&s, &options, &search), QUERN_OK);

    assert_true(last.timed > 10);
    assert_true(last.best_us > 0 && last.best_us < last.own_us);
    qn_search_fini(&search);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_optimum_is_found_without_noise),
        cmocka_unit_test(with_noise_the_winner_is_close_to_the_optimum),
        cmocka_unit_test(failures_and_timeouts_do_not_end_the_search),
        cmocka_unit_test(a_gain_below_the_spread_does_not_win),
        cmocka_unit_test(what_is_fast_and_wrong_does_not_win),
        cmocka_unit_test(the_own_choice_is_checked_too_before_it_stays),
        cmocka_unit_test(an_own_choice_that_fails_is_replaced),
        cmocka_unit_test(time_is_kept),
        cmocka_unit_test(more_time_is_never_worse_without_noise),
        cmocka_unit_test(a_stop_keeps_what_was_found),
        cmocka_unit_test(a_stop_before_anything_was_timed_is_cancelled),
        cmocka_unit_test(a_lost_device_ends_the_search_at_once),
        cmocka_unit_test(nothing_that_works_is_an_error_with_its_reason),
        cmocka_unit_test(a_former_winner_is_among_the_first_trials),
        cmocka_unit_test(a_grid_times_every_pair),
        cmocka_unit_test(progress_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
