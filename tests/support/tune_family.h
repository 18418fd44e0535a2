// SPDX-License-Identifier: Apache-2.0
// A family made of knobs, for tests of the tuner: its plan is its knobs, some combinations are refused, one knob is used
// by one form only. It compiles nothing and runs nothing.
#ifndef TESTS_SUPPORT_TUNE_FAMILY_H
#define TESTS_SUPPORT_TUNE_FAMILY_H

#include "tune/space.h"

enum { TF_FORM, TF_BLOCK, TF_DEPTH, TF_WIDTH, TF_KNOBS }; // the knobs
enum { TF_ROUND = 1, TF_SQUARE };                         // forms; only square ones have a width
enum { TF_LIMIT = 4096 };                                 // plans whose block × depth is more are refused

extern const qn_family tune_family;

qn_space tune_family_space(size_t bucket); // on sm_90a
size_t tune_family_all(qn_configs *list);  // every configuration of the space, by brute force

#endif
