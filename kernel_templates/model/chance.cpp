// SPDX-License-Identifier: Apache-2.0
// Everything that is drawn from the seed. Order and delays come from one sequence, so a run repeats exactly; choices that
// hardware makes as a function of its inputs (approximations, elect) are functions of the seed and those inputs.
#include "machine.h"

#include <cmath>

namespace qm {

static u64 sequence;

static u64 mixed(u64 x) // splitmix64
{
    x += 0x9E3779B97F4A7C15ull;
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
    return x ^ (x >> 31);
}

void chance_seed(u32 seed)
{
    sequence = mixed(seed);
}

u32 chance(u32 count)
{
    sequence = mixed(sequence);
    return (u32)((sequence >> 32) * count >> 32);
}

bool shuffled_one_in(u32 count)
{
    return launch.shuffle && chance(count) == 0;
}

u32 choose(u32 count, u64 key)
{
    if (!launch.shuffle) return 0;
    return (u32)(mixed(mixed(launch.seed) ^ key) % count);
}

float approximate(float exact, u32 input, unsigned ulps)
{
    if (!(fabsf(exact) > 0) || !std::isfinite(exact) || (input & 0x7FFFFFFF) == 0) return exact;
    int steps = (int)(mixed(mixed(launch.seed) ^ (u64)input << 20 ^ ulps) % (2 * ulps + 1)) - (int)ulps;
    u32 sign = unbits<u32>(bits(exact)) & 0x80000000u, size = unbits<u32>(bits(exact)) & 0x7FFFFFFFu;
    int64_t moved = (int64_t)size + steps;
    if (moved < 1) moved = 1;
    if (moved > 0x7F7FFFFF) moved = 0x7F7FFFFF;
    return unbits<float>(sign | (u32)moved);
}

} // namespace qm
