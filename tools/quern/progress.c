// SPDX-License-Identifier: Apache-2.0
// The progress line and the clock (command.h). Nothing is written when stderr is no terminal, nor in the first second.
#include <pthread.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include "command.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static double started; // of the work under way; 0 = none
static bool shown;     // a line stands on the terminal

double command_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

void command_progress(size_t done, size_t total, const char *what)
{
    pthread_mutex_lock(&lock);
    double now = command_seconds();
    if (started == 0) started = now;
    if (now - started > 1 && isatty(STDERR_FILENO)) {
        fprintf(stderr, "\r\033[K%zu of %zu, %.0f s: %.90s", done, total, now - started, what);
        shown = true;
    }
    pthread_mutex_unlock(&lock);
}

void command_progress_clear(void)
{
    pthread_mutex_lock(&lock);
    if (shown) fputs("\r\033[K", stderr);
    shown = false;
    pthread_mutex_unlock(&lock);
}

void command_progress_end(void)
{
    command_progress_clear();
    pthread_mutex_lock(&lock);
    started = 0;
    pthread_mutex_unlock(&lock);
}
