// SPDX-License-Identifier: Apache-2.0
// `quern doctor`: for every part that Quern uses, what was found, where, its version, and what to do about what is
// missing. Changes nothing. Exit status 1 when something is broken; what is merely absent is not.
#include <errno.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/nearest.h"
#include "base/path.h"
#include "cache/store.h"
#include "codegen/source.h"
#include "command.h"
#include "cuda/nvrtc.h"
#include "device.h"
#include "model.h"
#include "model_files.h"
#include "places.h"
#include "runtime/runtime.h"
#include "table.h"

typedef struct doctor {
    const char *db; // --db
    table *parts;
    bool broken;
} doctor;

static const char text[] =
    "States: ok; none: not there, and what to do if it is wanted; bad: there and unusable. Changes nothing.\n";

static const table_column columns[] = {
    {"part", "part", TABLE_TEXT, 0},
    {"state", "state", TABLE_TEXT, 0},
    {"found", "found", TABLE_TEXT, 0},
    {NULL, "advice", TABLE_TEXT, 0},
};

static void say(doctor *d, const char *part, const char *state, const char *advice, const char *format, ...)
    QN_PRINTF(5, 6);
static void say(doctor *d, const char *part, const char *state, const char *advice, const char *format, ...)
{
    char found[2048];
    va_list list;
    va_start(list, format);
    vsnprintf(found, sizeof found, format, list);
    va_end(list);
    table_add(d->parts, part, state, found, advice);
    d->broken = d->broken || strcmp(state, "bad") == 0;
}

// ---- driver and devices

static void look_at_device(doctor *d, int ordinal)
{
    device g;
    const qn_arch *targets[8];
    char part[24];
    snprintf(part, sizeof part, "gpu:%d", ordinal);
    if (device_look(ordinal, &g) != QUERN_OK) {
        say(d, part, "bad", "see the driver's log (dmesg)", "%s", quern_message());
        return;
    }
    size_t count = qn_arch_targets(g.cc, targets);
    qn_text names = QN_TEXT_INIT;
    for (size_t i = 0; i < count; i++) qn_text_putf(&names, "%s%s", i ? ", " : "", targets[i]->name);
    say(d, part, count ? "ok" : "none", count ? NULL : "Quern has no plans for this device",
        "%s, compute capability %d.%d, %d SMs, %lld GiB, L2 %lld MiB, served by %s", g.name, g.cc / 10, g.cc % 10,
        g.sm_count, (long long)(g.memory_bytes >> 30), (long long)(g.l2_bytes >> 20),
        count ? qn_text_string(&names) : "no target");
    qn_text_fini(&names);
}

static void look_at_driver(doctor *d)
{
    const qn_driver *driver;
    int version = 0, count = 0;
    quern_status status = qn_driver_load(NULL, &driver);
    if (status != QUERN_OK) {
        const char *advice =
            status == QUERN_DRIVER_NOT_FOUND
                ? "only launches need it: install the NVIDIA driver, or pass its libcuda.so.1 into the container"
                : "only launches need it: is the driver loaded (nvidia-smi), is a GPU given to this container?";
        say(d, "driver", status == QUERN_DRIVER_TOO_OLD ? "bad" : "none", advice, "%s", quern_message());
        return;
    }
    (void)driver->cuDriverGetVersion(&version);
    say(d, "driver", "ok", NULL, "%s, for CUDA %d.%d", qn_driver_path(), version / 1000, version % 1000 / 10);
    if (device_count(&count) != QUERN_OK) say(d, "gpu", "none", "only launches need one", "%s", quern_message());
    for (int i = 0; i < count; i++) look_at_device(d, i);
}

// ---- NVRTC

static void list_targets(const qn_nvrtc *nvrtc, bool known, qn_text *names)
{
    size_t count;
    const qn_arch *archs = qn_arch_list(&count);
    for (size_t i = 0; i < count; i++)
        if (qn_nvrtc_has_arch(nvrtc, &archs[i]) == known)
            qn_text_putf(names, "%s%s", names->length ? ", " : "", archs[i].name);
}

static void look_at_builtins(doctor *d, const qn_nvrtc *nvrtc)
{
    glob_t found;
    char pattern[600];
    const char *slash = strrchr(nvrtc->path, '/');
    snprintf(pattern, sizeof pattern, "%.*s/libnvrtc-builtins.so*", slash ? (int)(slash - nvrtc->path) : 0,
             nvrtc->path);
    if (slash && glob(pattern, 0, NULL, &found) == 0) {
        say(d, "builtins", "ok", NULL, "%s", found.gl_pathv[found.gl_pathc - 1]);
        globfree(&found);
    } else {
        say(d, "builtins", "none", "NVRTC needs libnvrtc-builtins beside it or on the loader's path",
            "no libnvrtc-builtins beside %s", nvrtc->path);
    }
}

