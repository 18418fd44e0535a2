// SPDX-License-Identifier: Apache-2.0
// Successive halving with neighbourhoods (search.h).
#include "tune/search.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cache/tune.h"

enum { KEPT = 3, MAX_GENERATIONS = 24, CONTENDERS = 4, FINAL_TURNS = 2, PATIENCE = 2 };
static const double kScreeningShare = 0.85; // of the time; the rest is for the final
static const double kGridShare = 0.35;      // of the time, when there is a grid
static const double kHopeless = 3.0;        // times the best: such a candidate is not timed exactly

typedef struct hunt {
    const qn_space *space;
    const qn_search_options *options;
    const qn_timer *timer;
    qn_search *search;
    qn_configs known; // of every trial, in its order
    double began, screening_end;
    double end; // of the generations: earlier than screening_end when a grid is to follow
} hunt;

static double us_of(const qn_trial *trial)
{
    return trial->timing.median_us;
}

static double spread_of(const qn_trial *trial)
{
    return trial->timing.high_us - trial->timing.low_us;
}

// ---- trials

// Trials for what was added to h->known.
static quern_status add_trials(hunt *h)
{
    qn_search *search = h->search;
    qn_trial *trial = realloc(search->trial, (h->known.count + 1) * sizeof *trial);
    if (!trial) return qn_fail(QUERN_OUT_OF_MEMORY, "out of memory: %zu trials", h->known.count);
    search->trial = trial;
    for (; search->count < h->known.count; search->count++) {
        memset(&trial[search->count], 0, sizeof *trial);
        trial[search->count].config = h->known.item[search->count];
    }
    return QUERN_OK;
}

static bool is_over(const hunt *h, double end)
{
    return h->timer->stopped(h->timer->self) || h->timer->lost(h->timer->self) ||
           h->timer->seconds(h->timer->self) >= end;
}

// The fastest so far; count: none.
static size_t fastest(const qn_search *search)
{
    size_t best = search->count;
    for (size_t i = 0; i < search->count; i++)
        if (search->trial[i].repeats &&
            (best == search->count || us_of(&search->trial[i]) < us_of(&search->trial[best])))
            best = i;
    return best;
}

static void tell(const hunt *h)
{
    const qn_search *search = h->search;
    qn_search_progress progress = {.known = search->count};
    size_t best = fastest(search);
    if (!h->options->progress) return;
    for (size_t i = 0; i < search->count; i++) progress.timed += search->trial[i].status != NULL;
    progress.seconds_left = h->began + h->options->seconds - h->timer->seconds(h->timer->self);
    if (progress.seconds_left < 0) progress.seconds_left = 0;
    if (search->trial[0].repeats) progress.own_us = us_of(&search->trial[0]);
    if (best < search->count) progress.best_us = us_of(&search->trial[best]);
    h->options->progress(h->options->user, &progress);
}

static void note_failure(qn_trial *trial, quern_status status)
{
    bool timeout = status == QUERN_COMPILE_TIMEOUT;
    trial->status = status == QUERN_INTERNAL ? QN_TUNE_WRONG : timeout ? QN_TUNE_TIMEOUT : QN_TUNE_FAILED;
    trial->repeats = 0;
    snprintf(trial->note, sizeof trial->note, "%s: %s", quern_status_name(status), quern_message());
}

// The message of a failure belongs to the trial, whatever this thread's was.
static void time_trial(hunt *h, size_t index, int repeats, double limit_us)
{
    qn_trial *trial = &h->search->trial[index];
    qn_timing timing;
    qn_message_mark mark;
    qn_message_save(&mark);
    quern_status status = h->timer->measure(h->timer->self, &trial->config, repeats, limit_us, &timing);
    if (status == QUERN_OK) {
        trial->timing = timing;
        trial->repeats = repeats;
        trial->status = QN_TUNE_SLOWER;
    } else if (status != QUERN_CANCELLED) {
        note_failure(trial, status);
    }
    qn_message_restore(&mark);
    tell(h);
}

// ---- a generation

static void screen(hunt *h, size_t first, double end)
{
    const qn_search *search = h->search;
    for (size_t i = first; i < search->count && !is_over(h, end); i++) {
        size_t best = fastest(search);
        double limit = best < search->count ? kHopeless * us_of(&search->trial[best]) : 0;
        time_trial(h, i, h->options->first_repeats, limit);
    }
}

// Indices of timed trials, fastest first; at most `most`. Returns how many.
static size_t leaders(const qn_search *search, size_t *index, size_t most)
{
    size_t count = 0;
    for (size_t i = 0; i < search->count; i++) {
        if (!search->trial[i].repeats) continue;
        size_t at = count < most ? count++ : most;
        while (at > 0 && us_of(&search->trial[index[at - 1]]) > us_of(&search->trial[i])) {
            if (at < most) index[at] = index[at - 1];
            at--;
        }
        if (at < most) index[at] = i;
    }
    return count;
}

