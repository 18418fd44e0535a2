// SPDX-License-Identifier: Apache-2.0
// Promise (5) against what SQLite does not prevent: flipped bits, cut and wiped files. A damaged row is a miss, and the
// next process has it again; a damaged file is never touched but by repair, which saves what can be read and keeps the
// inode, so that whoever has the file open goes on.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/key.h"
#include "support/cache_fixture.h"
#include "support/fault_count.h"
#include "support/fault_vfs.h"
#include "support/load.h"

enum { PAGE = 16384, KERNEL_PAGE = 2 }; // table kernel's first page, counted from 0

static char folder[64], file[128];

static int set_up(void **state)
{
    (void)state;
    fault_vfs_install(); // without a plan, only for its sync that costs nothing: this file repairs a hundred times
    cache_folder_make(folder);
    strcpy(file, cache_path(folder, "quern-v1.db"));
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    cache_folder_remove(folder);
    return 0;
}

// What the library does with a store: what comes is verified, what is bad is removed, what is missing is made again.
typedef struct asked {
    cache_sample sample;
    quern_store *store;
    bool right, bad;
} asked;

static int judge(void *user, const quern_record *found)
{
    asked *a = user;
    const quern_record *wanted = &a->sample.record;
    qn_hash sum = qn_hash_bytes(found->image, found->image_bytes);

    a->bad = memcmp(sum.bytes, found->sum, 16) != 0;
    a->right = found->image_bytes == wanted->image_bytes && !memcmp(found->image, wanted->image, wanted->image_bytes) &&
               !strcmp(found->entry, wanted->entry) && !strcmp(found->arch, wanted->arch) &&
               !strcmp(found->toolchain, wanted->toolchain) && found->registers == wanted->registers &&
               found->shared_bytes == wanted->shared_bytes && found->local_bytes == wanted->local_bytes &&
               found->kind == wanted->kind && !strcmp(found->spec, wanted->spec) &&
               found->compile_us == wanted->compile_us;
    if (a->bad) a->store->remove(a->store->self, wanted);
    return 0;
}

static void make_row(cache_sample *sample)
{
    cache_sample_make(sample, 2, 5000);
    sample->record.local_bytes = 100; // not 0 or 1, which SQLite keeps in the type and not in bytes of their own
    sample->record.created = 1700000002;
}

// OK: a hit, and all of it right. NOT_FOUND: a miss. INTERNAL: wrong data that nobody would notice.
static quern_status ask(quern_store *store)
{
    asked a = {.store = store};

    make_row(&a.sample);
    quern_status status = store->get(store->self, &a.sample.record, NULL, judge, &a);
    if (!status) status = a.bad ? QUERN_NOT_FOUND : a.right ? QUERN_OK : QUERN_INTERNAL;
    cache_sample_free(&a.sample);
    return status;
}

static quern_status put_again(quern_store *store)
{
    cache_sample sample;

    make_row(&sample);
    quern_status status = store->put(store->self, &sample.record);
    cache_sample_free(&sample);
    return status;
}

static void make_database(void)
{
    unlink(file);
    quern_store store = cache_open(file);
    assert_int_equal(cache_put(&store, 1), QUERN_OK);
    assert_int_equal(put_again(&store), QUERN_OK);
    assert_int_equal(ask(&store), QUERN_OK);
    qn_sqlite_close(&store);
}

static void flip(int64_t at, int bit)
{
    unsigned char byte;

    cache_read_at(file, at, &byte, 1);
    byte ^= (unsigned char)(1u << bit);
    cache_overwrite(file, at, &byte, 1);
}

// Where bytes of the row of sample 2 are in the file.
static int64_t find_bytes(const void *bytes, size_t count, int64_t from)
{
    unsigned char page[PAGE];

    cache_read_at(file, KERNEL_PAGE * PAGE, page, PAGE);
    const unsigned char *found = memmem(page + from, (size_t)(PAGE - from), bytes, count);
    assert_non_null(found);
    return KERNEL_PAGE * PAGE + (found - page);
}

// ---- one bit in each column

