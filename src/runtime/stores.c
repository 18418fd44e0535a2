// SPDX-License-Identifier: Apache-2.0
// Asking the stores: sealed ones in order, then the user's. What they return is verified here; what they fail in is
// counted and warned about once, and is never the caller's failure. Called by obtain.c and tuned.c.
//   (1) Nothing from a store is used before size, sum and the whole key are right.
//   (2) A bad row is removed where that is possible, else remembered for the process; it is never asked for twice.
//   (3) A store that was busy for its whole time limit is left alone for as long again: one wait, not one a kernel.
#include <stdlib.h>
#include <string.h>

#include "runtime/private.h"
#include "runtime/usable.h"

typedef struct search {
    quern *q;
    const qn_work *work;
    qn_entry *entry; // a good row, copied
    bool is_bad;
    const char *fault;
    char toolchain[96]; // of the bad row
} search;

// ---- remembered bad rows

static bool is_remembered(qn_process *process, const qn_hash *hash, size_t store)
{
    pthread_mutex_lock(&process->lock);
    qn_bad *bad = process->bad;
    while (bad && (bad->store != store || memcmp(bad->hash.bytes, hash->bytes, sizeof hash->bytes))) bad = bad->next;
    pthread_mutex_unlock(&process->lock);
    return bad != NULL;
}

static void remember(qn_process *process, const qn_hash *hash, size_t store)
{
    qn_bad *bad = malloc(sizeof *bad);
    if (!bad) return;
    *bad = (qn_bad){.hash = *hash, .store = store};
    pthread_mutex_lock(&process->lock);
    bad->next = process->bad;
    process->bad = bad;
    pthread_mutex_unlock(&process->lock);
}

// ---- one answer

enum { MOST_REGISTERS = 255, MOST_SHARED = 1 << 20 }; // of a thread; static, of a CTA: several times what any SM has

static const char *fault_of(const qn_work *work, const quern_record *record)
{
    if (record->kind != QN_KIND_CUBIN) return "its kind is not a cubin";
    if (!record->key || record->key_bytes != work->key.length || memcmp(record->key, work->key.bytes, work->key.length))
        return "its key is another kernel's";
    if (!record->image || !record->image_bytes) return "its image is empty";
    qn_hash sum = qn_hash_bytes(record->image, record->image_bytes);
    if (memcmp(sum.bytes, record->sum, sizeof sum.bytes)) return "its sum is wrong";
    if (!qn_cubin_is_plausible(record->image, record->image_bytes)) return "its image is not a cubin";
    if (record->entry && strcmp(record->entry, work->entry_name) != 0) return "its entry is another kernel's";
    if (record->registers < -1 || record->registers > MOST_REGISTERS || record->shared_bytes < -1 ||
        record->shared_bytes > MOST_SHARED || record->local_bytes < -1)
        return "its registers or bytes are no kernel's";
    return NULL;
}

static qn_entry *copy_record(const qn_work *work, const quern_record *record)
{
    qn_entry *entry = calloc(1, sizeof *entry);
    if (!entry) return NULL;
    qn_image *image = &entry->image;
    qn_text_put(&image->bytes, record->image, record->image_bytes);
    memcpy(image->entry, work->entry_name, sizeof image->entry);
    strncpy(image->arch, work->arch->name, sizeof image->arch - 1);
    image->registers = record->registers;
    image->shared_bytes = record->shared_bytes;
    image->local_bytes = record->local_bytes;
    image->compile_us = record->compile_us;
    entry->hash = work->hash;
    if (record->toolchain) strncpy(entry->toolchain, record->toolchain, sizeof entry->toolchain - 1);
    if (!image->bytes.failed) return entry;
    qn_entry_free(entry);
    return NULL;
}

