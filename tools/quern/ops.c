// SPDX-License-Identifier: Apache-2.0
// `quern ops`: the families from their own lists: fields, sizes, tensors and choices of configuration.
#include <stdio.h>
#include <string.h>

#include "command.h"
#include "ops/field.h"
#include "table.h"

static const char text[] =
    "Without FAMILY: the families. With one: everything that its specs, files and configurations may name.\n";

// ---- fields and sizes

static const table_column field_columns[] = {
    {"field", "name", TABLE_TEXT, 0},
    {"allowed", "allowed", TABLE_TEXT, 0},
    {"default", "default", TABLE_TEXT, 0},
    {"meaning", "doc", TABLE_TEXT, 0},
};

static void allowed_text(const qn_field *field, qn_text *out)
{
    switch (field->type) {
    case QN_INT:
        qn_text_putf(out, "%lld to %lld", (long long)field->min, (long long)field->max);
        break;
    case QN_FLAG:
        qn_text_puts(out, "0, 1");
        break;
    case QN_REAL:
        qn_text_puts(out, field->allowed ? field->allowed : "a finite number");
        break;
    case QN_ENUM:
        qn_names_write(field->names, out);
        break;
    }
}

static void default_text(const qn_field *field, qn_text *out)
{
    if (field->required)
        qn_text_puts(out, "(required)");
    else if (field->type == QN_REAL)
        qn_text_put_real(out, field->real_initial);
    else if (field->type == QN_ENUM)
        qn_text_puts(out, qn_name_of(field->names, (int)field->initial));
    else
        qn_text_putf(out, "%lld", (long long)field->initial);
}

static table *list_fields(const qn_field *fields, size_t count, bool with_default)
{
    table *t = table_create(field_columns, QN_COUNT(field_columns));
    for (size_t i = 0; i < count; i++) {
        qn_text allowed = QN_TEXT_INIT, initial = QN_TEXT_INIT;
        allowed_text(&fields[i], &allowed);
        if (with_default) default_text(&fields[i], &initial);
        table_add(t, fields[i].name, qn_text_string(&allowed), with_default ? qn_text_string(&initial) : NULL,
                  fields[i].doc);
        qn_text_fini(&allowed);
        qn_text_fini(&initial);
    }
    return t;
}

// ---- tensors

static const table_column tensor_columns[] = {
    {"tensor", "name", TABLE_TEXT, 0}, {"direction", "direction", TABLE_TEXT, 0}, {"shape", NULL, TABLE_TEXT, 0},
    {"type", "type", TABLE_TEXT, 0},   {"with", "flag", TABLE_TEXT, 0},           {"meaning", "doc", TABLE_TEXT, 0},
    {NULL, "shape", TABLE_JSON, 0},    {"strides", NULL, TABLE_TEXT, 0},          {NULL, "strides", TABLE_JSON, 0},
};

// "layout=dense, paged", or the field that asks for the tensor.
static void write_condition(const qn_family *family, const qn_tensor *tensor, qn_text *out)
{
    const char *between = "";
    if (tensor->flag) qn_text_puts(out, tensor->flag), between = ", ";
    if (tensor->unless) qn_text_putf(out, "%s%s=0", between, tensor->unless), between = ", ";
    if (!tensor->choice) return;
    qn_text_putf(out, "%s%s=", between, tensor->choice);
    between = "";
    const qn_field *field = qn_field_find(family->fields, family->field_count, tensor->choice);
    for (int value = 0; value < 32; value++) {
        if (!(tensor->choices >> value & 1)) continue;
        const char *word = field ? qn_name_of(field->names, value) : NULL;
        if (word)
            qn_text_putf(out, "%s%s", between, word);
        else
            qn_text_putf(out, "%s%d", between, value);
        between = ", ";
    }
}

// The arguments that say how its outer axes lie in memory: for people, and as JSON.
static void write_strides(const qn_tensor *tensor, qn_text *words, qn_text *json)
{
    qn_text_puts(json, "[");
    for (size_t a = 0; tensor->axes[a] && tensor->axes[a + 1]; a++) {
        const char *axis = qn_stride_axis(tensor, a);
        qn_text_putf(words, "%s%s_stride_%s", a ? ", " : "", tensor->name, axis);
        qn_text_putf(json, "%s\"%s_stride_%s\"", a ? ", " : "", tensor->name, axis);
    }
    qn_text_puts(json, "]");
}

