// SPDX-License-Identifier: Apache-2.0
// Source text of one kernel: a prologue of constants, then the template with its quoted includes put in place, once
// each. The text is complete: NVRTC is given no headers and no include path, and the text is in the key.
#ifndef QN_CODEGEN_SOURCE_H
#define QN_CODEGEN_SOURCE_H

#include "base/text.h"

typedef struct qn_constant {
    const char *name; // capitals: V, K, LOCAL_K
    int64_t value;    // written as constexpr int (long long beyond its range)
} qn_constant;

enum { QN_MAX_CONSTANTS = 64, QN_MAX_ENTRY = 96 };

// One kernel of a plan: everything that makes its text and its launch shape. Filled by ops/<family>.c.
typedef struct qn_kernel_plan {
    const char *template_path; // "softmax_topk/cluster.cu", below kernel_templates/
    char entry[QN_MAX_ENTRY];  // the symbol: family and shape words; [a-zA-Z0-9_] only
    qn_constant constants[QN_MAX_CONSTANTS];
    size_t constant_count;
    int threads;  // a CTA
    int min_ctas; // an SM: __launch_bounds__(threads, min_ctas); the register cap that tests assert follows from it
    int cluster;  // CTAs a cluster; 1 = none
    int dynamic_shared;        // bytes
    size_t params_bytes;       // the one parameter, a structure by value
    const char *serves;        // for people: what of the sizes' launches this kernel does; NULL: all there is to do
    const char *serves_beyond; // the same from the bucket `beyond` on, where that differs; NULL: it does not
    size_t beyond;
    bool overlaps; // the launch may begin while the stage before it runs, for which the kernel waits (sm_90)
} qn_kernel_plan;

// Adds a constant; the name must outlive the plan.
void qn_plan_constant(qn_kernel_plan *plan, const char *name, int64_t value);

// Writes the text, in place of what source held. template_dir replaces the embedded templates when not NULL. The
// prologue also has the constants THREADS, MIN_CTAS, CLUSTER, SHARED_BYTES, and the macros QN_ARCH (90 …), QN_ARCH_SUFFIX
// ('a' …, or 0), which #if can test, and QN_ENTRY (the symbol). An include is found beside the including file or below
// the root. line_info: absolute #line directives under the virtual root "/quern/". BAD_TEMPLATE names the file.
quern_status qn_source_write(const qn_kernel_plan *plan, int cc, char suffix, const char *template_dir, bool line_info,
                             qn_text *source);
// The same behind what text holds. After a failure it holds part of it.
quern_status qn_source_append(const qn_kernel_plan *plan, int cc, char suffix, const char *template_dir, bool line_info,
                              qn_text *text);

// The embedded templates, made at build time: every file below kernel_templates/ but model/ and ANALYSIS.md.
typedef struct qn_template {
    const char *path;
    const char *bytes;
    size_t length;
} qn_template;
extern const qn_template qn_templates[];
extern const size_t qn_template_count;

#endif
