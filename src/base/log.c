// SPDX-License-Identifier: Apache-2.0
// Log lines: one formatted line to the caller's callback. Called by runtime, cache and tune; prints nothing itself.
#include "base/log.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

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

void qn_log_line(const qn_log *log, const char *part, quern_log_level level, const char *format, ...)
{
    char line[QN_MESSAGE_BYTES];
    va_list arguments;

    if (!log || !log->write) return;
    int used = snprintf(line, sizeof line, "%s,%s,", part, level_name(level));
    if (used < 0 || (size_t)used >= sizeof line) return;
    va_start(arguments, format);
    vsnprintf(line + used, sizeof line - (size_t)used, format, arguments);
    va_end(arguments);
    // Messages may have several lines (paths tried, a compiler's log); a log line has one.
    for (char *at = line; *at; at++) {
        if (*at == '\n' || *at == '\r') *at = ' ';
    }
    log->write(log->user, level, line);
}
