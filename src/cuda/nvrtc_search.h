// SPDX-License-Identifier: Apache-2.0
// Where libnvrtc may be: used by nvrtc.c, which takes the first candidate it can use.
#ifndef QN_CUDA_NVRTC_SEARCH_H
#define QN_CUDA_NVRTC_SEARCH_H

#include "base/text.h"

// Gets each candidate: a path or a soname; only_loaded: to be taken only if this process has it open already.
// true ends the search.
typedef bool (*qn_nvrtc_try)(void *user, const char *name, bool only_loaded);

// file (NULL: none) is the only candidate when given. Returns whether some candidate was taken.
bool qn_nvrtc_search(const char *file, qn_nvrtc_try try, void *user);

#endif
