// SPDX-License-Identifier: Apache-2.0
// Sequences of launches on the functional model (simt_sequence.h).
#include "support/simt_sequence.h"

#include <stdlib.h>
#include <string.h>

#include "cuda/driver.h"
#include "model/tensor_map.h"
#include "ops/field.h"
#include "runtime/runtime.h"
#include "support/hostile_fill.h"

enum { MOST_TENSORS = 24 };

typedef struct laid { // a tensor in the model's memory
    const qn_tensor *tensor;
    unsigned char *host, *device;
    size_t element, bytes;
    int rank;
    int64_t length[QN_MAX_RANK], from[QN_MAX_RANK], to[QN_MAX_RANK]; // strides here and there
} laid;

typedef struct launched {
    void *data;
    qn_config config;
    qn_plan plan;
    bool empty;
    quern_any_spec sizes;
    _Alignas(16) unsigned char args[1024]; // device pointers
    laid tensor[MOST_TENSORS];
    size_t count;
} launched;

typedef struct sequence {
    const family_cases *f;
    model *m;
    const qn_arch *arch;
    int sms;
    const quern_spec *spec; // complete
    model_order order;
} sequence;

static int64_t number_at(const void *structure, size_t offset)
{
    int64_t value;
    memcpy(&value, (const char *)structure + offset, sizeof value);
    return value;
}

static void put_number(void *structure, size_t offset, int64_t value)
{
    memcpy((char *)structure + offset, &value, sizeof value);
}

// ---- where elements lie

static int64_t length_of(const sequence *s, const quern_args *args, const char *axis)
{
    int64_t plus;
    for (size_t i = 0; i < s->f->family->size_count; i++)
        if (qn_axis_is(axis, s->f->family->sizes[i].name, &plus))
            return number_at(args, s->f->family->size_args_offset[i]) + plus;
    return qn_spec_number(s->f->family, s->spec, axis);
}

// Strides of 0 replaced, as a launch does: each steps over all axes inside it.
static void strides_of(const sequence *s, const quern_args *args, laid *l)
{
    for (l->rank = 0; l->rank < QN_MAX_RANK && l->tensor->axes[l->rank]; l->rank++)
        l->length[l->rank] = length_of(s, args, l->tensor->axes[l->rank]);
    int64_t packed = l->length[l->rank - 1];
    l->from[l->rank - 1] = 1;
    for (int a = l->rank - 2; a >= 0; a--) {
        int64_t stride = number_at(args, l->tensor->stride_offset[a]);
        l->from[a] = stride ? stride : packed;
        int64_t span = l->from[a] * l->length[a];
        if (!l->tensor->any_order || span > packed) packed = span;
    }
}

// Others: the axes from the inside out, or in any order where the tensor may have one, with room between, in steps of 16
// bytes or of one element.
static void draw_strides(laid *l, uint64_t seed)
{
    int outer = l->rank - 1, order[QN_MAX_RANK];
    uint64_t draw = 0;
    int64_t span = l->length[outer], step = hostile_mix(seed, draw++) % 2 ? 16 / (int64_t)l->element : 1;
    for (int i = 0; i < outer; i++) order[i] = outer - 1 - i;
    for (int i = outer - 1; i > 0 && l->tensor->any_order; i--) {
        int j = (int)(hostile_mix(seed, draw++) % (uint64_t)(i + 1)), kept = order[i];
        order[i] = order[j], order[j] = kept;
    }
    l->to[outer] = 1;
    for (int i = 0; i < outer; i++) {
        int64_t room = step * (int64_t)(hostile_mix(seed, draw++) % 4);
        l->to[order[i]] = (span + step - 1) / step * step + room;
        span = l->to[order[i]] * (l->length[order[i]] ? l->length[order[i]] : 1);
    }
}

static size_t bytes_of(const laid *l)
{
    int64_t last = 0;
    for (int a = 0; a < l->rank; a++) {
        if (l->length[a] <= 0) return 0;
        last += (l->length[a] - 1) * l->to[a];
    }
    return (size_t)(last + 1) * l->element;
}

// For each row of the innermost axis: its place here and there, in bytes.
typedef void (*row_fn)(const laid *l, size_t from, size_t to, size_t bytes, void *user);
static void each_row(const laid *l, row_fn row, void *user)
{
    int64_t at[QN_MAX_RANK] = {0};
    int axis = 0, outer = l->rank - 1;
    for (int a = 0; a < l->rank; a++)
        if (l->length[a] <= 0) return;
    while (axis >= 0) {
        int64_t from = 0, to = 0;
        for (int a = 0; a < outer; a++) from += at[a] * l->from[a], to += at[a] * l->to[a];
        row(l, (size_t)from * l->element, (size_t)to * l->element, (size_t)l->length[outer] * l->element, user);
        for (axis = outer - 1; axis >= 0 && ++at[axis] == l->length[axis]; axis--) at[axis] = 0;
    }
}

