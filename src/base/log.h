// SPDX-License-Identifier: Apache-2.0
// Log lines go to the caller's callback and nowhere else: "part,level,text", one line.
#ifndef QN_BASE_LOG_H
#define QN_BASE_LOG_H

#include "base/status.h"

typedef struct qn_log {
    quern_log_fn write; // NULL: nobody listens, and nothing is formatted
    void *user;
} qn_log;

void qn_log_line(const qn_log *log, const char *part, quern_log_level level, const char *format, ...) QN_PRINTF(4, 5);

#endif
