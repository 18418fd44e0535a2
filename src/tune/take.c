// SPDX-License-Identifier: Apache-2.0
// Tuning results of one database into another (take.h).
#include "tune/take.h"

#include "runtime/usable.h"

static bool is_formed(const qn_tune_row *row)
{
    qn_message_mark mark;
    qn_message_save(&mark);
    bool formed = qn_tune_check(row) == QUERN_OK;
    qn_message_restore(&mark);
    return formed;
}

// ---- rows whose range is not known

// Whether a row may have been one of a range: it differs from it only in columns that are bad in it, each of which makes
// the range's own row a bad one.
static bool may_be_of(const qn_tune_row *row, const qn_tune_row *range)
{
    qn_tune_row with[10];
    for (size_t i = 0; i < QN_COUNT(with); i++) with[i] = *range;
    with[0].device.name = row->device.name, with[1].device.cc = row->device.cc;
    with[2].device.sm_count = row->device.sm_count, with[3].device.shared_bytes = row->device.shared_bytes;
    with[4].device.l2_bytes = row->device.l2_bytes, with[5].device.driver = row->device.driver;
    with[6].library = row->library, with[7].arch = row->arch, with[8].spec = row->spec, with[9].bucket = row->bucket;
    for (size_t i = 0; i < QN_COUNT(with); i++)
        if (!qn_tune_same_problem(&with[i], range) && is_formed(&with[i])) return false;
    return true;
}

static quern_status find_strays(const qn_tune_list *all, qn_tune_list *strays)
{
    for (size_t i = 0; i < all->count; i++)
        if (!is_formed(&all->row[i])) QN_TRY(qn_tune_list_add(strays, &all->row[i]));
    return QUERN_OK;
}

// ---- ranges of sizes

static quern_status judge(const qn_tune_row *rows, size_t count, const qn_tune_list *strays, int64_t now)
{
    QN_TRY(qn_tune_problem_usable(rows, count, now));
    for (size_t i = 0; i < strays->count; i++)
        if (may_be_of(&strays->row[i], rows)) {
            quern_status status = qn_tune_check(&strays->row[i]);
            return qn_fail_in(status, "a row that may have been its own");
        }
    return QUERN_OK;
}

static quern_status sift(const qn_tune_list *all, const qn_tune_list *strays, int64_t now, qn_tune_taken *taken,
                         qn_tune_list *good)
{
    for (size_t i = 0, next; i < all->count; i = next) {
        next = qn_tune_next_problem(all->row, all->count, i);
        const quern_status status = judge(&all->row[i], next - i, strays, now);
        if (status == QUERN_OUT_OF_MEMORY) return status;
        if (status == QUERN_OK) {
            for (size_t at = i; at < next; at++) QN_TRY(qn_tune_list_add(good, &all->row[at]));
        } else if (!taken->left_out++) {
            qn_text_putf(&taken->first, "\"%.200s\", %.100s: %s", all->row[i].spec, all->row[i].bucket,
                         quern_message());
        }
    }
    return QUERN_OK;
}

quern_status qn_tune_sift(const qn_tune_list *all, int64_t now, qn_tune_taken *taken, qn_tune_list *good)
{
    qn_tune_list strays = QN_TUNE_LIST_INIT;
    quern_status status = find_strays(all, &strays);
    if (status == QUERN_OK) status = sift(all, &strays, now, taken, good);
    qn_tune_list_fini(&strays);
    return status;
}

quern_status qn_tune_take(quern_store *into, quern_store *from, int64_t now, qn_tune_taken *taken)
{
    qn_tune_list all = QN_TUNE_LIST_INIT, good = QN_TUNE_LIST_INIT;
    quern_status status = qn_sqlite_tune_read(from, NULL, NULL, &all); // ordered by problem
    if (status == QUERN_OK) status = qn_tune_sift(&all, now, taken, &good);
    if (status == QUERN_OK && good.count) status = qn_sqlite_tune_merge(into, &good, &taken->kept, &taken->passed_over);
    qn_tune_list_fini(&good);
    qn_tune_list_fini(&all);
    return status;
}
