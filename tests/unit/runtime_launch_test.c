// SPDX-License-Identifier: Apache-2.0
// The launch path with the fake driver: checks before the first call, the variant by sizes, one driver call a kernel.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <linux/seccomp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime/private.h"
#include "support/fake_driver.h"
#include "support/runtime_fixture.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define HAS_SANITIZER 1
#else
#define HAS_SANITIZER 0
#endif

enum { V = 1000, K = 8, ROWS = 3 };

static quern *q;
static quern_op *op;
static float logits[ROWS * V], values[ROWS * K];
static int32_t indices[ROWS * K];
static _Alignas(256) unsigned char workspace[1 << 20];

static int set_up(void **state)
{
    (void)state;
    static const int cc[] = {90, 86};
    quern_softmax_topk_spec spec = runtime_spec(V, K);
    quern_options options = runtime_options("", NULL);
    runtime_devices_make(cc, 2);
    fake_driver.param_bytes = 16;
    q = runtime_open(&options);
    return quern_prepare(q, &spec.base, 0, &op) != QUERN_OK;
}

static int tear_down(void **state)
{
    (void)state;
    quern_op_release(op);
    quern_close(q);
    runtime_devices_remove();
    return 0;
}

static quern_softmax_topk_args good_args(void)
{
    quern_softmax_topk_args args = QUERN_SOFTMAX_TOPK_ARGS_INIT;
    args.rows = ROWS, args.logits = logits, args.values = values, args.indices = indices;
    args.workspace = workspace, args.workspace_bytes = sizeof workspace;
    return args;
}

static long launches(void)
{
    return fake_driver.call.cuLaunchKernelEx.count;
}

// ---- what reaches the driver

static void a_launch_is_one_call_a_stage_with_the_plans_shape(void **state)
{
    (void)state;
    quern_softmax_topk_args args = good_args();
    quern_softmax_topk_sizes sizes = QUERN_SOFTMAX_TOPK_SIZES_INIT;
    quern_kernel_info info = QUERN_KERNEL_INFO_INIT;
    CUstream stream = (CUstream)(uintptr_t)0; // the legacy stream
    sizes.rows = ROWS;
    size_t variant = quern_op_variant_for(op, &sizes), stages = quern_op_stages(op, variant);
    assert_int_equal(quern_op_describe(op, variant, stages - 1, &info), QUERN_OK);

    assert_int_equal(quern_softmax_topk(op, &args, stream), QUERN_OK);

    assert_true(launches() >= 1 && launches() <= (long)stages); // a stage may have nothing to do
    assert_int_equal(fake_driver.last.block[0], info.threads);
    assert_int_equal(fake_driver.last.cluster, info.cluster);
    assert_int_equal(fake_driver.last.arch, 90);
    assert_string_equal(fake_driver.last.entry, info.entry);
    assert_true(fake_driver.last.grid[0] > 0);
}

// A launch finds its variant by ranges that were worked out from the buckets: at each edge they must say the same.
static void the_variant_that_runs_is_the_one_that_describe_names(void **state)
{
    (void)state;
    quern_softmax_topk_sizes sizes = QUERN_SOFTMAX_TOPK_SIZES_INIT;
    quern_softmax_topk_spec spec = runtime_spec(128256, 50);
    quern_op *large = NULL;
    size_t variants_seen = 0, last = (size_t)-1;
    spec.in = QUERN_BF16;
    assert_int_equal(quern_prepare(q, &spec.base, 0, &large), QUERN_OK);
    for (int64_t rows = 1; rows <= 70000; rows += rows < 600 ? 1 : 4999) {
        quern_softmax_topk_args args = good_args();
        quern_kernel_info info = QUERN_KERNEL_INFO_INIT;
        quern_image image = QUERN_IMAGE_INIT;
        sizes.rows = args.rows = rows;
        size_t variant = quern_op_variant_for(large, &sizes);
        variants_seen += variant != last, last = variant;
        assert_int_equal(quern_op_describe(large, variant, 0, &info), QUERN_OK);
        assert_int_equal(quern_op_image(large, variant, 0, &image), QUERN_OK);
        assert_int_equal(quern_softmax_topk(large, &args, NULL), QUERN_OK);
        assert_int_equal(fake_driver.last.block[0], info.threads);
        assert_int_equal(fake_driver.last.cluster, info.cluster);
        assert_int_equal(fake_driver.last.shared, image.dynamic_shared_bytes);
        assert_string_equal(fake_driver.last.entry, info.entry);
        assert_ptr_equal(large->variant[variant].stage[0].entry->image.bytes.bytes, image.bytes);
    }
    assert_true(variants_seen > 2);
    quern_op_release(large);
}

