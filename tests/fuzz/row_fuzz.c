// SPDX-License-Identifier: Apache-2.0
// Rows of a database: one row of any types and bytes, put in past the table's checks, beside a good one. Whatever it is,
// it is served only if its own sum is right, the good row is served, and prune and repair leave a sound database.
//
// An input is a byte of flags (which sums are made right), then for each column a type, a length, bytes.
#include <string.h>
#include <unistd.h>

#include "cache/sqlite_private.h"
#include "fuzz/fuzz.h"
#include "support/cache_fixture.h"

enum { COLUMNS = 15, RIGHT_HASH = 1, RIGHT_SUM = 2, RIGHT_ROWSUM = 4, LONGEST = 1024, GOOD = 1 };
enum { AT_HASH, AT_KEY, AT_TOOLCHAIN, AT_ARCH, AT_ENTRY, AT_SPEC, AT_KIND, AT_SUM, AT_REGS, AT_SMEM, AT_LMEM };
enum { AT_COMPILE_US = AT_LMEM + 1, AT_CREATED, AT_USED, AT_ROWSUM, AT_IMAGE };

typedef struct value {
    int type; // SQLITE_…
    int64_t number;
    const uint8_t *bytes;
    size_t count;
} value;

typedef struct input {
    const uint8_t *at, *end;
} input;

static int take(input *in)
{
    return in->at < in->end ? *in->at++ : 0;
}

static value take_value(input *in)
{
    static const int types[] = {SQLITE_BLOB, SQLITE_TEXT, SQLITE_INTEGER, SQLITE_FLOAT, SQLITE_NULL};
    value v = {.type = types[take(in) % 5]};

    v.count = (size_t)(take(in) | (take(in) & 3) << 8);
    if (v.count > (size_t)(in->end - in->at)) v.count = (size_t)(in->end - in->at);
    v.bytes = in->at;
    in->at += v.count;
    for (size_t i = 0; i < v.count && i < 8; i++) v.number = (int64_t)((uint64_t)v.number << 8 | v.bytes[i]);
    return v;
}

static void bind(sqlite3_stmt *statement, int column, const value *v)
{
    int code = SQLITE_OK;

    if (v->type == SQLITE_BLOB) code = sqlite3_bind_blob(statement, column, v->bytes, (int)v->count, SQLITE_STATIC);
    if (v->type == SQLITE_TEXT)
        code = sqlite3_bind_text(statement, column, (const char *)v->bytes, (int)v->count, SQLITE_STATIC);
    if (v->type == SQLITE_INTEGER) code = sqlite3_bind_int64(statement, column, v->number);
    if (v->type == SQLITE_FLOAT) code = sqlite3_bind_double(statement, column, (double)v->number);
    if (code) abort();
}

static void make_right(value *v, const void *bytes)
{
    *v = (value){.type = SQLITE_BLOB, .bytes = bytes, .count = 16};
}

static char *string_of(const value *v)
{
    char *text = calloc(1, v->count + 1);

    if (!text) abort();
    memcpy(text, v->bytes, v->count);
    return text;
}

// The row's own sum over what the columns hold.
static qn_hash rowsum_of(const value *v)
{
    char *texts[4];
    qn_hash sum;
    quern_record record = {.size = sizeof record, .key = v[AT_KEY].bytes, .key_bytes = v[AT_KEY].count};

    for (int i = 0; i < 4; i++) texts[i] = string_of(&v[AT_TOOLCHAIN + i]);
    if (v[AT_HASH].count == 16) memcpy(record.hash, v[AT_HASH].bytes, 16);
    if (v[AT_SUM].count == 16) memcpy(record.sum, v[AT_SUM].bytes, 16);
    record.toolchain = texts[0], record.arch = texts[1], record.entry = texts[2], record.spec = texts[3];
    record.kind = (int32_t)v[AT_KIND].number, record.registers = (int32_t)v[AT_REGS].number;
    record.shared_bytes = (int32_t)v[AT_SMEM].number, record.local_bytes = (int32_t)v[AT_LMEM].number;
    record.compile_us = v[AT_COMPILE_US].number, record.created = v[AT_CREATED].number;
    if (qn_row_sum(&record, &sum)) abort();
    for (int i = 0; i < 4; i++) free(texts[i]);
    return sum;
}

