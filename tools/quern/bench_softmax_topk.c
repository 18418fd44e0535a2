// SPDX-License-Identifier: Apache-2.0
// `quern bench softmax_topk`: microseconds a call beside a plain read of the same logits, and with --vs beside other
// libraries on the same inputs. Results are checked before anything is timed (bench_topk.h lists the parts).
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench_topk.h"
#include "runtime/runtime.h"

enum { LEAST_LAUNCHES = 20 };

typedef struct topk_bench {
    bench bench;
    command_settings settings;
    topk_lists lists;
    const char *only, *real, *config_text, *sweep, *out;
    bool repairs;
    bench_peers_options peers_options; // which: NULL without --vs
    topk_cases cases;
    bench_data data; // of the last case: kept while the next has the same
    char data_word[1024];
    int64_t inputs;
    qn_timing read;
    bench_peers *peers;
    table *table;
    cJSON *document, *rows;
} topk_bench;

static const char text[] =
    "Times graph replays of many launches whose inputs rotate over more than twice the L2. 'read' is a\n"
    "plain read of the same bytes in the same run, 'x read' how many of those a call takes; us are\n"
    "medians, with the tenth and ninetieth percentile. Results are checked against the host reference\n"
    "first. Without --rows, --V, --K, --in and --data: a fixed list of shapes of language models. Lists\n"
    "are '1,8,64'.\n"
    "--vs torch also times what Python has (torch, FlashInfer) on the same inputs, case by case, in the\n"
    "same way: 'best peer' is the fastest, 'x us' how many of our calls it takes. tools/bench/peers.py\n"
    "says what is the same on both sides; 'torch.topk_lse,…' in place of torch names some of them.\n"
    "--sweep local_k times each case with every choice of that knob and the library's own choice of the\n"
    "others; --repairs counts the rows that were selected again, by the exact way.\n";

// ---- one case on the device

bool topk_has_tensor(const topk_run *r, size_t i)
{
    return i < TOPK_MOST_TENSORS && r->tensor[i] != 0;
}

size_t topk_row_elements(const topk_run *r, size_t i)
{
    const char *axis = r->family->tensors[i].axes[1];
    return axis ? (size_t)qn_spec_number(r->family, &r->spec.base, axis) : 1;
}

size_t topk_row_bytes(const topk_run *r, size_t i)
{
    return topk_row_elements(r, i) * qn_dtype_bytes(qn_tensor_dtype(r->family, &r->spec.base, &r->family->tensors[i]));
}

// Temperatures from 0.5 to 1.5, tokens from all over the vocabulary.
static void fill_input(const topk_run *r, const qn_tensor *t, void *memory)
{
    for (int64_t row = 0; row < r->shape->rows; row++) {
        if (t->pointer_offset == offsetof(quern_softmax_topk_args, temperature))
            ((float *)memory)[row] = 0.5f + (float)(row % 17) / 16.0f;
        else
            ((int32_t *)memory)[row] = (int32_t)((row * 7919 + 13) % r->shape->V);
    }
}

static quern_status give_input(const topk_run *r, size_t i, size_t bytes)
{
    void *memory = malloc(bytes);
    if (!memory) return qn_fail(QUERN_OUT_OF_MEMORY, "out of memory");
    fill_input(r, &r->family->tensors[i], memory);
    const device *d = &r->bench->device;
    quern_status status = device_check(d, "cuMemcpyHtoD", d->driver->cuMemcpyHtoD(r->tensor[i], memory, bytes));
    free(memory);
    return status;
}

// Every tensor but the logits.
static quern_status allocate_tensors(topk_run *r)
{
    for (size_t i = 0; i < r->family->tensor_count && i < TOPK_MOST_TENSORS; i++) {
        const qn_tensor *t = &r->family->tensors[i];
        if (t->pointer_offset == offsetof(quern_softmax_topk_args, logits)) continue;
        if (!qn_tensor_is_given(r->family, &r->spec.base, t)) continue;
        size_t bytes = (size_t)r->shape->rows * topk_row_bytes(r, i);
        QN_TRY(bench_allocate(r->bench, bytes, &r->tensor[i]));
        if (t->direction == QN_INPUT) QN_TRY(give_input(r, i, bytes));
        void *pointer = (void *)(uintptr_t)r->tensor[i];
        memcpy((char *)&r->args + t->pointer_offset, &pointer, sizeof pointer);
    }
    return QUERN_OK;
}

