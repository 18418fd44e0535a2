// SPDX-License-Identifier: Apache-2.0
// The reference on logits of a real language model (tests/data/README.md): indices equal, probabilities and LSE within
// the accuracy rules of the design of what two other implementations agreed on.
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "reference/reference.h"
#include "tools/quern/npy.h"

static npy_array read_data(const char *folder, const char *name)
{
    const char *source = getenv("QUERN_TEST_SOURCE");
    char path[512];
    npy_array array;
    snprintf(path, sizeof path, "%s/tests/data/%s%s", source ? source : ".", folder, name);
    if (npy_read(path, &array) != QUERN_OK) fail_msg("%s", quern_message());
    return array;
}

typedef struct dataset {
    const char *logits, *indices, *values, *lse;
} dataset;
static const dataset bf16 = {"logits_64x49152.bf16.npy", "softmax_topk_64x49152_k256.indices.i32.npy",
                             "softmax_topk_64x49152_k256.values.f32.npy", "softmax_topk_64x49152_k256.lse.f32.npy"};
static const dataset f32 = {"logits_4x49152.f32.npy", "softmax_topk_4x49152_f32_k256.indices.i32.npy",
                            "softmax_topk_4x49152_f32_k256.values.f32.npy",
                            "softmax_topk_4x49152_f32_k256.lse.f32.npy"};

// The expected files are f64 results rounded once: two right answers differ by an ulp at most.
static void assert_near(float got, float want, int64_t row, int64_t k)
{
    if (fabs((double)got - want) > 1.2e-7 * fabs(want))
        fail_msg("row %lld place %lld: %.9g, must be %.9g", (long long)row, (long long)k, got, want);
}

static void compare(const dataset *d, int64_t K)
{
    npy_array logits = read_data("", d->logits), indices = read_data("expected/", d->indices);
    npy_array values = read_data("expected/", d->values), lse = read_data("expected/", d->lse);
    int64_t rows = logits.shape.extent[0], stored = indices.shape.extent[1];
    quern_softmax_topk_spec spec = QUERN_SOFTMAX_TOPK_SPEC_INIT;
    quern_softmax_topk_args args = QUERN_SOFTMAX_TOPK_ARGS_INIT;
    spec.V = logits.shape.extent[1], spec.K = K, spec.in = logits.dtype, spec.lse = 1;
    args.rows = rows, args.logits = logits.data;
    args.values = test_malloc((size_t)(rows * K) * 4), args.indices = test_malloc((size_t)(rows * K) * 4);
    args.lse = test_malloc((size_t)rows * 4);

    quern_status status = quern_reference(&spec.base, &args.base);

    if (status != QUERN_OK) fail_msg("%s", quern_message());
    for (int64_t row = 0; row < rows; row++) {
        for (int64_t k = 0; k < K; k++) {
            assert_int_equal(((int32_t *)args.indices)[row * K + k], ((int32_t *)indices.data)[row * stored + k]);
            assert_near(args.values[row * K + k], ((float *)values.data)[row * stored + k], row, k);
        }
        assert_near(args.lse[row], ((float *)lse.data)[row], row, -1);
    }
    test_free(args.values), test_free(args.indices), test_free(args.lse);
    npy_fini(&logits), npy_fini(&indices), npy_fini(&values), npy_fini(&lse);
}

static void the_64_rows_of_bf16_logits_give_the_expected_winners(void **state)
{
    (void)state;
    compare(&bf16, 256);
}

// The order is total: a smaller K gives the first places of the larger one.
static void a_smaller_k_gives_the_first_places(void **state)
{
    (void)state;
    compare(&bf16, 50);
    compare(&f32, 1);
}

static void the_4_rows_of_f32_logits_give_the_expected_winners(void **state)
{
    (void)state;
    compare(&f32, 256);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_64_rows_of_bf16_logits_give_the_expected_winners),
        cmocka_unit_test(a_smaller_k_gives_the_first_places),
        cmocka_unit_test(the_4_rows_of_f32_logits_give_the_expected_winners),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
