// SPDX-License-Identifier: Apache-2.0
// `quern cache`: what a database holds, whether it is sound, and what can be done with it: prune, export, import, seal,
// repair. Needs neither GPU nor NVRTC. Unlike a kernel's look-up, it fails on a database that it cannot use.
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/nearest.h"
#include "base/path.h"
#include "cache/store.h"
#include "cache_entries.h"
#include "command.h"
#include "table.h"
#include "tune/take.h"

static const char text[] =
    "list     the kernels\n"
    "info     counts, bytes, whether it is sealed\n"
    "verify   checks every row and the file; exit status 1 if anything is damaged\n"
    "prune    removes damaged rows, then what --unused and --cap say, and gives the space back\n"
    "export   a compact copy of what is sound, to a new FILE; exit status 1 if anything is damaged\n"
    "import   merges the databases FILE... into this one; entries that exist stay; exit status 1 if a\n"
    "         FILE or a row of it is damaged, or a tuning result could never be used: the rest is imported\n"
    "         all the same\n"
    "seal     verifies and marks it read-only for good, for shipping (QUERN_SEALED names such files)\n"
    "repair   copies a damaged file to FILE.broken-N, empties it and saves what can be read\n"
    "list, info, verify, prune, seal and repair take the database as FILE too.\n";

enum { BUSY_MS = 5000, SECONDS_A_DAY = 24 * 60 * 60 };

typedef struct request {
    const char *file; // the database
    char **files;     // operands of import and export
    int file_count;
    int64_t cap_bytes;      // -1: none
    int64_t not_used_since; // 0: any
    bool json;
    quern_store store;
} request;

typedef struct action {
    const char *name;
    int (*run)(request *r);
    bool takes_database; // FILE names the database, as --db does
    int fewest, most;    // operands, otherwise
    bool needs_file;     // the database must exist
    bool reads;          // and is not changed, not even an empty file
    bool takes_empty;    // a file without a byte: by the others, a copy that was cut off would pass
} action;

// ---- shared

static cJSON *document_of(const request *r)
{
    cJSON *document = cJSON_CreateObject();

    cJSON_AddStringToObject(document, "file", r->file);
    return document;
}

static void add_number(cJSON *document, const char *key, int64_t value)
{
    cJSON_AddNumberToObject(document, key, (double)value);
}

static const qn_log log_to_stderr = {command_log, NULL};

static qn_sqlite_options options_for(const char *file, qn_sqlite_access access)
{
    return (qn_sqlite_options){.file = file,
                               .access = access,
                               .busy_timeout_ms = BUSY_MS,
                               .cap_bytes = -1,
                               .log = &log_to_stderr,
                               .cancel = command_cancelled};
}

// A copy that was cut off at its first byte: SQLite takes it for a new database.
static bool is_empty(const char *file)
{
    struct stat info;
    return !stat(file, &info) && S_ISREG(info.st_mode) && info.st_size == 0;
}

static int fail_empty(const char *file)
{
    return command_fail("%s is empty: no database was ever written to it, or its copy was cut off", file);
}

static const char *entries(int64_t count)
{
    return count == 1 ? "entry" : "entries";
}

static const char *rows(int64_t count)
{
    return count == 1 ? "row is" : "rows are";
}

// ---- list and verify

static int list(request *r)
{
    table *all = cache_entries_create();
    quern_status status = r->store.list(r->store.self, 0, cache_entries_add, all);

    if (status == QUERN_OK && r->json) {
        cJSON *document = document_of(r);
        cJSON_AddItemToObject(document, "entries", table_json(all));
        json_print(document);
    } else if (status == QUERN_OK) {
        table_print(all);
    }
    table_destroy(all);
    return status == QUERN_OK ? COMMAND_OK : command_status(status);
}

static int64_t bad_rows(const qn_verify_report *report)
{
    return report->bad_key + report->bad_sum + report->bad_image;
}

