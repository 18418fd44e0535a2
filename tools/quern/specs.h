// SPDX-License-Identifier: Apache-2.0
// Lists of specs from the command line: SPEC or SPEC [rows 1..64], @FILE with one a line, a log of $QUERN_LOG as @FILE or
// --from-log FILE, @FILE.json, a manifest, and --from config.json, a model's published configuration. Used by warm and tune.
//
//   specs.c         one spec a line, ranges of sizes
//   spec_log.c      logs
//   manifest.c      manifests
//   model_config.c  what serving a model needs
#ifndef QUERN_TOOLS_SPECS_H
#define QUERN_TOOLS_SPECS_H

#include <cjson/cJSON.h>

#include "base/text.h"
#include "command.h"
#include "ops/family.h"

typedef struct spec_item {
    quern_any_spec spec;
    char text[512]; // canonical
    const qn_family *family;
    uint32_t
        narrowed; // bit i: size i of the family has a range. 0: all sizes; else only from … to, both structures of the
                  // family's
    char range[320];     // "rows 1..64"; "" without
    command_archs archs; // its manifest's or log's; none: they don't say
    _Alignas(16) unsigned char from[128], to[128];
} spec_item;

typedef struct spec_list {
    spec_item *item;
    size_t count, capacity;
    size_t passed_over; // lines of a log whose spec is none of a family
    qn_text notes;      // one a line: what a model needs and this build does not have
    bool in_file;       // what failed is a file's content
} spec_list;
#define SPEC_LIST_INIT                                                                                                 \
    {                                                                                                                  \
        NULL, 0, 0, 0, QN_TEXT_INIT, false                                                                             \
    }

// Adds what an operand stands for. A bad spec's message begins with its place ("specs.txt:3: …"), and has the status of
// a bad spec; FILE_ERROR and BAD_FILE for the file itself.
quern_status spec_list_add(spec_list *list, const char *operand);
// Every spec of a log, once, in the order of their first lines; each with all the log's architectures.
quern_status spec_list_add_log(spec_list *list, const char *file);

// What a model's configuration does not say: how many candidates the sampler takes, positions a page of the KV cache.
typedef struct model_options {
    int64_t sample; // 0: by the configuration's or generation_config.json's top_k, else 50
    int64_t page;   // 0: 64
} model_options;
quern_status spec_list_add_model(spec_list *list, const char *file, const model_options *options);

void spec_list_fini(spec_list *list);

// ---- for the readers

quern_status spec_list_add_text(spec_list *list, const char *text);        // one spec, without a range
bool spec_list_has(const spec_list *list, size_t first, const char *text); // canonical text, from that item on
// Of equal entries the first stays, with the architectures of all; one that has none is no equal of one that has some.
quern_status spec_list_unite(spec_list *list);
void spec_list_add_arch(spec_list *list, size_t first, const qn_arch *arch); // to the items from that one on, once
quern_status spec_list_add_manifest(spec_list *list, const char *file);
quern_status spec_list_read_json(const char *file, cJSON **document);

// Narrows an item to sizes from … to of one name, in place of a range of that name; UNKNOWN_ARGUMENT, BAD_VALUE name it and
// what is allowed.
quern_status spec_item_narrow(spec_item *item, const char *size, int64_t from, int64_t to);
// "1..64" or "8": BAD_VALUE.
quern_status spec_parse_range(const char *name, const char *text, int64_t *from, int64_t *to);

#endif
