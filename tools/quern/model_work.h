// SPDX-License-Identifier: Apache-2.0
// Folders of work in the model's cache: where a compiler writes until its output is moved to its place. Each is locked by
// the process that made it, so that those of a process that is no more are told from those in use, however old either is.
#ifndef QUERN_TOOLS_MODEL_WORK_H
#define QUERN_TOOLS_MODEL_WORK_H

#include "base/status.h"

typedef struct model_work {
    char folder[512]; // "": none
    int lock;
} model_work;

quern_status model_work_begin(const char *cache, model_work *work); // FILE_ERROR
void model_work_end(model_work *work);                              // removes it; once more does nothing
void model_work_clean(const char *cache);                           // removes those whose owner has died

#endif
