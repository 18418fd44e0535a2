// SPDX-License-Identifier: Apache-2.0
// Tuning results as text: what is written reads back exactly; bad lines are refused with their place, and no bytes at all
// crash the reader.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/tuned.h"
#include "runtime/usable.h"
#include "tune/export.h"

static qn_tune_row sample(int number)
{
    static char config[8][64];
    snprintf(config[number % 8], sizeof config[0], "plan=stream block=256 local_k=%d", number);
    return (qn_tune_row){.device = {"NVIDIA H200 MIG 1g.18gb", 90, 16, 233472, 62914560, 13},
                         .library = "0.1.0",
                         .arch = "sm_90a",
                         .spec = "softmax_topk V=50257 K=50 in=bf16",
                         .bucket = number % 2 ? "rows 5..14" : "rows 529…",
                         .sizes = "rows=8",
                         .config = config[number % 8],
                         .status = number ? QN_TUNE_SLOWER : QN_TUNE_BEST,
                         .note = number % 3 ? "1.5 % slower, 5 replays" : "",
                         .ns = 9123.456789012345 / (number + 1),
                         .spread_ns = 1.0 / 3,
                         .created = 1790000000 + number};
}

static void write_sample(int count, qn_text *text)
{
    qn_tune_list list = QN_TUNE_LIST_INIT;
    for (int i = 0; i < count; i++) {
        const qn_tune_row row = sample(i);
        assert_int_equal(qn_tune_list_add(&list, &row), QUERN_OK);
    }
    qn_tune_text_write(&list, text);
    qn_tune_list_fini(&list);
}

static quern_status read_text(const char *text, qn_tune_list *list)
{
    return qn_tune_text_read("t.txt", text, strlen(text), list);
}

static void what_is_written_reads_back_exactly(void **state)
{
    (void)state;
    qn_text text = QN_TEXT_INIT, again = QN_TEXT_INIT;
    qn_tune_list list = QN_TUNE_LIST_INIT;
    write_sample(6, &text);

    if (read_text(text.bytes, &list) != QUERN_OK) fail_msg("%s", quern_message());

    assert_int_equal(list.count, 6);
    for (int i = 0; i < 6; i++) {
        const qn_tune_row row = sample(i), *got = &list.row[i];
        assert_true(qn_tune_same_problem(got, &row));
        assert_true(got->ns == row.ns && got->spread_ns == row.spread_ns && got->created == row.created);
        assert_string_equal(got->config, row.config);
        assert_string_equal(got->sizes, row.sizes);
        assert_string_equal(got->status, row.status);
        assert_string_equal(got->note, row.note);
    }
    qn_tune_text_write(&list, &again);
    assert_string_equal(text.bytes, again.bytes);
    qn_tune_list_fini(&list);
    qn_text_fini(&text), qn_text_fini(&again);
}

static void an_empty_table_is_a_header(void **state)
{
    (void)state;
    qn_text text = QN_TEXT_INIT;
    qn_tune_list list = QN_TUNE_LIST_INIT;
    write_sample(0, &text);

    assert_int_equal(strncmp(text.bytes, "quern-tune 1\n", 13), 0);
    assert_int_equal(read_text(text.bytes, &list), QUERN_OK);
    assert_int_equal(list.count, 0);
    qn_text_fini(&text);
}

#define GOOD "dev\t90\t132\t1\t2\t13\t0.1.0\tsm_90a\tspec\tbucket\trows=8\ta=1\tbest\t9.5\t0.5\t7\tnote"

static void comments_empty_lines_missing_notes_a_byte_order_mark_and_dos_line_ends_are_fine(void **state)
{
    (void)state;
    qn_tune_list list = QN_TUNE_LIST_INIT;
    const char text[] = "\xEF\xBB\xBFquern-tune 1\r\n\r\n# a comment\r\n" GOOD "\r\n"
                        "dev\t90\t132\t1\t2\t13\t0.1.0\tsm_90a\tspec\tother\t\ta=1\tslower\t9.5\t0.5\t7";

    if (read_text(text, &list) != QUERN_OK) fail_msg("%s", quern_message());

    assert_int_equal(list.count, 2);
    assert_string_equal(list.row[0].note, "note");
    assert_string_equal(list.row[1].note, "");
    assert_string_equal(list.row[1].sizes, "");
    qn_tune_list_fini(&list);
}