typedef struct column {
    const char *name;
    int64_t at;
    bool harmless; // a hit all the same
} column;

static void find_columns(column *columns, size_t *count)
{
    cache_sample sample;

    make_row(&sample);
    const quern_record *r = &sample.record;
    int64_t sum = find_bytes(r->sum, 16, 0); // behind it the numbers: 1, 2, 1, 3, 4, 4 bytes, then rowsum, then image
    const column all[] = {
        {"hash", find_bytes(r->hash, 16, 0), false},
        {"key", find_bytes(r->key, r->key_bytes, 0), false},
        {"toolchain", sum - (int64_t)(strlen(r->spec) + strlen(r->entry) + strlen(r->arch) + strlen(r->toolchain)),
         false},
        {"arch", sum - (int64_t)(strlen(r->spec) + strlen(r->entry) + strlen(r->arch)), false},
        {"entry", sum - (int64_t)(strlen(r->spec) + strlen(r->entry)), false},
        {"spec", find_bytes(r->spec, strlen(r->spec), 0), false},
        {"sum", sum, false},
        {"regs", sum + 16, false},
        {"smem", sum + 17, false},
        {"lmem", sum + 19, false},
        {"compile_us", sum + 20, false},
        {"created", sum + 23, false},
        {"used", sum + 27, true}, // only the order of eviction
        {"rowsum", sum + 31, false},
        {"image", sum + 47, false},
        {"image, far in", sum + 47 + 4000, false},
    };
    char elf[4];
    cache_read_at(file, sum + 47, elf, 4);
    assert_memory_equal(elf, sample.image, 4); // the offsets are right
    memcpy(columns, all, sizeof all);
    *count = QN_COUNT(all);
    cache_sample_free(&sample);
}

static void a_flipped_bit_in_any_column_is_a_miss_and_the_next_process_works(void **state)
{
    column columns[32];
    size_t count;
    (void)state;

    make_database();
    find_columns(columns, &count);
    for (size_t i = 0; i < count; i++) {
        for (int bit = 0; bit < 8; bit += 3) {
            make_database();
            fault_tried("a flipped bit in a column of a row");
            flip(columns[i].at + 1 - (strcmp(columns[i].name, "regs") == 0 || strcmp(columns[i].name, "lmem") == 0),
                 bit);
            quern_store first = cache_open(file);
            quern_status status = ask(&first);
            if (status != (columns[i].harmless ? QUERN_OK : QUERN_NOT_FOUND))
                fail_msg("%s, bit %d: %s: %s", columns[i].name, bit, quern_status_name(status), quern_message());
            if (put_again(&first)) fail_msg("%s, bit %d: put: %s", columns[i].name, bit, quern_message());
            if (ask(&first)) fail_msg("%s, bit %d: no hit after put", columns[i].name, bit);
            qn_sqlite_close(&first);
            quern_store next = cache_open(file);
            if (ask(&next)) fail_msg("%s, bit %d: no hit in the next process", columns[i].name, bit);
            assert_int_equal(cache_get(&next, 1), QUERN_OK);
            assert_int_equal(cache_count(&next), 2);
            qn_sqlite_close(&next);
            fault_survived("a flipped bit in a column of a row");
        }
    }
}

static void a_put_takes_the_place_of_a_damaged_row_that_nobody_asked_for(void **state)
{
    const char *damages[] = {"UPDATE kernel SET regs=regs+1 WHERE id=2",
                             "UPDATE kernel SET image=zeroblob(5000) WHERE id=2",
                             "UPDATE kernel SET key=x'00' WHERE id=2"};
    (void)state;

    for (size_t i = 0; i < QN_COUNT(damages); i++) {
        make_database();
        cache_sql(file, damages[i]);
        quern_store store = cache_open(file);
        assert_int_equal(put_again(&store), QUERN_OK);
        assert_int_equal(ask(&store), QUERN_OK);
        assert_int_equal(cache_count(&store), 2);
        qn_sqlite_close(&store);
    }
}

