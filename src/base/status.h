// SPDX-License-Identifier: Apache-2.0
// Failing: a status for the program, a message for the person. The message is this thread's; setting it allocates
// nothing. Every function that can fail returns quern_status, and outputs are untouched when it does.
#ifndef QN_BASE_STATUS_H
#define QN_BASE_STATUS_H

#include "quern/quern.h"

#define QN_PRINTF(string_at, first_at) __attribute__((format(printf, string_at, first_at)))

// Sets this thread's message and returns status: return qn_fail(QUERN_BAD_VALUE, "K = %lld: …", …);
quern_status qn_fail(quern_status status, const char *format, ...) QN_PRINTF(2, 3);

// Puts text and ": " before this thread's message, and returns status: adds what a caller knows ("spec '…'").
quern_status qn_fail_in(quern_status status, const char *format, ...) QN_PRINTF(2, 3);

// Saves and restores this thread's message around work whose failure is not the caller's (a store that fails).
enum { QN_MESSAGE_BYTES = 4096 };
typedef struct qn_message_mark {
    char text[QN_MESSAGE_BYTES];
} qn_message_mark;
void qn_message_save(qn_message_mark *mark);
void qn_message_restore(const qn_message_mark *mark);
// The end of a call: restores the message if it succeeded, whatever it tried on the way and gave up. Returns status.
quern_status qn_message_end(const qn_message_mark *mark, quern_status status);

#define QN_TRY(call)                                                                                                   \
    do {                                                                                                               \
        quern_status qn_try_ = (call);                                                                                 \
        if (qn_try_ != QUERN_OK) return qn_try_;                                                                       \
    } while (0)

#define QN_COUNT(array) (sizeof(array) / sizeof((array)[0]))

#endif
