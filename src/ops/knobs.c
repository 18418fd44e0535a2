// SPDX-License-Identifier: Apache-2.0
// Which knobs a configuration uses. A plan says so itself: a knob that it does not use gives the same plan whatever its
// choice is. Called by the tuning table's look-up and by the tuner, whose configurations come from outside or by chance.
//   (1) plan is never asked about a configuration with a knob that is not one of its choices.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ops/family.h"

static bool is_same_kernel(const qn_kernel_plan *a, const qn_kernel_plan *b)
{
    if (strcmp(a->template_path, b->template_path) || strcmp(a->entry, b->entry) || a->threads != b->threads ||
        a->min_ctas != b->min_ctas || a->cluster != b->cluster || a->dynamic_shared != b->dynamic_shared ||
        a->params_bytes != b->params_bytes || a->overlaps != b->overlaps || a->constant_count != b->constant_count)
        return false;
    for (size_t i = 0; i < a->constant_count; i++)
        if (strcmp(a->constants[i].name, b->constants[i].name) || a->constants[i].value != b->constants[i].value)
            return false;
    return true;
}

static bool is_same(const qn_plan *a, const qn_plan *b)
{
    if (a->stage_count != b->stage_count) return false;
    for (size_t i = 0; i < a->stage_count; i++)
        if (!is_same_kernel(&a->stage[i], &b->stage[i])) return false;
    return true;
}

// Two plans to compare: too large for some stacks.
typedef struct pair {
    qn_plan base, other;
} pair;

static bool is_used(const qn_family *family, const quern_spec *spec, const qn_arch *arch, const qn_config *config,
                    size_t knob, pair *plans)
{
    qn_config other = *config;
    for (size_t i = 0; i < family->knobs[knob].choice_count; i++) {
        other.value[knob] = family->knobs[knob].choices[i];
        if (other.value[knob] == config->value[knob]) continue;
        if (family->plan(spec, arch, &other, &plans->other) != QUERN_OK) return true;
        if (!is_same(&plans->base, &plans->other)) return true;
    }
    return false;
}

// Every knob at a choice of its; *given says which were.
static bool complete(const qn_family *family, const qn_config *config, qn_config *full, uint32_t *given)
{
    memset(full, 0, sizeof *full);
    *given = 0;
    for (size_t k = 0; k < family->knob_count; k++) {
        bool has = qn_knob_has(&family->knobs[k], config->value[k]);
        if (!has && config->value[k]) return false;
        full->value[k] = has ? config->value[k] : family->knobs[k].choices[0];
        *given |= (uint32_t)has << k;
    }
    return true;
}

// There is no plan with the first choice of each missing knob. If another choice of one gives a plan, or another reason,
// then that knob is what is wrong: a reason that speaks of values nobody gave would mislead.
static quern_status blame_missing(const qn_family *family, const quern_spec *spec, const qn_arch *arch,
                                  const qn_config *full, uint32_t given, pair *plans)
{
    char why[512];
    snprintf(why, sizeof why, "%s", quern_message());
    for (size_t k = 0; k < family->knob_count; k++) {
        for (size_t i = 1; i < family->knobs[k].choice_count && !(given >> k & 1); i++) {
            qn_config other = *full;
            other.value[k] = family->knobs[k].choices[i];
            if (family->plan(spec, arch, &other, &plans->other) == QUERN_NO_PLAN && !strcmp(quern_message(), why))
                continue;
            return qn_fail(QUERN_MISSING_FIELD, "%s: the knob %s is needed and not given", family->name,
                           family->knobs[k].name);
        }
    }
    return qn_fail(QUERN_NO_PLAN, "%s", why);
}

// A missing knob must be unused; unused ones become 0 where canonical is not NULL.
static quern_status look(const qn_family *family, const quern_spec *spec, const qn_arch *arch, const qn_config *config,
                         qn_config *canonical, pair *plans)
{
    qn_config full, result;
    uint32_t given;
    if (!complete(family, config, &full, &given))
        return qn_fail(QUERN_BAD_VALUE, "%s: a knob has a value that is none of its choices", family->name);
    quern_status status = family->plan(spec, arch, &full, &plans->base);
    if (status == QUERN_NO_PLAN) status = blame_missing(family, spec, arch, &full, given, plans);
    QN_TRY(status);
    result = full;
    for (size_t k = 0; k < family->knob_count; k++) {
        bool has = given >> k & 1;
        if (has && !canonical) continue;
        bool used = is_used(family, spec, arch, &full, k, plans);
        if (!has && used)
            return qn_fail(QUERN_MISSING_FIELD, "%s: the knob %s is needed and not given", family->name,
                           family->knobs[k].name);
        if (!used) result.value[k] = 0;
    }
    if (canonical) *canonical = result;
    return QUERN_OK;
}

static quern_status look_aside(const qn_family *family, const quern_spec *spec, const qn_arch *arch,
                               const qn_config *config, qn_config *canonical)
{
    qn_message_mark mark;
    pair *plans = malloc(sizeof *plans);
    if (!plans) return qn_fail(QUERN_OUT_OF_MEMORY, "out of memory: comparing plans");
    qn_message_save(&mark);
    quern_status status = look(family, spec, arch, config, canonical, plans);
    if (status == QUERN_OK) qn_message_restore(&mark); // refusals of other choices on the way are nobody's failure
    free(plans);
    return status;
}

quern_status qn_config_check(const qn_family *family, const quern_spec *spec, const qn_arch *arch,
                             const qn_config *config)
{
    return look_aside(family, spec, arch, config, NULL);
}

quern_status qn_config_canonical(const qn_family *family, const quern_spec *spec, const qn_arch *arch,
                                 const qn_config *config, qn_config *canonical)
{
    return look_aside(family, spec, arch, config, canonical);
}

void qn_config_choose(const qn_family *family, const quern_spec *spec, const qn_arch *arch, int sm_count, size_t bucket,
                      qn_config *config)
{
    memset(config, 0, sizeof *config);
    family->choose(spec, arch, bucket, config);
    if (family->fit) (void)family->fit(spec, bucket, sm_count, config);
}

bool qn_spec_has_one_config(const qn_family *family, const quern_spec *spec)
{
    return qn_spec_number(family, spec, "batch_invariant") != 0;
}