static quern_status allocate_workspace(topk_run *r)
{
    quern_softmax_topk_sizes sizes = QUERN_SOFTMAX_TOPK_SIZES_INIT;
    sizes.rows = r->shape->rows;
    r->args.workspace_bytes = quern_workspace_size(r->op, &sizes);
    if (r->args.workspace_bytes == 0) return QUERN_OK;
    QN_TRY(bench_allocate(r->bench, r->args.workspace_bytes, &r->workspace));
    r->args.workspace = (void *)(uintptr_t)r->workspace;
    return quern_workspace_init(r->op, r->args.workspace, r->args.workspace_bytes, r->bench->stream);
}

static quern_status parse_spec(topk_run *r)
{
    qn_text words = QN_TEXT_INIT;
    qn_text_putf(&words, "softmax_topk V=%lld K=%lld in=%s %s", (long long)r->shape->V, (long long)r->shape->K,
                 qn_dtype_name(r->shape->in), r->shape->with);
    quern_status status = quern_spec_parse(qn_text_string(&words), &r->spec);
    qn_text_fini(&words);
    QN_TRY(status);
    QN_TRY(quern_spec_format(&r->spec.base, r->spec_text, sizeof r->spec_text));
    return qn_family_find("softmax_topk", &r->family);
}

static quern_status prepare(topk_run *r, const char *config_text)
{
    const bench *b = r->bench;
    QN_TRY(parse_spec(r));
    if (!config_text) return quern_prepare(b->q, &r->spec.base, b->device.ordinal, &r->op);
    qn_config config;
    QN_TRY(qn_config_parse(r->family, config_text, &config));
    return qn_prepare_config(b->q, &r->spec.base, b->device.ordinal, &config, &r->op);
}

static void release(topk_run *r)
{
    const qn_driver *driver = r->bench->device.driver;
    for (size_t i = 0; i < TOPK_MOST_TENSORS; i++)
        if (r->tensor[i]) (void)driver->cuMemFree(r->tensor[i]);
    if (r->workspace) (void)driver->cuMemFree(r->workspace);
    quern_op_release(r->op);
}

static quern_status enqueue(void *user, size_t index, CUstream stream)
{
    topk_run *r = user;
    r->args.logits = (const void *)(uintptr_t)bench_data_copy(r->data, index);
    return quern_softmax_topk(r->op, &r->args, stream);
}

quern_status topk_run_once(topk_run *r, size_t copy)
{
    const bench *b = r->bench;
    for (size_t i = 0; i < r->family->tensor_count; i++)
        if (topk_has_tensor(r, i) && r->family->tensors[i].direction == QN_OUTPUT)
            DEVICE_TRY(&b->device, cuMemsetD32Async, r->tensor[i], 0x7FC0DEADu, // a NaN, and no index
                       (size_t)r->shape->rows * topk_row_bytes(r, i) / 4, b->stream);
    QN_TRY(enqueue(r, copy, b->stream));
    DEVICE_TRY(&b->device, cuStreamSynchronize, b->stream);
    return QUERN_OK;
}

// ---- results

static const table_column columns[] = {
    {"rows", NULL, TABLE_INT, 0},
    {"V", NULL, TABLE_INT, 0},
    {"in", NULL, TABLE_TEXT, 0},
    {"K", NULL, TABLE_INT, 0},
    {"data", NULL, TABLE_TEXT, 0},
    {"us", NULL, TABLE_REAL, 2},
    {"p10", NULL, TABLE_REAL, 2},
    {"p90", NULL, TABLE_REAL, 2},
    {"GB/s", NULL, TABLE_REAL, 0},
    {"read us", NULL, TABLE_REAL, 2},
    {"x read", NULL, TABLE_REAL, 3},
    {"best peer", NULL, TABLE_TEXT, 0},
    {"its us", NULL, TABLE_REAL, 2},
    {"x us", NULL, TABLE_REAL, 2},
    {"repairs", NULL, TABLE_REAL, 0},
    {"with", NULL, TABLE_TEXT, 0},
    {"configuration", NULL, TABLE_TEXT, 0},
};

static const char *data_name(const topk_run *r)
{
    return r->data->kind == BENCH_REAL ? "real" : r->shape->data;
}

static cJSON *case_json(const topk_run *r, const topk_measured *m, int64_t checked_rows)
{
    cJSON *row = cJSON_CreateObject();
    cJSON_AddStringToObject(row, "op", "softmax_topk");
    cJSON_AddStringToObject(row, "group", r->shape->group);
    cJSON_AddNumberToObject(row, "rows", (double)r->shape->rows);
    cJSON_AddNumberToObject(row, "V", (double)r->shape->V);
    cJSON_AddStringToObject(row, "dtype", qn_dtype_name(r->shape->in));
    cJSON_AddNumberToObject(row, "K", (double)r->shape->K);
    cJSON_AddStringToObject(row, "with", r->shape->with);
    cJSON_AddStringToObject(row, "data", data_name(r));
    cJSON_AddStringToObject(row, "spec", r->spec_text);
    cJSON_AddNumberToObject(row, "copies", (double)r->data->copies);
    cJSON_AddNumberToObject(row, "launches", (double)m->launches);
    cJSON_AddNumberToObject(row, "checked_rows", (double)checked_rows);
    if (r->repairs >= 0) cJSON_AddNumberToObject(row, "repairs", (double)r->repairs);
    return row;
}

