// SPDX-License-Identifier: Apache-2.0
// `quern bench`: which bench, and what they share (bench.h).
#include "bench.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/nearest.h"
#include "base/path.h"
#include "cuda/nvrtc.h"
#include "ops/family.h"
#include "output.h"

static const struct {
    const char *name;
    int (*run)(int argc, char **argv);
} benches[] = {
    {"softmax_topk", bench_softmax_topk}, {"gate", bench_gate},
    {"attention", bench_attention},       {"router", bench_router},
    {"indexer", bench_indexer},           {"runtime", bench_runtime},
    {"first-launch", bench_first_launch},
};

static const char text[] =
    "softmax_topk   time a call on a GPU, beside a plain read of the same bytes\n"
    "gate           time a call on a GPU\n"
    "attention      time a call on a GPU\n"
    "router         time a call on a GPU\n"
    "indexer        time a call on a GPU\n"
    "runtime        what the library itself costs: look-up, launch, first launch of a process, compile times\n"
    "first-launch   one sample of runtime's first launch, in this process\n"
    "'quern bench NAME --help' lists the options of each.\n";

static int unknown_bench(const char *word)
{
    qn_nearest nearest;
    qn_nearest_init(&nearest, word, strlen(word));
    for (size_t i = 0; i < QN_COUNT(benches); i++) qn_nearest_offer(&nearest, benches[i].name);
    return command_usage(
        "there is no bench '%s'%s: softmax_topk, gate, attention, router, indexer, runtime and first-launch are known",
        word, qn_nearest_hint(&nearest));
}

int command_bench(int argc, char **argv)
{
    const command_option options[] = {COMMAND_OPTION_END};
    const command_syntax syntax = {
        "quern bench softmax_topk|gate|attention|router|indexer|runtime|first-launch [options]", text, options};
    int exit_status;
    for (size_t i = 0; i < QN_COUNT(benches); i++)
        if (argc > 1 && strcmp(argv[1], benches[i].name) == 0) return benches[i].run(argc - 1, argv + 1);
    if (!command_parse(&syntax, &argc, argv, &exit_status)) return exit_status;
    if (argc < 2)
        return command_usage(
            "which bench? softmax_topk, gate, attention, router, indexer, runtime and first-launch are known");
    return unknown_bench(argv[1]);
}

quern_status bench_check_spec(const char *spec_text, const char *family, const char *config_text)
{
    quern_any_spec spec;
    const qn_family *found;
    qn_config config;
    QN_TRY(quern_spec_parse(spec_text, &spec));
    if (family && strcmp(spec.base.family, family) != 0)
        return qn_fail(QUERN_BAD_VALUE, "'%s' is not a spec of the family %s", spec_text, family);
    QN_TRY(qn_family_find(spec.base.family, &found));
    return config_text ? qn_config_parse(found, config_text, &config) : QUERN_OK;
}

quern_status bench_open(const command_settings *settings, int ordinal, int repeats, bench *out)
{
    bench b = {.repeats = repeats};
    quern_status status = device_open(ordinal, &b.device);
    if (status != QUERN_OK) return qn_fail_in(status, "this bench needs a GPU");
    status = command_open(settings, &b.q);
    if (status == QUERN_OK)
        status = device_check(&b.device, "cuStreamCreate",
                              b.device.driver->cuStreamCreate(&b.stream, CU_STREAM_NON_BLOCKING));
    if (status == QUERN_OK)
        *out = b;
    else
        bench_close(&b);
    return status;
}

void bench_close(bench *b)
{
    if (b->stream) (void)b->device.driver->cuStreamDestroy(b->stream);
    quern_close(b->q);
    if (b->device.driver) device_close(&b->device);
}

quern_status bench_allocate(const bench *b, size_t bytes, CUdeviceptr *address)
{
    CUresult result = b->device.driver->cuMemAlloc(address, bytes ? bytes : 1);
    if (result == CUDA_ERROR_OUT_OF_MEMORY)
        return qn_fail(QUERN_DRIVER_ERROR, "%s has no room for %zu bytes", b->device.name, bytes);
    return device_check(&b->device, "cuMemAlloc", result);
}

// ---- the head of a report

static void date_text(char *out, size_t bytes)
{
    time_t now = time(NULL);
    struct tm utc;
    gmtime_r(&now, &utc);
    strftime(out, bytes, "%Y-%m-%dT%H:%M:%SZ", &utc);
}

// 13000 → "13.0": the CUDA version that the driver serves.
static void version_text(int version, char *out, size_t bytes)
{
    snprintf(out, bytes, "%d.%d", version / 1000, version % 1000 / 10);
}

// The kernel driver's own version, "580.159.04"; false where the system does not tell.
static bool driver_text(char *out, size_t bytes)
{
    qn_text content = QN_TEXT_INIT;
    bool found = qn_file_read("/sys/module/nvidia/version", &content) == QUERN_OK;
    if (found) snprintf(out, bytes, "%.*s", (int)strcspn(qn_text_string(&content), "\n"), qn_text_string(&content));
    qn_text_fini(&content);
    return found && *out;
}

