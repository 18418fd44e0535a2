// SPDX-License-Identifier: Apache-2.0
// The one list of hostile cases of attention: what broke others (field reports), empty and masked rows, lengths at the
// edges of blocks and pages, layouts, and a set that pairs every value of every feature with every other. Shared by
// tests/unit (the reference), tests/simt (the model) and tests/gpu. Knows nothing of plans and devices.
//   (1) Everything follows from the case. A sequence's content depends on its own number, not on where it stands.
//   (2) Memory that no position of a sequence names is filled with what the caller says (NaN, infinities, 0): it must
//       not change a bit of the results.
//
// hostile_attention.c is the list, hostile_attention_pairs.c the paired set, hostile_attention_data.c the tensors.
#ifndef TESTS_SUPPORT_HOSTILE_ATTENTION_H
#define TESTS_SUPPORT_HOSTILE_ATTENTION_H

#include "support/hostile.h"

enum { ATTENTION_MOST_B = 8 };

// How a tensor lies: packed in the order of its axes; heads before positions; with 8 elements between rows, or with one,
// so that rows begin anywhere.
typedef enum attention_order {
    ATTENTION_PACKED,
    ATTENTION_HEADS_FIRST,
    ATTENTION_LOOSE,
    ATTENTION_UNALIGNED,
    ATTENTION_ORDERS
} attention_order;

// What q, k and v hold; p and r are the case's.
typedef enum attention_fill {
    ATTENTION_NORMAL,    // p times normal numbers
    ATTENTION_LONG_TAIL, // p times cubes of normal numbers
    ATTENTION_POINT,     // q[0] = p, k[0] = r, the rest 0; v = 1
    ATTENTION_POINT_17,  // the same, but k[0] of key 17 is r / 2; v = the key's number modulo 256
    ATTENTION_FAR_TAIL // scale 1: key 0's score just above 16 in units of log2, with v = 0; 23 below it all others', v = 1
} attention_fill;

typedef struct attention_case {
    char name[64];  // unique
    char text[256]; // the spec as text
    unsigned tags;  // HOSTILE_MODEL …
    quern_attention_spec spec;
    int64_t B, Hq, Hkv;
    int64_t queries[ATTENTION_MOST_B], keys[ATTENTION_MOST_B]; // of each sequence
    int64_t Sk;                                                // dense: positions of k; else the longest
    int64_t first;                                             // number of the first sequence
    bool sizes_unknown;                                        // ragged, paged: Sq and Sk are given as 0
    attention_order order;
    int64_t offset; // of every tensor, in elements from a multiple of 256 bytes
    uint64_t seed;
    attention_fill fill;
    float p, r;
    float sink; // of head 0; others around it
    bool exact; // out is that of the reference bit for bit
} attention_case;

// The list, made at the first call (not from several threads); lives as long as the process.
const attention_case *attention_cases(size_t *count);
bool attention_wanted(const attention_case *c, unsigned tag); // and $QUERN_TEST_CASE is in its name, when that is set

// Appends the paired set (hostile_attention_pairs.c); returns how many there are, at most `most`.
size_t attention_pairs(attention_case *cases, size_t most, uint64_t seed);
// Reads the spec and completes it. False: it is refused, and *message says why.
bool attention_case_parse(attention_case *c, const char **message);

// One of its sequences alone, with the same content.
attention_case attention_alone(const attention_case *c, int64_t sequence);

enum {
    ATTENTION_Q,
    ATTENTION_K,
    ATTENTION_V,
    ATTENTION_SINK,
    ATTENTION_CU_Q,
    ATTENTION_CU_K,
    ATTENTION_TABLE,
    ATTENTION_LENGTH,
    ATTENTION_INPUTS,
    ATTENTION_OUT = ATTENTION_INPUTS,
    ATTENTION_LSE,
    ATTENTION_BUFFERS
};
extern const char *const attention_buffer_name[ATTENTION_BUFFERS];

typedef struct attention_data {
    const attention_case *c;
    hostile_buffer buffer[ATTENTION_BUFFERS];
    quern_attention_args args; // host pointers into the buffers
} attention_data;

// poison: the 16 bits of every element of q, k and v that no position names. False: out of memory.
bool attention_data_make(const attention_case *c, uint16_t poison, attention_data *data);
void attention_data_free(attention_data *data);
void attention_data_reset(attention_data *data); // the outputs' guard bytes again
void attention_set_pointer(quern_attention_args *args, int buffer, void *pointer);
int64_t attention_guard_broken(const attention_data *data, int buffer); // place of a byte that was written, or -1

// Where a row of q or out, and one of k or v, lies: elements from the tensor's first one.
int64_t attention_row_of_query(const attention_case *c, int buffer, int64_t sequence, int64_t query, int64_t head);
int64_t attention_row_of_key(const attention_case *c, int buffer, int64_t sequence, int64_t key, int64_t head);

#endif
