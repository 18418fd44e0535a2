// SPDX-License-Identifier: Apache-2.0
// The functional model: a spec and host arguments become launches on the model's device memory (model.h). Plans, source
// text and parameters are the library's own; nothing here knows a family by name.
#include "model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/path.h"
#include "cuda/driver.h"
#include "model/tensor_map.h"
#include "model_private.h"
#include "runtime/runtime.h"

// ---- a model

quern_status model_open(const model_settings *settings, model **out)
{
    model *m = calloc(1, sizeof *m);
    if (!m) return qn_fail(QUERN_OUT_OF_MEMORY, "the model: %zu bytes", sizeof *m);
    quern_status status = model_toolchain_open(&m->chain, settings);
    if (status == QUERN_OK) status = model_memory_open(&m->memory);
    if (status != QUERN_OK) {
        model_close(m);
        return status;
    }
    *out = m;
    return QUERN_OK;
}

void model_close(model *m)
{
    if (!m) return;
    model_runner_stop(&m->runner);
    model_toolchain_close(&m->chain);
    model_memory_close(&m->memory);
    free(m);
}

const char *model_compiler(const model *m)
{
    return m->chain.version;
}

quern_status model_compile_begin(model *m, const char *source, bool *busy)
{
    return model_toolchain_begin(&m->chain, source, busy);
}

quern_status model_compile(model *m, const char *source, qn_text *object)
{
    return model_toolchain_object(&m->chain, source, object);
}

// ---- arguments

static int64_t number_at(const void *structure, size_t offset)
{
    int64_t value;
    memcpy(&value, (const char *)structure + offset, sizeof value);
    return value;
}

// A size or a field of the spec.
static int64_t axis_length(const qn_family *family, const quern_spec *spec, const quern_args *args, const char *axis)
{
    int64_t plus;
    for (size_t i = 0; i < family->size_count; i++)
        if (qn_axis_is(axis, family->sizes[i].name, &plus)) return number_at(args, family->size_args_offset[i]) + plus;
    return qn_spec_number(family, spec, axis);
}

// Bytes from a tensor's first element to its last: what a caller must have allocated.
static size_t tensor_bytes(const qn_family *family, const quern_spec *spec, const quern_args *args, const qn_tensor *t)
{
    int64_t length[QN_MAX_RANK], packed = 1, last = 0;
    int rank = 0;
    while (rank < QN_MAX_RANK && t->axes[rank]) {
        length[rank] = axis_length(family, spec, args, t->axes[rank]);
        if (length[rank] <= 0) return 0;
        rank++;
    }
    for (int i = rank - 1; i >= 0; i--) {
        int64_t stride = i == rank - 1 ? 1 : number_at(args, t->stride_offset[i]);
        last += (length[i] - 1) * (stride ? stride : packed);
        int64_t step = (stride ? stride : packed) * length[i];
        if (step > packed) packed = step; // axes may lie in any order
    }
    return (size_t)(last + 1) * qn_dtype_bytes(qn_tensor_dtype(family, spec, t));
}

static void set_pointer(void *args, size_t offset, void *pointer)
{
    memcpy((char *)args + offset, &pointer, sizeof pointer);
}

static void *pointer_in(const void *args, size_t offset)
{
    void *pointer;
    memcpy(&pointer, (const char *)args + offset, sizeof pointer);
    return pointer;
}

