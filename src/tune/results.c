// SPDX-License-Identifier: Apache-2.0
// Rows of the tuning table from a search (results.h).
#include "tune/results.h"

#include <stdio.h>
#include <string.h>

#include "runtime/tuned.h"

// Messages may have several lines; a note is one, and a cut one ends with a whole character.
static void clean(const char *note, char *out, size_t bytes)
{
    size_t length = (size_t)snprintf(out, bytes, "%s", note);
    if (length + 1 >= bytes)
        for (length = bytes - 1; length && (out[length - 1] & 0x80); length--) out[length - 1] = 0;
    for (char *c = out; *c; c++)
        if ((unsigned char)*c < 0x20 || *c == 0x7F) *c = ' ';
}

static quern_status add_trial(const qn_trial *trial, const qn_space *space, qn_tune_row *row, qn_tune_list *rows)
{
    char note[sizeof trial->note];
    qn_text config = QN_TEXT_INIT;
    clean(trial->note, note, sizeof note);
    qn_config_write(space->family, &trial->config, &config);
    quern_status status = qn_text_check(&config);
    row->config = qn_text_string(&config);
    row->status = trial->status;
    row->note = note;
    row->ns = trial->repeats ? 1e3 * trial->timing.median_us : 0;
    row->spread_ns = trial->repeats ? 1e3 * (trial->timing.high_us - trial->timing.low_us) : 0;
    if (status == QUERN_OK) status = qn_tune_list_add(rows, row);
    qn_text_fini(&config);
    return status;
}

quern_status qn_tune_results(const qn_search *search, const qn_space *space, const qn_tune_device *device,
                             const char *sizes_text, int64_t created, qn_tune_list *rows)
{
    char spec[512], bucket[96] = "";
    QN_TRY(quern_spec_format(space->spec, spec, sizeof spec));
    space->family->bucket_name(space->bucket, bucket, sizeof bucket);
    qn_tune_row row = {.device = *device,
                       .library = qn_tuned_library(),
                       .arch = space->arch->name,
                       .spec = spec,
                       .bucket = bucket,
                       .sizes = sizes_text,
                       .created = created};
    for (size_t i = 0; i < search->count; i++)
        if (search->trial[i].status) QN_TRY(add_trial(&search->trial[i], space, &row, rows));
    return QUERN_OK;
}
