// SPDX-License-Identifier: Apache-2.0
// quern_prepare: a spec becomes an op. Called by users and tools.
//
//   spec ─ complete, check ─► current device ─► descriptor ─► memory table ─ hit ─► op
//                                                    └ miss ─► plans ─► kernels (batch.c) ─► load ─► publish
//
//   (1) A hit takes no lock, allocates nothing, makes no system call and writes no source; but the first hits of a spec in
//       other bytes (padding, an older header) note those bytes.
//   (2) Two threads that prepare the same spec get the same op, and each kernel is compiled once (obtain.c).
//   (3) An op in the table is never freed before its quern; one of a given configuration goes with its last reference.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/private.h"

// What makes an op beside the quern.
typedef struct request {
    quern *q;
    const qn_family *family;
    const quern_any_spec *spec;
    const qn_config *config; // NULL: the planner's choice
    char text[512];          // the spec's
    const qn_here *here;
    qn_device device;
    qn_fingerprint fingerprint;
    qn_tuned tuned;        // read once: every plan of this request is made from it
    bool own;              // the library's own choice only
    bool usual;            // as for the architecture's usual part, whatever the device
    uint32_t buckets;      // of the sizes; 0: all
    qn_variants *variants; // of the target last made
} request;

// ---- plans of a target

static quern_status plan_given(const request *r, const qn_arch *arch)
{
    qn_variants *variants = r->variants;
    qn_variant *variant = &variants->item[0];
    memset(variant, 0, sizeof *variant);
    memset(variants->of_bucket, 0, sizeof variants->of_bucket);
    variants->count = 1;
    variant->last_bucket = r->family->bucket_count - 1;
    variant->config = *r->config;
    snprintf(variant->chosen, sizeof variant->chosen, "given");
    QN_TRY(qn_config_check(r->family, &r->spec->base, arch, r->config)); // it may come from a command line
    return r->family->plan(&r->spec->base, arch, r->config, &variant->plan);
}

static quern_status plan(const request *r, const qn_arch *arch)
{
    if (r->config) return plan_given(r, arch);
    const qn_tune_device device = qn_fingerprint_device(&r->fingerprint);
    const qn_tuned_view view = {
        .tuned = &r->tuned, .device = r->usual ? NULL : &device, .own = r->own, .buckets = r->buckets};
    return qn_variants_plan_view(&view, r->family, &r->spec->base, arch, r->variants);
}

static quern_status make_batch(void *user, const qn_arch *arch, qn_batch *batch)
{
    request *r = user;
    QN_TRY(plan(r, arch));
    return qn_batch_init(r->q, batch, r->variants, arch, r->text);
}

// ---- the op

static void describe_variant(const qn_family *family, const qn_variant *from, qn_op_variant *to)
{
    qn_text config = QN_TEXT_INIT;
    qn_buckets_name(family, from->first_bucket, from->last_bucket, to->sizes_text, sizeof to->sizes_text);
    qn_config_write(family, &from->config, &config);
    snprintf(to->config_text, sizeof to->config_text, "%s", qn_text_string(&config));
    memcpy(to->chosen, from->chosen, sizeof to->chosen);
    qn_text_fini(&config);
}

static quern_op *op_new(const request *r, const qn_arch *arch)
{
    const qn_variants *variants = r->variants;
    quern_op *op;
    size_t bytes = sizeof *op + variants->count * sizeof op->variant[0]; // a multiple of the alignment
    op = aligned_alloc(_Alignof(quern_op), bytes);
    if (!op) return NULL;
    memset(op, 0, bytes);
    op->q = r->q;
    op->driver = r->here->driver;
    atomic_init(&op->ready_in[0], r->here->context);
    atomic_init(&op->next_ready, 1u);
    op->family = r->family;
    op->arch = arch;
    op->spec = *r->spec;
    op->spec.base.family = r->family->name; // the caller's string may go away
    op->limits = r->device.limits;
    op->log_launch = r->q->log_launch;
    op->in_table = !r->config;
    atomic_init(&op->references, 1);
    memcpy(op->of_bucket, variants->of_bucket, sizeof op->of_bucket);
    op->variant_count = variants->count;
    for (size_t v = 0; v < variants->count; v++) {
        op->variant[v].config = variants->item[v].config;
        op->variant[v].plan = variants->item[v].plan;
        describe_variant(r->family, &variants->item[v], &op->variant[v]);
    }
    qn_op_at_hand(op);
    return op;
}