static void print_verification(const request *r, const qn_verify_report *report, table *bad)
{
    if (!r->json) {
        table_print(bad);
        printf("%" PRId64 " %s: %" PRId64 " damaged (%" PRId64 " key or columns, %" PRId64 " sum, %" PRId64
               " not a cubin); structure %s\n",
               report->entries, entries(report->entries), bad_rows(report), report->bad_key, report->bad_sum,
               report->bad_image, report->structure_ok ? "ok" : "damaged");
        return;
    }
    cJSON *document = document_of(r);
    add_number(document, "entries", report->entries);
    add_number(document, "bad_key", report->bad_key);
    add_number(document, "bad_sum", report->bad_sum);
    add_number(document, "bad_image", report->bad_image);
    cJSON_AddBoolToObject(document, "structure_ok", report->structure_ok);
    cJSON_AddItemToObject(document, "bad", table_json(bad));
    json_print(document);
}

static int fail_rows(const char *file)
{
    return command_fail("%s has damaged rows; 'quern cache prune' removes them", file);
}

static int verify(request *r)
{
    table *bad = cache_entries_create();
    qn_verify_report report;
    quern_status status = qn_sqlite_verify(&r->store, cache_entries_add, bad, &report);

    if (status == QUERN_OK) print_verification(r, &report, bad);
    table_destroy(bad);
    if (status != QUERN_OK) return command_status(status);
    if (!report.structure_ok) return command_fail("%s is damaged; 'quern cache repair' mends it", r->file);
    if (bad_rows(&report)) return fail_rows(r->file);
    return COMMAND_OK;
}

// ---- info

static int info(request *r)
{
    char oldest[CACHE_TIME_BYTES], newest[CACHE_TIME_BYTES];
    qn_sqlite_info found;
    quern_status status = qn_sqlite_get_info(&r->store, &found);

    if (status != QUERN_OK) return command_status(status);
    found.read_only = found.sealed || access(r->file, W_OK) != 0; // the file, not how this command opened it
    if (r->json) {
        cJSON *document = document_of(r);
        add_number(document, "entries", found.entries);
        add_number(document, "image_bytes", found.image_bytes);
        add_number(document, "file_bytes", found.file_bytes);
        add_number(document, "format", found.schema);
        cJSON_AddBoolToObject(document, "sealed", found.sealed);
        cJSON_AddBoolToObject(document, "read_only", found.read_only);
        add_number(document, "oldest_used", found.oldest_used);
        add_number(document, "newest_used", found.newest_used);
        json_print(document);
        return COMMAND_OK;
    }
    command_print("file         %s\nformat       %d%s\nentries      %" PRId64 "\nimages       %" PRId64
                  " bytes\nfile size    %" PRId64 " bytes\nlast used    %s to %s (UTC)\n",
                  r->file, found.schema,
                  found.sealed      ? ", sealed"
                  : found.read_only ? ", read-only"
                                    : "",
                  found.entries, found.image_bytes, found.file_bytes, cache_time(found.oldest_used, oldest),
                  cache_time(found.newest_used, newest));
    return COMMAND_OK;
}

// ---- prune, import, export, seal, repair

static int prune(request *r)
{
    int64_t removed, bytes;
    quern_status status = qn_sqlite_prune(&r->store, r->cap_bytes, r->not_used_since, &removed, &bytes);

    if (status != QUERN_OK) return command_status(status);
    if (!r->json) {
        printf("%" PRId64 " %s removed, %" PRId64 " bytes of images\n", removed, entries(removed), bytes);
        return COMMAND_OK;
    }
    cJSON *document = document_of(r);
    add_number(document, "removed", removed);
    add_number(document, "removed_bytes", bytes);
    json_print(document);
    return COMMAND_OK;
}

static const table_column import_columns[] = {
    {"from", "file", TABLE_TEXT, 0},        {"added", "added", TABLE_INT, 0}, {"present", "present", TABLE_INT, 0},
    {"damaged", "bad", TABLE_INT, 0},       {"tuned", "tuned", TABLE_INT, 0}, {NULL, "tuned_present", TABLE_INT, 0},
    {NULL, "tuned_left_out", TABLE_INT, 0},
};

// The kernels' numbers are told all the same.
static int fail_import(const char *file, int64_t bad, const qn_tune_taken *taken)
{
    int exit_status = COMMAND_OK;
    if (bad)
        exit_status = command_fail("%s: %" PRId64
                                   " damaged %s not imported: 'quern cache verify' lists them; copy the file again, or "
                                   "warm its specs again",
                                   file, bad, rows(bad));
    if (taken->left_out)
        exit_status =
            command_fail("%s: tuning results of %" PRId64 " %s of sizes are not imported; the first: %s", file,
                         taken->left_out, taken->left_out == 1 ? "range" : "ranges", qn_text_string(&taken->first));
    return exit_status;
}

