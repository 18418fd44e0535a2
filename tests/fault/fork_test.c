// SPDX-License-Identifier: Apache-2.0
// Fork at awkward moments: while locks are held, while a compile is in flight, with open databases and loaded kernels.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/private.h"
#include "support/cache_fixture.h"
#include "support/fake_driver.h"
#include "support/fake_nvrtc.h"
#include "support/fault_count.h"
#include "support/fault_vfs.h"
#include "support/runtime_fixture.h"

enum { PATIENCE_S = 60, FOREVER_MS = 600000, STOP = 2 };

static char folder[64];
static char database[128];
static _Atomic int *shared; // a few words that processes share

static int set_up(void **state)
{
    (void)state;
    cache_folder_make(folder);
    snprintf(database, sizeof database, "%s/quern-v1.db", folder);
    shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true((void *)shared != MAP_FAILED);
    fake_nvrtc_install(13, 0);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    fake_nvrtc_remove();
    munmap(shared, 4096);
    cache_folder_remove(folder);
    return 0;
}

static quern *open_on_database(void)
{
    quern_options options = runtime_options(database, NULL);
    options.flight_timeout_ms = FOREVER_MS;
    return runtime_open(&options);
}

static quern_status obtain(quern *q, int number)
{
    const qn_image *image;
    return runtime_obtain(q, number, "sm_90a", &image);
}

// A child that ends in time, or by SIGALRM.
#define IN_CHILD(child, ...)                                                                                           \
    pid_t child = fork();                                                                                              \
    assert_true(child >= 0);                                                                                           \
    if (child == 0) {                                                                                                  \
        alarm(PATIENCE_S);                                                                                             \
        _exit((__VA_ARGS__));                                                                                          \
    }

static void a_child_is_served_from_the_memory_it_inherited(void **state)
{
    (void)state;
    quern *q = open_on_database();
    assert_int_equal(obtain(q, 1), QUERN_OK);

    IN_CHILD(child, obtain(q, 1) == QUERN_OK && fake_nvrtc.compiles == 1 ? 0 : 1)

    assert_int_equal(cache_child_end(child), 0);
    quern_close(q);
}

static void parent_and_child_both_go_on_with_the_database(void **state)
{
    (void)state;
    quern *q = open_on_database();
    assert_int_equal(obtain(q, 1), QUERN_OK);

    IN_CHILD(child, obtain(q, 2) == QUERN_OK && runtime_counters(q).put_failed == 0 ? 0 : 1)
    assert_int_equal(obtain(q, 3), QUERN_OK);
    assert_int_equal(cache_child_end(child), 0);
    assert_int_equal(obtain(q, 4), QUERN_OK);

    assert_int_equal(runtime_counters(q).put_failed + runtime_counters(q).get_failed, 0);
    quern_close(q);
    quern_store store = cache_open_read(database);
    assert_int_equal(cache_count(&store), 4);
    qn_sqlite_close(&store);
}

static void locks_held_at_the_fork_do_not_hold_the_child(void **state)
{
    (void)state;
    quern *q = open_on_database();
    assert_int_equal(obtain(q, 1), QUERN_OK);
    qn_process *process = qn_process_of(q);
    pthread_mutex_lock(&process->lock);
    pthread_mutex_lock(&process->load_lock);

    IN_CHILD(child, obtain(q, 2) == QUERN_OK ? (quern_close(q), 0) : 1)
    pthread_mutex_unlock(&process->load_lock);
    pthread_mutex_unlock(&process->lock);

    assert_int_equal(cache_child_end(child), 0);
    assert_int_equal(obtain(q, 3), QUERN_OK);
    quern_close(q);
}

// Says that a compile runs; cancels it once it is told to stop.
static int say_begun(void *user)
{
    int before = 0;
    return !atomic_compare_exchange_strong((_Atomic int *)user, &before, 1) && before == STOP;
}

static void *obtain_1(void *user)
{
    return obtain(user, 1) == QUERN_OK ? NULL : user;
}

static quern *open_with_signal(void)
{
    quern_options options = runtime_options(database, NULL);
    options.flight_timeout_ms = FOREVER_MS;
    options.cancel = say_begun;
    options.cancel_user = &shared[0];
    return runtime_open(&options);
}

