// SPDX-License-Identifier: Apache-2.0
// router on a device, through the public interface, against the reference: every hostile case, three times over on one
// workspace, and without its logits; every plan by force; batch invariance; a launch inside stream capture. Without a
// device it says why and is skipped. tests/gpu/README.md.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "support/check_router.h"
#include "support/forced_router.h"
#include "support/gpu_cases.h"

static gpu g;

static quern_op *prepare(const router_case *c, bool logits, const qn_config *config)
{
    quern_op *op = NULL;
    quern_router_spec spec = c->spec;
    spec.logits = logits;
    quern_status status = config ? qn_prepare_config(g.q, &spec.base, QUERN_DEVICE_CURRENT, config, &op)
                                 : quern_prepare(g.q, &spec.base, QUERN_DEVICE_CURRENT, &op);
    if (status != QUERN_OK) fail_msg("'%s': %s", c->text, quern_message());
    return op;
}

// A run that writes no logits has the bits of the others.
static void run_without_logits(const gpu *on, const void *c, device_case *d, void *first, const qn_config *config,
                               qn_text *report)
{
    router_data *data = family_data_make(&router_family, c, 0);
    quern_op *op = prepare(c, false, config);
    int buffer = 0;
    device_case_workspace(on, op, d);
    device_case_upload(on, d, data);
    device_case_launch(on, op, c, d);
    device_case_download(on, d, data);
    hostile_buffer kept = data->buffer[ROUTER_LOGITS];
    data->buffer[ROUTER_LOGITS].bytes = NULL; // compared where both have them
    int64_t at = router_same_bits(data, first, &buffer);
    data->buffer[ROUTER_LOGITS] = kept;
    if (at >= 0) {
        router_describe(c, report);
        qn_text_putf(report, "    a run without logits differs from the first: %s, byte %lld\n",
                     router_buffer_name[buffer], (long long)at);
    }
    quern_op_release(op);
    family_data_free(&router_family, data);
}

static const gpu_list list = {
    .f = &router_family, .tag = HOSTILE_GPU, .least = 570, .whole_ops = true, .after = run_without_logits};

static void every_hostile_case_equals_the_reference_three_times_over(void **state)
{
    (void)state;
    gpu_run_list(&g, &list);
}

// ---- every plan by force, on every case that the planner lets it have

// The cases of base specs: "m0_normal".
static bool is_for(const void *c)
{
    return family_case_name(c)[0] == 'm' && ((const router_case *)c)->N > 0;
}

static void every_plan_by_force_equals_the_reference(void **state)
{
    (void)state;
    gpu_run_forced(&g, &list, forced_router, QN_COUNT(forced_router), is_for);
}

// ---- batch invariance

static void with_batch_invariant_a_tokens_bits_do_not_depend_on_N(void **state)
{
    (void)state;
    gpu_skip_without_device(&g);
    static const char *const few[] = {"g5_N1", "g5_N9", "g5_N64", "g5_N65", "g5_N200"};
    const router_case *many = family_case_named(&router_family, "g5_N500");
    void *most = family_data_make(&router_family, many, 0);
    int buffer = 0;
    quern_op *op = prepare(many, true, NULL);
    device_case_run(&g, &router_family, op, many, most);
    for (size_t i = 0; i < QN_COUNT(few); i++) {
        const router_case *c = family_case_named(&router_family, few[i]);
        void *data = family_data_make(&router_family, c, 0);
        device_case_run(&g, &router_family, op, c, data);
        int64_t at = router_same_tokens(data, most, &buffer);
        if (at >= 0) fail_msg("%s: %s differs at byte %lld", few[i], router_buffer_name[buffer], (long long)at);
        family_data_free(&router_family, data);
    }
    family_data_free(&router_family, most);
    quern_op_release(op);
}

// ---- capture

static void captured_launches_give_the_same_bits(void **state)
{
    (void)state;
    gpu_skip_without_device(&g);
    gpu_run_captured(&g, &router_family, "m0_N7", 3, 2);
    gpu_run_captured(&g, &router_family, "m3_N65", 3, 2);
    gpu_run_captured(&g, &router_family, "g3_N1000", 3, 2);
}

static int open_device(void **state)
{
    (void)state;
    gpu_open(&g);
    return 0;
}

static int close_device(void **state)
{
    (void)state;
    gpu_close(&g);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_hostile_case_equals_the_reference_three_times_over),
        cmocka_unit_test(every_plan_by_force_equals_the_reference),
        cmocka_unit_test(with_batch_invariant_a_tokens_bits_do_not_depend_on_N),
        cmocka_unit_test(captured_launches_give_the_same_bits),
    };
    return cmocka_run_group_tests(tests, open_device, close_device);
}
