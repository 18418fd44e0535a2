// SPDX-License-Identifier: Apache-2.0
// The drivers of tests/simt (simt_cases.h).
#include "support/simt_cases.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const qn_arch *simt_arch(const char *name)
{
    const qn_arch *arch;
    if (qn_arch_find(name, &arch) != QUERN_OK) fail_msg("%s", quern_message());
    return arch;
}

quern *simt_open(void)
{
    quern_options options = QUERN_OPTIONS_INIT;
    quern *q = NULL;
    options.mode = QUERN_MODE_OFF, options.cache_file = "";
    if (quern_open(&options, &q) != QUERN_OK) fail_msg("%s", quern_message());
    return q;
}

model_order simt_order(size_t index)
{
    return (model_order){.shuffle = index % 4 != 0, .seed = (uint32_t)index};
}

bool simt_run_data(const family_cases *f, model *m, quern *q, const qn_arch *arch, const void *c,
                   const qn_config *config, size_t index, void *data, qn_text *report)
{
    qn_text fault = QN_TEXT_INIT;
    const quern_spec *spec = family_case_spec(f, c);
    const quern_args *args = family_args(f, data);
    quern_status status = config ? model_run_config(m, spec, arch, config, args, simt_order(index), &fault)
                                 : model_run_on(m, q, spec, arch, args, simt_order(index), &fault);
    if (status != QUERN_OK) {
        f->describe(c, report);
        qn_text_putf(report, "    on %s: %s\n%s", arch->name, quern_message(), qn_text_string(&fault));
    }
    qn_text_fini(&fault);
    return status == QUERN_OK;
}

void simt_judge_case(const family_cases *f, model *m, quern *q, const qn_arch *arch, const void *c,
                     const qn_config *config, size_t index, qn_text *report)
{
    void *data = family_data_make(f, c, 0x7FFF);
    if (simt_run_data(f, m, q, arch, c, config, index, data, report) && f->check(data, report))
        qn_text_putf(report, "    on %s, order %s %u\n", arch->name, simt_order(index).shuffle ? "drawn" : "as written",
                     (unsigned)index);
    family_data_free(f, data);
}

void simt_run_list(const family_cases *f, model_build build, const char *arch, unsigned tag, size_t every, size_t least)
{
    model *m = simt_model_any(build);
    quern *q = simt_open();
    family_verdict v = {0};
    qn_text report = QN_TEXT_INIT;
    char what[96];
    for (size_t i = 0; i < f->count(); i++) {
        const void *c = f->at(i);
        unsigned tags = family_case_tags(f, c);
        if (!f->wanted(c, tag) || !(tags & HOSTILE_MODEL) || !family_is_in_shard(i)) continue;
        if (i % every && !(tags & HOSTILE_QUICK)) continue;
        simt_judge_case(f, m, q, simt_arch(arch), c, NULL, i, &report);
        family_count(&v, &report);
    }
    qn_text_fini(&report);
    quern_close(q);
    snprintf(what, sizeof what, "cases on %s, %s build", arch, model_build_name[build]);
    family_conclude(&v, what, least);
}

// One configuration; returns how many cases the planner refused it.
static size_t force(const family_cases *f, model *m, const char *text, size_t number, simt_wanted_fn wanted,
                    family_verdict *v)
{
    const qn_arch *arch = simt_arch("sm_90a");
    qn_text report = QN_TEXT_INIT;
    qn_config config;
    size_t refused = 0;
    if (qn_config_parse(f->family, text, &config) != QUERN_OK) fail_msg("%s", quern_message());
    for (size_t i = 0; i < f->count(); i++) {
        const void *c = f->at(i);
        qn_plan plan;
        if (!wanted(c, i, number, text) || !family_is_in_shard(i)) continue;
        if (f->family->plan(family_case_spec(f, c), arch, &config, &plan) != QUERN_OK) {
            refused++;
            continue;
        }
        simt_judge_case(f, m, NULL, arch, c, &config, i + number, &report);
        if (report.length) qn_text_putf(&report, "    configuration: %s\n", text);
        family_count(v, &report);
    }
    qn_text_fini(&report);
    return refused;
}

void simt_run_forced(const family_cases *f, const char *const *configs, size_t count, simt_wanted_fn wanted,
                     size_t least)
{
    model *m = simt_model_any(MODEL_ACCESS);
    family_verdict v = {0};
    size_t refused = 0;
    for (size_t k = 0; k < count; k++) {
        size_t before = v.cases;
        refused += force(f, m, configs[k], k, wanted, &v);
        if (v.cases == before && !family_is_part()) fail_msg("'%s' ran no case", configs[k]);
    }
    print_message("%zu refused by the planner\n", refused);
    family_conclude(&v, "cases on forced plans", least);
}
