// SPDX-License-Identifier: Apache-2.0
// `quern run`: one spec on .npy files, on a GPU, on the host reference or on the functional model.
#include <stdio.h>
#include <string.h>

#include "model.h"
#include "ops/field.h"
#include "run.h"

typedef struct run {
    command_settings settings;
    const char *where, *arch;
    command_strings expect;
    winners_request show;
    arrays arrays;
    // what the report says
    qn_text ran_on;
    double seconds;
    table *kernels, *outputs, *compared, *winners;
    expect_tolerance tolerance;
    int beyond; // expected files that an output is too far from
} run;

static const char text[] =
    "Reads the inputs, computes, writes the outputs that are named. Sizes follow from the inputs'\n"
    "shapes; a file for an optional tensor sets the field that asks for it ('quern ops FAMILY' lists\n"
    "them). bf16 is '<u2' or '<V2'.\n"
    "--device auto takes the first GPU. Without one it says so, computes with the host reference, and\n"
    "still makes the kernels for sm_90a and sm_100a and keeps them in the database. --device gpu takes\n"
    "gpu:N too. --device model runs the kernel's own source on the CPU (--arch, default sm_90a).\n"
    "--expect fails when integers differ, or real numbers by more than the family promises\n"
    "or --tolerance allows.\n";

enum { NOT_GIVEN = -1 }; // of numbers

// ---- what is said of the kernels

static const table_column kernel_columns[] = {
    {"arch", "arch", TABLE_TEXT, 0},   {"kernel", "kernel", TABLE_TEXT, 0},
    {"sizes", "sizes", TABLE_TEXT, 0}, {"configuration", "configuration", TABLE_TEXT, 0},
    {"origin", NULL, TABLE_TEXT, 0},   {NULL, "compiled", TABLE_INT, 0},
    {NULL, "cached", TABLE_INT, 0},    {NULL, "compile_ms", TABLE_REAL, 1},
};

// "2 compiled in 1710 ms, 1 from the cache"
static void origin_text(int64_t compiled, int64_t cached, double ms, char *out, size_t bytes)
{
    if (compiled && cached)
        snprintf(out, bytes, "%lld compiled in %.0f ms, %lld from the cache", (long long)compiled, ms,
                 (long long)cached);
    else if (compiled)
        snprintf(out, bytes, "%lld compiled in %.0f ms", (long long)compiled, ms);
    else
        snprintf(out, bytes, "%lld from the cache", (long long)cached);
}

// One row for the kernel that ran, one for all that were made ready with it.
static void describe_op(run *r, const quern *q, const quern_op *op)
{
    _Alignas(16) unsigned char sizes[256];
    char origin[96];
    quern_counters c = QUERN_COUNTERS_INIT;
    r->arrays.family->sizes_of(r->arrays.args, sizes);
    size_t variant = quern_op_variant_for(op, sizes);
    quern_kernel_info info = QUERN_KERNEL_INFO_INIT;
    for (size_t s = 0; s < quern_op_stages(op, variant); s++) {
        if (quern_op_describe(op, variant, s, &info) != QUERN_OK) continue;
        bool compiled = info.origin == QUERN_ORIGIN_COMPILED;
        origin_text(compiled, !compiled, info.compile_ms, origin, sizeof origin);
        const char *words = compiled ? strchr(origin, ' ') + 1 : "cache"; // one kernel needs no count
        table_add(r->kernels, info.arch, info.entry, info.sizes, info.config, words, (int64_t)compiled,
                  (int64_t)!compiled, info.compile_ms);
    }
    quern_get_counters(q, &c);
    int64_t cached = (int64_t)(c.hit_memory + c.hit_sealed + c.hit_user);
    origin_text((int64_t)c.compiled, cached, (double)c.compile_us * 1e-3, origin, sizeof origin);
    table_add(r->kernels, info.arch, "(all variants)", NULL, NULL, origin, (int64_t)c.compiled, cached,
              (double)c.compile_us * 1e-3);
}