// The arguments with device pointers in place of host ones, everything copied to the device. Outputs too: what a kernel
// must not touch between rows comes back as it was.
static quern_status put_arguments(model *m, const qn_family *family, const quern_spec *spec, const quern_args *host,
                                  const qn_config *config, unsigned char *device)
{
    memcpy(device, host, family->args_bytes);
    for (size_t i = 0; i < family->tensor_count; i++) {
        const qn_tensor *t = &family->tensors[i];
        void *from = pointer_in(host, t->pointer_offset);
        if (!from || !qn_tensor_is_given(family, spec, t)) continue;
        size_t bytes = tensor_bytes(family, spec, host, t);
        void *to = model_alloc(m, t->name, bytes, from, t->direction == QN_INPUT);
        if (!to)
            return qn_fail(QUERN_OUT_OF_MEMORY, "the model's device memory is full: %s, %zu bytes", t->name, bytes);
        memcpy(to, from, bytes);
        set_pointer(device, t->pointer_offset, to);
    }
    quern_any_spec sizes = {.bytes = {0}}; // room for any family's sizes
    family->sizes_of(host, &sizes);
    size_t bytes = family->workspace(spec, config, &sizes);
    if (!bytes) return QUERN_OK;
    uint32_t *workspace = model_alloc(m, "workspace", bytes, NULL, false);
    if (!workspace)
        return qn_fail(QUERN_OUT_OF_MEMORY, "the model's device memory is full: workspace, %zu bytes", bytes);
    for (size_t i = 0; i < bytes / 4; i++) workspace[i] = family->workspace_word;
    set_pointer(device, family->workspace_offset, workspace);
    memcpy(device + family->workspace_bytes_offset, &bytes, sizeof bytes);
    return QUERN_OK;
}

static void take_outputs(const qn_family *family, const quern_spec *spec, const quern_args *host, const void *device)
{
    for (size_t i = 0; i < family->tensor_count; i++) {
        const qn_tensor *t = &family->tensors[i];
        void *to = pointer_in(host, t->pointer_offset);
        if (!to || t->direction != QN_OUTPUT || !qn_tensor_is_given(family, spec, t)) continue;
        memcpy(to, pointer_in(device, t->pointer_offset), tensor_bytes(family, spec, host, t));
    }
}

// ---- launches

// CTAs that the device has room for at a time, by shared memory and threads: more than one cluster's matters only to
// kernels whose CTAs wait for each other.
static int resident_ctas(const qn_arch *arch, const qn_kernel_plan *plan)
{
    int by_threads = arch->max_threads_sm / (plan->threads > 0 ? plan->threads : 1);
    int by_shared = plan->dynamic_shared > 0 ? arch->shared_sm / (plan->dynamic_shared + 1024) : by_threads;
    int an_sm = by_threads < by_shared ? by_threads : by_shared;
    return (an_sm > 0 ? an_sm : 1) * arch->sm_count;
}

static quern_status stage_source(const model *m, const qn_kernel_plan *plan, const qn_arch *arch, qn_text *source)
{
    // The text that NVRTC gets, with the lines of the template files for reports.
    QN_TRY(qn_source_write(plan, arch->cc, arch->suffix, qn_environment("QUERN_TEMPLATES", false), true, source));
    if (!m->edit) return QUERN_OK;
    char *edited = m->edit(qn_text_string(source), m->edit_user);
    qn_text_clear(source);
    qn_text_puts(source, edited);
    free(edited);
    return qn_text_check(source);
}

void model_set_edit(model *m, model_edit edit, void *user)
{
    m->edit = edit;
    m->edit_user = user;
}

typedef struct run {
    model *m;
    const qn_family *family;
    const quern_spec *spec;
    const qn_arch *arch;
    const qn_config *config;
    const qn_plan *plan;
    const quern_args *args; // with device pointers
    model_order order;
} run;

// Which kernel, on what, in which build and order.
static void put_description(const run *r, size_t stage, qn_text *report)
{
    qn_text spec = QN_TEXT_INIT, config = QN_TEXT_INIT;
    quern_any_spec sizes = {.bytes = {0}};
    qn_spec_write(r->family, r->spec, &spec);
    qn_config_write(r->family, r->config, &config);
    r->family->sizes_of(r->args, &sizes);
    qn_text_putf(report, "  kernel %s (stage %zu, %s) of '%s',", r->plan->stage[stage].entry, stage,
                 qn_text_string(&config), qn_text_string(&spec));
    for (size_t i = 0; i < r->family->size_count; i++) {
        int64_t size;
        memcpy(&size, sizes.bytes + r->family->sizes[i].offset, sizeof size);
        qn_text_putf(report, " %s=%lld", r->family->sizes[i].name, (long long)size);
    }
    qn_text_putf(report, ", %s, %s build by %s, order ", r->arch->name, model_build_name[r->m->chain.build],
                 r->m->chain.version);
    if (r->order.shuffle)
        qn_text_putf(report, "of seed %u\n", (unsigned)r->order.seed);
    else
        qn_text_puts(report, "as written\n");
    qn_text_fini(&spec);
    qn_text_fini(&config);
}

