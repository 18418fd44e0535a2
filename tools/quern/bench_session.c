// SPDX-License-Identifier: Apache-2.0
// The start and the end that benches with one table have in common (bench_session.h).
#include "bench_session.h"

#include <stdio.h>

static quern_status save(const bench_session *s, bool complete)
{
    return bench_table_write(s->name, &s->bench, s->peers, s->table, s->out, complete);
}

quern_status bench_session_save(const bench_session *s)
{
    return save(s, false);
}

static void print_results(const bench_session *s, bool complete)
{
    if (s->settings.json) {
        json_print(bench_table_document(s->name, &s->bench, s->peers, s->table, complete));
    } else if (table_rows(s->table) > 0) {
        bench_print_head(s->name, &s->bench.device);
        printf("%d repeats\n\n", s->bench.repeats);
        table_print(s->table);
    }
}

static quern_status work_between(bench_session *s, quern_status (*work)(void *user), void *user)
{
    if (s->peers_options.which) QN_TRY(bench_peers_start(&s->peers_options, &s->peers));
    QN_TRY(save(s, false)); // an unusable --out is told before the work
    QN_TRY(work(user));
    command_progress_end();
    return save(s, true);
}

int bench_session_run(bench_session *s, quern_status (*work)(void *user), void *user)
{
    int ordinal;
    if (!device_parse(s->where, &ordinal)) return command_usage("--device %s: gpu or gpu:N is needed", s->where);
    quern_status status = bench_open(&s->settings, ordinal, (int)s->repeats, &s->bench);
    if (status != QUERN_OK) return command_status(status);
    s->table = table_create(s->columns, s->column_count);
    s->peers_options.device = ordinal;
    status = work_between(s, work, user);
    print_results(s, status == QUERN_OK);
    int exit_status = status == QUERN_OK ? COMMAND_OK : command_status(status);
    bench_peers_stop(s->peers);
    table_destroy(s->table);
    bench_close(&s->bench);
    return exit_status;
}
