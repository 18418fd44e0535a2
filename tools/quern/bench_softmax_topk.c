// SPDX-License-Identifier: Apache-2.0
// `quern bench softmax_topk`: microseconds a call beside a plain read of the same logits. Results are checked against
// the host reference on sampled rows before anything is timed.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"
#include "runtime/runtime.h"

enum { MAX_LIST = 32, MAX_CASES = 512, CHECKED_ROWS = 3, LEAST_LAUNCHES = 20 };

typedef struct topk_case {
    int64_t rows, V, K;
    quern_dtype in;
} topk_case;

typedef struct topk_bench {
    bench bench;
    command_settings settings;
    const char *rows, *V, *K, *in, *data_word, *config_text, *with;
    topk_case cases[MAX_CASES];
    size_t case_count;
    bench_data data; // of the last case: kept while rows, V and type stay
    qn_timing read;
    table *table;
} topk_bench;

static const char text[] =
    "Times graph replays of many launches whose inputs rotate over more than twice the L2. 'read' is a\n"
    "plain read of the same bytes in the same run, 'x read' how many of those a call takes; us are\n"
    "medians, with the tenth and ninetieth percentile. Results are checked against the host reference\n"
    "first. Without --rows, --V, --K and --in: a fixed list of shapes of language models. Lists are\n"
    "'1,8,64'.\n";

// ---- cases

// The shapes that the project's figures are given for.
static void add_default_cases(topk_bench *t)
{
    static const struct {
        int64_t rows, V;
        quern_dtype in;
        int64_t K[4];
    } list[] = {
        {1, 128256, QUERN_BF16, {8, 50, 256, 1024}},
        {8, 128256, QUERN_BF16, {8, 50, 256, 1024}},
        {30, 128256, QUERN_BF16, {8, 50, 256, 1024}},
        {64, 128256, QUERN_BF16, {8, 50, 256, 1024}},
        {256, 50257, QUERN_BF16, {256}},
        {256, 50257, QUERN_F32, {256}},
        {4096, 128256, QUERN_BF16, {8, 50, 256, 1024}},
        {4096, 128256, QUERN_F32, {8, 50, 256, 1024}},
    };
    for (size_t i = 0; i < QN_COUNT(list); i++)
        for (size_t k = 0; k < QN_COUNT(list[i].K) && list[i].K[k]; k++)
            t->cases[t->case_count++] = (topk_case){list[i].rows, list[i].V, list[i].K[k], list[i].in};
}

// "1,8,64"; NULL means the one default.
static quern_status parse_list(const char *option, const char *word, int64_t initial, int64_t *list, size_t *count)
{
    *count = 0;
    if (!word) list[(*count)++] = initial;
    while (word && *word) {
        char number[24];
        size_t length = strcspn(word, ",");
        snprintf(number, sizeof number, "%.*s", (int)length, word);
        if (*count == MAX_LIST || length >= sizeof number || !qn_parse_int(number, &list[*count]) || list[*count] < 1)
            return qn_fail(QUERN_BAD_VALUE, "--%s: '%.*s' is not one of at most %d whole numbers from 1 on", option,
                           (int)length, word, MAX_LIST);
        (*count)++;
        word += length + (word[length] == ',');
    }
    return *count ? QUERN_OK : qn_fail(QUERN_BAD_VALUE, "--%s: a list of numbers is needed", option);
}

static quern_status parse_types(const char *word, quern_dtype initial, int64_t *list, size_t *count)
{
    static const quern_dtype known[] = {QUERN_F32, QUERN_F16, QUERN_BF16};
    *count = 0;
    if (!word) list[(*count)++] = initial;
    while (word && *word) {
        size_t length = strcspn(word, ","), i = 0;
        while (i < QN_COUNT(known) &&
               (strlen(qn_dtype_name(known[i])) != length || strncmp(qn_dtype_name(known[i]), word, length) != 0))
            i++;
        if (i == QN_COUNT(known) || *count == MAX_LIST)
            return qn_fail(QUERN_BAD_VALUE, "--in: '%.*s' is not f32, f16 or bf16", (int)length, word);
        list[(*count)++] = known[i];
        word += length + (word[length] == ',');
    }
    return *count ? QUERN_OK : qn_fail(QUERN_BAD_VALUE, "--in: a list of types is needed");
}