static void add_software(cJSON *document)
{
    char driver[64] = "";
    const qn_nvrtc *nvrtc;
    if (qn_nvrtc_load(qn_environment("QUERN_NVRTC", false), false, &nvrtc) == QUERN_OK)
        cJSON_AddStringToObject(document, "nvrtc", nvrtc->identity);
    if (driver_text(driver, sizeof driver)) cJSON_AddStringToObject(document, "driver", driver);
}

cJSON *bench_document(const char *name, const device *d)
{
    char date[32], version[16];
    cJSON *document = cJSON_CreateObject();
    date_text(date, sizeof date);
    cJSON_AddStringToObject(document, "bench", name);
    cJSON_AddStringToObject(document, "quern", quern_version());
    cJSON_AddStringToObject(document, "date", date);
    add_software(document);
    if (!d) return document;
    version_text(d->driver_version, version, sizeof version);
    cJSON_AddStringToObject(document, "device", d->name);
    cJSON_AddNumberToObject(document, "compute_capability", d->cc);
    cJSON_AddNumberToObject(document, "sm_count", d->sm_count);
    cJSON_AddNumberToObject(document, "l2_bytes", (double)d->l2_bytes);
    cJSON_AddStringToObject(document, "driver_cuda", version);
    return document;
}

void bench_print_head(const char *name, const device *d)
{
    char date[32], version[16];
    date_text(date, sizeof date);
    printf("%s, quern %s, %s\n", name, quern_version(), date);
    if (!d) return;
    version_text(d->driver_version, version, sizeof version);
    printf("%s, %d SMs, L2 %lld MiB, driver for CUDA %s\n", d->name, d->sm_count, (long long)(d->l2_bytes >> 20),
           version);
}

cJSON *bench_table_document(const char *name, const bench *b, const bench_peers *peers, const table *t, bool complete)
{
    cJSON *document = bench_document(name, &b->device);
    cJSON_AddNumberToObject(document, "repeats", b->repeats);
    cJSON_AddBoolToObject(document, "complete", complete);
    if (peers) cJSON_AddItemToObject(document, "peers", cJSON_Duplicate(bench_peers_hello(peers), true));
    cJSON_AddItemToObject(document, "rows", table_json(t));
    return document;
}

static quern_status write_file(const cJSON *document, const char *file)
{
    qn_text whole = QN_TEXT_INIT;
    char *content = cJSON_Print(document);
    qn_text_putf(&whole, "%s\n", content ? content : "");
    quern_status status = content ? qn_text_check(&whole) : qn_fail(QUERN_OUT_OF_MEMORY, "out of memory");
    if (status == QUERN_OK) status = output_text(file, whole.bytes, whole.length);
    qn_text_fini(&whole);
    cJSON_free(content);
    return status == QUERN_OK ? QUERN_OK : qn_fail_in(status, "--out");
}

quern_status bench_write(const cJSON *document, const char *file, bool complete)
{
    char partial[4096];
    if (!file) return QUERN_OK;
    if (snprintf(partial, sizeof partial, "%s.partial", file) >= (int)sizeof partial)
        return qn_fail(QUERN_FILE_ERROR, "--out: the name has more than %zu bytes", sizeof partial - sizeof ".partial");
    if (!complete) {
        quern_status status = output_check(file);
        if (status != QUERN_OK) return qn_fail_in(status, "--out");
        return output_is_stream(file) ? QUERN_OK : write_file(document, partial);
    }
    QN_TRY(write_file(document, file));
    if (!output_is_stream(file)) (void)unlink(partial);
    return QUERN_OK;
}

quern_status bench_table_write(const char *name, const bench *b, const bench_peers *peers, const table *t,
                               const char *file, bool complete)
{
    if (!file) return QUERN_OK;
    cJSON *document = bench_table_document(name, b, peers, t, complete);
    quern_status status = bench_write(document, file, complete);
    cJSON_Delete(document);
    return status;
}

// ---- times

double bench_rounded(double value)
{
    if (!isfinite(value) || value == 0) return value;
    double unit = pow(10, floor(log10(fabs(value))) - 4);
    return unit < 1 ? round(value / unit) / round(1 / unit) : round(value / unit) * unit;
}

cJSON *bench_timing_json(const qn_timing *timing, size_t bytes)
{
    cJSON *json = cJSON_CreateObject();
    cJSON_AddNumberToObject(json, "us_median", bench_rounded(timing->median_us));
    cJSON_AddNumberToObject(json, "us_p10", bench_rounded(timing->low_us));
    cJSON_AddNumberToObject(json, "us_p90", bench_rounded(timing->high_us));
    cJSON_AddNumberToObject(json, "gb_per_s", bench_rounded((double)bytes / timing->median_us * 1e-3));
    return json;
}
