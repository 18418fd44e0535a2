// SPDX-License-Identifier: Apache-2.0
// What the tuner must know of a family: one constant tune_<family> in tune_<family>.c, and a word in TUNE_SUBJECTS. The
// subject chooses hostile cases, which the tests' lists make and judge on the host; the rest is tune_check.c.
#ifndef QUERN_TOOLS_TUNE_SUBJECT_H
#define QUERN_TOOLS_TUNE_SUBJECT_H

#include <stddef.h>

#include "device.h"
#include "ops/family.h"
#include "support/hostile.h"

enum { TUNE_MOST_BUFFERS = 32, TUNE_GUARD = 0xA5 };

// A family's hostile cases and their data, whatever their types are: inputs on the host with room for the outputs, every
// byte of which is TUNE_GUARD.
typedef struct tune_cases {
    size_t case_bytes, data_bytes;
    size_t buffer_offset, args_offset, buffers; // in the data: hostile_buffer[buffers], the family's arguments
    bool (*make)(const void *c, void *data);    // which refers to c. false: out of memory
    void (*free)(void *data);
    int64_t (*check)(const void *data, qn_text *report); // how many outputs are wrong; the first ones into *report
} tune_cases;

// The functions of a subject's own types: MAKE, FREE and CHECK are calls, of c, data and report.
#define TUNE_CASES(CASE, DATA, BUFFERS, MAKE, FREE, CHECK)                                                             \
    static bool cases_make(const void *c, void *data)                                                                  \
    {                                                                                                                  \
        return MAKE;                                                                                                   \
    }                                                                                                                  \
    static void cases_free(void *data)                                                                                 \
    {                                                                                                                  \
        FREE;                                                                                                          \
    }                                                                                                                  \
    static int64_t cases_check(const void *data, qn_text *report)                                                      \
    {                                                                                                                  \
        return CHECK;                                                                                                  \
    }                                                                                                                  \
    _Static_assert((int)BUFFERS <= (int)TUNE_MOST_BUFFERS, "room for the buffers");                                    \
    static const tune_cases cases = {sizeof(CASE),         sizeof(DATA), offsetof(DATA, buffer),                       \
                                     offsetof(DATA, args), BUFFERS,      cases_make,                                   \
                                     cases_free,           cases_check}

typedef struct tune_subject {
    const qn_family *family;
    // Fills one copy of an input that is timed (tune/measure.h); NULL: by default.
    bool (*fill)(const quern_spec *spec, const void *sizes, const qn_tensor *tensor, size_t copy, void *host,
                 size_t elements);
    // At most so many sets of inputs are rotated over for these sizes; NULL, 0: as many as the L2 does not hold.
    size_t (*most_copies)(const void *sizes);
    // The spec with every output that the judge needs, when it needs more than this one has; false: it does not. Then
    // candidates are judged by that spec, and this one's outputs must be the same bits. NULL: never.
    bool (*judged)(const quern_spec *spec, quern_any_spec *with);
    const tune_cases *cases;
    // Case number `index` of a spec into *c, which is zero: ordinary and hostile inputs, of few rows. false: no more.
    bool (*question)(const quern_spec *spec, size_t index, void *c);
} tune_subject;

#define TUNE_SUBJECTS(X) X(softmax_topk) X(gate) X(router) X(attention) X(indexer)
#define X(name)          extern const tune_subject tune_##name;
TUNE_SUBJECTS(X)
#undef X

const tune_subject *tune_find_subject(const char *family); // NULL: there is none

// Runs an op, which has one configuration, on every case. INTERNAL with the first difference; statuses of launches and the
// driver. q: where the op was made, for one of another spec.
quern_status tune_check(const tune_subject *subject, quern *q, const device *d, const quern_spec *spec,
                        const quern_op *op);

#endif
