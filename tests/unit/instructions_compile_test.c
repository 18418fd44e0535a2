// SPDX-License-Identifier: Apache-2.0
// The instruction wrappers of kernel_templates/common compile to machine code for every architecture that has them, and
// for no other one: each through the kernel of its micro-test, whose text holds every function of the file.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "cuda/nvrtc.h"
#include "support/instructions.h"

static const qn_nvrtc *nvrtc;

static quern_status compile(const char *source, const char *name, const qn_arch *arch, qn_compiled *compiled)
{
    char option[48];
    snprintf(option, sizeof option, "--gpu-architecture=%s", arch->name);
    const char *options[] = {option, "--std=c++17"};
    qn_compile request = {.source = source, .name = name, .options = options, .option_count = 2, .timeout_ms = -1};
    return qn_nvrtc_compile(nvrtc, &request, compiled);
}

static void need_nvrtc(void)
{
    if (!nvrtc && qn_nvrtc_load(NULL, false, &nvrtc) != QUERN_OK) {
        print_message("skipped: %s\n", quern_message());
        skip();
    }
}

static void check_file(const char *name, const char *arch_name)
{
    instruction_file file;
    const qn_arch *arch;
    qn_text source = QN_TEXT_INIT;
    qn_compiled compiled = {0};
    assert_int_equal(qn_arch_find(arch_name, &arch), QUERN_OK);
    if (!qn_nvrtc_has_arch(nvrtc, arch)) {
        print_message("%s: this NVRTC (%d.%d) does not have it\n", arch_name, nvrtc->major, nvrtc->minor);
        return;
    }
    instruction_file_read(name, &file);
    assert_int_equal(instruction_source(&file, arch, &source), QUERN_OK);
    quern_status status = compile(qn_text_string(&source), file.kernel, arch, &compiled);
    if (instruction_file_fits(&file, arch)) {
        if (status != QUERN_OK) fail_msg("%s for %s: %s", name, arch_name, quern_message());
        assert_true(qn_cubin_is_plausible(compiled.image.bytes, compiled.image.length));
    } else if (status == QUERN_OK) {
        fail_msg("%s for %s: compiles, where the architecture does not have the instructions", name, arch_name);
    }
    qn_compiled_fini(&compiled);
    qn_text_fini(&source);
    instruction_file_fini(&file);
}

static void check_all(const char *arch)
{
    static const char *const files[] = {"mma", "matrix", "copy", "tma", "wgmma", "numbers"};
    need_nvrtc();
    for (size_t i = 0; i < QN_COUNT(files); i++) check_file(files[i], arch);
}

static void wrappers_compile_for_sm_80(void **state)
{
    (void)state;
    check_all("sm_80");
}
static void wrappers_compile_for_sm_89(void **state)
{
    (void)state;
    check_all("sm_89");
}
static void wrappers_compile_for_sm_90a(void **state)
{
    (void)state;
    check_all("sm_90a");
}
static void wrappers_compile_for_sm_100a(void **state)
{
    (void)state;
    check_all("sm_100a");
}
static void wrappers_compile_for_sm_120a(void **state)
{
    (void)state;
    check_all("sm_120a");
}

// No kernel of a micro-test changes its registers: these two stand alone.
static void setmaxnreg_compiles_where_it_exists(void **state)
{
    static const char *const archs[] = {"sm_90a", "sm_100a"};
    qn_text source = QN_TEXT_INIT;
    (void)state;
    need_nvrtc();
    for (size_t i = 0; i < QN_COUNT(archs); i++) {
        const qn_arch *arch;
        instruction_file file;
        qn_compiled compiled = {0};
        assert_int_equal(qn_arch_find(archs[i], &arch), QUERN_OK);
        if (!qn_nvrtc_has_arch(nvrtc, arch)) continue;
        instruction_file_read("copy", &file);
        assert_int_equal(instruction_source(&file, arch, &source), QUERN_OK);
        qn_text_puts(&source, "extern \"C\" __global__ void __launch_bounds__(256, 1) change_registers()\n{\n"
                              "    if (threadIdx.x < 128) setmaxnreg_dec<40>();\n    else setmaxnreg_inc<232>();\n}\n");
        if (compile(qn_text_string(&source), "setmaxnreg", arch, &compiled) != QUERN_OK)
            fail_msg("%s", quern_message());
        const char *ignored = strstr(qn_text_string(&compiled.log), "setmaxnreg ignored"); // the compiler says so
        if (ignored) fail_msg("%s: %.200s", archs[i], ignored);
        qn_compiled_fini(&compiled);
        instruction_file_fini(&file);
    }
    qn_text_fini(&source);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wrappers_compile_for_sm_80),   cmocka_unit_test(wrappers_compile_for_sm_89),
        cmocka_unit_test(wrappers_compile_for_sm_90a),  cmocka_unit_test(wrappers_compile_for_sm_100a),
        cmocka_unit_test(wrappers_compile_for_sm_120a), cmocka_unit_test(setmaxnreg_compiles_where_it_exists),
    };
    return cmocka_run_group_tests_name("instruction wrappers compile", tests, NULL, NULL);
}
