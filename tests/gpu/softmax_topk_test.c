// SPDX-License-Identifier: Apache-2.0
// softmax_topk on a device, through the public interface, against the reference: every hostile case, three times over;
// every plan by force; tensors past 2^31 elements. Without a device it says why and is skipped. tests/gpu/README.md.
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "support/check.h"
#include "support/compile_pool.h"
#include "support/gpu_cases.h"
#include "tune/space.h"

static gpu g;

enum { REPEATS = 3 };

static void must_be_ok(quern_status status)
{
    if (status != QUERN_OK) fail_msg("%s", quern_message());
}

static unsigned wanted_tag(void)
{
    return gpu_is_quick() ? HOSTILE_QUICK : HOSTILE_GPU;
}

// ---- failures are collected: one run shows all cases that fail

// ---- a case on the device

static void launch(const hostile_case *c, const quern_op *op, const quern_softmax_topk_args *args, CUstream stream)
{
    if (quern_softmax_topk(op, args, stream) != QUERN_OK)
        fail_msg("case %s '%s': %s", c->name, c->text, quern_message());
    CUresult result = g.driver->cuStreamSynchronize(stream);
    if (result == CUDA_SUCCESS) return;
    qn_text where = QN_TEXT_INIT;
    check_describe(c, &where);
    qn_driver_fail(g.driver, QUERN_DRIVER_ERROR, "cuStreamSynchronize", result);
    fail_msg("%s%s", qn_text_string(&where), quern_message()); // the context is lost: no case after this one can run
}

// Runs the case on the op, compares the first run with the reference and the others with the first.
static void run_case(const hostile_case *c, const quern_op *op, const char *config, qn_text *report)
{
    hostile_data data, again;
    gpu_case device;
    assert_true(hostile_data_make(c, &data));
    assert_true(hostile_data_make_outputs(c, &again));
    gpu_case_make(&g, &data, op, NULL, &device);
    for (int i = 0; i < REPEATS; i++) {
        gpu_case_reset(&g, &device);
        launch(c, op, &device.args, NULL);
        gpu_case_download(&g, &device, i ? &again : &data);
        if (i == 0 && check_case(&data, report) && config) qn_text_putf(report, "    configuration: %s\n", config);
        int buffer = 0;
        int64_t at = i ? check_same_bits(&data, &again, &buffer) : -1;
        if (at < 0) continue;
        check_describe(c, report);
        qn_text_putf(report, "    run %d differs from the first: %s, byte %lld%s%s\n", i + 1,
                     hostile_buffer_name[buffer], (long long)at, config ? ", configuration: " : "",
                     config ? config : "");
    }
    gpu_case_free(&g, &device);
    hostile_data_free(&again);
    hostile_data_free(&data);
}

static quern_op *prepare(const quern_spec *spec)
{
    quern_op *op = NULL;
    char text[512] = "";
    quern_spec_format(spec, text, sizeof text);
    if (quern_prepare(g.q, spec, QUERN_DEVICE_CURRENT, &op) != QUERN_OK) fail_msg("'%s': %s", text, quern_message());
    return op;
}

// ---- every case

// Compiles what the cases of a tag need, on all processors, so that prepare finds it in memory.
static void compile_ahead(unsigned tag)
{
    size_t count;
    const hostile_case *cases = hostile_cases(&count);
    compile_jobs jobs = {0};
    const char *last = "";
    for (size_t i = 0; i < count; i++) {
        if (!hostile_wanted(&cases[i], tag) || !family_is_in_shard(i) || strcmp(cases[i].text, last) == 0) continue;
        last = cases[i].text;
        if (compile_jobs_add_spec(&jobs, g.q, g.arch, &cases[i].spec.base) != QUERN_OK)
            fail_msg("'%s': %s", cases[i].text, quern_message());
    }
    compile_jobs_run(&jobs, g.q);
    for (size_t i = 0; i < jobs.count; i++)
        if (jobs.item[i].status != QUERN_OK) fail_msg("'%s': %s", jobs.item[i].text, jobs.item[i].message);
    print_message("%zu kernels\n", jobs.count);
    compile_jobs_fini(&jobs);
}