static quern_status add_cases(topk_bench *t)
{
    int64_t rows[MAX_LIST], V[MAX_LIST], K[MAX_LIST], in[MAX_LIST];
    size_t row_count, V_count, K_count, in_count;
    bool real = t->data.kind == BENCH_REAL;
    QN_TRY(parse_list("rows", t->rows, 4096, rows, &row_count));
    QN_TRY(parse_list("V", t->V, real ? t->data.real.shape.extent[1] : 128256, V, &V_count));
    QN_TRY(parse_list("K", t->K, 256, K, &K_count));
    QN_TRY(parse_types(t->in, real ? t->data.real.dtype : QUERN_BF16, in, &in_count));
    if (row_count * V_count * K_count * in_count > MAX_CASES)
        return qn_fail(QUERN_BAD_VALUE, "more than %d cases are asked for", MAX_CASES);
    for (size_t d = 0; d < in_count; d++)
        for (size_t v = 0; v < V_count; v++)
            for (size_t r = 0; r < row_count; r++)
                for (size_t k = 0; k < K_count; k++)
                    t->cases[t->case_count++] = (topk_case){rows[r], V[v], K[k], (quern_dtype)in[d]};
    for (size_t i = 0; real && i < t->case_count; i++)
        if (t->cases[i].V != t->data.real.shape.extent[1] || t->cases[i].in != t->data.real.dtype)
            return qn_fail(QUERN_BAD_VALUE, "--data: the file has V = %lld and %s, which --V and --in must name",
                           (long long)t->data.real.shape.extent[1], qn_dtype_name(t->data.real.dtype));
    return QUERN_OK;
}

// ---- one case on the device

enum { MAX_TENSORS = 16 };

typedef struct topk_run {
    const topk_bench *bench;
    const topk_case *shape;
    const qn_family *family;
    quern_any_spec spec;
    char spec_text[512];
    quern_op *op;
    quern_softmax_topk_args args;
    CUdeviceptr tensor[MAX_TENSORS];
    CUdeviceptr workspace;
} topk_run;

static int64_t axis_extent(const topk_run *r, const char *axis)
{
    return strcmp(axis, "rows") == 0 ? r->shape->rows : qn_spec_number(r->family, &r->spec.base, axis);
}

// Every tensor but the logits; optional inputs are 1.0 (temperature) or 0 (token).
static quern_status allocate_tensors(topk_run *r)
{
    const bench *b = &r->bench->bench;
    for (size_t i = 0; i < r->family->tensor_count && i < MAX_TENSORS; i++) {
        const qn_tensor *t = &r->family->tensors[i];
        if (t->pointer_offset == offsetof(quern_softmax_topk_args, logits)) continue;
        if (!qn_tensor_is_given(r->family, &r->spec.base, t)) continue;
        quern_dtype dtype = qn_tensor_dtype(r->family, &r->spec.base, t);
        size_t count = 1;
        for (size_t a = 0; t->axes[a]; a++) count *= (size_t)axis_extent(r, t->axes[a]);
        size_t words = count * qn_dtype_bytes(dtype) / 4;
        QN_TRY(bench_allocate(b, 4 * words, &r->tensor[i]));
        unsigned word = t->direction == QN_INPUT && dtype == QUERN_F32 ? 0x3F800000u : 0;
        DEVICE_TRY(&b->device, cuMemsetD32Async, r->tensor[i], word, words, b->stream);
        void *pointer = (void *)(uintptr_t)r->tensor[i];
        memcpy((char *)&r->args + t->pointer_offset, &pointer, sizeof pointer);
    }
    return QUERN_OK;
}

static quern_status allocate_workspace(topk_run *r)
{
    const bench *b = &r->bench->bench;
    quern_softmax_topk_sizes sizes = QUERN_SOFTMAX_TOPK_SIZES_INIT;
    sizes.rows = r->shape->rows;
    r->args.workspace_bytes = quern_workspace_size(r->op, &sizes);
    if (r->args.workspace_bytes == 0) return QUERN_OK;
    QN_TRY(bench_allocate(b, r->args.workspace_bytes, &r->workspace));
    r->args.workspace = (void *)(uintptr_t)r->workspace;
    return quern_workspace_init(r->op, r->args.workspace, r->args.workspace_bytes, b->stream);
}