static void every_form_of_the_call_launches_the_same(void **state)
{
    (void)state;
    quern_softmax_topk_args args = good_args();
    const quern_argument named[] = {
        {"rows", NULL, ROWS},    {"logits", logits, 0},       {"values", values, 0},
        {"indices", indices, 0}, {"workspace", workspace, 0}, {"workspace_bytes", NULL, sizeof workspace},
    };
    fake_launch typed, generic;
    assert_int_equal(quern_softmax_topk(op, &args, NULL), QUERN_OK);
    typed = fake_driver.last;

    assert_int_equal(quern_launch_args(op, &args.base, NULL), QUERN_OK);
    generic = fake_driver.last;
    assert_int_equal(quern_launch(op, named, QN_COUNT(named), NULL), QUERN_OK);

    assert_memory_equal(typed.params, generic.params, fake_driver.param_bytes);
    assert_memory_equal(typed.params, fake_driver.last.params, fake_driver.param_bytes);
    assert_memory_equal(typed.grid, fake_driver.last.grid, sizeof typed.grid);
    assert_string_equal(typed.entry, fake_driver.last.entry);
}

static void named_arguments_are_checked_by_name(void **state)
{
    (void)state;
    const quern_argument unknown[] = {{"rows", NULL, ROWS}, {"logit", logits, 0}};
    const quern_argument twice[] = {{"rows", NULL, ROWS}, {"rows", NULL, ROWS}};

    assert_int_equal(quern_launch(op, unknown, 2, NULL), QUERN_UNKNOWN_ARGUMENT);
    assert_non_null(strstr(quern_message(), "'logit'"));
    assert_int_equal(quern_launch(op, twice, 2, NULL), QUERN_BAD_ARGUMENT);
    assert_int_equal(quern_launch(op, NULL, 1, NULL), QUERN_MISSING_ARGUMENT);
    assert_int_equal(quern_launch(NULL, unknown, 2, NULL), QUERN_MISSING_ARGUMENT);

    assert_int_equal(launches(), 0);
}

// ---- what does not reach it

static void no_rows_launch_nothing(void **state)
{
    (void)state;
    quern_softmax_topk_args args = QUERN_SOFTMAX_TOPK_ARGS_INIT;

    assert_int_equal(quern_softmax_topk(op, &args, NULL), QUERN_OK);

    assert_int_equal(launches(), 0);
}

static void each_bad_argument_has_its_status_and_launches_nothing(void **state)
{
    (void)state;
    quern_softmax_topk_args args = good_args();
    args.rows = -1;
    assert_int_equal(quern_softmax_topk(op, &args, NULL), QUERN_BAD_SIZE);
    args = good_args(), args.rows = (int64_t)1 << 31;
    assert_int_equal(quern_softmax_topk(op, &args, NULL), QUERN_BAD_SIZE);
    args = good_args(), args.logits_stride_rows = V - 1;
    assert_int_equal(quern_softmax_topk(op, &args, NULL), QUERN_BAD_STRIDE);
    args = good_args(), args.values = NULL;
    assert_int_equal(quern_softmax_topk(op, &args, NULL), QUERN_MISSING_ARGUMENT);
    args = good_args(), args.logits = (const char *)logits + 1;
    assert_int_equal(quern_softmax_topk(op, &args, NULL), QUERN_MISALIGNED);
    args = good_args(), args.base.family = "gate";
    assert_int_equal(quern_softmax_topk(op, &args, NULL), QUERN_WRONG_FAMILY);
    assert_non_null(strstr(quern_message(), "gate"));
    args = good_args(), args.base.family = NULL;
    assert_int_equal(quern_softmax_topk(op, &args, NULL), QUERN_WRONG_FAMILY);
    args = good_args(), args.base.size = 4;
    assert_int_equal(quern_softmax_topk(op, &args, NULL), QUERN_BAD_ARGUMENT);
    assert_int_equal(quern_softmax_topk(op, NULL, NULL), QUERN_MISSING_ARGUMENT);
    assert_int_equal(quern_softmax_topk(NULL, &args, NULL), QUERN_MISSING_ARGUMENT);

    assert_int_equal(launches(), 0);
    assert_int_equal(fake_driver.call.cuMemsetD32Async.count, 0);
}

