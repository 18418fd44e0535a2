// SPDX-License-Identifier: Apache-2.0
// Which tuning result serves a bucket of sizes (tuned.h).
#include "runtime/tuned.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/private.h"

// The generator's version too: with it the same configuration means another kernel.
#define TEXT_OF(number) #number
#define TEXT(macro)     TEXT_OF(macro)
const char *qn_tuned_library(void)
{
    return TEXT(QUERN_VERSION_MAJOR) "." TEXT(QUERN_VERSION_MINOR) "." TEXT(QUERN_VERSION_PATCH) "-" TEXT(
        QN_GENERATOR_VERSION);
}

const char *qn_tuned_word(qn_tuned_level level)
{
    switch (level) {
    case QN_TUNED_DEVICE:
        return "tuned (this device)";
    case QN_TUNED_SM_COUNT:
        return "tuned (same architecture and SM count)";
    case QN_TUNED_ARCH:
        return "tuned (same architecture)";
    case QN_TUNED_HEURISTIC:
        return "heuristic";
    default:
        return "built-in table";
    }
}

// ---- devices

// Shared memory and L2 are there to tell devices apart: one that does not say them has 0.
quern_status qn_fingerprint_read(const qn_driver *driver, CUdevice device, qn_fingerprint *fingerprint)
{
    static const CUdevice_attribute attributes[] = {
        CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR,
        CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR,
        CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE};
    int value[QN_COUNT(attributes)] = {0}, version = 0;
    CUresult result = CUDA_SUCCESS;
    for (size_t i = 0; i < QN_COUNT(attributes) && result == CUDA_SUCCESS; i++)
        result = driver->cuDeviceGetAttribute(&value[i], attributes[i], device);
    if (result != CUDA_SUCCESS) return qn_driver_fail(driver, QUERN_DRIVER_ERROR, "cuDeviceGetAttribute", result);
    result = driver->cuDriverGetVersion(&version);
    if (result != CUDA_SUCCESS) return qn_driver_fail(driver, QUERN_DRIVER_ERROR, "cuDriverGetVersion", result);
    memset(fingerprint, 0, sizeof *fingerprint);
    driver->cuDeviceGetName(fingerprint->name, sizeof fingerprint->name - 1, device);
    fingerprint->numbers =
        (qn_tune_device){NULL, 10 * value[0] + value[1], value[2], value[3], value[4], version / 1000};
    return QUERN_OK;
}

qn_tune_device qn_fingerprint_device(const qn_fingerprint *fingerprint)
{
    qn_tune_device device = fingerprint->numbers;
    device.name = fingerprint->name;
    return device;
}

// ---- the tables

void qn_tuned_read(quern *q, const char *spec_text, qn_tuned *tuned)
{
    *tuned = (qn_tuned){.list = QN_TUNE_LIST_INIT, .spec = spec_text, .library = qn_tuned_library()};
    if (q->tuning == QUERN_TUNING_OFF) return;
    tuned->built_in = qn_tuned_built_in, tuned->built_in_count = qn_tuned_built_in_count;
    qn_process *process = qn_process_of(q);
    if (process) qn_stores_tuned(q, process, spec_text, &tuned->list);
}

void qn_tuned_fini(qn_tuned *tuned)
{
    qn_tune_list_fini(&tuned->list);
}

bool qn_tuned_is_current(const qn_tune_row *row, const char *library, const qn_tune_device *device, const char **why)
{
    *why = "";
    if (strcmp(row->library, library))
        *why = "another version of Quern";
    else if (device && row->device.driver != device->driver)
        *why = "another major version of the driver";
    return !**why;
}

// ---- the order

// A result's place; smaller comes first.
typedef struct place {
    int level;
    int64_t created; // the newer first
    size_t index;
} place;

static bool is_before(const place *a, const place *b)
{
    if (a->level != b->level) return a->level < b->level;
    if (a->created != b->created) return a->created > b->created;
    return a->index < b->index;
}

static const qn_tune_row *row_at(const qn_tuned *tuned, size_t index)
{
    return index < tuned->list.count ? &tuned->list.row[index] : &tuned->built_in[index - tuned->list.count];
}

static size_t row_count(const qn_tuned *tuned)
{
    return tuned->list.count + tuned->built_in_count;
}

// A winner of this spec, architecture and bucket; of a database: current.
static bool is_candidate(const qn_tuned *tuned, size_t index, const qn_tune_device *device, const qn_arch *arch,
                         const char *bucket)
{
    const qn_tune_row *row = row_at(tuned, index);
    const char *why;
    return !strcmp(row->spec, tuned->spec) && !strcmp(row->arch, arch->name) && !strcmp(row->bucket, bucket) &&
           !strcmp(row->status, QN_TUNE_BEST) &&
           (index >= tuned->list.count || qn_tuned_is_current(row, tuned->library, device, &why));
}

static int sm_count_of(const qn_tuned_view *view, const qn_arch *arch)
{
    return view->device ? view->device->sm_count : arch->sm_count;
}

