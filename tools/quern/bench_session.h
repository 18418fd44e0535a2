// SPDX-License-Identifier: Apache-2.0
// A bench whose report is one table, from its options to its end: gate, router, attention, indexer. bench_softmax_topk.c
// has a report of another form.
#ifndef QUERN_TOOLS_BENCH_SESSION_H
#define QUERN_TOOLS_BENCH_SESSION_H

#include "bench.h"

typedef struct bench_session {
    const char *name; // of the bench
    const table_column *columns;
    size_t column_count;
    // Filled by the options:
    command_settings settings;
    bench_peers_options peers_options; // which: NULL without --vs
    const char *out, *where;           // --out, NULL without; --device
    int64_t repeats;
    // Filled by bench_session_run:
    bench bench;
    bench_peers *peers; // NULL without --vs
    int64_t inputs;     // numbers of what peers were given
    table *table;
} bench_session;

#define BENCH_SESSION(title, table_columns)                                                                            \
    {                                                                                                                  \
        .name = (title), .columns = (table_columns), .column_count = QN_COUNT(table_columns),                          \
        .peers_options = {.python = "python3"}, .where = "gpu", .repeats = 20                                          \
    }

// The options that all of them have, the last of a list; s is a pointer.
#define BENCH_OPTION_REPEAT(target)                                                                                    \
    {                                                                                                                  \
        "repeat", 0, "N", COMMAND_NUMBER, (target), 1, QN_TIMING_MAX_REPEATS, "measured replays of each graph (20)"    \
    }
#define BENCH_SESSION_OPTIONS(s)                                                                                       \
    BENCH_OPTION_REPEAT(&(s)->repeats),                                                                                \
        {"vs", 0, "PEERS", COMMAND_STRING, &(s)->peers_options.which, 0, 0, "torch: what Python has, timed beside"},   \
        {"python", 0, "FILE", COMMAND_STRING, &(s)->peers_options.python, 0, 0, "its interpreter (default python3)"},  \
        {"peers", 0, "FILE", COMMAND_STRING, &(s)->peers_options.script, 0, 0, "peers.py, where it is not found"},     \
        {"out", 0, "FILE", COMMAND_STRING, &(s)->out, 0, 0, "write the report there too, as JSON"},                    \
        {"device", 0, "WHERE", COMMAND_STRING, &(s)->where, 0, 0, "gpu (default) or gpu:N"},                           \
        COMMAND_OPTION_DB(&(s)->settings.db), COMMAND_OPTION_JSON(&(s)->settings.json),                                \
        COMMAND_OPTION_VERBOSE(&(s)->settings.verbose), COMMAND_OPTION_END

// Opens the device and the peers, calls work, which adds rows to s->table, and writes and prints the report: of what was
// measured before a failure, too. The exit status.
int bench_session_run(bench_session *s, quern_status (*work)(void *user), void *user);
// The rows so far, to FILE.partial of --out.
quern_status bench_session_save(const bench_session *s);

#endif
