// SPDX-License-Identifier: Apache-2.0
// How many processors this process may use. Called by runtime/batch.c and the command. The kernel refuses a set that is
// smaller than its own, which cpu_set_t is on a machine of more than 1024 processors: so the set grows until it is taken.
#include "base/processors.h"

#include <errno.h>
#include <sched.h>

enum { FIRST_SET = 1024, LARGEST_SET = 1 << 20 };

// 0: a larger set is needed. -1: it cannot be told.
static int count_in(int most)
{
    cpu_set_t *set = CPU_ALLOC(most);
    size_t bytes = CPU_ALLOC_SIZE(most);

    if (!set) return -1;
    int count = sched_getaffinity(0, bytes, set) == 0 ? CPU_COUNT_S(bytes, set) : errno == EINVAL ? 0 : -1;
    CPU_FREE(set);
    return count;
}

size_t qn_processors(void)
{
    int count = 0;

    for (int most = FIRST_SET; count == 0 && most <= LARGEST_SET; most *= 2) count = count_in(most);
    return count > 0 ? (size_t)count : 1;
}
