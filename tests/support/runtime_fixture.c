// SPDX-License-Identifier: Apache-2.0
// Helpers of the runtime's tests: runtime_fixture.h says what they promise.
#include "support/runtime_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/key.h"
#include "support/cache_fixture.h"
#include "support/fake_driver.h"
#include "support/fake_nvrtc.h"

// ---- log lines

void runtime_log_write(void *user, quern_log_level level, const char *line)
{
    runtime_log *log = user;
    pthread_mutex_lock(&log->lock);
    log->count[level]++;
    qn_text_puts(&log->lines, line);
    qn_text_puts(&log->lines, "\n");
    pthread_mutex_unlock(&log->lock);
}

bool runtime_log_has(runtime_log *log, const char *part)
{
    pthread_mutex_lock(&log->lock);
    bool found = strstr(qn_text_string(&log->lines), part) != NULL;
    pthread_mutex_unlock(&log->lock);
    return found;
}

void runtime_log_fini(runtime_log *log)
{
    qn_text_fini(&log->lines);
}

// ---- a quern

quern_options runtime_options(const char *cache_file, runtime_log *log)
{
    quern_options options = QUERN_OPTIONS_INIT;
    options.cache_file = cache_file;
    options.ignore_environment = 1;
    options.busy_timeout_ms = 1000;
    options.flight_timeout_ms = 20000;
    options.log = log ? runtime_log_write : NULL;
    options.log_user = log;
    return options;
}

quern *runtime_open(const quern_options *options)
{
    quern *q = NULL;
    quern_status status = quern_open(options, &q);
    if (status != QUERN_OK) fail_msg("quern_open: %s: %s", quern_status_name(status), quern_message());
    return q;
}

quern_counters runtime_counters(const quern *q)
{
    quern_counters counters = QUERN_COUNTERS_INIT;
    quern_get_counters(q, &counters);
    return counters;
}

quern_softmax_topk_spec runtime_spec(int64_t V, int64_t K)
{
    quern_softmax_topk_spec spec = QUERN_SOFTMAX_TOPK_SPEC_INIT;
    spec.V = V, spec.K = K, spec.in = QUERN_F32;
    return spec;
}

quern_op *runtime_prepare(quern *q, int64_t V, int device)
{
    quern_softmax_topk_spec spec = runtime_spec(V, 8);
    quern_op *op = NULL;
    quern_status status = quern_prepare(q, &spec.base, device, &op);
    if (status != QUERN_OK) fail_msg("%s: %s", quern_status_name(status), quern_message());
    return op;
}

// ---- a machine

void runtime_devices_make(const int *cc, int count)
{
    fake_nvrtc_install(13, 0);
    fake_driver_install(count, cc);
    fake_driver_enter(fake_driver_context(0));
}

void runtime_devices_remove(void)
{
    fake_driver_enter(NULL);
    fake_driver_remove();
    fake_nvrtc_remove();
}

void runtime_machine_make(char folder[64], char database[128], const int *cc, int count)
{
    cache_folder_make(folder);
    snprintf(database, 128, "%s/quern-v1.db", folder);
    runtime_devices_make(cc, count);
}

void runtime_machine_remove(const char *folder)
{
    runtime_devices_remove();
    cache_folder_remove(folder);
}

// ---- kernels by number

void runtime_plan(qn_kernel_plan *plan, int number)
{
    memset(plan, 0, sizeof *plan);
    plan->template_path = "common/types.cuh";
    snprintf(plan->entry, sizeof plan->entry, "kernel_%d", number);
    qn_plan_constant(plan, "NUMBER", number);
    plan->threads = 128;
    plan->min_ctas = 1;
    plan->cluster = 1;
    plan->params_bytes = 16;
}

quern_status runtime_obtain(quern *q, int number, const char *arch_name, const qn_image **image)
{
    qn_kernel_plan *plan = malloc(sizeof *plan);
    const qn_arch *arch;
    char text[32];
    quern_status status = qn_arch_find(arch_name, &arch);
    assert_non_null(plan);
    runtime_plan(plan, number);
    snprintf(text, sizeof text, "kernel number=%d", number);
    if (status == QUERN_OK) status = qn_kernel_obtain(q, plan, arch, text, image);
    free(plan);
    return status;
}

