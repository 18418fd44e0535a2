// SPDX-License-Identifier: Apache-2.0
// Folders and files of the model's host side (model_toolchain.c).
#ifndef QUERN_TOOLS_MODEL_FILES_H
#define QUERN_TOOLS_MODEL_FILES_H

#include "base/text.h"

enum { MODEL_FILES_MOST = 64 };

typedef struct model_files_list {
    char name[MODEL_FILES_MOST][64]; // sorted
    size_t count;
} model_files_list;

// The model's folder, whose files are the engine: below `templates`, $QUERN_TEMPLATES, the installed ones beside this
// program, or the tree this was built from. UNSUPPORTED names what was tried.
quern_status model_files_folder(const char *templates, qn_text *folder);

// The folder for objects: the given one, the folder "model" of the user's cache, or, where that cannot be used, a new
// temporary one. What is in it is run: nothing is used below a cache folder that is not safe itself.
quern_status model_files_cache(const char *given, qn_text *folder, bool *temporary);

// What lies in such a folder, and how to bound it: files that were used longest ago go first, until no more than cap_bytes
// are there. What was used in the last ten minutes stays, since another process may be about to open it; so do folders of
// work (model_work.h).
int64_t model_files_bytes(const char *folder);
void model_files_trim(const char *folder, int64_t cap_bytes);
void model_files_use(const char *path); // now

quern_status model_files_find(const char *folder, const char *suffix, model_files_list *list);
quern_status model_files_put(const char *folder, const char *suffix, qn_text *key); // names and contents
quern_status model_files_write(const char *folder, const char *name, const char *bytes, size_t count);
void model_files_remove(const char *folder); // with all that is in it

// COMPILE_FAILED with the first lines of the folder's log.
quern_status model_files_complain(const char *folder, const char *what);

#endif
