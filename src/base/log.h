// SPDX-License-Identifier: Apache-2.0
// Log lines, "part,level,text": to the caller's callback, and to a file or standard error for the parts that $QUERN_LOG
// names. An event's text is words of fixed form: "hit tier=user arch=sm_90a … spec="softmax_topk V=…"", the spec last.
#ifndef QN_BASE_LOG_H
#define QN_BASE_LOG_H

#include <stdbool.h>

#include "base/status.h"

#define QN_LOG_PART_LIST(X) X(compile) X(cache) X(dispatch) X(load) X(launch)

typedef enum qn_log_part {
#define X(name) QN_LOG_##name,
    QN_LOG_PART_LIST(X)
#undef X
} qn_log_part;

typedef struct qn_sink {
    int fd;         // -1: none
    unsigned parts; // 1 << qn_log_part
    bool failed;    // a line could not be written, which was told once; set and read atomically
} qn_sink;

typedef struct qn_log {
    quern_log_fn write; // NULL: no callback
    void *user;
    qn_sink *sink; // NULL: none. Without both nothing is formatted
} qn_log;

// "compile,cache", "all", "": BAD_ARGUMENT names the word that is no part, and the parts; who says where the list is from.
quern_status qn_log_parse_parts(const char *who, const char *list, unsigned *parts);

void qn_log_end(qn_log *log); // no callback from now on; other threads may be logging

// Whether anybody would see a line of this part.
bool qn_log_wants(const qn_log *log, const char *part);

void qn_log_line(const qn_log *log, const char *part, quern_log_level level, const char *format, ...) QN_PRINTF(4, 5);

#endif