static size_t timed_since(const qn_search *search, size_t first)
{
    size_t count = 0;
    for (size_t i = first; i < search->count; i++) count += search->trial[i].repeats != 0;
    return count;
}

// As many as half of the new ones are timed again, then half of those …
static quern_status halve(hunt *h, size_t first)
{
    size_t alive = timed_since(h->search, first) / 2;
    size_t *index = malloc((alive + KEPT) * sizeof *index);
    if (!index) return qn_fail(QUERN_OUT_OF_MEMORY, "out of memory: ranking trials");
    for (int repeats = 2 * h->options->first_repeats; repeats < h->options->repeats; repeats *= 2) {
        if (alive < KEPT) alive = KEPT;
        size_t count = leaders(h->search, index, alive);
        for (size_t i = 0; i < count && !is_over(h, h->end); i++)
            if (h->search->trial[index[i]].repeats < repeats) time_trial(h, index[i], repeats, 0);
        if (alive == KEPT) break;
        alive /= 2;
    }
    free(index);
    return QUERN_OK;
}

// The neighbours of the best that were not looked at before.
static quern_status expand(hunt *h)
{
    size_t index[KEPT], count = leaders(h->search, index, KEPT);
    for (size_t i = 0; i < count; i++) {
        qn_trial *trial = &h->search->trial[index[i]];
        if (trial->expanded) continue;
        trial->expanded = true;
        QN_TRY(qn_space_neighbours(h->space, &trial->config, &h->known));
    }
    return add_trials(h);
}

static quern_status announce(hunt *h, size_t first)
{
    return h->timer->announce(h->timer->self, h->known.item + first, h->known.count - first);
}

static quern_status seed(hunt *h)
{
    const qn_search_options *o = h->options;
    qn_config canonical;
    qn_message_mark mark;
    QN_TRY(qn_space_seeds(h->space, &h->known));
    qn_message_save(&mark);
    if (o->also &&
        qn_config_canonical(h->space->family, h->space->spec, h->space->arch, o->also, &canonical) == QUERN_OK)
        QN_TRY(qn_configs_add(&h->known, &canonical));
    qn_message_restore(&mark);
    const qn_config own = h->known.item[0];
    QN_TRY(qn_space_neighbours(h->space, &own, &h->known));
    QN_TRY(qn_space_draws(h->space, o->seed, o->draws, &h->known));
    QN_TRY(add_trials(h));
    h->search->trial[0].expanded = true;
    return QUERN_OK;
}

static quern_status generations(hunt *h)
{
    double best_us = 0;
    int stale = 0;
    size_t first = 0;
    for (int g = 0; g < MAX_GENERATIONS && stale < PATIENCE; g++) {
        QN_TRY(announce(h, first));
        screen(h, first, h->end);
        QN_TRY(halve(h, first));
        if (is_over(h, h->end)) return QUERN_OK;
        size_t best = fastest(h->search);
        if (best == h->search->count) break;
        bool better = best_us == 0 || us_of(&h->search->trial[best]) < 0.99 * best_us;
        stale = better ? 0 : stale + 1;
        if (better) best_us = us_of(&h->search->trial[best]);
        first = h->search->count;
        QN_TRY(expand(h));
        if (h->search->count == first) break;
    }
    h->search->is_complete = true;
    return QUERN_OK;
}

static quern_status grid(hunt *h)
{
    const qn_search_options *o = h->options;
    size_t best = fastest(h->search), first = h->search->count;
    if (o->grid_knob == o->grid_other || best == h->search->count) return QUERN_OK;
    const qn_config from = h->search->trial[best].config;
    QN_TRY(qn_space_grid(h->space, &from, o->grid_knob, o->grid_other, &h->known));
    QN_TRY(add_trials(h));
    QN_TRY(announce(h, first));
    screen(h, first, h->screening_end);
    return QUERN_OK;
}

// ---- the final

// In turns, so that a drifting clock is the same for all. Of the turns the middle values count, and the widest spread.
static void duel(hunt *h, const size_t *index, size_t count)
{
    for (int turn = 0; turn < FINAL_TURNS; turn++)
        for (size_t i = 0; i < count; i++) {
            qn_trial *trial = &h->search->trial[index[i]];
            qn_timing before = trial->timing;
            if (h->timer->stopped(h->timer->self)) return; // who stops it waits: the times so far count
            if (!trial->repeats || h->timer->lost(h->timer->self)) continue;
            time_trial(h, index[i], h->options->repeats, 0);
            if (turn == 0 || !trial->repeats) continue;
            qn_timing *now = &trial->timing;
            now->median_us = 0.5 * (before.median_us + now->median_us);
            if (before.low_us < now->low_us) now->low_us = before.low_us;
            if (before.high_us > now->high_us) now->high_us = before.high_us;
        }
}

