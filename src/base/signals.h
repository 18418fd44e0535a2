// SPDX-License-Identifier: Apache-2.0
// Writes raise signals: SIGPIPE for a closed pipe, SIGXFSZ for a file size limit. Both are of the thread that writes, and to
// the host they are errors of ours, not signals: held while the thread writes, and taken away if they were raised meanwhile.
#ifndef QN_BASE_SIGNALS_H
#define QN_BASE_SIGNALS_H

#include <signal.h>
#include <stdbool.h>

typedef struct qn_held_signals {
    sigset_t held, before, mask; // before: those that were pending already, which are the host's
} qn_held_signals;

// SIGXFSZ, and with pipes SIGPIPE too.
void qn_signals_hold(qn_held_signals *signals, bool pipes);
void qn_signals_release(const qn_held_signals *signals); // errno stays

#endif
