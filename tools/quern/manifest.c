// SPDX-License-Identifier: Apache-2.0
// Manifests: specs × architectures × ranges of sizes, as JSON (specs.h).
//
//   {"specs": ["gate E=256 K=8 in=f32",
//              {"spec": "softmax_topk V=128256 K=50 in=bf16", "sizes": [{"rows": [1, 64]}, {"rows": [4096, 8192]}]}],
//    "arch": ["sm_90a", "sm_100a"],
//    "sizes": {"N": [1, 512]}}
//
// "sizes" beside "specs" is for every spec that has no sizes of its own: of its names those that the spec's family has, as
// the command line's. A list of several makes the spec an entry for each that has a name of its family. "arch" is for this
// manifest's specs and nobody else's. A key that is given twice is an error, and so are a size that no spec has and an empty
// list. The command line's sizes and architectures win over these.
#include <math.h>
#include <string.h>

#include "cuda/arch.h"
#include "ops/field.h"
#include "specs.h"

typedef struct manifest {
    spec_list *list;
    const char *file;
    const cJSON *sizes; // of the whole
    size_t first;       // of the list's items that are this manifest's
} manifest;

static quern_status check_keys(const manifest *m, const cJSON *object, const char *where, const char *const *known,
                               size_t count)
{
    const cJSON *entry;
    cJSON_ArrayForEach(entry, object)
    {
        bool is_known = false;
        qn_text names = QN_TEXT_INIT;
        for (size_t i = 0; i < count; i++) {
            is_known |= !strcmp(entry->string, known[i]);
            qn_text_putf(&names, "%s\"%s\"", !i ? "" : i + 1 == count ? " and " : ", ", known[i]);
        }
        quern_status status = is_known ? QUERN_OK
                                       : qn_fail(QUERN_BAD_FILE, "%s: %sunknown key \"%s\": %s are known", m->file,
                                                 where, entry->string, qn_text_string(&names));
        qn_text_fini(&names);
        QN_TRY(status);
    }
    return QUERN_OK;
}

// ---- ranges

static const double most = 9007199254740991.0; // beyond, a double is no more the number that is written

static bool is_beyond(const cJSON *number)
{
    return cJSON_IsNumber(number) && fabs(number->valuedouble) > most;
}

static bool read_integer(const cJSON *number, int64_t *value)
{
    double real = cJSON_IsNumber(number) ? number->valuedouble : NAN;
    if (!(fabs(real) <= most) || real != floor(real)) return false;
    *value = (int64_t)real;
    return true;
}

static quern_status read_pair(const manifest *m, const cJSON *pair, int64_t *from, int64_t *to)
{
    if (cJSON_IsArray(pair) && cJSON_GetArraySize(pair) == 2 && read_integer(cJSON_GetArrayItem(pair, 0), from) &&
        read_integer(cJSON_GetArrayItem(pair, 1), to))
        return QUERN_OK;
    if (is_beyond(cJSON_GetArrayItem(pair, 0)) || is_beyond(cJSON_GetArrayItem(pair, 1)))
        return qn_fail(QUERN_BAD_FILE, "%s: sizes: \"%s\" has a number beyond %.0f", m->file, pair->string, most);
    return qn_fail(QUERN_BAD_FILE, "%s: sizes: \"%s\" is not a pair of whole numbers, [1, 64]", m->file, pair->string);
}

static bool has_size(const qn_family *family, const char *name)
{
    return qn_field_find(family->sizes, family->size_count, name) != NULL;
}

// {"rows": [1, 64]}: narrows the item to it. Of the whole's sizes only those that the family has.
static quern_status narrow(const manifest *m, spec_item *item, const cJSON *range, bool is_own)
{
    const cJSON *pair;
    cJSON_ArrayForEach(pair, range)
    {
        int64_t from, to;
        if (!is_own && !has_size(item->family, pair->string)) continue;
        QN_TRY(read_pair(m, pair, &from, &to));
        quern_status status = spec_item_narrow(item, pair->string, from, to);
        if (status != QUERN_OK) return qn_fail_in(status, "sizes");
    }
    return QUERN_OK;
}