static void a_damaged_row_of_a_read_only_database_is_a_miss_and_stays(void **state)
{
    column columns[32];
    size_t count;
    (void)state;

    make_database();
    find_columns(columns, &count);
    flip(columns[7].at, 0);
    uint32_t changes = cache_change_counter(file);
    quern_store reader = cache_open_read(file);
    assert_int_equal(ask(&reader), QUERN_NOT_FOUND);
    assert_int_equal(ask(&reader), QUERN_NOT_FOUND);
    assert_int_equal(cache_get(&reader, 1), QUERN_OK);
    assert_int_equal(cache_change_counter(file), changes);
    qn_sqlite_close(&reader);
}

// Every byte of the table's page but the images' insides: structure, record headers, cells.
static void no_flipped_bit_in_the_tables_page_gives_wrong_data_or_needs_more_than_repair(void **state)
{
    unsigned char page[PAGE];
    (void)state;

    make_database();
    cache_read_at(file, KERNEL_PAGE * PAGE, page, PAGE);
    int first = 0, hits = 0, misses = 0, corrupt = 0;
    while (first < PAGE && (first < 12 || page[first] == 0)) first++; // 12 bytes of pointers, then free space
    char saved[160000];
    size_t size = (size_t)cache_file_size(file);
    assert_true(size < sizeof saved);
    cache_read_at(file, 0, saved, size);
    for (int at = 0; at < first + 330; at = at == 11 ? first : at + 1) {
        cache_write_file(file, saved, size);
        fault_tried("a flipped bit in the table's page");
        flip(KERNEL_PAGE * PAGE + at, at % 8);
        quern_store store = cache_open(file);
        quern_status status = ask(&store);
        if (!status)
            hits++;
        else if (status == QUERN_NOT_FOUND)
            misses++;
        else if (status == QUERN_STORE_CORRUPT)
            corrupt++;
        else
            fail_msg("byte %d: %s: %s", at, quern_status_name(status), quern_message());
        if (status == QUERN_NOT_FOUND) status = put_again(&store);
        if (!status && ask(&store)) status = QUERN_STORE_CORRUPT;
        qn_sqlite_close(&store);
        if (!status) fault_survived("a flipped bit in the table's page");
        if (!status) continue;
        if (status != QUERN_STORE_CORRUPT)
            fail_msg("byte %d: put: %s: %s", at, quern_status_name(status), quern_message());
        qn_sqlite_options options = cache_options(file);
        qn_text aside = QN_TEXT_INIT;
        int64_t rows;
        if (qn_sqlite_repair(&options, &rows, &aside)) fail_msg("byte %d: repair: %s", at, quern_message());
        if (aside.length) unlink(aside.bytes);
        qn_text_fini(&aside);
        store = cache_open(file);
        if (put_again(&store) || ask(&store)) fail_msg("byte %d: not usable after repair: %s", at, quern_message());
        qn_sqlite_close(&store);
        fault_survived("a flipped bit in the table's page");
    }
    assert_true(misses > 100);
    assert_true(hits > 0 && corrupt > 0); // so that all three ways were walked
}

// ---- whole files

static ino_t inode_of(const char *path)
{
    struct stat found;

    assert_int_equal(stat(path, &found), 0);
    return found.st_ino;
}

static void make_large(int rows)
{
    quern_store store = cache_open(file);

    for (int i = 1; i <= rows; i++) assert_int_equal(cache_put(&store, i), QUERN_OK);
    qn_sqlite_close(&store);
}

typedef struct repaired {
    int64_t saved;
    char aside[256];
} repaired;

static repaired repair(void)
{
    qn_sqlite_options options = cache_options(file);
    qn_text aside = QN_TEXT_INIT;
    repaired result = {0};

    if (qn_sqlite_repair(&options, &result.saved, &aside)) fail_msg("repair: %s", quern_message());
    snprintf(result.aside, sizeof result.aside, "%s", qn_text_string(&aside));
    qn_text_fini(&aside);
    return result;
}