static void an_older_shorter_argument_structure_keeps_working(void **state)
{
    (void)state;
    quern_softmax_topk_args args = good_args();
    quern_softmax_topk_sizes sizes = QUERN_SOFTMAX_TOPK_SIZES_INIT;
    sizes.rows = ROWS;
    memset(&args.workspace, 0x55, sizeof args - offsetof(quern_softmax_topk_args, workspace));
    args.base.size = offsetof(quern_softmax_topk_args, workspace);
    quern_status expected = quern_workspace_size(op, &sizes) ? QUERN_SMALL_WORKSPACE : QUERN_OK;

    assert_int_equal(quern_softmax_topk(op, &args, NULL), expected);
}

static void a_newer_argument_structure_may_not_set_what_is_not_known(void **state)
{
    (void)state;
    struct {
        quern_softmax_topk_args known;
        void *later;
    } newer = {good_args(), NULL};
    newer.known.base.size = sizeof newer;

    assert_int_equal(quern_softmax_topk(op, &newer.known, NULL), QUERN_OK);
    newer.later = workspace;
    assert_int_equal(quern_softmax_topk(op, &newer.known, NULL), QUERN_BAD_ARGUMENT);
}

// ---- failures of the driver

static void a_refused_launch_says_what_was_asked(void **state)
{
    (void)state;
    quern_softmax_topk_args args = good_args();
    fake_driver.call.cuLaunchKernelEx.fail = CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
    fake_driver.call.cuLaunchKernelEx.times = 1;

    assert_int_equal(quern_softmax_topk(op, &args, NULL), QUERN_LAUNCH_FAILED);

    assert_non_null(strstr(quern_message(), "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES"));
    assert_non_null(strstr(quern_message(), "softmax_topk"));
    assert_non_null(strstr(quern_message(), "grid"));
    assert_int_equal(quern_softmax_topk(op, &args, NULL), QUERN_OK);
}

// ---- costs

static void a_launch_makes_no_system_call_and_no_other_driver_call(void **state)
{
    (void)state;
    if (HAS_SANITIZER) skip();
    quern_softmax_topk_args args = good_args();
    pid_t child = fork();
    if (child == 0) {
        long code = 9;
        if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT)) _exit(77);
        for (int i = 0; i < 1000 && quern_softmax_topk(op, &args, NULL) == QUERN_OK; i++) code = i == 999 ? 0 : 9;
        syscall(SYS_exit, code);
    }
    int result = 0;
    assert_int_equal(waitpid(child, &result, 0), child);
    if (WIFEXITED(result) && WEXITSTATUS(result) == 77) skip();

    assert_true(WIFEXITED(result));
    assert_int_equal(WEXITSTATUS(result), 0);
}

// The launch path keeps arguments and sizes of any family in buffers of a fixed length.
static void every_familys_structures_fit_the_launch_paths_buffers(void **state)
{
    (void)state;
    size_t count;
    const qn_family *const *families = qn_families(&count);
    for (size_t i = 0; i < count; i++) {
        assert_true(families[i]->args_bytes <= sizeof(qn_any_args));
        assert_true(families[i]->sizes_bytes <= sizeof(qn_any_sizes));
        assert_true(families[i]->spec_bytes <= sizeof(quern_any_spec));
        assert_true(families[i]->bucket_count <= QN_MAX_BUCKETS);
    }
}

// ---- the workspace

static void the_workspace_of_larger_sizes_serves_smaller_ones(void **state)
{
    (void)state;
    size_t before = 0;
    for (int64_t rows = 1; rows <= 1 << 20; rows *= 2) {
        quern_softmax_topk_sizes sizes = QUERN_SOFTMAX_TOPK_SIZES_INIT;
        sizes.rows = rows;
        size_t bytes = quern_workspace_size(op, &sizes);
        assert_true(bytes >= before);
        before = bytes;
    }
}

