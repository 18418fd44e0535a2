// SPDX-License-Identifier: Apache-2.0
// The one list of hostile cases of indexer: every layout and type of q, pages of odd sizes, ties by the thousand, scores
// that differ in the last bit, extreme scales, lengths at the edges, field reports, and cases drawn from seeds. Shared by
// tests/unit (the reference), tests/simt (the model) and tests/gpu. Knows nothing of plans and devices.
#ifndef TESTS_SUPPORT_HOSTILE_INDEXER_H
#define TESTS_SUPPORT_HOSTILE_INDEXER_H

#include "base/text.h"
#include "support/hostile.h"

// What keys, q and w hold.
typedef enum indexer_fill {
    INDEXER_NORMAL,   // normal numbers, packed
    INDEXER_INTEGER,  // codes and small weights whose sums are integers: scores are exact
    INDEXER_ZERO,     // every dot below 0: every score 0
    INDEXER_WINNERS,  // FR12: entries 83 j have j + 1 ones, the rest minus ones; w by `variant`: +1, -1, +1 and -1
    INDEXER_LAST_BIT, // scores of 2^23 + 0 … 7
    INDEXER_EXTREME,  // any bytes: NaN codes and scales, powers far apart
    INDEXER_FR11,     // scale bytes 0, 1, 254 (variant 1), 255 (variant 2)
    INDEXER_ONE_PAGE  // winners in one place, the rest 0
} indexer_fill;

typedef enum indexer_lengths {
    INDEXER_FULL,   // all the most
    INDEXER_MIXED,  // 0, 1, k, k + 1, the most, and any
    INDEXER_CAUSAL, // the most less the rows that come after
    INDEXER_EMPTY   // 0
} indexer_lengths;

typedef struct indexer_case {
    char name[64];
    char text[256];
    unsigned tags; // HOSTILE_MODEL …
    quern_indexer_spec spec;
    int64_t T, sequences, most; // rows; sequences; the most entries of one
    indexer_fill fill;
    int variant;
    indexer_lengths lengths;
    int64_t offset, padding; // bytes: of every base; more than packed in every outer stride
    uint64_t seed;
    bool exact;      // scores are the reference's to the last bit, and so are indices
    int64_t want[4]; // the first winners, literally, when want_count says so
    int64_t want_count;
} indexer_case;

const indexer_case *indexer_cases(size_t *count);
indexer_case indexer_draw(uint64_t seed);
bool indexer_wanted(const indexer_case *c, unsigned tag);

enum {
    INDEXER_Q,
    INDEXER_Q_SCALE,
    INDEXER_W,
    INDEXER_KEYS,
    INDEXER_KEY_SCALE,
    INDEXER_TENSOR_SCALE,
    INDEXER_LENGTH,
    INDEXER_BLOCK_TABLE,
    INDEXER_ROW_SEQ,
    INDEXER_CU_KEYS,
    INDEXER_INPUTS,
    INDEXER_INDICES = INDEXER_INPUTS,
    INDEXER_SCORES,
    INDEXER_BUFFERS
};
extern const char *const indexer_buffer_name[INDEXER_BUFFERS];

// Inputs end where their buffer does. Bytes of keys past a sequence's length, and pages that no table names, are 0x77 with
// scales of 254; table words past the last page are 0x7FFFFFF0.
typedef struct indexer_data {
    const indexer_case *c;
    hostile_buffer buffer[INDEXER_BUFFERS];
    quern_indexer_args args; // host pointers into the buffers
} indexer_data;

bool indexer_data_make(const indexer_case *c, indexer_data *data); // false: out of memory
void indexer_data_free(indexer_data *data);
void indexer_data_reset(indexer_data *data); // the outputs' guard bytes again
void indexer_set_pointer(quern_indexer_args *args, int buffer, void *pointer);

// ---- the judge (check_indexer.c)
//
//   padding   -1 (and -inf) from the number of results on
//   indices   valid, distinct, by descending score and rising index, as the kernel's own scores say
//   scores    within (C + H) · 2^-24 · Σ |w| Σ |q · key| of f64; NaN and infinities as the reference's
//   choice    nothing that was left out lies above the last winner by more than both bounds; exact cases: the
//             reference's indices and scores to the last bit

int64_t indexer_check_case(const indexer_data *data, qn_text *report); // mismatches; names the case
void indexer_describe(const indexer_case *c, qn_text *report);
int64_t indexer_same_bits(const indexer_data *first, const indexer_data *second, int *buffer);

#endif
