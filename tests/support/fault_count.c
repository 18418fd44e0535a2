// SPDX-License-Identifier: Apache-2.0
// The counts of faults; see the header. Forked children count for themselves and print nothing: only the process that
// counted first does.
#include "support/fault_count.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MAX_KINDS = 64 };

static struct {
    const char *kind;
    long tried, survived;
} counts[MAX_KINDS];
static size_t kinds;
static pid_t owner;

static void print(void)
{
    if (getpid() != owner) return;
    for (size_t i = 0; i < kinds; i++)
        printf("faults: %ld tried, %ld survived: %s\n", counts[i].tried, counts[i].survived, counts[i].kind);
}

static size_t index_of(const char *kind)
{
    size_t i = 0;

    if (!owner) {
        owner = getpid();
        atexit(print);
    }
    while (i < kinds && strcmp(counts[i].kind, kind) != 0) i++;
    if (i == MAX_KINDS) abort();
    if (i == kinds) counts[kinds++].kind = kind;
    return i;
}

void fault_tried(const char *kind)
{
    counts[index_of(kind)].tried++;
}

void fault_survived(const char *kind)
{
    counts[index_of(kind)].survived++;
}

int fault_tests(const char *kind, size_t tests, int failed)
{
    size_t i = index_of(kind);

    counts[i].tried += (long)tests;
    counts[i].survived += (long)tests - failed;
    return failed;
}
