// SPDX-License-Identifier: Apache-2.0
// Configurations as text, "plan=cluster block=512 local_k=4", by the family's list of knobs. Called by tuner, bench,
// describe and the tuning table. A knob that is 0 and has no choice 0 is unused and left out.
#include <stdlib.h>
#include <string.h>

#include "base/nearest.h"
#include "ops/field.h"

bool qn_knob_has(const qn_knob *knob, int64_t value)
{
    for (size_t i = 0; i < knob->choice_count; i++) {
        if (knob->choices[i] == value) return true;
    }
    return false;
}

void qn_config_write(const qn_family *family, const qn_config *config, qn_text *text)
{
    const char *between = "";

    for (size_t i = 0; i < family->knob_count; i++) {
        const qn_knob *knob = &family->knobs[i];
        int value = config->value[i];
        if (value == 0 && !qn_knob_has(knob, 0)) continue;
        const char *word = qn_name_of(knob->names, value);
        if (word)
            qn_text_putf(text, "%s%s=%s", between, knob->name, word);
        else
            qn_text_putf(text, "%s%s=%d", between, knob->name, value);
        between = " ";
    }
}

static quern_status bad_choice(const qn_knob *knob, const char *value)
{
    qn_text allowed = QN_TEXT_INIT;
    qn_nearest nearest;

    qn_nearest_init(&nearest, value, strlen(value));
    for (size_t i = 0; i < knob->choice_count; i++) {
        const char *word = qn_name_of(knob->names, knob->choices[i]);
        qn_text_puts(&allowed, i ? ", " : "");
        if (word) qn_nearest_offer(&nearest, word);
        if (word)
            qn_text_puts(&allowed, word);
        else
            qn_text_putf(&allowed, "%d", knob->choices[i]);
    }
    qn_fail(QUERN_BAD_VALUE, "%s = '%.64s'%s: allowed are %s", knob->name, value, qn_nearest_hint(&nearest),
            qn_text_string(&allowed));
    qn_text_fini(&allowed);
    return QUERN_BAD_VALUE;
}

static quern_status unknown_knob(const qn_family *family, const char *name)
{
    qn_text known = QN_TEXT_INIT;
    qn_nearest nearest;

    qn_nearest_init(&nearest, name, strlen(name));
    for (size_t i = 0; i < family->knob_count; i++) {
        qn_text_putf(&known, "%s%s", i ? ", " : "", family->knobs[i].name);
        qn_nearest_offer(&nearest, family->knobs[i].name);
    }
    qn_fail(QUERN_UNKNOWN_FIELD, "%s has no knob '%.64s'%s; it has %s", family->name, name, qn_nearest_hint(&nearest),
            qn_text_string(&known));
    qn_text_fini(&known);
    return QUERN_UNKNOWN_FIELD;
}

static quern_status read_choice(const qn_knob *knob, const char *value, int32_t *choice)
{
    int64_t number = 0;
    bool found = false;

    for (const qn_name *name = knob->names; name && name->name; name++) {
        if (!strcmp(name->name, value)) number = name->value, found = true;
    }
    if (!found && !knob->names) found = qn_parse_int(value, &number);
    if (!found || !qn_knob_has(knob, number)) return bad_choice(knob, value);
    *choice = (int32_t)number;
    return QUERN_OK;
}

static quern_status read_word(const qn_family *family, char *word, uint32_t *given, qn_config *config)
{
    char *equals = strchr(word, '=');

    if (!equals || equals == word || !equals[1]) return qn_fail(QUERN_BAD_SYNTAX, "'%.64s' is not knob=value", word);
    *equals = 0;
    for (size_t i = 0; i < family->knob_count; i++) {
        if (strcmp(family->knobs[i].name, word)) continue;
        if (*given >> i & 1) return qn_fail(QUERN_DUPLICATE_FIELD, "%s is given twice", word);
        *given |= 1u << i;
        return read_choice(&family->knobs[i], equals + 1, &config->value[i]);
    }
    return unknown_knob(family, word);
}

quern_status qn_config_parse(const qn_family *family, const char *text, qn_config *config)
{
    static const char blanks[] = " \t\r\n\v\f";
    qn_config made;
    uint32_t given = 0;
    char *rest = NULL, *words = qn_strdup(text);
    quern_status status = QUERN_OK;

    if (!words) return qn_fail(QUERN_OUT_OF_MEMORY, "no memory for a configuration's text");
    memset(&made, 0, sizeof made);
    for (char *word = strtok_r(words, blanks, &rest); word && status == QUERN_OK;
         word = strtok_r(NULL, blanks, &rest)) {
        status = read_word(family, word, &given, &made);
    }
    free(words);
    if (status == QUERN_OK) *config = made;
    return status;
}
