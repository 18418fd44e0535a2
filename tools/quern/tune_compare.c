// SPDX-License-Identifier: Apache-2.0
// `quern tune --compare`: for each range of sizes that was tuned, the winner beside the library's own choice, as timed in
// the same search, and what that gains; the median and the largest gain of all. The own choice is what this library
// would choose today, so that a change of a heuristic is judged by what was measured before it. Needs no GPU.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/tuned.h"
#include "table.h"
#include "tune.h"

// ---- gains

void tune_gains_add(tune_gains *gains, const char *spec, const char *sizes, double percent)
{
    char name[640];
    if (!isfinite(percent)) {
        gains->unknown++;
        return;
    }
    if (gains->count == gains->capacity) {
        size_t capacity = gains->capacity ? 2 * gains->capacity : 64;
        double *numbers = realloc(gains->percent, capacity * sizeof *numbers);
        if (numbers) gains->percent = numbers;
        const char **names = realloc(gains->names, capacity * sizeof *names);
        if (names) gains->names = names;
        if (!numbers || !names) {
            gains->unknown++;
            return;
        }
        gains->capacity = capacity;
    }
    snprintf(name, sizeof name, "%s, %s", spec, sizes);
    gains->names[gains->count] = qn_strdup(name);
    gains->percent[gains->count++] = percent;
}