static void every_hostile_case_equals_the_reference_three_times_over(void **state)
{
    (void)state;
    gpu_skip_without_device(&g);
    family_verdict v = {0};
    qn_text report = QN_TEXT_INIT;
    size_t count;
    const hostile_case *cases = hostile_cases(&count);
    compile_ahead(wanted_tag());
    for (size_t i = 0; i < count; i++) {
        if (!hostile_wanted(&cases[i], wanted_tag()) || !family_is_in_shard(i)) continue;
        quern_op *op = prepare(&cases[i].spec.base);
        run_case(&cases[i], op, NULL, &report);
        quern_op_release(op);
        family_count(&v, &report);
    }
    qn_text_fini(&report);
    family_conclude(&v, "cases", gpu_is_quick() ? 250 : 900);
}

// ---- every plan by force: the heuristic of each bucket of rows, what differs from the first of each plan in one knob, and
// drawn ones

enum { DRAWS = 40, QUICK_DRAWS = 8, DRAW_SEED = 7 };

static void collect(const quern_spec *spec, qn_configs *list)
{
    const qn_space space = {.family = &qn_family_softmax_topk, .spec = spec, .arch = g.arch, .bucket = 0};
    must_be_ok(qn_space_seeds(&space, list));
    size_t seeds = list->count;
    for (size_t i = 0; !gpu_is_quick() && i < seeds; i++) {
        bool first = true;
        for (size_t j = 0; j < i; j++) first = first && list->item[j].value[0] != list->item[i].value[0];
        qn_config seed = list->item[i]; // the list moves when it grows
        if (first) must_be_ok(qn_space_neighbours(&space, &seed, list));
    }
    must_be_ok(qn_space_draws(&space, DRAW_SEED, gpu_is_quick() ? QUICK_DRAWS : DRAWS, list));
}

// $QUERN_TEST_SHARD: every n-th configuration.
static void keep_shard(qn_configs *list)
{
    size_t kept = 0;
    for (size_t i = 0; i < list->count; i++)
        if (family_is_in_shard(i)) list->item[kept++] = list->item[i];
    list->count = kept;
}

static void compile_configs(const quern_spec *spec, const char *text, const qn_configs *list)
{
    compile_jobs jobs = {0};
    for (size_t i = 0; i < list->count; i++) {
        qn_plan plan = {0};
        must_be_ok(qn_family_softmax_topk.plan(spec, g.arch, &list->item[i], &plan));
        for (size_t s = 0; s < plan.stage_count; s++) compile_jobs_add(&jobs, &plan.stage[s], g.arch, text);
    }
    compile_jobs_run(&jobs, g.q);
    compile_jobs_fini(&jobs);
}

static bool for_forced(const hostile_case *c)
{
    static const char *const patterns[] = {"_normal",    "_quantised",       "_tie_group",    "_chunk",
                                           "_all_equal", "_infinities",      "_nan_k_plus_1", "_one_thread_8x512",
                                           "_ascending", "_finite_k_less_1", "_any_bits"};
    if (c->name[2] != '_') return false; // the cases of base specs: "g0_normal"
    for (size_t i = 0; i < QN_COUNT(patterns); i++)
        if (strcmp(c->name + 2, patterns[i]) == 0) return true;
    return false;
}

static bool any_for_forced(const char *text)
{
    size_t count;
    const hostile_case *cases = hostile_cases(&count);
    for (size_t i = 0; i < count; i++)
        if (strcmp(cases[i].text, text) == 0 && for_forced(&cases[i]) && hostile_wanted(&cases[i], ~0u)) return true;
    return false;
}