static int count_hits(int rows)
{
    quern_store store = cache_open(file);
    int hits = 0;

    for (int i = 1; i <= rows; i++) hits += cache_get(&store, i) == QUERN_OK;
    assert_int_equal(cache_put(&store, 9999), QUERN_OK);
    qn_sqlite_close(&store);
    assert_int_equal(cache_sql_int(file, "SELECT integrity_check='ok' FROM pragma_integrity_check"), 1);
    assert_int_equal(cache_sql_int(file, "PRAGMA page_size"), PAGE);
    assert_int_equal(cache_sql_int(file, "PRAGMA auto_vacuum"), 2);
    return hits;
}

static void a_wiped_header_costs_no_row(void **state)
{
    const char zeros[100] = {0};
    (void)state;

    make_large(30);
    cache_overwrite(file, 0, zeros, sizeof zeros);
    ino_t inode = inode_of(file);
    int64_t size = cache_file_size(file);
    quern_store store = cache_open(file);
    assert_int_equal(cache_get(&store, 1), QUERN_STORE_CORRUPT);
    assert_int_equal(cache_put(&store, 1), QUERN_STORE_CORRUPT);
    assert_int_equal(inode_of(file), inode);
    assert_int_equal(cache_file_size(file), size);
    qn_sqlite_close(&store);

    repaired result = repair();
    assert_int_equal(result.saved, 30);
    assert_string_equal(result.aside, cache_path(folder, "quern-v1.db.broken-1"));
    assert_int_equal(cache_file_size(result.aside), size);
    assert_int_equal(inode_of(file), inode);
    assert_int_equal(count_hits(30), 30);
    assert_int_equal(cache_folder_count(folder), 3); // database, what was set aside, lock file
}

static void a_wiped_first_page_costs_no_row(void **state)
{
    static const char zeros[PAGE];
    (void)state;

    make_large(30);
    cache_overwrite(file, 0, zeros, sizeof zeros);
    assert_int_equal(repair().saved, 30);
    assert_int_equal(count_hits(30), 30);
}

static void a_file_cut_in_half_keeps_the_rows_of_its_first_half(void **state)
{
    (void)state;
    make_large(60);
    assert_int_equal(truncate(file, cache_file_size(file) / 2), 0);
    quern_store store = cache_open(file);
    assert_int_equal(cache_get(&store, 1), QUERN_STORE_CORRUPT);
    qn_sqlite_close(&store);
    repaired result = repair();
    assert_true(result.saved > 10);
    assert_int_equal(count_hits(60), result.saved);
}

static void a_wiped_page_in_the_middle_costs_its_own_rows(void **state)
{
    static const char zeros[PAGE];
    (void)state;

    make_large(60);
    int64_t pages = cache_file_size(file) / PAGE;
    cache_overwrite(file, pages / 2 * PAGE, zeros, sizeof zeros);
    repaired result = repair();
    assert_true(result.saved >= 50);
    assert_true(result.saved < 60);
    assert_int_equal(count_hits(60), result.saved);
}

static uint32_t number_at(int64_t offset, size_t bytes)
{
    unsigned char at[4];
    uint32_t value = 0;

    cache_read_at(file, offset, at, bytes);
    for (size_t i = 0; i < bytes; i++) value = value << 8 | at[i];
    return value;
}

// The first row of the table's second leaf. Pages by https://www.sqlite.org/fileformat.html: an inner page of a table has
// its cell pointers at 12, a cell begins with its child's page number; a leaf has them at 8, its cell is the payload's
// length, the rowid, the payload.
static int64_t find_cell(void)
{
    const int64_t root = (int64_t)KERNEL_PAGE * PAGE;

    assert_int_equal(number_at(root, 1), 5);
    int64_t leaf = PAGE * ((int64_t)number_at(root + number_at(root + 14, 2), 4) - 1);
    assert_int_equal(number_at(leaf, 1), 13);
    return leaf + number_at(leaf + 8, 2);
}

static void change_rowid(unsigned char id)
{
    int64_t at = find_cell();

    while (number_at(at++, 1) & 0x80) {
    }
    assert_in_range(number_at(at, 1), 2, 100);
    cache_overwrite(file, at, &id, 1);
}