// Whether it really compiles: a library without its builtins is found and fails here.
static void try_compile(doctor *d, const qn_nvrtc *nvrtc)
{
    static const char *const options[] = {"--gpu-architecture=sm_90a"};
    const qn_compile request = {.source = "extern \"C\" __global__ void quern_doctor(int *p) { *p = 1; }\n",
                                .name = "doctor.cu",
                                .options = options,
                                .option_count = QN_COUNT(options),
                                .timeout_ms = 60000};
    qn_compiled compiled = {0};
    if (qn_nvrtc_compile(nvrtc, &request, &compiled) == QUERN_OK)
        say(d, "compile", "ok", NULL, "a small kernel for sm_90a in %lld ms", (long long)(compiled.compile_us / 1000));
    else
        say(d, "compile", "bad", "install NVRTC anew, with the builtins of its own version", "%s", quern_message());
    qn_compiled_fini(&compiled);
}

static void look_at_nvrtc(doctor *d)
{
    const qn_nvrtc *nvrtc;
    qn_text known = QN_TEXT_INIT, unknown = QN_TEXT_INIT;
    const char *named = qn_environment("QUERN_NVRTC", false);
    if (qn_nvrtc_load(named, false, &nvrtc) != QUERN_OK) {
        say(d, "nvrtc", named ? "bad" : "none",
            named
                ? "QUERN_NVRTC names no NVRTC that can be loaded: let it name libnvrtc.so.12 or .13, or unset it, and "
                  "the usual places are searched"
                : "only compiling needs it: install a CUDA toolkit or the wheel nvidia-cuda-nvrtc, or set QUERN_NVRTC",
            "%s", quern_message());
        return;
    }
    say(d, "nvrtc", "ok", NULL, "%s, %s", nvrtc->path, nvrtc->identity);
    look_at_builtins(d, nvrtc);
    try_compile(d, nvrtc);
    list_targets(nvrtc, true, &known);
    list_targets(nvrtc, false, &unknown);
    say(d, "targets", known.length ? "ok" : "bad", unknown.length ? "a newer NVRTC compiles for the others" : NULL,
        "compiles for %s%s%s", known.length ? qn_text_string(&known) : "none of Quern's targets",
        unknown.length ? "; not for " : "", qn_text_string(&unknown));
    qn_text_fini(&known);
    qn_text_fini(&unknown);
}

// ---- the cache

static const char *directory_source(void)
{
    if (qn_environment("QUERN_CACHE_DIR", false)) return "QUERN_CACHE_DIR";
    const char *xdg = qn_environment("XDG_CACHE_HOME", false);
    return xdg && xdg[0] == '/' ? "XDG_CACHE_HOME" : "the home directory";
}

static void look_at_space(doctor *d, const char *directory)
{
    char existing[4096];
    struct statvfs fs;
    const char *kind;
    places_nearest(directory, existing, sizeof existing);
    if (statvfs(existing, &fs) != 0) {
        say(d, "free space", "bad", NULL, "%s: %s", existing, strerror(errno));
        return;
    }
    long long free_mib = (long long)((double)fs.f_bavail * (double)fs.f_frsize / 1048576);
    say(d, "free space", free_mib < 16 ? "bad" : "ok",
        free_mib >= 16 ? NULL
        : d->db        ? "without space kernels are kept in memory only: free some, or name a file elsewhere"
                       : "without space kernels are kept in memory only: free some, or set QUERN_CACHE_DIR",
        "%lld MiB for %s", free_mib, existing);
    if (qn_is_network_fs(existing, &kind))
        say(d, "file system", "none",
            d->db ? "a database here is read and not written: name a file in a local folder"
                  : "a database here is read and not written: set QUERN_CACHE_DIR to a local folder",
            "%s is on %s", existing, kind);
    else
        say(d, "file system", "ok", NULL, "local");
}

