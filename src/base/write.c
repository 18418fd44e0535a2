// SPDX-License-Identifier: Apache-2.0
// Writes that raise no signal. Called by the log and by dumps.
#include "base/write.h"

#include <errno.h>
#include <unistd.h>

#include "base/signals.h"

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

bool qn_write_all(int fd, const void *bytes, size_t count)
{
    qn_held_signals signals;

    qn_signals_hold(&signals, true);
    bool done = write_loop(fd, bytes, count);
    qn_signals_release(&signals);
    return done;
}