void qn_op_free(quern_op *op)
{
    free(op);
}

static void unload_stages(quern_op *op)
{
    for (size_t v = 0; v < op->variant_count; v++)
        for (size_t s = 0; s < op->variant[v].plan.stage_count; s++)
            if (op->variant[v].stage[s].entry) qn_unload(op->q, (qn_entry *)op->variant[v].stage[s].entry);
}

static quern_status load_stage(const request *r, qn_work *work, const qn_kernel_plan *plan, qn_stage *stage)
{
    CUkernel kernel = NULL;
    qn_shape shape = {plan->cluster, plan->dynamic_shared};
    QN_TRY(qn_load(r->q, r->here->driver, r->device.handle, work, shape, &kernel));
    stage->function = (CUfunction)kernel;
    stage->entry = work->entry;
    stage->origin = work->origin;
    stage->threads = (unsigned)plan->threads;
    stage->cluster = plan->cluster > 1 ? (unsigned)plan->cluster : 1;
    stage->dynamic_shared = (unsigned)plan->dynamic_shared;
    stage->overlaps = plan->overlaps;
    return QUERN_OK;
}

static quern_status load_stages(const request *r, const qn_batch *batch, quern_op *op)
{
    for (size_t v = 0; v < op->variant_count; v++)
        for (size_t s = 0; s < op->variant[v].plan.stage_count; s++)
            QN_TRY(
                load_stage(r, &batch->work[batch->of[v][s]], &op->variant[v].plan.stage[s], &op->variant[v].stage[s]));
    return QUERN_OK;
}

// Made ready in a context that it has not been in.
static __attribute__((noinline)) quern_status ready_here(quern_op *op, const qn_here *here)
{
    for (size_t v = 0; v < op->variant_count; v++)
        for (size_t s = 0; s < op->variant[v].plan.stage_count; s++)
            QN_TRY(qn_load_here(op->q, here->driver, op->variant[v].stage[s].entry));
    unsigned at = atomic_fetch_add_explicit(&op->next_ready, 1, memory_order_relaxed) % QN_MAX_CONTEXTS;
    atomic_store_explicit(&op->ready_in[at], here->context, memory_order_release);
    return QUERN_OK;
}

static inline bool is_ready_in(const quern_op *op, CUcontext context)
{
    for (int i = 0; i < QN_MAX_CONTEXTS; i++)
        if (atomic_load_explicit(&op->ready_in[i], memory_order_acquire) == context) return true;
    return false;
}

static void log_ready(const request *r, const quern_op *op, const qn_batch *batch, int64_t began_ms)
{
    if (!qn_log_wants(&r->q->log, "dispatch")) return;
    size_t from[4] = {0};
    for (size_t i = 0; i < batch->count; i++) from[batch->work[i].origin]++;
    qn_log_line(&r->q->log, "dispatch", QUERN_LOG_INFO,
                "ready ms=%lld device=%d arch=%s variants=%zu memory=%zu sealed=%zu user=%zu compiled=%zu spec=\"%s\"",
                (long long)(qn_now_ms() - began_ms), (int)r->device.handle, op->arch->name, op->variant_count,
                from[QUERN_ORIGIN_MEMORY], from[QUERN_ORIGIN_SEALED], from[QUERN_ORIGIN_USER],
                from[QUERN_ORIGIN_COMPILED], r->text);
}

static bool may_not_compile(quern_status status)
{
    return status == QUERN_WOULD_COMPILE || status == QUERN_NVRTC_NOT_FOUND || status == QUERN_NVRTC_LACKS_ARCH;
}

// Whether the device may be given other plans than the architecture's usual part.
static bool is_small(const request *r)
{
    return r->family->fit && r->fingerprint.numbers.sm_count < r->device.targets[0]->sm_count;
}

// What is tried: the choice, the library's own, its own for the usual part. Every warm has the last; a warm of all sizes has
// the one before it.
enum { CHOICE, OWN, USUAL, ATTEMPTS };