static void a_bad_line_is_refused_with_its_place_and_nothing_is_kept(void **state)
{
    (void)state;
    static const struct {
        const char *line, *says;
    } cases[] = {
        {"", "first line"},
        {"quern-tune", "first line"},
        {"quern-tune x", "first line"},
        {"quern-tune 0", "first line"},
        {"quern-tune -1", "first line"},
        {"quern-tune 2", "version 2"},
        {"quern-tune 1\n" GOOD "\none field", "t.txt:3: the line has 1 fields"},
        {"quern-tune 1\n" GOOD "\textra", "18 fields"},
        {"quern-tune 1\n\t90\t132\t1\t2\t13\t0.1.0\tsm_90a\tspec\tbucket\trows=8\ta=1\tbest\t9.5\t0.5\t7\t",
         "t.txt:2: device is empty"},
        {"quern-tune 1\ndev\tx\t132\t1\t2\t13\t0.1.0\tsm_90a\tspec\tbucket\trows=8\ta=1\tbest\t9.5\t0.5\t7\t",
         "cc = 'x'"},
        {"quern-tune 1\ndev\t-9\t132\t1\t2\t13\t0.1.0\tsm_90a\tspec\tbucket\trows=8\ta=1\tbest\t9.5\t0.5\t7\t",
         "cc = '-9'"},
        {"quern-tune "
         "1\ndev\t90\t99999999999999999999\t1\t2\t13\t0.1.0\tsm_90a\tspec\tbucket\t\ta=1\tbest\t9.5\t0.5\t7\t",
         "sms = "},
        {"quern-tune 1\ndev\t90\t4294967296\t1\t2\t13\t0.1.0\tsm_90a\tspec\tbucket\t\ta=1\tbest\t9.5\t0.5\t7\t",
         "sms = '4294967296': a whole number from 0 to 2147483647 is needed"},
        {"quern-tune 1\ndev\t90\t132\t1\t2\t13\t0.1.0\tsm_90a\tspec\tbucket\trows=8\ta=1\tbest\t9,5\t0.5\t7\t",
         "ns = '9,5'"},
        {"quern-tune 1\ndev\t90\t132\t1\t2\t13\t0.1.0\tsm_90a\tspec\tbucket\trows=8\ta=1\tbest\tinf\t0.5\t7\t",
         "ns is not a time"},
        {"quern-tune 1\ndev\t90\t132\t1\t2\t13\t0.1.0\tsm_90a\tspec\tbucket\trows=8\ta=1\tbest\t9.5\tnan\t7\t",
         "spread_ns"},
        {"quern-tune 1\ndev\t90\t132\t1\t2\t13\t0.1.0\tsm_90a\tspec\tbucket\trows=8\ta=1\tbest\t9.5\t0.5\t\t",
         "created = ''"},
        {"quern-tune 1\ndev\t90\t132\t1\t2\t13\t0.1.0\tsm_90a\tspec\tbucket\trows=8\ta=1\tbest\t9.5\t0.5\t7\ta\x01z",
         "control character"},
    };
    for (size_t i = 0; i < QN_COUNT(cases); i++) {
        qn_tune_list list = QN_TUNE_LIST_INIT;
        quern_status status = read_text(cases[i].line, &list);
        if (status != QUERN_BAD_FILE) fail_msg("case %zu: %s", i, quern_status_name(status));
        if (!strstr(quern_message(), cases[i].says)) fail_msg("'%s' is not in: %s", cases[i].says, quern_message());
        assert_int_equal(list.count, 0);
        assert_null(list.row);
    }
}

static void a_zero_byte_and_an_endless_line_are_refused(void **state)
{
    (void)state;
    qn_tune_list list = QN_TUNE_LIST_INIT;
    static const char zero[] = "quern-tune 1\nde\0v\t90";
    char *endless = malloc(100000);
    assert_non_null(endless);
    memset(endless, 'x', 100000);
    memcpy(endless, "quern-tune 1\n", 13);

    assert_int_equal(qn_tune_text_read("t", zero, sizeof zero - 1, &list), QUERN_BAD_FILE);
    assert_int_equal(qn_tune_text_read("t", endless, 100000, &list), QUERN_BAD_FILE);

    assert_int_equal(list.count, 0);
    free(endless);
}

// ---- import: rows that could never be used

enum { NOW = 1800000000 };

