// SPDX-License-Identifier: Apache-2.0
// Options, messages and the settings of a quern, for every subcommand (command.h).
#include "command.h"

#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/nearest.h"
#include "base/path.h"
#include "cache/store.h"
#include "ops/field.h"

static char command_name[64]; // "warm", "bench runtime": of the options that were parsed, for "See 'quern NAME --help'"

// ---- messages

bool command_is_control(char c)
{
    return (unsigned char)c < 32 || c == 127;
}

// One message, whole, whichever threads write others. Messages hold words of files that others wrote: what would steer a
// terminal is shown as a question mark.
static void say(const char *format, va_list list, const char *tail)
{
    char message[8192];
    vsnprintf(message, sizeof message, format, list);
    qn_make_printable(message);
    command_progress_clear();
    flockfile(stderr);
    fprintf(stderr, "quern: %s%s", message, tail);
    funlockfile(stderr);
}

void command_print(const char *format, ...)
{
    qn_text text = QN_TEXT_INIT;
    va_list list, again;
    va_start(list, format);
    va_copy(again, list);
    int length = vsnprintf(NULL, 0, format, list);
    qn_text_reserve(&text, length > 0 ? (size_t)length : 0);
    if (length > 0 && !text.failed) {
        vsnprintf(text.bytes, (size_t)length + 1, format, again);
        qn_make_printable(text.bytes);
        fputs(text.bytes, stdout);
    }
    va_end(again);
    va_end(list);
    qn_text_fini(&text);
}

int command_fail(const char *format, ...)
{
    va_list list;
    va_start(list, format);
    say(format, list, "\n");
    va_end(list);
    return COMMAND_FAILED;
}

int command_usage(const char *format, ...)
{
    va_list list;
    char tail[96];
    snprintf(tail, sizeof tail, "\nSee 'quern %s%s--help'.\n", command_name, *command_name ? " " : "");
    va_start(list, format);
    say(format, list, tail);
    va_end(list);
    return COMMAND_USAGE;
}

void command_note(const char *format, ...)
{
    va_list list;
    va_start(list, format);
    say(format, list, "\n");
    va_end(list);
}

static bool is_usage(quern_status status)
{
    return status == QUERN_UNKNOWN_ARGUMENT || status == QUERN_UNKNOWN_ARCH ||
           (status >= QUERN_BAD_SYNTAX && status <= QUERN_CONFLICT);
}

int command_status(quern_status status)
{
    const char *message = quern_message();
    if (is_usage(status)) return command_usage("%s", *message ? message : quern_status_text(status));
    return command_fail("%s", *message ? message : quern_status_text(status));
}

int command_content(quern_status status)
{
    int exit_status = command_fail("%s", *quern_message() ? quern_message() : quern_status_text(status));
    return is_usage(status) ? COMMAND_USAGE : exit_status;
}

// ---- options

enum { HELP = 'h', FIRST_LONG = 1000, MAX_OPTIONS = 64 };

static size_t option_count(const command_option *options)
{
    size_t count = 0;
    while (options[count].name) count++;
    return count;
}

static void print_option(const command_option *option)
{
    char left[64];
    char letter[8] = "";
    if (option->letter) snprintf(letter, sizeof letter, "-%c, ", option->letter);
    snprintf(left, sizeof left, "%s--%s%s%s", letter, option->name, option->value ? " " : "",
             option->value ? option->value : "");
    printf("  %-22s %s\n", left, option->doc);
}

static void print_help(const command_syntax *syntax)
{
    for (const char *line = syntax->usage, *lead = "usage: "; *line; lead = "       ") {
        size_t length = strcspn(line, "\n");
        printf("%s%.*s\n", lead, (int)length, line);
        line += length + (line[length] == '\n');
    }
    if (syntax->text) printf("\n%s", syntax->text);
    printf("\n");
    for (const command_option *option = syntax->options; option->name; option++) print_option(option);
    static const command_option help = {"help", 'h', NULL, COMMAND_FLAG, NULL, 0, 0, "print this"};
    print_option(&help);
}

