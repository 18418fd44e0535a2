// SPDX-License-Identifier: Apache-2.0
// Specs as structures: checked, completed, as descriptor. Called by runtime, tools and spec_text.c; knows no family by
// name. A spec that passes qn_spec_complete is valid everywhere below.
#include <string.h>

#include "ops/field.h"

static quern_status check_size(const qn_family *family, const quern_spec *spec)
{
    if (spec->size < sizeof *spec || spec->size > sizeof(quern_any_spec)) {
        return qn_fail(QUERN_BAD_ARGUMENT,
                       "%s spec: its size is %zu, and %zu is expected; start from the family's SPEC_INIT macro",
                       family->name, spec->size, family->spec_bytes);
    }
    // A newer header's structure: fine as long as what this library does not know is unset.
    const unsigned char *bytes = (const unsigned char *)spec;
    for (size_t i = family->spec_bytes; i < spec->size; i++) {
        if (!bytes[i]) continue;
        return qn_fail(QUERN_BAD_ARGUMENT, "%s spec: it sets a field that this library (version %s) does not know",
                       family->name, quern_version());
    }
    return QUERN_OK;
}

// Copies the fields that the caller's structure has; the others keep their defaults. Padding stays zero.
static void take_fields(const qn_family *family, const quern_spec *spec, quern_any_spec *full)
{
    memset(full, 0, sizeof *full);
    full->base.size = family->spec_bytes;
    full->base.family = family->name;
    for (size_t i = 0; i < family->field_count; i++) {
        const qn_field *field = &family->fields[i];
        size_t bytes = qn_field_bytes(field);
        if (field->offset + bytes <= spec->size)
            memcpy(full->bytes + field->offset, (const char *)spec + field->offset, bytes);
        else
            qn_field_put_default(field, full);
    }
}

quern_status qn_spec_complete(const quern_spec *spec, const qn_family **family, quern_any_spec *full)
{
    const qn_family *found;
    quern_any_spec made;

    if (!spec || !spec->family) {
        return qn_fail(QUERN_MISSING_ARGUMENT,
                       spec ? "the spec names no family; start from a SPEC_INIT macro" : "spec is NULL");
    }
    QN_TRY(qn_family_find(spec->family, &found));
    QN_TRY(check_size(found, spec));
    take_fields(found, spec, &made);
    for (size_t i = 0; i < found->field_count; i++) {
        quern_status status = qn_field_check(&found->fields[i], &made);
        if (status != QUERN_OK) return qn_fail_in(status, "%s", found->name);
    }
    if (found->derive) found->derive(&made.base);
    quern_status status = found->check ? found->check(&made.base) : QUERN_OK;
    if (status != QUERN_OK) return qn_fail_in(status, "%s", found->name);
    *family = found;
    *full = made;
    return QUERN_OK;
}

quern_status quern_spec_check(const quern_spec *spec)
{
    const qn_family *family;
    quern_any_spec full;

    return qn_spec_complete(spec, &family, &full);
}

int64_t qn_spec_number(const qn_family *family, const quern_spec *spec, const char *field)
{
    const qn_field *found = field ? qn_field_find(family->fields, family->field_count, field) : NULL;
    if (found) return qn_field_get(found, spec);
    int64_t length = field && family->axis_length ? family->axis_length(spec, field) : 0;
    return length > 0 ? length : 0;
}

size_t qn_spec_descriptor(const qn_family *family, const quern_spec *spec, uint64_t words[QN_DESCRIPTOR_WORDS])
{
    size_t count = 0;

    memset(words, 0, QN_DESCRIPTOR_WORDS * sizeof words[0]);
    words[count++] = (uint64_t)(uintptr_t)family; // one object a family, for the whole process
    for (size_t i = 0; i < family->field_count && count < QN_DESCRIPTOR_WORDS; i++) {
        const qn_field *field = &family->fields[i];
        if (field->type == QN_REAL) {
            double value = qn_field_get_real(field, spec) + 0.0; // -0 and 0 are one value, so one descriptor
            memcpy(&words[count++], &value, sizeof value);
        } else {
            words[count++] = (uint64_t)qn_field_get(field, spec);
        }
    }
    return count;
}
