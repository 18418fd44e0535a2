// SPDX-License-Identifier: Apache-2.0
// The runner process: started when it is first needed, and again after a launch that killed it (a sanitizer's report
// ends a process). Nothing of a launch outlives its reply.
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "model/protocol.h"
#include "model_private.h"

extern char **environ;

enum { REPLY_SECONDS = 600, MOST_LOG_BYTES = 16 << 10 };

// ---- the process

static quern_status start(model *m, const char *program)
{
    model_runner *r = &m->runner;
    int to[2] = {-1, -1}, from[2] = {-1, -1};
    char fd_text[] = "3", address[32], bytes[32];
    snprintf(address, sizeof address, "%llu", (unsigned long long)(uintptr_t)m->memory.begin);
    snprintf(bytes, sizeof bytes, "%llu", QN_MODEL_WINDOW_BYTES);
    char *argv[] = {(char *)program, (char *)model_build_name[m->chain.build], fd_text, address, bytes, NULL};

    int log = memfd_create("quern model log", MFD_CLOEXEC);
    if (log < 0 || pipe2(to, O_CLOEXEC) != 0 || pipe2(from, O_CLOEXEC) != 0)
        return qn_fail(QUERN_INTERNAL, "the model's runner: pipes: %s", strerror(errno));
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, to[0], 0);
    posix_spawn_file_actions_adddup2(&actions, from[1], 1);
    posix_spawn_file_actions_adddup2(&actions, log, 2);
    posix_spawn_file_actions_adddup2(&actions, m->memory.fd, 3);
    int error = posix_spawn(&r->pid, program, &actions, NULL, argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    close(to[0]);
    close(from[1]);
    r->requests = to[1], r->replies = from[0], r->log = log;
    if (!error) return QUERN_OK;
    r->pid = 0;
    model_runner_stop(r);
    return qn_fail(QUERN_INTERNAL, "the model's runner %s: %s", program, strerror(error));
}

void model_runner_stop(model_runner *runner)
{
    for (int *fd = &runner->requests; fd; fd = fd == &runner->requests  ? &runner->replies
                                               : fd == &runner->replies ? &runner->log
                                                                        : NULL) {
        if (*fd > 0) close(*fd);
        *fd = 0;
    }
    if (runner->pid > 0) waitpid(runner->pid, NULL, 0);
    runner->pid = 0;
}

static quern_status ensure_running(model *m)
{
    if (m->runner.pid) return QUERN_OK;
    qn_text program = QN_TEXT_INIT;
    quern_status status = model_toolchain_runner(&m->chain, &program);
    if (status == QUERN_OK) status = start(m, qn_text_string(&program));
    qn_text_fini(&program);
    return status;
}

// ---- the conversation

static bool send_all(int fd, const void *p, size_t bytes)
{
    const char *at = p;
    while (bytes) {
        ssize_t n = write(fd, at, bytes);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return false;
        at += n, bytes -= (size_t)n;
    }
    return true;
}

static bool receive_all(int fd, void *p, size_t bytes)
{
    char *at = p;
    while (bytes) {
        struct pollfd ready = {fd, POLLIN, 0};
        int n = poll(&ready, 1, REPLY_SECONDS * 1000);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return false;
        ssize_t got = read(fd, at, bytes);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) return false;
        at += got, bytes -= (size_t)got;
    }
    return true;
}