// Whoever walks over all rows hears of a damage, with the way out; repair saves so many of 30.
static void must_be_a_damage(int saved)
{
    int64_t removed, bytes;
    qn_verify_report report;
    quern_store store = cache_open(file);

    assert_int_equal(cache_count(&store), -1);
    assert_non_null(strstr(quern_message(), "quern cache repair"));
    assert_int_equal(qn_sqlite_verify(&store, NULL, NULL, &report), QUERN_OK);
    assert_false(report.structure_ok);
    assert_int_equal(qn_sqlite_prune(&store, -1, 0, &removed, &bytes), QUERN_STORE_CORRUPT);
    qn_sqlite_close(&store);
    assert_int_equal(repair().saved, saved);
    assert_int_equal(count_hits(30), saved);
}

// Who asks for the row behind the first leaf's last gets one from before: a walk by rowids came round for ever.
static void rows_that_lead_back_are_a_damage_and_no_endless_walk(void **state)
{
    (void)state;
    make_large(30);
    change_rowid(1);
    must_be_a_damage(30);
}

// SQLite calls a payload of 2^32 - 1 bytes "out of memory".
static void a_length_that_is_none_is_a_damage_and_no_lack_of_memory(void **state)
{
    static const unsigned char length[] = {0x8f, 0xff, 0xff, 0xff, 0x7f, 9};
    (void)state;

    make_large(30);
    cache_overwrite(file, find_cell(), length, sizeof length);
    must_be_a_damage(29);
}

// SQLite reads such a database and does not write it: so do we, until it is repaired.
static void a_write_version_that_is_none_costs_no_row(void **state)
{
    (void)state;
    for (int bit = 1; bit < 8; bit++) {
        unlink(file);
        unlink(cache_path(folder, "quern-v1.db.broken-1"));
        make_large(5);
        flip(18, bit);
        quern_store store = cache_open(file);
        assert_int_equal(cache_get(&store, 1), QUERN_OK);
        quern_status status = cache_put(&store, 6);
        assert_true(status == QUERN_STORE_READ_ONLY || (bit == 1 && status == QUERN_OK)); // 3 or 2 … of 1
        if (status) assert_non_null(strstr(quern_message(), "repair"));
        qn_sqlite_close(&store);
        if (status) assert_int_equal(repair().saved, 5);
        assert_int_equal(count_hits(5), 5);
    }
}

// Damage may make it look like another program's file, or a newer one. Then it is left alone, by repair too.
static bool is_anothers(quern_status status)
{
    return status == QUERN_STORE_FOREIGN || status == QUERN_STORE_NEWER;
}

static void survive_a_flip_in_the_header(const void *saved, size_t size, int64_t at, int bit)
{
    qn_sqlite_options options = cache_options(file);
    qn_text aside = QN_TEXT_INIT;
    int64_t rows;

    cache_write_file(file, saved, size);
    flip(at, bit);
    quern_store store = cache_open(file);
    quern_status status = ask(&store);
    if (status == QUERN_INTERNAL) fail_msg("byte %d, bit %d: wrong data", (int)at, bit);
    if (!status || status == QUERN_NOT_FOUND) status = put_again(&store);
    if (!status) status = cache_put(&store, 3);
    qn_sqlite_close(&store);
    if (!status) return;
    quern_status mended = qn_sqlite_repair(&options, &rows, &aside);
    if (aside.length) unlink(aside.bytes);
    qn_text_fini(&aside);
    if (is_anothers(status) && is_anothers(mended)) return;
    if (mended) fail_msg("byte %d, bit %d: repair: %s", (int)at, bit, quern_message());
    store = cache_open(file);
    if (put_again(&store) || ask(&store)) fail_msg("byte %d, bit %d: after repair: %s", (int)at, bit, quern_message());
    qn_sqlite_close(&store);
}

static void no_flipped_bit_in_the_header_gives_wrong_data_or_needs_more_than_repair(void **state)
{
    char saved[160000];
    (void)state;

    make_database();
    size_t size = (size_t)cache_file_size(file);
    assert_true(size < sizeof saved);
    cache_read_at(file, 0, saved, size);
    for (int at = 0; at < 100; at++) {
        for (int bit = load_is_sanitized() ? at % 8 : 0; bit < 8; bit += load_is_sanitized() ? 8 : 1) {
            fault_tried("a flipped bit in the file's header");
            survive_a_flip_in_the_header(saved, size, at, bit);
            fault_survived("a flipped bit in the file's header");
        }
    }
}

