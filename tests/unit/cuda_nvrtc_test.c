// SPDX-License-Identifier: Apache-2.0
// Finding NVRTC, knowing which one it is, and what it can do. The real library where there is one (else those cases are
// skipped with a message), the fake one for versions that are not installed.
#include "cuda/nvrtc.h"

#include <dlfcn.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/path.h"
#include "cuda/nvrtc_search.h"
#include "support/fake_nvrtc.h"

static const qn_nvrtc *real_nvrtc(void)
{
    const qn_nvrtc *nvrtc;
    if (qn_nvrtc_load(qn_environment("QUERN_NVRTC", false), false, &nvrtc) == QUERN_OK) return nvrtc;
    print_message("no NVRTC here: %s\n", quern_message());
    skip();
    return NULL;
}

// ---- failing (before any success, which would stay)

static void a_missing_file_is_named_with_the_reason(void **state)
{
    const qn_nvrtc *nvrtc = (const qn_nvrtc *)&nvrtc;

    (void)state;
    assert_int_equal(qn_nvrtc_load("/nowhere/libnvrtc.so.13", false, &nvrtc), QUERN_NVRTC_NOT_FOUND);
    assert_ptr_equal(nvrtc, (const qn_nvrtc *)&nvrtc);
    assert_non_null(strstr(quern_message(), "/nowhere/libnvrtc.so.13: "));
    assert_non_null(strstr(quern_message(), "No such file"));
    assert_null(strstr(quern_message(), "/usr/local/cuda/")); // a file that is named is the only candidate
}

static void a_library_that_is_no_nvrtc_is_refused(void **state)
{
    const qn_nvrtc *nvrtc;

    (void)state;
    assert_int_equal(qn_nvrtc_load("libc.so.6", false, &nvrtc), QUERN_NVRTC_NOT_FOUND);
    assert_non_null(strstr(quern_message(), "libc.so.6: has no function nvrtcVersion"));
}

// ---- the order of candidates

typedef struct candidates {
    char name[128][256];
    bool only_loaded[128];
    int count;
} candidates;

static bool note(void *user, const char *name, bool only_loaded)
{
    candidates *c = user;
    if (c->count == 128) return true;
    snprintf(c->name[c->count], sizeof c->name[0], "%s", name);
    c->only_loaded[c->count++] = only_loaded;
    return false;
}

static int index_of(const candidates *c, const char *name)
{
    for (int i = 0; i < c->count; i++) {
        if (!strcmp(c->name[i], name) && !c->only_loaded[i]) return i;
    }
    fail_msg("%s is no candidate", name);
    return -1;
}

static void copy_file(const char *from, const char *to)
{
    qn_text bytes = QN_TEXT_INIT;
    FILE *file = fopen(to, "w");
    assert_non_null(file);
    assert_int_equal(qn_file_read(from, &bytes), QUERN_OK);
    assert_int_equal(fwrite(bytes.bytes, 1, bytes.length, file), bytes.length);
    fclose(file);
    qn_text_fini(&bytes);
}

static void candidates_come_in_the_order_that_is_promised(void **state)
{
    char root[] = "/tmp/quern-nvrtc-XXXXXX", path[4][300];
    candidates c = {.count = 0};
    Dl_info info;

    (void)state;
    assert_non_null(mkdtemp(root));
    snprintf(path[0], sizeof path[0], "%s/lib64", root);
    snprintf(path[1], sizeof path[1], "%s/home", root);
    snprintf(path[2], sizeof path[2], "%s/home/lib", root);
    snprintf(path[3], sizeof path[3], "%s/libcudart.so.13", root);
    for (int i = 0; i < 3; i++) assert_int_equal(mkdir(path[i], 0700), 0);
    // Any library under this name stands for an open cudart.
    assert_true(dladdr((void *)(uintptr_t)_cmocka_run_group_tests, &info));
    copy_file(info.dli_fname, path[3]);
    void *cudart = dlopen(path[3], RTLD_NOW | RTLD_LOCAL);
    assert_non_null(cudart);
    setenv("CUDA_PATH", root, 1);
    setenv("CUDA_HOME", path[1], 1);

    assert_false(qn_nvrtc_search(NULL, false, note, &c));

    assert_true(c.only_loaded[0] && c.only_loaded[1] && !c.only_loaded[2]);
    assert_non_null(strstr(c.name[0], "libnvrtc.so.1"));
    snprintf(path[3], sizeof path[3], "%s/libnvrtc.so.13", root);
    int beside = index_of(&c, path[3]), loader = index_of(&c, "libnvrtc.so.13");
    snprintf(path[3], sizeof path[3], "%s/lib64/libnvrtc.so.12", root);
    int cuda_path = index_of(&c, path[3]);
    snprintf(path[3], sizeof path[3], "%s/home/lib/libnvrtc.so.13", root);
    int cuda_home = index_of(&c, path[3]);
    assert_true(beside < loader && loader < cuda_path && cuda_path < cuda_home);
    if (qn_file_exists("/usr/local/cuda/lib64"))
        assert_true(cuda_home < index_of(&c, "/usr/local/cuda/lib64/libnvrtc.so.13"));
    // Who ignores the environment gets all the others.
    candidates ignoring = {.count = 0};
    assert_false(qn_nvrtc_search(NULL, true, note, &ignoring));
    assert_int_equal(ignoring.count, c.count - 4); // two folders exist, two names in each

    unsetenv("CUDA_PATH");
    unsetenv("CUDA_HOME");
    dlclose(cudart);
    snprintf(path[3], sizeof path[3], "%s/libcudart.so.13", root);
    unlink(path[3]);
    for (int i = 2; i >= 0; i--) rmdir(path[i]);
    rmdir(root);
}