// The answer for some rows lets every launch up to them through, and one byte less does not.
static void the_workspace_asked_for_is_enough_and_no_more_than_is_needed(void **state)
{
    (void)state;
    static const int64_t most[] = {1, 2, 3, 4, 7, 8, 16, 31, 64, 100, 300};
    quern_softmax_topk_spec spec = runtime_spec((int64_t)1 << 21, 64);
    quern_op *large;
    int with_need = 0;
    assert_int_equal(quern_prepare(q, &spec.base, 0, &large), QUERN_OK);
    for (size_t i = 0; i < QN_COUNT(most); i++) {
        quern_softmax_topk_sizes sizes = QUERN_SOFTMAX_TOPK_SIZES_INIT;
        sizes.rows = most[i];
        size_t bytes = quern_workspace_size(large, &sizes), refused = 0;
        for (int64_t rows = 1; rows <= most[i]; rows++) {
            quern_softmax_topk_args args = good_args();
            args.rows = rows;
            args.workspace_bytes = bytes;
            assert_int_equal(quern_softmax_topk(large, &args, NULL), QUERN_OK);
            if (bytes) args.workspace_bytes--;
            refused += quern_softmax_topk(large, &args, NULL) == QUERN_SMALL_WORKSPACE;
        }
        if (bytes) assert_true(refused > 0);
        with_need += bytes > 0;
    }
    print_message("%d of %zu sizes need a workspace\n", with_need, QN_COUNT(most));
    quern_op_release(large);
}

static void workspace_init_fills_whole_words_on_the_stream(void **state)
{
    (void)state;
    void *device_memory = workspace;

    assert_int_equal(quern_workspace_init(op, device_memory, 0, NULL), QUERN_OK);
    assert_int_equal(fake_driver.call.cuMemsetD32Async.count, 0);
    assert_int_equal(quern_workspace_init(op, NULL, 4096, NULL), QUERN_SMALL_WORKSPACE);
    assert_int_equal(quern_workspace_init(op, workspace + 16, 4096, NULL), QUERN_MISALIGNED);
    assert_int_equal(quern_workspace_init(NULL, device_memory, 4096, NULL), QUERN_MISSING_ARGUMENT);
    assert_int_equal(fake_driver.call.cuMemsetD32Async.count, 0);
    fake_driver.call.cuMemsetD32Async.fail = CUDA_ERROR_INVALID_VALUE;
    fake_driver.call.cuMemsetD32Async.times = 1;
    assert_int_equal(quern_workspace_init(op, device_memory, 4096, NULL), QUERN_DRIVER_ERROR);
    assert_int_equal(quern_workspace_init(op, device_memory, 4096, NULL), QUERN_OK);
}

// ---- the reference

static void the_reference_is_reached_by_spec_and_arguments(void **state)
{
    (void)state;
    quern_softmax_topk_spec spec = runtime_spec(V, K);
    quern_softmax_topk_args args = good_args();
    memset(logits, 0, sizeof logits);
    logits[V + 7] = 5.0f;

    assert_int_equal(quern_reference(&spec.base, &args.base), QUERN_OK);

    assert_int_equal(indices[0], 0);
    assert_int_equal(indices[K], 7);
    args.base.family = "gate";
    assert_int_equal(quern_reference(&spec.base, &args.base), QUERN_WRONG_FAMILY);
    assert_int_equal(quern_reference(NULL, &args.base), QUERN_MISSING_ARGUMENT);
    assert_int_equal(quern_reference(&spec.base, NULL), QUERN_MISSING_ARGUMENT);
    spec.K = 0;
    assert_int_equal(quern_reference(&spec.base, &args.base), QUERN_MISSING_FIELD);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_launch_is_one_call_a_stage_with_the_plans_shape),
        TEST(the_variant_that_runs_is_the_one_that_describe_names),
        TEST(every_form_of_the_call_launches_the_same),
        TEST(named_arguments_are_checked_by_name),
        TEST(no_rows_launch_nothing),
        TEST(each_bad_argument_has_its_status_and_launches_nothing),
        TEST(an_older_shorter_argument_structure_keeps_working),
        TEST(a_newer_argument_structure_may_not_set_what_is_not_known),
        TEST(a_refused_launch_says_what_was_asked),
        TEST(a_launch_makes_no_system_call_and_no_other_driver_call),
        TEST(every_familys_structures_fit_the_launch_paths_buffers),
        TEST(the_workspace_of_larger_sizes_serves_smaller_ones),
        TEST(the_workspace_asked_for_is_enough_and_no_more_than_is_needed),
        TEST(workspace_init_fills_whole_words_on_the_stream),
        TEST(the_reference_is_reached_by_spec_and_arguments),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
