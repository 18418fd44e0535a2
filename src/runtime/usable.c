// SPDX-License-Identifier: Apache-2.0
// Whether a result from outside can ever be used (usable.h).
#include "runtime/usable.h"

#include <stdio.h>
#include <string.h>

#include "cuda/arch.h"
#include "ops/family.h"
#include "runtime/tuned.h"

enum { SPEC_BYTES = 1024 }; // more than a row's text may have

// Puts the field and its value before the message of what read it. Without memory nothing was judged.
static quern_status bad(quern_status status, const char *field, const char *value)
{
    if (status == QUERN_OUT_OF_MEMORY) return status;
    return qn_fail_in(QUERN_BAD_VALUE, "%s = '%.200s'", field, value);
}

static quern_status check_created(const qn_tune_row *row, int64_t now)
{
    if (row->created < 1) return qn_fail(QUERN_BAD_VALUE, "created = '0': the time of measuring is needed");
    if (row->created <= now + QN_TUNE_AHEAD_SECONDS) return QUERN_OK;
    return qn_fail(QUERN_BAD_VALUE,
                   "created = '%lld': this machine's clock says %lld; at most a day later is allowed (%lld)",
                   (long long)row->created, (long long)now, (long long)(now + QN_TUNE_AHEAD_SECONDS));
}

// What the other checks do not compare with what is known is shown to people as it is.
static quern_status check_words(const qn_tune_row *row)
{
    const char *const texts[][2] = {{"device", row->device.name}, {"library", row->library}, {"note", row->note}};
    char printable[QN_TUNE_MAX_TEXT + 1];
    for (size_t i = 0; i < QN_COUNT(texts); i++) {
        snprintf(printable, sizeof printable, "%s", texts[i][1] ? texts[i][1] : "");
        qn_make_printable(printable);
        if (texts[i][1] && strcmp(printable, texts[i][1]))
            return qn_fail(QUERN_BAD_VALUE, "%s = '%.200s': it must be UTF-8 that can be printed", texts[i][0],
                           printable);
    }
    return QUERN_OK;
}

static quern_status check_spec(const qn_tune_row *row, quern_any_spec *spec, const qn_family **family)
{
    char canonical[SPEC_BYTES];
    quern_status status = quern_spec_parse(row->spec, spec);
    if (status == QUERN_OK) status = qn_family_find(spec->base.family, family);
    if (status == QUERN_OK) status = quern_spec_format(&spec->base, canonical, sizeof canonical);
    if (status == QUERN_OK && strcmp(row->spec, canonical))
        status = qn_fail(QUERN_BAD_VALUE, "it must be in canonical form, '%s'", canonical);
    if (status == QUERN_OK && qn_spec_has_one_config(*family, &spec->base))
        status = qn_fail(QUERN_BAD_VALUE, "batch_invariant=1 has one configuration for all sizes, no results by sizes");
    return status == QUERN_OK ? QUERN_OK : bad(status, "spec", row->spec);
}

// Of a range with former borders the sizes decide: they are what is wrong when it does not hold them.
static quern_status check_bucket(const qn_tune_row *row, const qn_family *family, size_t *bucket)
{
    _Alignas(16) unsigned char sizes[256];
    qn_text allowed = QN_TEXT_INIT;
    char name[96];
    if (qn_bucket_find(family, row->bucket, row->sizes, bucket)) return QUERN_OK;
    if (qn_bucket_is_range(family, row->bucket)) {
        quern_status status = qn_sizes_read(family, row->sizes, sizes);
        if (status == QUERN_OK)
            status = qn_fail(QUERN_BAD_VALUE, "these are not of the row's range, '%s'", row->bucket);
        return bad(status, "sizes", row->sizes);
    }
    for (size_t i = 0; i < family->bucket_count; i++) {
        family->bucket_name(i, name, sizeof name);
        qn_text_putf(&allowed, "%s%s", i ? ", " : "", name);
    }
    quern_status status = qn_text_check(&allowed);
    if (status == QUERN_OK) status = qn_fail(QUERN_BAD_VALUE, "allowed are %s", qn_text_string(&allowed));
    qn_text_fini(&allowed);
    return bad(status, "bucket", row->bucket);
}

// What was timed is of the bucket that it is a result for.
static quern_status check_sizes(const qn_tune_row *row, const qn_family *family, size_t bucket)
{
    _Alignas(16) unsigned char sizes[256];
    char name[96] = "";
    quern_status status = qn_sizes_read(family, row->sizes, sizes);
    if (status == QUERN_OK && family->bucket_of(sizes) != bucket) {
        family->bucket_name(family->bucket_of(sizes), name, sizeof name);
        status = qn_fail(QUERN_BAD_VALUE, "these are of the range '%s', the row is of '%s'", name, row->bucket);
    }
    return status == QUERN_OK ? QUERN_OK : bad(status, "sizes", row->sizes);
}

