// SPDX-License-Identifier: Apache-2.0
// The memory table: fixed-size descriptor → value (an op). Knows nothing of families, sources or stores.
//   (1) Finding takes no lock and allocates nothing.
//   (2) A value, once published, is never moved, replaced or forgotten before qn_table_fini.
//   (3) Descriptors are compared whole; the hash only chooses the slot.
//   (4) Writers exclude each other (the caller's lock); readers run beside them.
#ifndef QN_RUNTIME_TABLE_H
#define QN_RUNTIME_TABLE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

enum { QN_TABLE_WORDS = 48 };

typedef struct qn_descriptor {
    size_t count; // words in use
    uint64_t hash;
    uint64_t word[QN_TABLE_WORDS];
} qn_descriptor;

typedef struct qn_table_entry { // never changed, never moved
    qn_descriptor descriptor;
    void *value;
} qn_table_entry;

typedef struct qn_table_level qn_table_level;
typedef struct qn_table {
    _Atomic(qn_table_level *) level; // the newest; the older, smaller ones hang below it until the end
    size_t used;
} qn_table;

void qn_descriptor_seal(qn_descriptor *descriptor); // sets hash, once the words are there

void *qn_table_find(const qn_table *table, const qn_descriptor *descriptor); // NULL: none
const qn_table_entry *qn_table_find_entry(const qn_table *table, const qn_descriptor *descriptor);

// Publishes value, unless the descriptor is there already: *kept is the value that is in the table. OUT_OF_MEMORY.
quern_status qn_table_insert(qn_table *table, const qn_descriptor *descriptor, void *value, void **kept);

// Calls each for every value, then frees the table. No reader may be left.
void qn_table_fini(qn_table *table, void (*each)(void *value));

#endif
