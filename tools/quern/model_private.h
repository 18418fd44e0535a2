// SPDX-License-Identifier: Apache-2.0
// The parts of the model's host side (model.h) as they see each other.
#ifndef QUERN_TOOLS_MODEL_PRIVATE_H
#define QUERN_TOOLS_MODEL_PRIVATE_H

#include <signal.h>
#include <sys/types.h>

#include "model.h"
#include "model_work.h"

enum { MODEL_MAX_BUFFERS = 64, MODEL_MAX_JOBS = 16, MODEL_MAX_WORDS = 16 };

// ---- model_memory.c

typedef struct model_buffer {
    char name[28];
    unsigned char *begin;
    size_t bytes;
    bool input;
} model_buffer;

typedef struct model_memory {
    int fd;               // the window's file, shared with the runner
    unsigned char *begin; // NULL: not open
    size_t used;
    model_buffer buffer[MODEL_MAX_BUFFERS];
    size_t count;
} model_memory;

quern_status model_memory_open(model_memory *memory);
void model_memory_close(model_memory *memory);

// ---- model_toolchain.c

typedef struct model_job { // a compile in the background
    char source[33];       // hexadecimal hash of the text, one of the object's names
    char object[33];       // of the preprocessed text, the other
    model_work work;       // where it works
    pid_t pid;             // 0: no job
} model_job;

typedef struct model_toolchain {
    model_build build;
    char *words[MODEL_MAX_WORDS + 1]; // the compiler's command, ends with NULL
    char version[128];
    bool is_clang;
    qn_text folder; // kernel_templates/model
    qn_text cache;  // folder of objects
    bool cache_is_temporary;
    int64_t cap_bytes;
    model_progress progress;
    qn_text identity; // what every object depends on: compiler, flags, the model's headers
    int jobs_limit;
    sigset_t before; // what this thread held back before model_toolchain.c's hold
    model_job job[MODEL_MAX_JOBS];
} model_toolchain;

quern_status model_toolchain_open(model_toolchain *chain, const model_settings *settings);
void model_toolchain_close(model_toolchain *chain);
quern_status model_toolchain_begin(model_toolchain *chain, const char *source, bool *busy);
quern_status model_toolchain_object(model_toolchain *chain, const char *source, qn_text *object);
quern_status model_toolchain_runner(model_toolchain *chain, qn_text *program);

// Starts a program (argv[0] sought in PATH) with both outputs in a file. INTERNAL when it cannot be started.
quern_status model_spawn(char *const argv[], const char *folder, const char *output, pid_t *pid);
bool model_wait(pid_t pid); // did it succeed?

// ---- model_runner.c

typedef struct model_runner {
    pid_t pid; // 0: not running
    int requests, replies, log;
} model_runner;

void model_runner_stop(model_runner *runner);

struct model {
    model_toolchain chain;
    model_memory memory;
    model_runner runner;
    model_edit edit;
    void *edit_user;
};

#endif