static void add_own(cJSON *row, const topk_bench *t, const topk_run *r, const qn_timing *timing,
                    const quern_kernel_info *info)
{
    const bool given = t->config_text || t->sweep;
    cJSON *own = bench_timing_json(timing, r->data->copy_bytes);
    cJSON_AddStringToObject(own, "plan", info->config ? info->config : "");
    cJSON_AddStringToObject(own, "chosen", given ? "given" : info->chosen ? info->chosen : "");
    cJSON_AddNumberToObject(own, "x_read", bench_rounded(timing->median_us / t->read.median_us));
    cJSON_AddItemToObject(row, "quern", own);
    cJSON_AddItemToObject(row, "read", bench_timing_json(&t->read, r->data->copy_bytes));
}

static void add_to_table(topk_bench *t, const topk_run *r, const qn_timing *timing, const char *config,
                         const cJSON *best)
{
    table_add(t->table, r->shape->rows, r->shape->V, qn_dtype_name(r->shape->in), r->shape->K, data_name(r),
              timing->median_us, timing->low_us, timing->high_us,
              (double)r->data->copy_bytes / timing->median_us * 1e-3, t->read.median_us,
              timing->median_us / t->read.median_us, best ? best->string : NULL, bench_peers_number(best, "us_median"),
              bench_peers_number(best, "x_quern"), r->repairs < 0 ? NAN : (double)r->repairs,
              *r->shape->with ? r->shape->with : NULL, config);
}

// Takes what the peers answered, which may be NULL.
static void add_result(topk_bench *t, const topk_run *r, const topk_measured *m, int64_t checked_rows, cJSON *peers)
{
    quern_softmax_topk_sizes sizes = QUERN_SOFTMAX_TOPK_SIZES_INIT;
    quern_kernel_info info = QUERN_KERNEL_INFO_INIT;
    sizes.rows = r->shape->rows;
    (void)quern_op_describe(r->op, quern_op_variant_for(r->op, &sizes), 0, &info);
    // The peers' check has seen every row of the first copy; the reference, rows of the last one too.
    cJSON *row = case_json(r, m, peers ? r->shape->rows + checked_rows / 2 : checked_rows);
    add_own(row, t, r, &m->timing, &info);
    add_to_table(t, r, &m->timing, info.config, bench_peers_best(peers));
    cJSON_AddItemToObject(row, "peers", peers ? peers : cJSON_CreateObject());
    cJSON_AddItemToArray(t->rows, row);
}

// ---- running

// The inputs and their plain read, kept from the case before when they are the same.
static quern_status need_data(topk_bench *t, const topk_case *c)
{
    bench_data *d = &t->data;
    bool same_word = strcmp(t->data_word, c->data) == 0;
    if (d->base && same_word && d->rows == c->rows && d->V == c->V && d->dtype == c->in) return QUERN_OK;
    bench_data_free(&t->bench, d);
    if (!same_word) {
        npy_fini(&d->real);
        t->data_word[0] = 0;
        QN_TRY(bench_data_parse(c->data, d));
        snprintf(t->data_word, sizeof t->data_word, "%s", c->data);
    }
    d->rows = c->rows, d->V = c->V, d->dtype = c->in;
    QN_TRY(bench_data_make(&t->bench, d));
    t->inputs++;
    return bench_read(&t->bench, d, &t->read);
}

// config_text: NULL for the library's own choice.
static quern_status time_case(topk_bench *t, topk_run *r, const char *config_text)
{
    topk_measured m;
    int64_t checked_rows;
    cJSON *answer = NULL;
    QN_TRY(need_data(t, r->shape));
    r->inputs = t->inputs;
    QN_TRY(prepare(r, config_text));
    QN_TRY(allocate_tensors(r));
    QN_TRY(allocate_workspace(r));
    r->args.rows = r->shape->rows;
    QN_TRY(topk_check(r, &checked_rows));
    if (t->repairs) QN_TRY(topk_count_repairs(r, &r->repairs));
    m.launches = qn_timing_launches(t->data.copies, LEAST_LAUNCHES);
    qn_timing_request request = {enqueue, r, m.launches, t->bench.repeats};
    QN_TRY(qn_timing_graph(t->bench.device.driver, &request, &m.timing));
    if (t->peers && r->shape->peers) QN_TRY(topk_ask_peers(t->peers, r, &m, &answer));
    add_result(t, r, &m, checked_rows, answer);
    return bench_write(t->document, t->out, false);
}

