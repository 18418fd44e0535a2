// SPDX-License-Identifier: Apache-2.0
// Compile times of a spec's kernels (bench.h): every one anew, with no database.
#include "bench.h"
#include "runtime/runtime.h"

static const table_column columns[] = {
    {"arch", "arch", TABLE_TEXT, 0},          {"compile ms", "compile_ms", TABLE_REAL, 0},
    {"registers", "registers", TABLE_INT, 0}, {"local", "local_bytes", TABLE_INT, 0},
    {"image", "image_bytes", TABLE_INT, 0},   {"configuration", "configuration", TABLE_TEXT, 0},
    {"spec", "spec", TABLE_TEXT, 0},
};

table *bench_compile_table(void)
{
    return table_create(columns, QN_COUNT(columns));
}

// A kernel that two variants share is compiled once, and listed once.
static quern_status compile_variant(quern *q, const qn_family *family, const qn_variant *v, const qn_arch *arch,
                                    const char *spec_text, table *t)
{
    quern_status status = QUERN_OK;
    qn_text config = QN_TEXT_INIT;
    qn_config_write(family, &v->config, &config);
    for (size_t s = 0; s < v->plan.stage_count && status == QUERN_OK; s++) {
        const qn_image *image;
        status = qn_kernel_obtain(q, &v->plan.stage[s], arch, spec_text, &image);
        if (status == QUERN_OK && image->origin == QUERN_ORIGIN_COMPILED)
            table_add(t, arch->name, (double)image->compile_us * 1e-3, (int64_t)image->registers,
                      (int64_t)image->local_bytes, (int64_t)image->bytes.length, qn_text_string(&config), spec_text);
    }
    qn_text_fini(&config);
    return status;
}

static quern_status compile_all(quern *q, const qn_arch *arch, const char *spec_text, table *t)
{
    static qn_variants variants; // large
    const qn_family *family;
    quern_any_spec spec;
    QN_TRY(quern_spec_parse(spec_text, &spec));
    QN_TRY(qn_family_find(spec.base.family, &family));
    QN_TRY(qn_variants_plan(q, family, &spec.base, arch, &variants));
    for (size_t i = 0; i < variants.count; i++)
        QN_TRY(compile_variant(q, family, &variants.item[i], arch, spec_text, t));
    return QUERN_OK;
}

quern_status bench_compile(const char *spec_text, const qn_arch *arch, table *t)
{
    quern *q;
    quern_options options = QUERN_OPTIONS_INIT;
    options.mode = QUERN_MODE_OFF;
    QN_TRY(quern_open(&options, &q));
    quern_status status = compile_all(q, arch, spec_text, t);
    quern_close(q);
    return status;
}