static quern_status prepare(topk_run *r)
{
    const topk_bench *t = r->bench;
    qn_text words = QN_TEXT_INIT;
    qn_text_putf(&words, "softmax_topk V=%lld K=%lld in=%s %s", (long long)r->shape->V, (long long)r->shape->K,
                 qn_dtype_name(r->shape->in), t->with ? t->with : "");
    quern_status status = quern_spec_parse(qn_text_string(&words), &r->spec);
    qn_text_fini(&words);
    QN_TRY(status);
    QN_TRY(quern_spec_format(&r->spec.base, r->spec_text, sizeof r->spec_text));
    QN_TRY(qn_family_find("softmax_topk", &r->family));
    if (!t->config_text) return quern_prepare(t->bench.q, &r->spec.base, t->bench.device.ordinal, &r->op);
    qn_config config;
    QN_TRY(qn_config_parse(r->family, t->config_text, &config));
    return qn_prepare_config(t->bench.q, &r->spec.base, t->bench.device.ordinal, &config, &r->op);
}

static void release(topk_run *r)
{
    const qn_driver *driver = r->bench->bench.device.driver;
    for (size_t i = 0; i < MAX_TENSORS; i++)
        if (r->tensor[i]) (void)driver->cuMemFree(r->tensor[i]);
    if (r->workspace) (void)driver->cuMemFree(r->workspace);
    quern_op_release(r->op);
}

static quern_status enqueue(void *user, size_t index, CUstream stream)
{
    topk_run *r = user;
    r->args.logits = (const void *)(uintptr_t)bench_data_copy(&r->bench->data, index);
    return quern_softmax_topk(r->op, &r->args, stream);
}

// ---- the check

// Host memory of one row: what the device wrote and what the reference says.
typedef struct checked_row {
    void *logits, *indices, *want_indices;
    float *values, *want_values;
} checked_row;

static quern_status copy_row(const topk_run *r, size_t copy, int64_t row, const checked_row *c)
{
    const device *d = &r->bench->bench.device;
    const quern_softmax_topk_spec *spec = (const quern_softmax_topk_spec *)&r->spec;
    size_t row_bytes = (size_t)spec->V * qn_dtype_bytes(spec->in), K = (size_t)spec->K;
    size_t index_bytes = K * qn_dtype_bytes(spec->index);
    DEVICE_TRY(d, cuMemcpyDtoH, c->logits, bench_data_copy(&r->bench->data, copy) + (size_t)row * row_bytes, row_bytes);
    DEVICE_TRY(d, cuMemcpyDtoH, c->values, (CUdeviceptr)(uintptr_t)(r->args.values + (size_t)row * K),
               K * sizeof(float));
    DEVICE_TRY(d, cuMemcpyDtoH, c->indices, (CUdeviceptr)(uintptr_t)r->args.indices + (size_t)row * index_bytes,
               index_bytes);
    return QUERN_OK;
}

// A plain softmax of the same row: optional tensors are neutral, so they are left out. Indices exactly, values to 2e-5
// (log-probabilities, which may be close to 0, also to 4e-6), which tells a wrong result from rounding; the tests hold
// the finer bounds.
static quern_status check_row(const topk_run *r, size_t copy, int64_t row, const checked_row *c)
{
    quern_softmax_topk_spec spec = *(const quern_softmax_topk_spec *)&r->spec;
    quern_softmax_topk_args args = QUERN_SOFTMAX_TOPK_ARGS_INIT;
    QN_TRY(copy_row(r, copy, row, c));
    spec.temperature = spec.lse = spec.token = 0;
    args.rows = 1, args.logits = c->logits, args.values = c->want_values, args.indices = c->want_indices;
    QN_TRY(quern_reference(&spec.base, &args.base));
    size_t width = qn_dtype_bytes(spec.index);
    double absolute = spec.value == QUERN_VALUE_LOGPROB ? 4e-6 : 1e-37;
    for (int64_t k = 0; k < spec.K; k++) {
        double got = c->values[k], want = c->want_values[k];
        bool same =
            memcmp((char *)c->indices + (size_t)k * width, (char *)c->want_indices + (size_t)k * width, width) == 0;
        if (same && (got == want || (isnan(got) && isnan(want)) || fabs(got - want) <= 2e-5 * fabs(want) + absolute))
            continue;
        return qn_fail(QUERN_INTERNAL, "%s, %lld rows: row %lld, place %lld is wrong: value %.9g, expected %.9g%s",
                       r->spec_text, (long long)r->shape->rows, (long long)row, (long long)k, got, want,
                       same ? "" : ", another index");
    }
    return QUERN_OK;
}

