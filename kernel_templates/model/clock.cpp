// SPDX-License-Identifier: Apache-2.0
// Happens-before, kept only in the access build. A warp has a clock: for each warp of the cluster, how many of that
// warp's releases it has seen; for each mbarrier, how many of its phases. Lanes of one warp are ordered by the warp's
// count of synchronisations: every warp operation, barrier and wait raises it.
// Known limits: an operation with a partial mask raises the count for the whole warp; a lane that releases speaks for
// the lanes of its warp that ran before it (running the lanes in another order shows a missing __syncwarp).
#include "machine.h"

#include <algorithm>

namespace qm {

enum { SYNC_BITS = 20, RELEASE_BITS = 28 };

void join(Clock &into, const Clock &from)
{
    if (into.size() < from.size()) into.resize(from.size());
    for (size_t i = 0; i < from.size(); i++) into[i] = std::max(into[i], from[i]);
}

void release_into(Warp *warp, Clock &clock)
{
    if (!checking) return;
    join(clock, warp->clock);
    clock[warp->index] = std::max(clock[warp->index], warp->released);
    warp->released++;
}

void acquire_from(Warp *warp, const Clock &clock)
{
    if (!checking) return;
    join(warp->clock, clock);
    warp->synchronised++;
}

// lane 14 bits | synchronisations 20 | releases 28 | atomic | valid
Event event_now(const Lane *lane, bool atomic)
{
    const Warp *warp = lane->warp;
    return (u64)lane->index << 50 | (u64)(warp->synchronised & ((1u << SYNC_BITS) - 1)) << (RELEASE_BITS + 2) |
           (u64)(warp->released & ((1u << RELEASE_BITS) - 1)) << 2 | (atomic ? 2 : 0) | 1;
}

unsigned event_lane(Event e)
{
    return (unsigned)(e >> 50);
}
u32 event_synchronised(Event e)
{
    return (u32)(e >> (RELEASE_BITS + 2)) & ((1u << SYNC_BITS) - 1);
}

bool event_ordered(Event e, Event mine, const Lane *lane)
{
    if (!e || (e & mine & 2)) return true;
    unsigned by = event_lane(e);
    if (by == lane->index) return true;
    if (by / 32 == lane->warp->index) return event_synchronised(e) != event_synchronised(mine);
    return ((u32)(e >> 2) & ((1u << RELEASE_BITS) - 1)) <= lane->warp->clock[by / 32];
}

} // namespace qm
