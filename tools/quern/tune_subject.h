// SPDX-License-Identifier: Apache-2.0
// What the tuner must know of a family: one constant tune_<family> in tune_<family>.c, and a word in TUNE_SUBJECTS. The
// subject makes hostile inputs on the host and judges outputs there; everything between, on the device, is tune_check.c.
#ifndef QUERN_TOOLS_TUNE_SUBJECT_H
#define QUERN_TOOLS_TUNE_SUBJECT_H

#include "device.h"
#include "ops/family.h"
#include "support/hostile.h"

enum { TUNE_MOST_BUFFERS = 32, TUNE_GUARD = 0xA5 };

// Inputs on the host with room for the outputs, every byte of which is TUNE_GUARD.
typedef struct tune_case {
    const quern_args *args; // of the family, with host pointers into the buffers
    struct {
        void *bytes; // NULL: none
        size_t count;
    } buffer[TUNE_MOST_BUFFERS];
    void *state; // the subject's
} tune_case;

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
    // Case number `index` of a spec: ordinary and hostile inputs, of few rows. false: there are no more. args NULL: out
    // of memory.
    bool (*make)(const quern_spec *spec, size_t index, tune_case *c);
    // How many of the outputs are wrong; the first ones into *report.
    int64_t (*judge)(const tune_case *c, qn_text *report);
    void (*unmake)(tune_case *c);
} tune_subject;

#define TUNE_SUBJECTS(X) X(softmax_topk) X(gate) X(router) X(attention) X(indexer)
#define X(name)          extern const tune_subject tune_##name;
TUNE_SUBJECTS(X)
#undef X

// A case whose tensors are those of the hostile lists. state: the subject's, which owns them and args.
void tune_case_fill(tune_case *c, void *state, const hostile_buffer *buffers, size_t count, const quern_args *args);

const tune_subject *tune_find_subject(const char *family); // NULL: there is none

// Runs an op, which has one configuration, on every case. INTERNAL with the first difference; statuses of launches and the
// driver. q: where the op was made, for one of another spec.
quern_status tune_check(const tune_subject *subject, quern *q, const device *d, const quern_spec *spec,
                        const quern_op *op);

#endif
