// SPDX-License-Identifier: Apache-2.0
// Tuning results as text (quern tune --import): any text is read whole or refused whole; what is read passes the checks of
// the table, and its own text reads back as the same rows.
#include <string.h>

#include "fuzz/fuzz.h"
#include "tune/export.h"

static void write_again(const qn_tune_list *list)
{
    qn_text first = QN_TEXT_INIT, second = QN_TEXT_INIT;
    qn_tune_list again = QN_TUNE_LIST_INIT;

    qn_tune_text_write(list, &first);
    FUZZ_CHECK(qn_tune_text_read("again", first.bytes, first.length, &again) == QUERN_OK);
    FUZZ_CHECK(again.count == list->count);
    qn_tune_text_write(&again, &second);
    FUZZ_CHECK(first.length == second.length && !memcmp(first.bytes, second.bytes, first.length));
    qn_tune_list_fini(&again);
    qn_text_fini(&second);
    qn_text_fini(&first);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count)
{
    qn_tune_list list = QN_TUNE_LIST_INIT;

    if (qn_tune_text_read("input", (const char *)bytes, count, &list) != QUERN_OK) {
        FUZZ_CHECK(!strncmp(quern_message(), "input", 5));
        FUZZ_CHECK(!list.count);
    } else {
        for (size_t i = 0; i < list.count; i++) FUZZ_CHECK(qn_tune_check(&list.row[i]) == QUERN_OK);
        write_again(&list);
    }
    qn_tune_list_fini(&list);
    return 0;
}