// The child finds the flight of a thread that it does not have. It must wait for the process, not for the thread.
static void a_child_born_during_a_compile_gets_the_parents_result(void **state)
{
    (void)state;
    pthread_t thread;
    void *failed;
    quern *q = open_with_signal();
    fake_nvrtc.delay_ms = 400;
    assert_int_equal(pthread_create(&thread, NULL, obtain_1, q), 0);
    cache_wait_until(&shared[0], 1, PATIENCE_S);

    IN_CHILD(child, obtain(q, 1) == QUERN_OK && runtime_counters(q).hit_user == 1 ? 0 : 1)

    assert_int_equal(cache_child_end(child), 0);
    pthread_join(thread, &failed);
    assert_null(failed);
    assert_int_equal(fake_nvrtc.compiles, 1);
    quern_close(q);
}

// The compiler's own locks are taken in such a child, for ever: it must not go there, nor may its own children.
static int obtain_beside_a_torn_compiler(quern *q)
{
    long before = fake_nvrtc.compiles;
    if (obtain(q, 2) != QUERN_WOULD_COMPILE) return 1;
    if (!strstr(quern_message(), "spec \"") || !strstr(quern_message(), "forked while")) return 2;
    if (obtain(q, 3) != QUERN_OK || obtain(q, 4) != QUERN_OK) return 3; // memory, the database
    if (fake_nvrtc.compiles != before || runtime_counters(q).would_compile != 1) return 4;
    return 0;
}

static int obtain_in_grandchild(quern *q)
{
    int rc = obtain_beside_a_torn_compiler(q);
    if (rc) return rc;
    IN_CHILD(child, obtain(q, 2) == QUERN_WOULD_COMPILE ? 0 : 5)
    return cache_child_end(child);
}

static void a_child_born_during_a_compile_compiles_nothing(void **state)
{
    (void)state;
    pthread_t thread;
    void *failed;
    quern *q = open_with_signal(), *other = open_on_database();
    assert_int_equal(obtain(other, 4), QUERN_OK);
    assert_int_equal(obtain(q, 3), QUERN_OK);
    quern_close(other);
    atomic_store(&shared[0], 0);
    fake_nvrtc.delay_ms = FOREVER_MS;
    assert_int_equal(pthread_create(&thread, NULL, obtain_1, q), 0);
    cache_wait_until(&shared[0], 1, PATIENCE_S);

    IN_CHILD(child, obtain_in_grandchild(q))

    assert_int_equal(cache_child_end(child), 0);
    atomic_store(&shared[0], STOP);
    pthread_join(thread, &failed);
    assert_non_null(failed);
    atomic_store(&shared[0], 0);
    fake_nvrtc.delay_ms = 0;
    assert_int_equal(obtain(q, 5), QUERN_OK); // the parent goes on, and so does a child of a quiet moment
    IN_CHILD(later, obtain(q, 2) == QUERN_OK ? 0 : 1)
    assert_int_equal(cache_child_end(later), 0);
    quern_close(q);
}

// Nor does an op's preparation ask the compiler anything, its architectures included.
static int prepare_beside_a_torn_compiler(quern *q)
{
    quern_softmax_topk_spec spec = runtime_spec(1000, 8);
    quern_op *op = NULL;
    fake_nvrtc.arch_count = 0, fake_nvrtc.archs = (const int[1]){0}; // it would be NVRTC_LACKS_ARCH
    if (quern_prepare(q, &spec.base, 0, &op) != QUERN_WOULD_COMPILE || op) return 1;
    return strstr(quern_message(), "forked while") ? 0 : 2;
}

static void a_child_born_during_a_compile_prepares_nothing_that_is_not_there(void **state)
{
    (void)state;
    static const int cc[] = {90};
    pthread_t thread;
    quern *q = open_with_signal();
    fake_driver_install(1, cc);
    fake_driver_enter(fake_driver_context(0));
    fake_nvrtc.delay_ms = FOREVER_MS;
    assert_int_equal(pthread_create(&thread, NULL, obtain_1, q), 0);
    cache_wait_until(&shared[0], 1, PATIENCE_S);

    IN_CHILD(child, prepare_beside_a_torn_compiler(q))

    assert_int_equal(cache_child_end(child), 0);
    atomic_store(&shared[0], STOP);
    pthread_join(thread, NULL);
    quern_close(q);
    fake_driver_enter(NULL);
    fake_driver_remove();
}