// file: the database, whose folder this is. One that is there is read where nothing can be written.
static void look_at_directory(doctor *d, const char *directory, const char *file)
{
    struct stat info;
    const char *source = d->db ? "--db" : directory_source();
    bool exists = lstat(directory, &info) == 0 || errno != ENOENT;
    if (!exists && d->db) {
        say(d, "cache folder", "bad", "make it: a database's own folder is not made", "%s (from --db) does not exist",
            directory);
        return;
    }
    const char *elsewhere = d->db ? "name a database elsewhere"
                                  : "until then kernels are kept in memory only; QUERN_CACHE_DIR names another folder";
    if (qn_sqlite_check_path(file) != QUERN_OK) {
        say(d, "cache folder", "bad", elsewhere, "from %s: %s", source, quern_message());
        return;
    }
    bool safe = exists && qn_directory_check(directory) == QUERN_OK;
    if (places_check_cache(directory) == QUERN_OK && exists)
        say(d, "cache folder", "ok", NULL, "%s (from %s), mode %04o", directory, source, info.st_mode & 07777u);
    else if (!exists && places_check_cache(directory) == QUERN_OK)
        say(d, "cache folder", "ok", NULL, "%s (from %s), made when it is first needed", directory, source);
    else if (safe && qn_file_exists(file))
        say(d, "cache folder", "none", "what its database has is used, and no kernel is kept", "%s", quern_message());
    else
        say(d, "cache folder", "bad", elsewhere, "%s (from %s): %s", directory, source, quern_message());
}

static void look_at_database(doctor *d, const char *part, const char *file)
{
    quern_store store;
    qn_sqlite_info info;
    const qn_sqlite_options options = {
        .file = file, .access = QN_SQLITE_READ_ONLY, .busy_timeout_ms = 1000, .cap_bytes = -1};
    if (!qn_file_exists(file)) {
        say(d, part, "none", "made when the first kernel is kept ('quern warm')", "%s", file);
        return;
    }
    quern_status status = qn_sqlite_open(&options, &store);
    if (status == QUERN_OK) {
        status = qn_sqlite_probe(&store);
        if (status == QUERN_OK) status = qn_sqlite_get_info(&store, &info);
        qn_sqlite_close(&store);
    }
    if (status == QUERN_OK)
        say(d, part, "ok", NULL, "%s: %lld kernel%s, %.1f MiB, schema %d%s%s", file, (long long)info.entries,
            info.entries == 1 ? "" : "s", (double)info.file_bytes / 1048576, info.schema, info.sealed ? ", sealed" : "",
            !info.sealed && access(file, W_OK) != 0 ? ", read-only" : "");
    else
        say(d, part, "bad", "'quern cache verify' says more, 'quern cache repair' sets a damaged file aside", "%s",
            quern_message());
}

static void look_at_sealed(doctor *d)
{
    const char *list = qn_environment("QUERN_SEALED", false);
    while (list && *list) {
        char file[4096];
        size_t length = strcspn(list, ":");
        snprintf(file, sizeof file, "%.*s", (int)length, list);
        if (length && qn_file_exists(file))
            look_at_database(d, "sealed", file);
        else if (length)
            say(d, "sealed", "bad", "QUERN_SEALED names it", "%s does not exist", file);
        list += length + (list[length] == ':');
    }
}

// The folder of a file.
static void folder_of(const char *file, qn_text *folder)
{
    qn_path_absolute(file, folder);
    char *slash = folder->length ? strrchr(folder->bytes, '/') : NULL;
    if (!slash) return;
    slash[slash == folder->bytes] = 0;
    folder->length = strlen(folder->bytes);
}

static void look_at_cache(doctor *d)
{
    qn_text directory = QN_TEXT_INIT, file = QN_TEXT_INIT;
    if (d->db && !*d->db) {
        say(d, "database", "none", NULL, "--db '' keeps kernels in memory only");
        look_at_sealed(d);
        return;
    }
    if (d->db)
        folder_of(d->db, &directory);
    else
        qn_cache_directory(false, &directory);
    qn_text_putf(&file, "%s/quern-v1.db", qn_text_string(&directory));
    const char *database = d->db ? d->db : qn_text_string(&file);
    if (!directory.length) {
        say(d, "cache folder", "none", "kernels are kept in memory only: set QUERN_CACHE_DIR", "no home directory");
    } else {
        look_at_directory(d, qn_text_string(&directory), database);
        look_at_space(d, qn_text_string(&directory));
    }
    if (d->db || directory.length) look_at_database(d, "database", database);
    look_at_sealed(d);
    qn_text_fini(&directory);
    qn_text_fini(&file);
}

// ---- the rest

