// SPDX-License-Identifier: Apache-2.0
// What the manual forbids is reported: each misuse of a copy or matrix instruction that is planted in faults.cu, by the
// builds that can see it, and nothing is reported for the right uses beside them.
#include "support/simt.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/tensor_map.h"
#include "support/instructions.h"

enum { THREADS = 128, SHARED = 2 * 8192 + 8 };

typedef struct planted {
    uint32_t which;
    const char *words; // of the report; alternatives between '|'
} planted;

static void make_map(instruction_params *params)
{
    static const uint64_t dims[2] = {64, 8}, strides[1] = {128};
    static const uint32_t box[2] = {16, 1}, steps[2] = {1, 1};
    qm_tensor_fault fault;
    if (qm_tensor_map_encode_tiled(params->map, 1, 2, (void *)(uintptr_t)params->in, dims, strides, box, steps, 0, 0, 0,
                                   0, &fault))
        fail_msg("%s", fault.text);
}

static char *run_on(model_build build, uint32_t which, const char *arch_name, model_order order)
{
    const qn_arch *arch;
    instruction_file file = {.kernel = "faults.cu", .threads = THREADS, .shared = SHARED};
    qn_text source = QN_TEXT_INIT;
    model *m = simt_model_any(build);
    assert_int_equal(qn_arch_find(arch_name, &arch), QUERN_OK);
    if (instruction_source(&file, arch, &source) != QUERN_OK) fail_msg("%s", quern_message());
    uint32_t *in = model_alloc(m, "in", 4096, NULL, false), *out = model_alloc(m, "out", 4096, NULL, false);
    assert_true(in && out);
    instruction_params params = {.in = (uintptr_t)in, .out = (uintptr_t)out, .which = which};
    make_map(&params);
    simt_launch launch = {.arch = arch_name,
                          .grid = 1,
                          .threads = THREADS,
                          .cluster = 1,
                          .shared_bytes = SHARED,
                          .params = &params,
                          .params_bytes = sizeof params,
                          .order = order};
    char *report = simt_run(m, qn_text_string(&source), &launch);
    qn_text_fini(&source);
    model_free(m);
    return report;
}

static void expect_fault(model_build build, const planted *p)
{
    char context[64];
    snprintf(context, sizeof context, "fault %u, %s", p->which, model_build_name[build]);
    for (uint32_t seed = 0; seed < 3; seed++) {
        char *report = run_on(build, p->which, "sm_90a", (model_order){seed > 0, seed});
        simt_expect_fault(report, p->words, context);
        free(report);
    }
}

static void right_uses_are_not_reported(void **state)
{
    static const model_build builds[] = {MODEL_PLAIN, MODEL_ASAN, MODEL_ACCESS};
    (void)state;
    for (size_t b = 0; b < QN_COUNT(builds); b++)
        for (uint32_t which = 0; which < 4; which++)
            for (uint32_t seed = 0; seed < 4; seed++) {
                char *report = run_on(builds[b], which, "sm_90a", (model_order){seed > 0, seed});
                char context[64];
                snprintf(context, sizeof context, "right use %u, %s, seed %u", which, model_build_name[builds[b]],
                         seed);
                simt_expect_clean(report, context);
                free(report);
            }
}

static void forbidden_operands_are_reported_by_every_build(void **state)
{
    static const planted faults[] = {
        {11, "shared address"}, // a stride that leaves the piece
        {12, "base offset"},    {13, "swizzle pattern"},
        {14, "descriptors"},                         // of one warp
        {15, "wgmma.fence"},                         // none at all
        {16, "another shape"},  {20, "wgmma.fence"}, // none since the wait
        {30, "multiple of 16"}, {31, "not aligned"},
        {32, "no tensor map"},  {33, "multiple of 16 bytes"}, // of the first coordinate
        {34, "dimensions"},     {35, "aligned to 128"},
        {36, "not negative"},   {38, "in flight"}, // two copies to one place
        {39, "in flight|ends"}, {50, "aligned to 16"},
        {53, "deadlock|mask"}, // mma by half a warp
        {54, "aligned"},        {60, "registers"},
        {61, "own mask"},
    };
    static const model_build builds[] = {MODEL_PLAIN, MODEL_ASAN, MODEL_ACCESS};
    (void)state;
    for (size_t b = 0; b < QN_COUNT(builds); b++)
        for (size_t i = 0; i < QN_COUNT(faults); i++) expect_fault(builds[b], &faults[i]);
}

static void accesses_at_the_wrong_time_are_reported_by_the_access_build(void **state)
{
    static const planted faults[] = {
        {10, "proxy"},                       // operands written without fence.proxy.async
        {17, "reads|read|flight|operation"}, // an operand changed before the wait
        {37, "flight"},
        {51, "outside|piece"},
        {52, "written"}, // rows that nothing wrote
    };
    (void)state;
    for (size_t i = 0; i < QN_COUNT(faults); i++) expect_fault(MODEL_ACCESS, &faults[i]);
}

// clang++ puts no call before an access to a local array by a constant index: there the address build has to see it.
static void accumulators_before_their_wait_are_reported_by_the_access_build_of_gcc(void **state)
{
    static const planted faults[] = {{18, "hidden|flight|not waited|registers"},
                                     {19, "hidden|flight|not waited|registers"}};
    (void)state;
    if (strstr(model_compiler(simt_model_any(MODEL_ACCESS)), "clang")) skip();
    for (size_t i = 0; i < QN_COUNT(faults); i++) expect_fault(MODEL_ACCESS, &faults[i]);
}

static void accumulators_before_their_wait_are_reported_by_the_address_build(void **state)
{
    static const planted faults[] = {
        {18, "poison|AddressSanitizer"}, {19, "poison|AddressSanitizer"}, {37, "poison|AddressSanitizer"}};
    (void)state;
    for (size_t i = 0; i < QN_COUNT(faults); i++) expect_fault(MODEL_ASAN, &faults[i]);
}

static void wgmma_on_another_architecture_is_reported(void **state)
{
    (void)state;
    char *report = run_on(MODEL_PLAIN, 0, "sm_100a", (model_order){false, 1});
    simt_expect_fault(report, "architecture|exist|sm_", "wgmma on sm_100a");
    free(report);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(right_uses_are_not_reported),
        cmocka_unit_test(forbidden_operands_are_reported_by_every_build),
        cmocka_unit_test(accesses_at_the_wrong_time_are_reported_by_the_access_build),
        cmocka_unit_test(accumulators_before_their_wait_are_reported_by_the_access_build_of_gcc),
        cmocka_unit_test(accumulators_before_their_wait_are_reported_by_the_address_build),
        cmocka_unit_test(wgmma_on_another_architecture_is_reported),
    };
    return cmocka_run_group_tests_name("forbidden uses of instructions", tests, NULL, simt_close_models);
}