static quern_status check_rows(const topk_run *r, size_t copy, const checked_row *c)
{
    for (int64_t i = 0; i < CHECKED_ROWS; i++) {
        int64_t row = (r->shape->rows - 1) * i / (CHECKED_ROWS - 1); // first, middle, last
        QN_TRY(check_row(r, copy, row, c));
    }
    return QUERN_OK;
}

static quern_status check(topk_run *r)
{
    size_t K = (size_t)r->shape->K, V = (size_t)r->shape->V;
    char *memory = malloc(4 * V + 24 * K);
    if (!memory) return qn_fail(QUERN_OUT_OF_MEMORY, "out of memory");
    checked_row c = {memory + 24 * K, memory, memory + 8 * K, (float *)(memory + 16 * K), (float *)(memory + 20 * K)};
    const size_t copies[] = {0, r->bench->data.copies - 1};
    quern_status status = QUERN_OK;
    for (size_t i = 0; i < QN_COUNT(copies) && status == QUERN_OK; i++) {
        const device *d = &r->bench->bench.device;
        status = enqueue(r, copies[i], r->bench->bench.stream);
        if (status == QUERN_OK)
            status = device_check(d, "cuStreamSynchronize", d->driver->cuStreamSynchronize(r->bench->bench.stream));
        if (status == QUERN_OK) status = check_rows(r, copies[i], &c);
    }
    free(memory);
    return status;
}

// ---- the table

static const table_column columns[] = {
    {"rows", "rows", TABLE_INT, 0},
    {"V", "V", TABLE_INT, 0},
    {"in", "in", TABLE_TEXT, 0},
    {"K", "K", TABLE_INT, 0},
    {"us", "us", TABLE_REAL, 2},
    {"p10", "us_p10", TABLE_REAL, 2},
    {"p90", "us_p90", TABLE_REAL, 2},
    {"GB/s", "gb_per_s", TABLE_REAL, 0},
    {"read us", "read_us", TABLE_REAL, 2},
    {"x read", "ratio_to_read", TABLE_REAL, 3},
    {NULL, "launches", TABLE_INT, 0},
    {NULL, "copies", TABLE_INT, 0},
    {"configuration", "configuration", TABLE_TEXT, 0},
    {NULL, "spec", TABLE_TEXT, 0},
};

static void add_result(topk_bench *t, const topk_run *r, const qn_timing *timing, size_t launches)
{
    quern_softmax_topk_sizes sizes = QUERN_SOFTMAX_TOPK_SIZES_INIT;
    quern_kernel_info info = QUERN_KERNEL_INFO_INIT;
    sizes.rows = r->shape->rows;
    (void)quern_op_describe(r->op, quern_op_variant_for(r->op, &sizes), 0, &info);
    table_add(t->table, r->shape->rows, r->shape->V, qn_dtype_name(r->shape->in), r->shape->K, timing->median_us,
              timing->low_us, timing->high_us, (double)t->data.copy_bytes / timing->median_us * 1e-3, t->read.median_us,
              timing->median_us / t->read.median_us, (int64_t)launches, (int64_t)t->data.copies, info.config,
              r->spec_text);
}

// ---- running

// The inputs and their plain read, kept from the case before when they are the same.
static quern_status need_data(topk_bench *t, const topk_case *c)
{
    bench_data *d = &t->data;
    if (d->base && d->rows == c->rows && d->V == c->V && d->dtype == c->in) return QUERN_OK;
    bench_data_free(&t->bench, d);
    d->rows = c->rows, d->V = c->V, d->dtype = c->in;
    QN_TRY(bench_data_make(&t->bench, d));
    return bench_read(&t->bench, d, &t->read);
}

static quern_status time_case(topk_bench *t, topk_run *r)
{
    qn_timing timing;
    QN_TRY(prepare(r));
    QN_TRY(need_data(t, r->shape));
    QN_TRY(allocate_tensors(r));
    QN_TRY(allocate_workspace(r));
    r->args.rows = r->shape->rows;
    QN_TRY(check(r));
    size_t launches = qn_timing_launches(t->data.copies, LEAST_LAUNCHES);
    qn_timing_request request = {enqueue, r, launches, t->bench.repeats};
    QN_TRY(qn_timing_graph(t->bench.device.driver, &request, &timing));
    add_result(t, r, &timing, launches);
    return QUERN_OK;
}

