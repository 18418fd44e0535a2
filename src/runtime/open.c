// SPDX-License-Identifier: Apache-2.0
// quern_open, quern_close and the counters. Reads options and environment once, opens nothing: databases, NVRTC and the
// driver are opened by the first call that needs them.
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/nearest.h"
#include "base/path.h"
#include "runtime/private.h"

enum { DEFAULT_BUSY_MS = 5000, DEFAULT_FLIGHT_MS = 60000, DEFAULT_COMPILE_MS = 120000, MAX_COMPILE_THREADS = 1024 };
enum { DEFAULT_CAP_BYTES = 1 << 30 };
#define CACHE_NAME "quern-v1.db"

int64_t qn_now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

// ---- structures that grow

// A larger size is one that nobody set, nor is one without any member behind it, or that ends inside a word: each structure
// is aligned to 8 bytes.
enum { MAX_STRUCTURE = 65536 };

quern_status qn_check_sized(const char *what, const void *structure)
{
    size_t given;
    memcpy(&given, structure, sizeof given);
    if (given > sizeof given && given <= MAX_STRUCTURE && given % sizeof given == 0) return QUERN_OK;
    return qn_fail(QUERN_BAD_ARGUMENT, "%s: size = %zu is not a structure's: start from its INIT macro", what, given);
}

quern_status qn_take_sized(const char *what, const void *from, void *to, size_t bytes)
{
    size_t given;
    QN_TRY(qn_check_sized(what, from));
    memcpy(&given, from, sizeof given);
    for (size_t i = bytes; i < given; i++)
        if (((const unsigned char *)from)[i])
            return qn_fail(QUERN_BAD_ARGUMENT,
                           "%s: size = %zu, this library knows %zu bytes and a member beyond them is set: "
                           "use a newer library or leave it 0",
                           what, given, bytes);
    memcpy(to, from, given < bytes ? given : bytes);
    memcpy(to, &bytes, sizeof bytes);
    return QUERN_OK;
}

quern_status qn_copy_sized(const char *what, void *to, const void *from, size_t bytes)
{
    size_t given;
    QN_TRY(qn_check_sized(what, to));
    memcpy(&given, to, sizeof given);
    size_t count = given < bytes ? given : bytes;
    memcpy((char *)to + sizeof given, (const char *)from + sizeof given, count - sizeof given);
    return QUERN_OK;
}

// ---- options

static quern_status check_int(const char *name, int64_t value, int64_t min, int64_t max)
{
    if (value >= min && value <= max) return QUERN_OK;
    return qn_fail(QUERN_BAD_ARGUMENT, "options.%s = %lld: %lld … %lld is allowed", name, (long long)value,
                   (long long)min, (long long)max);
}

static quern_status check_options(const quern_options *o)
{
    QN_TRY(check_int("mode", o->mode, QUERN_MODE_DEFAULT, QUERN_MODE_OFF));
    QN_TRY(check_int("tuning", o->tuning, QUERN_TUNING_DEFAULT, QUERN_TUNING_OFF));
    QN_TRY(check_int("toolchain", o->toolchain, QUERN_TOOLCHAIN_ANY, QUERN_TOOLCHAIN_EXACT));
    QN_TRY(check_int("busy_timeout_ms", o->busy_timeout_ms, -1, INT_MAX));
    QN_TRY(check_int("flight_timeout_ms", o->flight_timeout_ms, -1, INT_MAX));
    QN_TRY(check_int("compile_timeout_ms", o->compile_timeout_ms, -1, INT_MAX));
    QN_TRY(check_int("compile_threads", o->compile_threads, 0, MAX_COMPILE_THREADS));
    QN_TRY(check_int("cache_cap_bytes", o->cache_cap_bytes, -1, INT64_MAX));
    QN_TRY(check_int("line_info", o->line_info, 0, 1));
    QN_TRY(check_int("allow_network_fs", o->allow_network_fs, 0, 1));
    QN_TRY(check_int("ignore_environment", o->ignore_environment, 0, 1));
    const quern_store *store = o->store;
    if (store && (!store->get || !store->put))
        return qn_fail(QUERN_MISSING_ARGUMENT, "options.store: get and put are needed");
    return QUERN_OK;
}