// The table as getopt_long wants it.
static void build_getopt(const command_option *options, struct option *longs, char *shorts)
{
    size_t n = 0, letters = 0;
    shorts[letters++] = ':'; // a missing value is told from an unknown option
    for (; options[n].name; n++) {
        longs[n] = (struct option){options[n].name, options[n].value ? required_argument : no_argument, NULL,
                                   FIRST_LONG + (int)n};
        if (!options[n].letter) continue;
        shorts[letters++] = options[n].letter;
        if (options[n].value) shorts[letters++] = ':';
    }
    longs[n++] = (struct option){"help", no_argument, NULL, HELP};
    longs[n] = (struct option){NULL, 0, NULL, 0};
    shorts[letters++] = HELP;
    shorts[letters] = 0;
}

static const command_option *option_of(const command_option *options, int code)
{
    if (code >= FIRST_LONG) return &options[code - FIRST_LONG];
    for (; options->name; options++)
        if (options->letter && options->letter == code) return options;
    return NULL;
}

static bool store_number(const command_option *option, const char *value)
{
    int64_t number;
    if (!qn_parse_int(value, &number) || number < option->min || number > option->max) {
        command_usage("--%s %s: a whole number from %lld to %lld is needed", option->name, value,
                      (long long)option->min, (long long)option->max);
        return false;
    }
    *(int64_t *)option->target = number;
    return true;
}

static bool store_repeat(const command_option *option, const char *value)
{
    command_strings *strings = option->target;
    if (strings->count == COMMAND_MAX_STRINGS) {
        command_usage("--%s is given more than %d times", option->name, COMMAND_MAX_STRINGS);
        return false;
    }
    strings->item[strings->count++] = value;
    return true;
}

// Given twice, one of two values would be dropped without a word.
static bool is_repeated(const command_option *option, bool *given)
{
    bool again = *given && option->value && option->type != COMMAND_REPEAT;
    *given = true;
    if (again) command_usage("--%s is given twice", option->name);
    return again;
}

static bool store_option(const command_option *option, const char *value)
{
    switch (option->type) {
    case COMMAND_FLAG:
        *(bool *)option->target = true;
        return true;
    case COMMAND_STRING:
        *(const char **)option->target = value;
        return true;
    case COMMAND_NUMBER:
        return store_number(option, value);
    case COMMAND_REPEAT:
        return store_repeat(option, value);
    }
    return false;
}

// Options that begin so: "'--verbose'"; "'--shard' or '--sample'".
static void put_beginnings(const command_option *options, const char *name, size_t length, qn_text *names)
{
    for (; length && options->name; options++)
        if (!strncmp(options->name, name, length))
            qn_text_putf(names, "%s'--%s'", names->length ? " or " : "", options->name);
}

static void unknown_option(const command_option *options, const char *word)
{
    const char *name = word + strspn(word, "-");
    size_t length = strcspn(name, "=");
    qn_text near = QN_TEXT_INIT;
    qn_nearest nearest;
    qn_nearest_init(&nearest, name, length);
    put_beginnings(options, name, length, &near);
    for (; options->name; options++) qn_nearest_offer(&nearest, options->name);
    if (!near.length && nearest.name) qn_text_putf(&near, "'--%s'", nearest.name);
    if (near.length)
        command_usage("unknown option '%s' (did you mean %s?)", word, qn_text_string(&near));
    else
        command_usage("unknown option '%s'", word);
    qn_text_fini(&near);
}

// The word of argv that getopt stopped at: '-x' for a letter, the word itself for a long option.
static void report_bad_option(const command_option *options, int code, char **argv)
{
    const char *word = argv[optind - 1];
    char letter[3] = {'-', (char)optopt, 0};
    bool is_long = optopt == 0 || optopt >= FIRST_LONG;
    if (code == ':')
        command_usage("option '%s' needs a value", is_long ? word : letter);
    else if (is_long && optopt >= FIRST_LONG)
        command_usage("option '%s' takes no value", word);
    else if (is_long)
        unknown_option(options, word);
    else
        command_usage("unknown option '%s'", letter);
}

// The words of the usage after "quern " up to the command's own name.
static void remember_name(const char *usage, const char *own)
{
    const char *words = usage + strlen("quern "), *found = strstr(words, own);
    snprintf(command_name, sizeof command_name, "%.*s", found ? (int)(found - words + (ptrdiff_t)strlen(own)) : 0,
             words);
}

