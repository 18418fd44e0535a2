// SPDX-License-Identifier: Apache-2.0
// Every instruction of the copy and matrix files on the model, against values computed from the manual's definitions
// and against public vectors; the same files run on the device in tests/gpu/instructions_test.c.
#include "support/simt.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/tensor_map.h"
#include "support/instructions.h"

static void make_map(const instruction_case *c, instruction_params *params)
{
    const instruction_map *m = &c->map;
    qm_tensor_fault fault;
    uint64_t address = (m->of_output ? params->out : params->in) + 4 * m->offset;
    memset(params->map, 0, sizeof params->map);
    if (m->present && qm_tensor_map_encode_tiled(params->map, m->type, m->rank, (void *)(uintptr_t)address, m->dims,
                                                 m->strides, m->box, m->steps, 0, m->swizzle, 0, m->fill, &fault))
        fail_msg("%s: %s", c->name, fault.text);
}

// One case in one order; false, with a message, when it goes wrong.
static bool run_case(model *m, const instruction_file *file, const instruction_case *c, const qn_arch *arch,
                     const char *source, model_order order)
{
    const instruction_words *expected = instruction_expected(c, arch->cc);
    uint32_t *in = model_alloc(m, "in", 4 * c->in.count, NULL, !c->map.present || c->map.of_output);
    uint32_t *out = model_alloc(m, "out", 4 * expected->count, NULL, false);
    assert_non_null(in);
    assert_non_null(out);
    memcpy(in, c->in.word, 4 * c->in.count);
    for (size_t i = 0; i < expected->count; i++) out[i] = INSTRUCTION_POISON;
    instruction_params params = {.in = (uintptr_t)in, .out = (uintptr_t)out, .which = c->which};
    make_map(c, &params);
    model_launch_request request = {.source = source,
                                    .grid = {c->ctas, 1, 1},
                                    .threads = file->threads,
                                    .cluster = (int)c->ctas,
                                    .shared_bytes = file->shared,
                                    .params = &params,
                                    .params_bytes = sizeof params,
                                    .order = order};
    qn_text report = QN_TEXT_INIT;
    char text[200];
    bool good = false;
    if (model_launch(m, arch, &request, &report, NULL) != QUERN_OK)
        instruction_complain(file, c, arch->name, report.length ? qn_text_string(&report) : quern_message());
    else if (*instruction_difference(expected, out, text))
        instruction_complain(file, c, arch->name, text);
    else
        good = true;
    qn_text_fini(&report);
    model_free(m);
    return good;
}

static size_t run_file(model_build build, const char *name, const char *arch_name, size_t *ran)
{
    instruction_file file;
    const qn_arch *arch;
    size_t run = 0, wrong = 0;
    instruction_file_read(name, &file);
    assert_int_equal(qn_arch_find(arch_name, &arch), QUERN_OK);
    if (instruction_file_fits(&file, arch)) {
        model *m = simt_model_any(build);
        qn_text source = QN_TEXT_INIT;
        if (instruction_source(&file, arch, &source) != QUERN_OK) fail_msg("%s", quern_message());
        for (size_t i = 0; i < file.count; i++) {
            const instruction_case *c = &file.cases[i];
            if (!instruction_expected(c, arch->cc) || !instruction_wanted(&file, c)) continue;
            run++;
            if (!run_case(m, &file, c, arch, qn_text_string(&source), (model_order){false, 1}) ||
                !run_case(m, &file, c, arch, qn_text_string(&source), (model_order){true, 7 + (uint32_t)i}))
                wrong++;
        }
        qn_text_fini(&source);
        print_message("%s, %s, %s: %zu cases, %zu wrong\n", name, arch_name, model_build_name[build], run, wrong);
    }
    instruction_file_fini(&file);
    *ran += run;
    return wrong;
}

static void run_all(model_build build)
{
    static const char *const archs[] = {"sm_80", "sm_90a", "sm_100a"};
    size_t wrong = 0, ran = 0;
    for (size_t i = 0; instruction_files[i]; i++)
        for (size_t k = 0; k < QN_COUNT(archs); k++) wrong += run_file(build, instruction_files[i], archs[k], &ran);
    assert_int_equal(wrong, 0);
    assert_true(ran > 500 || getenv("QUERN_TEST_CASE"));
}

static void instructions_give_the_manual_s_values_under_address_checks(void **state)
{
    (void)state;
    run_all(MODEL_ASAN);
}

static void instructions_give_the_manual_s_values_under_access_checks(void **state)
{
    (void)state;
    run_all(MODEL_ACCESS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(instructions_give_the_manual_s_values_under_address_checks),
        cmocka_unit_test(instructions_give_the_manual_s_values_under_access_checks),
    };
    return cmocka_run_group_tests_name("instructions", tests, NULL, simt_close_models);
}