static quern_status run_case(topk_bench *t, const topk_case *c, const char *config_text)
{
    topk_run r = {
        .bench = &t->bench, .data = &t->data, .shape = c, .repairs = -1, .args = QUERN_SOFTMAX_TOPK_ARGS_INIT};
    quern_status status = time_case(t, &r, config_text);
    release(&r);
    return status;
}

// The configuration that the library chooses for a case.
static quern_status own_config(topk_bench *t, const topk_case *c, const qn_family **family, qn_config *config)
{
    topk_run r = {.bench = &t->bench, .shape = c};
    quern_softmax_topk_sizes sizes = QUERN_SOFTMAX_TOPK_SIZES_INIT;
    quern_kernel_info info = QUERN_KERNEL_INFO_INIT;
    sizes.rows = c->rows;
    QN_TRY(prepare(&r, NULL));
    *family = r.family;
    quern_status status = quern_op_describe(r.op, quern_op_variant_for(r.op, &sizes), 0, &info);
    if (status == QUERN_OK) status = qn_config_parse(r.family, info.config, config);
    quern_op_release(r.op);
    return status;
}

// A case with every choice of the knob --sweep that has a plan.
static quern_status sweep_case(topk_bench *t, const topk_case *c)
{
    const qn_family *family;
    qn_config config;
    size_t knob = 0;
    QN_TRY(own_config(t, c, &family, &config));
    while (knob < family->knob_count && strcmp(family->knobs[knob].name, t->sweep) != 0) knob++;
    if (knob == family->knob_count) return qn_fail(QUERN_BAD_VALUE, "--sweep: there is no knob '%s'", t->sweep);
    for (size_t i = 0; i < family->knobs[knob].choice_count; i++) {
        qn_text words = QN_TEXT_INIT;
        config.value[knob] = family->knobs[knob].choices[i];
        qn_config_write(family, &config, &words);
        quern_status status = run_case(t, c, qn_text_string(&words));
        qn_text_fini(&words);
        if (status != QUERN_NO_PLAN) QN_TRY(status);
    }
    return QUERN_OK;
}

static quern_status run_cases(topk_bench *t)
{
    for (size_t i = 0; i < t->cases.count; i++) {
        const topk_case *c = &t->cases.item[i];
        command_progress(i, t->cases.count, "softmax_topk");
        QN_TRY(t->sweep ? sweep_case(t, c) : run_case(t, c, t->config_text));
    }
    command_progress_end();
    return QUERN_OK;
}

static void print_results(topk_bench *t)
{
    if (t->settings.json) {
        json_print(t->document);
        t->document = NULL;
    } else if (table_rows(t->table) > 0) {
        bench_print_head("softmax_topk", &t->bench.device);
        printf("%d repeats\n\n", t->bench.repeats);
        table_print(t->table);
    }
}

static quern_status open_peers(topk_bench *t)
{
    if (!t->peers_options.which) return QUERN_OK;
    t->peers_options.device = t->bench.device.ordinal;
    QN_TRY(bench_peers_start(&t->peers_options, &t->peers));
    const char *name = cJSON_GetStringValue(cJSON_GetObjectItem(bench_peers_hello(t->peers), "device"));
    if (!name || strcmp(name, t->bench.device.name) != 0)
        return qn_fail(QUERN_UNSUPPORTED, "--vs: torch's GPU %d is %s, the driver's is %s", t->bench.device.ordinal,
                       name ? name : "unknown", t->bench.device.name);
    cJSON_AddItemToObject(t->document, "peers", cJSON_Duplicate(bench_peers_hello(t->peers), true));
    return QUERN_OK;
}

static quern_status run_open(topk_bench *t)
{
    QN_TRY(bench_write(t->document, t->out, false)); // an unusable --out is told before the work
    QN_TRY(open_peers(t));
    QN_TRY(run_cases(t));
    cJSON_ReplaceItemInObject(t->document, "complete", cJSON_CreateBool(true));
    return bench_write(t->document, t->out, true);
}

