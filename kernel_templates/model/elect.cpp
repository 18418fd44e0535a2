// SPDX-License-Identifier: Apache-2.0
// elect.sync: the manual leaves open which lane of a mask it is, but not that it is always the same one: drawn by the
// seed and the mask.
#include "elect.h"

namespace qm {

bool elect(u32 mask, Place at)
{
    need_arch(90, 0, false, at);
    warp_op(mask, nullptr, nullptr, at);
    u32 rest = mask;
    for (u32 skip = choose(static_cast<u32>(__builtin_popcount(mask)), mask); skip; skip--) rest &= rest - 1;
    return static_cast<u32>(__builtin_ctz(rest)) == self->lane;
}

} // namespace qm
