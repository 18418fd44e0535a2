// SPDX-License-Identifier: Apache-2.0
// The timer of the search on a real device: candidates compile on the processors while the device times others; each call
// is timed cold, by graph replay (timing.h), on inputs that rotate over more than twice the L2. Knows no family: tensors
// are made from the family's list; what goes into them and whether results are right is asked of the caller.
// The device's context is current on the calling thread, in every call.
#ifndef QN_TUNE_MEASURE_H
#define QN_TUNE_MEASURE_H

#include "runtime/runtime.h"
#include "tune/search.h"

typedef struct qn_measure_options {
    quern *q; // candidates are compiled and kept here: one without a database
    const qn_driver *driver;
    int device; // ordinal
    const qn_space *space;
    const void *sizes; // the family's sizes structure: what is timed
    int compile_threads;
    size_t most_copies; // of the inputs, which are rotated over; 0: as many as the L2 does not hold twice
    // Fills one copy of an input on the host; first asked with host = NULL whether it has this input at all. NULL, or
    // false: floating types get normal numbers of deviation 3, others 0.
    bool (*fill)(void *user, const qn_tensor *tensor, size_t copy, void *host, size_t elements);
    // Runs an op on inputs of every kind and judges its outputs: OK, or INTERNAL with the difference.
    quern_status (*check)(void *user, const quern_op *op);
    bool (*stopped)(void *user); // may be NULL
    void *user;
} qn_measure_options;

typedef struct qn_measure qn_measure;

// Makes the tensors. options must outlive it. DRIVER_ERROR when the device has no room for them, OUT_OF_MEMORY.
quern_status qn_measure_open(const qn_measure_options *options, qn_measure **out);
qn_timer qn_measure_timer(qn_measure *measure);
void qn_measure_close(qn_measure *measure); // NULL is allowed

#endif
