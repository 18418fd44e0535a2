// SPDX-License-Identifier: Apache-2.0
// Happens-before, kept only in the access build. A warp has a clock: for each warp of the cluster, how many of that
// warp's releases it has seen; for each mbarrier, how many of its phases; and the same of warps of other clusters, which
// fences and atomics in device memory bring. Lanes of one warp are ordered by the warp's
// count of synchronisations: every warp operation, barrier and wait raises it.
// Known limits: an operation with a partial mask raises the count for the whole warp; a lane that releases speaks for
// the lanes of its warp that ran before it (running the lanes in another order shows a missing __syncwarp).
#include "machine.h"

#include <algorithm>

namespace qm {

static void join(Seen &into, const Seen &from)
{
    if (into.size() < from.size()) into.resize(from.size());
    for (size_t i = 0; i < from.size(); i++) into[i] = std::max(into[i], from[i]);
}

static bool covers(const Seen &all, const Seen &some)
{
    for (size_t i = 0; i < some.size(); i++)
        if (some[i] > (i < all.size() ? all[i] : 0)) return false;
    return true;
}

static void join(std::shared_ptr<const Elsewhere> &into, const std::shared_ptr<const Elsewhere> &from)
{
    if (!from || from == into) return;
    if (!into) {
        into = from;
        return;
    }
    std::shared_ptr<Elsewhere> both; // made when there is something to add
    for (const auto &of : *from) {
        auto known = into->find(of.first);
        if (known != into->end() && covers(*known->second, *of.second)) continue;
        if (!both) both = std::make_shared<Elsewhere>(*into);
        auto seen = std::make_shared<Seen>(*of.second);
        if (known != into->end()) join(*seen, *known->second);
        (*both)[of.first] = seen;
    }
    if (both) into = both;
}

void join(Clock &into, const Clock &from)
{
    join(into.here, from.here);
    join(into.elsewhere, from.elsewhere);
}

Clock as_elsewhere(const Clock &clock, u32 cluster)
{
    auto all = clock.elsewhere ? std::make_shared<Elsewhere>(*clock.elsewhere) : std::make_shared<Elsewhere>();
    (*all)[cluster] = std::make_shared<Seen>(clock.here);
    Clock result;
    result.elsewhere = all;
    return result;
}

void release_into(Warp *warp, Clock &clock)
{
    if (!checking) return;
    join(clock, warp->clock);
    clock.here[warp->index] = std::max(clock.here[warp->index], warp->released);
    warp->released++;
}

void acquire_from(Warp *warp, const Clock &clock)
{
    if (!checking) return;
    join(warp->clock, clock);
    warp->synchronised++;
    if (!clock.elsewhere) return;
    auto own = clock.elsewhere->find(warp->cta->cluster->number); // back from another cluster
    if (own != clock.elsewhere->end()) join(warp->clock.here, *own->second);
}

bool event_ordered_across(Event e, u32 cluster, Event mine, const Lane *lane)
{
    if (cluster == lane->cta->cluster->number) return event_ordered(e, mine, lane);
    if (!e || (e & mine & 2)) return true;
    const Elsewhere *elsewhere = lane->warp->clock.elsewhere.get();
    if (!elsewhere) return false;
    auto seen = elsewhere->find(cluster);
    return seen != elsewhere->end() && event_released(e) <= (*seen->second)[event_lane(e) / 32];
}

} // namespace qm
