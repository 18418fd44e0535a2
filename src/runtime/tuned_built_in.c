// SPDX-License-Identifier: Apache-2.0
// The built-in tuning table: results that come with the library. Made by tools/built_in.sh from what
// `quern tune --export` wrote; not edited by hand. Read by tuned.c.
#include "runtime/tuned.h"

// clang-format off
const qn_tune_row qn_tuned_built_in[] = {
    {{0}, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}, // the end, not counted
};
// clang-format on
const size_t qn_tuned_built_in_count = QN_COUNT(qn_tuned_built_in) - 1;