static void put_row(const laid *l, size_t from, size_t to, size_t bytes, void *user)
{
    (void)user;
    memcpy(l->device + to, l->host + from, bytes);
}

static void take_row(const laid *l, size_t from, size_t to, size_t bytes, void *user)
{
    unsigned char *ours = user;
    memcpy(l->host + from, l->device + to, bytes);
    memset(ours + to, 1, bytes);
}

// Takes an output's elements; the rest must be as it was.
static void take_output(const laid *l, qn_text *report)
{
    unsigned char *ours = calloc(1, l->bytes + 1);
    if (!ours) abort();
    each_row(l, take_row, ours);
    for (size_t i = 0; i < l->bytes; i++) {
        if (ours[i] || l->device[i] == HOSTILE_GUARD) continue;
        qn_text_putf(report, "    %s: byte %zu of %zu, between elements, was written\n", l->tensor->name, i, l->bytes);
        break;
    }
    free(ours);
}

// ---- a launch

static bool lay(const sequence *s, launched *l, const qn_tensor *tensor, void *host, uint64_t lies, size_t step)
{
    laid *t = &l->tensor[l->count++];
    char name[96];
    *t = (laid){
        .tensor = tensor, .host = host, .element = qn_dtype_bytes(qn_tensor_dtype(s->f->family, s->spec, tensor))};
    strides_of(s, family_args(s->f, l->data), t);
    memcpy(t->to, t->from, sizeof t->to);
    uint64_t seed = hostile_mix(lies, l->count), apart = hostile_mix(seed, 99) % 3 ? 16 : t->element;
    if (lies) draw_strides(t, seed);
    for (int a = 0; a + 1 < t->rank && lies; a++) put_number(l->args, tensor->stride_offset[a], t->to[a]);
    t->bytes = bytes_of(t);
    snprintf(name, sizeof name, "%s of launch %zu", tensor->name, step);
    void *like = lies ? (void *)(uintptr_t)(apart * (seed >> 8 & 15)) : host;
    t->device = model_alloc(s->m, name, t->bytes, like, tensor->direction == QN_INPUT);
    if (!t->device) return false;
    memset(t->device, tensor->direction == QN_INPUT ? 0xFF : HOSTILE_GUARD, t->bytes);
    if (tensor->direction == QN_INPUT) each_row(t, put_row, NULL);
    memcpy(l->args + tensor->pointer_offset, &t->device, sizeof t->device);
    return true;
}

static void make(const sequence *s, launched *l, const simt_step *step, size_t number)
{
    const qn_family *family = s->f->family;
    l->data = family_data_make(s->f, step->c, 0x7FFF);
    const quern_args *host = family_args(s->f, l->data);
    memcpy(l->args, host, family->args_bytes);
    for (size_t i = 0; i < family->tensor_count; i++) {
        void *pointer;
        memcpy(&pointer, (const char *)host + family->tensors[i].pointer_offset, sizeof pointer);
        if (!pointer || !qn_tensor_is_given(family, s->spec, &family->tensors[i])) continue;
        if (!lay(s, l, &family->tensors[i], pointer, step->lies, number)) fail_msg("the model's memory is full");
    }
    family->sizes_of((const quern_args *)(const void *)l->args, &l->sizes);
}

static void choose(const sequence *s, quern *q, const char *config, launched *l)
{
    const qn_family *family = s->f->family;
    qn_variants *variants = malloc(sizeof *variants);
    if (!variants) abort();
    if (config && qn_config_parse(family, config, &l->config) != QUERN_OK) fail_msg("%s", quern_message());
    if (!config && qn_variants_plan(q, family, s->spec, s->arch, variants) != QUERN_OK) fail_msg("%s", quern_message());
    if (!config) l->config = variants->item[variants->of_bucket[family->bucket_of(&l->sizes)]].config;
    free(variants);
    const quern_args *args = (const quern_args *)(const void *)l->args;
    if (family->plan(s->spec, s->arch, &l->config, &l->plan) != QUERN_OK ||
        family->check_args(s->spec, args, &l->empty) != QUERN_OK)
        fail_msg("%s: %s", config ? config : "as chosen", quern_message());
}