static size_t count_templates(const char *folder)
{
    size_t found = 0;
    for (size_t i = 0; i < qn_template_count; i++) {
        qn_text file = QN_TEXT_INIT;
        qn_text_putf(&file, "%s/%s", folder, qn_templates[i].path);
        found += !file.failed && !access(qn_text_string(&file), R_OK);
        qn_text_fini(&file);
    }
    return found;
}

static void look_at_templates(doctor *d)
{
    const char *folder = qn_environment("QUERN_TEMPLATES", false);
    struct stat info;
    if (!folder) {
        say(d, "templates", qn_template_count ? "ok" : "bad", NULL, "%zu, embedded", qn_template_count);
        return;
    }
    bool is_folder = stat(folder, &info) == 0 && S_ISDIR(info.st_mode);
    size_t found = is_folder ? count_templates(folder) : 0;
    if (found)
        say(d, "templates", "ok", NULL, "%zu in %s, in place of the %zu embedded ones", found, folder,
            qn_template_count);
    else
        say(d, "templates", "bad", "unset QUERN_TEMPLATES, or name a folder like kernel_templates",
            is_folder ? "%s has no template" : "%s is no folder", folder);
}

// A program on the PATH; false when there is none.
static bool find_program(const char *name, char *out, size_t bytes)
{
    const char *path = qn_environment("PATH", false);
    while (path && *path) {
        size_t length = strcspn(path, ":");
        snprintf(out, bytes, "%.*s/%s", (int)length, path, name);
        if (length && access(out, X_OK) == 0) return true;
        path += length + (path[length] == ':');
    }
    return false;
}

// The first line with a word in it that a shell command writes; false: there is none, or the command failed.
static bool first_line(const char *command, char *line, size_t bytes)
{
    char next[200];
    FILE *answer = popen(command, "r");
    *line = 0;
    while (answer && fgets(next, sizeof next, answer))
        if (!*line && next[strspn(next, " \r\n")]) snprintf(line, bytes, "%.*s", (int)strcspn(next, "\r\n"), next);
    return answer && !pclose(answer) && *line;
}

// Other programs have a --version too: the language that it preprocesses tells a compiler of C++17 from them.
static bool is_compiler(const char *words, char *version, size_t bytes)
{
    char command[300], standard[200];
    snprintf(command, sizeof command, "echo __cplusplus | %s -std=c++17 -x c++ -E -P - 2>/dev/null", words);
    if (!first_line(command, standard, sizeof standard) || strtol(standard, NULL, 10) < 201703) return false;
    snprintf(command, sizeof command, "%s --version 2>/dev/null", words);
    return first_line(command, version, bytes);
}

// As the model looks for one: $CXX, perhaps of several words, and nothing else if it is set.
static void look_at_compiler(doctor *d)
{
    static const char *const names[] = {"g++", "clang++", "c++"};
    const char *named = qn_environment("CXX", false);
    char program[4096], version[200];
    if (named) {
        if (is_compiler("$CXX", version, sizeof version))
            say(d, "C++ compiler", "ok", NULL, "%s (from CXX), %s", named, version);
        else
            say(d, "C++ compiler", "bad", "only 'quern run --device model' needs it: let CXX name one, or unset it",
                "%s (from CXX) is no compiler of C++17 that can be run", named);
        return;
    }
    for (size_t i = 0; i < QN_COUNT(names); i++) {
        if (!find_program(names[i], program, sizeof program) || !is_compiler(names[i], version, sizeof version))
            continue;
        say(d, "C++ compiler", "ok", NULL, "%s, %s", program, version);
        return;
    }
    say(d, "C++ compiler", "none", "only 'quern run --device model' needs it: install g++ or clang++",
        "none of g++, clang++, c++ is a compiler of C++17");
}

// What `quern run --device model` compiled.
static void look_at_model(doctor *d)
{
    qn_text folder = QN_TEXT_INIT;
    qn_cache_directory(false, &folder);
    bool usable = folder.length && places_check_cache(qn_text_string(&folder)) == QUERN_OK;
    qn_text_puts(&folder, "/model");
    double mib = usable ? (double)model_files_bytes(qn_text_string(&folder)) / 1048576 : 0;
    if (usable && mib <= MODEL_CACHE_MIB)
        say(d, "model cache", "ok", NULL, "%s: %.1f MiB of at most %d (the longest unused goes first)",
            qn_text_string(&folder), mib, MODEL_CACHE_MIB);
    else if (usable)
        say(d, "model cache", "ok",
            "the next 'quern run --device model' takes away what is beyond, when it ends, but nothing of the last ten "
            "minutes; the folder may be removed too",
            "%s: %.1f MiB, more than the %d that stay", qn_text_string(&folder), mib, MODEL_CACHE_MIB);
    else
        say(d, "model cache", "none", "'quern run --device model' compiles its engine anew each time",
            "no cache folder that is safe and takes files: a temporary one is used");
    qn_text_fini(&folder);
}