// Whether it has a name of the family, or none at all.
static bool is_for(const qn_family *family, const cJSON *range)
{
    const cJSON *pair;
    if (!range->child) return true;
    cJSON_ArrayForEach(pair, range) if (has_size(family, pair->string)) return true;
    return false;
}

// An object, or a list of objects: the first, and the next after one.
static const cJSON *first_range(const cJSON *sizes)
{
    return cJSON_IsArray(sizes) ? sizes->child : sizes;
}

static const cJSON *next_range(const cJSON *sizes, const cJSON *range)
{
    return cJSON_IsArray(sizes) ? range->next : NULL;
}

static quern_status check_form(const manifest *m, const cJSON *sizes)
{
    if (!cJSON_IsObject(sizes) && !cJSON_IsArray(sizes))
        return qn_fail(QUERN_BAD_FILE, "%s: \"sizes\" is not an object or a list", m->file);
    if (cJSON_IsArray(sizes) && !sizes->child)
        return qn_fail(QUERN_BAD_FILE, "%s: \"sizes\" is an empty list: leave it out for all sizes", m->file);
    for (const cJSON *range = first_range(sizes); range; range = next_range(sizes, range))
        if (!cJSON_IsObject(range)) return qn_fail(QUERN_BAD_FILE, "%s: sizes: an entry is no object", m->file);
    return QUERN_OK;
}

// The item that was added last, once for each range.
static quern_status add_ranges(const manifest *m, const char *text, const cJSON *sizes, bool is_own)
{
    spec_list *list = m->list;
    size_t first = list->count - 1;
    bool used = false;
    for (const cJSON *range = first_range(sizes); range; range = next_range(sizes, range)) {
        if (!is_own && !is_for(list->item[first].family, range)) continue;
        if (used) QN_TRY(spec_list_add_text(list, text));
        used = true;
        QN_TRY(narrow(m, &list->item[list->count - 1], range, is_own));
    }
    return QUERN_OK;
}

// ---- entries

static quern_status add_entry(const manifest *m, const cJSON *entry)
{
    static const char *const known[] = {"spec", "sizes"};
    const cJSON *text = entry, *sizes = m->sizes;
    bool is_own = false;
    if (cJSON_IsObject(entry)) {
        QN_TRY(check_keys(m, entry, "", known, QN_COUNT(known)));
        text = cJSON_GetObjectItemCaseSensitive(entry, "spec");
        is_own = cJSON_HasObjectItem(entry, "sizes");
        if (is_own) sizes = cJSON_GetObjectItemCaseSensitive(entry, "sizes");
    }
    if (!cJSON_IsString(text))
        return qn_fail(QUERN_BAD_FILE, "%s: an entry of \"specs\" is no string, nor an object with \"spec\"", m->file);
    if (strchr(text->valuestring, '[')) // as a line of a list has them
        return qn_fail(QUERN_BAD_SYNTAX,
                       "\"%s\": in a manifest, ranges are \"sizes\": {\"spec\": \"...\", \"sizes\": "
                       "{\"rows\": [1, 64]}}",
                       text->valuestring);
    QN_TRY(spec_list_add_text(m->list, text->valuestring));
    if (!sizes) return QUERN_OK;
    if (is_own) QN_TRY(check_form(m, sizes));
    return add_ranges(m, text->valuestring, sizes, is_own);
}

// A name in the "sizes" of the whole that no spec's family has is a slip: it would narrow nothing. And one whose specs all
// have sizes of their own is looked at all the same.
static quern_status check_pair(const manifest *m, const cJSON *pair)
{
    int64_t from, to;
    size_t i = m->first;
    QN_TRY(read_pair(m, pair, &from, &to));
    while (i < m->list->count && !has_size(m->list->item[i].family, pair->string)) i++;
    if (i == m->list->count)
        return qn_fail(QUERN_BAD_FILE, "%s: sizes: no spec has a size \"%s\"", m->file, pair->string);
    spec_item scratch = m->list->item[i];
    quern_status status = spec_item_narrow(&scratch, pair->string, from, to);
    return status == QUERN_OK ? QUERN_OK : qn_fail_in(status, "%s: sizes", m->file);
}