static CUresult encode(CUtensorMap *map, CUtensorMapDataType type, cuuint32_t rank, void *address,
                       const cuuint64_t *dims, const cuuint64_t *strides, const cuuint32_t *box,
                       const cuuint32_t *steps, CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle,
                       CUtensorMapL2promotion promotion, CUtensorMapFloatOOBfill fill)
{
    qm_tensor_fault fault;
    bool fine = !qm_tensor_map_encode_tiled(map, type, rank, address, dims, strides, box, steps, interleave, swizzle,
                                            promotion, fill, &fault);
    return fine ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
static const qn_driver driver = {.cuTensorMapEncodeTiled = encode};

static quern_status run_stage(const sequence *s, const launched *l, size_t stage, qn_text *report)
{
    const qn_device_limits limits = {s->sms, &driver};
    const qn_kernel_plan *plan = &l->plan.stage[stage];
    qn_text source = QN_TEXT_INIT;
    qn_launch made;
    memset(&made, 0, sizeof made);
    s->f->family->launch(s->spec, &l->config, &l->plan, &limits, (const quern_args *)(const void *)l->args, stage,
                         &made);
    if (made.skip) return QUERN_OK;
    quern_status status = qn_source_write(plan, s->arch->cc, s->arch->suffix, getenv("QUERN_TEMPLATES"), true, &source);
    model_launch_request request = {
        .source = qn_text_string(&source),
        .grid = {made.grid[0], made.grid[1], made.grid[2]},
        .threads = plan->threads,
        .cluster = plan->cluster,
        .shared_bytes = plan->dynamic_shared,
        .resident = s->sms > plan->cluster ? s->sms : plan->cluster,
        .params = made.params,
        .params_bytes = plan->params_bytes,
        .order = s->order,
    };
    if (status == QUERN_OK) status = model_launch(s->m, s->arch, &request, report, NULL);
    qn_text_fini(&source);
    return status;
}

static bool run(const sequence *s, launched *l, uint32_t *workspace, size_t bytes, qn_text *report)
{
    quern_status status = QUERN_OK;
    if (s->f->family->workspace(s->spec, &l->config, &l->sizes) > bytes) // as a launch checks it
        fail_msg("the workspace of the largest sizes has %zu bytes, a launch needs more", bytes);
    memcpy(l->args + s->f->family->workspace_offset, &workspace, sizeof workspace);
    memcpy(l->args + s->f->family->workspace_bytes_offset, &bytes, sizeof bytes);
    for (size_t i = 0; i < l->plan.stage_count && !l->empty && status == QUERN_OK; i++)
        status = run_stage(s, l, i, report);
    if (status != QUERN_OK) qn_text_putf(report, "    %s\n", quern_message());
    for (size_t t = 0; t < l->count && status == QUERN_OK && !l->empty; t++)
        if (l->tensor[t].tensor->direction == QN_OUTPUT) take_output(&l->tensor[t], report);
    return status == QUERN_OK;
}

// ---- a sequence

// For the largest sizes of all, whichever launch they are of; with one size, for each launch's.
static size_t workspace_of(const sequence *s, const launched *l, size_t count)
{
    const qn_family *family = s->f->family;
    quern_any_spec most = l[0].sizes;
    size_t result = 0;
    for (size_t i = 1; i < count; i++)
        for (size_t k = 0; k < family->size_count; k++) {
            int64_t value = number_at(&l[i].sizes, family->sizes[k].offset);
            if (value > number_at(&most, family->sizes[k].offset)) put_number(&most, family->sizes[k].offset, value);
        }
    for (size_t i = 0; i < count; i++) {
        size_t bytes = family->workspace(s->spec, &l[i].config, family->size_count == 1 ? &l[i].sizes : &most);
        if (bytes > result) result = bytes;
    }
    return result;
}

static void describe(const sequence *s, const launched *l, const simt_step *step, size_t number, qn_text *report)
{
    s->f->describe(step->c, report);
    qn_text_putf(report, "    launch %zu on %s of %d multiprocessors, lies %llu: ", number, s->arch->name, s->sms,
                 (unsigned long long)step->lies);
    qn_config_write(s->f->family, &l->config, report);
    qn_text_puts(report, "\n");
}

void simt_run_sequence(const family_cases *f, model *m, quern *q, const qn_arch *arch, int sms, const simt_step *steps,
                       size_t count, model_order order, qn_text *report)
{
    launched *l = calloc(count, sizeof *l);
    quern_any_spec full;
    const qn_family *family;
    if (!l || qn_spec_complete(family_case_spec(f, steps[0].c), &family, &full) != QUERN_OK) abort();
    const sequence s = {f, m, arch, sms ? sms : arch->sm_count, &full.base, order};
    for (size_t i = 0; i < count; i++) {
        make(&s, &l[i], &steps[i], i);
        choose(&s, q, steps[i].config, &l[i]);
    }
    size_t bytes = workspace_of(&s, l, count);
    uint32_t *workspace = bytes ? model_alloc(m, "workspace", bytes, NULL, false) : NULL;
    if (bytes && !workspace) fail_msg("the model's memory is full");
    for (size_t i = 0; i < bytes / 4; i++) workspace[i] = family->workspace_word;
    for (size_t i = 0; i < count && !report->length; i++) {
        if (run(&s, &l[i], workspace, bytes, report)) f->check(l[i].data, report);
        if (report->length) describe(&s, &l[i], &steps[i], i, report);
    }
    model_free(m);
    for (size_t i = 0; i < count; i++) family_data_free(f, l[i].data);
    free(l);
}