// An option's value, or that of the variable's word.
static quern_status word_of(const char *variable, bool ignore, const qn_name *names, int *value)
{
    qn_text allowed = QN_TEXT_INIT;
    qn_nearest nearest;
    const char *text = qn_environment(variable, ignore);
    if (*value) return QUERN_OK;
    *value = names[0].value;
    if (!text) return QUERN_OK;
    qn_nearest_init(&nearest, text, strlen(text));
    for (const qn_name *name = names; name->name; name++) {
        qn_nearest_offer(&nearest, name->name);
        qn_text_putf(&allowed, "%s%s", name == names ? "" : ", ", name->name);
        if (strcmp(text, name->name)) continue;
        *value = name->value;
        qn_text_fini(&allowed);
        return QUERN_OK;
    }
    quern_status status = qn_fail(QUERN_BAD_ARGUMENT, "$%s = \"%s\"%s: %s are allowed", variable, text,
                                  qn_nearest_hint(&nearest), qn_text_string(&allowed));
    qn_text_fini(&allowed);
    return status;
}

static quern_status read_modes(bool ignore, int *mode, int *tuning)
{
    static const qn_name modes[] = {{"normal", QUERN_MODE_NORMAL},
                                    {"read_only", QUERN_MODE_READ_ONLY},
                                    {"strict", QUERN_MODE_STRICT},
                                    {"off", QUERN_MODE_OFF},
                                    {NULL, 0}};
    static const qn_name tunings[] = {
        {"normal", QUERN_TUNING_NORMAL}, {"frozen", QUERN_TUNING_FROZEN}, {"off", QUERN_TUNING_OFF}, {NULL, 0}};
    QN_TRY(word_of("QUERN_MODE", ignore, modes, mode));
    return word_of("QUERN_TUNE", ignore, tunings, tuning);
}

static quern_status read_line_info(bool ignore, bool *wanted)
{
    const char *text = qn_environment("QUERN_LINE_INFO", ignore);
    if (text && strcmp(text, "0") && strcmp(text, "1"))
        return qn_fail(QUERN_BAD_ARGUMENT, "$QUERN_LINE_INFO = \"%s\": 0, 1 are allowed", text);
    *wanted = text && *text == '1';
    return QUERN_OK;
}

quern_status qn_check_variable(const char *name)
{
    bool lines;
    unsigned parts;
    int mode = !strcmp(name, "QUERN_MODE") ? 0 : QUERN_MODE_NORMAL;
    int tuning = !strcmp(name, "QUERN_TUNE") ? 0 : QUERN_TUNING_NORMAL;
    if (!strcmp(name, "QUERN_LOG")) return qn_log_parse_parts("$QUERN_LOG", qn_environment(name, false), &parts);
    if (!strcmp(name, "QUERN_LINE_INFO")) return read_line_info(false, &lines);
    return read_modes(false, &mode, &tuning);
}

static quern_status take_modes(quern *q, const quern_options *o)
{
    int mode = o->mode, tuning = o->tuning;
    QN_TRY(read_modes(o->ignore_environment, &mode, &tuning));
    q->mode = (quern_mode)mode, q->tuning = (quern_tuning)tuning;
    return QUERN_OK;
}

// A path that a later chdir does not change.
static quern_status take_path(const char *path, char **out)
{
    *out = NULL;
    if (!path || !*path) return QUERN_OK;
    qn_text text = QN_TEXT_INIT;
    qn_path_absolute(path, &text);
    quern_status status = qn_text_check(&text);
    if (status == QUERN_OK && !text.length)
        status = qn_fail(QUERN_FILE_ERROR, "\"%s\" is relative and the working directory is not known", path);
    if (status == QUERN_OK && !(*out = qn_strdup(text.bytes)))
        status = qn_fail(QUERN_OUT_OF_MEMORY, "out of memory: a path");
    qn_text_fini(&text);
    return status;
}

