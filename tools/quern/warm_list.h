// SPDX-License-Identifier: Apache-2.0
// What warm is to compile: specs, lists, logs and models' configurations, with the sizes of the command line.
#ifndef QUERN_TOOLS_WARM_LIST_H
#define QUERN_TOOLS_WARM_LIST_H

#include "command.h"
#include "specs.h"

typedef struct warm_sources { // of specs, beside the operands
    command_strings logs, models;
    model_options model;
    command_sizes sizes; // --rows 1..64: for every spec whose family has the size, in place of a list's own range
} warm_sources;

// Every spec of the operands argv[1 …] and the sources, narrowed to the sizes.
quern_status warm_list_read(const warm_sources *from, int argc, char **argv, spec_list *list);
// Gives every spec its architectures and makes one of equal entries. arch: the command line's, in place of what manifests
// and logs say. Without it, a spec of theirs keeps theirs, and any other is for the devices present, if has_archs: a list
// that is only printed needs none. false: *exit_status says why.
bool warm_list_choose(spec_list *list, const char *arch, bool has_archs, int *exit_status);
// What the lists left out, for people.
void warm_list_notes(const spec_list *list);

#endif
