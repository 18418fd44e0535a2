// SPDX-License-Identifier: Apache-2.0
// The key writer and reader, and XXH3-128. Called by runtime (keys) and cache (hashes, sums).
//
//     tag (1) | length (8, little endian) | bytes     tag | length | bytes     …
//
//   (1) Two different sequences of items never give the same bytes.
//   (2) The bytes do not depend on the machine's byte order.
#include "base/key.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

enum { HEAD = 9 }; // tag and length

qn_hash qn_hash_bytes(const void *bytes, size_t count)
{
    XXH128_canonical_t canonical;
    qn_hash hash;

    XXH128_canonicalFromHash(&canonical, XXH3_128bits(count ? bytes : "", count));
    _Static_assert(sizeof canonical.digest == sizeof hash.bytes, "XXH3-128 has 16 bytes");
    memcpy(hash.bytes, canonical.digest, sizeof hash.bytes);
    return hash;
}

static bool hash_all(int fd, XXH3_state_t *state)
{
    char block[65536];

    for (;;) {
        ssize_t count = read(fd, block, sizeof block);
        if (count < 0 && errno == EINTR) continue;
        if (count <= 0) return !count;
        XXH3_128bits_update(state, block, (size_t)count);
    }
}

quern_status qn_hash_file(const char *path, qn_hash *hash)
{
    XXH128_canonical_t canonical;
    int fd = open(path, O_RDONLY | O_CLOEXEC);

    if (fd < 0) return qn_fail(QUERN_FILE_ERROR, "opening '%s': %s", path, strerror(errno));
    XXH3_state_t *state = XXH3_createState();
    if (state) XXH3_128bits_reset(state);
    bool done = state && hash_all(fd, state);
    int error = state ? errno : ENOMEM;
    close(fd);
    if (done) {
        XXH128_canonicalFromHash(&canonical, XXH3_128bits_digest(state));
        memcpy(hash->bytes, canonical.digest, sizeof hash->bytes);
    }
    XXH3_freeState(state);
    return done ? QUERN_OK : qn_fail(QUERN_FILE_ERROR, "reading '%s': %s", path, strerror(error));
}

void qn_hash_hex(const qn_hash *hash, char hex[33])
{
    static const char digits[] = "0123456789abcdef";

    for (int i = 0; i < 16; i++) {
        hex[2 * i] = digits[hash->bytes[i] >> 4];
        hex[2 * i + 1] = digits[hash->bytes[i] & 15];
    }
    hex[32] = 0;
}

static void put_le64(unsigned char out[8], uint64_t value)
{
    for (int i = 0; i < 8; i++) out[i] = (unsigned char)(value >> (8 * i));
}

void qn_key_put_bytes(qn_text *key, char tag, const void *bytes, size_t count)
{
    unsigned char head[HEAD];

    head[0] = (unsigned char)tag;
    put_le64(head + 1, count);
    qn_text_put(key, head, HEAD);
    qn_text_put(key, bytes, count);
}

void qn_key_put_string(qn_text *key, char tag, const char *string)
{
    qn_key_put_bytes(key, tag, string, strlen(string));
}

void qn_key_put_int(qn_text *key, char tag, int64_t value)
{
    unsigned char bytes[8];

    put_le64(bytes, (uint64_t)value);
    qn_key_put_bytes(key, tag, bytes, sizeof bytes);
}

size_t qn_key_begin(qn_text *key, char tag)
{
    qn_key_put_bytes(key, tag, "", 0);
    return key->length;
}

void qn_key_end(qn_text *key, size_t start)
{
    if (!key->failed) put_le64((unsigned char *)key->bytes + start - HEAD + 1, key->length - start);
}

bool qn_key_next(const void *key, size_t key_bytes, size_t *at, qn_key_item *item)
{
    const unsigned char *bytes = key;
    uint64_t count = 0;

    if (*at > key_bytes || key_bytes - *at < HEAD) return false;
    for (int i = 0; i < 8; i++) count |= (uint64_t)bytes[*at + 1 + (size_t)i] << (8 * i);
    if (count > key_bytes - *at - HEAD) return false;
    item->tag = (char)bytes[*at];
    item->bytes = bytes + *at + HEAD;
    item->count = (size_t)count;
    *at += HEAD + (size_t)count;
    return true;
}
