// SPDX-License-Identifier: Apache-2.0
// Lists of specs from the command line: SPEC, @FILE with one a line, @FILE.json, a manifest {"specs": […], "arch": […]}.
// Used by warm.
#ifndef QUERN_TOOLS_SPECS_H
#define QUERN_TOOLS_SPECS_H

#include "base/text.h"

typedef struct spec_item {
    quern_any_spec spec;
    char text[512]; // canonical
} spec_item;

typedef struct spec_list {
    spec_item *item;
    size_t count, capacity;
    qn_text archs; // what manifests ask for, "sm_90a,sm_100a"; empty: they don't
} spec_list;

// Adds what an operand stands for. A bad spec's message begins with its place ("specs.txt:3: …"), and has the status of
// a bad spec; FILE_ERROR and BAD_FILE for the file itself.
quern_status spec_list_add(spec_list *list, const char *operand);
void spec_list_fini(spec_list *list);

#endif