void tune_gains_fini(tune_gains *gains)
{
    for (size_t i = 0; i < gains->count; i++) free((void *)(uintptr_t)gains->names[i]);
    free(gains->names);
    free(gains->percent);
    *gains = (tune_gains){NULL, NULL, 0, 0, 0};
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double tune_gains_median(const tune_gains *gains)
{
    double *sorted = gains->count ? malloc(gains->count * sizeof *sorted) : NULL;
    if (!sorted) return NAN;
    memcpy(sorted, gains->percent, gains->count * sizeof *sorted);
    qsort(sorted, gains->count, sizeof *sorted, ascending);
    double median = 0.5 * (sorted[(gains->count - 1) / 2] + sorted[gains->count / 2]);
    free(sorted);
    return median;
}

size_t tune_gains_worst(const tune_gains *gains)
{
    size_t worst = gains->count;
    for (size_t i = 0; i < gains->count; i++)
        if (worst == gains->count || gains->percent[i] > gains->percent[worst]) worst = i;
    return worst;
}

size_t tune_gains_over(const tune_gains *gains, double percent)
{
    size_t over = 0;
    for (size_t i = 0; i < gains->count; i++) over += gains->percent[i] > percent;
    return over;
}

void tune_gains_print(const tune_gains *gains)
{
    size_t worst = tune_gains_worst(gains);
    if (worst == gains->count) return;
    command_print("\ngain of tuning over the library's own choice, ranges: %zu; median %.1f %%, largest %.1f %% (%s)\n",
                  gains->count, tune_gains_median(gains), gains->percent[worst],
                  gains->names[worst] ? gains->names[worst] : "");
    printf("%zu above 5 %%, %zu above 25 %%", tune_gains_over(gains, 5), tune_gains_over(gains, 25));
    if (gains->unknown) printf("; of %zu more the own choice was not timed", gains->unknown);
    printf("\n");
}

struct cJSON *tune_gains_json(const tune_gains *gains)
{
    size_t worst = tune_gains_worst(gains);
    cJSON *json = cJSON_CreateObject();
    cJSON_AddNumberToObject(json, "ranges", (double)gains->count);
    if (worst < gains->count) {
        cJSON_AddNumberToObject(json, "median_percent", tune_gains_median(gains));
        cJSON_AddNumberToObject(json, "worst_percent", gains->percent[worst]);
        cJSON_AddStringToObject(json, "worst", gains->names[worst] ? gains->names[worst] : "");
        cJSON_AddNumberToObject(json, "above_5", (double)tune_gains_over(gains, 5));
        cJSON_AddNumberToObject(json, "above_25", (double)tune_gains_over(gains, 25));
    }
    cJSON_AddNumberToObject(json, "own_not_timed", (double)gains->unknown);
    return json;
}

// ---- the table

static const table_column columns[] = {
    {"spec", "spec", TABLE_TEXT, 0},
    {"sizes", "bucket", TABLE_TEXT, 0},
    {"timed", "timed", TABLE_TEXT, 0},
    {"own us", "own_us", TABLE_REAL, 2},
    {"us", "us", TABLE_REAL, 2},
    {"gain %", "gain_percent", TABLE_REAL, 1},
    {"spread", "spread_us", TABLE_REAL, 2},
    {"own choice", "own_configuration", TABLE_TEXT, 0},
    {"tuned", "configuration", TABLE_TEXT, 0},
    {NULL, "device", TABLE_TEXT, 0},
    {NULL, "arch", TABLE_TEXT, 0},
};

// What the library itself would choose for a problem on its device, as text; false: the row is of a family, a range or an
// architecture that is not known here.
static bool own_choice(const qn_tune_row *row, qn_text *config)
{
    quern_any_spec spec;
    const qn_family *family;
    const qn_arch *arch;
    qn_config chosen, canonical;
    size_t bucket;
    if (quern_spec_parse(row->spec, &spec) != QUERN_OK || qn_arch_find(row->arch, &arch) != QUERN_OK) return false;
    if (qn_family_find(spec.base.family, &family) != QUERN_OK) return false;
    if (!qn_bucket_find(family, row->bucket, row->sizes, &bucket)) return false;
    qn_config_choose(family, &spec.base, arch, row->device.sm_count, bucket, &chosen);
    if (qn_config_canonical(family, &spec.base, arch, &chosen, &canonical) != QUERN_OK) return false;
    qn_config_write(family, &canonical, config);
    return qn_text_check(config) == QUERN_OK;
}

// What prepare leaves out has neither won nor lost.
static void compare_problem(const tune_shown *shown, size_t count, table *t, tune_gains *gains)
{
    const qn_tune_row *best = NULL, *own = NULL;
    qn_text config = QN_TEXT_INIT;
    qn_message_mark mark;
    qn_message_save(&mark);
    bool known = own_choice(shown->row, &config);
    qn_message_restore(&mark);
    for (size_t i = 0; i < count; i++) {
        const qn_tune_row *row = shown[i].row;
        if (!shown[i].used) continue;
        if (!strcmp(row->status, QN_TUNE_BEST) && row->ns > 0) best = row;
        if (known && row->ns > 0 && !strcmp(row->config, qn_text_string(&config))) own = row;
    }
    if (best) {
        double gain = own ? 100 * (own->ns / best->ns - 1) : NAN;
        table_add(t, best->spec, best->bucket, best->sizes, own ? 1e-3 * own->ns : NAN, 1e-3 * best->ns, gain,
                  1e-3 * best->spread_ns, known ? qn_text_string(&config) : NULL, best->config, best->device.name,
                  best->arch);
        tune_gains_add(gains, best->spec, best->sizes, gain);
    }
    qn_text_fini(&config);
}

static bool is_same_range(const tune_shown *a, const tune_shown *b)
{
    return a->origin == b->origin && qn_tune_same_problem(a->row, b->row);
}

static void compare_rows(const tune_rows *rows, table *t, tune_gains *gains)
{
    for (size_t i = 0, next; i < rows->count; i = next) {
        for (next = i + 1; next < rows->count && is_same_range(&rows->item[i], &rows->item[next]);) next++;
        compare_problem(&rows->item[i], next - i, t, gains);
    }
}

static quern_status compare_spec(tune_request *r, const char *spec, table *t, tune_gains *gains)
{
    tune_rows rows = TUNE_ROWS_INIT;
    quern_status status = tune_rows_read(r, spec, NULL, &rows);
    if (status == QUERN_OK) {
        compare_rows(&rows, t, gains);
        tune_rows_note(&rows);
    }
    tune_rows_fini(&rows);
    return status;
}

static quern_status compare_all(tune_request *r, table *t, tune_gains *gains)
{
    if (!r->specs.count) return compare_spec(r, NULL, t, gains);
    for (size_t i = 0; i < r->specs.count; i++) QN_TRY(compare_spec(r, r->specs.item[i].text, t, gains));
    return QUERN_OK;
}

// The built-in table cannot be compared: without the times of what lost it has no own choice to set winners beside.
static void say_nothing_to_compare(const tune_request *r)
{
    size_t built_in = r->specs.count ? 0 : tune_count_built_in(NULL);
    for (size_t i = 0; i < r->specs.count; i++) built_in += tune_count_built_in(r->specs.item[i].text);
    if (built_in)
        command_note("no tuning results of your own%s%s, which is what is compared: there is only the built-in table, "
                     "of winners alone ('quern tune --list' shows it); 'quern tune SPEC' makes some, on a GPU",
                     *r->file ? " in " : "", r->file);
    else
        command_note("no tuning results: 'quern tune SPEC' makes some, on a GPU");
}

static void print_comparison(const tune_request *r, const table *t, const tune_gains *gains)
{
    if (r->settings.json) {
        cJSON *document = cJSON_CreateObject();
        cJSON_AddStringToObject(document, "file", r->file);
        cJSON_AddItemToObject(document, "results", table_json(t));
        cJSON_AddItemToObject(document, "gains", tune_gains_json(gains));
        json_print(document);
    } else if (table_rows(t)) {
        table_print(t);
        tune_gains_print(gains);
    } else {
        say_nothing_to_compare(r);
    }
}

int tune_compare(tune_request *r)
{
    tune_gains gains = {NULL, NULL, 0, 0, 0};
    table *t = table_create(columns, QN_COUNT(columns));
    quern_status status = compare_all(r, t, &gains);
    if (status == QUERN_OK) print_comparison(r, t, &gains);
    table_destroy(t);
    tune_gains_fini(&gains);
    return status == QUERN_OK ? COMMAND_OK : command_status(status);
}
