// SPDX-License-Identifier: Apache-2.0
// The process that times other libraries (bench.h): started with one end of a socket and two pieces of shared memory,
// then asked a line of JSON at a time. Its standard output goes where errors go, so that results stay apart.
#include <errno.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/path.h"
#include "bench.h"

enum { ANSWER_SECONDS = 600, PATH_BYTES = 4096 };
extern char **environ;

typedef struct shared {
    int descriptor;
    void *memory;
    size_t bytes;
} shared;

struct bench_peers {
    pid_t process; // 0: none
    int socket;
    shared inputs, arrays;
    int64_t number; // of the inputs that were given
    qn_text received;
    cJSON *hello;
};

// ---- shared memory

static quern_status shared_init(const char *name, shared *s)
{
    s->descriptor = memfd_create(name, MFD_CLOEXEC);
    return s->descriptor >= 0 ? QUERN_OK : qn_fail(QUERN_FILE_ERROR, "memfd_create: %s", strerror(errno));
}

static quern_status shared_size(shared *s, size_t bytes)
{
    if (s->memory) (void)munmap(s->memory, s->bytes);
    s->memory = NULL;
    // By way of nothing, so that the pages of what was longer are given back.
    if (ftruncate(s->descriptor, 0) != 0 || ftruncate(s->descriptor, (off_t)bytes) != 0)
        return qn_fail(QUERN_FILE_ERROR, "sharing %zu bytes with the peers: %s", bytes, strerror(errno));
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, s->descriptor, 0);
    if (memory == MAP_FAILED)
        return qn_fail(QUERN_OUT_OF_MEMORY, "sharing %zu bytes with the peers: %s", bytes, strerror(errno));
    s->memory = memory, s->bytes = bytes;
    return QUERN_OK;
}

static void shared_fini(shared *s)
{
    if (s->memory) (void)munmap(s->memory, s->bytes);
    if (s->descriptor >= 0) close(s->descriptor);
}

quern_status bench_peers_inputs(bench_peers *p, int64_t number, size_t bytes, void **memory)
{
    *memory = NULL;
    if (p->number == number) return QUERN_OK;
    QN_TRY(shared_size(&p->inputs, bytes));
    p->number = number;
    *memory = p->inputs.memory;
    return QUERN_OK;
}

quern_status bench_peers_arrays(bench_peers *p, size_t bytes, void **memory)
{
    QN_TRY(shared_size(&p->arrays, bytes));
    *memory = p->arrays.memory;
    return QUERN_OK;
}

// ---- starting

// The folder `up` levels above a file, with `below` added; as the model's files are found, installed or in a source tree.
static void beside(const char *file, int up, const char *below, char path[PATH_BYTES])
{
    snprintf(path, PATH_BYTES, "%s", file);
    for (; up > 0; up--) {
        char *slash = strrchr(path, '/');
        if (slash) *slash = 0;
    }
    size_t length = strlen(path);
    snprintf(path + length, PATH_BYTES - length, "%s", below);
}

static quern_status find_script(const char *given, char script[PATH_BYTES])
{
    char program[PATH_BYTES] = "", installed[PATH_BYTES] = "";
    ssize_t n = readlink("/proc/self/exe", program, sizeof program - 1);
    if (n > 0) beside(program, 2, "/share/quern/bench/peers.py", installed);
    beside(__FILE__, 2, "/bench/peers.py", script); // this file is tools/quern/bench_peers.c
    if (given) snprintf(script, PATH_BYTES, "%s", given);
    if (qn_file_exists(script)) return QUERN_OK;
    if (given) return qn_fail(QUERN_FILE_ERROR, "--peers %s: there is no such file", given);
    if (!qn_file_exists(installed))
        return qn_fail(QUERN_UNSUPPORTED, "peers.py is neither %s nor %s; --peers FILE names it", installed, script);
    snprintf(script, PATH_BYTES, "%s", installed);
    return QUERN_OK;
}