static bool is_another(const request *r, int attempt)
{
    return attempt == OWN ? r->tuned.list.count > 0 : attempt == CHOICE || is_small(r);
}

static quern_status obtain(request *r, qn_batch *batch, const qn_arch **arch)
{
    qn_message_mark mark;
    quern_status status = QUERN_OK;
    if (r->config) return qn_obtain_targets(r->q, &r->device, make_batch, r, batch, arch);
    for (int attempt = CHOICE; attempt < ATTEMPTS; attempt++) {
        if (!is_another(r, attempt)) continue;
        r->own = attempt >= OWN, r->usual = attempt == USUAL;
        quern_status result = qn_obtain_targets(r->q, &r->device, make_batch, r, batch, arch);
        if (attempt == CHOICE) {
            if (!may_not_compile(result)) return result;
            status = result;
            qn_message_save(&mark);
        }
        if (result != QUERN_OK) continue;
        qn_log_line(
            &r->q->log, "dispatch", QUERN_LOG_WARNING,
            "no cache has the kernels of %s, and they cannot be compiled here: the library's own choices serve%s "
            "(%s)",
            r->tuned.list.count ? "the tuned choices" : "the choices for so few SMs",
            r->usual ? ", those for more SMs" : "", r->text);
        qn_message_restore(&mark);
        return QUERN_OK;
    }
    qn_message_restore(&mark);
    return status;
}

static quern_status build(request *r, quern_op **out)
{
    const qn_arch *arch = NULL;
    qn_batch batch = {0};
    int64_t began_ms = qn_now_ms();
    QN_TRY(obtain(r, &batch, &arch));
    quern_status status = plan(r, arch); // again: the plans in hand are those of the last target that was looked at
    quern_op *op = status == QUERN_OK ? op_new(r, arch) : NULL;
    if (status == QUERN_OK && !op) status = qn_fail(QUERN_OUT_OF_MEMORY, "out of memory: an op of \"%s\"", r->text);
    if (status == QUERN_OK) status = load_stages(r, &batch, op);
    if (status == QUERN_OK) {
        log_ready(r, op, &batch, began_ms);
        *out = op;
    } else if (op) {
        unload_stages(op);
        qn_op_free(op);
    }
    qn_batch_fini(&batch);
    return status;
}

// Everything slow, after the look-up missed.
static quern_status build_for(quern *q, const qn_family *family, const quern_any_spec *spec, const qn_here *here,
                              const qn_config *config, uint32_t buckets, quern_op **op)
{
    qn_message_mark mark;
    qn_message_save(&mark);
    request *r = calloc(1, sizeof *r);
    if (r) r->variants = malloc(sizeof *r->variants);
    quern_status status = r && r->variants ? QUERN_OK : qn_fail(QUERN_OUT_OF_MEMORY, "out of memory: planning a spec");
    if (status == QUERN_OK) {
        r->q = q, r->family = family, r->spec = spec, r->config = config, r->here = here, r->buckets = buckets;
        status = quern_spec_format(&spec->base, r->text, sizeof r->text);
    }
    if (status == QUERN_OK) status = qn_device_read(here->driver, here->handle, &r->device);
    if (status == QUERN_OK && !config) status = qn_fingerprint_read(here->driver, here->handle, &r->fingerprint);
    if (status == QUERN_OK && !config) qn_tuned_read(q, r->text, &r->tuned);
    if (status == QUERN_OK) {
        qn_nvtx_push(q->nvtx, "quern:prepare ", r->text);
        status = build(r, op);
        qn_nvtx_pop(q->nvtx);
    }
    if (r) qn_tuned_fini(&r->tuned);
    if (r) free(r->variants);
    free(r);
    return qn_message_end(&mark, status);
}

// ---- the table

_Static_assert(QN_TABLE_WORDS >= 2 + QN_DESCRIPTOR_WORDS, "a descriptor holds any spec");
_Static_assert(QN_TABLE_WORDS >= 2 + sizeof(quern_any_spec) / 8, "and the bytes of any spec");

static void describe_request(const qn_family *family, const quern_spec *spec, CUdevice handle, uint32_t buckets,
                             qn_descriptor *d)
{
    d->word[0] = (uint64_t)(uintptr_t)family;
    d->word[1] = (uint64_t)buckets << 32 | (uint32_t)handle;
    d->count = 2 + qn_spec_descriptor(family, spec, d->word + 2);
    qn_descriptor_seal(d);
}

