// SPDX-License-Identifier: Apache-2.0
// Whole database files with changed bytes, cut or not: look-up, store, list, verify, prune and repair never crash, never
// serve wrong bytes, and after a repair the database works.
//
// An input is a length to cut to (3 bytes, 0: none), then changes: offset (3 bytes), count (1 byte), bytes.
#include <string.h>
#include <unistd.h>

#include "base/key.h"
#include "fuzz/fuzz.h"
#include "support/cache_fixture.h"

enum { ROWS = 3, MOST_BYTES = 400000 };

typedef struct input {
    const uint8_t *at, *end;
} input;

static size_t take(input *in, int bytes)
{
    size_t value = 0;

    for (; bytes > 0; bytes--) value = value << 8 | (in->at < in->end ? *in->at++ : 0);
    return value;
}

static void check(quern_status status)
{
    FUZZ_CHECK(status != QUERN_INTERNAL && status != QUERN_OUT_OF_MEMORY);
}

// What the library does with an answer: an image whose sum is wrong is not used. All else must be as it was stored.
static int judge(void *user, const quern_record *found)
{
    const quern_record *wanted = user;
    qn_hash sum = qn_hash_bytes(found->image, found->image_bytes);

    if (memcmp(sum.bytes, found->sum, 16) != 0) return 0;
    FUZZ_CHECK(found->image_bytes == wanted->image_bytes && !memcmp(found->image, wanted->image, wanted->image_bytes));
    FUZZ_CHECK(found->key_bytes == wanted->key_bytes && !memcmp(found->key, wanted->key, wanted->key_bytes));
    FUZZ_CHECK(!strcmp(found->toolchain, wanted->toolchain) && !strcmp(found->arch, wanted->arch));
    FUZZ_CHECK(!strcmp(found->entry, wanted->entry) && !strcmp(found->spec, wanted->spec));
    FUZZ_CHECK(found->kind == wanted->kind && found->registers == wanted->registers);
    FUZZ_CHECK(found->shared_bytes == wanted->shared_bytes && found->local_bytes == wanted->local_bytes);
    return 0;
}

static void look_up(quern_store *store, int number)
{
    cache_sample sample;

    cache_sample_make(&sample, number, 5000);
    check(store->get(store->self, &sample.record, NULL, judge, &sample.record));
    cache_sample_free(&sample);
}

static void use(const char *file)
{
    qn_verify_report report;
    int64_t removed, bytes;
    quern_store store = cache_open(file);

    for (int i = 1; i <= ROWS; i++) look_up(&store, i);
    cache_count(&store);
    check(cache_put(&store, ROWS + 1));
    check(qn_sqlite_verify(&store, NULL, NULL, &report));
    check(qn_sqlite_prune(&store, -1, 0, &removed, &bytes));
    for (int i = 1; i <= ROWS + 1; i++) look_up(&store, i);
    qn_sqlite_close(&store);
}

static void repair(const char *file)
{
    qn_sqlite_options options = cache_options(file);
    qn_text aside = QN_TEXT_INIT;
    int64_t saved = 0;

    quern_status status = qn_sqlite_repair(&options, &saved, &aside);
    check(status);
    if (aside.length) unlink(aside.bytes);
    qn_text_fini(&aside);
    if (status != QUERN_OK) return; // another program's, a newer one, as far as its bytes tell
    quern_store store = cache_open(file);
    if (!qn_sqlite_is_sealed(&store)) {
        FUZZ_CHECK(cache_put(&store, ROWS + 1) == QUERN_OK);
        FUZZ_CHECK(cache_get(&store, ROWS + 1) == QUERN_OK);
    }
    for (int i = 1; i <= ROWS; i++) look_up(&store, i);
    qn_sqlite_close(&store);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count)
{
    static const char *file;
    static uint8_t fresh[MOST_BYTES], changed[MOST_BYTES];
    static size_t fresh_bytes;
    input in = {bytes, bytes + count};
    char journal[160];

    if (!file) {
        file = fuzz_file(".db");
        quern_store store = cache_open(file);
        for (int i = 1; i <= ROWS; i++) FUZZ_CHECK(cache_put(&store, i) == QUERN_OK);
        qn_sqlite_close(&store);
        fresh_bytes = (size_t)cache_file_size(file);
        if (fresh_bytes > sizeof fresh) abort();
        cache_read_at(file, 0, fresh, fresh_bytes);
    }
    memcpy(changed, fresh, fresh_bytes);
    size_t length = take(&in, 3) % (fresh_bytes + 1);
    while (in.at < in.end) {
        size_t offset = take(&in, 3) % fresh_bytes, n = take(&in, 1);
        for (; n > 0 && offset < fresh_bytes; n--) changed[offset++] = (uint8_t)take(&in, 1);
    }
    snprintf(journal, sizeof journal, "%s-journal", file);
    unlink(journal);
    fuzz_write(file, changed, length ? length : fresh_bytes);
    use(file);
    repair(file);
    return 0;
}
