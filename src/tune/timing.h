// SPDX-License-Identifier: Apache-2.0
// Timing kernels: many launches captured in one graph, replayed between two events; time a launch is the replay's time
// over their number. Inputs rotate over more than twice the L2, so that each launch finds its own cold. Used by bench
// and tuner. The caller's context is current; nothing here knows what is launched.
#ifndef QN_TUNE_TIMING_H
#define QN_TUNE_TIMING_H

#include "cuda/driver.h"

// Puts launch `index` (0, 1, …) on the stream, which is being captured.
typedef quern_status (*qn_timing_enqueue)(void *user, size_t index, CUstream stream);

typedef struct qn_timing_request {
    qn_timing_enqueue enqueue;
    void *user;
    size_t launches; // in the graph
    int repeats;     // replays that are measured, 1 … QN_TIMING_MAX_REPEATS; two more come first and are not
} qn_timing_request;

enum { QN_TIMING_MAX_REPEATS = 1000 };

typedef struct qn_timing {
    double median_us;       // a launch
    double low_us, high_us; // the tenth and ninetieth percentile of the replays
} qn_timing;

// On a stream of its own. Statuses of enqueue, DRIVER_ERROR, BAD_ARGUMENT.
quern_status qn_timing_graph(const qn_driver *driver, const qn_timing_request *request, qn_timing *timing);

// How many copies of an input make more than twice the L2: at least 2.
size_t qn_timing_copies(int64_t l2_bytes, size_t input_bytes);

// Launches for one graph: a multiple of copies, at least `least`.
size_t qn_timing_launches(size_t copies, size_t least);

// Sorts and summarises samples (count ≥ 1).
qn_timing qn_timing_summary(double *samples, size_t count);

#endif
