// SPDX-License-Identifier: Apache-2.0
// What warm is to compile: the lists of its command line, and the sizes that narrow them (warm_list.h).
#include "warm_list.h"

#include <string.h>

static quern_status read_list(const warm_sources *from, int argc, char **argv, spec_list *list)
{
    for (int i = 1; i < argc; i++) QN_TRY(spec_list_add(list, argv[i]));
    for (size_t i = 0; i < from->logs.count; i++) QN_TRY(spec_list_add_log(list, from->logs.item[i]));
    for (size_t i = 0; i < from->models.count; i++)
        QN_TRY(spec_list_add_model(list, from->models.item[i], &from->model));
    return QUERN_OK;
}

// --rows 1..64: for every spec whose family has the size, whatever a list said of it.
static quern_status narrow_list(const command_sizes *sizes, spec_list *list)
{
    for (size_t k = 0; k < sizes->count; k++) {
        const char *name = sizes->item[k].name;
        int64_t from, to;
        bool used = false;
        if (!sizes->item[k].text) continue;
        quern_status status = spec_parse_range(name, sizes->item[k].text, &from, &to);
        if (status != QUERN_OK) return qn_fail(status, "--%s", quern_message());
        for (size_t i = 0; i < list->count; i++) {
            status = spec_item_narrow(&list->item[i], name, from, to);
            if (status == QUERN_UNKNOWN_ARGUMENT) continue;
            QN_TRY(status);
            used = true;
        }
        if (!used) return qn_fail(QUERN_UNKNOWN_ARGUMENT, "--%s: no spec has a size of this name", name);
    }
    return QUERN_OK;
}

// Nothing to do is a mistake in what is named; a shard of a list may well be empty.
static quern_status check_not_empty(const warm_sources *from, int argc, char **argv, const spec_list *list)
{
    if (list->count || from->models.count) return QUERN_OK; // what no family serves of a model is said in notes
    const char *first = argc > 1 ? argv[1] + (*argv[1] == '@') : from->logs.item[0];
    return qn_fail(QUERN_BAD_FILE, "%s: no spec in it", first);
}

// What no launch may have.
static quern_status check_sizes(const spec_list *list)
{
    for (size_t i = 0; i < list->count; i++) {
        const spec_item *s = &list->item[i];
        if (!s->narrowed || !s->family->check_sizes) continue;
        quern_status status = s->family->check_sizes(s->from, s->to);
        if (status != QUERN_OK) return qn_fail(QUERN_CONFLICT, "%s: %s", s->text, quern_message()); // of words
    }
    return QUERN_OK;
}

void warm_list_notes(const spec_list *list)
{
    if (list->passed_over)
        command_note("%zu line%s of the log passed over: their spec is none of a family", list->passed_over,
                     list->passed_over == 1 ? "" : "s");
    for (const char *at = qn_text_string(&list->notes); *at;) {
        size_t length = strcspn(at, "\n");
        command_note("%.*s", (int)length, at);
        at += length + (at[length] == '\n');
    }
}

quern_status warm_list_read(const warm_sources *from, int argc, char **argv, spec_list *list)
{
    QN_TRY(read_list(from, argc, argv, list));
    QN_TRY(check_not_empty(from, argc, argv, list));
    QN_TRY(narrow_list(&from->sizes, list));
    return check_sizes(list);
}

// What a manifest or a log says is for its own specs. Beside one, the others' architectures are said, not to be overlooked.
static void note_without_archs(const spec_list *list)
{
    size_t count = 0, first = 0;
    for (size_t i = list->count; i-- > 0;)
        if (!list->item[i].archs.count) count++, first = i;
    if (count && count < list->count)
        command_note("%zu of %zu specs have no architectures from a manifest or log (the first: '%s'): they are for "
                     "the GPUs present; --arch is for every spec",
                     count, list->count, list->item[first].text);
}

static bool all_have_archs(const spec_list *list)
{
    size_t i = 0;
    while (i < list->count && list->item[i].archs.count) i++;
    return list->count && i == list->count;
}

bool warm_list_choose(spec_list *list, const char *arch, bool has_archs, int *exit_status)
{
    command_archs archs = {.count = 0};
    if (!arch && has_archs) note_without_archs(list);
    if (arch || (has_archs && !all_have_archs(list)))
        if (!command_choose_archs(arch, &archs, exit_status)) return false;
    for (size_t i = 0; i < list->count; i++)
        if (arch || !list->item[i].archs.count) list->item[i].archs = archs;
    quern_status status = spec_list_unite(list); // entries that are the same, some only now
    if (status != QUERN_OK) *exit_status = command_status(status);
    return status == QUERN_OK;
}