// Without a GPU: the kernels are made all the same. A failure here is not the run's, which has its result.
static void warm_for_later(run *r, quern *q)
{
    static const char *const archs[] = {"sm_90a", "sm_100a"};
    for (size_t i = 0; i < QN_COUNT(archs); i++) {
        char origin[96];
        quern_warm_report report = QUERN_WARM_REPORT_INIT;
        command_progress(i, QN_COUNT(archs), archs[i]);
        quern_status status = quern_warm(q, &r->arrays.spec.base, archs[i], &report);
        if (status != QUERN_OK) command_note("no kernels were made for %s: %s", archs[i], quern_message());
        if (status == QUERN_NVRTC_NOT_FOUND) break; // as for the rest
        if (status != QUERN_OK) continue;
        origin_text(report.compiled, report.cached, report.compile_ms, origin, sizeof origin);
        table_add(r->kernels, archs[i], "(all variants)", NULL, NULL, origin, (int64_t)report.compiled,
                  (int64_t)report.cached, report.compile_ms);
    }
    command_progress_end();
}

// ---- where it runs

static quern_status run_gpu(run *r, quern *q, device *d)
{
    quern_op *op = NULL;
    quern_status status = run_on_gpu(q, d, &r->arrays, &op);
    if (status == QUERN_OK) {
        qn_text_putf(&r->ran_on, "gpu:%d, %s", d->ordinal, d->name);
        describe_op(r, q, op);
    }
    quern_op_release(op);
    return status;
}

static quern_status run_reference(run *r)
{
    qn_text_puts(&r->ran_on, "cpu, host reference");
    return quern_reference(&r->arrays.spec.base, r->arrays.args);
}

// The first time takes long and is silent otherwise: one line, wherever stderr goes.
static void tell_engine(size_t done, size_t total, const char *kept)
{
    if (done == 0)
        command_note("compiling the model's engine: about half a minute (%s%s)", kept ? "once; kept in " : "",
                     kept ? kept : "not kept: there is no safe cache folder");
    command_progress(done, total, "the model's engine");
}

static quern_status run_model(run *r, quern *q)
{
    char note[256] = "";
    const char *arch = r->arch ? r->arch : "sm_90a";
    quern_status status = model_run(q, &r->arrays.spec.base, arch, r->arrays.args, tell_engine, note, sizeof note);
    command_progress_end();
    QN_TRY(status);
    qn_text_putf(&r->ran_on, "functional model of %s%s%s", arch, *note ? ", " : "", note);
    return QUERN_OK;
}

static quern_status run_auto(run *r, quern *q)
{
    device d;
    quern_status found = device_open(0, &d);
    if (found == QUERN_OK) {
        quern_status status = run_gpu(r, q, &d);
        device_close(&d);
        return status;
    }
    command_note("no GPU (%s): the host reference computes", quern_status_text(found));
    QN_TRY(run_reference(r));
    warm_for_later(r, q);
    return QUERN_OK;
}

static quern_status compute(run *r, quern *q)
{
    int ordinal;
    if (strcmp(r->where, "cpu") == 0) return run_reference(r);
    if (strcmp(r->where, "model") == 0) return run_model(r, q);
    if (!device_parse(r->where, &ordinal)) return run_auto(r, q);
    device d;
    QN_TRY(device_open(ordinal, &d));
    quern_status status = run_gpu(r, q, &d);
    device_close(&d);
    return status;
}

// ---- the report

static const table_column output_columns[] = {
    {"output", "output", TABLE_TEXT, 0},
    {"type", "type", TABLE_TEXT, 0},
    {"shape", "shape", TABLE_JSON, 0},
    {"file", "file", TABLE_TEXT, 0},
};

static void list_outputs(run *r)
{
    for (size_t i = 0; i < r->arrays.tensor_count; i++) {
        const bound_tensor *t = &r->arrays.tensor[i];
        if (t->tensor->direction != QN_OUTPUT || !t->file) continue;
        qn_text shape = QN_TEXT_INIT;
        npy_shape_write(&t->shape, &shape);
        table_add(r->outputs, t->tensor->name, qn_dtype_name(t->dtype), qn_text_string(&shape), t->file);
        qn_text_fini(&shape);
    }
}

