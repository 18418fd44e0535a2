// SPDX-License-Identifier: Apache-2.0
// Every instruction of the files in tests/simt/instructions on the device itself: what passes here proves the model, which is
// held to the same files (tests/simt/instructions_test.c), where hardware exists.
//     $QUERN_TEST_RECORD   a folder: what the device gave in cases that differ is written there
#include "support/gpu_cases.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cuda/nvrtc.h"
#include "support/instructions.h"

typedef struct loaded {
    CUlibrary library;
    CUfunction function;
} loaded;

static void load_kernel(const gpu *g, const instruction_file *file, loaded *l)
{
    const qn_nvrtc *nvrtc;
    qn_text source = QN_TEXT_INIT;
    char arch[48];
    CUkernel kernel;
    qn_compiled compiled = {0};
    if (qn_nvrtc_load(NULL, false, &nvrtc) != QUERN_OK) fail_msg("%s", quern_message());
    if (instruction_source(file, g->arch, &source) != QUERN_OK) fail_msg("%s", quern_message());
    snprintf(arch, sizeof arch, "--gpu-architecture=%s", g->arch->name);
    const char *options[] = {arch, "--std=c++17"};
    qn_compile request = {.source = qn_text_string(&source),
                          .name = file->kernel,
                          .options = options,
                          .option_count = 2,
                          .timeout_ms = -1};
    if (qn_nvrtc_compile(nvrtc, &request, &compiled) != QUERN_OK) fail_msg("%s", quern_message());
    GPU_MUST(g, cuLibraryLoadData(&l->library, compiled.image.bytes, NULL, NULL, 0, NULL, NULL, 0));
    GPU_MUST(g, cuLibraryGetKernel(&kernel, l->library, "instruction_test"));
    GPU_MUST(g, cuKernelGetFunction(&l->function, kernel));
    qn_compiled_fini(&compiled);
    qn_text_fini(&source);
}

static void make_map(const gpu *g, const instruction_case *c, instruction_params *params)
{
    const instruction_map *m = &c->map;
    CUtensorMap map;
    uint64_t address = (m->of_output ? params->out : params->in) + 4 * m->offset;
    memset(params->map, 0, sizeof params->map);
    if (!m->present) return;
    CUresult result = g->driver->cuTensorMapEncodeTiled(
        &map, (CUtensorMapDataType)m->type, m->rank, (void *)(uintptr_t)address, (const cuuint64_t *)m->dims,
        (const cuuint64_t *)m->strides, m->box, m->steps, CU_TENSOR_MAP_INTERLEAVE_NONE, (CUtensorMapSwizzle)m->swizzle,
        CU_TENSOR_MAP_L2_PROMOTION_NONE, (CUtensorMapFloatOOBfill)m->fill);
    gpu_must(g, result, c->name);
    memcpy(params->map, &map, sizeof params->map);
}

static void launch_case(const gpu *g, const instruction_file *file, const loaded *l, const instruction_case *c,
                        instruction_params *params)
{
    CUlaunchAttribute attribute = {.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, .value.clusterDim = {c->ctas, 1, 1}};
    CUlaunchConfig config = {.gridDimX = c->ctas,
                             .gridDimY = 1,
                             .gridDimZ = 1,
                             .blockDimX = (unsigned)file->threads,
                             .blockDimY = 1,
                             .blockDimZ = 1,
                             .sharedMemBytes = (unsigned)file->shared,
                             .attrs = &attribute,
                             .numAttrs = c->ctas > 1};
    void *parameters[] = {params};
    GPU_MUST(g, cuLaunchKernelEx(&config, l->function, parameters, NULL));
    GPU_MUST(g, cuCtxSynchronize());
}

static void record(const instruction_file *file, const instruction_case *c, const uint32_t *got, size_t count)
{
    char path[512];
    const char *folder = getenv("QUERN_TEST_RECORD");
    if (!folder) return;
    snprintf(path, sizeof path, "%s/differences.txt", folder);
    FILE *f = fopen(path, "ae");
    assert_non_null(f);
    fprintf(f, "%s %s %zu", file->name, c->name, count);
    for (size_t i = 0; i < count; i++) fprintf(f, " %08x", got[i]);
    fprintf(f, "\n");
    assert_int_equal(fclose(f), 0);
}

static bool run_case(const gpu *g, const instruction_file *file, const loaded *l, const instruction_case *c)
{
    const instruction_words *expected = instruction_expected(c, g->arch->cc);
    size_t bytes = 4 * expected->count;
    char text[200];
    uint32_t *got = malloc(bytes);
    assert_non_null(got);
    for (size_t i = 0; i < expected->count; i++) got[i] = INSTRUCTION_POISON;
    CUdeviceptr in = gpu_alloc(g, 4 * c->in.count), out = gpu_alloc(g, bytes);
    GPU_MUST(g, cuMemcpyHtoD(in, c->in.word, 4 * c->in.count));
    GPU_MUST(g, cuMemcpyHtoD(out, got, bytes));
    instruction_params params = {.in = in, .out = out, .which = c->which};
    make_map(g, c, &params);
    launch_case(g, file, l, c, &params);
    GPU_MUST(g, cuMemcpyDtoH(got, out, bytes));
    bool good = !*instruction_difference(expected, got, text);
    if (!good) {
        instruction_complain(file, c, g->arch->name, text);
        record(file, c, got, expected->count);
    }
    gpu_free(g, in);
    gpu_free(g, out);
    free(got);
    return good;
}

static size_t run_file(const gpu *g, const char *name, size_t *ran)
{
    instruction_file file;
    size_t run = 0, wrong = 0;
    instruction_file_read(name, &file);
    if (instruction_file_fits(&file, g->arch)) {
        loaded l;
        load_kernel(g, &file, &l);
        for (size_t i = 0; i < file.count; i++) {
            const instruction_case *c = &file.cases[i];
            if (!instruction_expected(c, g->arch->cc) || !instruction_wanted(&file, c)) continue;
            run++;
            wrong += !run_case(g, &file, &l, c);
        }
        GPU_MUST(g, cuLibraryUnload(l.library));
        print_message("%s, %s: %zu cases, %zu wrong\n", name, g->arch->name, run, wrong);
    }
    instruction_file_fini(&file);
    *ran += run;
    return wrong;
}

static void instructions_give_the_manual_s_values(void **state)
{
    gpu *g = *state;
    size_t wrong = 0, ran = 0;
    gpu_skip_without_device(g);
    for (size_t i = 0; instruction_files[i]; i++) wrong += run_file(g, instruction_files[i], &ran);
    assert_int_equal(wrong, 0);
    assert_true(ran > 100 || getenv("QUERN_TEST_CASE")); // those of every architecture
}

static gpu device;

static int open_device(void **state)
{
    gpu_open(&device);
    *state = &device;
    return 0;
}

static int close_device(void **state)
{
    (void)state;
    gpu_close(&device);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(instructions_give_the_manual_s_values)};
    return cmocka_run_group_tests_name("instructions on the device", tests, open_device, close_device);
}
