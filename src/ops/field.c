// SPDX-License-Identifier: Apache-2.0
// Fields by their descriptions. Called by spec.c, spec_text.c, args.c and config.c; knows no family.
#include "ops/field.h"

#include <math.h>
#include <string.h>

size_t qn_field_bytes(const qn_field *field)
{
    switch (field->type) {
    case QN_INT:
        return sizeof(int64_t);
    case QN_REAL:
        return sizeof(double);
    case QN_FLAG:
    case QN_ENUM:
        break;
    }
    return sizeof(int);
}

int64_t qn_field_get(const qn_field *field, const void *structure)
{
    const char *at = (const char *)structure + field->offset;
    int64_t wide;
    int narrow;

    switch (field->type) {
    case QN_INT:
        memcpy(&wide, at, sizeof wide);
        return wide;
    case QN_FLAG:
    case QN_ENUM:
        memcpy(&narrow, at, sizeof narrow);
        return narrow;
    case QN_REAL:
        break;
    }
    return 0;
}

double qn_field_get_real(const qn_field *field, const void *structure)
{
    double value = 0;
    if (field->type == QN_REAL) memcpy(&value, (const char *)structure + field->offset, sizeof value);
    return value;
}

void qn_field_put(const qn_field *field, void *structure, int64_t value)
{
    char *at = (char *)structure + field->offset;
    int narrow = (int)value;

    if (field->type == QN_INT)
        memcpy(at, &value, sizeof value);
    else if (field->type != QN_REAL)
        memcpy(at, &narrow, sizeof narrow);
}

void qn_field_put_real(const qn_field *field, void *structure, double value)
{
    if (field->type == QN_REAL) memcpy((char *)structure + field->offset, &value, sizeof value);
}

void qn_field_put_default(const qn_field *field, void *structure)
{
    if (field->type == QN_REAL)
        qn_field_put_real(field, structure, field->real_initial);
    else
        qn_field_put(field, structure, field->required ? 0 : field->initial);
}

bool qn_field_is_default(const qn_field *field, const void *structure)
{
    if (field->type == QN_REAL) return qn_field_get_real(field, structure) == field->real_initial;
    return qn_field_get(field, structure) == field->initial;
}

const qn_field *qn_field_find(const qn_field *fields, size_t count, const char *name)
{
    for (size_t i = 0; i < count; i++) {
        if (fields[i].name == name) return &fields[i];
    }
    for (size_t i = 0; i < count; i++) {
        if (!strcmp(fields[i].name, name)) return &fields[i];
    }
    return NULL;
}

const char *qn_name_of(const qn_name *names, int value)
{
    for (; names && names->name; names++) {
        if (names->value == value) return names->name;
    }
    return NULL;
}

void qn_names_write(const qn_name *names, qn_text *text)
{
    for (const qn_name *at = names; at && at->name; at++) qn_text_putf(text, "%s%s", at == names ? "" : ", ", at->name);
}

static quern_status bad_enum(const qn_field *field, int64_t value)
{
    qn_text allowed = QN_TEXT_INIT;

    qn_names_write(field->names, &allowed);
    qn_fail(QUERN_BAD_VALUE, "%s = %lld: allowed are %s", field->name, (long long)value, qn_text_string(&allowed));
    qn_text_fini(&allowed);
    return QUERN_BAD_VALUE;
}

static quern_status missing(const qn_field *field)
{
    qn_text allowed = QN_TEXT_INIT;

    if (field->names)
        qn_names_write(field->names, &allowed);
    else
        qn_text_putf(&allowed, "%lld … %lld", (long long)field->min, (long long)field->max);
    qn_fail(QUERN_MISSING_FIELD, "%s is required and not given: %s; allowed: %s", field->name,
            field->doc ? field->doc : "", qn_text_string(&allowed));
    qn_text_fini(&allowed);
    return QUERN_MISSING_FIELD;
}

quern_status qn_field_check(const qn_field *field, const void *structure)
{
    int64_t value = qn_field_get(field, structure);

    if (field->required && field->type != QN_REAL && value == 0) return missing(field);
    switch (field->type) {
    case QN_INT:
        if (value >= field->min && value <= field->max) return QUERN_OK;
        return qn_fail(QUERN_BAD_VALUE, "%s = %lld: allowed are %lld … %lld", field->name, (long long)value,
                       (long long)field->min, (long long)field->max);
    case QN_FLAG:
        if (value == 0 || value == 1) return QUERN_OK;
        return qn_fail(QUERN_BAD_VALUE, "%s = %lld: allowed are 0 and 1", field->name, (long long)value);
    case QN_ENUM:
        return qn_name_of(field->names, (int)value) ? QUERN_OK : bad_enum(field, value);
    case QN_REAL:
        if (isfinite(qn_field_get_real(field, structure))) return QUERN_OK;
        return qn_fail(QUERN_BAD_VALUE, "%s = %g: a finite number is needed", field->name,
                       qn_field_get_real(field, structure));
    }
    return qn_fail(QUERN_INTERNAL, "%s: a field of no known type", field->name);
}