// A row of this library, whose columns are changed by name.
static qn_tune_row own_row(void)
{
    qn_tune_row row = sample(0);
    row.library = qn_tuned_library();
    row.config = "plan=stream block=256 ctas=1 local_k=4 unroll=2";
    row.bucket = "rows 5..14";
    row.created = NOW;
    return row;
}

static quern_status import_row(const qn_tune_row *row, qn_tune_list *list)
{
    qn_tune_row good = own_row();
    good.bucket = "rows 1..4", good.sizes = "rows=1"; // another problem
    qn_tune_list rows = QN_TUNE_LIST_INIT;
    qn_text text = QN_TEXT_INIT;
    assert_int_equal(qn_tune_list_add(&rows, &good), QUERN_OK);
    assert_int_equal(qn_tune_list_add(&rows, row), QUERN_OK);
    qn_tune_text_write(&rows, &text);
    qn_tune_list_fini(&rows);
    quern_status status = qn_tune_text_import("t.txt", text.bytes, text.length, NOW, list);
    qn_text_fini(&text);
    return status;
}

static void import_refuses_what_could_never_be_used(void **state)
{
    (void)state;
    static const struct {
        const char *arch, *spec, *bucket, *config, *status, *sizes;
        int64_t created;
        int cc;
        bool no_shared, no_time;
        const char *says, *allowed; // line 4: after header, names and a good row
    } cases[] = {
        {.config = "plan=nonsense", .says = "t.txt:4: config = 'plan=nonsense'", .allowed = "allowed are "},
        {.config = "block=99999 cluster=3", .says = "t.txt:4: config = 'block=99999 cluster=3'", .allowed = "256"},
        {.config = "a=1", .says = "t.txt:4: config = 'a=1'", .allowed = "it has plan"},
        {.config = "plan=stream", .says = "t.txt:4: config = 'plan=stream'", .allowed = ""},
        {.spec = "foo V=3", .says = "t.txt:4: spec = 'foo V=3'", .allowed = "softmax_topk"},
        {.spec = "softmax_topk  K=50 V=50257 in=bf16",
         .says = "t.txt:4: spec = 'softmax_topk  K=50 V=50257 in=bf16'",
         .allowed = "'softmax_topk V=50257 K=50 in=bf16'"},
        {.spec = "softmax_topk V=50257 K=50 in=bf16 batch_invariant=1",
         .says = "t.txt:4: spec",
         .allowed = "all sizes"},
        {.bucket = "rows 9..4", .says = "t.txt:4: bucket = 'rows 9..4'", .allowed = "rows 1..4, rows 5..14"},
        {.bucket = "N 1..64", .says = "t.txt:4: bucket = 'N 1..64'", .allowed = "rows 1..4, rows 5..14"},
        {.arch = "sm_12", .says = "t.txt:4: arch = 'sm_12'", .allowed = "sm_90a"},
        {.status = "bst", .says = "t.txt:4: status = 'bst'", .allowed = "best, slower, equal, wrong, failed, timeout"},
        {.config = "block=256 plan=stream ctas=1 local_k=4 unroll=2",
         .says = "t.txt:4: config = 'block=256 plan=stream",
         .allowed = "canonical form, 'plan=stream block=256 ctas=1 local_k=4 unroll=2'"},
        {.sizes = "rows=junk", .says = "t.txt:4: sizes = 'rows=junk'", .allowed = "NAME=NUMBER"},
        {.sizes = "rows=-1", .says = "t.txt:4: sizes = 'rows=-1'", .allowed = "from 0"},
        {.sizes = "rows=99999999999", .says = "t.txt:4: sizes = 'rows=99999999999'", .allowed = "to 2147483647"},
        {.sizes = "N=8", .says = "t.txt:4: sizes = 'N=8'", .allowed = "NAME=NUMBER"},
        {.sizes = "rows", .says = "t.txt:4: sizes = 'rows'", .allowed = "NAME=NUMBER"},
        {.sizes = "rows=08", .says = "t.txt:4: sizes = 'rows=08'", .allowed = "'rows=8'"},
        {.sizes = "rows=64", .says = "t.txt:4: sizes = 'rows=64'", .allowed = "of the range 'rows 63..66'"},
        {.sizes = "", .says = "t.txt:4: sizes = ''", .allowed = "as in 'rows=0'"},
        {.cc = 100, .says = "t.txt:4: cc = '100'", .allowed = "sm_90a"},
        {.arch = "sm_100a", .says = "t.txt:4: cc = '90'", .allowed = "sm_100a"},
        {.cc = 77, .says = "t.txt:4: cc = '77'", .allowed = "sm_90a"},
        {.no_shared = true, .says = "t.txt:4: shared = '0'", .allowed = "bytes"},
        {.no_time = true, .says = "t.txt:4: ns = '0'", .allowed = "best"},
        {.created = NOW + QN_TUNE_AHEAD_SECONDS + 1,
         .says = "t.txt:4: created = '1800086401'",
         .allowed = "1800086400"},
    };
    for (size_t i = 0; i < QN_COUNT(cases); i++) {
        qn_tune_list list = QN_TUNE_LIST_INIT;
        qn_tune_row row = own_row();
        if (cases[i].arch) row.arch = cases[i].arch;
        if (cases[i].spec) row.spec = cases[i].spec;
        if (cases[i].bucket) row.bucket = cases[i].bucket;
        if (cases[i].config) row.config = cases[i].config;
        if (cases[i].status) row.status = cases[i].status;
        if (cases[i].created) row.created = cases[i].created;
        if (cases[i].sizes) row.sizes = cases[i].sizes;
        if (cases[i].cc) row.device.cc = cases[i].cc;
        if (cases[i].no_shared) row.device.shared_bytes = 0;
        if (cases[i].no_time) row.ns = 0;

        if (import_row(&row, &list) != QUERN_BAD_FILE) fail_msg("case %zu is taken", i);

        if (!strstr(quern_message(), cases[i].says) || !strstr(quern_message(), cases[i].allowed))
            fail_msg("'%s' and '%s' are not both in: %s", cases[i].says, cases[i].allowed, quern_message());
        assert_int_equal(list.count, 0);
    }
}