static void force_on(const quern_softmax_topk_spec *spec, const char *text, family_verdict *v)
{
    qn_configs list = QN_CONFIGS_INIT;
    qn_text report = QN_TEXT_INIT, name = QN_TEXT_INIT;
    size_t count;
    const hostile_case *cases = hostile_cases(&count);
    collect(&spec->base, &list);
    keep_shard(&list);
    compile_configs(&spec->base, text, &list);
    for (size_t i = 0; i < list.count; i++) {
        quern_op *op = NULL;
        qn_text_clear(&name);
        qn_config_write(&qn_family_softmax_topk, &list.item[i], &name);
        if (qn_prepare_config(g.q, &spec->base, QUERN_DEVICE_CURRENT, &list.item[i], &op) != QUERN_OK)
            fail_msg("'%s' %s: %s", text, qn_text_string(&name), quern_message());
        for (size_t j = 0; j < count; j++) {
            if (strcmp(cases[j].text, text) || !for_forced(&cases[j]) || !hostile_wanted(&cases[j], ~0u)) continue;
            run_case(&cases[j], op, qn_text_string(&name), &report);
            family_count(v, &report);
        }
        quern_op_release(op);
    }
    print_message("'%s': %zu configurations\n", text, list.count);
    qn_text_fini(&name), qn_text_fini(&report);
    qn_configs_fini(&list);
}

static void every_plan_by_force_equals_the_reference(void **state)
{
    (void)state;
    gpu_skip_without_device(&g);
    static const char *const bases[] = {"m0_normal", "g0_normal", "m3_normal", "g4_normal"};
    size_t count, most = gpu_is_quick() ? 1 : QN_COUNT(bases);
    const hostile_case *cases = hostile_cases(&count);
    family_verdict v = {0};
    for (size_t b = 0; b < most; b++)
        for (size_t i = 0; i < count; i++)
            if (strcmp(cases[i].name, bases[b]) == 0 && any_for_forced(cases[i].text))
                force_on(&cases[i].spec, cases[i].text, &v);
    family_conclude(&v, "cases on forced plans", 1);
}

// ---- large tensors: filled by rows that repeat, compared in sampled rows

typedef struct large {
    const hostile_case *c;
    int64_t stride; // of logits
    size_t element, index;
    CUdeviceptr tensor[HOSTILE_BUFFERS];
    size_t bytes[HOSTILE_BUFFERS]; // with guard bytes round outputs
    quern_softmax_topk_args args;
} large;

static size_t large_bytes(const large *l, int buffer)
{
    const hostile_case *c = l->c;
    size_t rows = (size_t)c->rows, guards = 2 * HOSTILE_GUARD_BYTES;
    switch (buffer) {
    case HOSTILE_LOGITS:
        return ((size_t)c->logits_offset + (rows - 1) * (size_t)l->stride + (size_t)c->spec.V) * l->element;
    case HOSTILE_TEMPERATURE:
        return c->spec.temperature ? rows * 4 : 0;
    case HOSTILE_TOKEN:
        return c->spec.token ? rows * 4 : 0;
    case HOSTILE_VALUES:
        return rows * (size_t)c->spec.K * 4 + guards;
    case HOSTILE_INDICES:
        return rows * (size_t)c->spec.K * l->index + guards;
    case HOSTILE_LSE:
        return c->spec.lse ? rows * 4 + guards : 0;
    default:
        return c->spec.token ? rows * 4 + guards : 0;
    }
}

static void fill_device(const large *l, int buffer)
{
    GPU_MUST(&g, cuMemsetD32Async(l->tensor[buffer], 0xA5A5A5A5, l->bytes[buffer] / 4, NULL));
    GPU_MUST(&g, cuCtxSynchronize());
}

