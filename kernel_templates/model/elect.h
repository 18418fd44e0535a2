// SPDX-License-Identifier: Apache-2.0
// The model's bodies of common/elect.cuh.
#pragma once
#include "engine.h"

namespace qm {
bool elect(u32 mask, Place at);
} // namespace qm

static inline bool elect_sync(unsigned mask, QM_HERE)
{
    return qm::elect(mask, QM_AT("elect.sync"));
}

template <int Count> static inline void setmaxnreg_inc(QM_HERE)
{
    static_assert(Count >= 24 && Count <= 256 && Count % 8 == 0, "setmaxnreg takes 24 … 256, a multiple of 8");
    qm::set_max_registers(Count, true, QM_AT("setmaxnreg.inc"));
}
template <int Count> static inline void setmaxnreg_dec(QM_HERE)
{
    static_assert(Count >= 24 && Count <= 256 && Count % 8 == 0, "setmaxnreg takes 24 … 256, a multiple of 8");
    qm::set_max_registers(Count, false, QM_AT("setmaxnreg.dec"));
}