static quern_status choose_cases(topk_bench *t, bool listed)
{
    if (!listed) {
        static char real[1024];
        if (t->real) snprintf(real, sizeof real, "real:%s", t->real);
        return topk_cases_default(t->only, t->real ? real : NULL, &t->cases);
    }
    QN_TRY(bench_data_parse(t->lists.data, &t->data));
    snprintf(t->data_word, sizeof t->data_word, "%s", t->lists.data);
    return topk_cases_listed(&t->lists, &t->data, &t->cases);
}

// Specs and configuration, before a GPU is looked for.
static quern_status check_cases(const topk_bench *t)
{
    for (size_t i = 0; i < t->cases.count; i++) {
        topk_run r = {.shape = &t->cases.item[i]};
        qn_config config;
        QN_TRY(parse_spec(&r));
        if (t->config_text) QN_TRY(qn_config_parse(r.family, t->config_text, &config));
    }
    return QUERN_OK;
}

// What was measured before a failure is printed all the same.
static int run_bench(topk_bench *t, const char *where, int64_t repeats)
{
    int ordinal;
    bool listed = t->lists.rows || t->lists.V || t->lists.K || t->lists.in || t->lists.data || t->lists.with;
    if (!device_parse(where, &ordinal)) return command_usage("--device %s: gpu or gpu:N is needed", where);
    if (listed && (t->only || t->real)) return command_usage("--only and --real choose from the fixed list of cases");
    if (t->sweep && t->config_text) return command_usage("--sweep and --config exclude each other");
    if (!t->lists.data) t->lists.data = "random";
    quern_status status = choose_cases(t, listed);
    if (status == QUERN_OK) status = check_cases(t);
    if (status == QUERN_OK) status = bench_open(&t->settings, ordinal, (int)repeats, &t->bench);
    if (status != QUERN_OK) return command_status(status);
    t->table = table_create(columns, QN_COUNT(columns));
    t->document = bench_document("softmax_topk", &t->bench.device);
    cJSON_AddNumberToObject(t->document, "repeats", t->bench.repeats);
    cJSON_AddBoolToObject(t->document, "complete", false);
    t->rows = cJSON_AddArrayToObject(t->document, "rows");
    status = run_open(t);
    bench_peers_stop(t->peers);
    print_results(t);
    int exit_status = status == QUERN_OK ? COMMAND_OK : command_status(status);
    cJSON_Delete(t->document);
    table_destroy(t->table);
    bench_data_free(&t->bench, &t->data);
    bench_close(&t->bench);
    return exit_status;
}

int bench_softmax_topk(int argc, char **argv)
{
    static topk_bench t = {.peers_options = {.python = "python3"}};
    const char *where = "gpu";
    int64_t repeats = 20;
    const command_option options[] = {
        {"only", 0, "GROUPS", COMMAND_STRING, &t.only, 0, 0,
         "of the fixed list: table, rows, data, real, alignment, batch_invariant, outputs"},
        {"real", 0, "FILE", COMMAND_STRING, &t.real, 0, 0, "real logits (.npy) for the group real"},
        {"rows", 0, "LIST", COMMAND_STRING, &t.lists.rows, 0, 0, "rows (default 4096)"},
        {"V", 0, "LIST", COMMAND_STRING, &t.lists.V, 0, 0, "vocabularies (default 128256)"},
        {"K", 0, "LIST", COMMAND_STRING, &t.lists.K, 0, 0, "winners a row (default 256)"},
        {"in", 0, "LIST", COMMAND_STRING, &t.lists.in, 0, 0, "types of the logits (default bf16)"},
        {"data", 0, "KIND", COMMAND_STRING, &t.lists.data, 0, 0, "random, ties, two, sorted, equal or real:FILE.npy"},
        {"with", 0, "FIELDS", COMMAND_STRING, &t.lists.with, 0, 0, "more fields of the spec: 'lse=1 value=logprob'"},
        {"config", 0, "TEXT", COMMAND_STRING, &t.config_text, 0, 0, "this configuration: 'plan=... block=...'"},
        {"sweep", 0, "KNOB", COMMAND_STRING, &t.sweep, 0, 0, "each case with every choice of this knob"},
        {"repairs", 0, NULL, COMMAND_FLAG, &t.repairs, 0, 0, "count the rows that were selected again"},
        {"vs", 0, "PEERS", COMMAND_STRING, &t.peers_options.which, 0, 0, "torch: what Python has, timed beside"},
        {"python", 0, "FILE", COMMAND_STRING, &t.peers_options.python, 0, 0, "its interpreter (default python3)"},
        {"peers", 0, "FILE", COMMAND_STRING, &t.peers_options.script, 0, 0, "peers.py, where it is not found"},
        {"out", 0, "FILE", COMMAND_STRING, &t.out, 0, 0, "write the report there too, as JSON"},
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