// Copies blocks of `period` rows, or single rows where the stride is wide.
static void upload_rows(const large *l)
{
    const hostile_case *c = l->c;
    size_t row_bytes = (size_t)c->spec.V * l->element, stride = (size_t)l->stride * l->element;
    CUdeviceptr first = l->tensor[HOSTILE_LOGITS] + (size_t)c->logits_offset * l->element;
    int64_t block_rows = stride > (1 << 24) ? 1 : c->period;
    unsigned char *block = malloc((size_t)(block_rows - 1) * stride + row_bytes);
    assert_non_null(block);
    memset(block, 0x7F, (size_t)(block_rows - 1) * stride + row_bytes); // huge or NaN between the rows
    for (int64_t row = 0; row < c->rows; row += block_rows) {
        int64_t count = c->rows - row < block_rows ? c->rows - row : block_rows;
        for (int64_t i = 0; i < count && (row == 0 || block_rows == 1); i++)
            hostile_row(c, row + i, block + (size_t)i * stride);
        GPU_MUST(&g, cuMemcpyHtoD(first + (size_t)row * stride, block, (size_t)(count - 1) * stride + row_bytes));
    }
    free(block);
}

static void upload_per_row(const large *l, int buffer)
{
    if (!l->bytes[buffer]) return;
    int32_t *words = malloc((size_t)l->c->rows * 4);
    assert_non_null(words);
    for (int64_t row = 0; row < l->c->rows; row++) {
        float temperature = hostile_temperature(l->c, row);
        if (buffer == HOSTILE_TOKEN)
            words[row] = hostile_token(l->c, row);
        else
            memcpy(&words[row], &temperature, 4);
    }
    GPU_MUST(&g, cuMemcpyHtoD(l->tensor[buffer], words, (size_t)l->c->rows * 4));
    free(words);
}

static bool make_large(const hostile_case *c, large *l)
{
    *l = (large){.c = c, .stride = c->logits_stride ? c->logits_stride : c->spec.V, .args = hostile_args(c)};
    l->element = c->spec.in == QUERN_F32 ? 4 : 2, l->index = c->spec.index == QUERN_I64 ? 8 : 4;
    for (int i = 0; i < HOSTILE_BUFFERS; i++) {
        l->bytes[i] = large_bytes(l, i);
        if (l->bytes[i] && !(l->tensor[i] = gpu_alloc(&g, l->bytes[i]))) return false;
        size_t at = i == HOSTILE_LOGITS   ? (size_t)c->logits_offset * l->element
                    : i >= HOSTILE_INPUTS ? HOSTILE_GUARD_BYTES
                                          : 0;
        if (l->bytes[i]) hostile_set_pointer(&l->args, i, (void *)(uintptr_t)(l->tensor[i] + at));
        if (l->bytes[i] && i >= HOSTILE_INPUTS) fill_device(l, i);
    }
    upload_rows(l);
    upload_per_row(l, HOSTILE_TEMPERATURE);
    upload_per_row(l, HOSTILE_TOKEN);
    return true;
}

static void check_large_guards(const large *l, qn_text *report)
{
    unsigned char guard[2][HOSTILE_GUARD_BYTES];
    for (int i = HOSTILE_INPUTS; i < HOSTILE_BUFFERS; i++) {
        if (!l->bytes[i]) continue;
        GPU_MUST(&g, cuMemcpyDtoH(guard[0], l->tensor[i], HOSTILE_GUARD_BYTES));
        GPU_MUST(&g, cuMemcpyDtoH(guard[1], l->tensor[i] + l->bytes[i] - HOSTILE_GUARD_BYTES, HOSTILE_GUARD_BYTES));
        for (int side = 0; side < 2; side++)
            for (int j = 0; j < HOSTILE_GUARD_BYTES; j++)
                if (guard[side][j] != HOSTILE_GUARD) {
                    check_describe(l->c, report);
                    qn_text_putf(report, "    %s: guard bytes %s it were written\n", hostile_buffer_name[i],
                                 side ? "after" : "before");
                    j = HOSTILE_GUARD_BYTES;
                }
    }
}