// A process compiles, forks meanwhile, and is killed: its child shares the lock's description.
static int compile_and_fork(void)
{
    pthread_t thread;
    quern *q = open_with_signal();
    fake_nvrtc.delay_ms = FOREVER_MS;
    if (pthread_create(&thread, NULL, obtain_1, q)) return 1;
    cache_wait_until(&shared[0], 1, PATIENCE_S);
    if (fork() == 0) {
        alarm(PATIENCE_S);
        fake_nvrtc.delay_ms = 0;
        atomic_store(&shared[1], getpid());
        obtain(q, 2); // the slow path: what was inherited is dropped (and nothing compiled)
        atomic_store(&shared[2], 1);
        for (;;) pause();
    }
    for (;;) pause();
}

static void a_living_child_does_not_keep_its_dead_parents_lock(void **state)
{
    (void)state;
    IN_CHILD(parent, compile_and_fork())
    cache_wait_until(&shared[2], 1, PATIENCE_S);
    kill(parent, SIGKILL);
    assert_int_equal(cache_child_end(parent), 128 + SIGKILL);
    quern_options options = runtime_options(database, NULL);
    options.flight_timeout_ms = PATIENCE_S * 1000;
    quern *q = runtime_open(&options);

    assert_int_equal(obtain(q, 1), QUERN_OK);

    assert_int_equal(runtime_counters(q).flight_timeouts, 0);
    kill(atomic_load(&shared[1]), SIGKILL);
    quern_close(q);
}

// A child may have closed what it inherited and put the number to another use.
static int reuse_descriptors(quern *q)
{
    int files[128], count = 0, fd;
    char name[160];
    for (fd = 3; fd < 64; fd++) close(fd);
    snprintf(name, sizeof name, "%s/mine", folder);
    cache_write_file(name, "x", 1);
    struct stat mine, info;
    if (stat(name, &mine)) return 3;
    while (count < 40 && (files[count] = open(name, O_RDONLY)) >= 0) count++;
    if (obtain(q, 2) != QUERN_WOULD_COMPILE) return 1; // the slow path all the same
    for (int i = 0; i < count; i++)
        if (fstat(files[i], &info) || info.st_ino != mine.st_ino) return 2;
    return 0;
}

static void a_descriptor_that_the_child_uses_for_itself_is_not_closed(void **state)
{
    (void)state;
    pthread_t thread;
    quern *q = open_with_signal();
    fake_nvrtc.delay_ms = 300;
    assert_int_equal(pthread_create(&thread, NULL, obtain_1, q), 0);
    cache_wait_until(&shared[0], 1, PATIENCE_S);

    IN_CHILD(child, reuse_descriptors(q))

    assert_int_equal(cache_child_end(child), 0);
    pthread_join(thread, NULL);
    quern_close(q);
}

// The child never comes to the slow path, so only the parent can let go.
static void an_idle_child_does_not_keep_a_lock_that_its_parent_dropped(void **state)
{
    (void)state;
    quern *q = open_on_database(), *other = open_on_database();
    qn_hash hash = qn_hash_bytes("key", 3);
    qn_lock lock, again;
    qn_process *process = qn_process_of(q);
    qn_process_open_stores(q, process);
    qn_process_open_stores(other, qn_process_of(other));
    assert_int_equal(qn_lock_take(q, process, &hash, "key", &lock), QUERN_OK);
    assert_true(lock.fd >= 0);
    IN_CHILD(child, pause())

    qn_lock_drop(q, &lock);

    assert_int_equal(qn_lock_take(other, qn_process_of(other), &hash, "key", &again), QUERN_OK);
    assert_true(again.fd >= 0);
    assert_false(again.waited);
    qn_lock_drop(other, &again);
    kill(child, SIGKILL);
    cache_child_end(child);
    quern_close(q);
    quern_close(other);
}