static void who_has_the_file_open_goes_on_after_a_repair(void **state)
{
    static const char zeros[PAGE];
    (void)state;

    make_large(60);
    quern_store reader = cache_open(file);
    assert_int_equal(cache_get(&reader, 1), QUERN_OK);
    cache_overwrite(file, cache_file_size(file) / PAGE / 2 * PAGE, zeros, sizeof zeros);
    assert_true(repair().saved >= 50);
    assert_int_equal(cache_get(&reader, 1), QUERN_OK);
    assert_int_equal(cache_put(&reader, 1000), QUERN_OK);
    assert_int_equal(cache_get(&reader, 1000), QUERN_OK);
    assert_int_equal(cache_sql_int(file, "SELECT integrity_check='ok' FROM pragma_integrity_check"), 1);
    qn_sqlite_close(&reader);
}

static void repair_leaves_alone_what_is_not_damaged_or_not_ours(void **state)
{
    static const struct {
        const char *name;
        quern_status status;
    } others[] = {{"good-v1.db", QUERN_OK}, {"foreign.db", QUERN_STORE_FOREIGN}, {"newer.db", QUERN_STORE_NEWER}};
    char before[120000], after[120000];
    (void)state;

    for (size_t i = 0; i < QN_COUNT(others); i++) {
        qn_sqlite_options options = cache_options(file);
        qn_text aside = QN_TEXT_INIT;
        int64_t saved = -7;
        cache_copy_file(cache_golden(others[i].name), file);
        size_t size = (size_t)cache_file_size(file);
        assert_true(size < sizeof before);
        cache_read_at(file, 0, before, size);
        assert_int_equal(qn_sqlite_repair(&options, &saved, &aside), others[i].status);
        assert_int_equal(aside.length, 0);
        if (others[i].status) assert_int_equal(saved, -7);
        assert_int_equal(cache_file_size(file), size);
        cache_read_at(file, 0, after, size);
        assert_memory_equal(before, after, size);
    }
}

// Fills *bytes with what somebody may give to repair by mistake; returns how many, 0 after the last.
static size_t make_stranger(size_t number, unsigned char *bytes, const char **what)
{
    enum { BYTES = 6 * PAGE };
    static const char *const names[] = {"text", "zeros", "noise", "text where the rows would be", "a cut golden text"};
    if (number >= QN_COUNT(names)) return 0;
    *what = names[number];
    memset(bytes, number == 1 ? 0 : 'x', BYTES);
    for (size_t i = 0; number == 2 && i < BYTES; i++) bytes[i] = (unsigned char)(i * 2654435761u >> 13);
    if (number == 3) { // a leaf page of a table with one cell, whose columns are not ours
        static const unsigned char cell[] = {20, 1, 4, 0, 44, 44, 44};
        memset(bytes + (size_t)2 * PAGE, 0, PAGE);
        bytes[2 * PAGE] = 13, bytes[2 * PAGE + 4] = 1, bytes[2 * PAGE + 8] = 0x20;
        memcpy(bytes + (size_t)2 * PAGE + 0x2000, cell, sizeof cell);
    }
    return number == 4 ? 127 : BYTES;
}

static void repair_touches_nothing_that_was_not_evidently_ours(void **state)
{
    static unsigned char before[6 * PAGE], after[6 * PAGE];
    const char *what = "";
    (void)state;

    for (size_t i = 0, size; (size = make_stranger(i, before, &what)) != 0; i++) {
        qn_sqlite_options options = cache_options(file);
        qn_text aside = QN_TEXT_INIT;
        int64_t saved = -7;
        cache_write_file(file, before, size);
        quern_status status = qn_sqlite_repair(&options, &saved, &aside);
        if (status != QUERN_STORE_FOREIGN) fail_msg("%s: %s: %s", what, quern_status_name(status), quern_message());
        if (!strstr(quern_message(), "left as it is")) fail_msg("%s: %s", what, quern_message());
        assert_int_equal(saved, -7);
        assert_int_equal(cache_file_size(file), size);
        cache_read_at(file, 0, after, size);
        assert_memory_equal(before, after, size);
        assert_int_equal(cache_folder_count(folder), 1); // neither a copy nor a lock file
        qn_text_fini(&aside);
    }
}

