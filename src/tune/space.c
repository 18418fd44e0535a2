// SPDX-License-Identifier: Apache-2.0
// The configuration space (space.h).
#include "tune/space.h"

#include <stdlib.h>
#include <string.h>

// ---- lists

bool qn_configs_has(const qn_configs *list, const qn_config *config)
{
    for (size_t i = 0; i < list->count; i++)
        if (!memcmp(&list->item[i], config, sizeof *config)) return true;
    return false;
}

quern_status qn_configs_add(qn_configs *list, const qn_config *config)
{
    if (qn_configs_has(list, config)) return QUERN_OK;
    if (list->count == list->capacity) {
        size_t capacity = list->capacity ? 2 * list->capacity : 64;
        qn_config *item = realloc(list->item, capacity * sizeof *item);
        if (!item) return qn_fail(QUERN_OUT_OF_MEMORY, "out of memory: %zu configurations", capacity);
        list->item = item, list->capacity = capacity;
    }
    list->item[list->count++] = *config;
    return QUERN_OK;
}

void qn_configs_fini(qn_configs *list)
{
    free(list->item);
    *list = (qn_configs)QN_CONFIGS_INIT;
}

// ---- one configuration

// What has no plan is not in the space: no failure. A knob that `from` did not use and this one does is missing: the
// middle of its choices stands in for it.
static quern_status add_if_planned(const qn_space *space, const qn_config *config, qn_configs *list)
{
    const qn_family *family = space->family;
    qn_config full = *config, canonical;
    qn_message_mark mark;
    qn_message_save(&mark);
    quern_status status = qn_config_canonical(family, space->spec, space->arch, config, &canonical);
    if (status == QUERN_MISSING_FIELD) {
        for (size_t k = 0; k < family->knob_count; k++)
            if (!full.value[k]) full.value[k] = family->knobs[k].choices[family->knobs[k].choice_count / 2];
        status = qn_config_canonical(family, space->spec, space->arch, &full, &canonical);
    }
    qn_message_restore(&mark);
    if (status == QUERN_OUT_OF_MEMORY) return qn_fail(status, "out of memory: planning a configuration");
    return status == QUERN_OK ? qn_configs_add(list, &canonical) : QUERN_OK;
}

// ---- parts of the space

quern_status qn_space_seeds(const qn_space *space, qn_configs *list)
{
    const qn_family *family = space->family;
    qn_config config, canonical;
    qn_config_choose(family, space->spec, space->arch, space->sm_count ? space->sm_count : space->arch->sm_count,
                     space->bucket, &config);
    QN_TRY(qn_config_canonical(family, space->spec, space->arch, &config, &canonical));
    QN_TRY(qn_configs_add(list, &canonical));
    for (size_t bucket = 0; bucket < family->bucket_count; bucket++) {
        memset(&config, 0, sizeof config);
        family->choose(space->spec, space->arch, bucket, &config);
        QN_TRY(add_if_planned(space, &config, list));
    }
    return QUERN_OK;
}

quern_status qn_space_neighbours(const qn_space *space, const qn_config *from, qn_configs *list)
{
    for (size_t k = 0; k < space->family->knob_count; k++) {
        const qn_knob *knob = &space->family->knobs[k];
        for (size_t i = 0; i < knob->choice_count; i++) {
            qn_config config = *from;
            config.value[k] = knob->choices[i];
            if (config.value[k] != from->value[k]) QN_TRY(add_if_planned(space, &config, list));
        }
    }
    return QUERN_OK;
}

quern_status qn_space_grid(const qn_space *space, const qn_config *from, size_t knob, size_t other, qn_configs *list)
{
    const qn_knob *a = &space->family->knobs[knob], *b = &space->family->knobs[other];
    for (size_t i = 0; i < a->choice_count; i++)
        for (size_t j = 0; j < b->choice_count; j++) {
            qn_config config = *from;
            config.value[knob] = a->choices[i], config.value[other] = b->choices[j];
            QN_TRY(add_if_planned(space, &config, list));
        }
    return QUERN_OK;
}

// SplitMix64.
static uint64_t mix(uint64_t *state)
{
    uint64_t z = *state += 0x9E3779B97F4A7C15u;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return z ^ z >> 31;
}

// Most of what is drawn has no plan: a bounded number of attempts.
quern_status qn_space_draws(const qn_space *space, uint64_t seed, size_t count, qn_configs *list)
{
    enum { ATTEMPTS = 200 };
    size_t wanted = list->count + count;
    for (size_t i = 0; i < count * ATTEMPTS && list->count < wanted; i++) {
        qn_config config;
        memset(&config, 0, sizeof config);
        for (size_t k = 0; k < space->family->knob_count; k++) {
            const qn_knob *knob = &space->family->knobs[k];
            config.value[k] = knob->choices[mix(&seed) % knob->choice_count];
        }
        QN_TRY(add_if_planned(space, &config, list));
    }
    return QUERN_OK;
}

size_t qn_space_knob(const qn_family *family, const char *name)
{
    size_t k = 0;
    while (k < family->knob_count && strcmp(family->knobs[k].name, name)) k++;
    return k;
}