static void a_named_file_is_the_only_candidate(void **state)
{
    candidates c = {.count = 0};

    (void)state;
    assert_false(qn_nvrtc_search("/x/y", false, note, &c));
    assert_int_equal(c.count, 1);
    assert_string_equal(c.name[0], "/x/y");
    assert_false(c.only_loaded[0]);
}

// ---- the real one

static void *load_one(void *user)
{
    const qn_nvrtc *nvrtc = NULL;
    if (qn_nvrtc_load(qn_environment("QUERN_NVRTC", false), false, &nvrtc) == QUERN_OK)
        *(const qn_nvrtc **)user = nvrtc;
    return NULL;
}

static void threads_that_load_at_once_get_one_table(void **state)
{
    enum { THREADS = 6 };
    pthread_t thread[THREADS];
    const qn_nvrtc *got[THREADS] = {NULL};

    (void)state;
    for (int i = 0; i < THREADS; i++) assert_int_equal(pthread_create(&thread[i], NULL, load_one, &got[i]), 0);
    for (int i = 0; i < THREADS; i++) pthread_join(thread[i], NULL);
    const qn_nvrtc *nvrtc = real_nvrtc();
    for (int i = 0; i < THREADS; i++) assert_ptr_equal(got[i], nvrtc);
}

static void the_identity_is_version_and_build_id_or_sum(void **state)
{
    const qn_nvrtc *nvrtc = real_nvrtc(), *again;
    int major = 0, minor = 0, used = 0;
    char kind[8] = "", id[80] = "";

    (void)state;
    assert_true(nvrtc->major >= 12);
    assert_int_equal(nvrtc->path[0], '/');
    assert_true(qn_file_exists(nvrtc->path));
    assert_int_equal(sscanf(nvrtc->identity, "nvrtc %d.%d %7[a-z] %79[0-9a-f]%n", &major, &minor, kind, id, &used), 4);
    assert_true(!strcmp(kind, "build") || !strcmp(kind, "sum"));
    assert_int_equal(major, nvrtc->major);
    assert_int_equal(minor, nvrtc->minor);
    assert_true(strlen(id) >= 16 && nvrtc->identity[used] == 0);
    // The first success stays, whatever is asked for later.
    assert_int_equal(qn_nvrtc_load("/nowhere", false, &again), QUERN_OK);
    assert_ptr_equal(again, nvrtc);
}

static void the_real_list_says_what_is_there(void **state)
{
    const qn_nvrtc *nvrtc = real_nvrtc();
    qn_arch unknown = {.name = "sm_60", .cc = 60};
    const qn_arch *arch;

    (void)state;
    assert_int_equal(qn_arch_find("sm_90a", &arch), QUERN_OK);
    assert_true(qn_nvrtc_has_arch(nvrtc, arch));
    unknown.cc = 131;
    assert_false(qn_nvrtc_has_arch(nvrtc, &unknown));
}

// ---- versions that are not here

static void assert_has(const char *name, bool wanted)
{
    const qn_nvrtc *nvrtc;
    const qn_arch *arch;

    assert_int_equal(qn_nvrtc_load(NULL, false, &nvrtc), QUERN_OK);
    assert_int_equal(qn_arch_find(name, &arch), QUERN_OK);
    if (qn_nvrtc_has_arch(nvrtc, arch) != wanted)
        fail_msg("%d.%d, %s: wanted %d", nvrtc->major, nvrtc->minor, name, wanted);
}

static void suffixed_names_follow_the_list_and_the_version(void **state)
{
    static const int list_120[] = {75, 80, 86, 87, 89, 90}, list_128[] = {75, 80, 86, 89, 90, 100, 101, 120},
                     list_129[] = {75, 80, 86, 89, 90, 100, 101, 103, 120, 121};

    (void)state;
    fake_nvrtc_install(12, 0);
    fake_nvrtc.archs = list_120, fake_nvrtc.arch_count = (int)QN_COUNT(list_120);
    assert_has("sm_80", true);
    assert_has("sm_90a", true);
    assert_has("sm_100a", false);
    assert_has("sm_100f", false);
    fake_nvrtc_install(12, 8);
    fake_nvrtc.archs = list_128, fake_nvrtc.arch_count = (int)QN_COUNT(list_128);
    assert_has("sm_100a", true);
    assert_has("sm_100f", false); // families came with 12.9
    assert_has("sm_103a", false);
    assert_has("sm_120a", true);
    fake_nvrtc_install(12, 9);
    fake_nvrtc.archs = list_129, fake_nvrtc.arch_count = (int)QN_COUNT(list_129);
    assert_has("sm_100f", true);
    assert_has("sm_103a", true);
    assert_has("sm_121a", true);
    fake_nvrtc_remove();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_missing_file_is_named_with_the_reason),
        cmocka_unit_test(a_library_that_is_no_nvrtc_is_refused),
        cmocka_unit_test(candidates_come_in_the_order_that_is_promised),
        cmocka_unit_test(a_named_file_is_the_only_candidate),
        cmocka_unit_test(threads_that_load_at_once_get_one_table),
        cmocka_unit_test(the_identity_is_version_and_build_id_or_sum),
        cmocka_unit_test(the_real_list_says_what_is_there),
        cmocka_unit_test(suffixed_names_follow_the_list_and_the_version),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