// A caller's store may have been built against another header: no more is read of an answer than its size says.
static int on_found(void *user, const quern_record *answer)
{
    search *s = user;
    quern_record record = {0};
    if (s->entry || s->is_bad) return 1; // a store that calls twice
    bool has_size = qn_take_sized("record", answer, &record, sizeof record) == QUERN_OK;
    s->fault = has_size ? fault_of(s->work, &record) : "its size is not that of a record";
    if (s->fault) {
        s->is_bad = true;
        if (record.toolchain) strncpy(s->toolchain, record.toolchain, sizeof s->toolchain - 1);
    } else {
        s->entry = copy_record(s->work, &record);
    }
    return 0;
}

// The entry of a row takes the work's key, which stays readable there: entries live as long as the quern. False: no
// memory for another copy.
static bool publish(quern *q, qn_work *work, qn_entry *entry)
{
    if (work->key_is_lent)
        qn_text_put(&entry->key, work->key.bytes, work->key.length);
    else
        entry->key = work->key;
    if (entry->key.failed) {
        qn_entry_free(entry);
        return false;
    }
    work->entry = qn_memory_publish(q, entry); // or the equal one that was first
    work->key = work->entry->key;
    work->key_is_lent = true;
    work->source = work->key.bytes + work->key.length - work->source_bytes;
    return true;
}

// ---- one store

static quern_store *store_at(quern *q, qn_process *process, size_t index)
{
    if (!atomic_load_explicit(&process->is_open[index], memory_order_acquire)) return NULL;
    return index < q->sealed_count ? &process->sealed[index] : &process->user;
}

static const char *store_name(const quern *q, size_t index)
{
    if (index < q->sealed_count) return q->sealed[index];
    return q->has_custom_store ? "the caller's store" : q->cache_file;
}

static qn_warning warning_of(const quern *q, size_t index)
{
    return index < q->sealed_count ? QN_WARN_SEALED : QN_WARN_STORE;
}

// Callbacks of the caller's set no message.
static const char *reason(const quern *q, size_t index, quern_status status)
{
    return index == q->sealed_count && q->has_custom_store ? quern_status_text(status) : quern_message();
}

static bool is_left_alone(qn_process *process, size_t index)
{
    return qn_now_ms() < atomic_load_explicit(&process->closed_until_ms[index], memory_order_relaxed);
}

static void leave_alone_if_busy(quern *q, qn_process *process, size_t index, quern_status status)
{
    if (status != QUERN_STORE_BUSY || q->busy_timeout_ms < 0) return;
    atomic_store_explicit(&process->closed_until_ms[index], qn_now_ms() + q->busy_timeout_ms, memory_order_relaxed);
}

static quern_record record_of(const qn_work *work, const char *toolchain)
{
    quern_record record = {.size = sizeof record,
                           .key = work->key.bytes,
                           .key_bytes = work->key.length,
                           .toolchain = toolchain,
                           .arch = work->arch->name,
                           .entry = work->entry_name,
                           .spec = work->spec_text,
                           .kind = QN_KIND_CUBIN};
    memcpy(record.hash, work->hash.bytes, sizeof record.hash);
    return record;
}

static bool remove_row(quern *q, qn_process *process, const qn_work *work, size_t index, const char *toolchain)
{
    quern_store *store = store_at(q, process, index);
    if (index < q->sealed_count || !store || !process->user_is_writable || !store->remove) return false;
    quern_record record = record_of(work, toolchain);
    return store->remove(store->self, &record) == QUERN_OK;
}

