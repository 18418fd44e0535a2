// SPDX-License-Identifier: Apache-2.0
// Two ways for a name to be near:
//   (1) few edits: a letter too many, too few, another one, or two changed places (the optimal string alignment distance).
//       How many a slip may have grows with the length, so that short names are not taken for one another.
//   (2) one is a short form of the other: its beginning, its end, or some of its letters, the first and the last among
//       them. A short form of several names is none of any.
// Case, and '-' for '_', cost nothing. Another digit is another number and no slip (sm_70 is not sm_80); changed places are.
#include "base/nearest.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

enum {
    MOST_LETTERS = 40,
    EDIT = 16,          // of one edit
    ANOTHER = EDIT + 1, // a letter for another: of two names at one edit, the one that shares more letters is nearer
    END = EDIT + 2,     // the short forms come after one edit and before two
    LETTERS = EDIT + 3, //
    FAR = 64 * EDIT     // beyond what any slip may have
};

typedef struct word {
    const char *at;
    size_t length;
} word;

static int folded(char letter)
{
    return letter == '-' ? '_' : tolower((unsigned char)letter);
}

static bool is_digit(char letter)
{
    return isdigit((unsigned char)letter) != 0;
}

static int smaller(int a, int b)
{
    return a < b ? a : b;
}

static int cost_of_one(char letter)
{
    return is_digit(letter) ? FAR : EDIT;
}

static int cost_of_pair(char x, char y)
{
    return folded(x) == folded(y) ? 0 : is_digit(x) || is_digit(y) ? FAR : ANOTHER;
}

// The edits between two words of at most MOST_LETTERS. Rows of the table: two letters back, one back, this one.
static int cost_of_edits(word a, word b)
{
    int rows[3][MOST_LETTERS + 1];
    int *before = rows[0], *last = rows[1], *row = rows[2];
    last[0] = before[0] = 0;
    for (size_t j = 1; j <= b.length; j++) last[j] = before[j] = last[j - 1] + cost_of_one(b.at[j - 1]);
    for (size_t i = 1; i <= a.length; i++) {
        char x = a.at[i - 1];
        row[0] = last[0] + cost_of_one(x);
        for (size_t j = 1; j <= b.length; j++) {
            char y = b.at[j - 1];
            row[j] = smaller(smaller(last[j] + cost_of_one(x), row[j - 1] + cost_of_one(y)),
                             last[j - 1] + cost_of_pair(x, y));
            if (i > 1 && j > 1 && folded(x) == folded(b.at[j - 2]) && folded(a.at[i - 2]) == folded(y))
                row[j] = smaller(row[j], before[j - 2] + EDIT);
        }
        int *spare = before;
        before = last, last = row, row = spare;
    }
    return last[b.length];
}

static int most_edits(size_t length)
{
    return length < 3 ? 0 : length < 5 ? 1 : length < 9 ? 2 : 3;
}

static bool same_letters(const char *a, const char *b, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (folded(a[i]) != folded(b[i])) return false;
    return true;
}

// The beginning or the end, not cut off within a number.
static bool is_end(word small, word big)
{
    size_t rest = big.length - small.length;
    const char *end = big.at + rest;
    bool starts = same_letters(small.at, big.at, small.length);
    bool ends = same_letters(small.at, end, small.length);
    return (starts && !(is_digit(big.at[small.length - 1]) && is_digit(big.at[small.length]))) ||
           (ends && !(is_digit(end[-1]) && is_digit(end[0])));
}

static size_t digits_in(word w)
{
    size_t count = 0;
    for (size_t i = 0; i < w.length; i++) count += is_digit(w.at[i]);
    return count;
}

// Some of the letters in their order, the first, the last and every digit among them.
static bool has_letters_of(word small, word big)
{
    size_t last = small.length - 1, used = 1;
    if (!same_letters(small.at, big.at, 1) || !same_letters(small.at + last, big.at + big.length - 1, 1)) return false;
    for (size_t i = 1; i + 1 < big.length && used < last; i++) used += folded(big.at[i]) == folded(small.at[used]);
    return used == last && digits_in(small) == digits_in(big);
}

static int cost_of_short_form(word a, word b)
{
    word small = a.length < b.length ? a : b, big = a.length < b.length ? b : a;
    if (small.length < 2 || small.length == big.length) return FAR;
    if (is_end(small, big)) return END;
    return small.length > 2 && has_letters_of(small, big) ? LETTERS : FAR;
}

void qn_nearest_init(qn_nearest *n, const char *text, size_t length)
{
    *n = (qn_nearest){.word = text, .length = length};
}

void qn_nearest_offer(qn_nearest *n, const char *name)
{
    const word given = {n->word, n->length}, known = {name, strlen(name)};
    if (!given.at || given.length == 0 || given.length > MOST_LETTERS || known.length > MOST_LETTERS) return;
    int edits = cost_of_edits(given, known),
        most = most_edits(given.length < known.length ? given.length : known.length);
    int cost = smaller(edits / EDIT > most ? FAR : edits, cost_of_short_form(given, known));
    if (cost >= FAR || (n->found && cost > n->cost)) return;
    if (!n->found || cost < n->cost)
        n->name = name; // of several at the same edits, the first
    else if (n->name && (cost == END || cost == LETTERS) && strcmp(n->name, name) != 0)
        n->name = NULL;
    n->cost = cost;
    n->found = true;
}

const char *qn_nearest_hint(qn_nearest *n)
{
    if (n->name) snprintf(n->hint, sizeof n->hint, " (did you mean '%s'?)", n->name);
    return n->hint;
}