static void put_row(const char *file, const value *v)
{
    sqlite3 *db = NULL;
    sqlite3_stmt *statement = NULL;

    if (sqlite3_open(file, &db) || sqlite3_exec(db, "PRAGMA ignore_check_constraints=1", NULL, NULL, NULL)) abort();
    if (sqlite3_prepare_v2(db,
                           "INSERT OR IGNORE INTO kernel(hash,key,toolchain,arch,entry,spec,kind,sum,regs,smem,lmem,"
                           "compile_us,created,used,rowsum,image) VALUES(?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)",
                           -1, &statement, NULL))
        abort();
    for (int i = 0; i <= COLUMNS; i++) bind(statement, i + 1, &v[i]);
    sqlite3_step(statement); // a NULL is refused even so
    sqlite3_finalize(statement);
    sqlite3_close(db);
}

// ---- what must hold

typedef struct seen {
    const value *v;
    int good, other;
} seen;

static int look(void *user, const quern_record *record)
{
    seen *s = user;
    cache_sample sample;
    qn_hash hash = qn_hash_bytes(record->key, record->key_bytes);

    FUZZ_CHECK(record->toolchain && record->arch && record->entry && record->spec);
    cache_sample_make(&sample, GOOD, 5000);
    if (record->key_bytes == sample.record.key_bytes && !memcmp(hash.bytes, sample.record.hash, 16))
        s->good++;
    else
        s->other++;
    cache_sample_free(&sample);
    return 0;
}

static int take_found(void *user, const quern_record *found)
{
    const value *v = user;

    FUZZ_CHECK(found->key_bytes == v[AT_KEY].count && !memcmp(found->key, v[AT_KEY].bytes, v[AT_KEY].count));
    FUZZ_CHECK(found->image_bytes == v[AT_IMAGE].count);
    qn_hash sum = rowsum_of(v);
    FUZZ_CHECK(v[AT_ROWSUM].count == 16 && !memcmp(sum.bytes, v[AT_ROWSUM].bytes, 16));
    return 0;
}

static void ask_for_it(quern_store *store, const value *v)
{
    quern_record wanted = {.size = sizeof wanted, .key = v[AT_KEY].bytes, .key_bytes = v[AT_KEY].count};

    if (v[AT_HASH].count == 16) memcpy(wanted.hash, v[AT_HASH].bytes, 16);
    store->get(store->self, &wanted, NULL, take_found, (void *)(uintptr_t)v);
}

static void walk(quern_store *store, const value *v)
{
    seen s = {.v = v};
    int64_t removed, bytes;
    qn_verify_report report;

    ask_for_it(store, v);
    FUZZ_CHECK(store->list(store->self, 1, look, &s) == QUERN_OK);
    FUZZ_CHECK(s.good == 1 && s.other <= 1);
    FUZZ_CHECK(qn_sqlite_verify(store, NULL, NULL, &report) == QUERN_OK);
    FUZZ_CHECK(qn_sqlite_prune(store, -1, 0, &removed, &bytes) == QUERN_OK);
    FUZZ_CHECK(qn_sqlite_verify(store, NULL, NULL, &report) == QUERN_OK && report.structure_ok);
    FUZZ_CHECK(report.bad_key + report.bad_sum + report.bad_image == 0);
    FUZZ_CHECK(cache_get(store, GOOD) == QUERN_OK);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count)
{
    static const char *file;
    static char fresh[200000];
    static size_t fresh_bytes;
    value v[COLUMNS + 1];
    qn_hash hash, sum, rowsum;
    input in = {bytes, bytes + count};

    if (!file) { // a database with the one good row, made once
        file = fuzz_file(".db");
        quern_store store = cache_open(file);
        FUZZ_CHECK(cache_put(&store, GOOD) == QUERN_OK);
        qn_sqlite_close(&store);
        fresh_bytes = (size_t)cache_file_size(file);
        if (fresh_bytes > sizeof fresh) abort();
        cache_read_at(file, 0, fresh, fresh_bytes);
    }
    int flags = take(&in);
    for (int i = 0; i <= COLUMNS; i++) v[i] = take_value(&in);
    hash = qn_hash_bytes(v[AT_KEY].bytes, v[AT_KEY].count);
    sum = qn_hash_bytes(v[AT_IMAGE].bytes, v[AT_IMAGE].count);
    if (flags & RIGHT_HASH) make_right(&v[AT_HASH], hash.bytes);
    if (flags & RIGHT_SUM) make_right(&v[AT_SUM], sum.bytes);
    rowsum = rowsum_of(v);
    if (flags & RIGHT_ROWSUM) make_right(&v[AT_ROWSUM], rowsum.bytes);
    fuzz_write(file, fresh, fresh_bytes);
    put_row(file, v);
    quern_store store = cache_open(file);
    walk(&store, v);
    qn_sqlite_close(&store);
    return 0;
}