// The caller's bytes as they are, but for the family's name, which is text: it is compared with the op's.
static bool describe_bytes(const quern_spec *spec, CUdevice handle, qn_descriptor *d)
{
    if (spec->size < sizeof *spec || spec->size > sizeof(quern_any_spec)) return false;
    size_t bytes = spec->size - sizeof *spec, whole = bytes / 8;
    const char *from = (const char *)(spec + 1);
    d->word[0] = spec->size;
    d->word[1] = (uint64_t)(uint32_t)handle;
    d->count = 2 + whole;
    for (size_t i = 0; i < whole; i++) memcpy(&d->word[2 + i], from + 8 * i, 8);
    if (__builtin_expect(bytes % 8 != 0, 0)) {
        d->word[d->count] = 0;
        memcpy(&d->word[d->count++], from + 8 * whole, bytes % 8);
    }
    qn_descriptor_seal(d);
    return true;
}

static inline _Atomic(const qn_table_entry *) *recent_at(quern *q, const quern_spec *spec)
{
    uintptr_t at = (uintptr_t)spec;
    return &q->recent[(at >> 4 ^ at >> 10) % QN_RECENT];
}

// Callers mostly keep a spec in one place: what was found for that place last, if it is still right.
static inline quern_op *find_recent(quern *q, const quern_spec *spec, CUdevice handle)
{
    const qn_table_entry *entry = atomic_load_explicit(recent_at(q, spec), memory_order_acquire);
    if (!entry || entry->descriptor.word[0] != spec->size || entry->descriptor.word[1] != (uint32_t)handle) return NULL;
    quern_op *op = entry->value;
    if (memcmp(entry->descriptor.word + 2, spec + 1, spec->size - sizeof *spec) != 0) return NULL;
    return spec->family && !strcmp(spec->family, op->family_name) ? op : NULL;
}

static quern_op *find_alias(quern *q, const quern_spec *spec, const qn_descriptor *alias)
{
    const qn_table_entry *entry = qn_table_find_entry(&q->aliases, alias);
    quern_op *op = entry ? entry->value : NULL;
    if (!op || !spec->family || strcmp(spec->family, op->family_name) != 0) return NULL;
    atomic_store_explicit(recent_at(q, spec), entry, memory_order_release);
    return op;
}

// Bytes that were checked once and led to this op need no check again. Not having room for it costs time only.
static void add_alias(quern *q, const qn_descriptor *alias, quern_op *op)
{
    void *kept;
    qn_message_mark mark;
    if (atomic_load_explicit(&op->aliases, memory_order_relaxed) >= QN_MAX_ALIASES) return;
    qn_process *process = qn_process_of(q);
    if (!process || atomic_fetch_add(&op->aliases, 1) >= QN_MAX_ALIASES) return;
    qn_message_save(&mark);
    pthread_mutex_lock(&process->lock);
    qn_table_insert(&q->aliases, alias, op, &kept);
    pthread_mutex_unlock(&process->lock);
    qn_message_restore(&mark);
}

// The other thread's op, if there is one meanwhile, else this one.
static quern_status publish(quern *q, const qn_descriptor *descriptor, quern_op *fresh, quern_op **op)
{
    void *kept = NULL;
    qn_process *process = qn_process_of(q);
    quern_status status = QUERN_OUT_OF_MEMORY;
    if (process) {
        pthread_mutex_lock(&process->lock);
        status = qn_table_insert(&q->table, descriptor, fresh, &kept);
        pthread_mutex_unlock(&process->lock);
    }
    if (kept != fresh) {
        unload_stages(fresh);
        qn_op_free(fresh);
    }
    if (status == QUERN_OK) *op = kept;
    return status;
}

static quern_status check_call(quern *q, const quern_spec *spec, const void *out)
{
    if (!q) return qn_fail(QUERN_MISSING_ARGUMENT, "the quern is NULL");
    if (!spec) return qn_fail(QUERN_MISSING_ARGUMENT, "the spec is NULL");
    return out ? QUERN_OK : qn_fail(QUERN_MISSING_ARGUMENT, "no place for the result: op is NULL");
}

