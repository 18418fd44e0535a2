// SPDX-License-Identifier: Apache-2.0
// What a launch does besides its driver call: nothing. This program's own malloc, free, pthread_mutex_lock and the like
// take the place of the C library's for every library in it, and count; system calls are counted by a filter that turns
// each into a signal. The driver is one whose launch does nothing, so that all that is counted is Quern's.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <dlfcn.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ops/family.h"
#include "runtime/private.h"
#include "support/runtime_fixture.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define HAS_SANITIZER 1 // these take the place of the same functions
#else
#define HAS_SANITIZER 0
#endif

enum { LAUNCHES = 200, BUFFER_BYTES = 1 << 22 };

// ---- what is counted, on this thread and while it is asked for

typedef struct counts {
    long allocations, locks;
} counts;
static _Thread_local bool is_counting;
static _Thread_local counts seen;

#if !HAS_SANITIZER
extern void *__libc_malloc(size_t bytes);
extern void *__libc_calloc(size_t count, size_t bytes);
extern void *__libc_realloc(void *old, size_t bytes);
extern void __libc_free(void *memory);
extern void *__libc_memalign(size_t alignment, size_t bytes);

void *malloc(size_t bytes)
{
    seen.allocations += is_counting;
    return __libc_malloc(bytes);
}

void *calloc(size_t count, size_t bytes)
{
    seen.allocations += is_counting;
    return __libc_calloc(count, bytes);
}

void *realloc(void *old, size_t bytes)
{
    seen.allocations += is_counting;
    return __libc_realloc(old, bytes);
}

void free(void *memory)
{
    seen.allocations += is_counting;
    __libc_free(memory);
}

void *aligned_alloc(size_t alignment, size_t bytes)
{
    seen.allocations += is_counting;
    return __libc_memalign(alignment, bytes);
}

int posix_memalign(void **memory, size_t alignment, size_t bytes)
{
    seen.allocations += is_counting;
    *memory = __libc_memalign(alignment, bytes);
    return *memory ? 0 : 12;
}

