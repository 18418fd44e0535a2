// SPDX-License-Identifier: Apache-2.0
// Near is what few edits make: a letter too many, too few, another one, or two changed places (the optimal string
// alignment distance). Case, and '-' for '_', cost nothing. How many edits a slip may have grows with the length, so that
// short names are not taken for one another.
#include "base/nearest.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

enum { MOST_LETTERS = 40 };

static int folded(char letter)
{
    return letter == '-' ? '_' : tolower((unsigned char)letter);
}

static int smaller(int a, int b)
{
    return a < b ? a : b;
}

// The edits between two words of at most MOST_LETTERS. Rows of the table: two letters back, one back, this one.
static int distance(const char *a, size_t a_length, const char *b, size_t b_length)
{
    int rows[3][MOST_LETTERS + 1];
    int *before = rows[0], *last = rows[1], *row = rows[2];
    for (size_t j = 0; j <= b_length; j++) last[j] = before[j] = (int)j;
    for (size_t i = 1; i <= a_length; i++) {
        row[0] = (int)i;
        for (size_t j = 1; j <= b_length; j++) {
            int x = folded(a[i - 1]), y = folded(b[j - 1]);
            row[j] = smaller(smaller(last[j] + 1, row[j - 1] + 1), last[j - 1] + (x != y));
            if (i > 1 && j > 1 && x == folded(b[j - 2]) && folded(a[i - 2]) == y)
                row[j] = smaller(row[j], before[j - 2] + 1);
        }
        int *spare = before;
        before = last, last = row, row = spare;
    }
    return last[b_length];
}

static int most_edits(size_t length)
{
    return length < 3 ? 0 : length < 5 ? 1 : length < 9 ? 2 : 3;
}

void qn_nearest_init(qn_nearest *n, const char *word, size_t length)
{
    *n = (qn_nearest){.word = word, .length = length};
}

void qn_nearest_offer(qn_nearest *n, const char *name)
{
    size_t length = strlen(name);
    if (!n->word || n->length == 0 || n->length > MOST_LETTERS || length > MOST_LETTERS) return;
    int edits = distance(n->word, n->length, name, length);
    if (edits > most_edits(n->length < length ? n->length : length) || (n->name && edits >= n->distance)) return;
    n->name = name;
    n->distance = edits;
}

const char *qn_nearest_hint(qn_nearest *n)
{
    if (n->name) snprintf(n->hint, sizeof n->hint, " (did you mean '%s'?)", n->name);
    return n->hint;
}