static void import_takes_what_can_be_used_and_other_versions_as_they_are(void **state)
{
    (void)state;
    qn_tune_row rows[4] = {own_row(), own_row(), own_row(), own_row()};
    rows[0].created = NOW + QN_TUNE_AHEAD_SECONDS;
    rows[1].status = QN_TUNE_TIMEOUT, rows[1].ns = 0;
    rows[2].library = "0.0.1-1", rows[2].config = "plan=old", rows[2].bucket = "rows 1..9", rows[2].status = "won";
    rows[3].library = "99.0.0-1", rows[3].spec = "newer V=3", rows[3].arch = "sm_200a";
    for (size_t i = 0; i < QN_COUNT(rows); i++) {
        qn_tune_list list = QN_TUNE_LIST_INIT;
        if (import_row(&rows[i], &list) != QUERN_OK) fail_msg("row %zu: %s", i, quern_message());
        assert_int_equal(list.count, 2);
        qn_tune_list_fini(&list);
    }
    // no later result would replace it, of whichever version it is
    qn_tune_list list = QN_TUNE_LIST_INIT;
    rows[3].created = NOW + QN_TUNE_AHEAD_SECONDS + 1;
    assert_int_equal(import_row(&rows[3], &list), QUERN_BAD_FILE);
    assert_non_null(strstr(quern_message(), "created"));
}

static void import_refuses_two_winners_of_a_problem_and_a_configuration_twice(void **state)
{
    (void)state;
    static const struct {
        const char *config, *status, *says;
    } cases[] = {
        {"plan=stream block=512 ctas=1 local_k=4 unroll=2", QN_TUNE_BEST,
         "t.txt:5: \"softmax_topk V=50257 K=50 in=bf16\", rows 5..14 has a row of the status best in line 3"},
        {"plan=stream block=256 ctas=1 local_k=4 unroll=2", QN_TUNE_SLOWER,
         "t.txt:5: \"softmax_topk V=50257 K=50 in=bf16\", rows 5..14 has this configuration in line 3"},
    };
    for (size_t i = 0; i < QN_COUNT(cases); i++) {
        qn_tune_list rows = QN_TUNE_LIST_INIT, list = QN_TUNE_LIST_INIT;
        qn_text text = QN_TEXT_INIT;
        qn_tune_row row[3] = {own_row(), own_row(), own_row()};
        row[1].bucket = "rows 1..4", row[1].sizes = "rows=1";
        row[2].config = cases[i].config, row[2].status = cases[i].status;
        for (size_t k = 0; k < 3; k++) assert_int_equal(qn_tune_list_add(&rows, &row[k]), QUERN_OK);
        qn_tune_text_write(&rows, &text);

        quern_status status = qn_tune_text_import("t.txt", text.bytes, text.length, NOW, &list);

        assert_int_equal(status, QUERN_BAD_FILE);
        if (!strstr(quern_message(), cases[i].says)) fail_msg("'%s' is not in: %s", cases[i].says, quern_message());
        assert_int_equal(list.count, 0);
        qn_tune_list_fini(&rows);
        qn_text_fini(&text);
    }
}

