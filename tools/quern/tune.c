// SPDX-License-Identifier: Apache-2.0
// `quern tune`: reads the options, opens the table, and hands over to the action that is asked for (tune.h).
#include "tune.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/path.h"
#include "base/processors.h"

static const char text[] =
    "Finds the fastest configuration of each spec for each range of sizes on this GPU, checks it against\n"
    "the host reference on ordinary and hostile inputs, and keeps what was tried in the database, where\n"
    "every later prepare finds it. A configuration wins only if it gains more than the spread of the\n"
    "times. Without --rows every range of sizes is tuned. The budget is for everything that is asked for\n"
    "(default: 30 s a range). Ctrl-C keeps what was found. With --plot a heat map of the times over\n"
    "local_k and block size is written. At the end, and by --compare, the gains over the library's own\n"
    "choice are listed, with their median and the largest. Results are of this kind of device, this\n"
    "version of Quern and the driver's major version; of others they are kept, and listed as stale.\n";

enum { BUSY_MS = 5000, MOST_SECONDS = 7 * 24 * 3600 };

typedef struct words {
    const char *budget, *where, *explain, *export_file, *import_file;
    bool list, compare;
} words;

// "60", "60s", "5m", "2h"
static bool parse_seconds(const char *word, double *seconds)
{
    char number[24];
    double unit = 1;
    size_t length = strlen(word);
    if (!length || length >= sizeof number) return false;
    memcpy(number, word, length + 1);
    if (number[length - 1] == 's')
        number[length - 1] = 0;
    else if (number[length - 1] == 'm')
        number[length - 1] = 0, unit = 60;
    else if (number[length - 1] == 'h')
        number[length - 1] = 0, unit = 3600;
    if (!qn_parse_real(number, seconds) || !isfinite(*seconds)) return false;
    *seconds *= unit;
    return *seconds >= 1 && *seconds <= MOST_SECONDS;
}

// ---- the table

static void print_log(void *user, quern_log_level level, const char *line)
{
    const char *comma = strchr(line, ','), *rest = comma ? strchr(comma + 1, ',') : NULL;
    (void)user;
    if (level <= QUERN_LOG_WARNING) command_note("%s", rest ? rest + 1 : line);
}

static const qn_log log_to_stderr = {print_log, NULL};

// To look at results makes no database, and changes none.
static quern_status open_table(tune_request *r, bool writes, qn_text *file)
{
    r->file = r->settings.db;
    if (!r->file) {
        QN_TRY(command_default_database(writes, file));
        r->file = file->bytes;
    }
    if (!writes && !qn_file_exists(r->file)) // "": none is wanted
        return r->settings.db && *r->file ? qn_fail(QUERN_STORE_OPEN, "%s: there is no such database", r->file)
                                          : QUERN_OK;
    if (writes) QN_TRY(command_check_place(r->file)); // results that prepare would never ask for
    const qn_sqlite_options options = {.file = r->file,
                                       .access = writes ? QN_SQLITE_READ_WRITE : QN_SQLITE_READ_ONLY,
                                       .busy_timeout_ms = BUSY_MS,
                                       .cap_bytes = -1,
                                       .log = &log_to_stderr,
                                       .cancel = command_cancelled};
    QN_TRY(qn_sqlite_open(&options, &r->store));
    quern_status status = qn_sqlite_probe(&r->store);
    if (status == QUERN_OK && writes && qn_sqlite_is_sealed(&r->store))
        status =
            qn_fail(QUERN_STORE_READ_ONLY, "%s: the database is sealed; export it to a new file to add to it", r->file);
    if (status != QUERN_OK) qn_sqlite_close(&r->store);
    r->has_store = status == QUERN_OK;
    return status;
}

// ---- the actions

// Before anything is opened or made.
static quern_status look_for_gpu(const tune_request *r)
{
    device d;
    quern_status status = device_look(r->ordinal, &d);
    if (status == QUERN_OK) return QUERN_OK;
    return qn_fail(status, "tuning needs a GPU, which this machine does not show ('quern doctor' says why); --list, "
                           "--compare, --explain, --export and --import work without one");
}

static int run_action(tune_request *r, const words *w)
{
    qn_text file = QN_TEXT_INIT;
    bool runs = !w->list && !w->compare && !w->explain && !w->export_file && !w->import_file;
    quern_status status = runs ? look_for_gpu(r) : QUERN_OK;
    if (status == QUERN_OK && r->plot) status = output_check(r->plot);
    if (status == QUERN_OK && w->export_file && strcmp(w->export_file, "-")) status = output_check(w->export_file);
    if (status == QUERN_OK) status = open_table(r, runs || w->import_file, &file);
    int exit_status = COMMAND_OK;
    if (status != QUERN_OK)
        exit_status = command_status(status);
    else if (w->list)
        exit_status = tune_list_results(r);
    else if (w->compare)
        exit_status = tune_compare(r);
    else if (w->explain)
        exit_status = tune_explain(r);
    else if (w->export_file)
        exit_status = tune_export(r, w->export_file);
    else if (w->import_file)
        command_catch_interrupt(), exit_status = tune_import(r, w->import_file);
    else
        exit_status = tune_run(r);
    if (r->has_store) qn_sqlite_close(&r->store);
    qn_text_fini(&file);
    return exit_status;
}

// What an action does not look at is refused: it would seem to have been.
static int check_idle(const tune_request *r, const words *w)
{
    const char *size = NULL;
    for (size_t i = 0; i < r->sizes.count; i++)
        if (r->sizes.item[i].text) size = r->sizes.item[i].name;
    if (size) return command_usage("--%s: sizes say what to tune; they go with no other action", size);
    if (w->budget) return command_usage("--budget is the time of a search: it goes with specs to tune");
    if (r->threads) return command_usage("--jobs is for compiling: it goes with specs to tune");
    if (r->plot && !w->explain)
        return command_usage("--plot draws what specs to tune, or --explain, have tried: it goes with no other action");
    if (w->where && !w->list && !w->explain)
        return command_usage("--device: --compare, --export and --import look at no device");
    if (r->settings.json && (w->export_file || w->import_file))
        return command_usage("--json: --export and --import have no JSON; what --export writes is text for programs");
    return COMMAND_OK;
}

