// SPDX-License-Identifier: Apache-2.0
// Where libnvrtc may be: used by nvrtc.c, which takes the first candidate it can use.
#ifndef QN_CUDA_NVRTC_SEARCH_H
#define QN_CUDA_NVRTC_SEARCH_H

#include "base/text.h"

// Gets each candidate: a path or a soname; only_loaded: to be taken only if this process has it open already.
// true ends the search.
typedef bool (*qn_nvrtc_try)(void *user, const char *name, bool only_loaded);

// file (NULL: none) is the only candidate when given; ignore_environment: neither CUDA_PATH nor CUDA_HOME is looked at.
// Returns whether some candidate was taken.
bool qn_nvrtc_search(const char *file, bool ignore_environment, qn_nvrtc_try try, void *user);

#endif
