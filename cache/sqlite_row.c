// SPDX-License-Identifier: Apache-2.0
// One row of table kernel: read and copied out of SQLite's memory, so that nobody looks at it while a lock is held;
// and judged, since SQLite does not notice a flipped bit. Called by the files that read rows.
//   (1) rowsum covers every column but id, image and used (key by its hash). sum covers the image; used may change, and
//       says only how soon a row is evicted.
//   (2) A row of wrong types is a damaged row, not an error.
#include "cache/sqlite_private.h"

#include <string.h>

// In the order of QN_ROW_HEAD.
enum {
    AT_ID,
    AT_HASH,
    AT_KEY,
    AT_TOOLCHAIN,
    AT_ARCH,
    AT_ENTRY,
    AT_SPEC,
    AT_KIND,
    AT_SUM,
    AT_REGS,
    AT_SMEM,
    AT_LMEM,
    AT_COMPILE_US,
    AT_CREATED,
    AT_USED,
    AT_ROWSUM,
    AT_IMAGE_BYTES,
    AT_IMAGE
};

quern_status qn_row_sum(const quern_record *record, qn_hash *sum)
{
    qn_text bytes = QN_TEXT_INIT;
    qn_hash key = qn_hash_bytes(record->key, record->key_bytes);

    qn_key_put_bytes(&bytes, 'h', record->hash, sizeof record->hash);
    qn_key_put_bytes(&bytes, 'y', key.bytes, sizeof key.bytes);
    qn_key_put_string(&bytes, 't', record->toolchain);
    qn_key_put_string(&bytes, 'a', record->arch);
    qn_key_put_string(&bytes, 'e', record->entry);
    qn_key_put_string(&bytes, 'p', record->spec);
    qn_key_put_int(&bytes, 'k', record->kind);
    qn_key_put_bytes(&bytes, 's', record->sum, sizeof record->sum);
    qn_key_put_int(&bytes, 'r', record->registers);
    qn_key_put_int(&bytes, 'm', record->shared_bytes);
    qn_key_put_int(&bytes, 'l', record->local_bytes);
    qn_key_put_int(&bytes, 'u', record->compile_us);
    qn_key_put_int(&bytes, 'c', record->created);
    quern_status status = qn_text_check(&bytes);
    if (!status) *sum = qn_hash_bytes(bytes.bytes, bytes.length);
    qn_text_fini(&bytes);
    return status;
}

bool qn_key_is_right(const quern_record *record)
{
    qn_hash hash = qn_hash_bytes(record->key, record->key_bytes);

    return !memcmp(hash.bytes, record->hash, sizeof hash.bytes);
}

bool qn_image_is_right(const quern_record *record)
{
    if (!record->image || !record->image_bytes) return false;
    qn_hash sum = qn_hash_bytes(record->image, record->image_bytes);

    return !memcmp(sum.bytes, record->sum, sizeof sum.bytes);
}

// Appends a column's bytes and a 0; *at is where they begin, *count how many. False if the column has another type.
static bool copy(qn_text *bytes, sqlite3_stmt *statement, int column, int type, size_t *at, size_t *count)
{
    const void *from = type == SQLITE_TEXT ? (const void *)sqlite3_column_text(statement, column)
                                           : sqlite3_column_blob(statement, column);
    bool right = sqlite3_column_type(statement, column) == type;

    *at = bytes->length;
    *count = from ? (size_t)sqlite3_column_bytes(statement, column) : 0;
    if (from) qn_text_put(bytes, from, *count);
    qn_text_put(bytes, "", 1);
    // A text with a 0 in it would be another text to C.
    return right && (type != SQLITE_TEXT || strlen(bytes->failed ? "" : bytes->bytes + *at) == *count);
}

static bool take_int32(sqlite3_stmt *statement, int column, int32_t *value)
{
    int64_t wide = sqlite3_column_int64(statement, column);

    *value = (int32_t)wide;
    return sqlite3_column_type(statement, column) == SQLITE_INTEGER && wide == *value;
}

static bool take_int64(sqlite3_stmt *statement, int column, int64_t *value)
{
    *value = sqlite3_column_int64(statement, column);
    return sqlite3_column_type(statement, column) == SQLITE_INTEGER;
}