// A file to load: a bare name is for the loader's search, anything with a slash is a path.
static quern_status take_library(const char *file, const char *variable, bool ignore, char **out)
{
    if (!file && variable) file = qn_environment(variable, ignore);
    *out = NULL;
    if (!file || !*file) return QUERN_OK;
    if (strchr(file, '/')) return take_path(file, out);
    *out = qn_strdup(file);
    return *out ? QUERN_OK : qn_fail(QUERN_OUT_OF_MEMORY, "out of memory: a file name");
}

static quern_status too_long(size_t length)
{
    return qn_fail(QUERN_BAD_ARGUMENT, "sealed_files ($QUERN_SEALED): a path of %zu bytes: at most %d are allowed",
                   length, PATH_MAX - 1);
}

static quern_status take_sealed(quern *q, const char *list)
{
    while (list && *list) {
        size_t length = strcspn(list, ":");
        char one[PATH_MAX];
        if (length >= sizeof one) return too_long(length);
        if (length) {
            if (q->sealed_count == QN_MAX_SEALED)
                return qn_fail(
                    QUERN_BAD_ARGUMENT,
                    "sealed_files ($QUERN_SEALED): more than %d files; 'quern cache import' makes one of them",
                    QN_MAX_SEALED);
            memcpy(one, list, length);
            one[length] = 0;
            QN_TRY(take_path(one, &q->sealed[q->sealed_count]));
            q->sealed_count++;
        }
        list += length + (list[length] == ':');
    }
    return QUERN_OK;
}

static quern_status take_cache_file(quern *q, const quern_options *o)
{
    if (o->cache_file) return take_path(o->cache_file, &q->cache_file);
    qn_text directory = QN_TEXT_INIT;
    qn_cache_directory(o->ignore_environment, &directory);
    quern_status status = QUERN_OK;
    if (directory.length >= PATH_MAX) {
        qn_warn_once(q, QN_WARN_CACHE, "cache",
                     "the cache directory's name is too long (%zu bytes): kernels are kept in memory",
                     directory.length);
    } else if (directory.length) {
        qn_text_puts(&directory, "/" CACHE_NAME);
        status = qn_text_check(&directory);
        if (status == QUERN_OK) status = take_path(directory.bytes, &q->cache_file);
    } else if (!directory.failed) {
        qn_warn_once(
            q, QN_WARN_CACHE, "cache",
            "no cache directory ($QUERN_CACHE_DIR, $XDG_CACHE_HOME, the passwd home): kernels are kept in memory");
    }
    qn_text_fini(&directory);
    return status;
}

// The database that will be opened, or what is kept beside it: it need not be there yet.
static bool is_of_own_database(const quern_options *o, const char *file)
{
    qn_text database = QN_TEXT_INIT, absolute = QN_TEXT_INIT;
    if (o->store) return false;
    if (o->cache_file && *o->cache_file) qn_path_absolute(o->cache_file, &database);
    if (!o->cache_file) {
        qn_cache_directory(o->ignore_environment, &database);
        qn_text_puts(&database, "/" CACHE_NAME);
    }
    qn_path_absolute(file, &absolute);
    size_t length = qn_path_beside_database(qn_text_string(&absolute));
    if (!length) length = absolute.length;
    bool is = length && length == database.length && !memcmp(absolute.bytes, database.bytes, length);
    qn_text_fini(&database);
    qn_text_fini(&absolute);
    return is;
}

// Lines after a database's end would be read as a part of it; a journal goes away with what it was for.
static const char *unfit_as_log(const quern_options *o, const char *file)
{
    if (qn_file_is_database(file)) return "it is a database";
    if (qn_file_is_beside_database(file) || is_of_own_database(o, file)) return "it belongs to a database";
    return NULL;
}

