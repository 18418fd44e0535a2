// SPDX-License-Identifier: Apache-2.0
// Log lines: formatted once, given to the caller's callback and written to the sink. Called by runtime, cache and tune.
// A sink's line is one write, so that lines of many threads and processes do not mix:
//
//     quern,<seconds since 1970>.<microseconds>,<process>,part,level,text
#include "base/log.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/nearest.h"
#include "base/text.h"
#include "base/write.h"

static const char *const part_names[] = {
#define X(name) #name,
    QN_LOG_PART_LIST(X)
#undef X
};

static const char *level_name(quern_log_level level)
{
    switch (level) {
    case QUERN_LOG_ERROR:
        return "error";
    case QUERN_LOG_WARNING:
        return "warning";
    case QUERN_LOG_INFO:
        return "info";
    case QUERN_LOG_DEBUG:
        return "debug";
    }
    return "unknown";
}

static quern_status add_part(const char *who, const char *word, size_t length, unsigned *parts)
{
    if (length == 3 && !strncmp(word, "all", length)) {
        *parts |= (1u << QN_COUNT(part_names)) - 1;
        return QUERN_OK;
    }
    for (size_t i = 0; i < QN_COUNT(part_names); i++) {
        if (strlen(part_names[i]) != length || strncmp(word, part_names[i], length)) continue;
        *parts |= 1u << i;
        return QUERN_OK;
    }
    qn_nearest nearest;
    qn_nearest_init(&nearest, word, length);
    for (size_t i = 0; i < QN_COUNT(part_names); i++) qn_nearest_offer(&nearest, part_names[i]);
    return qn_fail(QUERN_BAD_ARGUMENT,
                   "%s: \"%.*s\" is no part of the log%s: compile, cache, dispatch, load, launch and all are allowed, "
                   "between commas",
                   who, (int)length, word, qn_nearest_hint(&nearest));
}

quern_status qn_log_parse_parts(const char *who, const char *list, unsigned *parts)
{
    unsigned found = 0;

    while (list && *list) {
        size_t length = strcspn(list, ",");
        if (length) QN_TRY(add_part(who, list, length, &found));
        list += length + (list[length] == ',');
    }
    *parts = found;
    return QUERN_OK;
}

static bool is_for_sink(const qn_log *log, const char *part)
{
    if (!log->sink || log->sink->fd < 0) return false;
    for (size_t i = 0; i < QN_COUNT(part_names); i++) {
        if (log->sink->parts & 1u << i && !strcmp(part, part_names[i])) return true;
    }
    return false;
}

static quern_log_fn callback_of(const qn_log *log)
{
    return __atomic_load_n(&log->write, __ATOMIC_RELAXED);
}

void qn_log_end(qn_log *log)
{
    __atomic_store_n(&log->write, (quern_log_fn)NULL, __ATOMIC_RELAXED);
}

bool qn_log_wants(const qn_log *log, const char *part)
{
    return log && (callback_of(log) || is_for_sink(log, part));
}

static bool write_line(int fd, const char *line)
{
    char whole[QN_MESSAGE_BYTES + 64];
    struct timespec now;

    clock_gettime(CLOCK_REALTIME, &now);
    int length = snprintf(whole, sizeof whole, "quern,%lld.%06ld,%ld,%s\n", (long long)now.tv_sec, now.tv_nsec / 1000,
                          (long)getpid(), line);
    return length <= 0 || (size_t)length >= sizeof whole || qn_write_all(fd, whole, (size_t)length);
}

// A file that is full, or gone, is told once, to the callback if there is one; its lines go to standard error, as those
// of a file that could not be opened. What standard error does not take is lost: there is nobody to tell.
static void write_to_sink(const qn_log *log, const char *line)
{
    char told[256];
    int error = errno;

    if (!write_line(log->sink->fd, line) && log->sink->fd != STDERR_FILENO) {
        snprintf(told, sizeof told, "dispatch,warning,log file: %s: the log goes to standard error", strerror(errno));
        quern_log_fn write = callback_of(log);
        bool again = __atomic_exchange_n(&log->sink->failed, true, __ATOMIC_RELAXED);
        if (!again && write)
            write(log->user, QUERN_LOG_WARNING, told);
        else if (!again)
            write_line(STDERR_FILENO, told);
        write_line(STDERR_FILENO, line);
    }
    errno = error;
}

void qn_log_line(const qn_log *log, const char *part, quern_log_level level, const char *format, ...)
{
    char line[QN_MESSAGE_BYTES];
    va_list arguments;

    if (!qn_log_wants(log, part)) return;
    int used = snprintf(line, sizeof line, "%s,%s,", part, level_name(level));
    if (used < 0 || (size_t)used >= sizeof line) return;
    va_start(arguments, format);
    vsnprintf(line + used, sizeof line - (size_t)used, format, arguments);
    va_end(arguments);
    // Messages may have several lines (paths tried, a compiler's log); a log line has one.
    for (char *at = line; *at; at++) {
        if (*at == '\n' || *at == '\r') *at = ' ';
    }
    qn_make_printable(line);
    if (is_for_sink(log, part)) write_to_sink(log, line);
    quern_log_fn write = callback_of(log);
    if (write) write(log->user, level, line);
}