// A name that is empty is no file's.
static int check_names(const tune_request *r, const words *w)
{
    const char *const names[][2] = {{"export", w->export_file}, {"import", w->import_file}, {"plot", r->plot}};
    for (size_t i = 0; i < QN_COUNT(names); i++)
        if (names[i][1] && !*names[i][1]) return command_usage("--%s '': the name of a file is needed", names[i][0]);
    return COMMAND_OK;
}

static int check_words(tune_request *r, const words *w, int operands)
{
    int actions = w->list + w->compare + !!w->explain + !!w->export_file + !!w->import_file;
    if (actions > 1)
        return command_usage("one of --list, --compare, --explain, --export and --import, or specs to tune");
    if (actions && operands && !w->compare)
        return command_usage("a spec to tune does not go with --list, --explain, --export, --import");
    if (!actions && !operands)
        return command_usage("a spec, @FILE, --list, --compare, --explain, --export or --import is needed");
    int idle = actions ? check_idle(r, w) : COMMAND_OK;
    if (idle == COMMAND_OK) idle = check_names(r, w);
    if (idle != COMMAND_OK) return idle;
    if (!r->threads) r->threads = (int64_t)qn_processors();
    if (w->budget && !parse_seconds(w->budget, &r->seconds))
        return command_usage("--budget %s: a time from 1 second on is needed, as in 60s, 5m, 2h", w->budget);
    if (w->where && !device_parse(w->where, &r->ordinal))
        return command_usage("--device %s: gpu or gpu:N is needed", w->where);
    return COMMAND_OK;
}

// A list that warm reads may be given here too. Without its ranges of sizes, lines that differ in them alone are one spec.
static quern_status unite_specs(spec_list *specs)
{
    size_t narrowed = 0;
    for (size_t i = 0; i < specs->count; i++) {
        narrowed += specs->item[i].narrowed != 0;
        specs->item[i].narrowed = 0, *specs->item[i].range = 0;
        specs->item[i].archs.count = 0; // the device says for what
    }
    if (narrowed)
        command_note(
            "the ranges of sizes that the list has are not looked at: --rows, --N and the like say what to tune");
    return spec_list_unite(specs);
}

static int tune(tune_request *r, const words *w, int argc, char **argv)
{
    int exit_status = check_words(r, w, argc - 1);
    quern_status status = QUERN_OK;
    bool has_action = w->list || w->compare || w->explain || w->export_file || w->import_file;
    if (exit_status != COMMAND_OK) return exit_status;
    if (w->explain) status = spec_list_add(&r->specs, w->explain);
    for (int i = 1; i < argc && status == QUERN_OK; i++) status = spec_list_add(&r->specs, argv[i]);
    if (status == QUERN_OK) status = unite_specs(&r->specs);
    if (status != QUERN_OK) return r->specs.in_file ? command_content(status) : command_status(status);
    if (!has_action) exit_status = tune_make_jobs(r);
    return exit_status == COMMAND_OK ? run_action(r, w) : exit_status;
}

int command_tune(int argc, char **argv)
{
    tune_request r = {.threads = 0};
    words w = {.where = NULL};
    command_option options[COMMAND_MAX_SIZES + 13] = {
        {"budget", 0, "TIME", COMMAND_STRING, &w.budget, 0, 0, "for everything: 60s or 60, 5m, 2h"},
        {"jobs", 'j', "N", COMMAND_NUMBER, &r.threads, 1, 256, "compile N at a time (default: the processors)"},
        {"device", 0, "WHERE", COMMAND_STRING, &w.where, 0, 0, "gpu (default) or gpu:N"},
        {"plot", 0, "FILE", COMMAND_STRING, &r.plot, 0, 0, "an SVG of the times (with --explain too)"},
        {"list", 0, NULL, COMMAND_FLAG, &w.list, 0, 0, "the winners, and which of them count here"},
        {"compare", 0, NULL, COMMAND_FLAG, &w.compare, 0, 0,
         "the winners beside the library's own choice, and the gains"},
        {"explain", 0, "SPEC", COMMAND_STRING, &w.explain, 0, 0, "what was tried, with its time and why it lost"},
        {"export", 0, "FILE", COMMAND_STRING, &w.export_file, 0, 0, "every result as text (-: standard output)"},
        {"import", 0, "FILE", COMMAND_STRING, &w.import_file, 0, 0, "results from text; newer ones that exist stay"},
        COMMAND_OPTION_DB(&r.settings.db),
        COMMAND_OPTION_JSON(&r.settings.json),
        COMMAND_OPTION_VERBOSE(&r.settings.verbose),
    };
    size_t count = command_add_sizes(&r.sizes, "LIST", "tune for these only: 1,8,64,4096", options, 12);
    options[count] = (command_option)COMMAND_OPTION_END;
    const command_syntax syntax = {"quern tune SPEC... | @FILE... [options]\n"
                                   "quern tune --compare [SPEC... | @FILE...] [options]\n"
                                   "quern tune --list | --explain SPEC | --export FILE | --import FILE [options]",
                                   text, options};
    int exit_status;
    if (!command_parse(&syntax, &argc, argv, &exit_status)) return exit_status;
    exit_status = tune(&r, &w, argc, argv);
    free(r.jobs);
    spec_list_fini(&r.specs);
    return exit_status;
}