static void print_json(const run *r)
{
    cJSON *document = cJSON_CreateObject(), *sizes = cJSON_AddObjectToObject(document, "sizes");
    cJSON_AddStringToObject(document, "spec", r->arrays.spec_text);
    for (size_t i = 0; i < r->arrays.family->size_count; i++)
        if (r->arrays.size[i] >= 0)
            cJSON_AddNumberToObject(sizes, r->arrays.family->sizes[i].name, (double)r->arrays.size[i]);
    cJSON_AddStringToObject(document, "device", qn_text_string(&r->ran_on));
    cJSON_AddNumberToObject(document, "seconds", r->seconds);
    cJSON_AddItemToObject(document, "kernels", table_json(r->kernels));
    cJSON_AddItemToObject(document, "outputs", table_json(r->outputs));
    if (r->winners) cJSON_AddItemToObject(document, "winners", table_json(r->winners));
    if (r->expect.count) cJSON_AddItemToObject(document, "expected", table_json(r->compared));
    json_print(document);
}

static void print_part(const table *t)
{
    if (!t || table_rows(t) == 0) return;
    putchar('\n');
    table_print(t);
}

static void print_report(const run *r)
{
    printf("spec    %s\n", r->arrays.spec_text);
    printf("sizes  ");
    for (size_t i = 0; i < r->arrays.family->size_count; i++)
        if (r->arrays.size[i] >= 0) // else no tensor of this spec has it
            printf(" %s=%lld", r->arrays.family->sizes[i].name, (long long)r->arrays.size[i]);
    printf("\ndevice  %s\n", qn_text_string(&r->ran_on));
    print_part(r->kernels);
    print_part(r->outputs);
    print_part(r->winners);
    print_part(r->compared);
}

// ---- the command

// Everything that can fail on the way to the results; outputs are written last.
static quern_status execute(run *r)
{
    quern *q = NULL;
    if (!strcmp(r->where, "cpu")) r->settings.db = ""; // no kernel is asked for
    QN_TRY(command_open(&r->settings, &q));
    double start = command_seconds();
    quern_status status = compute(r, q);
    r->seconds = command_seconds() - start;
    if (status == QUERN_OK && r->show.rows) status = winners_list(&r->arrays, &r->show, &r->winners);
    if (status == QUERN_OK) status = expect_compare(&r->arrays, &r->expect, &r->tolerance, r->compared, &r->beyond);
    if (status == QUERN_OK) status = arrays_store(&r->arrays);
    quern_close(q);
    return status;
}

static bool where_is_known(const char *where)
{
    int ordinal;
    return strcmp(where, "auto") == 0 || strcmp(where, "cpu") == 0 || strcmp(where, "model") == 0 ||
           device_parse(where, &ordinal);
}

// "V=1000": a field, and no tensor that a file is named for.
static bool is_only_field(const qn_family *family, const char *word)
{
    char name[64];
    size_t length = strcspn(word, "=");
    snprintf(name, sizeof name, "%.*s", (int)length, word);
    bool is_field = word[length] && qn_field_find(family->fields, family->field_count, name);
    for (size_t i = 0; i < family->tensor_count && is_field; i++) is_field = strcmp(family->tensors[i].name, name) != 0;
    return is_field;
}

// A spec that the shell has cut at its blanks: a later word is one of its fields.
static quern_status hint_of_quotes(quern_status status, int argc, char **argv)
{
    char word[64];
    const qn_family *family;
    qn_text whole = QN_TEXT_INIT;
    qn_message_mark mark;
    if (status != QUERN_MISSING_FIELD && status != QUERN_UNKNOWN_ARGUMENT) return status;
    qn_message_save(&mark);
    snprintf(word, sizeof word, "%.*s", (int)strcspn(argv[1], " \t"), argv[1]);
    quern_status found = qn_family_find(word, &family);
    qn_message_end(&mark, QUERN_OK);
    for (int i = 2; i < argc && found == QUERN_OK; i++) {
        if (is_only_field(family, argv[i])) qn_text_putf(&whole, " %s", argv[i]);
    }
    if (whole.length)
        qn_fail(status, "%s; a spec is one argument, to be quoted: '%s%s'", quern_message(), argv[1],
                qn_text_string(&whole));
    qn_text_fini(&whole);
    return status;
}

