// SPDX-License-Identifier: Apache-2.0
// softmax_topk on the functional model: the hostile cases with few rows, for an architecture of each kind of plan, in one
// build, in order and shuffled. What a run gives is judged by the reference. Where an architecture has the very kernel of
// the first one (sm_90a), its run in order would repeat that one's to the bit: it is left out, and the shuffled run has
// another seed. The test programs of the builds are this one function: they run beside each other.
//
//   PROGRAM [PATTERN]   only tests whose names match: "*sm_90a*"
//   $QUERN_TEST_CASE    only cases whose names contain it
//   $QUERN_TEST_SEED    the seed of the shuffled order
#ifndef TESTS_SUPPORT_SOFTMAX_TOPK_SWEEP_H
#define TESTS_SUPPORT_SOFTMAX_TOPK_SWEEP_H

#include "quern/model.h"

int softmax_topk_sweep(model_build build, int argc, char **argv); // main's result

#endif