// The word of a long option that getopt took by its beginning: a script that has it would break when an option is added.
static const char *shortened(const struct option *found, char **argv)
{
    bool apart = found->has_arg == required_argument && optarg == argv[optind - 1];
    const char *word = argv[optind - 1 - apart];
    return strcspn(word + strlen("--"), "=") == strlen(found->name) ? NULL : word;
}

bool command_parse(const command_syntax *syntax, int *argc, char **argv, int *exit_status)
{
    struct option longs[MAX_OPTIONS + 2];
    char shorts[2 * MAX_OPTIONS + 4];
    bool given[MAX_OPTIONS] = {false};
    remember_name(syntax->usage, argv[0]);
    *exit_status = COMMAND_USAGE;
    if (option_count(syntax->options) > MAX_OPTIONS) return false;
    build_getopt(syntax->options, longs, shorts);
    opterr = 0;
    optind = 0; // a full reset in glibc and musl alike
    for (int code, at = -1; (code = getopt_long(*argc, argv, shorts, longs, &at)) != -1; at = -1) {
        const char *cut = at >= 0 ? shortened(&longs[at], argv) : NULL;
        if (cut) {
            unknown_option(syntax->options, cut);
            return false;
        }
        if (code == HELP) {
            print_help(syntax);
            *exit_status = COMMAND_OK;
            return false;
        }
        const command_option *option = code == '?' || code == ':' ? NULL : option_of(syntax->options, code);
        if (!option) {
            report_bad_option(syntax->options, code, argv);
            return false;
        }
        if (is_repeated(option, &given[option - syntax->options]) || !store_option(option, optarg)) return false;
    }
    int operands = *argc - optind;
    memmove(argv + 1, argv + optind, sizeof *argv * (size_t)operands);
    *argc = operands + 1;
    argv[*argc] = NULL;
    *exit_status = COMMAND_OK;
    return true;
}

// ---- sizes as options

size_t command_add_sizes(command_sizes *sizes, const char *value, const char *doc, command_option *options,
                         size_t count)
{
    size_t families;
    const qn_family *const *family = qn_families(&families);
    for (size_t f = 0; f < families; f++) {
        for (size_t i = 0; i < family[f]->size_count; i++) {
            const char *name = family[f]->sizes[i].name;
            size_t k = 0;
            while (k < sizes->count && strcmp(sizes->item[k].name, name) != 0) k++;
            if (k < sizes->count || k == COMMAND_MAX_SIZES) continue;
            sizes->item[sizes->count++].name = name;
            options[count++] = (command_option){name, 0, value, COMMAND_STRING, &sizes->item[k].text, 0, 0, doc};
        }
    }
    return count;
}

const char *command_size(const command_sizes *sizes, const char *name)
{
    for (size_t k = 0; k < sizes->count; k++)
        if (!strcmp(sizes->item[k].name, name)) return sizes->item[k].text;
    return NULL;
}

const char *command_next_place(const char *word, size_t length)
{
    return word[length] == ',' ? word + length + 1 : NULL;
}

int command_check_sizes(const command_sizes *sizes, const struct qn_family *const *families, size_t count)
{
    for (size_t k = 0; k < sizes->count; k++) {
        const char *name = sizes->item[k].name;
        bool known = !sizes->item[k].text;
        for (size_t f = 0; f < count && !known; f++)
            known = qn_field_find(families[f]->sizes, families[f]->size_count, name) != NULL;
        if (known) continue;
        qn_text theirs = QN_TEXT_INIT;
        for (size_t f = 0; f < count; f++)
            for (size_t i = 0; i < families[f]->size_count; i++)
                qn_text_putf(&theirs, "%s--%s", theirs.length ? ", " : "", families[f]->sizes[i].name);
        int status = command_usage("--%s: %s has no size of this name; it has %s", name, families[0]->name,
                                   qn_text_string(&theirs));
        qn_text_fini(&theirs);
        return status;
    }
    return COMMAND_OK;
}

// ---- the library

