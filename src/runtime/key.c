// SPDX-License-Identifier: Apache-2.0
// What makes a kernel: its text, the compiler's options, and the key, which is all of it and nothing else. Not in the key:
// driver, device index, paths, times, the compiler's own version (a column of the row), the spec's text.
#include <stdio.h>
#include <string.h>

#include "runtime/private.h"

quern_status qn_kernel_source(quern *q, const qn_kernel_plan *plan, const qn_arch *arch, qn_text *source)
{
    return qn_source_write(plan, arch->cc, arch->suffix, q->template_dir, q->line_info, source);
}

bool qn_is_line_info(const char *option)
{
    return !strcmp(option, "-lineinfo") || !strcmp(option, "--generate-line-info");
}

// Quern's own kernels: no include path, no fused multiply-add but where the text says so, so that results are the text's
// alone. A caller's source has NVRTC's defaults and the caller's options.
void qn_compile_options(const quern *q, const qn_arch *arch, const qn_extras *extras, qn_options *options)
{
    size_t n = 0;
    snprintf(options->arch, sizeof options->arch, "--gpu-architecture=%s", arch->name);
    options->item[n++] = options->arch;
    if (!extras) {
        options->item[n++] = "--std=c++17";
        options->item[n++] = "--fmad=false";
    }
    if (q->line_info) options->item[n++] = "-lineinfo";
    for (size_t i = 0; extras && i < extras->option_count && n < QN_MAX_OPTIONS; i++) {
        const char *option = extras->options[i];
        if (!q->line_info || !qn_is_line_info(option)) options->item[n++] = option; // NVRTC takes it once
    }
    options->count = n;
}

static bool has_line_info(const qn_options *options)
{
    for (size_t i = 0; i < options->count; i++)
        if (qn_is_line_info(options->item[i])) return true;
    return false;
}

// The folders that the caller's digest speaks for: the same content in another place is the same kernel. Line
// information has their names in it.
static bool is_left_out(const qn_extras *extras, const qn_options *options, const char *option)
{
    static const char long_form[] = "--include-path=";
    if (!extras || !extras->digest_bytes || has_line_info(options)) return false;
    return !strncmp(option, "-I", 2) || !strncmp(option, long_form, sizeof long_form - 1);
}

// All but the source, which comes last.
static void put_head(const quern *q, const char *entry, const qn_arch *arch, const qn_extras *extras, qn_text *key)
{
    qn_options options;
    qn_compile_options(q, arch, extras, &options);
    qn_key_put_int(key, QN_KEY_TAG_VERSION, QN_KEY_VERSION);
    qn_key_put_int(key, QN_KEY_TAG_GENERATOR, QN_GENERATOR_VERSION);
    qn_key_put_string(key, QN_KEY_TAG_ARCH, arch->name);
    qn_key_put_int(key, QN_KEY_TAG_KIND, QN_KIND_CUBIN);
    qn_key_put_string(key, QN_KEY_TAG_ENTRY, entry);
    for (size_t i = 0; i < options.count; i++)
        if (!is_left_out(extras, &options, options.item[i])) qn_key_put_string(key, QN_KEY_TAG_OPTION, options.item[i]);
    for (size_t i = 0; extras && i < extras->header_count; i++) {
        qn_key_put_string(key, QN_KEY_TAG_HEADER, extras->header_names[i]);
        qn_key_put_string(key, QN_KEY_TAG_HEADER_TEXT, extras->header_texts[i]);
    }
    if (extras && extras->digest_bytes) qn_key_put_bytes(key, QN_KEY_TAG_DIGEST, extras->digest, extras->digest_bytes);
}

// The source is written into the key, and is read there.
quern_status qn_work_key(const quern *q, qn_work *work, const qn_kernel_plan *plan, const char *source)
{
    qn_text *key = &work->key;
    put_head(q, work->entry_name, work->arch, work->extras, key);
    size_t start = qn_key_begin(key, QN_KEY_TAG_SOURCE);
    if (plan)
        QN_TRY(qn_source_append(plan, work->arch->cc, work->arch->suffix, q->template_dir, q->line_info, key));
    else
        qn_text_puts(key, source);
    qn_key_end(key, start);
    QN_TRY(qn_text_check(key));
    work->source = key->bytes + start;
    work->source_bytes = key->length - start;
    work->hash = qn_hash_bytes(key->bytes, key->length);
    return QUERN_OK;
}

quern_status qn_kernel_key(quern *q, const char *source, const char *entry, const qn_arch *arch, qn_text *key)
{
    put_head(q, entry, arch, NULL, key);
    qn_key_put_string(key, QN_KEY_TAG_SOURCE, source);
    return qn_text_check(key);
}
