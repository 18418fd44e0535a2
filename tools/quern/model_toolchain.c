// SPDX-License-Identifier: Apache-2.0
// The C++ compiler, the model's folder, and what was compiled: kernels' shared objects and the runner, kept in a folder
// under the hash of everything they depend on. Files appear there by renaming, so that processes may share the folder.
//   (1) A kernel's text is compiled as it is; what makes it C++ is force-included.
//   (2) The engine's objects are the same for all builds but MSan; a build is what it is linked with.
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/key.h"
#include "base/path.h"
#include "base/processors.h"
#include "model_files.h"
#include "model_private.h"

extern char **environ;

const char *const model_build_name[MODEL_BUILDS] = {"plain", "asan", "access", "msan"};

// ---- flags

static const char *const common_flags[] = {"-std=c++17",
                                           "-g1",
                                           "-gdwarf-4",
                                           "-fPIC",
                                           "-w",
                                           "-fno-strict-aliasing",
                                           "-ffp-contract=off",
                                           "-fno-omit-frame-pointer",
                                           NULL};
#define UNDEFINED ",undefined,float-cast-overflow"
// -Og: with sanitizers a kernel compiles in half the time of -O1, and runs little slower.
static const char *const kernel_flags[MODEL_BUILDS][8] = {
    [MODEL_PLAIN] = {"-O2"},
    [MODEL_ASAN] = {"-Og", "-fsanitize=address" UNDEFINED, "-fno-sanitize=vptr", "-fno-sanitize-recover=all"},
    // Not linked with the sanitizer's library: the runner has its own functions. Older compilers copy by plain memcpy.
    [MODEL_ACCESS] = {"-Og", "-fsanitize=thread" UNDEFINED, "-fno-sanitize=vptr", "-fno-sanitize-recover=all",
                      "-nodefaultlibs", "-Wl,--wrap=memcpy,--wrap=memset,--wrap=memmove"},
    [MODEL_MSAN] = {"-O1", "-fsanitize=memory"},
};
// For debuggers, which nobody starts: a fifth of g++'s time. Lines are there without it.
static const char *const gcc_flags[] = {"-fno-var-tracking", "-fno-var-tracking-assignments", NULL};
// Without it clang leaves out a load that a store to the same place follows.
static const char *const access_clang_flags[] = {"-mllvm", "-tsan-instrument-read-before-write=1", NULL};
static const char *const link_flags[MODEL_BUILDS][4] = {
    [MODEL_PLAIN] = {NULL},
    [MODEL_ASAN] = {"-fsanitize=address,undefined", "-fno-sanitize=vptr"},
    [MODEL_ACCESS] = {"-fsanitize=undefined", "-fno-sanitize=vptr"},
    [MODEL_MSAN] = {"-fsanitize=memory"},
};

typedef struct command_line {
    const char *word[256];
    size_t count;
} command_line;

static void add(command_line *line, const char *word)
{
    if (line->count + 1 < QN_COUNT(line->word)) line->word[line->count++] = word;
    line->word[line->count] = NULL;
}

static void add_list(command_line *line, const char *const *words, size_t most)
{
    for (size_t i = 0; i < most && words[i]; i++) add(line, words[i]);
}

static void add_kernel_flags(command_line *line, const model_toolchain *chain)
{
    add_list(line, (const char *const *)chain->words, MODEL_MAX_WORDS);
    add_list(line, common_flags, QN_COUNT(common_flags));
    add_list(line, kernel_flags[chain->build], QN_COUNT(kernel_flags[0]));
    if (!chain->is_clang) add_list(line, gcc_flags, 2);
    if (chain->build == MODEL_ACCESS && chain->is_clang) add_list(line, access_clang_flags, 2);
}

// ---- processes