typedef struct import_sum {
    int64_t kernels, ranges; // what this command has put there, of all files
    bool cancelled;
} import_sum;

// A source that cannot be read, or that has damaged rows, fails the command and stops no other: what is good is imported.
static int import_one(request *r, const char *file, table *sources, import_sum *sum)
{
    qn_sqlite_options options = options_for(file, QN_SQLITE_READ_ONLY);
    qn_tune_taken taken = QN_TUNE_TAKEN_INIT;
    int64_t added, present, bad;
    quern_store from;

    if (is_empty(file)) return fail_empty(file);
    quern_status status = qn_sqlite_open(&options, &from);
    if (status != QUERN_OK) return command_status(status);
    status = qn_sqlite_import(&r->store, &from, &added, &present, &bad);
    if (status == QUERN_OK) status = qn_tune_take(&r->store, &from, (int64_t)time(NULL), &taken);
    qn_sqlite_close(&from);
    sum->kernels += added, sum->ranges += taken.kept, sum->cancelled = status == QUERN_CANCELLED;
    if (status == QUERN_OK || status == QUERN_CANCELLED)
        table_add(sources, file, added, present, bad, taken.kept, taken.passed_over, taken.left_out);
    int exit_status = COMMAND_FAILED;
    if (status == QUERN_OK)
        exit_status = fail_import(file, bad, &taken);
    else if (status != QUERN_CANCELLED)
        exit_status = command_status(status);
    qn_text_fini(&taken.first);
    return exit_status;
}

static int fail_interrupted(const import_sum *sum)
{
    fflush(stdout);
    return command_fail("interrupted: %" PRId64 " %s and tuning results of %" PRId64
                        " %s of sizes are imported, and stay; the same command goes on where it stopped",
                        sum->kernels, sum->kernels == 1 ? "kernel" : "kernels", sum->ranges,
                        sum->ranges == 1 ? "range" : "ranges");
}

// Ctrl-C ends it between two transactions.
static int import(request *r)
{
    table *sources = table_create(import_columns, QN_COUNT(import_columns));
    import_sum sum = {0, 0, false};
    int exit_status = COMMAND_OK;

    command_catch_interrupt();
    for (int i = 0; i < r->file_count && !sum.cancelled; i++) {
        int one = import_one(r, r->files[i], sources, &sum);
        exit_status = one > exit_status ? one : exit_status;
    }
    if (r->json) {
        cJSON *document = document_of(r);
        cJSON_AddItemToObject(document, "imported", table_json(sources));
        json_print(document);
    } else {
        table_print(sources);
    }
    table_destroy(sources);
    return sum.cancelled ? fail_interrupted(&sum) : exit_status;
}

// One line or one object that says what became of a file.
static int report_file(const request *r, const char *key, const char *value, const char *sentence)
{
    if (r->json) {
        cJSON *document = document_of(r);
        if (value)
            cJSON_AddStringToObject(document, key, value);
        else
            cJSON_AddTrueToObject(document, key);
        json_print(document);
    } else {
        command_print("%s %s%s%s\n", r->file, sentence, value ? " " : "", value ? value : "");
    }
    return COMMAND_OK;
}

// A fresh copy without the damaged rows that it was made with.
static quern_status drop_damaged(const char *file, int64_t *damaged)
{
    qn_sqlite_options options = options_for(file, QN_SQLITE_READ_WRITE);
    int64_t bytes;
    quern_store copy;

    options.allow_network_fs = true; // nobody else has it yet
    QN_TRY(qn_sqlite_open(&options, &copy));
    quern_status status = qn_sqlite_prune(&copy, -1, 0, damaged, &bytes);
    qn_sqlite_close(&copy);
    return status;
}