// Lines go to standard error, as they would without a file, when the file cannot be opened: that stops nobody's service.
static void open_log_file(quern *q, const quern_options *o)
{
    const char *file = o->log_file ? o->log_file : qn_environment("QUERN_LOG_FILE", o->ignore_environment);
    q->sink.fd = STDERR_FILENO;
    if (!file || !*file) return;
    const char *unfit = unfit_as_log(o, file);
    // O_NONBLOCK: of a pipe that nobody reads it is an error then, not a wait without an end.
    int fd = unfit ? -1 : open(file, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NONBLOCK, 0600);
    if (fd >= 0) {
        (void)fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) & ~O_NONBLOCK);
        q->sink.fd = fd;
        return;
    }
    qn_log told = q->log;
    if (told.write) told.sink = NULL; // one of them is enough
    qn_log_line(&told, "dispatch", QUERN_LOG_WARNING, "log file '%s': %s: the log goes to standard error", file,
                unfit ? unfit : strerror(errno));
}

static quern_status take_log(quern *q, const quern_options *o)
{
    bool ignore = o->ignore_environment;
    const char *parts = o->log_parts ? o->log_parts : qn_environment("QUERN_LOG", ignore);
    QN_TRY(qn_log_parse_parts(o->log_parts ? "options.log_parts" : "$QUERN_LOG", parts, &q->sink.parts));
    q->log.sink = &q->sink;
    q->log_launch = q->sink.parts & 1u << QN_LOG_launch;
    if (q->sink.parts) open_log_file(q, o);
    return QUERN_OK;
}

static quern_status take_line_info(quern *q, const quern_options *o)
{
    bool wanted = false;
    QN_TRY(read_line_info(o->ignore_environment, &wanted));
    q->line_info = o->line_info || wanted;
    return QUERN_OK;
}

static quern_status take_options(quern *q, const quern_options *o)
{
    bool ignore = q->ignore_environment = o->ignore_environment;
    q->log.write = o->log, q->log.user = o->log_user;
    q->cancel = o->cancel, q->cancel_user = o->cancel_user;
    q->toolchain = o->toolchain;
    q->busy_timeout_ms = o->busy_timeout_ms ? o->busy_timeout_ms : DEFAULT_BUSY_MS;
    q->flight_timeout_ms = o->flight_timeout_ms ? o->flight_timeout_ms : DEFAULT_FLIGHT_MS;
    q->compile_timeout_ms = o->compile_timeout_ms ? o->compile_timeout_ms : DEFAULT_COMPILE_MS;
    q->compile_threads = o->compile_threads;
    q->cap_bytes = o->cache_cap_bytes ? o->cache_cap_bytes : DEFAULT_CAP_BYTES;
    q->allow_network_fs = o->allow_network_fs;
    q->nvtx = qn_nvtx_load(qn_environment("NVTX_INJECTION64_PATH", ignore));
    QN_TRY(take_log(q, o));
    QN_TRY(take_line_info(q, o));
    QN_TRY(take_modes(q, o));
    QN_TRY(take_library(o->nvrtc_file, "QUERN_NVRTC", ignore, &q->nvrtc_file));
    QN_TRY(take_library(o->driver_file, NULL, ignore, &q->driver_file));
    QN_TRY(take_path(o->dump_dir ? o->dump_dir : qn_environment("QUERN_DUMP", ignore), &q->dump_dir));
    QN_TRY(take_path(o->template_dir ? o->template_dir : qn_environment("QUERN_TEMPLATES", ignore), &q->template_dir));
    if (q->mode == QUERN_MODE_OFF) return QUERN_OK;
    QN_TRY(take_sealed(q, o->sealed_files ? o->sealed_files : qn_environment("QUERN_SEALED", ignore)));
    if (!o->store) return take_cache_file(q, o);
    q->has_custom_store = true;
    return qn_take_sized("options.store", o->store, &q->custom_store, sizeof q->custom_store);
}

// ---- open, close

static void free_settings(quern *q)
{
    free(q->cache_file);
    for (size_t i = 0; i < q->sealed_count; i++) free(q->sealed[i]);
    if (q->sink.fd > STDERR_FILENO) close(q->sink.fd);
    free(q->dump_dir);
    free(q->nvrtc_file);
    free(q->driver_file);
    free(q->template_dir);
    free(q);
}

