// SPDX-License-Identifier: Apache-2.0
// Images in memory: lists that only grow, newest first, one for each value of a hash's first bits. Readers take no lock;
// an entry lives as long as the quern.
#include <stdlib.h>
#include <string.h>

#include "runtime/private.h"

static bool is_equal(const qn_entry *entry, const qn_hash *hash, const qn_text *key)
{
    return !memcmp(entry->hash.bytes, hash->bytes, sizeof hash->bytes) && entry->key.length == key->length &&
           !memcmp(entry->key.bytes, key->bytes, key->length);
}

static qn_entry *find_until(qn_entry *from, const qn_entry *end, const qn_hash *hash, const qn_text *key)
{
    for (qn_entry *entry = from; entry != end; entry = entry->next)
        if (is_equal(entry, hash, key) && !atomic_load_explicit(&entry->dropped, memory_order_relaxed)) return entry;
    return NULL;
}

static _Atomic(qn_entry *) *list_of(quern *q, const qn_hash *hash)
{
    return &q->entries[(hash->bytes[0] | hash->bytes[1] << 8) % QN_MEMORY_LISTS];
}

qn_entry *qn_memory_find(quern *q, const qn_hash *hash, const qn_text *key)
{
    return find_until(atomic_load_explicit(list_of(q, hash), memory_order_acquire), NULL, hash, key);
}

qn_entry *qn_memory_publish(quern *q, qn_entry *entry)
{
    _Atomic(qn_entry *) *list = list_of(q, &entry->hash);
    qn_entry *head = atomic_load_explicit(list, memory_order_acquire), *seen = NULL;
    do {
        qn_entry *present = find_until(head, seen, &entry->hash, &entry->key);
        if (present) {
            qn_entry_free(entry);
            return present;
        }
        entry->next = seen = head;
    } while (!atomic_compare_exchange_weak_explicit(list, &head, entry, memory_order_acq_rel, memory_order_acquire));
    return entry;
}

void qn_entry_free(qn_entry *entry)
{
    qn_text_fini(&entry->image.bytes);
    qn_text_fini(&entry->key);
    free(entry);
}