// ---- a store in memory

static void *copy(const void *bytes, size_t count)
{
    void *to = malloc(count + 1);
    assert_non_null(to);
    memcpy(to, bytes, count);
    ((char *)to)[count] = 0;
    return to;
}

static bool is_same(const quern_record *a, const quern_record *b)
{
    return !memcmp(a->hash, b->hash, sizeof a->hash) && a->key_bytes == b->key_bytes &&
           !memcmp(a->key, b->key, a->key_bytes);
}

static quern_status on_get(void *self, const quern_record *wanted, const char *toolchain, quern_record_fn found,
                           void *user)
{
    runtime_store *store = self;
    quern_status status = QUERN_NOT_FOUND;
    store->gets++;
    if (store->get_status) return (quern_status)store->get_status;
    pthread_mutex_lock(&store->lock);
    for (size_t i = store->rows; i-- > 0 && status != QUERN_OK;) {
        const quern_record *row = &store->row[i];
        if (!store->ignores_keys && !is_same(row, wanted)) continue;
        if (toolchain && strcmp(row->toolchain, toolchain)) continue;
        found(user, row);
        status = QUERN_OK;
    }
    pthread_mutex_unlock(&store->lock);
    return status;
}

static quern_status on_put(void *self, const quern_record *record)
{
    runtime_store *store = self;
    store->puts++;
    if (store->put_status) return (quern_status)store->put_status;
    pthread_mutex_lock(&store->lock);
    for (size_t i = 0; i < store->rows; i++) {
        if (!is_same(&store->row[i], record) || strcmp(store->row[i].toolchain, record->toolchain)) continue;
        pthread_mutex_unlock(&store->lock);
        return QUERN_OK;
    }
    assert_true(store->rows < RUNTIME_STORE_ROWS);
    quern_record *row = &store->row[store->rows++];
    *row = *record;
    row->key = copy(record->key, record->key_bytes);
    row->image = copy(record->image, record->image_bytes);
    row->toolchain = copy(record->toolchain, strlen(record->toolchain));
    row->arch = copy(record->arch, strlen(record->arch));
    row->entry = copy(record->entry, strlen(record->entry));
    row->spec = copy(record->spec, strlen(record->spec));
    pthread_mutex_unlock(&store->lock);
    return QUERN_OK;
}

static void free_row(quern_record *row)
{
    free((void *)(uintptr_t)row->key);
    free((void *)(uintptr_t)row->image);
    free((void *)(uintptr_t)row->toolchain);
    free((void *)(uintptr_t)row->arch);
    free((void *)(uintptr_t)row->entry);
    free((void *)(uintptr_t)row->spec);
}

static quern_status on_remove(void *self, const quern_record *record)
{
    runtime_store *store = self;
    store->removes++;
    if (store->remove_status) return (quern_status)store->remove_status;
    if (store->lies_on_remove) return QUERN_OK;
    pthread_mutex_lock(&store->lock);
    for (size_t i = 0; i < store->rows; i++) {
        if (!is_same(&store->row[i], record)) continue;
        free_row(&store->row[i]);
        store->row[i] = store->row[--store->rows];
        break;
    }
    pthread_mutex_unlock(&store->lock);
    return QUERN_OK;
}

quern_store runtime_store_callbacks(runtime_store *store)
{
    return (quern_store){sizeof(quern_store), store, on_get, on_put, NULL, on_remove};
}

void runtime_store_fini(runtime_store *store)
{
    for (size_t i = 0; i < store->rows; i++) free_row(&store->row[i]);
    store->rows = 0;
}

void runtime_store_spoil(runtime_store *store, size_t row, const qn_text *image)
{
    quern_record *record = &store->row[row];
    assert_true(row < store->rows);
    if (!image) {
        ((unsigned char *)(uintptr_t)record->image)[record->image_bytes / 2] ^= 1;
        return;
    }
    free((void *)(uintptr_t)record->image);
    record->image = copy(image->bytes, image->length);
    record->image_bytes = image->length;
    qn_hash sum = qn_hash_bytes(image->bytes, image->length);
    memcpy(record->sum, sum.bytes, sizeof record->sum);
}