static quern_status ask(quern *q, qn_process *process, size_t index, qn_work *work, const char *toolchain)
{
    quern_store *store = store_at(q, process, index);
    if (!store) {
        work->saw_failure |= index < q->sealed_count; // one that was named, and could not be used
        return QUERN_NOT_FOUND;
    }
    if (is_remembered(process, &work->hash, index)) {
        work->saw_damaged = true;
        return QUERN_NOT_FOUND;
    }
    if (is_left_alone(process, index)) {
        work->saw_failure = true;
        QN_TALLY(q, get_failed, 1);
        return QUERN_STORE_BUSY;
    }
    search s = {.q = q, .work = work};
    quern_record wanted = record_of(work, toolchain);
    qn_nvtx_push(q->nvtx, "quern:find ", work->entry_name);
    quern_status status = store->get(store->self, &wanted, toolchain, on_found, &s);
    qn_nvtx_pop(q->nvtx);
    if (s.entry) {
        s.entry->store = index;
        s.entry->image.origin = index < q->sealed_count ? QUERN_ORIGIN_SEALED : QUERN_ORIGIN_USER;
        return publish(q, work, s.entry) ? QUERN_OK : QUERN_NOT_FOUND;
    }
    if (s.is_bad) {
        qn_warn_once(q, QN_WARN_BAD_ROW, "cache", "%s: the row of %s (%s) is passed over: %s", store_name(q, index),
                     work->entry_name, work->spec_text, s.fault);
        QN_TALLY(q, bad_rows, 1);
        work->saw_damaged = true;
        if (!remove_row(q, process, work, index, s.toolchain)) remember(process, &work->hash, index);
        return QUERN_NOT_FOUND;
    }
    if (status == QUERN_NOT_FOUND || status == QUERN_OK) return QUERN_NOT_FOUND;
    QN_TALLY(q, get_failed, 1);
    work->saw_failure = true;
    leave_alone_if_busy(q, process, index, status);
    qn_warn_once(q, warning_of(q, index), "cache", "%s could not be read, kernels are compiled: %s: %s",
                 store_name(q, index), quern_status_name(status), reason(q, index, status));
    return status;
}

// ---- all of them

quern_status qn_stores_find(quern *q, qn_process *process, qn_work *work, bool *failed)
{
    const char *toolchain = NULL;
    *failed = false;
    if (q->toolchain == QUERN_TOOLCHAIN_EXACT) {
        const qn_nvrtc *nvrtc;
        QN_TRY(qn_nvrtc_load(q->nvrtc_file, q->ignore_environment, &nvrtc));
        toolchain = nvrtc->identity;
    }
    qn_process_open_stores(q, process);
    qn_message_mark mark;
    qn_message_save(&mark);
    quern_status status = QUERN_NOT_FOUND;
    for (size_t i = 0; i <= q->sealed_count && status != QUERN_OK; i++) {
        status = ask(q, process, i, work, toolchain);
        *failed = status != QUERN_OK && status != QUERN_NOT_FOUND; // at the end: the user's store, that flights are for
    }
    qn_message_restore(&mark);
    return status == QUERN_OK ? QUERN_OK : QUERN_NOT_FOUND;
}

bool qn_stores_put(quern *q, qn_process *process, const qn_work *work, const qn_entry *entry)
{
    if (!store_at(q, process, q->sealed_count) || !process->user_is_writable) return false;
    size_t index = q->sealed_count;
    quern_status status = QUERN_STORE_BUSY;
    qn_message_mark mark;
    qn_message_save(&mark);
    if (!is_left_alone(process, index)) {
        const qn_image *image = &entry->image;
        quern_record record = record_of(work, entry->toolchain);
        qn_hash sum = qn_hash_bytes(image->bytes.bytes, image->bytes.length);
        record.registers = image->registers, record.shared_bytes = image->shared_bytes;
        record.local_bytes = image->local_bytes, record.compile_us = image->compile_us;
        record.image = image->bytes.bytes, record.image_bytes = image->bytes.length;
        memcpy(record.sum, sum.bytes, sizeof record.sum);
        status = process->user.put(process->user.self, &record);
        leave_alone_if_busy(q, process, index, status);
        if (status != QUERN_OK)
            qn_warn_once(q, QN_WARN_STORE, "cache", "%s does not take kernels, they are kept in memory: %s: %s",
                         store_name(q, index), quern_status_name(status), reason(q, index, status));
    }
    qn_message_restore(&mark);
    atomic_store(&process->put_fails, status != QUERN_OK);
    if (status != QUERN_OK) QN_TALLY(q, put_failed, 1);
    return status == QUERN_OK;
}

void qn_stores_drop(quern *q, qn_process *process, const qn_work *work, const qn_entry *entry)
{
    qn_message_mark mark;
    qn_message_save(&mark);
    QN_TALLY(q, bad_rows, 1);
    remove_row(q, process, work, entry->store, entry->toolchain);
    remember(process, &work->hash, entry->store); // in any case: this process never takes its word again
    qn_message_restore(&mark);
}