static int export(request *r)
{
    int64_t damaged = 0;
    qn_text path = QN_TEXT_INIT;
    quern_status status = qn_sqlite_export(&r->store, r->files[0]);

    if (status != QUERN_OK) return command_status(status);
    qn_path_absolute(r->files[0], &path);
    status = qn_text_check(&path);
    if (status == QUERN_OK) status = qn_file_check_named(qn_text_string(&path)); // as those that QUERN_SEALED names
    qn_text_fini(&path);
    if (status == QUERN_OK) status = drop_damaged(r->files[0], &damaged);
    if (status != QUERN_OK) unlink(r->files[0]);
    if (status != QUERN_OK) return command_status(status);
    report_file(r, "exported_to", r->files[0], "was copied to");
    if (!damaged) return COMMAND_OK;
    return command_fail("%s: %" PRId64
                        " damaged %s not copied: 'quern cache verify' lists them; warm their specs again",
                        r->file, damaged, rows(damaged));
}

static int seal(request *r)
{
    quern_status status = qn_sqlite_seal(&r->store);

    return status == QUERN_OK ? report_file(r, "sealed", NULL, "is sealed") : command_status(status);
}

// Of a file whose structure is sound; 0 too when that cannot be told.
static int64_t count_damaged_rows(const qn_sqlite_options *options)
{
    qn_verify_report report = {0};
    quern_store store;

    if (qn_sqlite_open(options, &store) != QUERN_OK) return 0;
    int64_t count = qn_sqlite_verify(&store, NULL, NULL, &report) == QUERN_OK ? bad_rows(&report) : 0;
    qn_sqlite_close(&store);
    return count;
}

static void print_repair(const request *r, int64_t saved, int64_t damaged_rows, const qn_text *aside)
{
    cJSON *document = document_of(r);
    cJSON_AddBoolToObject(document, "damaged", aside->length != 0);
    add_number(document, "saved", saved);
    add_number(document, "damaged_rows", damaged_rows);
    cJSON_AddItemToObject(document, "set_aside", aside->length ? cJSON_CreateString(aside->bytes) : cJSON_CreateNull());
    if (r->json) {
        json_print(document);
        return;
    }
    cJSON_Delete(document);
    if (aside->length)
        command_print("%s: %" PRId64 " %s saved; what it was is in %s\n", r->file, saved, entries(saved), aside->bytes);
    else
        command_print("%s: the file's structure is not damaged%s; nothing was changed\n", r->file,
                      damaged_rows ? "" : ", nor is any row");
}

static int repair(request *r)
{
    qn_sqlite_options options = options_for(r->file, QN_SQLITE_READ_WRITE);
    qn_text aside = QN_TEXT_INIT;
    int64_t saved = 0, damaged_rows = 0;
    quern_status status = qn_sqlite_repair(&options, &saved, &aside);

    if (status == QUERN_OK) {
        options.access = QN_SQLITE_READ_ONLY;
        if (!aside.length) damaged_rows = count_damaged_rows(&options);
        print_repair(r, saved, damaged_rows, &aside);
    }
    qn_text_fini(&aside);
    if (status != QUERN_OK) return command_status(status);
    return damaged_rows ? fail_rows(r->file) : COMMAND_OK;
}

// ---- the command

static const action actions[] = {
    {"list", list, true, 0, 0, true, true, false},      {"info", info, true, 0, 0, true, true, true},
    {"verify", verify, true, 0, 0, true, true, false},  {"prune", prune, true, 0, 0, true, false, true},
    {"export", export, false, 1, 1, true, true, false}, {"import", import, false, 1, 1 << 20, false, false, true},
    {"seal", seal, true, 0, 0, true, false, false},     {"repair", repair, true, 0, 0, true, false, true},
};

// "500000", "500K", "2M", "1G": bytes, by 1024.
static bool parse_bytes(const char *string, int64_t *bytes)
{
    static const char units[] = "KMG";
    char digits[24];
    size_t length = strlen(string);
    const char *unit = length > 1 ? strchr(units, string[length - 1]) : NULL;
    int shift = unit ? 10 * (int)(unit - units + 1) : 0;

    if (unit) length--;
    if (length >= sizeof digits) return false;
    memcpy(digits, string, length);
    digits[length] = 0;
    return qn_parse_int(digits, bytes) && *bytes >= 0 && !__builtin_mul_overflow(*bytes, INT64_C(1) << shift, bytes);
}