// One row's results, brought to the host and judged.
static void check_large_row(const large *l, int64_t row, qn_text *report)
{
    const hostile_case *c = l->c;
    quern_softmax_topk_args got = QUERN_SOFTMAX_TOPK_ARGS_INIT;
    void *host[HOSTILE_BUFFERS];
    got.rows = 1;
    for (int i = 0; i < HOSTILE_BUFFERS; i++) {
        size_t bytes = i == HOSTILE_LOGITS    ? (size_t)c->spec.V * l->element
                       : i == HOSTILE_VALUES  ? (size_t)c->spec.K * 4
                       : i == HOSTILE_INDICES ? (size_t)c->spec.K * l->index
                                              : 4;
        size_t stride = i == HOSTILE_LOGITS ? (size_t)l->stride * l->element : bytes;
        size_t at = i == HOSTILE_LOGITS   ? (size_t)c->logits_offset * l->element
                    : i >= HOSTILE_INPUTS ? HOSTILE_GUARD_BYTES
                                          : 0;
        host[i] = malloc(bytes);
        assert_non_null(host[i]);
        if (!l->bytes[i]) continue;
        GPU_MUST(&g, cuMemcpyDtoH(host[i], l->tensor[i] + at + (size_t)row * stride, bytes));
        hostile_set_pointer(&got, i, host[i]);
    }
    check_case_row(c, row, &got, report);
    for (int i = 0; i < HOSTILE_BUFFERS; i++) free(host[i]);
}

static void check_large_rows(const large *l, qn_text *report)
{
    const int64_t rows = l->c->rows,
                  edges[] = {0, 1, 2, 32767, 32768, 65534, 65535, 65536, rows - 3, rows - 2, rows - 1};
    for (size_t i = 0; i < QN_COUNT(edges); i++)
        if (edges[i] >= 0 && edges[i] < rows && !report->length) check_large_row(l, edges[i], report);
    for (int64_t i = 1; i < 64 && !report->length; i++) check_large_row(l, (i * 2654435761) % rows, report);
}

static bool run_large(const hostile_case *c, qn_text *report)
{
    large l;
    bool made = make_large(c, &l);
    if (made) {
        quern_op *op = prepare(&c->spec.base);
        quern_softmax_topk_sizes sizes = QUERN_SOFTMAX_TOPK_SIZES_INIT;
        sizes.rows = c->rows;
        size_t bytes = quern_workspace_size(op, &sizes);
        CUdeviceptr workspace = bytes ? gpu_alloc(&g, bytes) : 0;
        l.args.workspace = (void *)(uintptr_t)workspace, l.args.workspace_bytes = bytes;
        assert_int_equal(quern_workspace_init(op, l.args.workspace, bytes, NULL), QUERN_OK);
        launch(c, op, &l.args, NULL);
        check_large_guards(&l, report);
        check_large_rows(&l, report);
        gpu_free(&g, workspace);
        quern_op_release(op);
    }
    for (int i = 0; i < HOSTILE_BUFFERS; i++) gpu_free(&g, l.tensor[i]);
    return made;
}

static void large_tensors_equal_the_reference_in_sampled_rows(void **state)
{
    (void)state;
    gpu_skip_without_device(&g);
    if (gpu_is_quick()) {
        print_message("skipped: $QUERN_TEST_QUICK\n");
        skip();
    }
    family_verdict v = {0};
    qn_text report = QN_TEXT_INIT;
    size_t count;
    const hostile_case *cases = hostile_cases(&count);
    compile_ahead(HOSTILE_LARGE);
    for (size_t i = 0; i < count; i++) {
        if (!hostile_wanted(&cases[i], HOSTILE_LARGE) || !family_is_in_shard(i)) continue;
        if (!run_large(&cases[i], &report))
            print_message("left out: %s: the device has too little memory\n", cases[i].name);
        else
            family_count(&v, &report);
    }
    qn_text_fini(&report);
    family_conclude(&v, "large cases", 0); // a device may have too little memory for any
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_hostile_case_equals_the_reference_three_times_over),
        cmocka_unit_test(every_plan_by_force_equals_the_reference),
        cmocka_unit_test(large_tensors_equal_the_reference_in_sampled_rows),
    };
    gpu_open(&g);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    gpu_close(&g);
    return failed;
}