static void the_built_in_table_can_be_imported(void **state)
{
    (void)state;
    qn_tune_list rows = QN_TUNE_LIST_INIT, list = QN_TUNE_LIST_INIT;
    qn_text text = QN_TEXT_INIT;
    for (size_t i = 0; i < qn_tuned_built_in_count; i++)
        assert_int_equal(qn_tune_list_add(&rows, &qn_tuned_built_in[i]), QUERN_OK);
    qn_tune_text_write(&rows, &text);

    if (qn_tune_text_import("t.txt", text.bytes, text.length, NOW, &list) != QUERN_OK) fail_msg("%s", quern_message());

    assert_int_equal(list.count, qn_tuned_built_in_count);
    qn_tune_list_fini(&rows), qn_tune_list_fini(&list);
    qn_text_fini(&text);
}

// ---- damage

static uint64_t next(uint64_t *state)
{
    uint64_t z = *state += 0x9E3779B97F4A7C15u;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return z ^ z >> 31;
}

// Bytes of a good text changed, cut out and doubled: either refused, or a list of good rows.
static void damaged_text_is_refused_or_gives_good_rows(void **state)
{
    (void)state;
    static const char spice[] = "\t\n\r\0-.e9#\xff =";
    const char *seed_text = getenv("QUERN_TEST_SEED");
    uint64_t seed = seed_text ? strtoull(seed_text, NULL, 0) : 1, random = seed;
    qn_text text = QN_TEXT_INIT;
    size_t refused = 0, rounds = 20000;
    write_sample(4, &text);
    for (size_t round = 0; round < rounds; round++) {
        size_t length = text.length, changes = 1 + next(&random) % 4;
        char *bytes = malloc(2 * length);
        assert_non_null(bytes);
        memcpy(bytes, text.bytes, length);
        for (size_t i = 0; i < changes && length; i++) {
            size_t at = next(&random) % length, count = next(&random) % 20;
            if (at + count > length) count = length - at;
            switch (next(&random) % 3) {
            case 0:
                bytes[at] = spice[next(&random) % (sizeof spice - 1)];
                break;
            case 1:
                memmove(bytes + at, bytes + at + count, length - at - count);
                length -= count;
                break;
            default:
                if (length + count > 2 * text.length) break;
                memmove(bytes + at + count, bytes + at, length - at);
                length += count;
            }
        }
        qn_tune_list list = QN_TUNE_LIST_INIT;
        quern_status status = qn_tune_text_read("t", bytes, length, &list);
        if (status != QUERN_OK && status != QUERN_BAD_FILE)
            fail_msg("seed %llu, round %zu: %s", (unsigned long long)seed, round, quern_message());
        refused += status != QUERN_OK;
        if (status != QUERN_OK) assert_int_equal(list.count, 0);
        for (size_t i = 0; i < list.count; i++) assert_int_equal(qn_tune_check(&list.row[i]), QUERN_OK);
        qn_tune_list_fini(&list);
        free(bytes);
    }
    assert_true(refused > rounds / 10);
    assert_true(refused < rounds);
    qn_text_fini(&text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_written_reads_back_exactly),
        cmocka_unit_test(an_empty_table_is_a_header),
        cmocka_unit_test(comments_empty_lines_missing_notes_a_byte_order_mark_and_dos_line_ends_are_fine),
        cmocka_unit_test(a_bad_line_is_refused_with_its_place_and_nothing_is_kept),
        cmocka_unit_test(a_zero_byte_and_an_endless_line_are_refused),
        cmocka_unit_test(import_refuses_what_could_never_be_used),
        cmocka_unit_test(import_takes_what_can_be_used_and_other_versions_as_they_are),
        cmocka_unit_test(import_refuses_two_winners_of_a_problem_and_a_configuration_twice),
        cmocka_unit_test(the_built_in_table_can_be_imported),
        cmocka_unit_test(damaged_text_is_refused_or_gives_good_rows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
