// SPDX-License-Identifier: Apache-2.0
// What tests of the functional model share (simt.h).
#include "support/simt.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "codegen/template.h"
#include "support/again.h"

// ---- models

typedef struct opened {
    model_build build;
    const char *compiler;
    model *m;
} opened;
static opened models[MODEL_BUILDS * 4];
static size_t model_count;

model *simt_model(model_build build, const char *compiler)
{
    for (size_t i = 0; i < model_count; i++) {
        const char *other = models[i].compiler;
        if (models[i].build == build && (compiler == other || (compiler && other && !strcmp(compiler, other))))
            return models[i].m;
    }
    char cache[600], templates[600];
    const char *source = getenv("QUERN_TEST_SOURCE"), *made = getenv("QUERN_TEST_BUILD");
    snprintf(templates, sizeof templates, "%s/kernel_templates", source ? source : ".");
    snprintf(cache, sizeof cache, "%s/model", made ? made : ".");
    model_settings settings = {build, compiler, source ? templates : NULL, made ? cache : NULL};
    model *m = NULL;
    quern_status status = model_open(&settings, &m);
    if (status == QUERN_UNSUPPORTED) {
        print_message("skipped: %s\n", quern_message());
        skip();
    }
    if (status != QUERN_OK) fail_msg("the model does not open: %s", quern_message());
    assert_true(model_count < QN_COUNT(models));
    models[model_count++] = (opened){build, compiler, m};
    return m;
}

model *simt_model_any(model_build build)
{
    return simt_model(build, NULL);
}

void simt_close(void)
{
    for (size_t i = 0; i < model_count; i++) model_close(models[i].m);
    model_count = 0;
}

int simt_close_models(void **state)
{
    (void)state;
    simt_close();
    return 0;
}

// ---- kernels

char *simt_kernel(const char *name, const char *defines)
{
    char path[600];
    qn_text text = QN_TEXT_INIT;
    qn_text_puts(&text, "#define QN_ARCH 90\n");
    for (const char *word = defines ? defines : ""; *word;) {
        size_t length = strcspn(word, " "), equal = strcspn(word, "=");
        qn_text_putf(&text, "#define %.*s %.*s\n", (int)equal, word, (int)(length - equal - 1), word + equal + 1);
        word += length + (word[length] == ' ');
    }
    snprintf(path, sizeof path, "tests/simt/kernels/%s", name);
    if (qn_template_expand(path, test_source(), true, &text) != QUERN_OK) fail_msg("%s", quern_message());
    assert_int_equal(qn_text_check(&text), QUERN_OK);
    return text.bytes;
}

char *simt_replace(const char *text, const char *from, const char *to)
{
    const char *at = strstr(text, from);
    if (!at) fail_msg("the text to replace is not in the kernel: %s", from);
    if (strstr(at + 1, from)) fail_msg("the text to replace is in the kernel more than once: %s", from);
    qn_text result = QN_TEXT_INIT;
    qn_text_put(&result, text, (size_t)(at - text));
    qn_text_puts(&result, to);
    qn_text_puts(&result, at + strlen(from));
    assert_int_equal(qn_text_check(&result), QUERN_OK);
    return result.bytes;
}

char *simt_run(model *m, const char *source, const simt_launch *launch)
{
    const qn_arch *arch;
    qn_text report = QN_TEXT_INIT;
    assert_int_equal(qn_arch_find(launch->arch ? launch->arch : "sm_90a", &arch), QUERN_OK);
    model_launch_request request = {
        .source = source,
        .grid = {(uint32_t)launch->grid, 1, 1},
        .threads = launch->threads,
        .cluster = launch->cluster,
        .shared_bytes = launch->shared_bytes,
        .resident = launch->resident ? launch->resident : launch->grid,
        .params = launch->params,
        .params_bytes = launch->params_bytes,
        .order = launch->order,
    };
    quern_status status = model_launch(m, arch, &request, &report, NULL);
    if (status != QUERN_OK && status != QUERN_LAUNCH_FAILED) fail_msg("%s", quern_message());
    qn_text_puts(&report, status == QUERN_OK || report.length ? "" : "no report");
    assert_int_equal(qn_text_check(&report), QUERN_OK);
    return report.bytes;
}

// ---- reports

void simt_expect_clean(const char *report, const char *context)
{
    if (!*report) return;
    fprintf(stderr, "%s", report); // whole: cmocka's messages are cut
    fail_msg("%s: a fault where there is none", context);
}

void simt_expect_fault(const char *report, const char *words, const char *context)
{
    char list[512];
    snprintf(list, sizeof list, "%s", words);
    if (!*report) fail_msg("%s: no fault was reported; '%s' was expected", context, words);
    for (char *save = NULL, *word = strtok_r(list, "|", &save); word; word = strtok_r(NULL, "|", &save))
        if (strstr(report, word)) return;
    fprintf(stderr, "%s", report);
    fail_msg("%s: the report does not say '%s'", context, words);
}