static table *list_tensors(const qn_family *family)
{
    table *t = table_create(tensor_columns, QN_COUNT(tensor_columns));
    for (size_t i = 0; i < family->tensor_count; i++) {
        const qn_tensor *tensor = &family->tensors[i];
        qn_text shape = QN_TEXT_INIT, type = QN_TEXT_INIT, names = QN_TEXT_INIT, with = QN_TEXT_INIT;
        qn_text strides = QN_TEXT_INIT, stride_names = QN_TEXT_INIT;
        write_strides(tensor, &strides, &stride_names);
        write_condition(family, tensor, &with);
        for (size_t a = 0; tensor->axes[a]; a++) {
            qn_text_putf(&shape, "%s%s", a ? ", " : "[", tensor->axes[a]);
            qn_text_putf(&names, "%s\"%s\"", a ? ", " : "[", tensor->axes[a]);
        }
        qn_text_puts(&shape, "]");
        qn_text_puts(&names, "]");
        if (tensor->dtype == QUERN_DTYPE_NONE)
            qn_text_putf(&type, "by %s", tensor->dtype_field);
        else
            qn_text_puts(&type, qn_dtype_name(tensor->dtype));
        table_add(t, tensor->name, tensor->direction == QN_INPUT ? "input" : "output", qn_text_string(&shape),
                  qn_text_string(&type), with.length ? qn_text_string(&with) : NULL, tensor->doc,
                  qn_text_string(&names), strides.length ? qn_text_string(&strides) : NULL,
                  qn_text_string(&stride_names));
        qn_text_fini(&shape);
        qn_text_fini(&names);
        qn_text_fini(&with);
        qn_text_fini(&type);
        qn_text_fini(&strides);
        qn_text_fini(&stride_names);
    }
    return t;
}

// ---- knobs

static const table_column knob_columns[] = {
    {"choice", "name", TABLE_TEXT, 0},
    {"values", "values", TABLE_TEXT, 0},
    {"meaning", "doc", TABLE_TEXT, 0},
};

static table *list_knobs(const qn_family *family)
{
    table *t = table_create(knob_columns, QN_COUNT(knob_columns));
    for (size_t i = 0; i < family->knob_count; i++) {
        const qn_knob *knob = &family->knobs[i];
        qn_text values = QN_TEXT_INIT;
        for (size_t c = 0; c < knob->choice_count; c++) {
            if (c) qn_text_puts(&values, ", ");
            if (knob->names)
                qn_text_puts(&values, qn_name_of(knob->names, knob->choices[c]));
            else
                qn_text_putf(&values, "%d", knob->choices[c]);
        }
        table_add(t, knob->name, qn_text_string(&values), knob->doc);
        qn_text_fini(&values);
    }
    return t;
}

// ---- the command

static void print_family(const qn_family *family, bool json)
{
    const struct {
        const char *title, *key;
        table *t;
    } parts[] = {
        {"fields of a spec", "fields", list_fields(family->fields, family->field_count, true)},
        {"sizes of a launch", "sizes", list_fields(family->sizes, family->size_count, false)},
        {"tensors", "tensors", list_tensors(family)},
        {"choices of a configuration", "knobs", list_knobs(family)},
    };
    cJSON *document = cJSON_CreateObject();
    cJSON_AddStringToObject(document, "family", family->name);
    cJSON_AddStringToObject(document, "doc", family->doc);
    if (!json) printf("%s: %s\n", family->name, family->doc);
    for (size_t i = 0; i < QN_COUNT(parts); i++) {
        if (json) {
            cJSON_AddItemToObject(document, parts[i].key, table_json(parts[i].t));
        } else if (table_rows(parts[i].t)) {
            printf("\n%s\n", parts[i].title);
            table_print(parts[i].t);
        }
        table_destroy(parts[i].t);
    }
    if (json)
        json_print(document);
    else
        cJSON_Delete(document);
}

static void print_families(bool json)
{
    static const table_column columns[] = {{"family", "family", TABLE_TEXT, 0}, {"formula", "doc", TABLE_TEXT, 0}};
    size_t count;
    const qn_family *const *families = qn_families(&count);
    table *t = table_create(columns, QN_COUNT(columns));
    for (size_t i = 0; i < count; i++) table_add(t, families[i]->name, families[i]->doc);
    if (json) {
        cJSON *document = cJSON_CreateObject();
        cJSON_AddItemToObject(document, "families", table_json(t));
        json_print(document);
    } else {
        table_print(t);
    }
    table_destroy(t);
}

int command_ops(int argc, char **argv)
{
    bool json = false;
    const command_option options[] = {COMMAND_OPTION_JSON(&json), COMMAND_OPTION_END};
    const command_syntax syntax = {"quern ops [FAMILY] [options]", text, options};
    const qn_family *family;
    int exit_status;
    if (!command_parse(&syntax, &argc, argv, &exit_status)) return exit_status;
    if (argc > 2) return command_usage("one family at a time");
    if (argc == 2) {
        quern_status status = qn_family_find(argv[1], &family);
        if (status != QUERN_OK) return command_status(status);
        print_family(family, json);
    } else {
        print_families(json);
    }
    return COMMAND_OK;
}
