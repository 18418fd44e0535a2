// SPDX-License-Identifier: Apache-2.0
// How many processors there are, on machines of any size: the system call is this file's (linked with --wrap).
#include <errno.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "base/processors.h"

static size_t kernel_bits; // a smaller set is refused, as the kernel does
static int allowed;        // processors in the set, from the last one down
static int failure;        // of every call; 0: none
static int calls;

int __wrap_sched_getaffinity(pid_t pid, size_t bytes, cpu_set_t *set);
int __wrap_sched_getaffinity(pid_t pid, size_t bytes, cpu_set_t *set)
{
    assert_int_equal(pid, 0);
    calls++;
    errno = failure ? failure : EINVAL;
    if (failure || bytes * 8 < kernel_bits) return -1;
    memset(set, 0, bytes);
    for (int i = 0; i < allowed; i++) CPU_SET_S(kernel_bits - 1 - (size_t)i, bytes, set);
    return 0;
}

static size_t count_on(size_t bits, int processors)
{
    kernel_bits = bits, allowed = processors, failure = 0, calls = 0;
    return qn_processors();
}

static void counts_on_any_machine(void **state)
{
    (void)state;
    assert_int_equal(count_on(64, 1), 1);
    assert_int_equal(count_on(64, 64), 64);
    assert_int_equal(count_on(1024, 1024), 1024);
    assert_int_equal(calls, 1);
    assert_int_equal(count_on(1536, 1500), 1500);
    assert_int_equal(count_on(8192, 8192), 8192);
    assert_int_equal(count_on(8192, 3), 3); // of a large machine, a few
}

static void is_one_where_it_cannot_be_told(void **state)
{
    (void)state;
    kernel_bits = 64, allowed = 8, failure = ENOSYS, calls = 0;
    assert_int_equal(qn_processors(), 1);
    assert_int_equal(calls, 1);
    failure = EINVAL, calls = 0; // whatever the size: it ends
    assert_int_equal(qn_processors(), 1);
    assert_true(calls > 1 && calls < 32);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(counts_on_any_machine),
        cmocka_unit_test(is_one_where_it_cannot_be_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
