// SPDX-License-Identifier: Apache-2.0
// The key writer: canonical bytes of everything that makes a kernel. Each item is a tag (1 byte), a length (u64, little
// endian) and the bytes, so that no two contents give the same key. Integers are 8 bytes, little endian.
#ifndef QN_BASE_KEY_H
#define QN_BASE_KEY_H

#include "base/text.h"

typedef struct qn_hash {
    unsigned char bytes[16]; // XXH3-128, canonical (big endian) form
} qn_hash;

qn_hash qn_hash_bytes(const void *bytes, size_t count);
quern_status qn_hash_file(const char *path, qn_hash *hash); // of a file's bytes; FILE_ERROR with the reason
void qn_hash_hex(const qn_hash *hash, char hex[33]);

void qn_key_put_bytes(qn_text *key, char tag, const void *bytes, size_t count);
void qn_key_put_string(qn_text *key, char tag, const char *string);
void qn_key_put_int(qn_text *key, char tag, int64_t value);
// An item whose bytes are put into the key between begin, which returns where they start, and end.
size_t qn_key_begin(qn_text *key, char tag);
void qn_key_end(qn_text *key, size_t start);

// Walks a key's items in order; false at the end or at malformed bytes. *at starts at 0.
typedef struct qn_key_item {
    char tag;
    const unsigned char *bytes;
    size_t count;
} qn_key_item;
bool qn_key_next(const void *key, size_t key_bytes, size_t *at, qn_key_item *item);

#endif
