// SPDX-License-Identifier: Apache-2.0
// One kernel: memory, sealed stores, user's store, compile. Called by batch.c, custom.c and the tools.
//   (1) Failures are not remembered: the next call tries again.
//   (2) One compile a key, in this process and, where the store allows it, among processes (flight.c).
//   (3) What a store does wrong is never this function's failure (stores.c).
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuda/nvrtc_guard.h"
#include "runtime/private.h"

// ---- work

static void begin_init(qn_work *work, const char *entry, const qn_extras *extras, const qn_arch *arch,
                       const char *spec_text)
{
    memset(work, 0, sizeof *work);
    work->arch = arch;
    work->extras = extras;
    work->spec_text = spec_text;
    snprintf(work->entry_name, sizeof work->entry_name, "%s", entry);
}

quern_status qn_work_init(quern *q, qn_work *work, const qn_kernel_plan *plan, const qn_arch *arch,
                          const char *spec_text)
{
    qn_nvtx_push(q->nvtx, "quern:source ", plan->entry);
    begin_init(work, plan->entry, NULL, arch, spec_text);
    quern_status status = qn_work_key(q, work, plan, NULL);
    qn_nvtx_pop(q->nvtx);
    return status;
}

quern_status qn_work_init_source(quern *q, qn_work *work, const char *source, const char *entry,
                                 const qn_extras *extras, const qn_arch *arch, const char *spec_text)
{
    begin_init(work, entry, extras, arch, spec_text);
    return qn_work_key(q, work, NULL, source);
}

void qn_work_fini(qn_work *work)
{
    if (!work->key_is_lent) qn_text_fini(&work->key);
    free(work->message);
}

quern_status qn_work_would_compile(quern *q, const qn_work *work)
{
    char hex[33];
    qn_text options_text = QN_TEXT_INIT;
    qn_options options;
    qn_hash_hex(&work->hash, hex);
    qn_compile_options(q, work->arch, work->extras, &options);
    for (size_t i = 0; i < options.count; i++) qn_text_putf(&options_text, "%s%s", i ? " " : "", options.item[i]);
    quern_status status = qn_fail(
        QUERN_WOULD_COMPILE,
        "no store has this kernel and the mode is strict: arch %s, entry %s, spec \"%s\", generator %d, "
        "options \"%s\", key %s: warm it, or open with another mode",
        work->arch->name, work->entry_name, work->spec_text, QN_GENERATOR_VERSION, qn_text_string(&options_text), hex);
    qn_text_fini(&options_text);
    return status;
}

// ---- misses

typedef struct miss_reason {
    const char *word;
    _Atomic uint64_t *counter;
} miss_reason;

static miss_reason reason_of(quern *q, const qn_process *process, const qn_work *work)
{
    if (work->was_refused) return (miss_reason){"refused", &q->tally.miss_refused};
    if (work->saw_damaged) return (miss_reason){"damaged", &q->tally.miss_damaged};
    if (work->saw_failure) return (miss_reason){"failed", &q->tally.miss_failed};
    if (!process->is_open[q->sealed_count] && !q->sealed_count)
        return (miss_reason){"no_store", &q->tally.miss_no_store};
    return (miss_reason){"absent", &q->tally.miss_absent};
}

void qn_work_missed(quern *q, const qn_process *process, const qn_work *work)
{
    miss_reason reason = reason_of(q, process, work);
    QN_TALLY(q, miss, 1);
    atomic_fetch_add_explicit(reason.counter, 1, memory_order_relaxed);
    if (q->mode == QUERN_MODE_STRICT) QN_TALLY(q, would_compile, 1);
    qn_log_line(&q->log, "cache", QUERN_LOG_INFO, "miss reason=%s arch=%s kernel=%s spec=\"%s\"", reason.word,
                work->arch->name, work->entry_name, work->spec_text);
}

// ---- tiers without a compile

static bool take_from_memory(quern *q, qn_work *work)
{
    work->entry = qn_memory_find(q, &work->hash, &work->key);
    if (!work->entry) return false;
    work->origin = QUERN_ORIGIN_MEMORY;
    QN_TALLY(q, hit_memory, 1);
    return true;
}