static int run_action(const action *a, request *r)
{
    if (!a->takes_empty && is_empty(r->file)) return fail_empty(r->file);
    if (a->needs_file && !qn_file_exists(r->file)) return command_fail("%s: there is no such database", r->file);
    if (a->run == repair) return repair(r); // what it opens cannot be opened
    qn_sqlite_options options = options_for(r->file, a->reads ? QN_SQLITE_READ_ONLY : QN_SQLITE_READ_WRITE);
    quern_status status = qn_sqlite_open(&options, &r->store);
    if (status != QUERN_OK) return command_status(status);
    status = a->run == import ? command_check_place(r->file) : QUERN_OK; // where the library would not look for kernels
    if (status == QUERN_OK) status = qn_sqlite_probe(&r->store);
    int exit_status = status == QUERN_OK ? a->run(r) : command_status(status);
    qn_sqlite_close(&r->store);
    return exit_status;
}

// The operands after the action's name: databases to act on, or the files of import and export.
static int take_operands(const action *a, int count, char **operands, request *r)
{
    if (a->takes_database) {
        if (count > 1 || (count && r->file))
            return command_usage("%s takes one database, as FILE or with --db", a->name);
        if (count) r->file = operands[0];
        return COMMAND_OK;
    }
    if (count < a->fewest) return command_usage("%s needs a FILE", a->name);
    if (count > a->most) return command_usage("%s takes one FILE", a->name);
    r->files = operands;
    r->file_count = count;
    return COMMAND_OK;
}

static const action *find_action(const char *name)
{
    for (size_t i = 0; i < QN_COUNT(actions); i++) {
        if (!strcmp(actions[i].name, name)) return &actions[i];
    }
    return NULL;
}

static int unknown_action(const char *word)
{
    qn_nearest nearest;
    qn_nearest_init(&nearest, word, strlen(word));
    for (size_t i = 0; i < QN_COUNT(actions); i++) qn_nearest_offer(&nearest, actions[i].name);
    return command_usage("'%s' is no action%s: list, info, verify, prune, export, import, seal or repair", word,
                         qn_nearest_hint(&nearest));
}

static int run_request(int argc, char **argv, request *r, const char *cap, int64_t unused_days)
{
    const action *a = argc > 1 ? find_action(argv[1]) : NULL;
    qn_text file = QN_TEXT_INIT;
    quern_status status = QUERN_OK;

    if (argc < 2)
        return command_usage("an action is needed: list, info, verify, prune, export, import, seal or repair");
    if (!a) return unknown_action(argv[1]);
    if ((cap || unused_days) && a->run != prune) return command_usage("--cap and --unused are for prune only");
    if (cap && !parse_bytes(cap, &r->cap_bytes))
        return command_usage("--cap %s: a number of bytes is needed, or one with K, M or G", cap);
    if (unused_days) r->not_used_since = (int64_t)time(NULL) - unused_days * SECONDS_A_DAY;
    int exit_status = take_operands(a, argc - 2, argv + 2, r);
    if (exit_status != COMMAND_OK) return exit_status;
    if (!r->file) {
        status = command_default_database(!a->needs_file, &file);
        r->file = file.bytes;
    }
    exit_status = status == QUERN_OK ? run_action(a, r) : command_status(status);
    qn_text_fini(&file);
    return exit_status;
}

int command_cache(int argc, char **argv)
{
    request r = {.cap_bytes = -1};
    const char *cap = NULL;
    int64_t unused_days = 0;
    const command_option options[] = {
        COMMAND_OPTION_DB(&r.file),
        {"cap", 0, "BYTES", COMMAND_STRING, &cap, 0, 0, "prune: least recently used first, down to this (K, M, G)"},
        {"unused", 0, "DAYS", COMMAND_NUMBER, &unused_days, 1, 36500, "prune: what was not used for so many days"},
        COMMAND_OPTION_JSON(&r.json),
        COMMAND_OPTION_END,
    };
    const command_syntax syntax = {"quern cache list|info|verify|prune|seal|repair [FILE] [options]\n"
                                   "quern cache export FILE [options]\n"
                                   "quern cache import FILE... [options]",
                                   text, options};
    int exit_status;

    if (!command_parse(&syntax, &argc, argv, &exit_status)) return exit_status;
    return run_request(argc, argv, &r, cap, unused_days);
}
