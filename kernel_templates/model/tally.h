// SPDX-License-Identifier: Apache-2.0
// The model's bodies of common/tally.cuh: nobody reads the counters here, so nothing is counted.
#pragma once
#include "engine.h"

#define QN_TALLY(name) static unsigned name;

static inline void tally(unsigned *) {}