// SQLite's own record of the file's locks was copied in the middle of a change: a second connection would trust it.
static int obtain_beside_a_torn_database(void *user)
{
    quern *q = user;
    if (obtain(q, 2) != QUERN_OK) return 1;
    quern_counters c = runtime_counters(q);
    return c.put_failed == 1 && c.get_failed > 0 ? 0 : 2;
}

static void fork_here(void *user)
{
    atomic_store(&shared[0], 1 + cache_in_child(obtain_beside_a_torn_database, user));
}

static void a_child_born_inside_the_database_goes_on_in_memory(void **state)
{
    (void)state;
    fault_vfs_install();
    fault_vfs_set((fault_plan){0});
    quern *q = open_on_database();
    assert_int_equal(obtain(q, 1), QUERN_OK);
    fault_vfs_set((fault_plan){.kinds = FAULT_WRITE, .at = 3, .hook = fork_here, .user = q});

    assert_int_equal(obtain(q, 3), QUERN_OK);

    fault_vfs_set((fault_plan){0});
    assert_int_equal(shared[0], 1); // it forked, and the child was content
    assert_int_equal(runtime_counters(q).put_failed, 0);
    quern_close(q);
}

static void a_child_makes_no_driver_call_when_it_closes(void **state)
{
    (void)state;
    static const int cc[] = {90};
    quern_softmax_topk_spec spec = runtime_spec(1000, 8);
    quern_source mine = QUERN_SOURCE_INIT;
    quern_kernel *kernel;
    quern_op *op;
    mine.source = "extern \"C\" __global__ void mine() {}", mine.entry = "mine", mine.threads = 32;
    fake_driver_install(1, cc);
    fake_driver_enter(fake_driver_context(0));
    quern *q = open_on_database();
    assert_int_equal(quern_prepare(q, &spec.base, 0, &op), QUERN_OK);
    assert_int_equal(quern_prepare_source(q, &mine, 0, &kernel), QUERN_OK);

    IN_CHILD(child, (quern_kernel_release(kernel), quern_op_release(op), quern_close(q),
                     fake_driver.call.cuLibraryUnload.count == 0 ? 0 : 1))

    assert_int_equal(cache_child_end(child), 0);
    quern_kernel_release(kernel);
    quern_op_release(op);
    quern_close(q);
    assert_int_equal(fake_driver.live_libraries, 0);
    fake_driver_enter(NULL);
    fake_driver_remove();
}

static int warm_in_grandchild(quern *q)
{
    if (obtain(q, 2) != QUERN_OK) return 1;
    IN_CHILD(child, obtain(q, 3) == QUERN_OK ? 0 : 1)
    return cache_child_end(child);
}

static void a_grandchild_opens_its_own_too(void **state)
{
    (void)state;
    quern *q = open_on_database();
    assert_int_equal(obtain(q, 1), QUERN_OK);

    IN_CHILD(child, warm_in_grandchild(q))

    assert_int_equal(cache_child_end(child), 0);
    quern_close(q);
    quern_store store = cache_open_read(database);
    assert_int_equal(cache_count(&store), 3);
    qn_sqlite_close(&store);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_child_is_served_from_the_memory_it_inherited),
        TEST(parent_and_child_both_go_on_with_the_database),
        TEST(locks_held_at_the_fork_do_not_hold_the_child),
        TEST(a_child_born_during_a_compile_gets_the_parents_result),
        TEST(a_child_born_during_a_compile_compiles_nothing),
        TEST(a_child_born_during_a_compile_prepares_nothing_that_is_not_there),
        TEST(a_living_child_does_not_keep_its_dead_parents_lock),
        TEST(a_descriptor_that_the_child_uses_for_itself_is_not_closed),
        TEST(an_idle_child_does_not_keep_a_lock_that_its_parent_dropped),
        TEST(a_child_born_inside_the_database_goes_on_in_memory),
        TEST(a_child_makes_no_driver_call_when_it_closes),
        TEST(a_grandchild_opens_its_own_too),
    };
    return fault_tests("a fork while locks are held or a compile is in flight", QN_COUNT(tests),
                       cmocka_run_group_tests(tests, NULL, NULL));
}
