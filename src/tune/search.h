// SPDX-License-Identifier: Apache-2.0
// The search for the fastest configuration of one bucket of sizes, over a timer that it is given: a GPU (measure.h), or a
// simulation in tests. Knows no device and no clock of its own.
//
//   generation   the seeds, their neighbours and some draws; later the neighbours of the three best, while that helps
//   screening    every new one is timed a little
//   halving      the better half is timed again with twice the replays, until three are left
//   final        the best and the library's own choice are timed in turns, with most replays; the first that gains more
//                than the spread and whose results are right wins, else the library's own choice stays
//
//   (1) The library's own choice is trial 0, is timed first, and wins whenever nothing is better beyond doubt.
//   (2) Nothing wins whose results were not checked.
//   (3) Out of time: what was timed by then goes into the final. Stopped: it counts as it was timed, and is checked.
#ifndef QN_TUNE_SEARCH_H
#define QN_TUNE_SEARCH_H

#include "tune/space.h"
#include "tune/timing.h"

typedef struct qn_timer {
    void *self;
    // These will be asked for next, about in this order: a place to compile ahead. Replaces what was announced before.
    quern_status (*announce)(void *self, const qn_config *configs, size_t count);
    // The time of a call. limit_us > 0: of no interest beyond it, so one launch may do. Any failure is the candidate's.
    quern_status (*measure)(void *self, const qn_config *config, int repeats, double limit_us, qn_timing *timing);
    // OK: its results are right. INTERNAL: they are wrong, and the message says where.
    quern_status (*check)(void *self, const qn_config *config);
    double (*seconds)(void *self); // a monotonic clock
    bool (*stopped)(void *self);   // somebody wants an end
    bool (*lost)(void *self);      // nothing can be timed any more (the device's context is gone)
} qn_timer;

typedef struct qn_search_progress {
    size_t timed, known; // trials
    double seconds_left;
    double own_us, best_us; // 0: not known yet
} qn_search_progress;

typedef struct qn_search_options {
    double seconds;               // for everything; the final may take a little more
    int first_repeats, repeats;   // replays of a screening, and of the final
    size_t draws;                 // random configurations of the first generation
    uint64_t seed;                // of the draws
    const qn_config *also;        // one more seed (what won before); may be NULL
    size_t grid_knob, grid_other; // after the search each pair of their choices is timed; equal: no grid
    void (*progress)(void *user, const qn_search_progress *progress); // may be NULL
    void *user;
} qn_search_options;

typedef struct qn_trial {
    qn_config config;
    const char *status; // QN_TUNE_…; NULL: never timed
    char note[200];
    qn_timing timing;
    int repeats; // of timing; 0: none
    bool expanded;
} qn_trial;

typedef struct qn_search {
    qn_trial *trial; // 0: the library's own choice
    size_t count;
    size_t winner;    // its status is QN_TUNE_BEST
    bool is_complete; // neither time nor a stop ended it
} qn_search;

// OUT_OF_MEMORY, a heuristic without a plan, or INTERNAL: no configuration could be timed and was right.
quern_status qn_search_run(const qn_space *space, const qn_search_options *options, const qn_timer *timer,
                           qn_search *search);
void qn_search_fini(qn_search *search);

#endif