static bool is_right(hunt *h, size_t index)
{
    qn_trial *trial = &h->search->trial[index];
    qn_message_mark mark;
    qn_message_save(&mark);
    quern_status status = h->timer->check(h->timer->self, &trial->config);
    if (status != QUERN_OK) note_failure(trial, status);
    qn_message_restore(&mark);
    // Without a library's choice to gain on, small gains count again.
    for (size_t i = 0; status != QUERN_OK && index == 0 && i < h->search->count; i++)
        if (h->search->trial[i].status && !strcmp(h->search->trial[i].status, QN_TUNE_EQUAL))
            h->search->trial[i].status = QN_TUNE_SLOWER, *h->search->trial[i].note = 0;
    return status == QUERN_OK;
}

static bool gains_enough(qn_trial *trial, const qn_trial *own)
{
    double gain = us_of(own) - us_of(trial);
    double spread = spread_of(trial) > spread_of(own) ? spread_of(trial) : spread_of(own);
    if (gain > spread) return true;
    if (gain > 0) {
        trial->status = QN_TUNE_EQUAL;
        snprintf(trial->note, sizeof trial->note, "gains %.0f ns on the library's own choice, the spread is %.0f ns",
                 1e3 * gain, 1e3 * spread);
    }
    return false;
}

static void note_losers(qn_search *search)
{
    const double best = us_of(&search->trial[search->winner]);
    for (size_t i = 0; i < search->count; i++) {
        qn_trial *trial = &search->trial[i];
        if (i == search->winner || !trial->repeats || *trial->note || best <= 0) continue;
        snprintf(trial->note, sizeof trial->note, "%.1f %% slower, %d replays", 100 * (us_of(trial) / best - 1),
                 trial->repeats);
    }
}

static void declare(qn_search *search, size_t index)
{
    qn_trial *trial = &search->trial[index];
    search->winner = index;
    trial->status = QN_TUNE_BEST;
    snprintf(trial->note, sizeof trial->note, "%s",
             index ? "" : "the library's own choice: nothing gained more than the spread");
    note_losers(search);
}

// The next to try: the fastest that has neither failed nor been passed over, and gains enough; else the library's own.
static size_t next_contender(qn_search *search, const size_t *index, size_t count)
{
    for (;;) {
        size_t best = search->count;
        for (size_t i = 0; i < count; i++) {
            const qn_trial *trial = &search->trial[index[i]];
            if (!trial->repeats || strcmp(trial->status, QN_TUNE_SLOWER)) continue;
            if (best == search->count || us_of(trial) < us_of(&search->trial[best])) best = index[i];
        }
        bool own_counts = search->trial[0].repeats && best != 0 && best != search->count;
        if (!own_counts || gains_enough(&search->trial[best], &search->trial[0])) return best;
        if (!strcmp(search->trial[best].status, QN_TUNE_SLOWER)) return 0; // it is not even faster
    }
}

static quern_status final(hunt *h)
{
    qn_search *search = h->search;
    if (!search->trial[0].status && h->timer->stopped(h->timer->self))
        return qn_fail(QUERN_CANCELLED, "stopped before anything was timed");
    if (!search->trial[0].status) time_trial(h, 0, h->options->first_repeats, 0);
    size_t index[CONTENDERS + 1], count = leaders(search, index, CONTENDERS);
    bool has_own = false;
    for (size_t i = 0; i < count; i++) has_own |= index[i] == 0;
    if (!has_own && search->trial[0].repeats) index[count++] = 0;
    QN_TRY(h->timer->announce(h->timer->self, NULL, 0));
    duel(h, index, count);
    for (size_t tried = 0; tried <= count; tried++) {
        size_t best = next_contender(search, index, count);
        if (best == search->count) break;
        if (!is_right(h, best)) continue;
        declare(search, best);
        return QUERN_OK;
    }
    return qn_fail(QUERN_INTERNAL, "no configuration could be timed and gave right results; of the library's own: %s",
                   search->trial[0].note);
}

// ---- the whole

quern_status qn_search_run(const qn_space *space, const qn_search_options *options, const qn_timer *timer,
                           qn_search *search)
{
    hunt h = {.space = space, .options = options, .timer = timer, .search = search, .known = QN_CONFIGS_INIT};
    *search = (qn_search){0};
    h.began = timer->seconds(timer->self);
    h.screening_end = h.end = h.began + kScreeningShare * options->seconds;
    if (options->grid_knob != options->grid_other) h.end -= kGridShare * options->seconds;
    quern_status status = seed(&h);
    if (status == QUERN_OK) status = generations(&h);
    if (status == QUERN_OK) status = grid(&h);
    if (status == QUERN_OK) status = final(&h);
    qn_configs_fini(&h.known);
    if (status != QUERN_OK) qn_search_fini(search);
    return status;
}

void qn_search_fini(qn_search *search)
{
    free(search->trial);
    *search = (qn_search){0};
}