static void a_damaged_database_of_another_program_is_left_alone(void **state)
{
    qn_sqlite_options options = cache_options(file);
    qn_text aside = QN_TEXT_INIT;
    int64_t saved = -7;
    (void)state;

    cache_sql(file, "PRAGMA application_id=1234; CREATE TABLE t(x); INSERT INTO t VALUES(1)");
    cache_overwrite(file, 100, "garbage that is no page", 23);
    int64_t size = cache_file_size(file);
    assert_int_equal(qn_sqlite_repair(&options, &saved, &aside), QUERN_STORE_FOREIGN);
    assert_int_equal(cache_file_size(file), size);
    assert_int_equal(cache_folder_count(folder), 1);
}

static void every_repair_keeps_what_it_set_aside(void **state)
{
    (void)state;
    for (int n = 1; n <= 3; n++) {
        char name[64];
        snprintf(name, sizeof name, "quern-v1.db.broken-%d", n);
        cache_copy_file(cache_golden("truncated.db"), file);
        repaired result = repair();
        assert_string_equal(result.aside, cache_path(folder, name));
    }
}

// ---- repair and its lock

static int lock_fd;
static int hold_a_byte(void *user)
{
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 123456789, .l_len = 1};
    (void)user;

    lock_fd = open(cache_path(folder, "quern-v1.db.lock"), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    return lock_fd < 0 || fcntl(lock_fd, F_OFD_SETLK, &lock);
}

static void repair_does_nothing_while_a_compile_holds_its_lock(void **state)
{
    qn_sqlite_options options = cache_options(file);
    qn_text aside = QN_TEXT_INIT;
    int64_t saved;
    (void)state;

    options.busy_timeout_ms = 50;
    cache_copy_file(cache_golden("truncated.db"), file);
    int64_t size = cache_file_size(file);
    assert_int_equal(hold_a_byte(NULL), 0);
    assert_int_equal(qn_sqlite_repair(&options, &saved, &aside), QUERN_STORE_BUSY);
    assert_int_equal(cache_file_size(file), size);
    close(lock_fd);
    assert_int_equal(qn_sqlite_repair(&options, &saved, &aside), QUERN_OK);
    qn_text_fini(&aside);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(a_flipped_bit_in_any_column_is_a_miss_and_the_next_process_works),
        TEST(a_put_takes_the_place_of_a_damaged_row_that_nobody_asked_for),
        TEST(a_damaged_row_of_a_read_only_database_is_a_miss_and_stays),
        TEST(no_flipped_bit_in_the_tables_page_gives_wrong_data_or_needs_more_than_repair),
        TEST(a_wiped_header_costs_no_row),
        TEST(a_wiped_first_page_costs_no_row),
        TEST(a_file_cut_in_half_keeps_the_rows_of_its_first_half),
        TEST(a_wiped_page_in_the_middle_costs_its_own_rows),
        TEST(rows_that_lead_back_are_a_damage_and_no_endless_walk),
        TEST(a_length_that_is_none_is_a_damage_and_no_lack_of_memory),
        TEST(a_write_version_that_is_none_costs_no_row),
        TEST(no_flipped_bit_in_the_header_gives_wrong_data_or_needs_more_than_repair),
        TEST(who_has_the_file_open_goes_on_after_a_repair),
        TEST(repair_leaves_alone_what_is_not_damaged_or_not_ours),
        TEST(repair_touches_nothing_that_was_not_evidently_ours),
        TEST(a_damaged_database_of_another_program_is_left_alone),
        TEST(every_repair_keeps_what_it_set_aside),
        TEST(repair_does_nothing_while_a_compile_holds_its_lock),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