static bool take_hash(sqlite3_stmt *statement, int column, unsigned char hash[16])
{
    const void *from = sqlite3_column_blob(statement, column);

    memset(hash, 0, 16);
    if (!from || sqlite3_column_type(statement, column) != SQLITE_BLOB || sqlite3_column_bytes(statement, column) != 16)
        return false;
    memcpy(hash, from, 16);
    return true;
}

static bool take_numbers(quern_record *record, sqlite3_stmt *statement)
{
    int64_t image_bytes = 0;
    bool right = take_int32(statement, AT_KIND, &record->kind);

    right &= take_int32(statement, AT_REGS, &record->registers);
    right &= take_int32(statement, AT_SMEM, &record->shared_bytes);
    right &= take_int32(statement, AT_LMEM, &record->local_bytes);
    right &= take_int64(statement, AT_COMPILE_US, &record->compile_us);
    right &= take_int64(statement, AT_CREATED, &record->created);
    right &= take_int64(statement, AT_USED, &record->used);
    right &= take_int64(statement, AT_IMAGE_BYTES, &image_bytes);
    record->image_bytes = image_bytes > 0 ? (size_t)image_bytes : 0;
    return right;
}

static bool has_wanted_key(const qn_row *row, sqlite3_stmt *statement)
{
    const quern_record *wanted = row->wanted;
    if (!wanted || !wanted->key || sqlite3_column_type(statement, AT_KEY) != SQLITE_BLOB) return false;
    const void *key = sqlite3_column_blob(statement, AT_KEY);
    return key && (size_t)sqlite3_column_bytes(statement, AT_KEY) == wanted->key_bytes &&
           !memcmp(key, wanted->key, wanted->key_bytes);
}

// Texts and blobs. The image comes first, for the alignment of what was just allocated; positions become pointers at
// the end, since the buffer moves while it grows.
static bool take_bytes(qn_row *row, sqlite3_stmt *statement)
{
    static const int texts[] = {AT_TOOLCHAIN, AT_ARCH, AT_ENTRY, AT_SPEC};
    size_t at_image = 0, at_key, at_text[4], unused;
    quern_record *record = &row->record;
    bool with_image = sqlite3_column_count(statement) > AT_IMAGE, right = true;
    bool same_key = has_wanted_key(row, statement);

    qn_text_clear(&row->bytes);
    qn_text_reserve(&row->bytes, (with_image ? record->image_bytes : 0) + 1024); // most texts are short
    if (with_image) right = copy(&row->bytes, statement, AT_IMAGE, SQLITE_BLOB, &at_image, &record->image_bytes);
    if (same_key)
        at_key = 0, record->key_bytes = row->wanted->key_bytes;
    else
        right &= copy(&row->bytes, statement, AT_KEY, SQLITE_BLOB, &at_key, &record->key_bytes);
    for (int i = 0; i < 4; i++) right &= copy(&row->bytes, statement, texts[i], SQLITE_TEXT, &at_text[i], &unused);
    if (row->bytes.failed) return false;
    const char *base = row->bytes.bytes;
    record->image = with_image ? base + at_image : NULL;
    record->key = same_key ? row->wanted->key : base + at_key;
    record->toolchain = base + at_text[0];
    record->arch = base + at_text[1];
    record->entry = base + at_text[2];
    record->spec = base + at_text[3];
    return right;
}

int qn_row_read(qn_row *row, sqlite3_stmt *statement)
{
    unsigned char stored[16];
    qn_hash sum;

    memset(&row->record, 0, sizeof row->record);
    row->record.size = sizeof row->record;
    row->id = sqlite3_column_int64(statement, AT_ID);
    row->sound = take_numbers(&row->record, statement);
    row->sound &= take_bytes(row, statement);
    row->sound &= take_hash(statement, AT_HASH, row->record.hash);
    row->sound &= take_hash(statement, AT_SUM, row->record.sum);
    row->sound &= take_hash(statement, AT_ROWSUM, stored);
    if (row->bytes.failed || sqlite3_errcode(sqlite3_db_handle(statement)) == SQLITE_NOMEM) return SQLITE_NOMEM;
    if (!row->sound) return SQLITE_OK;
    if (qn_row_sum(&row->record, &sum)) return SQLITE_NOMEM;
    row->sound = !memcmp(sum.bytes, stored, sizeof stored);
    return SQLITE_OK;
}

void qn_row_fini(qn_row *row)
{
    qn_text_fini(&row->bytes);
}
