// SPDX-License-Identifier: Apache-2.0
// Tuning results of one database into another (take.h).
#include "tune/take.h"

#include <string.h>

#include "runtime/usable.h"

static quern_status check_problem(const qn_tune_row *rows, size_t count, int64_t now)
{
    size_t best = 0;
    for (size_t i = 0; i < count; i++) {
        QN_TRY(qn_tune_usable(&rows[i], now));
        best += !strcmp(rows[i].status, QN_TUNE_BEST);
    }
    return best < 2 ? QUERN_OK : qn_fail(QUERN_BAD_VALUE, "%zu rows have the status %s", best, QN_TUNE_BEST);
}

// The rows of one range of sizes.
static quern_status take_problem(const qn_tune_row *rows, size_t count, int64_t now, qn_tune_taken *taken,
                                 qn_tune_list *good)
{
    if (check_problem(rows, count, now) == QUERN_OK) {
        for (size_t i = 0; i < count; i++) QN_TRY(qn_tune_list_add(good, &rows[i]));
        return QUERN_OK;
    }
    if (!taken->left_out++)
        qn_text_putf(&taken->first, "\"%.200s\", %s: %s", rows[0].spec, rows[0].bucket, quern_message());
    return QUERN_OK;
}

quern_status qn_tune_take(quern_store *into, quern_store *from, int64_t now, qn_tune_taken *taken)
{
    qn_tune_list all = QN_TUNE_LIST_INIT, good = QN_TUNE_LIST_INIT;
    quern_status status = qn_sqlite_tune_read(from, NULL, NULL, &all); // ordered by problem
    for (size_t i = 0, next; i < all.count && status == QUERN_OK; i = next) {
        for (next = i + 1; next < all.count && qn_tune_same_problem(&all.row[i], &all.row[next]); next++) {
        }
        status = take_problem(&all.row[i], next - i, now, taken, &good);
    }
    if (status == QUERN_OK && good.count) status = qn_sqlite_tune_merge(into, &good, &taken->kept, &taken->passed_over);
    qn_tune_list_fini(&good);
    qn_tune_list_fini(&all);
    return status;
}