// One message, so that the runner never sees half of one.
static void put_request(const model *m, const qn_arch *arch, const model_launch_request *request, const char *object,
                        qn_text *message)
{
    qn_model_request r = {
        .magic = QN_MODEL_REQUEST,
        .grid = {request->grid[0], request->grid[1], request->grid[2]},
        .threads = (uint32_t)request->threads,
        .cluster = (uint32_t)(request->cluster > 0 ? request->cluster : 1),
        .shared_bytes = (uint32_t)request->shared_bytes,
        .resident = (uint32_t)request->resident,
        .cc = (uint32_t)arch->cc,
        .suffix = (uint32_t)arch->suffix,
        .shared_cta = (uint32_t)arch->shared_cta,
        .max_cluster = (uint32_t)arch->max_cluster,
        .shuffle = request->order.shuffle,
        .seed = request->order.seed,
        .path_bytes = (uint32_t)strlen(object),
        .params_bytes = (uint32_t)request->params_bytes,
        .buffer_count = (uint32_t)m->memory.count,
    };
    qn_text_put(message, &r, sizeof r);
    qn_text_puts(message, object);
    qn_text_put(message, request->params, request->params_bytes);
    for (size_t i = 0; i < m->memory.count; i++) {
        const model_buffer *from = &m->memory.buffer[i];
        qn_model_buffer b = {.begin = (uintptr_t)from->begin, .bytes = from->bytes, .input = from->input};
        memcpy(b.name, from->name, sizeof b.name);
        qn_text_put(message, &b, sizeof b);
    }
}

// What the runner wrote to its standard error: a sanitizer's report, with the lane's position.
static void put_log(int log, qn_text *report)
{
    char bytes[MOST_LOG_BYTES];
    ssize_t n = pread(log, bytes, sizeof bytes, 0);
    if (n > 0) qn_text_put(report, bytes, (size_t)n);
    if (n == sizeof bytes) qn_text_puts(report, "…\n");
}

// The runner did not answer: it ended, or is stuck, and then it is ended.
static quern_status report_death(model_runner *r, qn_text *report)
{
    int state = 0;
    pid_t pid = r->pid;
    r->pid = 0;
    kill(pid, SIGKILL);
    waitpid(pid, &state, 0);
    put_log(r->log, report);
    if (WIFSIGNALED(state)) qn_text_putf(report, "the model's runner ended by signal %d\n", WTERMSIG(state));
    model_runner_stop(r);
    return qn_fail(QUERN_LAUNCH_FAILED, "model: the kernel has a fault that ended the runner; see the report");
}

static quern_status converse(model *m, const qn_text *message, qn_text *report, model_counts *counts)
{
    model_runner *r = &m->runner;
    qn_model_reply reply;
    if (ftruncate(r->log, 0) != 0) return qn_fail(QUERN_INTERNAL, "the model's log: %s", strerror(errno));
    lseek(r->log, 0, SEEK_SET);
    if (!send_all(r->requests, message->bytes, message->length) || !receive_all(r->replies, &reply, sizeof reply) ||
        reply.magic != QN_MODEL_REPLY)
        return report_death(r, report);
    char text[4096];
    for (size_t left = reply.text_bytes; left;) {
        size_t n = left < sizeof text ? left : sizeof text;
        if (!receive_all(r->replies, text, n)) return report_death(r, report);
        qn_text_put(report, text, n);
        left -= n;
    }
    if (counts)
        *counts = (model_counts){reply.switches, reply.operations, reply.barriers, reply.landings, reply.accesses};
    if (!reply.fault) return QUERN_OK;
    const char *all = qn_text_string(report);
    return qn_fail(QUERN_LAUNCH_FAILED, "model: %.*s", (int)strcspn(all, "\n"), all);
}

quern_status model_launch(model *m, const qn_arch *arch, const model_launch_request *request, qn_text *report,
                          model_counts *counts)
{
    qn_text object = QN_TEXT_INIT, message = QN_TEXT_INIT;
    quern_status status = model_compile(m, request->source, &object);
    if (status == QUERN_OK) status = ensure_running(m);
    if (status == QUERN_OK) {
        put_request(m, arch, request, qn_text_string(&object), &message);
        status = qn_text_check(&message);
    }
    if (status == QUERN_OK) {
        // A runner that has just ended must not end this process.
        struct sigaction ignore = {.sa_handler = SIG_IGN}, before;
        sigaction(SIGPIPE, &ignore, &before);
        status = converse(m, &message, report, counts);
        sigaction(SIGPIPE, &before, NULL);
    }
    qn_text_fini(&object);
    qn_text_fini(&message);
    return status;
}
