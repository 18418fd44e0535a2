// SPDX-License-Identifier: Apache-2.0
// `quern bench runtime`: what the library itself costs. Without a GPU only the compile times are measured. Works in a
// database of its own, in a temporary folder that is removed.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/path.h"
#include "bench.h"
#include "ops/family.h"

static const char text[] =
    "prepare     a look-up that finds the op in memory; and its release\n"
    "launch      the host's time for a launch, beside bare cuLaunchKernelEx calls of the same kernel; \"over\" is the\n"
    "            difference of neighbouring blocks of launches\n"
    "first       new process, warm database: open, prepare, launch, wait, over cuInit and context; and its parts\n"
    "compile     every kernel of the specs, without a database\n"
    "Times are medians with the tenth and ninetieth percentile. Without a GPU: compile times only, for --arch.\n";

static const char *const default_specs[] = {
    "softmax_topk V=50257 K=50 in=bf16",
    "softmax_topk V=128256 K=256 in=bf16",
    "softmax_topk V=128256 K=1024 in=f32",
};

// What look-up, launch and first launch are measured with: so small that the GPU never keeps the host waiting.
static const char small_spec[] = "softmax_topk V=1024 K=8 in=bf16";

// ---- tables

static const table_column columns[] = {
    {"measurement", "measurement", TABLE_TEXT, 0},
    {"median", "median", TABLE_REAL, 3},
    {"p10", "p10", TABLE_REAL, 3},
    {"p90", "p90", TABLE_REAL, 3},
    {"unit", "unit", TABLE_TEXT, 0},
};

table *bench_runtime_table(void)
{
    return table_create(columns, QN_COUNT(columns));
}

void bench_runtime_add(table *t, const char *what, qn_timing timing, const char *unit)
{
    table_add(t, what, timing.median_us, timing.low_us, timing.high_us, unit);
}

// ---- a folder for the database

typedef struct temporary {
    char folder[4096], db[4200];
} temporary;

static quern_status make_temporary(temporary *t)
{
    const char *root = qn_environment("TMPDIR", false);
    snprintf(t->folder, sizeof t->folder, "%s/quern-bench-XXXXXX", root ? root : "/tmp");
    if (!mkdtemp(t->folder)) return qn_fail(QUERN_FILE_ERROR, "%s: no temporary folder could be made", t->folder);
    snprintf(t->db, sizeof t->db, "%s/bench.db", t->folder);
    return QUERN_OK;
}

// The database and its side files have names that begin alike.
static void remove_temporary(const temporary *t)
{
    static const char *const endings[] = {"", "-journal", ".lock", "-wal", "-shm"};
    for (size_t i = 0; i < QN_COUNT(endings); i++) {
        char path[4300];
        snprintf(path, sizeof path, "%s%s", t->db, endings[i]);
        (void)unlink(path);
    }
    if (rmdir(t->folder) != 0) command_note("%s was left behind", t->folder);
}

// ---- the parts

static quern_status read_case(const char *spec_text, runtime_case *c)
{
    c->spec_text = spec_text;
    QN_TRY(quern_spec_parse(spec_text, &c->spec));
    return qn_family_find(c->spec.base.family, &c->family);
}

static quern_status measure_device(const bench *b, const char *db, table *t)
{
    runtime_case c;
    QN_TRY(read_case(small_spec, &c));
    QN_TRY(bench_lookup(b, &c, t));
    QN_TRY(bench_launch(b, &c, t));
    return bench_first(b, &c, db, t);
}

static quern_status measure_compiles(char *const *specs, int count, const command_archs *archs, table *t)
{
    size_t done = 0, total = (size_t)count * archs->count;
    for (size_t a = 0; a < archs->count; a++) {
        for (int i = 0; i < count; i++) {
            command_progress(done++, total, specs[i]);
            QN_TRY(bench_compile(specs[i], archs->item[a], t));
        }
    }
    command_progress_end();
    return QUERN_OK;
}

static void print_results(bool json, const device *d, const table *costs, const table *compiles)
{
    if (json) {
        cJSON *document = bench_document("runtime", d);
        cJSON_AddStringToObject(document, "spec", small_spec);
        cJSON_AddItemToObject(document, "costs", table_json(costs));
        cJSON_AddItemToObject(document, "compiles", table_json(compiles));
        json_print(document);
        return;
    }
    bench_print_head("runtime", d);
    if (table_rows(costs)) printf("costs measured with '%s', one row\n\n", small_spec);
    table_print(costs);
    if (table_rows(compiles)) printf("\n");
    table_print(compiles);
}

// ---- the command

typedef struct runtime_bench {
    command_settings settings;
    const char *arch, *where;
    int64_t repeats;
} runtime_bench;

static quern_status measure(const bench *b, const char *db, char *const *specs, int count, const command_archs *archs,
                            table *costs, table *compiles)
{
    if (b) QN_TRY(measure_device(b, db, costs));
    return measure_compiles(specs, count, archs, compiles);
}

static int run_bench(runtime_bench *r, char *const *specs, int count)
{
    bench b;
    device present;
    temporary folder;
    command_archs archs;
    int ordinal = 0, exit_status;
    if (!device_parse(r->where, &ordinal)) return command_usage("--device %s: gpu or gpu:N is needed", r->where);
    quern_status status = QUERN_OK;
    for (int i = 0; i < count && status == QUERN_OK; i++) status = bench_check_spec(specs[i], NULL, NULL);
    if (status != QUERN_OK) return command_status(status);
    if (!r->arch && (status = device_look(ordinal, &present)) != QUERN_OK)
        return command_status(qn_fail_in(status, "this bench needs a GPU, or --arch for compile times alone"));
    if (!command_choose_archs(r->arch, &archs, &exit_status)) return exit_status;
    status = make_temporary(&folder);
    if (status != QUERN_OK) return command_status(status);
    r->settings.db = folder.db;
    bool has_device = bench_open(&r->settings, ordinal, (int)r->repeats, &b) == QUERN_OK;
    if (!has_device) command_note("only compile times are measured: %s", quern_message());
    table *costs = bench_runtime_table(), *compiles = bench_compile_table();
    status = measure(has_device ? &b : NULL, folder.db, specs, count, &archs, costs, compiles);
    print_results(r->settings.json, has_device ? &b.device : NULL, costs, compiles);
    exit_status = status == QUERN_OK ? COMMAND_OK : command_status(status);
    table_destroy(costs);
    table_destroy(compiles);
    if (has_device) bench_close(&b);
    remove_temporary(&folder);
    return exit_status;
}

int bench_runtime(int argc, char **argv)
{
    runtime_bench r = {.where = "gpu", .repeats = 200};
    const command_option options[] = {
        COMMAND_OPTION_ARCH(&r.arch),
        {"device", 0, "WHERE", COMMAND_STRING, &r.where, 0, 0, "gpu (default) or gpu:N"},
        {"repeat", 0, "N", COMMAND_NUMBER, &r.repeats, 1, QN_TIMING_MAX_REPEATS, "samples of look-up and launch (200)"},
        COMMAND_OPTION_JSON(&r.settings.json),
        COMMAND_OPTION_VERBOSE(&r.settings.verbose),
        COMMAND_OPTION_END,
    };
    const command_syntax syntax = {"quern bench runtime [SPEC...] [options]", text, options};
    int exit_status;
    if (!command_parse(&syntax, &argc, argv, &exit_status)) return exit_status;
    if (argc > 1) return run_bench(&r, argv + 1, argc - 1);
    return run_bench(&r, (char *const *)default_specs, (int)QN_COUNT(default_specs));
}
