// SPDX-License-Identifier: Apache-2.0
// The source text of a kernel: prologue, then template. Called by runtime (compile, key), tools and the model.
//   (1) The same plan and templates give the same bytes, on every machine, in every locale.
//   (2) Only integers and checked names go into the prologue: no text of a caller's reaches the compiler.
#include "codegen/source.h"

#include <limits.h>
#include <string.h>

#include "codegen/template.h"

void qn_plan_constant(qn_kernel_plan *plan, const char *name, int64_t value)
{
    // One too many is counted, not kept: qn_source_write refuses the plan.
    if (plan->constant_count < QN_MAX_CONSTANTS) plan->constants[plan->constant_count] = (qn_constant){name, value};
    plan->constant_count++;
}

// ---- checks

static bool is_word(const char *name, const char *first, const char *rest, size_t most)
{
    if (!name || !*name || !strchr(first, *name)) return false;
    return strlen(name) < most && !name[strspn(name, rest)];
}

#define CAPITALS "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
#define SMALL    "abcdefghijklmnopqrstuvwxyz"
#define DIGITS   "0123456789"

static const char *const own_names[] = {"THREADS", "MIN_CTAS", "CLUSTER", "SHARED_BYTES"};

static quern_status check_constant(const qn_kernel_plan *plan, size_t at)
{
    const char *name = plan->constants[at].name;
    bool taken = false;

    if (!is_word(name, CAPITALS, CAPITALS DIGITS "_", 64) || !strncmp(name, "QN_", 3)) {
        return qn_fail(QUERN_INTERNAL, "kernel %s: constant '%s' is not a name in capitals", plan->entry,
                       name ? name : "");
    }
    for (size_t i = 0; i < QN_COUNT(own_names); i++) taken |= !strcmp(name, own_names[i]);
    for (size_t i = 0; i < at; i++) taken |= !strcmp(name, plan->constants[i].name);
    return taken ? qn_fail(QUERN_INTERNAL, "kernel %s: constant %s is given twice", plan->entry, name) : QUERN_OK;
}

static quern_status check(const qn_kernel_plan *plan, int cc, char suffix)
{
    if (!memchr(plan->entry, 0, sizeof plan->entry) ||
        !is_word(plan->entry, CAPITALS SMALL "_", CAPITALS SMALL DIGITS "_", QN_MAX_ENTRY)) {
        return qn_fail(QUERN_INTERNAL, "entry '%.*s' is not a C name of at most %d letters", QN_MAX_ENTRY - 1,
                       plan->entry, QN_MAX_ENTRY - 1);
    }
    if (plan->constant_count > QN_MAX_CONSTANTS) {
        return qn_fail(QUERN_INTERNAL, "kernel %s: %zu constants, room for %d", plan->entry, plan->constant_count,
                       QN_MAX_CONSTANTS);
    }
    if (!plan->template_path) return qn_fail(QUERN_INTERNAL, "kernel %s: no template", plan->entry);
    if (cc < 10 || cc > 999 || (suffix && suffix != 'a' && suffix != 'f')) {
        return qn_fail(QUERN_INTERNAL, "kernel %s: architecture %d, suffix %d", plan->entry, cc, suffix);
    }
    for (size_t i = 0; i < plan->constant_count; i++) QN_TRY(check_constant(plan, i));
    return QUERN_OK;
}

// ---- the prologue

static void put_constant(qn_text *text, const char *name, int64_t value)
{
    if (value >= INT_MIN && value <= INT_MAX)
        qn_text_putf(text, "constexpr int %s = %d;\n", name, (int)value);
    else if (value == INT64_MIN)
        qn_text_putf(text, "constexpr long long %s = -%lldLL - 1;\n", name, (long long)INT64_MAX);
    else
        qn_text_putf(text, "constexpr long long %s = %lldLL;\n", name, (long long)value);
}

static void put_prologue(qn_text *text, const qn_kernel_plan *plan, int cc, char suffix)
{
    qn_text_putf(text, "// %s: made by Quern from %s\n", plan->entry, plan->template_path);
    qn_text_putf(text, "#define QN_ENTRY %s\n#define QN_ARCH %d\n", plan->entry, cc);
    if (suffix)
        qn_text_putf(text, "#define QN_ARCH_SUFFIX '%c'\n", suffix);
    else
        qn_text_puts(text, "#define QN_ARCH_SUFFIX 0\n");
    put_constant(text, "THREADS", plan->threads);
    put_constant(text, "MIN_CTAS", plan->min_ctas);
    put_constant(text, "CLUSTER", plan->cluster);
    put_constant(text, "SHARED_BYTES", plan->dynamic_shared);
    for (size_t i = 0; i < plan->constant_count; i++)
        put_constant(text, plan->constants[i].name, plan->constants[i].value);
}

quern_status qn_source_append(const qn_kernel_plan *plan, int cc, char suffix, const char *template_dir, bool line_info,
                              qn_text *text)
{
    QN_TRY(check(plan, cc, suffix));
    put_prologue(text, plan, cc, suffix);
    QN_TRY(qn_template_expand(plan->template_path, template_dir, line_info, text));
    return qn_text_check(text);
}

quern_status qn_source_write(const qn_kernel_plan *plan, int cc, char suffix, const char *template_dir, bool line_info,
                             qn_text *source)
{
    qn_text text = QN_TEXT_INIT;
    quern_status status = qn_source_append(plan, cc, suffix, template_dir, line_info, &text);
    if (status != QUERN_OK) {
        qn_text_fini(&text);
        return status;
    }
    qn_text_fini(source);
    *source = text;
    return QUERN_OK;
}
