// SPDX-License-Identifier: Apache-2.0
// A call that succeeds leaves this thread's message as it was, whatever candidates, stores and files it tried and gave up.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "runtime/private.h"
#include "support/fake_driver.h"
#include "support/runtime_fixture.h"

// Of each family, specs whose planners try more than the one plan that they take.
static const char *const specs[] = {
    "softmax_topk V=128256 K=256 in=bf16",
    "softmax_topk V=2097152 K=2048 in=f32 token=1 lse=1 temperature=1",
    "gate E=1024 K=32 in=f32 n_group=8 topk_group=4",
    "router D=7168 E=384 K=6 in=bf16 w=bf16",
    "router D=65536 E=1024 K=32 in=f32 w=f32 batch_invariant=1",
    "attention d=576 dv=512 layout=paged page=64 kv_alias=1",
    "attention d=96 dv=200 in=f16 causal=1 softcap=30",
    "indexer H=128 C=256 k=2048",
    "indexer H=64 C=128 k=2048 layout=fp8_shared q=fp8 page=64",
};

static char folder[64], database[128], before[QN_MESSAGE_BYTES];

static int set_up(void **state)
{
    (void)state;
    static const int cc[] = {90};
    runtime_machine_make(folder, database, cc, 1);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    runtime_machine_remove(folder);
    return 0;
}

// A failure of the caller's, before the call that is looked at.
static void fail_first(void)
{
    quern_any_spec spec;
    assert_int_equal(quern_spec_parse("millstone", &spec), QUERN_UNKNOWN_FAMILY);
    snprintf(before, sizeof before, "%s", quern_message());
    assert_true(*before);
}

static void check_kept(quern_status status, const char *what)
{
    if (status != QUERN_OK) fail_msg("%s: %s", what, quern_message());
    if (strcmp(quern_message(), before) != 0) fail_msg("%s: the message is \"%s\"", what, quern_message());
}

static void planning_tries_more_than_it_takes(void **state)
{
    (void)state;
    size_t overwritten = 0;
    for (size_t i = 0; i < QN_COUNT(specs); i++) {
        quern_any_spec spec, full;
        const qn_family *family;
        const qn_arch *arch;
        qn_config config;
        assert_int_equal(quern_spec_parse(specs[i], &spec), QUERN_OK);
        assert_int_equal(qn_spec_complete(&spec.base, &family, &full), QUERN_OK);
        assert_int_equal(qn_arch_find("sm_86", &arch), QUERN_OK); // little shared memory: more is refused
        fail_first();
        for (size_t b = 0; b < family->bucket_count; b++) family->choose(&full.base, arch, b, &config);
        overwritten += strcmp(quern_message(), before) != 0;
    }
    assert_true(overwritten > 0); // else the other tests prove nothing
}

static void warm_and_prepare_leave_the_message(void **state)
{
    (void)state;
    static const char *const archs[] = {"sm_86", "sm_90a", "sm_100a"};
    quern_options options = runtime_options(database, NULL);
    quern *q = runtime_open(&options);
    for (size_t i = 0; i < QN_COUNT(specs); i++) {
        quern_any_spec spec;
        quern_op *op = NULL;
        assert_int_equal(quern_spec_parse(specs[i], &spec), QUERN_OK);
        for (size_t a = 0; a < QN_COUNT(archs); a++) {
            fail_first();
            check_kept(quern_warm(q, &spec.base, archs[a], NULL), specs[i]);
        }
        fail_first();
        check_kept(quern_prepare(q, &spec.base, 0, &op), specs[i]);
        quern_op_release(op);
    }
    quern_close(q);
}

static void a_database_that_cannot_be_used_is_no_failure(void **state)
{
    (void)state;
    quern_any_spec spec;
    quern_op *op = NULL;
    quern_options options = runtime_options("/proc/self/nowhere/quern.db", NULL);
    quern *q = NULL;
    assert_int_equal(quern_spec_parse(specs[0], &spec), QUERN_OK);
    fail_first();
    check_kept(quern_open(&options, &q), "open");
    check_kept(quern_warm(q, &spec.base, "sm_90a", NULL), "warm");
    check_kept(quern_prepare(q, &spec.base, 0, &op), "prepare");
    quern_op_release(op);
    quern_close(q);
    check_kept(QUERN_OK, "close");
}

static void sources_leave_the_message(void **state)
{
    (void)state;
    quern_options options = runtime_options(database, NULL);
    quern_source source = QUERN_SOURCE_INIT;
    quern_kernel *kernel = NULL;
    quern *q = runtime_open(&options);
    source.source = "extern \"C\" __global__ void mine() {}", source.entry = "mine", source.threads = 32;
    fake_driver.param_bytes = 0;
    fail_first();
    check_kept(quern_warm_source(q, &source, "sm_90a", NULL), "warm_source");
    check_kept(quern_prepare_source(q, &source, 0, &kernel), "prepare_source");
    quern_kernel_release(kernel);
    quern_close(q);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(planning_tries_more_than_it_takes),
        TEST(warm_and_prepare_leave_the_message),
        TEST(a_database_that_cannot_be_used_is_no_failure),
        TEST(sources_leave_the_message),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