// What a family calls of the driver at a launch.
static CUresult encode_tiled(CUtensorMap *map, CUtensorMapDataType type, cuuint32_t rank, void *address,
                             const cuuint64_t *dims, const cuuint64_t *strides, const cuuint32_t *box,
                             const cuuint32_t *steps, CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle,
                             CUtensorMapL2promotion promotion, CUtensorMapFloatOOBfill fill)
{
    qm_tensor_fault fault;
    return qm_tensor_map_encode_tiled(map, type, rank, address, dims, strides, box, steps, interleave, swizzle,
                                      promotion, fill, &fault)
               ? CUDA_ERROR_INVALID_VALUE
               : CUDA_SUCCESS;
}
static const qn_driver model_driver = {.cuTensorMapEncodeTiled = encode_tiled};

static quern_status run_stage(const run *r, size_t stage, qn_text *report)
{
    const qn_kernel_plan *plan = &r->plan->stage[stage];
    const qn_device_limits limits = {r->arch->sm_count, &model_driver};
    qn_launch launch;
    qn_text source = QN_TEXT_INIT;

    memset(&launch, 0, sizeof launch);
    r->family->launch(r->spec, r->config, r->plan, &limits, r->args, stage, &launch);
    if (launch.skip) return QUERN_OK;
    quern_status status = stage_source(r->m, plan, r->arch, &source);
    if (status == QUERN_OK) {
        model_launch_request request = {
            .source = qn_text_string(&source),
            .grid = {launch.grid[0], launch.grid[1], launch.grid[2]},
            .threads = plan->threads,
            .cluster = plan->cluster,
            .shared_bytes = plan->dynamic_shared,
            .resident = resident_ctas(r->arch, plan),
            .params = launch.params,
            .params_bytes = plan->params_bytes,
            .order = r->order,
        };
        status = model_launch(r->m, r->arch, &request, report, NULL);
    }
    if (status == QUERN_LAUNCH_FAILED) put_description(r, stage, report);
    qn_text_fini(&source);
    return status;
}

static quern_status run_plan(run *r, const quern_args *host, qn_text *report)
{
    unsigned char *device = calloc(1, r->family->args_bytes);
    if (!device) return qn_fail(QUERN_OUT_OF_MEMORY, "the model: %zu bytes", r->family->args_bytes);
    r->args = (const quern_args *)(const void *)device;
    quern_status status = put_arguments(r->m, r->family, r->spec, host, r->config, device);
    for (size_t i = 0; i < r->plan->stage_count && status == QUERN_OK; i++) status = run_stage(r, i, report);
    if (status == QUERN_OK) take_outputs(r->family, r->spec, host, device);
    model_free(r->m);
    free(device);
    return status;
}

quern_status model_run_config(model *m, const quern_spec *spec, const qn_arch *arch, const qn_config *config,
                              const quern_args *host_args, model_order order, qn_text *report)
{
    quern_any_spec full;
    qn_plan plan;
    run r = {.m = m, .arch = arch, .config = config, .plan = &plan, .order = order};
    bool empty = false;

    memset(&plan, 0, sizeof plan);
    QN_TRY(qn_spec_complete(spec, &r.family, &full));
    r.spec = &full.base;
    QN_TRY(r.family->plan(r.spec, arch, config, &plan));
    QN_TRY(r.family->check_args(r.spec, host_args, &empty));
    return empty ? QUERN_OK : run_plan(&r, host_args, report);
}

