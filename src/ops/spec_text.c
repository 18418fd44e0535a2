// SPDX-License-Identifier: Apache-2.0
// Specs as text: "family field=value …". Called by tools, manifests, log lines and bindings. Both directions go through
// the family's field list, so a text that was written reads back to the same spec.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/nearest.h"
#include "ops/field.h"

static bool is_blank(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

// ---- one value

static quern_status bad_value(const qn_field *field, const char *value)
{
    qn_text allowed = QN_TEXT_INIT;
    qn_nearest nearest;

    qn_nearest_init(&nearest, value, strlen(value));
    switch (field->type) {
    case QN_INT:
        qn_text_putf(&allowed, "a decimal integer, %lld … %lld", (long long)field->min, (long long)field->max);
        break;
    case QN_FLAG:
        qn_text_puts(&allowed, "0 or 1");
        break;
    case QN_ENUM:
        qn_names_write(field->names, &allowed);
        for (const qn_name *at = field->names; at && at->name; at++) qn_nearest_offer(&nearest, at->name);
        break;
    case QN_REAL:
        qn_text_puts(&allowed, field->allowed ? field->allowed : "a finite decimal number");
        break;
    }
    qn_fail(QUERN_BAD_VALUE, "%s = '%.64s'%s: allowed: %s", field->name, value, qn_nearest_hint(&nearest),
            qn_text_string(&allowed));
    qn_text_fini(&allowed);
    return QUERN_BAD_VALUE;
}

// A size that is written as a field, if only by case (a field that differs so is meant before it).
static const char *size_meant(const qn_family *family, const char *name, const qn_nearest *field)
{
    qn_nearest size;
    qn_nearest_init(&size, name, strlen(name));
    for (size_t i = 0; i < family->size_count; i++) qn_nearest_offer(&size, family->sizes[i].name);
    return size.name && size.cost == 0 && !(field->name && field->cost == 0) ? size.name : NULL;
}

static quern_status is_a_size(const qn_family *family, const char *name)
{
    qn_text known = QN_TEXT_INIT;
    for (size_t i = 0; i < family->size_count; i++)
        qn_text_putf(&known, "%s--%s", i ? ", " : "", family->sizes[i].name);
    qn_fail(
        QUERN_UNKNOWN_FIELD,
        "'%s' is a size, which each launch has anew, and no field of the spec: 'quern show', 'warm' and 'tune' take "
        "it as --%s (the sizes are %s)",
        name, name, qn_text_string(&known));
    qn_text_fini(&known);
    return QUERN_UNKNOWN_FIELD;
}

static quern_status unknown_field(const qn_family *family, const char *name)
{
    qn_text known = QN_TEXT_INIT;
    qn_nearest nearest;

    qn_nearest_init(&nearest, name, strlen(name));
    for (size_t i = 0; i < family->field_count; i++) {
        qn_text_putf(&known, "%s%s", i ? ", " : "", family->fields[i].name);
        qn_nearest_offer(&nearest, family->fields[i].name);
    }
    const char *size = size_meant(family, name, &nearest);
    if (size)
        is_a_size(family, size);
    else
        qn_fail(QUERN_UNKNOWN_FIELD, "there is no field '%.64s'%s; the fields are %s", name, qn_nearest_hint(&nearest),
                qn_text_string(&known));
    qn_text_fini(&known);
    return QUERN_UNKNOWN_FIELD;
}

static const qn_name *find_name(const qn_name *names, const char *word)
{
    for (; names && names->name; names++) {
        if (!strcmp(names->name, word)) return names;
    }
    return NULL;
}

// Integers in decimal only: 0x10 and 16 would be two spellings of one spec.
static bool parse_decimal(const char *value, int64_t *number)
{
    return !value[strspn(value, "-0123456789")] && qn_parse_int(value, number);
}

quern_status qn_spec_set(const qn_family *family, quern_spec *spec, const char *name, const char *value)
{
    const qn_field *field = qn_field_find(family->fields, family->field_count, name);
    const qn_name *word;
    int64_t number;
    double real;

    if (!field) return unknown_field(family, name);
    switch (field->type) {
    case QN_INT:
    case QN_FLAG:
        if (!parse_decimal(value, &number)) return bad_value(field, value);
        if (field->type == QN_INT ? number < field->min || number > field->max : number != 0 && number != 1)
            return bad_value(field, value);
        qn_field_put(field, spec, number);
        return QUERN_OK;
    case QN_ENUM:
        word = find_name(field->names, value);
        if (!word) return bad_value(field, value);
        qn_field_put(field, spec, word->value);
        return QUERN_OK;
    case QN_REAL:
        if (!qn_parse_real(value, &real) || !isfinite(real)) return bad_value(field, value);
        qn_field_put_real(field, spec, real);
        return QUERN_OK;
    }
    return qn_fail(QUERN_INTERNAL, "%s: a field of no known type", name);
}

// ---- the whole text

// The next word of *at, cut off with a 0; NULL at the end.
static char *next_word(char **at)
{
    while (is_blank(**at)) (*at)++;
    if (!**at) return NULL;
    char *word = *at;
    while (**at && !is_blank(**at)) (*at)++;
    if (**at) *(*at)++ = 0;
    return word;
}

static quern_status set_word(const qn_family *family, quern_spec *spec, char *word, uint64_t *given)
{
    char *equals = strchr(word, '=');

    if (!equals || equals == word || !equals[1]) {
        return qn_fail(QUERN_BAD_SYNTAX, "'%.64s' is not field=value", word);
    }
    *equals = 0;
    const qn_field *field = qn_field_find(family->fields, family->field_count, word);
    if (!field) return unknown_field(family, word);
    uint64_t bit = (uint64_t)1 << (field - family->fields);
    if (*given & bit) return qn_fail(QUERN_DUPLICATE_FIELD, "%s is given twice", word);
    *given |= bit;
    return qn_spec_set(family, spec, word, equals + 1);
}

static quern_status contradiction(const qn_field *field, const qn_field *cause, const quern_any_spec *said,
                                  int64_t made)
{
    int64_t value = cause ? qn_field_get(cause, said) : 0;
    const char *word = cause && cause->type == QN_ENUM ? qn_name_of(cause->names, (int)value) : NULL;
    char number[24];
    snprintf(number, sizeof number, "%lld", (long long)value);
    return qn_fail(QUERN_CONFLICT, "%s = %lld with %s = %s, which makes it %lld", field->name,
                   (long long)qn_field_get(field, said), cause ? cause->name : "the other fields",
                   word    ? word
                   : cause ? number
                           : "they are",
                   (long long)made);
}

// A flag that the text gives, and that another field decides otherwise. (A number of 0 may stand for what follows from others.)
static quern_status check_derived(const qn_family *family, const quern_any_spec *said, uint64_t given)
{
    quern_any_spec full = *said;
    if (!family->derive) return QUERN_OK;
    family->derive(&full.base);
    for (size_t i = 0; i < family->field_count; i++) {
        const qn_field *field = &family->fields[i], *cause = NULL;
        int64_t made = qn_field_get(field, &full);
        if (!(given >> i & 1) || field->type != QN_FLAG || made == qn_field_get(field, said)) continue;
        for (size_t j = 0; j < family->field_count && !cause; j++) {
            quern_any_spec without = *said;
            qn_field_put_default(&family->fields[j], &without);
            family->derive(&without.base);
            if (j != i && qn_field_get(field, &without) != made) cause = &family->fields[j];
        }
        return contradiction(field, cause, said, made);
    }
    return QUERN_OK;
}

// Reads into *spec; words is a copy of the text that is cut up.
static quern_status parse_words(char *words, quern_any_spec *spec)
{
    const qn_family *family;
    uint64_t given = 0;
    char *name = next_word(&words);

    if (!name) return qn_fail(QUERN_BAD_SYNTAX, "the spec is empty; it reads \"family field=value …\"");
    if (strchr(name, '='))
        return qn_fail(QUERN_BAD_SYNTAX, "the spec begins with '%.64s'; the family's name comes first", name);
    QN_TRY(qn_family_find(name, &family));
    memset(spec, 0, sizeof *spec);
    spec->base.size = family->spec_bytes;
    spec->base.family = family->name;
    for (size_t i = 0; i < family->field_count; i++) qn_field_put_default(&family->fields[i], spec);
    for (char *word = next_word(&words); word; word = next_word(&words)) {
        quern_status status = set_word(family, &spec->base, word, &given);
        if (status != QUERN_OK) return qn_fail_in(status, "%s", family->name);
    }
    QN_TRY(quern_spec_check(&spec->base));
    quern_status status = check_derived(family, spec, given);
    return status == QUERN_OK ? QUERN_OK : qn_fail_in(status, "%s", family->name);
}

quern_status quern_spec_parse(const char *text, quern_any_spec *spec)
{
    quern_any_spec made;

    if (!text || !spec) return qn_fail(QUERN_MISSING_ARGUMENT, "%s is NULL", text ? "spec" : "text");
    char *words = qn_strdup(text);
    if (!words) return qn_fail(QUERN_OUT_OF_MEMORY, "no memory for a spec's text");
    quern_status status = parse_words(words, &made);
    free(words);
    if (status == QUERN_OK) *spec = made;
    return status;
}

static void write_field(const qn_field *field, const quern_spec *spec, qn_text *text)
{
    qn_text_putf(text, " %s=", field->name);
    if (field->type == QN_REAL) {
        qn_text_put_real(text, qn_field_get_real(field, spec) + 0.0); // -0 is written as 0
        return;
    }
    int64_t value = qn_field_get(field, spec);
    const char *name = field->type == QN_ENUM ? qn_name_of(field->names, (int)value) : NULL;
    if (name)
        qn_text_puts(text, name);
    else
        qn_text_putf(text, "%lld", (long long)value);
}

// Whether a field would be what it is without being said: its default, or what follows from the others.
static bool goes_without_saying(const qn_family *family, const qn_field *field, const quern_spec *spec)
{
    quern_any_spec without;
    if (field->required) return false;
    if (qn_field_is_default(field, spec)) return true;
    if (!family->derive || field->type == QN_REAL) return false;
    memset(&without, 0, sizeof without);
    memcpy(&without, spec, family->spec_bytes);
    qn_field_put_default(field, &without);
    family->derive(&without.base);
    return qn_field_get(field, &without) == qn_field_get(field, spec);
}

quern_status qn_spec_write(const qn_family *family, const quern_spec *spec, qn_text *text)
{
    qn_text_puts(text, family->name);
    for (size_t i = 0; i < family->field_count; i++) {
        const qn_field *field = &family->fields[i];
        if (!goes_without_saying(family, field, spec)) write_field(field, spec, text);
    }
    return qn_text_check(text);
}

quern_status quern_spec_format(const quern_spec *spec, char *text, size_t bytes)
{
    const qn_family *family;
    quern_any_spec full;
    qn_text made = QN_TEXT_INIT;

    if (!text && bytes) return qn_fail(QUERN_MISSING_ARGUMENT, "text is NULL");
    QN_TRY(qn_spec_complete(spec, &family, &full));
    quern_status status = qn_spec_write(family, &full.base, &made);
    if (status == QUERN_OK && made.length >= bytes) {
        status = qn_fail(QUERN_BAD_SIZE, "bytes = %zu: the spec's text needs %zu; 512 are always enough", bytes,
                         made.length + 1);
    }
    if (status == QUERN_OK) memcpy(text, made.bytes, made.length + 1);
    qn_text_fini(&made);
    return status;
}