// The device is one that code for the architecture runs on; no GPU is without shared memory or L2.
static quern_status check_device(const qn_tune_row *row, const qn_arch *arch)
{
    const qn_arch *targets[8];
    size_t count = qn_arch_targets(row->device.cc, targets), i = 0;
    while (i < count && targets[i] != arch) i++;
    if (i == count)
        return qn_fail(QUERN_BAD_VALUE, "cc = '%d': code for the row's arch, %s, does not run on such a device",
                       row->device.cc, arch->name);
    if (row->device.shared_bytes > 0 && row->device.l2_bytes > 0) return QUERN_OK;
    if (row->device.shared_bytes > 0) return qn_fail(QUERN_BAD_VALUE, "l2 = '0': the bytes of the L2 cache are needed");
    return qn_fail(QUERN_BAD_VALUE, "shared = '0': the bytes of an SM's shared memory are needed");
}

static quern_status check_config(const qn_tune_row *row, const qn_family *family, const quern_spec *spec,
                                 const qn_arch *arch)
{
    qn_config config, made;
    qn_text canonical = QN_TEXT_INIT;
    memset(&config, 0, sizeof config);
    quern_status status = qn_config_parse(family, row->config, &config);
    if (status == QUERN_OK) status = qn_config_check(family, spec, arch, &config);
    if (status == QUERN_OK) status = qn_config_canonical(family, spec, arch, &config, &made);
    if (status == QUERN_OK) {
        qn_config_write(family, &made, &canonical);
        status = qn_text_check(&canonical);
    }
    if (status == QUERN_OK && strcmp(row->config, qn_text_string(&canonical)))
        status = qn_fail(QUERN_BAD_VALUE, "it must be in canonical form, '%s'", qn_text_string(&canonical));
    qn_text_fini(&canonical);
    return status == QUERN_OK ? QUERN_OK : bad(status, "config", row->config);
}

static quern_status check_status(const qn_tune_row *row)
{
    static const char *const words[] = {QN_TUNE_BEST,  QN_TUNE_SLOWER, QN_TUNE_EQUAL,
                                        QN_TUNE_WRONG, QN_TUNE_FAILED, QN_TUNE_TIMEOUT};
    for (size_t i = 0; i < QN_COUNT(words); i++)
        if (!strcmp(row->status, words[i])) {
            if (i > 0 || row->ns > 0) return QUERN_OK;
            return qn_fail(QUERN_BAD_VALUE, "ns = '0': a row of the status %s has the time that it won with", words[i]);
        }
    qn_fail(QUERN_BAD_VALUE, "allowed are %s, %s, %s, %s, %s, %s", words[0], words[1], words[2], words[3], words[4],
            words[5]);
    return bad(QUERN_BAD_VALUE, "status", row->status);
}

quern_status qn_tune_usable(const qn_tune_row *row, int64_t now)
{
    quern_any_spec spec;
    const qn_family *family;
    const qn_arch *arch;
    size_t bucket = 0;
    QN_TRY(qn_tune_check(row));
    QN_TRY(check_created(row, now));
    QN_TRY(check_words(row));
    if (strcmp(row->library, qn_tuned_library())) return QUERN_OK;
    quern_status status = qn_arch_find(row->arch, &arch);
    if (status != QUERN_OK) return bad(status, "arch", row->arch);
    QN_TRY(check_device(row, arch));
    QN_TRY(check_spec(row, &spec, &family));
    QN_TRY(check_bucket(row, family, &bucket));
    QN_TRY(check_sizes(row, family, bucket));
    QN_TRY(check_config(row, family, &spec.base, arch));
    return check_status(row);
}

quern_status qn_tune_one_winner(const qn_tune_row *rows, size_t count)
{
    size_t best = 0;
    for (size_t i = 0; i < count; i++) best += !strcmp(rows[i].status, QN_TUNE_BEST);
    return best < 2 ? QUERN_OK : qn_fail(QUERN_BAD_VALUE, "%zu rows have the status %s", best, QN_TUNE_BEST);
}

quern_status qn_tune_problem_usable(const qn_tune_row *rows, size_t count, int64_t now)
{
    for (size_t i = 0; i < count; i++) QN_TRY(qn_tune_usable(&rows[i], now));
    return qn_tune_one_winner(rows, count);
}