quern_status quern_open(const quern_options *options, quern **out)
{
    if (!out) return qn_fail(QUERN_MISSING_ARGUMENT, "quern_open: out is NULL");
    quern_options full = QUERN_OPTIONS_INIT;
    if (options) QN_TRY(qn_take_sized("options", options, &full, sizeof full));
    QN_TRY(check_options(&full));
    quern *q = calloc(1, sizeof *q);
    if (!q) return qn_fail(QUERN_OUT_OF_MEMORY, "out of memory: quern_open needs %zu bytes", sizeof *q);
    atomic_init(&q->references, 1);
    q->sink.fd = -1;
    quern_status status = take_options(q, &full);
    if (status != QUERN_OK) {
        free_settings(q);
        return status;
    }
    *out = q;
    return QUERN_OK;
}

void qn_quern_retain(quern *q)
{
    atomic_fetch_add_explicit(&q->references, 1, memory_order_relaxed);
}

void qn_quern_retain_hit(quern *q)
{
    const uint64_t hit = (uint64_t)1 << QN_HIT_BIT, most = UINT64_MAX >> QN_HIT_BIT;
    uint64_t before = atomic_fetch_add_explicit(&q->references, hit + 1, memory_order_relaxed);
    if (__builtin_expect(before >> QN_HIT_BIT == most, 0)) QN_TALLY(q, hit_table, most + 1);
}

static void free_op(void *op)
{
    qn_op_free(op);
}

static void keep_op(void *op)
{
    (void)op; // the table's
}

void qn_quern_release(quern *q)
{
    if (QN_REFERENCES(atomic_fetch_sub_explicit(&q->references, 1, memory_order_acq_rel)) != 1) return;
    qn_process *process = atomic_load_explicit(&q->process, memory_order_acquire);
    if (process && process->pid == getpid()) qn_entry_unload_all(q);
    qn_table_fini(&q->aliases, keep_op);
    qn_table_fini(&q->table, free_op);
    for (size_t i = 0; i < QN_MEMORY_LISTS; i++)
        for (qn_entry *entry = atomic_load(&q->entries[i]), *next; entry; entry = next) {
            next = entry->next;
            qn_entry_free(entry);
        }
    if (process) qn_process_free(q, process);
    free_settings(q);
}

void quern_close(quern *q)
{
    if (!q) return;
    qn_log_end(&q->log); // the callback's user may go away with this call
    qn_quern_release(q);
}

// ---- log, counters

void qn_warn_once(quern *q, qn_warning kind, const char *part, const char *format, ...)
{
    if (!qn_log_wants(&q->log, part)) return;
    char text[QN_MESSAGE_BYTES];
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    bool again = atomic_exchange(&q->warned[kind], true);
    qn_log_line(&q->log, part, again ? QUERN_LOG_DEBUG : QUERN_LOG_WARNING, "%s", text);
}

void quern_get_counters(const quern *q, quern_counters *counters)
{
    if (!q || !counters) return;
#define COUNT(name) atomic_load_explicit(&q->tally.name, memory_order_relaxed)
    uint64_t hits = COUNT(hit_table) + (atomic_load_explicit(&q->references, memory_order_relaxed) >> QN_HIT_BIT);
    quern_counters now = {
        sizeof now,
        hits,
        COUNT(hit_memory),
        COUNT(hit_sealed),
        COUNT(hit_user),
        COUNT(miss),
        COUNT(compiled),
        COUNT(compile_us),
        COUNT(put_failed),
        COUNT(get_failed),
        COUNT(bad_rows),
        COUNT(flight_waits),
        COUNT(flight_timeouts),
        COUNT(miss_absent),
        COUNT(miss_damaged),
        COUNT(miss_failed),
        COUNT(miss_refused),
        COUNT(miss_no_store),
        COUNT(would_compile),
        COUNT(compile_failed),
        COUNT(bytes_found),
        COUNT(bytes_compiled),
        COUNT(bytes_stored),
    };
#undef COUNT
    qn_copy_sized("counters", counters, &now, sizeof now); // without INIT it stays as it is, and the message says so
}
