// SPDX-License-Identifier: Apache-2.0
// Lists of specs: as text, as a manifest (JSON), as a log, and as a model's configuration (JSON). Any bytes are a list or
// refused with a message; what is listed is valid.
#include <stdio.h>
#include <string.h>

#include "fuzz/fuzz.h"
#include "quern/specs.h"

static const char *text, *json;

// What `quern warm --list` prints of an entry reads back to the same.
static void check_line(const spec_item *item)
{
    char line[sizeof item->text + sizeof item->range + 8];
    spec_list again = SPEC_LIST_INIT;

    snprintf(line, sizeof line, "%s [%s]", item->text, item->range);
    FUZZ_CHECK(spec_list_add(&again, line) == QUERN_OK);
    FUZZ_CHECK(again.count == 1 && again.item[0].narrowed == item->narrowed);
    FUZZ_CHECK(!strcmp(again.item[0].range, item->range));
    FUZZ_CHECK(!memcmp(again.item[0].from, item->from, sizeof item->from));
    FUZZ_CHECK(!memcmp(again.item[0].to, item->to, sizeof item->to));
    spec_list_fini(&again);
}

static void check_list(spec_list *list, quern_status status)
{
    if (status != QUERN_OK) FUZZ_CHECK(*quern_message());
    for (size_t i = 0; i < list->count; i++) {
        quern_any_spec spec;
        FUZZ_CHECK(quern_spec_check(&list->item[i].spec.base) == QUERN_OK);
        FUZZ_CHECK(quern_spec_parse(list->item[i].text, &spec) == QUERN_OK);
        if (list->item[i].narrowed) check_line(&list->item[i]);
    }
    spec_list_fini(list);
}

static void read_operand(const char *file)
{
    char operand[160];
    spec_list list = SPEC_LIST_INIT;

    snprintf(operand, sizeof operand, "@%s", file);
    quern_status status = spec_list_add(&list, operand);
    check_list(&list, status);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count)
{
    const model_options options = {0};
    spec_list log = SPEC_LIST_INIT, model = SPEC_LIST_INIT;

    if (!text) text = fuzz_file(".txt"), json = fuzz_file(".json");
    fuzz_write(json, bytes, count);
    fuzz_write(text, bytes, count);
    read_operand(json);
    read_operand(text);
    quern_status status = spec_list_add_log(&log, text);
    check_list(&log, status);
    status = spec_list_add_model(&model, json, &options);
    check_list(&model, status);
    return 0;
}