static quern_status take_from_stores(quern *q, qn_process *process, qn_work *work, bool *failed)
{
    QN_TRY(qn_stores_find(q, process, work, failed));
    bool is_sealed = work->entry->image.origin == QUERN_ORIGIN_SEALED;
    work->origin = work->entry->image.origin;
    if (is_sealed)
        QN_TALLY(q, hit_sealed, 1);
    else
        QN_TALLY(q, hit_user, 1);
    QN_TALLY(q, bytes_found, work->entry->image.bytes.length);
    qn_log_line(&q->log, "cache", QUERN_LOG_INFO, "hit tier=%s arch=%s kernel=%s bytes=%zu spec=\"%s\"",
                is_sealed ? "sealed" : "user", work->arch->name, work->entry_name, work->entry->image.bytes.length,
                work->spec_text);
    qn_work_dump(q, work, NULL);
    return QUERN_OK;
}

quern_status qn_work_find(quern *q, qn_work *work)
{
    bool failed;
    if (take_from_memory(q, work)) return QUERN_OK;
    qn_process *process = qn_process_of(q);
    if (!process) return QUERN_OUT_OF_MEMORY;
    return take_from_stores(q, process, work, &failed);
}

// ---- compile

static qn_entry *entry_of(const qn_work *work, const qn_nvrtc *nvrtc, qn_compiled *compiled)
{
    qn_entry *entry = calloc(1, sizeof *entry);
    if (!entry) return NULL;
    qn_image *image = &entry->image;
    qn_text_put(&entry->key, work->key.bytes, work->key.length);
    image->bytes = compiled->image;
    compiled->image = (qn_text)QN_TEXT_INIT;
    memcpy(image->entry, work->entry_name, sizeof image->entry);
    strncpy(image->arch, work->arch->name, sizeof image->arch - 1);
    image->registers = compiled->registers;
    image->shared_bytes = compiled->shared_bytes;
    image->local_bytes = compiled->local_bytes;
    image->compile_us = compiled->compile_us;
    image->origin = QUERN_ORIGIN_COMPILED;
    entry->hash = work->hash;
    memcpy(entry->toolchain, nvrtc->identity, sizeof entry->toolchain);
    if (!entry->key.failed) return entry;
    qn_entry_free(entry);
    return NULL;
}

// The name of a caller's text is absolute and of no folder that exists: a quoted include is looked for beside it, and
// line information has no current directory in it.
static quern_status run_compiler(quern *q, const qn_nvrtc *nvrtc, const qn_work *work, qn_compiled *compiled)
{
    qn_options options;
    char name[QN_MAX_ENTRY + 32];
    const qn_extras *extras = work->extras;
    qn_compile_options(q, work->arch, extras, &options);
    snprintf(name, sizeof name, extras ? QN_SOURCE_ROOT "%s.cu" : "%s", work->entry_name);
    qn_compile request = {.source = work->source,
                          .name = name,
                          .entry = work->entry_name,
                          .options = options.item,
                          .option_count = options.count,
                          .timeout_ms = q->compile_timeout_ms,
                          .cancel = q->cancel,
                          .cancel_user = q->cancel_user};
    if (extras) {
        request.header_names = extras->header_names, request.header_texts = extras->header_texts;
        request.header_count = extras->header_count;
    }
    qn_nvtx_push(q->nvtx, "quern:compile ", work->spec_text);
    quern_status status = qn_nvrtc_compile(nvrtc, &request, compiled);
    qn_nvtx_pop(q->nvtx);
    return status;
}

static quern_status compile_failed(quern *q, const qn_work *work, quern_status status)
{
    QN_TALLY(q, compile_failed, 1);
    qn_fail_in(status, "spec \"%s\" for %s", work->spec_text, work->arch->name);
    qn_work_dump(q, work, quern_message());
    qn_log_line(&q->log, "compile", QUERN_LOG_INFO, "failed status=%s arch=%s kernel=%s spec=\"%s\"",
                quern_status_name(status), work->arch->name, work->entry_name, work->spec_text);
    return status;
}

static void keep(quern *q, qn_process *process, qn_work *work, qn_entry *entry, const char *compiler_log)
{
    int64_t us = entry->image.compile_us;
    size_t bytes = entry->image.bytes.length;
    QN_TALLY(q, compiled, 1);
    QN_TALLY(q, compile_us, us);
    QN_TALLY(q, bytes_compiled, bytes);
    work->compiled = true;
    work->origin = QUERN_ORIGIN_COMPILED;
    work->stored = qn_stores_put(q, process, work, entry);
    if (work->stored) QN_TALLY(q, bytes_stored, bytes);
    work->entry = qn_memory_publish(q, entry);
    qn_log_line(&q->log, "compile", QUERN_LOG_INFO,
                "compiled ms=%lld.%03lld arch=%s kernel=%s bytes=%zu stored=%d spec=\"%s\"", (long long)(us / 1000),
                (long long)(us % 1000), work->arch->name, work->entry_name, bytes, work->stored, work->spec_text);
    qn_work_dump(q, work, compiler_log);
}