// Lines are "part,level,text"; people need the text.
void command_log(void *user, quern_log_level level, const char *line)
{
    const bool *verbose = user;
    if (verbose && *verbose) {
        command_note("%s", line);
    } else if (level <= QUERN_LOG_WARNING) {
        const char *text = strchr(line, ',');
        text = text ? strchr(text + 1, ',') : NULL;
        command_note("%s", text ? text + 1 : line);
    }
}

// The library would go on in memory, with a warning, when its database or the folder of it is not safe: who names the
// database wants to know before anything is compiled or put there.
quern_status command_check_place(const char *file)
{
    struct stat info;
    qn_text folder = QN_TEXT_INIT;
    qn_path_absolute(file, &folder);
    quern_status status = qn_text_check(&folder);
    if (status == QUERN_OK && !folder.length)
        status = qn_fail(QUERN_FILE_ERROR, "%s is relative and the working directory is not known", file);
    if (status == QUERN_OK) {
        char *slash = strrchr(folder.bytes, '/');
        slash[slash == folder.bytes] = 0;
        if (qn_file_exists(folder.bytes)) status = qn_directory_check(folder.bytes); // else the probe says it
        if (status == QUERN_OK) status = qn_file_check(file);
        if (status == QUERN_UNSAFE_PATH && !stat(file, &info) && info.st_uid != geteuid())
            qn_fail(status, "%s; to read a database that is not yours: QUERN_SEALED=%s", quern_message(), file);
    }
    qn_text_fini(&folder);
    return status;
}

// $QUERN_MODE, when it is one in which databases are written; a word that is none is quern_open's to refuse.
static bool is_normal_mode(void)
{
    const char *mode = qn_environment("QUERN_MODE", false);
    return !mode || !strcmp(mode, "normal");
}

static quern_status probe_database(const char *file, bool looks)
{
    if (looks && !qn_file_exists(file)) return qn_fail(QUERN_STORE_OPEN, "%s: there is no such database", file);
    QN_TRY(command_check_place(file));
    quern_store store;
    bool writes = !looks && is_normal_mode(); // else a database that is not there is not made
    if (!writes && !qn_file_exists(file)) return QUERN_OK;
    qn_sqlite_options options = {.file = file,
                                 .access = writes ? QN_SQLITE_READ_WRITE : QN_SQLITE_READ_ONLY,
                                 .busy_timeout_ms = 5000,
                                 .cap_bytes = -1};
    QN_TRY(qn_sqlite_open(&options, &store));
    quern_status status = qn_sqlite_probe(&store);
    qn_sqlite_close(&store);
    return status;
}

quern_status command_default_database(bool make, qn_text *file)
{
    qn_cache_directory(false, file);
    if (!file->length)
        return qn_fail(QUERN_UNSAFE_PATH,
                       "there is no cache folder (no home, no QUERN_CACHE_DIR); name a database with --db");
    QN_TRY(qn_text_check(file));
    QN_TRY(make ? qn_directory_prepare(file->bytes) : QUERN_OK);
    qn_text_puts(file, "/quern-v1.db");
    return qn_text_check(file);
}

static atomic_bool interrupted;

static void on_interrupt(int signal)
{
    (void)signal;
    atomic_store(&interrupted, true);
}

void command_catch_interrupt(void)
{
    struct sigaction action = {.sa_handler = on_interrupt, .sa_flags = (int)SA_RESETHAND};
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, NULL);
}

bool command_interrupted(void)
{
    return atomic_load(&interrupted);
}

int command_cancelled(void *user)
{
    (void)user;
    return command_interrupted();
}

quern_status command_open(const command_settings *settings, quern **q)
{
    static bool verbose; // outlives every quern of this process
    verbose = settings->verbose;
    quern_options options = QUERN_OPTIONS_INIT;
    options.cache_file = settings->db;
    options.compile_threads = settings->compile_threads;
    options.log = command_log;
    options.log_user = &verbose;
    options.cancel = settings->cancel;
    // A disk that is full or read-only is no fault of the database's: the library goes on, and says so.
    if (settings->looks && is_normal_mode()) options.mode = QUERN_MODE_READ_ONLY;
    quern_status status = settings->db && *settings->db ? probe_database(settings->db, settings->looks) : QUERN_OK;
    if (status != QUERN_OK && status != QUERN_STORE_FULL && status != QUERN_STORE_READ_ONLY) return status;
    return quern_open(&options, q);
}
