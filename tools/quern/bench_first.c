// SPDX-License-Identifier: Apache-2.0
// The first launch of a process on a warm database. `quern bench first-launch` takes one sample in its own process;
// bench_first starts it several times and summarises.
#include <errno.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench.h"
#include "bench_phases.h"
#include "ops/family.h"

enum { SAMPLES = 9 };
extern char **environ;

// ---- one sample

typedef struct first {
    device device;
    quern *q;
    quern_op *op;
    CUstream stream;
    quern_softmax_topk_args args;
    CUdeviceptr memory; // logits, values and indices of one row
} first;

static quern_status allocate_row(first *f, const quern_softmax_topk_spec *spec)
{
    size_t logits = ((size_t)spec->V * 4 + 255) / 256 * 256, values = ((size_t)spec->K * 4 + 255) / 256 * 256;
    DEVICE_TRY(&f->device, cuMemAlloc, &f->memory, logits + values + (size_t)spec->K * 8);
    f->args.rows = 1;
    f->args.logits = (const void *)(uintptr_t)f->memory;
    f->args.values = (float *)(uintptr_t)(f->memory + logits);
    f->args.indices = (void *)(uintptr_t)(f->memory + logits + values);
    return QUERN_OK;
}

static quern_status give_workspace(first *f)
{
    quern_softmax_topk_sizes sizes = QUERN_SOFTMAX_TOPK_SIZES_INIT;
    CUdeviceptr workspace;
    sizes.rows = 1;
    f->args.workspace_bytes = quern_workspace_size(f->op, &sizes);
    if (f->args.workspace_bytes == 0) return QUERN_OK;
    DEVICE_TRY(&f->device, cuMemAlloc, &workspace, f->args.workspace_bytes);
    f->args.workspace = (void *)(uintptr_t)workspace; // given back with the process
    return quern_workspace_init(f->op, f->args.workspace, f->args.workspace_bytes, f->stream);
}

// Time since *mark, which moves on.
static double lap(double *mark)
{
    double before = *mark;
    *mark = command_seconds();
    return (*mark - before) * 1e3;
}

// What prepare's own ranges and driver calls have taken so far.
static double known_parts(void)
{
    double ms = 0;
    for (int i = FIRST_DATABASE; i < FIRST_PLAN; i++) ms += bench_phases_ms((first_phase)i);
    return ms;
}

// From opening the library to the finished launch. What belongs to any CUDA program is done before.
static quern_status sample(first *f, const quern_softmax_topk_spec *spec, const char *db, double *ms)
{
    quern_options options = QUERN_OPTIONS_INIT;
    options.cache_file = db;
    QN_TRY(allocate_row(f, spec));
    DEVICE_TRY(&f->device, cuStreamCreate, &f->stream, CU_STREAM_NON_BLOCKING);
    bench_phases_watch(f->device.driver);
    double start = command_seconds(), mark = start;
    QN_TRY(quern_open(&options, &f->q));
    bench_phases_add(FIRST_OPEN, lap(&mark));
    QN_TRY(quern_prepare(f->q, &spec->base, f->device.ordinal, &f->op));
    bench_phases_add(FIRST_PLAN, lap(&mark) - known_parts());
    QN_TRY(give_workspace(f));
    bench_phases_add(FIRST_WORKSPACE, lap(&mark));
    QN_TRY(quern_softmax_topk(f->op, &f->args, f->stream));
    bench_phases_add(FIRST_PATH, lap(&mark) - bench_phases_ms(FIRST_LAUNCH));
    DEVICE_TRY(&f->device, cuStreamSynchronize, f->stream);
    bench_phases_add(FIRST_WAIT, lap(&mark));
    *ms = (mark - start) * 1e3;
    return QUERN_OK;
}

static quern_status one_sample(const char *spec_text, const char *db, int ordinal, double *ms, uint64_t *compiled)
{
    quern_any_spec spec;
    quern_counters counters = QUERN_COUNTERS_INIT;
    first f = {.args = QUERN_SOFTMAX_TOPK_ARGS_INIT};
    QN_TRY(bench_check_spec(spec_text, "softmax_topk", NULL));
    QN_TRY(quern_spec_parse(spec_text, &spec));
    quern_status status = device_open(ordinal, &f.device);
    if (status != QUERN_OK) return qn_fail_in(status, "this bench needs a GPU");
    status = sample(&f, (const quern_softmax_topk_spec *)&spec, db, ms);
    if (status == QUERN_OK) quern_get_counters(f.q, &counters);
    *compiled = counters.compiled;
    quern_op_release(f.op);
    quern_close(f.q);
    if (f.stream) (void)f.device.driver->cuStreamDestroy(f.stream);
    if (f.memory) (void)f.device.driver->cuMemFree(f.memory);
    device_close(&f.device);
    return status;
}

static void print_sample(bool json, double ms, uint64_t compiled)
{
    static const table_column columns[] = {
        {"part", "part", TABLE_TEXT, 0}, {"ms", "ms", TABLE_REAL, 3}, {"times", "times", TABLE_INT, 0}};
    table *t = table_create(columns, QN_COUNT(columns));
    const first_part *parts = bench_phases_all();
    for (int i = 0; i < FIRST_PHASES; i++) table_add(t, parts[i].name, parts[i].ms, (int64_t)parts[i].count);
    if (json) {
        cJSON *document = cJSON_CreateObject();
        cJSON_AddNumberToObject(document, "ms", bench_rounded(ms));
        cJSON_AddNumberToObject(document, "compiled", (double)compiled);
        cJSON_AddItemToObject(document, "parts", table_json(t));
        json_print(document);
    } else {
        printf("%.3f ms over cuInit and context, %llu kernels compiled\n\n", ms, (unsigned long long)compiled);
        table_print(t);
    }
    table_destroy(t);
}