static place place_of(const qn_tuned_view *view, size_t index, const qn_arch *arch)
{
    const qn_tune_row *row = row_at(view->tuned, index);
    int sm_count = sm_count_of(view, arch);
    bool same = view->device && qn_tune_same_device(&row->device, view->device);
    int level = same ? QN_TUNED_DEVICE : row->device.sm_count == sm_count ? QN_TUNED_SM_COUNT : QN_TUNED_ARCH;
    if (index >= view->tuned->list.count) level += QN_TUNED_BUILT_IN;
    return (place){level, row->created, index};
}

// The first candidate after a place; false: there is none.
static bool next_place(const qn_tuned_view *view, const qn_arch *arch, const char *bucket, const place *after,
                       place *next)
{
    bool found = false;
    for (size_t i = view->own ? view->tuned->list.count : 0; i < row_count(view->tuned); i++) {
        if (!is_candidate(view->tuned, i, view->device, arch, bucket)) continue;
        place here = place_of(view, i, arch);
        if ((after && !is_before(after, &here)) || (found && !is_before(&here, next))) continue;
        *next = here;
        found = true;
    }
    return found;
}

// The configuration of a row, if this library can still make its plan.
static bool read_config(const qn_family *family, const quern_spec *spec, const qn_arch *arch, const qn_tune_row *row,
                        qn_config *config)
{
    qn_message_mark mark;
    qn_config made;
    memset(&made, 0, sizeof made);
    qn_message_save(&mark);
    bool usable = qn_config_parse(family, row->config, &made) == QUERN_OK &&
                  qn_config_check(family, spec, arch, &made) == QUERN_OK;
    qn_message_restore(&mark);
    if (usable) *config = made;
    return usable;
}

// Whether a winner of another device can be what it was there. What it would be made into was not timed anywhere.
static bool is_as_timed(const qn_family *family, const quern_spec *spec, size_t bucket, const qn_tune_row *row,
                        int sm_count, const qn_config *config)
{
    qn_config made = *config;
    return !family->fit || row->device.sm_count == sm_count || !family->fit(spec, bucket, sm_count, &made);
}

qn_tuned_level qn_tuned_choose(const qn_tuned_view *view, const qn_family *family, const quern_spec *spec,
                               const qn_arch *arch, size_t bucket, qn_config *config)
{
    char name[96] = "";
    place at, last;
    family->bucket_name(bucket, name, sizeof name);
    bool found = view->tuned && !qn_spec_has_one_config(family, spec) && next_place(view, arch, name, NULL, &at);
    while (found) {
        const qn_tune_row *row = row_at(view->tuned, at.index);
        if (read_config(family, spec, arch, row, config) &&
            is_as_timed(family, spec, bucket, row, sm_count_of(view, arch), config))
            return (qn_tuned_level)at.level;
        last = at;
        found = next_place(view, arch, name, &last, &at);
    }
    qn_config_choose(family, spec, arch, sm_count_of(view, arch), bucket, config);
    return QN_TUNED_HEURISTIC;
}

// ---- every choice

typedef struct gathering {
    const qn_config *known;
    qn_config *configs;
    size_t known_count, count, capacity;
} gathering;

static bool is_in(const qn_config *list, size_t count, const qn_config *config)
{
    for (size_t i = 0; i < count; i++)
        if (!memcmp(&list[i], config, sizeof *config)) return true;
    return false;
}

static quern_status gather(gathering *g, const qn_config *config)
{
    if (is_in(g->known, g->known_count, config) || is_in(g->configs, g->count, config)) return QUERN_OK;
    if (g->count == g->capacity) {
        g->capacity = g->capacity ? 2 * g->capacity : 32;
        qn_config *more = realloc(g->configs, g->capacity * sizeof *more);
        if (!more) return qn_fail(QUERN_OUT_OF_MEMORY, "out of memory: planning a spec");
        g->configs = more;
    }
    g->configs[g->count++] = *config;
    return QUERN_OK;
}

static quern_status gather_all(gathering *g, const qn_tuned_view *view, const qn_family *family, const quern_spec *spec,
                               const qn_arch *arch)
{
    const qn_tuned *tuned = view->tuned;
    const qn_tuned_view own = {.tuned = tuned, .own = true};
    qn_config config;
    char name[96];
    for (size_t bucket = 0; bucket < family->bucket_count; bucket++) {
        if (view->buckets && !(view->buckets >> bucket & 1)) continue;
        family->bucket_name(bucket, name, sizeof name);
        for (size_t i = 0; i < row_count(tuned) && !qn_spec_has_one_config(family, spec); i++) {
            if (!is_candidate(tuned, i, NULL, arch, name)) continue;
            if (read_config(family, spec, arch, row_at(tuned, i), &config)) QN_TRY(gather(g, &config));
        }
        qn_tuned_choose(&own, family, spec, arch, bucket, &config);
        QN_TRY(gather(g, &config));
    }
    return QUERN_OK;
}

quern_status qn_tuned_others(const qn_tuned_view *view, const qn_family *family, const quern_spec *spec,
                             const qn_arch *arch, const qn_config *known, size_t known_count, qn_config **configs,
                             size_t *count)
{
    gathering g = {.known = known, .known_count = known_count};
    quern_status status = gather_all(&g, view, family, spec, arch);
    if (status != QUERN_OK) {
        free(g.configs);
        return status;
    }
    *configs = g.configs, *count = g.count;
    return QUERN_OK;
}
