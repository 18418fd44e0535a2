// SPDX-License-Identifier: Apache-2.0
// How a row's units of entries are dealt to its CTAs: every shares-th one, turned a little each round, so that near entries,
// which tend to score alike, fall to all of them. Before this file: kUnitEntries.
#pragma once

#include "problem.cuh"

struct Share {
    Row row;
    u32 number, shares; // shares: SHARES, a power of two, or 1
    u32 units;          // of this share
};

QN_DEVICE u32 unit_of(const Share &share, u32 local)
{
    return local * share.shares + ((share.number + 7 * local) & (share.shares - 1));
}

QN_DEVICE Share share_of(const Row &row, u32 number, u32 shares)
{
    const u32 total = (row.length + kUnitEntries - 1) / kUnitEntries;
    Share share = {row, number, shares, shares == 1 ? total : (total + SHARES - 1) / SHARES}; // no division
    if (share.units && unit_of(share, share.units - 1) >= total) share.units--;
    return share;
}