static int run_spec(run *r, int argc, char **argv)
{
    if (argc < 2) return command_usage("a spec is needed: 'softmax_topk V=... K=... in=...'");
    if (!where_is_known(r->where))
        return command_usage("--device %s: auto, gpu, gpu:N, cpu and model are known", r->where);
    quern_status status = arrays_bind(argv[1], argv + 2, (size_t)argc - 2, r->expect.item, r->expect.count, &r->arrays);
    if (status == QUERN_OK) status = arrays_load(&r->arrays);
    if (status == QUERN_OK && r->show.rows && !arrays_winners(&r->arrays))
        return command_usage("--show: '%s' has no winners to show", r->arrays.spec_text);
    if (status == QUERN_OK && r->arrays.family->contents)
        status = r->arrays.family->contents(&r->arrays.spec.base, r->arrays.args);
    if (status == QUERN_OK) status = execute(r);
    if (status != QUERN_OK) return command_status(hint_of_quotes(status, argc, argv));
    list_outputs(r);
    if (r->settings.json)
        print_json(r);
    else
        print_report(r);
    if (!r->beyond) return COMMAND_OK;
    return command_fail("%d of %zu outputs differ from what is expected by more than %s", r->beyond,
                        table_rows(r->compared),
                        r->tolerance.is_given ? "--tolerance allows" : "the family's accuracy allows");
}

// An option that would change nothing is refused: "run --tolerance 1e-3" alone would look like a check that passed.
static int check_options(run *r, const char *tolerance)
{
    bool shows = r->show.rows != NOT_GIVEN;
    if (tolerance && !expect_tolerance_parse(tolerance, &r->tolerance))
        return command_usage("--tolerance %s: a number from 0 on is needed, or two, as in 1e-3,1e-6", tolerance);
    if (tolerance && !r->expect.count)
        return command_usage("--tolerance says what --expect allows, which is not given");
    if (!shows && (r->show.top != NOT_GIVEN || r->show.tokens))
        return command_usage("%s is of --show, which is not given", r->show.tokens ? "--tokens" : "--top");
    if (r->arch && strcmp(r->where, "model") != 0)
        return command_usage("--arch is the model's, of --device model; a GPU is of its own architecture");
    if (!shows) r->show.rows = 0;
    if (r->show.top == NOT_GIVEN) r->show.top = 5;
    return COMMAND_OK;
}

int command_run(int argc, char **argv)
{
    const char *tolerance = NULL;
    run r = {.where = "auto", .show = {.rows = NOT_GIVEN, .top = NOT_GIVEN}};
    const command_option options[] = {
        {"device", 0, "WHERE", COMMAND_STRING, &r.where, 0, 0, "auto (default), gpu, cpu or model"},
        {"arch", 0, "A", COMMAND_STRING, &r.arch, 0, 0, "the model's architecture"},
        COMMAND_OPTION_DB(&r.settings.db),
        {"show", 0, "N", COMMAND_NUMBER, &r.show.rows, 0, INT32_MAX, "print the winners of the first N rows"},
        {"top", 0, "N", COMMAND_NUMBER, &r.show.top, 1, INT32_MAX, "winners a row that --show prints (5)"},
        {"tokens", 0, "FILE", COMMAND_STRING, &r.show.tokens, 0, 0, "--show their words: lines 'id<TAB>JSON string'"},
        {"expect", 0, "NAME=FILE", COMMAND_REPEAT, &r.expect, 0, 0, "compare an output; exit 1 when it is too far off"},
        {"tolerance", 0, "R[,A]", COMMAND_STRING, &tolerance, 0, 0, "allowed: A + R times the expected number"},
        COMMAND_OPTION_JSON(&r.settings.json),
        COMMAND_OPTION_VERBOSE(&r.settings.verbose),
        COMMAND_OPTION_END,
    };
    const command_syntax syntax = {"quern run SPEC NAME=FILE.npy... [options]", text, options};
    int exit_status;
    if (!command_parse(&syntax, &argc, argv, &exit_status)) return exit_status;
    exit_status = check_options(&r, tolerance);
    if (exit_status != COMMAND_OK) return exit_status;
    r.kernels = table_create(kernel_columns, QN_COUNT(kernel_columns));
    r.outputs = table_create(output_columns, QN_COUNT(output_columns));
    r.compared = expect_table();
    exit_status = run_spec(&r, argc, argv);
    table *tables[] = {r.kernels, r.outputs, r.compared, r.winners};
    for (size_t i = 0; i < QN_COUNT(tables); i++) table_destroy(tables[i]);
    arrays_fini(&r.arrays);
    qn_text_fini(&r.ran_on);
    return exit_status;
}