// By the complete spec: what the caller's bytes did not find.
static quern_status find_or_build(quern *q, const quern_spec *spec, const qn_range *range, const qn_here *here,
                                  quern_op **op)
{
    uint32_t buckets = 0;
    const qn_family *family;
    quern_any_spec full;
    qn_descriptor descriptor;
    quern_op *fresh = NULL;
    QN_TRY(qn_spec_complete(spec, &family, &full));
    if (range) QN_TRY(qn_range_buckets(family, &full.base, range, &buckets));
    describe_request(family, &full.base, here->handle, buckets, &descriptor);
    *op = qn_table_find(&q->table, &descriptor);
    if (*op) {
        QN_TALLY(q, hit_table, 1);
        return QUERN_OK;
    }
    QN_TRY(build_for(q, family, &full, here, NULL, buckets, &fresh));
    return publish(q, &descriptor, fresh, op);
}

// What was not found where the caller's spec was before.
static __attribute__((noinline)) quern_status prepare_slowly(quern *q, const quern_spec *spec, const qn_range *range,
                                                             const qn_here *here, quern_op **op)
{
    qn_descriptor alias;
    bool has_alias = !range && describe_bytes(spec, here->handle, &alias);
    quern_op *found = has_alias ? find_alias(q, spec, &alias) : NULL;
    bool is_hit = found != NULL;
    if (!is_hit) QN_TRY(find_or_build(q, spec, range, here, &found));
    if (!is_ready_in(found, here->context)) QN_TRY(ready_here(found, here));
    if (is_hit) {
        qn_quern_retain_hit(q);
    } else {
        if (has_alias) add_alias(q, &alias, found);
        qn_quern_retain(q);
    }
    *op = found;
    return QUERN_OK;
}

static quern_status prepare(quern *q, const quern_spec *spec, const qn_range *range, int device, quern_op **op)
{
    qn_here here;
    QN_TRY(check_call(q, spec, op));
    quern_status status = qn_device_current(q, device, &here);
    if (status != QUERN_OK) {
        QN_TRY(quern_spec_check(spec)); // a bad spec is the nearer fault
        return status;
    }
    quern_op *found = range ? NULL : find_recent(q, spec, here.handle);
    if (!found) return prepare_slowly(q, spec, range, &here, op);
    if (!is_ready_in(found, here.context)) QN_TRY(ready_here(found, &here));
    qn_quern_retain_hit(q);
    *op = found;
    return QUERN_OK;
}

quern_status quern_prepare(quern *q, const quern_spec *spec, int device, quern_op **op)
{
    return prepare(q, spec, NULL, device, op);
}

quern_status quern_prepare_sizes(quern *q, const quern_spec *spec, const void *from, const void *to, int device,
                                 quern_op **op)
{
    const qn_range range = {from, to};
    if (!from || !to) return qn_fail(QUERN_MISSING_ARGUMENT, "quern_prepare_sizes: %s is NULL", !from ? "from" : "to");
    return prepare(q, spec, &range, device, op);
}

quern_status qn_prepare_config(quern *q, const quern_spec *spec, int device, const qn_config *config, quern_op **op)
{
    const qn_family *family;
    quern_any_spec full;
    qn_here here;
    quern_op *fresh = NULL;
    QN_TRY(check_call(q, spec, op));
    QN_TRY(qn_spec_complete(spec, &family, &full));
    QN_TRY(qn_device_current(q, device, &here));
    QN_TRY(build_for(q, family, &full, &here, config, 0, &fresh));
    qn_quern_retain(q);
    *op = fresh;
    return QUERN_OK;
}

// ---- references

quern_op *quern_op_retain(quern_op *op)
{
    if (!op) return NULL;
    if (!op->in_table) atomic_fetch_add_explicit(&op->references, 1, memory_order_relaxed);
    qn_quern_retain(op->q);
    return op;
}

void quern_op_release(quern_op *op)
{
    if (!op) return;
    quern *q = op->q;
    if (!op->in_table && atomic_fetch_sub_explicit(&op->references, 1, memory_order_acq_rel) == 1) {
        unload_stages(op);
        qn_op_free(op);
    }
    qn_quern_release(q);
}