// ---- tuning results

// A range of sizes with former borders gets the name of the one that it is now.
static quern_status take_tuned(const qn_family *family, const qn_tune_row *read, qn_tune_list *list)
{
    char bucket_name[96];
    size_t bucket;
    qn_tune_row row = *read;
    QN_TRY(qn_tune_usable(&row, QN_TUNE_NO_CLOCK));
    if (qn_bucket_find(family, row.bucket, row.sizes, &bucket)) {
        family->bucket_name(bucket, bucket_name, sizeof bucket_name);
        row.bucket = bucket_name;
    }
    return qn_tune_list_add(list, &row);
}

// What could never be used is left out, and of several winners of a range (by its name in the store) each: it is not known
// which won. OUT_OF_MEMORY is no judgement: nothing is said of the rows.
static quern_status judge_tuned(quern *q, size_t index, const char *spec_text, const qn_tune_list *read,
                                qn_tune_list *list)
{
    const qn_family *family;
    quern_any_spec spec;
    size_t left_out = 0;
    qn_text first = QN_TEXT_INIT;
    quern_status status = QUERN_OK;
    if (quern_spec_parse(spec_text, &spec) != QUERN_OK || qn_family_find(spec.base.family, &family) != QUERN_OK)
        return QUERN_OK;
    for (size_t i = 0, next; i < read->count && status != QUERN_OUT_OF_MEMORY; i = next) {
        next = qn_tune_next_problem(read->row, read->count, i);
        status = qn_tune_one_winner(&read->row[i], next - i);
        if (status == QUERN_OK) status = take_tuned(family, &read->row[i], list);
        if (status == QUERN_OK || status == QUERN_OUT_OF_MEMORY) continue;
        if (!left_out) qn_text_puts(&first, quern_message());
        left_out += next - i;
    }
    if (left_out)
        qn_warn_once(q, QN_WARN_TUNED, "cache",
                     "%s: %zu tuning result%s left out, 'quern tune SPEC' makes new ones; the first: %s",
                     store_name(q, index), left_out, left_out == 1 ? " is" : "s are", qn_text_string(&first));
    qn_text_fini(&first);
    return status == QUERN_OUT_OF_MEMORY ? status : QUERN_OK;
}

static void read_tuned(quern *q, qn_process *process, size_t index, const char *spec_text, qn_tune_list *list)
{
    quern_store *store = store_at(q, process, index);
    qn_tune_list read = QN_TUNE_LIST_INIT;
    if (!store || (index == q->sealed_count && !process->user_is_sqlite)) return; // a caller's store has none
    if (is_left_alone(process, index)) return;
    qn_nvtx_push(q->nvtx, "quern:tuned ", spec_text);
    quern_status status = qn_sqlite_tune_read(store, spec_text, QN_TUNE_BEST, &read);
    qn_nvtx_pop(q->nvtx);
    const quern_status judged = read.count ? judge_tuned(q, index, spec_text, &read, list) : QUERN_OK;
    if (status == QUERN_OK) status = judged;
    qn_tune_list_fini(&read);
    if (status == QUERN_OK) return;
    leave_alone_if_busy(q, process, index, status);
    qn_warn_once(q, warning_of(q, index), "cache",
                 "%s could not be asked, what it has of tuning results and kernels is not used: %s: %s",
                 store_name(q, index), quern_status_name(status), quern_message());
}

void qn_stores_tuned(quern *q, qn_process *process, const char *spec_text, qn_tune_list *list)
{
    qn_message_mark mark;
    qn_process_open_stores(q, process);
    qn_message_save(&mark);
    size_t count = q->sealed_count + (q->tuning == QUERN_TUNING_FROZEN ? 0 : 1);
    for (size_t i = 0; i < count; i++) read_tuned(q, process, i, spec_text, list);
    qn_message_restore(&mark);
}