quern_status model_spawn(char *const argv[], const char *folder, const char *output, pid_t *pid)
{
    sigset_t none;
    posix_spawnattr_t attributes;
    posix_spawn_file_actions_t actions;
    sigemptyset(&none);
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setsigmask(&attributes, &none); // what hold() keeps from this process is for the compiler
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_addopen(&actions, 1, output, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    posix_spawn_file_actions_adddup2(&actions, 1, 2);
    if (folder) posix_spawn_file_actions_addchdir_np(&actions, folder);
    int error = posix_spawnp(pid, argv[0], &actions, &attributes, argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attributes);
    return error ? qn_fail(QUERN_INTERNAL, "%s cannot be started: %s", argv[0], strerror(error)) : QUERN_OK;
}

bool model_wait(pid_t pid)
{
    int state = 0;
    while (waitpid(pid, &state, 0) < 0)
        if (errno != EINTR) return false;
    return WIFEXITED(state) && WEXITSTATUS(state) == 0;
}

static quern_status run_in(const char *folder, const command_line *line, const char *what)
{
    pid_t pid;
    char output[600];
    snprintf(output, sizeof output, "%s/log", folder);
    QN_TRY(model_spawn((char *const *)line->word, folder, output, &pid));
    return model_wait(pid) ? QUERN_OK : model_files_complain(folder, what);
}

// ---- an end from outside: while folders of work are there, a signal that would end the process waits until they are gone.
// Compilers that were started are waited for, no more are started; those on the same terminal get a Ctrl-C themselves.

static const int ending_signals[] = {SIGINT, SIGTERM, SIGHUP};

// Not of one that is ignored, as SIGHUP under nohup: blocked, even that would be kept and look like an end.
static bool would_end(int signal)
{
    struct sigaction action;
    return !sigaction(signal, NULL, &action) && action.sa_handler != SIG_IGN;
}

static void hold(model_toolchain *chain)
{
    sigset_t set;
    sigemptyset(&set);
    for (size_t i = 0; i < QN_COUNT(ending_signals); i++)
        if (would_end(ending_signals[i])) sigaddset(&set, ending_signals[i]);
    pthread_sigmask(SIG_BLOCK, &set, &chain->before);
}

static quern_status check_end(const model_toolchain *chain)
{
    sigset_t pending;
    sigpending(&pending);
    for (size_t i = 0; i < QN_COUNT(ending_signals); i++)
        if (sigismember(&pending, ending_signals[i]) && !sigismember(&chain->before, ending_signals[i]))
            return qn_fail(QUERN_CANCELLED, "interrupted while compiling for the model");
    return QUERN_OK;
}

// With a signal that waited, this is the end.
static void release(model_toolchain *chain)
{
    qn_message_mark mark;
    qn_message_save(&mark);
    if (chain->cache_is_temporary && check_end(chain) != QUERN_OK) model_files_remove(qn_text_string(&chain->cache));
    qn_message_restore(&mark);
    pthread_sigmask(SIG_SETMASK, &chain->before, NULL);
}

// ---- finding the compiler

static void split_words(model_toolchain *chain, const char *command)
{
    char *copy = qn_strdup(command), *save = NULL;
    size_t count = 0;
    for (char *word = copy ? strtok_r(copy, " ", &save) : NULL; word && count < MODEL_MAX_WORDS;
         word = strtok_r(NULL, " ", &save))
        chain->words[count++] = qn_strdup(word);
    chain->words[count] = NULL;
    free(copy);
}

static void forget_words(model_toolchain *chain)
{
    for (size_t i = 0; i < MODEL_MAX_WORDS; i++) free(chain->words[i]);
    memset(chain->words, 0, sizeof chain->words);
}

static bool try_compiler(model_toolchain *chain, const char *command)
{
    command_line line = {{NULL}, 0};
    char output[600];
    pid_t pid;
    qn_text text = QN_TEXT_INIT;

    forget_words(chain);
    split_words(chain, command);
    if (!chain->words[0]) return false;
    add_list(&line, (const char *const *)chain->words, MODEL_MAX_WORDS);
    add(&line, "--version");
    snprintf(output, sizeof output, "%s/version.%ld", qn_text_string(&chain->cache), (long)getpid());
    bool ok = model_spawn((char *const *)line.word, NULL, output, &pid) == QUERN_OK && model_wait(pid) &&
              qn_file_read(output, &text) == QUERN_OK;
    if (ok) {
        const char *version = qn_text_string(&text);
        snprintf(chain->version, sizeof chain->version, "%.*s", (int)strcspn(version, "\n"), version);
        chain->is_clang = strstr(version, "clang") != NULL;
        ok = chain->build != MODEL_MSAN || chain->is_clang;
    }
    unlink(output);
    qn_text_fini(&text);
    return ok;
}

static quern_status find_compiler(model_toolchain *chain, const char *wanted)
{
    if (!wanted) wanted = qn_environment("CXX", false);
    if (wanted) {
        if (try_compiler(chain, wanted)) return QUERN_OK;
        return qn_fail(QUERN_UNSUPPORTED, "the model needs a C++17 compiler%s: '%s' is none that can be run",
                       chain->build == MODEL_MSAN ? ", clang++ for this build" : "", wanted);
    }
    static const char *const usual[] = {"g++", "clang++", "c++"};
    for (size_t i = 0; i < QN_COUNT(usual); i++)
        if (try_compiler(chain, usual[i])) return QUERN_OK;
    return qn_fail(QUERN_UNSUPPORTED,
                   "the model needs a C++17 compiler%s: none of g++, clang++, c++ can be run; "
                   "install one, or name one by CXX",
                   chain->build == MODEL_MSAN ? ", clang++ for this build" : "");
}

// Compiler, flags and the model's files: what every kernel's object depends on.
static quern_status identify(model_toolchain *chain)
{
    command_line line = {{NULL}, 0};
    add_kernel_flags(&line, chain);
    for (size_t i = 0; i < line.count; i++) qn_key_put_string(&chain->identity, 'w', line.word[i]);
    qn_key_put_string(&chain->identity, 'v', chain->version);
    return model_files_put(qn_text_string(&chain->folder), ".h", &chain->identity);
}

quern_status model_toolchain_open(model_toolchain *chain, const model_settings *settings)
{
    memset(chain, 0, sizeof *chain);
    chain->build = settings->build;
    chain->cap_bytes = settings->cap_bytes;
    chain->progress = settings->progress;
    size_t processors = qn_processors();
    chain->jobs_limit = processors > MODEL_MAX_JOBS ? MODEL_MAX_JOBS : (int)processors;
    QN_TRY(model_files_folder(settings->templates, &chain->folder));
    QN_TRY(model_files_cache(settings->cache, &chain->cache, &chain->cache_is_temporary));
    model_work_clean(qn_text_string(&chain->cache));
    hold(chain); // a compiler's version goes through a file
    quern_status status = find_compiler(chain, settings->compiler);
    release(chain);
    QN_TRY(status);
    QN_TRY(identify(chain));
    return qn_text_check(&chain->identity);
}

void model_toolchain_close(model_toolchain *chain)
{
    for (size_t i = 0; i < MODEL_MAX_JOBS; i++) {
        if (!chain->job[i].pid) continue;
        model_wait(chain->job[i].pid);
        model_work_end(&chain->job[i].work);
    }
    if (chain->cache_is_temporary)
        model_files_remove(qn_text_string(&chain->cache));
    else if (chain->cap_bytes && chain->cache.length)
        model_files_trim(qn_text_string(&chain->cache), chain->cap_bytes);
    forget_words(chain);
    qn_text_fini(&chain->folder);
    qn_text_fini(&chain->cache);
    qn_text_fini(&chain->identity);
}

// ---- kernels. A text is preprocessed first: texts that differ only in macros nobody asks (the architecture's number, for
// a kernel without instructions of its own) and comments become the same object, compiled once.

static quern_status object_name(const model_toolchain *chain, char kind, const char *text, char hex[33])
{
    qn_text key = QN_TEXT_INIT;
    qn_key_put_bytes(&key, 'i', chain->identity.bytes, chain->identity.length);
    qn_key_put_string(&key, kind, text);
    quern_status status = qn_text_check(&key);
    if (status == QUERN_OK) {
        qn_hash hash = qn_hash_bytes(key.bytes, key.length);
        qn_hash_hex(&hash, hex);
    }
    qn_text_fini(&key);
    return status;
}

static void object_path(const model_toolchain *chain, const char *hex, const char *suffix, char path[600])
{
    snprintf(path, 600, "%s/%s%s", qn_text_string(&chain->cache), hex, suffix);
}

static bool has_object(const model_toolchain *chain, const char *hex)
{
    char path[600];
    object_path(chain, hex, ".so", path);
    return qn_file_exists(path);
}

// Gives an object a second name. That somebody else did so first is as good.
static quern_status name_object(const model_toolchain *chain, const char *object, const char *source)
{
    char from[600], to[600];
    object_path(chain, object, ".so", from);
    object_path(chain, source, ".so", to);
    if (link(from, to) == 0 || errno == EEXIST) return QUERN_OK;
    return qn_fail(QUERN_FILE_ERROR, "%s: %s", to, strerror(errno));
}

// The text and what makes it C++, in the job's folder as unit.ii; its object's name.
static quern_status preprocess(model_toolchain *chain, const char *source, model_job *job)
{
    static const char unit[] = "#include \"kernel.cu\"\n#line 1 \"export\"\nQN_MODEL_EXPORT(QN_ENTRY)\n";
    command_line line = {{NULL}, 0};
    char shim[600], made[600];
    qn_text text = QN_TEXT_INIT;

    QN_TRY(model_files_write(job->work.folder, "kernel.cu", source, strlen(source)));
    QN_TRY(model_files_write(job->work.folder, "unit.cpp", unit, sizeof unit - 1));
    snprintf(shim, sizeof shim, "%s/shim.h", qn_text_string(&chain->folder));
    add_kernel_flags(&line, chain);
    add(&line, "-include"), add(&line, shim), add(&line, "-E"), add(&line, "-o"), add(&line, "unit.ii"),
        add(&line, "unit.cpp");
    QN_TRY(run_in(job->work.folder, &line, "a kernel did not compile for the model"));
    snprintf(made, sizeof made, "%s/unit.ii", job->work.folder);
    quern_status status = qn_file_read(made, &text);
    if (status == QUERN_OK) status = object_name(chain, 'p', qn_text_string(&text), job->object);
    qn_text_fini(&text);
    return status;
}

static model_job *job_of(model_toolchain *chain, const char *source, const char *object)
{
    for (size_t i = 0; i < MODEL_MAX_JOBS; i++) {
        model_job *job = &chain->job[i];
        if (job->pid && ((source && !strcmp(job->source, source)) || (object && !strcmp(job->object, object))))
            return job;
    }
    return NULL;
}

static quern_status start_compile(model_toolchain *chain, model_job *job)
{
    command_line line = {{NULL}, 0};
    char output[600];
    snprintf(output, sizeof output, "%s/log", job->work.folder);
    add_kernel_flags(&line, chain);
    add(&line, "-shared"), add(&line, "-o"), add(&line, "kernel.so"), add(&line, "unit.ii");
    return model_spawn((char *const *)line.word, job->work.folder, output, &job->pid);
}

// Begins to compile a text, unless its object is there or on its way: then job->pid stays 0, and *made says which it is.
static quern_status start_job(model_toolchain *chain, const char *source, const char *hex, model_job *job, bool *made)
{
    job->pid = 0;
    snprintf(job->source, sizeof job->source, "%s", hex);
    QN_TRY(model_work_begin(qn_text_string(&chain->cache), &job->work));
    quern_status status = preprocess(chain, source, job);
    if (status == QUERN_OK) status = check_end(chain);
    if (status == QUERN_OK) {
        *made = has_object(chain, job->object);
        if (*made)
            status = name_object(chain, job->object, hex);
        else if (!job_of(chain, NULL, job->object))
            status = start_compile(chain, job);
    }
    if (!job->pid) model_work_end(&job->work);
    return status;
}

static quern_status finish_job(model_toolchain *chain, model_job *job)
{
    char from[600], to[600];
    bool compiled = model_wait(job->pid);
    quern_status status = QUERN_OK;
    job->pid = 0;
    if (!compiled) {
        status = model_files_complain(job->work.folder, "a kernel did not compile for the model");
    } else {
        snprintf(from, sizeof from, "%s/kernel.so", job->work.folder);
        object_path(chain, job->object, ".so", to);
        if (rename(from, to) != 0) status = qn_fail(QUERN_FILE_ERROR, "%s: %s", to, strerror(errno));
        if (status == QUERN_OK) status = name_object(chain, job->object, job->source);
    }
    model_work_end(&job->work);
    return status;
}

// Jobs that have ended are brought home on the way; what a failed one says comes up again when its object is asked for.
static int running_jobs(model_toolchain *chain)
{
    int running = 0;
    for (size_t i = 0; i < MODEL_MAX_JOBS; i++) {
        siginfo_t info = {0};
        model_job *job = &chain->job[i];
        if (!job->pid) continue;
        bool ended = waitid(P_PID, (id_t)job->pid, &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == job->pid;
        if (ended)
            (void)finish_job(chain, job);
        else
            running++;
    }
    return running;
}

quern_status model_toolchain_begin(model_toolchain *chain, const char *source, bool *busy)
{
    char hex[33];
    bool made;
    QN_TRY(object_name(chain, 's', source, hex));
    *busy = false;
    if (has_object(chain, hex) || job_of(chain, hex, NULL)) return QUERN_OK;
    *busy = running_jobs(chain) >= chain->jobs_limit;
    for (size_t i = 0; i < MODEL_MAX_JOBS && !*busy; i++)
        if (!chain->job[i].pid) return start_job(chain, source, hex, &chain->job[i], &made);
    return QUERN_OK;
}

static quern_status make_object(model_toolchain *chain, const char *source, const char *hex)
{
    model_job own = {.pid = 0}, *job = job_of(chain, hex, NULL);
    bool made = false;
    if (job) return finish_job(chain, job);
    QN_TRY(start_job(chain, source, hex, &own, &made));
    if (own.pid) return finish_job(chain, &own);
    if (made) return QUERN_OK;
    QN_TRY(finish_job(chain, job_of(chain, NULL, own.object)));
    return name_object(chain, own.object, hex);
}

quern_status model_toolchain_object(model_toolchain *chain, const char *source, qn_text *object)
{
    char hex[33], path[600];
    QN_TRY(object_name(chain, 's', source, hex));
    if (!has_object(chain, hex)) {
        hold(chain);
        quern_status status = make_object(chain, source, hex);
        release(chain);
        QN_TRY(status);
    }
    object_path(chain, hex, ".so", path);
    model_files_use(path);
    qn_text_puts(object, path);
    return qn_text_check(object);
}

// ---- the runner

static void add_engine_flags(command_line *line, const model_toolchain *chain)
{
    add_list(line, (const char *const *)chain->words, MODEL_MAX_WORDS);
    add_list(line, common_flags, QN_COUNT(common_flags));
    add(line, "-O2");
    if (chain->build == MODEL_MSAN) add(line, "-fsanitize=memory"), add(line, "-DQN_MODEL_MSAN");
}

// What an object of the engine depends on, but for its own file.
static quern_status engine_identity(const model_toolchain *chain, qn_text *key)
{
    command_line line = {{NULL}, 0};
    add_engine_flags(&line, chain);
    for (size_t i = 0; i < line.count; i++) qn_key_put_string(key, 'w', line.word[i]);
    qn_key_put_string(key, 'v', chain->version);
    return model_files_put(qn_text_string(&chain->folder), ".h", key);
}

typedef struct engine { // the engine's objects, by file
    model_files_list files;
    char object[MODEL_FILES_MOST][600];
    model_work work[MODEL_FILES_MOST];
    pid_t pid[MODEL_FILES_MOST]; // 0: nothing to wait for
} engine;

static quern_status name_objects(const model_toolchain *chain, engine *e)
{
    qn_text common = QN_TEXT_INIT;
    quern_status status = engine_identity(chain, &common);
    for (size_t i = 0; i < e->files.count && status == QUERN_OK; i++) {
        char path[700], hex[33];
        qn_text key = QN_TEXT_INIT, content = QN_TEXT_INIT;
        snprintf(path, sizeof path, "%s/%s", qn_text_string(&chain->folder), e->files.name[i]);
        status = qn_file_read(path, &content);
        qn_key_put_bytes(&key, 'e', common.bytes, common.length);
        qn_key_put_string(&key, 'n', e->files.name[i]);
        qn_key_put_bytes(&key, 'f', content.bytes, content.length);
        if (status == QUERN_OK) status = qn_text_check(&key);
        if (status == QUERN_OK) {
            qn_hash hash = qn_hash_bytes(key.bytes, key.length);
            qn_hash_hex(&hash, hex);
            object_path(chain, hex, ".o", e->object[i]);
        }
        qn_text_fini(&key);
        qn_text_fini(&content);
    }
    qn_text_fini(&common);
    return status;
}

static quern_status start_object(model_toolchain *chain, engine *e, size_t i)
{
    command_line line = {{NULL}, 0};
    char output[600], source[700], ignore[700];
    if (qn_file_exists(e->object[i])) return QUERN_OK;
    QN_TRY(model_work_begin(qn_text_string(&chain->cache), &e->work[i]));
    snprintf(output, sizeof output, "%s/log", e->work[i].folder);
    snprintf(source, sizeof source, "%s/%s", qn_text_string(&chain->folder), e->files.name[i]);
    add_engine_flags(&line, chain);
    if (chain->build == MODEL_MSAN && strcmp(e->files.name[i], "memory.cpp") != 0) {
        snprintf(ignore, sizeof ignore, "-fsanitize-ignorelist=%s/msan.ignore", qn_text_string(&chain->folder));
        add(&line, ignore);
    }
    add(&line, "-c"), add(&line, "-o"), add(&line, "object.o"), add(&line, source);
    return model_spawn((char *const *)line.word, e->work[i].folder, output, &e->pid[i]);
}

static quern_status finish_object(engine *e, size_t i)
{
    char made[600];
    quern_status status = QUERN_OK;
    if (!e->pid[i]) {
        model_work_end(&e->work[i]); // of one that could not be started
        return QUERN_OK;
    }
    snprintf(made, sizeof made, "%s/object.o", e->work[i].folder);
    if (!model_wait(e->pid[i]))
        status = model_files_complain(e->work[i].folder, "the model's engine did not compile");
    else if (rename(made, e->object[i]) != 0)
        status = qn_fail(QUERN_FILE_ERROR, "%s: %s", e->object[i], strerror(errno));
    model_work_end(&e->work[i]);
    return status;
}

// A few at a time; all that were started are waited for.
static quern_status compile_engine(model_toolchain *chain, engine *e)
{
    quern_status status = QUERN_OK, other;
    size_t ahead = (size_t)chain->jobs_limit;
    for (size_t i = 0; i < e->files.count + ahead; i++) {
        if (chain->progress && i < e->files.count)
            chain->progress(i, e->files.count, chain->cache_is_temporary ? NULL : qn_text_string(&chain->cache));
        if (i >= ahead && i - ahead < e->files.count && (other = finish_object(e, i - ahead)) != QUERN_OK)
            status = other;
        if (status == QUERN_OK) status = check_end(chain);
        if (i < e->files.count && status == QUERN_OK) status = start_object(chain, e, i);
    }
    return status;
}

static quern_status link_runner(model_toolchain *chain, const engine *e, const char *path)
{
    char made[600];
    model_work work;
    command_line line = {{NULL}, 0};
    QN_TRY(model_work_begin(qn_text_string(&chain->cache), &work));
    add_list(&line, (const char *const *)chain->words, MODEL_MAX_WORDS);
    add_list(&line, link_flags[chain->build], QN_COUNT(link_flags[0]));
    add(&line, "-rdynamic"), add(&line, "-o"), add(&line, "runner");
    for (size_t i = 0; i < e->files.count; i++) add(&line, e->object[i]);
    add(&line, "-ldl");
    quern_status status = run_in(work.folder, &line, "the model's runner did not link");
    snprintf(made, sizeof made, "%s/runner", work.folder);
    if (status == QUERN_OK && rename(made, path) != 0)
        status = qn_fail(QUERN_FILE_ERROR, "%s: %s", path, strerror(errno));
    model_work_end(&work);
    return status;
}

static quern_status make_runner(model_toolchain *chain, const char *path)
{
    engine *e = calloc(1, sizeof *e);
    if (!e) return qn_fail(QUERN_OUT_OF_MEMORY, "the model: %zu bytes", sizeof *e);
    quern_status status = model_files_find(qn_text_string(&chain->folder), ".cpp", &e->files);
    if (status == QUERN_OK) status = name_objects(chain, e);
    hold(chain);
    if (status == QUERN_OK) status = compile_engine(chain, e);
    if (status == QUERN_OK) status = link_runner(chain, e, path);
    release(chain);
    free(e);
    return status;
}

quern_status model_toolchain_runner(model_toolchain *chain, qn_text *program)
{
    char hex[33], path[600], lock[600];
    qn_text key = QN_TEXT_INIT;
    for (size_t i = 0; i < QN_COUNT(link_flags[0]) && link_flags[chain->build][i]; i++)
        qn_key_put_string(&key, 'l', link_flags[chain->build][i]);
    quern_status status = engine_identity(chain, &key);
    if (status == QUERN_OK) status = model_files_put(qn_text_string(&chain->folder), ".cpp", &key);
    if (status == QUERN_OK) status = qn_text_check(&key);
    if (status == QUERN_OK) {
        qn_hash hash = qn_hash_bytes(key.bytes, key.length);
        qn_hash_hex(&hash, hex);
        object_path(chain, hex, ".runner", path);
        object_path(chain, "runner", ".lock", lock);
        // Two processes that need it at once: the second waits and finds it.
        int fd = open(lock, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
        if (fd >= 0) flock(fd, LOCK_EX);
        if (!qn_file_exists(path)) status = make_runner(chain, path);
        if (fd >= 0) close(fd);
    }
    if (status == QUERN_OK) model_files_use(path);
    if (status == QUERN_OK) qn_text_puts(program, path);
    qn_text_fini(&key);
    return status == QUERN_OK ? qn_text_check(program) : status;
}