// The C library's own, found once.
#define LOCK_FUNCTION(name, type)                                                                                      \
    int name(type *lock)                                                                                               \
    {                                                                                                                  \
        static int (*_Atomic real)(type *);                                                                            \
        seen.locks += is_counting;                                                                                     \
        if (!real) {                                                                                                   \
            void *symbol = dlsym(RTLD_NEXT, #name);                                                                    \
            int (*found)(type *);                                                                                      \
            memcpy(&found, &symbol, sizeof found);                                                                     \
            real = found;                                                                                              \
        }                                                                                                              \
        return real(lock);                                                                                             \
    }
LOCK_FUNCTION(pthread_mutex_lock, pthread_mutex_t)
LOCK_FUNCTION(pthread_mutex_trylock, pthread_mutex_t)
LOCK_FUNCTION(pthread_rwlock_rdlock, pthread_rwlock_t)
LOCK_FUNCTION(pthread_rwlock_wrlock, pthread_rwlock_t)
LOCK_FUNCTION(pthread_spin_lock, pthread_spinlock_t)
#endif

static void count_begin(void)
{
    seen = (counts){0, 0};
    is_counting = true;
}

static void count_end(const char *what)
{
    is_counting = false;
    if (seen.allocations || seen.locks) fail_msg("%s: %ld allocations, %ld locks", what, seen.allocations, seen.locks);
}

// ---- a driver that does nothing in a launch

static qn_driver driver;
static long launched;

static CUresult launch_nothing(const CUlaunchConfig *config, CUfunction function, void **parameters, void **extra)
{
    (void)config, (void)function, (void)parameters, (void)extra;
    launched++;
    return CUDA_SUCCESS;
}

static CUresult encode_nothing(CUtensorMap *map, CUtensorMapDataType type, cuuint32_t rank, void *address,
                               const cuuint64_t *dims, const cuuint64_t *strides, const cuuint32_t *box,
                               const cuuint32_t *steps, CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle,
                               CUtensorMapL2promotion promotion, CUtensorMapFloatOOBfill fill)
{
    (void)type, (void)rank, (void)address, (void)dims, (void)strides, (void)box, (void)steps, (void)interleave;
    (void)swizzle, (void)promotion, (void)fill;
    memset(map, 0, sizeof *map);
    return CUDA_SUCCESS;
}

static quern *q;

static int set_up(void **state)
{
    (void)state;
    static const int cc[] = {90};
    const qn_driver *fake;
    quern_options options = runtime_options("", NULL);
    runtime_devices_make(cc, 1);
    assert_int_equal(qn_driver_load(NULL, &fake), QUERN_OK);
    driver = *fake;
    driver.cuLaunchKernelEx = launch_nothing;
    driver.cuTensorMapEncodeTiled = encode_nothing;
    qn_driver_replace(&driver);
    q = runtime_open(&options);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    quern_close(q);
    runtime_devices_remove();
    return 0;
}

// ---- one launch of each family, by its lists

// A spec, and sizes for it: "rows=8". A family without a line here fails the test that asks for it.
static const struct subject {
    const char *spec, *sizes;
} subjects[] = {
    {"softmax_topk V=128256 K=50 in=bf16 temperature=1 lse=1 token=1", "rows=1"},
    {"softmax_topk V=128256 K=50 in=bf16", "rows=4096"},
    {"gate E=256 K=8 in=f32 bias=1", "N=1"},
    {"gate E=256 K=8 in=f32", "N=16384"},
    {"router D=7168 E=256 K=8 in=bf16 w=bf16", "N=4"},
    {"router D=7168 E=256 K=8 in=bf16 w=bf16", "N=4096"},
    {"indexer H=64 C=128 layout=fp8_shared k=512 q=fp8 page=64", "T=4 max_length=4096 pages=256 columns=64 B=4"},
    {"attention d=64", "B=2 Sq=4 Sk=64 Hq=4 Hkv=2"},
    {"attention d=128 layout=varlen causal=1", "B=2 Sq=64 Sk=64 Hq=4 Hkv=2 Tq=100 Tk=100"},
};

typedef struct prepared {
    quern_op *op;
    const qn_family *family;
    qn_any_args args;
    quern_argument named[48];
    size_t named_count;
} prepared;

static _Alignas(4096) unsigned char buffer[BUFFER_BYTES];
static unsigned char *workspace;
static size_t workspace_bytes;

static void add_named(prepared *p, const char *name, void *pointer, int64_t number)
{
    assert_true(p->named_count < QN_COUNT(p->named));
    p->named[p->named_count++] = (quern_argument){name, pointer, number};
}

static void set_sizes(prepared *p, const char *sizes)
{
    char text[128];
    snprintf(text, sizeof text, "%s", sizes);
    for (char *rest = text, *word; (word = strsep(&rest, " "));) {
        char *value = strchr(word, '=');
        assert_non_null(value);
        *value++ = 0;
        size_t i = 0;
        while (i < p->family->size_count && strcmp(p->family->sizes[i].name, word) != 0) i++;
        if (i == p->family->size_count) fail_msg("%s has no size %s", p->family->name, word);
        int64_t number = atoll(value);
        memcpy(p->args.bytes + p->family->size_args_offset[i], &number, sizeof number);
        add_named(p, p->family->sizes[i].name, NULL, number);
    }
}

static void set_tensors(prepared *p, const quern_spec *spec)
{
    for (size_t i = 0; i < p->family->tensor_count; i++) {
        const qn_tensor *tensor = &p->family->tensors[i];
        void *pointer = buffer;
        if (!qn_tensor_is_given(p->family, spec, tensor)) continue;
        memcpy(p->args.bytes + tensor->pointer_offset, &pointer, sizeof pointer);
        add_named(p, tensor->name, pointer, 0);
    }
}

static void set_workspace(prepared *p)
{
    memcpy(p->args.bytes + p->family->workspace_offset, &workspace, sizeof workspace);
    memcpy(p->args.bytes + p->family->workspace_bytes_offset, &workspace_bytes, sizeof workspace_bytes);
    add_named(p, "workspace", workspace, 0);
    add_named(p, "workspace_bytes", NULL, (int64_t)workspace_bytes);
}

static void prepare(const struct subject *subject, prepared *p)
{
    quern_any_spec spec;
    memset(p, 0, sizeof *p);
    if (quern_spec_parse(subject->spec, &spec) != QUERN_OK ||
        quern_prepare(q, &spec.base, QUERN_DEVICE_CURRENT, &p->op) != QUERN_OK)
        fail_msg("%s: %s", subject->spec, quern_message());
    p->family = p->op->family;
    p->args.base.size = p->family->args_bytes;
    p->args.base.family = p->family->name;
    if (!workspace) { // address space only: nothing is written to it
        workspace_bytes = (size_t)16 << 30;
        workspace = mmap(NULL, workspace_bytes, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        assert_true(workspace != MAP_FAILED);
    }
    set_sizes(p, subject->sizes);
    set_tensors(p, &p->op->spec.base); // complete: a layout may imply tensors
    set_workspace(p);
    if (quern_launch_args(p->op, &p->args.base, NULL) != QUERN_OK) fail_msg("%s: %s", subject->spec, quern_message());
}

static quern_status launch_many(const prepared *p, int times)
{
    quern_status status = QUERN_OK;
    for (int i = 0; i < times && status == QUERN_OK; i++) status = quern_launch_args(p->op, &p->args.base, NULL);
    for (int i = 0; i < times && status == QUERN_OK; i++) status = quern_launch(p->op, p->named, p->named_count, NULL);
    return status;
}

// ---- allocations and locks

// Were the counting not to work, the other tests would pass on anything.
static void preparing_is_seen_to_allocate_and_lock(void **state)
{
    (void)state;
    if (HAS_SANITIZER) skip();
    quern_softmax_topk_spec spec = runtime_spec(777, 7);
    quern_op *op = NULL;

    count_begin();
    quern_status status = quern_prepare(q, &spec.base, 0, &op);
    is_counting = false;

    assert_int_equal(status, QUERN_OK);
    assert_true(seen.allocations > 0);
    assert_true(seen.locks > 0);
    quern_op_release(op);
}

static void a_launch_of_any_family_allocates_nothing_and_takes_no_lock(void **state)
{
    (void)state;
    if (HAS_SANITIZER) skip();
    for (size_t i = 0; i < QN_COUNT(subjects); i++) {
        static prepared p;
        prepare(&subjects[i], &p);
        long before = launched;

        count_begin();
        quern_status status = launch_many(&p, LAUNCHES);
        count_end(subjects[i].spec);

        assert_int_equal(status, QUERN_OK);
        assert_true(launched - before >= 2 * LAUNCHES);
        quern_op_release(p.op);
    }
}

static void every_family_is_among_the_subjects(void **state)
{
    (void)state;
    size_t count;
    const qn_family *const *families = qn_families(&count);
    for (size_t f = 0; f < count; f++) {
        bool found = false;
        for (size_t i = 0; i < QN_COUNT(subjects); i++)
            found |= !strncmp(subjects[i].spec, families[f]->name, strlen(families[f]->name));
        if (!found) fail_msg("%s has no line in subjects", families[f]->name);
    }
}

static void a_packed_launch_allocates_nothing_and_takes_no_lock(void **state)
{
    (void)state;
    if (HAS_SANITIZER) skip();
    quern_source source = QUERN_SOURCE_INIT;
    quern_geometry geometry = QUERN_GEOMETRY_INIT;
    quern_kernel *kernel = NULL;
    quern_status status = QUERN_OK;
    source.source = "extern \"C\" __global__ void mine(int *x) { *x = 1; }", source.entry = "mine";
    source.threads = 128, source.parameter_bytes = 8, source.cluster = 2;
    geometry.grid[0] = 2;
    assert_int_equal(quern_prepare_source(q, &source, 0, &kernel), QUERN_OK);

    count_begin();
    for (int i = 0; i < LAUNCHES && status == QUERN_OK; i++)
        status = quern_launch_packed(kernel, &geometry, buffer, 8, NULL);
    count_end("quern_launch_packed");

    assert_int_equal(status, QUERN_OK);
    quern_kernel_release(kernel);
}

static void preparing_again_allocates_nothing_and_takes_no_lock(void **state)
{
    (void)state;
    if (HAS_SANITIZER) skip();
    quern_softmax_topk_spec spec = runtime_spec(1000, 8);
    quern_op *op = NULL, *again = NULL;
    quern_status status = QUERN_OK;
    assert_int_equal(quern_prepare(q, &spec.base, QUERN_DEVICE_CURRENT, &op), QUERN_OK);

    count_begin();
    for (int i = 0; i < LAUNCHES && status == QUERN_OK; i++) {
        status = quern_prepare(q, &spec.base, QUERN_DEVICE_CURRENT, &again);
        quern_op_release(again);
    }
    count_end("quern_prepare, a hit");

    assert_int_equal(status, QUERN_OK);
    assert_ptr_equal(op, again);
    quern_op_release(op);
}

// ---- names

// A profiler shows the symbol only: it has the family and the first number of the spec.
static void kernels_of_every_family_are_named_by_family_and_shape(void **state)
{
    (void)state;
    for (size_t i = 0; i < QN_COUNT(subjects); i++) {
        static prepared p;
        char number[32];
        const char *value = strchr(subjects[i].spec, '=') + 1;
        snprintf(number, sizeof number, "%.*s", (int)strcspn(value, " "), value);
        prepare(&subjects[i], &p);
        for (size_t v = 0; v < quern_op_variants(p.op); v++) {
            quern_kernel_info info = QUERN_KERNEL_INFO_INIT;
            assert_int_equal(quern_op_describe(p.op, v, 0, &info), QUERN_OK);
            if (!strstr(info.entry, p.family->name) || !strstr(info.entry, number))
                fail_msg("%s: its kernel is called %s", subjects[i].spec, info.entry);
        }
        quern_op_release(p.op);
    }
}

// ---- system calls

static volatile long *calls; // shared with the parent

static void on_call(int number)
{
    (void)number;
    (*calls)++;
}

// Every system call but leaving, and returning from the handler, becomes a SIGSYS.
static bool trap_calls(void)
{
    struct sock_filter rules[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_exit_group, 2, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_rt_sigreturn, 1, 0),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {QN_COUNT(rules), rules};
    signal(SIGSYS, on_call);
    return !prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) && !prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}

// Runs launches, or a known number of calls, in a child under the filter: how many calls it made; -1: no filters here.
static long count_calls(const prepared *p, int known)
{
    int result = 0;
    calls = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(calls != MAP_FAILED);
    pid_t child = fork();
    if (child == 0) {
        if (!trap_calls()) _exit(77);
        for (int i = 0; i < known; i++) syscall(SYS_getppid);
        quern_status status = p ? launch_many(p, LAUNCHES) : QUERN_OK;
        syscall(SYS_exit_group, status == QUERN_OK ? 0 : 1);
    }
    assert_int_equal(waitpid(child, &result, 0), child);
    assert_true(WIFEXITED(result));
    long count = WEXITSTATUS(result) == 77 ? -1 : *calls;
    if (count >= 0) assert_int_equal(WEXITSTATUS(result), 0);
    munmap((void *)(uintptr_t)calls, 4096);
    return count;
}

static void a_launch_of_any_family_makes_no_system_call(void **state)
{
    (void)state;
    if (HAS_SANITIZER) skip();
    long known = count_calls(NULL, 3);
    if (known < 0) skip();
    assert_int_equal(known, 3);
    for (size_t i = 0; i < QN_COUNT(subjects); i++) {
        static prepared p;
        prepare(&subjects[i], &p);
        long count = count_calls(&p, 0);
        if (count) fail_msg("%s: %ld system calls in %d launches", subjects[i].spec, count, 2 * LAUNCHES);
        quern_op_release(p.op);
    }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(preparing_is_seen_to_allocate_and_lock),
        TEST(a_launch_of_any_family_allocates_nothing_and_takes_no_lock),
        TEST(every_family_is_among_the_subjects),
        TEST(a_packed_launch_allocates_nothing_and_takes_no_lock),
        TEST(preparing_again_allocates_nothing_and_takes_no_lock),
        TEST(kernels_of_every_family_are_named_by_family_and_shape),
        TEST(a_launch_of_any_family_makes_no_system_call),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