typedef struct arguments {
    char script[PATH_BYTES], socket[16], inputs[16], arrays[16], device[16];
} arguments;

// The child gets these descriptors under the numbers that they have here.
static int spawn(bench_peers *p, const bench_peers_options *options, arguments *a, int end)
{
    posix_spawn_file_actions_t actions;
    char *const argv[] = {(char *)options->python,
                          a->script,
                          "--socket",
                          a->socket,
                          "--inputs",
                          a->inputs,
                          "--arrays",
                          a->arrays,
                          "--device",
                          a->device,
                          "--vs",
                          (char *)options->which,
                          NULL};
    snprintf(a->socket, sizeof a->socket, "%d", end);
    snprintf(a->inputs, sizeof a->inputs, "%d", p->inputs.descriptor);
    snprintf(a->arrays, sizeof a->arrays, "%d", p->arrays.descriptor);
    snprintf(a->device, sizeof a->device, "%d", options->device);
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, end, end);
    posix_spawn_file_actions_adddup2(&actions, p->inputs.descriptor, p->inputs.descriptor);
    posix_spawn_file_actions_adddup2(&actions, p->arrays.descriptor, p->arrays.descriptor);
    posix_spawn_file_actions_adddup2(&actions, STDERR_FILENO, STDOUT_FILENO);
    int error = posix_spawnp(&p->process, options->python, &actions, NULL, argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    return error;
}

static quern_status start(bench_peers *p, const bench_peers_options *options)
{
    arguments a;
    int ends[2];
    QN_TRY(find_script(options->script, a.script));
    QN_TRY(shared_init("quern-bench-inputs", &p->inputs));
    QN_TRY(shared_init("quern-bench-arrays", &p->arrays));
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
        return qn_fail(QUERN_FILE_ERROR, "socketpair: %s", strerror(errno));
    int error = spawn(p, options, &a, ends[1]);
    close(ends[1]);
    p->socket = ends[0];
    if (error) p->process = 0;
    return error ? qn_fail(QUERN_UNSUPPORTED, "--python %s: %s", options->python, strerror(error)) : QUERN_OK;
}

// ---- messages

static quern_status send_all(const bench_peers *p, const char *bytes, size_t count)
{
    while (count > 0) {
        ssize_t sent = send(p->socket, bytes, count, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR) continue;
        if (sent <= 0) return qn_fail(QUERN_FILE_ERROR, "the process of the peers has ended: %s", strerror(errno));
        bytes += sent, count -= (size_t)sent;
    }
    return QUERN_OK;
}

static quern_status wait_readable(const bench_peers *p)
{
    struct pollfd ready = {p->socket, POLLIN, 0};
    int count;
    while ((count = poll(&ready, 1, ANSWER_SECONDS * 1000)) < 0 && errno == EINTR) {
    }
    return count > 0 ? QUERN_OK : qn_fail(QUERN_FILE_ERROR, "the peers did not answer within %d s", ANSWER_SECONDS);
}

// A line at a time: the peers speak only when they are asked.
static quern_status receive(bench_peers *p)
{
    qn_text_clear(&p->received);
    do {
        char bytes[65536];
        QN_TRY(wait_readable(p));
        ssize_t count = recv(p->socket, bytes, sizeof bytes, 0);
        if (count < 0 && errno == EINTR) continue;
        if (count <= 0) return qn_fail(QUERN_FILE_ERROR, "the process of the peers ended without an answer");
        qn_text_put(&p->received, bytes, (size_t)count);
        QN_TRY(qn_text_check(&p->received));
    } while (p->received.length == 0 || p->received.bytes[p->received.length - 1] != '\n');
    return QUERN_OK;
}

