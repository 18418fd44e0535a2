// SPDX-License-Identifier: Apache-2.0
// A template with its includes put in place: used by source.c.
#ifndef QN_CODEGEN_TEMPLATE_H
#define QN_CODEGEN_TEMPLATE_H

#include "codegen/source.h"

// Puts a template's text, its quoted includes in place, each file once. template_dir NULL: the embedded ones.
quern_status qn_template_expand(const char *path, const char *template_dir, bool line_info, qn_text *text);

#endif
