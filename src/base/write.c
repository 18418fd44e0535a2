// SPDX-License-Identifier: Apache-2.0
// Writes that raise no signal. Called by the log and by dumps. Both signals are of the thread that writes: they are
// blocked meanwhile, and taken away if the write raised them.
#include "base/write.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

static bool write_loop(int fd, const char *bytes, size_t count)
{
    while (count > 0) {
        ssize_t written = write(fd, bytes, count);
        if (written < 0 && errno == EINTR) continue;
        if (written < 0) return false;
        bytes += written;
        count -= (size_t)written;
    }
    return true;
}

static void take_away(int signal_number, const sigset_t *before)
{
    sigset_t pending, one;

    if (sigismember(before, signal_number) == 1) return; // it was there before
    if (sigpending(&pending) || sigismember(&pending, signal_number) != 1) return;
    sigemptyset(&one);
    sigaddset(&one, signal_number);
    while (sigtimedwait(&one, NULL, &(struct timespec){0, 0}) < 0 && errno == EINTR) continue;
}

bool qn_write_all(int fd, const void *bytes, size_t count)
{
    sigset_t block, old, before;

    sigemptyset(&block);
    sigaddset(&block, SIGPIPE);
    sigaddset(&block, SIGXFSZ);
    if (sigpending(&before)) sigemptyset(&before);
    pthread_sigmask(SIG_BLOCK, &block, &old);
    bool done = write_loop(fd, bytes, count);
    int error = errno;
    if (!done) {
        take_away(SIGPIPE, &before);
        take_away(SIGXFSZ, &before);
    }
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    errno = error;
    return done;
}
