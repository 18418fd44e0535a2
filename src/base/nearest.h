// SPDX-License-Identifier: Apache-2.0
// The known name that a misspelt or shortened word was probably meant as: offered every name, then asked for a hint. For
// messages.
#ifndef QN_BASE_NEAREST_H
#define QN_BASE_NEAREST_H

#include <stdbool.h>
#include <stddef.h>

enum { QN_HINT_BYTES = 80 };

typedef struct qn_nearest {
    const char *word; // as it was given
    size_t length;    // of it: it need not end there
    const char *name; // the nearest so far; NULL: none is near, or it is a short form of several
    int cost;         // of it; 0: they differ in case or hyphens alone
    bool found;       // cost is that of a name, or of several
    char hint[QN_HINT_BYTES];
} qn_nearest;

void qn_nearest_init(qn_nearest *n, const char *word, size_t length);
void qn_nearest_offer(qn_nearest *n, const char *name); // must stay valid until the hint was made
const char *qn_nearest_hint(qn_nearest *n);             // " (did you mean 'NAME'?)"; "" when no name is near enough

#endif
