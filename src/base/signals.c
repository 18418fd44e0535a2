// SPDX-License-Identifier: Apache-2.0
// Signals of a thread's own writes, held back (signals.h). Called by write.c and by the cache. No handler is installed.
#include "base/signals.h"

#include <errno.h>
#include <pthread.h>
#include <time.h>

void qn_signals_hold(qn_held_signals *signals, bool pipes)
{
    sigemptyset(&signals->held);
    sigaddset(&signals->held, SIGXFSZ);
    if (pipes) sigaddset(&signals->held, SIGPIPE);
    if (sigpending(&signals->before)) sigemptyset(&signals->before);
    pthread_sigmask(SIG_BLOCK, &signals->held, &signals->mask);
}

static void take_away(const qn_held_signals *signals, const sigset_t *pending, int number)
{
    const struct timespec now = {0, 0};
    sigset_t one;

    if (sigismember(&signals->held, number) != 1 || sigismember(&signals->before, number) == 1) return;
    if (sigismember(pending, number) != 1) return;
    sigemptyset(&one);
    sigaddset(&one, number);
    while (sigtimedwait(&one, NULL, &now) < 0 && errno == EINTR) continue;
}

void qn_signals_release(const qn_held_signals *signals)
{
    sigset_t pending;
    int error = errno;

    if (!sigpending(&pending)) {
        take_away(signals, &pending, SIGXFSZ);
        take_away(signals, &pending, SIGPIPE);
    }
    pthread_sigmask(SIG_SETMASK, &signals->mask, NULL);
    errno = error;
}