static quern_status run_cases(topk_bench *t)
{
    for (size_t i = 0; i < t->case_count; i++) {
        topk_run r = {.bench = t, .shape = &t->cases[i], .args = QUERN_SOFTMAX_TOPK_ARGS_INIT};
        command_progress(i, t->case_count, "softmax_topk");
        quern_status status = time_case(t, &r);
        release(&r);
        QN_TRY(status);
    }
    command_progress_end();
    return QUERN_OK;
}

static void print_results(const topk_bench *t)
{
    if (t->settings.json) {
        cJSON *document = bench_document("softmax_topk", &t->bench.device);
        cJSON_AddStringToObject(document, "data", t->data_word);
        cJSON_AddNumberToObject(document, "repeats", t->bench.repeats);
        cJSON_AddItemToObject(document, "results", table_json(t->table));
        json_print(document);
    } else {
        bench_print_head("softmax_topk", &t->bench.device);
        printf("data %s, %d repeats\n\n", t->data_word, t->bench.repeats);
        table_print(t->table);
    }
}

// What was measured before a failure is printed all the same.
static int run_bench(topk_bench *t, const char *where, int64_t repeats)
{
    int ordinal;
    if (!device_parse(where, &ordinal)) return command_usage("--device %s: gpu or gpu:N is needed", where);
    quern_status status = bench_data_parse(t->data_word, &t->data);
    bool listed = t->rows || t->V || t->K || t->in || t->data.kind == BENCH_REAL;
    if (status == QUERN_OK && listed) status = add_cases(t);
    if (status == QUERN_OK && !listed) add_default_cases(t);
    if (status == QUERN_OK) status = bench_open(&t->settings, ordinal, (int)repeats, &t->bench);
    if (status != QUERN_OK) return command_status(status);
    t->table = table_create(columns, QN_COUNT(columns));
    status = run_cases(t);
    print_results(t);
    int exit_status = status == QUERN_OK ? COMMAND_OK : command_status(status);
    table_destroy(t->table);
    bench_data_free(&t->bench, &t->data);
    bench_close(&t->bench);
    return exit_status;
}

int bench_softmax_topk(int argc, char **argv)
{
    static topk_bench t = {.data_word = "random"};
    const char *where = "gpu";
    int64_t repeats = 20;
    const command_option options[] = {
        {"rows", 0, "LIST", COMMAND_STRING, &t.rows, 0, 0, "rows (default 4096)"},
        {"V", 0, "LIST", COMMAND_STRING, &t.V, 0, 0, "vocabularies (default 128256)"},
        {"K", 0, "LIST", COMMAND_STRING, &t.K, 0, 0, "winners a row (default 256)"},
        {"in", 0, "LIST", COMMAND_STRING, &t.in, 0, 0, "types of the logits (default bf16)"},
        {"data", 0, "KIND", COMMAND_STRING, &t.data_word, 0, 0, "random, ties, two, sorted, equal or real:FILE.npy"},
        {"with", 0, "FIELDS", COMMAND_STRING, &t.with, 0, 0, "more fields of the spec: 'lse=1 value=logprob'"},
        {"config", 0, "TEXT", COMMAND_STRING, &t.config_text, 0, 0, "this configuration: 'plan=... block=...'"},
        {"repeat", 0, "N", COMMAND_NUMBER, &repeats, 1, QN_TIMING_MAX_REPEATS, "measured replays of each graph (20)"},
        {"device", 0, "WHERE", COMMAND_STRING, &where, 0, 0, "gpu (default) or gpu:N"},
        COMMAND_OPTION_DB(&t.settings.db),
        COMMAND_OPTION_JSON(&t.settings.json),
        COMMAND_OPTION_VERBOSE(&t.settings.verbose),
        COMMAND_OPTION_END,
    };
    const command_syntax syntax = {"quern bench softmax_topk [options]", text, options};
    int exit_status;
    if (!command_parse(&syntax, &argc, argv, &exit_status)) return exit_status;
    if (argc > 1) return command_usage("unexpected operand '%s'", argv[1]);
    exit_status = run_bench(&t, where, repeats);
    npy_fini(&t.data.real);
    return exit_status;
}
