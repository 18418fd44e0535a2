// SPDX-License-Identifier: Apache-2.0
// attention's plans by force on the functional model (attention_forced.h).
#include "support/attention_forced.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ops/attention.h"

enum { MOST_KERNELS = 7 };
static const uint16_t nan16 = 0x7FFF; // in bf16 and in f16

attention_case attention_forced_case(const attention_forced *f, uint64_t seed)
{
    attention_case c = {.B = f->B, .Hq = f->Hq, .Hkv = f->Hkv, .seed = seed, .fill = ATTENTION_NORMAL, .p = 1};
    const char *message;
    snprintf(c.name, sizeof c.name, "%s", f->name);
    snprintf(c.text, sizeof c.text, "attention %s", f->fields);
    if (!attention_case_parse(&c, &message)) fail_msg("%s: %s", f->name, message);
    bool same = !f->queries[1] && !f->keys[1];
    for (int b = 0; b < f->B; b++) {
        c.queries[b] = f->queries[same ? 0 : b], c.keys[b] = f->keys[same ? 0 : b];
        if (c.keys[b] > c.Sk) c.Sk = c.keys[b];
    }
    if (f->Sk) c.Sk = f->Sk;
    c.order = f->order;
    return c;
}

typedef struct record {
    const attention_forced_list *list;
    char ran[MOST_KERNELS + 1];
} record;

static char *note_kernel(const char *source, void *user)
{
    record *r = user;
    size_t length = strlen(r->ran);
    if (length < MOST_KERNELS) r->ran[length] = r->list->letter(source);
    return strdup(source);
}

static void run_forced(const attention_forced_list *list, model *m, const attention_forced *f, model_order order,
                       qn_text *report)
{
    qn_config config;
    attention_data data;
    qn_text fault = QN_TEXT_INIT;
    record r = {.list = list};
    attention_case c = attention_forced_case(f, list->seed);
    if (qn_config_parse(&qn_family_attention, f->config, &config) != QUERN_OK) fail_msg("%s", quern_message());
    if (!attention_data_make(&c, nan16, &data)) fail_msg("no memory");
    model_set_edit(m, note_kernel, &r);
    if (model_run_config(m, &c.spec.base, simt_arch("sm_90a"), &config, &data.args.base, order, &fault) != QUERN_OK) {
        attention_describe(&c, report);
        qn_text_putf(report, "    %s\n%s", quern_message(), qn_text_string(&fault));
    } else {
        attention_check_case(&data, report);
        if (strcmp(r.ran, f->ran) != 0) qn_text_putf(report, "%s: '%s' ran, not '%s'\n", f->name, r.ran, f->ran);
    }
    model_set_edit(m, NULL, NULL);
    if (report->length) qn_text_putf(report, "    %s, configuration %s\n", f->name, f->config);
    qn_text_fini(&fault);
    attention_data_free(&data);
}

void attention_forced_run(const attention_forced_list *list, model_build build, size_t least)
{
    const char *name = getenv("QUERN_TEST_CASE");
    unsigned bit = build == MODEL_ASAN ? FORCED_ASAN : FORCED_ACCESS;
    model *m = simt_model_any(build);
    family_verdict v = {0};
    qn_text report = QN_TEXT_INIT;
    char what[96];
    for (size_t i = 0; i < list->count; i++) {
        const attention_forced *f = &list->item[i];
        if (!(f->builds & bit) || !family_is_in_shard(i) || (name && !strstr(f->name, name))) continue;
        run_forced(list, m, f, (model_order){.shuffle = i % 3 != 0, .seed = (uint32_t)i}, &report);
        family_count(&v, &report);
    }
    qn_text_fini(&report);
    snprintf(what, sizeof what, "%s, %s build", list->what, model_build_name[build]);
    family_conclude(&v, what, least);
}

bool attention_is_served(const attention_data *data, int plan)
{
    quern_attention_sizes sizes;
    qn_config config;
    qn_family_attention.sizes_of(&data->args.base, &sizes);
    qn_attention_choose(&data->c->spec.base, simt_arch("sm_90a"), qn_family_attention.bucket_of(&sizes), &config);
    return config.value[QN_ATTENTION_PLAN] == plan;
}

void attention_served_run(int plan, size_t least)
{
    family_verdict v = {0};
    qn_text report = QN_TEXT_INIT;
    size_t count;
    const attention_case *list = attention_cases(&count);
    model *m = simt_model_any(MODEL_PLAIN);
    quern *q = simt_open();
    for (size_t i = 0; i < count; i++) {
        if (!(list[i].tags & HOSTILE_MODEL) || !attention_wanted(&list[i], HOSTILE_MODEL) || !family_is_in_shard(i))
            continue;
        attention_data *data = family_data_make(&attention_family, &list[i], nan16);
        bool served = attention_is_served(data, plan);
        family_data_free(&attention_family, data);
        if (!served) continue;
        simt_judge_case(&attention_family, m, q, simt_arch("sm_90a"), &list[i], NULL, i, &report);
        family_count(&v, &report);
    }
    qn_text_fini(&report);
    quern_close(q);
    family_conclude(&v, "hostile cases of the plan", least);
}