static quern_status read_answer(bench_peers *p, quern_status error_status, cJSON **answer)
{
    QN_TRY(receive(p));
    cJSON *document = cJSON_Parse(qn_text_string(&p->received));
    const char *error = cJSON_GetStringValue(cJSON_GetObjectItem(document, "error"));
    quern_status status = QUERN_OK;
    if (!cJSON_IsObject(document))
        status = qn_fail(QUERN_INTERNAL, "the peers answered '%s'", qn_text_string(&p->received));
    else if (error)
        status = qn_fail(error_status, "%s", error);
    if (status != QUERN_OK) {
        cJSON_Delete(document);
        return status;
    }
    *answer = document;
    return QUERN_OK;
}

double bench_peers_number(const cJSON *peer, const char *name)
{
    const cJSON *number = cJSON_GetObjectItem(peer, name);
    return cJSON_IsNumber(number) ? number->valuedouble : NAN;
}

const cJSON *bench_peers_best(const cJSON *peers)
{
    const cJSON *best = NULL, *peer;
    cJSON_ArrayForEach(peer, peers)
    {
        double us = bench_peers_number(peer, "us_median");
        if (!isnan(us) && (!best || us < bench_peers_number(best, "us_median"))) best = peer;
    }
    return best;
}

static void add_ratios(cJSON *peer, const qn_timing *own)
{
    qn_timing t = {bench_peers_number(peer, "us_median"), bench_peers_number(peer, "us_p10"),
                   bench_peers_number(peer, "us_p90")};
    if (isnan(t.median_us)) return; // an error
    cJSON_AddNumberToObject(peer, "x_quern", bench_rounded(t.median_us / own->median_us));
    cJSON_AddNumberToObject(peer, "x_quern_low", bench_rounded(t.low_us / own->high_us));
    cJSON_AddNumberToObject(peer, "x_quern_high", bench_rounded(t.high_us / own->low_us));
}

quern_status bench_peers_ask(bench_peers *p, cJSON *request, const qn_timing *own, cJSON **answer)
{
    cJSON *whole = NULL, *peer;
    char *text = cJSON_PrintUnformatted(request);
    cJSON_Delete(request);
    if (!text) return qn_fail(QUERN_OUT_OF_MEMORY, "out of memory");
    quern_status status = send_all(p, text, strlen(text));
    cJSON_free(text);
    QN_TRY(status);
    QN_TRY(send_all(p, "\n", 1));
    QN_TRY(read_answer(p, QUERN_INTERNAL, &whole));
    *answer = cJSON_DetachItemFromObject(whole, "peers");
    cJSON_Delete(whole);
    cJSON_ArrayForEach(peer, *answer) add_ratios(peer, own);
    return *answer ? QUERN_OK : qn_fail(QUERN_INTERNAL, "the peers answered without results");
}

const cJSON *bench_peers_hello(const bench_peers *p)
{
    return p->hello;
}

quern_status bench_peers_start(const bench_peers_options *options, bench_peers **out)
{
    bench_peers *p = calloc(1, sizeof *p);
    if (!p) return qn_fail(QUERN_OUT_OF_MEMORY, "out of memory");
    p->socket = p->inputs.descriptor = p->arrays.descriptor = -1;
    quern_status status = start(p, options);
    if (status == QUERN_OK) status = read_answer(p, QUERN_UNSUPPORTED, &p->hello);
    if (status == QUERN_OK)
        *out = p;
    else
        bench_peers_stop(p);
    return status;
}

// The end of the socket tells it to go. One that does not answer any more is ended: nothing of it is needed.
void bench_peers_stop(bench_peers *p)
{
    int ended;
    if (!p) return;
    if (p->socket >= 0) close(p->socket);
    if (p->process > 0) {
        for (int i = 0; i < 100 && waitpid(p->process, &ended, WNOHANG) == 0; i++) usleep(100000);
        if (waitpid(p->process, &ended, WNOHANG) == 0 && kill(p->process, SIGKILL) == 0)
            (void)waitpid(p->process, &ended, 0);
    }
    shared_fini(&p->inputs);
    shared_fini(&p->arrays);
    qn_text_fini(&p->received);
    cJSON_Delete(p->hello);
    free(p);
}