int bench_first_launch(int argc, char **argv)
{
    bool json = false;
    const char *db = NULL, *where = "gpu";
    const command_option options[] = {
        {"device", 0, "WHERE", COMMAND_STRING, &where, 0, 0, "gpu (default) or gpu:N"},
        COMMAND_OPTION_DB(&db),
        COMMAND_OPTION_JSON(&json),
        COMMAND_OPTION_END,
    };
    const command_syntax syntax = {"quern bench first-launch [SPEC] [options]", NULL, options};
    int exit_status, ordinal;
    double ms = 0;
    uint64_t compiled = 0;
    if (!command_parse(&syntax, &argc, argv, &exit_status)) return exit_status;
    if (argc > 2 || !device_parse(where, &ordinal))
        return command_usage("one spec, and --device gpu or gpu:N, are needed");
    const char *spec = argc > 1 ? argv[1] : "softmax_topk V=1024 K=8 in=bf16";
    quern_status status = one_sample(spec, db, ordinal, &ms, &compiled);
    if (status != QUERN_OK) return command_status(status);
    print_sample(json, ms, compiled);
    return COMMAND_OK;
}

// ---- several processes

static quern_status read_all(int descriptor, char *out, size_t bytes)
{
    size_t length = 0;
    for (ssize_t got; length + 1 < bytes && (got = read(descriptor, out + length, bytes - 1 - length)) != 0;) {
        if (got < 0 && errno != EINTR) return qn_fail(QUERN_FILE_ERROR, "reading from a process: %s", strerror(errno));
        length += got > 0 ? (size_t)got : 0;
    }
    out[length] = 0;
    return QUERN_OK;
}

// Starts this program again, with its standard output in a pipe.
static quern_status start(char *const *argv, pid_t *child, int *descriptor)
{
    posix_spawn_file_actions_t actions;
    int ends[2];
    if (pipe(ends) != 0) return qn_fail(QUERN_FILE_ERROR, "pipe: %s", strerror(errno));
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
    posix_spawn_file_actions_addclose(&actions, ends[0]);
    int error = posix_spawn(child, "/proc/self/exe", &actions, NULL, argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    close(ends[1]);
    if (error) {
        close(ends[0]);
        return qn_fail(QUERN_FILE_ERROR, "starting this program again: %s", strerror(error));
    }
    *descriptor = ends[0];
    return QUERN_OK;
}

// The whole and its parts, of each process.
typedef struct samples {
    double ms[SAMPLES], part[FIRST_PHASES][SAMPLES];
    int times[FIRST_PHASES];
} samples;

static quern_status take(const cJSON *document, int i, samples *s)
{
    const cJSON *number = cJSON_GetObjectItem(document, "ms"), *compiled = cJSON_GetObjectItem(document, "compiled");
    const cJSON *parts = cJSON_GetObjectItem(document, "parts");
    if (!cJSON_IsNumber(number) || !cJSON_IsNumber(compiled) || compiled->valuedouble != 0 ||
        cJSON_GetArraySize(parts) != FIRST_PHASES)
        return qn_fail(QUERN_INTERNAL, "a first launch on a warm database answered something else");
    s->ms[i] = number->valuedouble;
    for (int p = 0; p < FIRST_PHASES; p++) {
        const cJSON *part = cJSON_GetArrayItem(parts, p);
        s->part[p][i] = cJSON_GetNumberValue(cJSON_GetObjectItem(part, "ms"));
        s->times[p] = (int)cJSON_GetNumberValue(cJSON_GetObjectItem(part, "times"));
    }
    return QUERN_OK;
}

static quern_status sample_process(const bench *b, const runtime_case *c, const char *db, int i, samples *s)
{
    char where[16], answer[4096];
    char *const argv[] = {
        "quern", "bench", "first-launch", (char *)c->spec_text, "--db", (char *)db, "--device", where, "--json", NULL};
    pid_t child;
    int descriptor = -1, ended;
    snprintf(where, sizeof where, "gpu:%d", b->device.ordinal);
    QN_TRY(start(argv, &child, &descriptor));
    quern_status status = read_all(descriptor, answer, sizeof answer);
    close(descriptor);
    while (waitpid(child, &ended, 0) < 0 && errno == EINTR) {
    }
    QN_TRY(status);
    cJSON *document = cJSON_Parse(answer);
    status = take(document, i, s);
    if (status != QUERN_OK) status = qn_fail_in(status, "%.200s", answer);
    cJSON_Delete(document);
    return status;
}

quern_status bench_first(const bench *b, const runtime_case *c, const char *db, table *t)
{
    samples s;
    const first_part *parts = bench_phases_all();
    for (int i = 0; i < SAMPLES; i++) QN_TRY(sample_process(b, c, db, i, &s));
    bench_runtime_add(t, "first launch of a process, warm database", qn_timing_summary(s.ms, SAMPLES), "ms");
    for (int p = 0; p < FIRST_PHASES; p++) {
        char what[80];
        if (s.times[p] > 1)
            snprintf(what, sizeof what, "  of it: %s, %d times", parts[p].name, s.times[p]);
        else
            snprintf(what, sizeof what, "  of it: %s", parts[p].name);
        bench_runtime_add(t, what, qn_timing_summary(s.part[p], SAMPLES), "ms");
    }
    return QUERN_OK;
}