// The configuration that serves these arguments.
static quern_status choose(quern *q, const quern_spec *spec, const qn_arch *arch, const quern_args *args,
                           qn_config *config)
{
    const qn_family *family;
    quern_any_spec full, sizes = {.bytes = {0}};
    QN_TRY(qn_spec_complete(spec, &family, &full));
    qn_variants *variants = malloc(sizeof *variants);
    if (!variants) return qn_fail(QUERN_OUT_OF_MEMORY, "the model: %zu bytes", sizeof *variants);
    quern_status status = qn_variants_plan(q, family, &full.base, arch, variants);
    if (status == QUERN_OK) {
        family->sizes_of(args, &sizes);
        *config = variants->item[variants->of_bucket[family->bucket_of(&sizes)]].config;
    }
    free(variants);
    return status;
}

quern_status model_run_on(model *m, quern *q, const quern_spec *spec, const qn_arch *arch, const quern_args *host_args,
                          model_order order, qn_text *report)
{
    qn_config config;
    QN_TRY(choose(q, spec, arch, host_args, &config));
    return model_run_config(m, spec, arch, &config, host_args, order, report);
}

quern_status model_run_begin(model *m, quern *q, const quern_spec *spec, const qn_arch *arch,
                             const quern_args *host_args, bool *busy)
{
    const qn_family *family;
    quern_any_spec full;
    qn_config config;
    qn_plan plan;

    memset(&plan, 0, sizeof plan);
    QN_TRY(qn_spec_complete(spec, &family, &full));
    QN_TRY(choose(q, spec, arch, host_args, &config));
    QN_TRY(family->plan(&full.base, arch, &config, &plan));
    *busy = false;
    for (size_t i = 0; i < plan.stage_count && !*busy; i++) {
        qn_text source = QN_TEXT_INIT;
        quern_status status = stage_source(m, &plan.stage[i], arch, &source);
        if (status == QUERN_OK) status = model_compile_begin(m, qn_text_string(&source), busy);
        qn_text_fini(&source);
        if (status != QUERN_OK) return status;
    }
    return QUERN_OK;
}

// ---- the command

// $QUERN_MODEL: words between commas, a build's name or seed=N.
static quern_status read_environment(model_settings *settings, model_order *order)
{
    const char *text = qn_environment("QUERN_MODEL", false);
    while (text && *text) {
        size_t length = strcspn(text, ",");
        char word[32], *end = NULL;
        snprintf(word, sizeof word, "%.*s", (int)length, text);
        bool known = false;
        for (int b = 0; b < MODEL_BUILDS; b++)
            if (!strcmp(word, model_build_name[b])) settings->build = (model_build)b, known = true;
        if (!strncmp(word, "seed=", 5)) {
            order->shuffle = true;
            order->seed = (uint32_t)strtoul(word + 5, &end, 10);
            known = *end == 0 && end > word + 5;
        }
        if (!known)
            return qn_fail(QUERN_BAD_VALUE, "$QUERN_MODEL: \"%s\" is none of plain, asan, access, msan, seed=N", word);
        text += length + (text[length] == ',');
    }
    return QUERN_OK;
}

quern_status model_check_variable(void)
{
    model_settings settings = {.build = MODEL_PLAIN};
    model_order order;
    return read_environment(&settings, &order);
}

quern_status model_run(quern *q, const quern_spec *spec, const char *arch_name, const quern_args *host_args,
                       model_progress progress, char *note, size_t note_bytes)
{
    model_settings settings = {.build = MODEL_PLAIN, .cap_bytes = (int64_t)MODEL_CACHE_MIB << 20, .progress = progress};
    model_order order = {false, 1};
    const qn_arch *arch;
    model *m = NULL;
    qn_text report = QN_TEXT_INIT;

    QN_TRY(qn_arch_find(arch_name, &arch));
    QN_TRY(read_environment(&settings, &order));
    QN_TRY(model_open(&settings, &m));
    quern_status status = model_run_on(m, q, spec, arch, host_args, order, &report);
    if (report.length) fprintf(stderr, "%s", qn_text_string(&report));
    if (status == QUERN_OK) {
        char seed[32] = "";
        if (order.shuffle) snprintf(seed, sizeof seed, ", seed %u", (unsigned)order.seed);
        snprintf(note, note_bytes, "%s build by %s%s", model_build_name[settings.build], model_compiler(m), seed);
    }
    qn_text_fini(&report);
    model_close(m);
    return status;
}