// A name that nothing reads changes nothing, which a misspelt one is not meant to.
static void look_at_unknown(doctor *d, const char *name)
{
    const size_t prefix = strlen("QUERN_");
    char advice[160];
    qn_nearest nearest;
    qn_nearest_init(&nearest, name + prefix, strlen(name + prefix));
    for (const char *const *known = qn_environment_names; *known; known++)
        if (!strncmp(*known, "QUERN_", prefix)) qn_nearest_offer(&nearest, *known + prefix);
    if (nearest.name) snprintf(advice, sizeof advice, "did you mean QUERN_%s?", nearest.name);
    say(d, "environment", nearest.name ? "bad" : "none", nearest.name ? advice : NULL,
        "%s: neither the library nor the command reads it", name);
}

static quern_status check_variable(const char *name, const char *value, const char **advice)
{
    quern_status status = QUERN_OK;
    *advice = "let it name another place, or unset it";
    if (!strcmp(name, "QUERN_DUMP")) status = places_check_folder(value);
    if (!strcmp(name, "QUERN_LOG_FILE")) status = places_check_file(value);
    if (status != QUERN_OK) return qn_fail_in(status, "$%s", name);
    *advice = "set it to these words, or unset it";
    if (!strcmp(name, "QUERN_MODEL")) return model_check_variable();
    *advice = "set it to one of these words, or unset it: every other command refuses it";
    return qn_check_variable(name);
}

static void look_at_environment(doctor *d)
{
    char unknown[256];
    size_t at = 0;
    for (const char *const *name = qn_environment_names; *name; name++) {
        const char *value = qn_environment(*name, false);
        if (!value) continue;
        const char *advice;
        if (check_variable(*name, value, &advice) == QUERN_OK)
            say(d, "environment", "ok", NULL, "%s=%s", *name, value);
        else
            say(d, "environment", "bad", advice, "%s", quern_message());
    }
    while (qn_environment_unknown(&at, unknown, sizeof unknown)) look_at_unknown(d, unknown);
}

// Part by part, since a message of several lines and advice do not fit into columns.
static void print_parts(const doctor *d)
{
    cJSON *parts = table_json(d->parts), *part;
    cJSON_ArrayForEach(part, parts)
    {
        const char *found = cJSON_GetStringValue(cJSON_GetObjectItem(part, "found"));
        const char *advice = cJSON_GetStringValue(cJSON_GetObjectItem(part, "advice"));
        command_print("%-12s  %-4s  ", cJSON_GetStringValue(cJSON_GetObjectItem(part, "part")),
                      cJSON_GetStringValue(cJSON_GetObjectItem(part, "state")));
        for (const char *line = found; line; line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL)
            command_print("%s%.*s\n", line == found ? "" : "                    ", (int)strcspn(line, "\n"), line);
        if (advice) command_print("                    -> %s\n", advice);
    }
    cJSON_Delete(parts);
}

int command_doctor(int argc, char **argv)
{
    doctor d = {0};
    bool json = false;
    const command_option options[] = {COMMAND_OPTION_DB(&d.db), COMMAND_OPTION_JSON(&json), COMMAND_OPTION_END};
    const command_syntax syntax = {"quern doctor [options]", text, options};
    int exit_status;
    if (!command_parse(&syntax, &argc, argv, &exit_status)) return exit_status;
    if (argc > 1) return command_usage("unexpected operand '%s'", argv[1]);
    d.parts = table_create(columns, QN_COUNT(columns));
    say(&d, "quern", "ok", NULL, "version %s", quern_version());
    look_at_driver(&d);
    look_at_nvrtc(&d);
    look_at_cache(&d);
    look_at_templates(&d);
    look_at_compiler(&d);
    look_at_model(&d);
    look_at_environment(&d);
    if (json) {
        cJSON *document = cJSON_CreateObject();
        cJSON_AddItemToObject(document, "parts", table_json(d.parts));
        cJSON_AddBoolToObject(document, "broken", d.broken);
        json_print(document);
    } else {
        print_parts(&d);
    }
    table_destroy(d.parts);
    return d.broken ? command_fail("something is broken: see the parts marked bad") : COMMAND_OK;
}
