// SPDX-License-Identifier: Apache-2.0
// A family's hostile cases, their data and their judge, as drivers that are generic over families see them: those of
// tests/simt (simt_cases.h) and tests/gpu (gpu_cases.h). softmax_topk, whose cases are the common ones, has its own.
#ifndef TESTS_SUPPORT_FAMILY_CASES_H
#define TESTS_SUPPORT_FAMILY_CASES_H

#include "base/text.h"
#include "ops/family.h"
#include "support/hostile.h"

enum { FAMILY_MOST_BUFFERS = 16 };

// A case begins with name, text, tags and spec; its data is inputs and outputs on the host, with guard bytes.
typedef struct family_cases {
    const qn_family *family;
    size_t (*count)(void);
    const void *(*at)(size_t index);
    bool (*wanted)(const void *c, unsigned tag); // tagged so, and $QUERN_TEST_CASE is in its name, when that is set
    void (*describe)(const void *c, qn_text *report);
    size_t tags_offset, spec_offset; // in a case
    size_t data_bytes, buffer_offset, args_offset;
    int buffers, inputs; // the first ones are inputs
    const char *const *buffer_name;
    // poison: what memory holds that no kernel may look at, where the family has such (attention); others have none.
    bool (*make)(const void *c, uint16_t poison, void *data); // false: out of memory
    void (*free)(void *data);
    void (*reset)(void *data); // the outputs' guard bytes again
    void (*set_pointer)(quern_args *args, int buffer, void *pointer);
    int64_t (*check)(const void *data, qn_text *report); // mismatches; names the case
    int64_t (*same_bits)(const void *first, const void *second, int *buffer);
    quern_status (*launch)(const quern_op *op, const quern_args *args,
                           struct CUstream_st *stream); // the typed function
} family_cases;

extern const family_cases gate_family, router_family, attention_family, indexer_family;

const void *family_case_named(const family_cases *f, const char *name); // fails the test when there is none
const char *family_case_name(const void *c);
const char *family_case_text(const void *c);
unsigned family_case_tags(const family_cases *f, const void *c);
const quern_spec *family_case_spec(const family_cases *f, const void *c);
const hostile_buffer *family_buffer(const family_cases *f, const void *data, int buffer);
quern_args *family_args(const family_cases *f, const void *data);
// Room for the data of one case; to be freed after family->free. Fails the test without memory.
void *family_data_make(const family_cases *f, const void *c, uint16_t poison);
void family_data_free(const family_cases *f, void *data);

// Whether a part of a list is asked for: $QUERN_TEST_CASE, or $QUERN_TEST_SHARD=i/n, every n-th case.
bool family_is_part(void);
bool family_is_in_shard(size_t index);

// ---- what a list came to

enum { FAMILY_MOST_REPORTS = 10 }; // that a list prints; the rest is counted
typedef struct family_verdict {
    size_t cases, failed;
} family_verdict;
// Counts a case, whose report is empty if it was right, and empties the report.
void family_count(family_verdict *v, qn_text *report);
// Prints what ran. Fails the test when a case failed, or when fewer ran than `least` of a whole list.
void family_conclude(const family_verdict *v, const char *what, size_t least);

#endif