static quern_status check_sizes(const manifest *m)
{
    const cJSON *pair;
    for (const cJSON *range = m->sizes ? first_range(m->sizes) : NULL; range; range = next_range(m->sizes, range))
        cJSON_ArrayForEach(pair, range) QN_TRY(check_pair(m, pair));
    return QUERN_OK;
}

// An unknown one is an error also where the command line's architectures win.
static quern_status add_arch(const manifest *m, const cJSON *entry)
{
    const qn_arch *arch;
    if (!cJSON_IsString(entry)) return qn_fail(QUERN_BAD_FILE, "%s: \"arch\" is not an array of strings", m->file);
    quern_status status = qn_arch_find(entry->valuestring, &arch);
    if (status != QUERN_OK) return qn_fail_in(status, "%s", m->file);
    spec_list_add_arch(m->list, m->first, arch);
    return QUERN_OK;
}

// JSON readers differ in which of two values they take: neither is right.
static quern_status check_once(const cJSON *object, const char *file)
{
    for (const cJSON *a = object->child; a; a = a->next) {
        QN_TRY(check_once(a, file)); // cJSON bounds the depth
        for (const cJSON *b = a->string ? a->next : NULL; b; b = b->next)
            if (!strcmp(a->string, b->string))
                return qn_fail(QUERN_BAD_FILE, "%s: the key \"%s\" is given twice in one object", file, a->string);
    }
    return QUERN_OK;
}

static quern_status add_document(spec_list *list, const char *file, const cJSON *document)
{
    static const char *const known[] = {"specs", "arch", "sizes"};
    manifest m = {list, file, NULL, list->count};
    if (!cJSON_IsObject(document)) return qn_fail(QUERN_BAD_FILE, "%s: not a JSON object", file);
    QN_TRY(check_keys(&m, document, "", known, QN_COUNT(known)));
    const cJSON *specs = cJSON_GetObjectItemCaseSensitive(document, "specs"), *entry;
    const cJSON *archs = cJSON_GetObjectItemCaseSensitive(document, "arch");
    m.sizes = cJSON_GetObjectItemCaseSensitive(document, "sizes");
    if (!specs) return qn_fail(QUERN_BAD_FILE, "%s: \"specs\" is missing", file);
    if (!cJSON_IsArray(specs)) return qn_fail(QUERN_BAD_FILE, "%s: \"specs\" is not a list", file);
    if (archs && !cJSON_IsArray(archs)) return qn_fail(QUERN_BAD_FILE, "%s: \"arch\" is not an array of strings", file);
    if (archs && !archs->child)
        return qn_fail(QUERN_BAD_FILE, "%s: \"arch\" is empty: name an architecture, or leave \"arch\" out", file);
    if (m.sizes) QN_TRY(check_form(&m, m.sizes));
    int number = 0;
    cJSON_ArrayForEach(entry, specs)
    {
        quern_status status = add_entry(&m, entry);
        if (status != QUERN_OK && status != QUERN_BAD_FILE) return qn_fail_in(status, "%s: specs[%d]", file, number);
        QN_TRY(status);
        number++;
    }
    QN_TRY(check_sizes(&m));
    cJSON_ArrayForEach(entry, archs) QN_TRY(add_arch(&m, entry));
    return QUERN_OK;
}

quern_status spec_list_add_manifest(spec_list *list, const char *file)
{
    cJSON *document = NULL;
    QN_TRY(spec_list_read_json(file, &document));
    quern_status status = check_once(document, file);
    if (status == QUERN_OK) status = add_document(list, file, document);
    cJSON_Delete(document);
    return status;
}