static quern_status compile(quern *q, qn_process *process, qn_work *work)
{
    const qn_nvrtc *nvrtc;
    qn_compiled compiled = {0};
    if (qn_nvrtc_usable() != QUERN_OK) {
        QN_TALLY(q, would_compile, 1);
        return qn_fail_in(QUERN_WOULD_COMPILE, "spec \"%s\" for %s", work->spec_text, work->arch->name);
    }
    QN_TRY(qn_nvrtc_load(q->nvrtc_file, q->ignore_environment, &nvrtc));
    if (!qn_nvrtc_has_arch(nvrtc, work->arch)) return qn_lacks_arch(nvrtc, work->spec_text, &work->arch, 1);
    quern_status status = run_compiler(q, nvrtc, work, &compiled);
    if (status != QUERN_OK) return compile_failed(q, work, status);
    qn_entry *entry = entry_of(work, nvrtc, &compiled);
    if (entry)
        keep(q, process, work, entry, qn_text_string(&compiled.log));
    else
        status = qn_fail(QUERN_OUT_OF_MEMORY, "out of memory: keeping the image of %s", work->entry_name);
    qn_compiled_fini(&compiled);
    return status;
}

// ---- all of it, as the one thread that works on this key

// A row as good as the one that was refused is that one: it is dropped.
static bool is_the_refused(quern *q, qn_process *process, qn_work *work, const qn_entry *refused)
{
    const qn_text *a = &work->entry->image.bytes;
    if (!refused || a->length != refused->image.bytes.length || memcmp(a->bytes, refused->image.bytes.bytes, a->length))
        return false;
    if (!atomic_exchange(&work->entry->dropped, true)) qn_stores_drop(q, process, work, work->entry);
    work->entry = NULL;
    return true;
}

static quern_status find_good(quern *q, qn_process *process, qn_work *work, const qn_entry *refused, bool *failed)
{
    quern_status status;
    do status = take_from_stores(q, process, work, failed);
    while (status == QUERN_OK && is_the_refused(q, process, work, refused));
    return status;
}

static quern_status lead(quern *q, qn_process *process, qn_work *work, const qn_entry *refused)
{
    bool failed;
    qn_lock lock;
    if (take_from_memory(q, work)) return QUERN_OK;
    quern_status status = find_good(q, process, work, refused, &failed);
    if (status != QUERN_NOT_FOUND) return status;
    qn_work_missed(q, process, work);
    if (q->mode == QUERN_MODE_STRICT) return qn_work_would_compile(q, work);
    if (failed) return compile(q, process, work); // no use waiting for rows that cannot be read
    QN_TRY(qn_lock_take(q, process, &work->hash, work->entry_name, &lock));
    if (lock.fd >= 0) status = find_good(q, process, work, refused, &failed);
    if (failed) qn_lock_drop(q, &lock);
    if (status == QUERN_NOT_FOUND) status = compile(q, process, work);
    qn_lock_drop(q, &lock);
    return status;
}

static quern_status obtain(quern *q, qn_work *work, const qn_entry *refused)
{
    quern_status status;
    qn_process *process = qn_process_of(q);
    if (!process) return QUERN_OUT_OF_MEMORY;
    for (;;) {
        if (take_from_memory(q, work)) return QUERN_OK;
        if (qn_flight_join(q, process, &work->hash, &status)) break;
        if (status != QUERN_OK) return status;
    }
    status = lead(q, process, work, refused);
    qn_flight_land(process, &work->hash, status);
    return status;
}

quern_status qn_work_obtain(quern *q, qn_work *work)
{
    return obtain(q, work, NULL);
}

quern_status qn_work_replace(quern *q, qn_work *work, const char *why)
{
    qn_entry *refused = work->entry;
    atomic_store(&refused->dropped, true);
    work->entry = NULL;
    work->was_refused = true;
    qn_warn_once(q, QN_WARN_REFUSED, "load", "the stored image of %s (%s) is refused by the driver and made anew: %s",
                 work->entry_name, work->spec_text, why);
    return obtain(q, work, refused);
}

quern_status qn_kernel_obtain(quern *q, const qn_kernel_plan *plan, const qn_arch *arch, const char *spec_text,
                              const qn_image **image)
{
    qn_work work;
    quern_status status = qn_work_init(q, &work, plan, arch, spec_text);
    if (status == QUERN_OK) status = qn_work_obtain(q, &work);
    if (status == QUERN_OK) *image = &work.entry->image;
    qn_work_fini(&work);
    return status;
}
