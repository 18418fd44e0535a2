// SPDX-License-Identifier: Apache-2.0
// The memory table: open addressing over pointers to immutable entries. Called by prepare.c; never calls out.
//
//   level ─► [ slot slot slot … ]  at most half full; a slot is set once, with a release store
//     │         └► entry { hash, words, value }
//     └► older ─► …               kept: a reader may still walk it. It misses what came later and takes the slow path.
#include "runtime/table.h"

#include <stdlib.h>

enum { FIRST_SLOTS = 64 };

struct qn_table_level {
    qn_table_level *older;
    size_t mask;
    _Atomic(qn_table_entry *) slot[];
};

__extension__ typedef unsigned __int128 wide; // ISO C has none

// Sums of products of two words, each with a constant of its own: independent of each other, so that they overlap. Short
// of a general hash, and enough to choose a slot by.
void qn_descriptor_seal(qn_descriptor *descriptor)
{
    const uint64_t step = 0x9e3779b97f4a7c15; // 2^64 / golden ratio
    uint64_t constant = step, sum = descriptor->count;
    for (size_t i = 0; i < descriptor->count; i += 2) {
        uint64_t first = descriptor->word[i], second = i + 1 < descriptor->count ? descriptor->word[i + 1] : 0;
        wide product = (wide)(first ^ constant) * (second ^ (constant + step));
        sum += (uint64_t)product ^ (uint64_t)(product >> 64);
        constant += 2 * step;
    }
    sum ^= sum >> 32;
    sum *= step;
    descriptor->hash = sum ^ sum >> 29;
}

static inline bool is_equal(const qn_descriptor *a, const qn_descriptor *b)
{
    if (a->hash != b->hash || a->count != b->count) return false;
    uint64_t differs = 0;
    for (size_t i = 0; i < a->count; i++) differs |= a->word[i] ^ b->word[i];
    return !differs;
}

const qn_table_entry *qn_table_find_entry(const qn_table *table, const qn_descriptor *descriptor)
{
    const qn_table_level *level = atomic_load_explicit(&table->level, memory_order_acquire);
    if (!level) return NULL;
    for (size_t i = (size_t)descriptor->hash & level->mask;; i = (i + 1) & level->mask) {
        const qn_table_entry *found = atomic_load_explicit(&level->slot[i], memory_order_acquire);
        if (!found) return NULL;
        if (is_equal(&found->descriptor, descriptor)) return found;
    }
}

void *qn_table_find(const qn_table *table, const qn_descriptor *descriptor)
{
    const qn_table_entry *found = qn_table_find_entry(table, descriptor);
    return found ? found->value : NULL;
}

static void place(qn_table_level *level, qn_table_entry *item)
{
    size_t i = (size_t)item->descriptor.hash & level->mask;
    while (atomic_load_explicit(&level->slot[i], memory_order_relaxed)) i = (i + 1) & level->mask;
    atomic_store_explicit(&level->slot[i], item, memory_order_release);
}

// A level twice as big with the same entries, published when it is whole.
static quern_status grow(qn_table *table)
{
    qn_table_level *old = atomic_load_explicit(&table->level, memory_order_relaxed);
    size_t slots = old ? (old->mask + 1) * 2 : FIRST_SLOTS;
    qn_table_level *level = calloc(1, sizeof *level + slots * sizeof level->slot[0]);
    if (!level)
        return qn_fail(QUERN_OUT_OF_MEMORY, "out of memory: the memory table could not grow to %zu slots", slots);
    level->older = old;
    level->mask = slots - 1;
    for (size_t i = 0; old && i <= old->mask; i++) {
        qn_table_entry *item = atomic_load_explicit(&old->slot[i], memory_order_relaxed);
        if (item) place(level, item);
    }
    atomic_store_explicit(&table->level, level, memory_order_release);
    return QUERN_OK;
}

quern_status qn_table_insert(qn_table *table, const qn_descriptor *descriptor, void *value, void **kept)
{
    void *present = qn_table_find(table, descriptor);
    if (present) {
        *kept = present;
        return QUERN_OK;
    }
    const qn_table_level *level = atomic_load_explicit(&table->level, memory_order_relaxed);
    if (!level || (table->used + 1) * 2 > level->mask + 1) QN_TRY(grow(table));
    qn_table_entry *item = malloc(sizeof *item);
    if (!item) return qn_fail(QUERN_OUT_OF_MEMORY, "out of memory: no room for an entry of the memory table");
    item->descriptor = *descriptor;
    item->value = value;
    place(atomic_load_explicit(&table->level, memory_order_relaxed), item);
    table->used++;
    *kept = value;
    return QUERN_OK;
}

void qn_table_fini(qn_table *table, void (*each)(void *value))
{
    qn_table_level *level = atomic_load_explicit(&table->level, memory_order_acquire);
    for (size_t i = 0; level && i <= level->mask; i++) {
        qn_table_entry *item = atomic_load_explicit(&level->slot[i], memory_order_relaxed);
        if (!item) continue;
        each(item->value);
        free(item);
    }
    while (level) {
        qn_table_level *older = level->older;
        free(level);
        level = older;
    }
    atomic_store_explicit(&table->level, NULL, memory_order_relaxed);
    table->used = 0;
}
