// SPDX-License-Identifier: Apache-2.0
// The plan "heads": who does what, what lies where in shared memory, and the mbarriers between loading and computing.
//
// A CTA is COLUMNS computing warpgroups, which work on the same 64 rows. The first has the scores, the probabilities and
// the first columns of the output. With COLUMNS 2 the second has the other columns, and gets the probabilities and the
// factors of its sums through shared memory; a third one loads, and gives its registers to the others. With COLUMNS 1 a
// thread of the group loads: what it waits for then is only the other warps of its group.
//
//   queries  [chunk]           64 rows x 64 columns   a chunk: 64 columns, 128 bytes a row, swizzled by 128 B as TMA and
//   keys     [stage][chunk]  KEYS rows x 64 columns   wgmma agree on; columns past the head_dim are zeros
//   values   [stage][chunk]  KEYS rows x 64 columns   ALIAS: these are the keys' first chunks
//   probabilities              64 rows x 64 keys      COLUMNS 2
//
// A block of keys or values has one piece a group (keys of a single chunk: one): the values' pieces are those of the
// groups' columns, and with ALIAS the keys' pieces end where these do. A piece has an mbarrier that says it is full, and
// one that every warp arrives on that has used it up.
#pragma once

#include "../common/async_copy.cuh"
#include "../common/elect.cuh"
#include "../common/fence.cuh"
#include "../common/mbarrier.cuh"
#include "../common/tma.cuh"
#include "args_heads.h"
#include "problem.cuh"

constexpr i32 kGroupThreads = 128, kGroups = COLUMNS;
constexpr i32 kLoader = COLUMNS == 1 ? 0 : kGroups * kGroupThreads; // the thread that loads
constexpr i32 kStages = ALIAS ? SLOTS : SLOTS / 2;
// COLUMNS 2: registers a thread, of 168 that each begins with.
constexpr int kLoaderRegisters = 40, kComputerRegisters = 232;
constexpr i32 kChunks = (D + 63) / 64, kValueChunks = (DV + 63) / 64;
constexpr i32 kFirstChunks = COLUMNS == 1 ? kValueChunks : (kValueChunks + 1) / 2; // of values, the first group's
constexpr i32 kFirstColumns = COLUMNS == 1 ? DV : 64 * kFirstChunks;
constexpr i32 kSecondColumns = COLUMNS == 1 ? 8 : DV - kFirstColumns; // with one group there is code for it, unused
constexpr i32 kKeyPieces = COLUMNS == 2 && kChunks > 1 ? 2 : 1;

static_assert(COLUMNS == 1 || COLUMNS == 2, "COLUMNS: one or two groups");
static_assert(THREADS == kGroupThreads * (COLUMNS == 1 ? 1 : 3), "THREADS: groups, loader");
static_assert(ROWS == 64, "ROWS: those of a wgmma");
static_assert(KEYS % 16 == 0 && KEYS <= 128 && (COLUMNS == 1 || KEYS == 64), "KEYS: whole steps of 16; COLUMNS 2: 64");
static_assert(kFirstColumns <= 256 && (COLUMNS == 1 || kSecondColumns >= 8), "DV: 8 to 256 columns a group");
static_assert(kStages >= 1, "SLOTS: a block of keys and one of values a stage; ALIAS: one block");
static_assert(KEYS % BOX == 0 && BOX % 8 == 0 && (!kPaged || kPage % BOX == 0), "BOX: whole ones in blocks and pages");

struct alignas(1024) Rows8 {
    unsigned char bytes[1024]; // eight rows of a chunk: the swizzle's pattern
};
constexpr i32 kQueryChunkBytes = 64 * 128, kChunkBytes = KEYS * 128;
constexpr i32 kKeyStageBytes = kChunks * kChunkBytes, kValueStageBytes = ALIAS ? 0 : kValueChunks * kChunkBytes;
constexpr i32 kProbabilityBytes = COLUMNS == 2 ? 64 * 128 : 0;

// Chunks of a piece of keys: piece_begin(i) … piece_begin(i + 1) - 1.
QN_DEVICE constexpr i32 key_piece(i32 piece)
{
    return piece == 0 ? 0 : piece == kKeyPieces ? kChunks : ALIAS ? kFirstChunks : (kChunks + 1) / 2;
}
QN_DEVICE constexpr i32 value_piece(i32 piece)
{
    return piece == 0 ? 0 : piece == COLUMNS ? kValueChunks : kFirstChunks;
}

struct Pieces {
    unsigned char *queries, *keys, *values, *probabilities;
    float *factors;                            // COLUMNS 2: [64], of the rows' sums so far, beside the probabilities
    u64 *key_full, *key_empty;                 // [kStages][kKeyPieces]
    u64 *value_full, *value_empty;             // [kStages][COLUMNS], without ALIAS
    u64 *probability_full, *probability_empty; // COLUMNS 2
};

constexpr i32 kValueBarriers = ALIAS ? 0 : kStages * COLUMNS;
constexpr i32 kBarriers = 2 * (kStages * kKeyPieces + kValueBarriers) + 2;
constexpr i32 kFactors = COLUMNS == 2 ? 64 : 0;
constexpr int kHeadsBytes = kChunks * kQueryChunkBytes + kStages * (kKeyStageBytes + kValueStageBytes) +
                            kProbabilityBytes + 4 * kFactors + 8 * kBarriers;

QN_DEVICE Pieces shared_pieces()
{
    Pieces s;
    QN_SHARED_FIRST;
    QN_SHARED_ARRAY(Rows8, queries, kChunks * kQueryChunkBytes / 1024);
    QN_SHARED_ARRAY(Rows8, keys, kStages * kKeyStageBytes / 1024);
    s.queries = queries->bytes, s.keys = keys->bytes, s.values = s.keys;
    s.probabilities = nullptr, s.factors = nullptr;
    if constexpr (!ALIAS) {
        QN_SHARED_ARRAY(Rows8, values, kStages * kValueStageBytes / 1024);
        s.values = values->bytes;
    }
    if constexpr (COLUMNS == 2) {
        QN_SHARED_ARRAY(Rows8, probabilities, kProbabilityBytes / 1024);
        QN_SHARED_ARRAY(float, factors, kFactors);
        s.probabilities = probabilities->bytes, s.factors = factors;
    }
    QN_SHARED_ARRAY(u64, barriers, kBarriers);
    s.key_full = barriers, s.key_empty = s.key_full + kStages * kKeyPieces;
    s.value_full = s.key_empty + kStages * kKeyPieces, s.value_empty = s.value_full + kValueBarriers;
    s.probability_full = s.value_empty + kValueBarriers, s.probability_empty = s.probability_full + 1;
    return s;
}

// Arrivals: a full piece has its loader's, an empty one those of every warp that reads it; probabilities have those of
// every lane.
QN_DEVICE void start_barriers(const Pieces &s)
{
    for (i32 i = 0; i < kStages * kKeyPieces; i++) {
        const bool two = ALIAS && COLUMNS == 2 && i % kKeyPieces == 1; // the scores', and the second group's output
        mbarrier_init(s.key_full + i, 1), mbarrier_init(s.key_empty + i, two ? 8 : 4);
    }
    for (i32 i = 0; i < kValueBarriers; i++) mbarrier_init(s.value_full + i, 1), mbarrier_init(s.value_empty + i, 4);
    mbarrier_init(s.probability_full, kGroupThreads), mbarrier_init(s.probability_empty, kGroupThreads);
    fence_mbarrier_init();
}

// The phase'th time that the barrier's phase ends, from 0 on.
QN_DEVICE void wait_phase(u64 *bar, u32 phase)
{
    while (!mbarrier_try_wait_parity(bar, phase & 1)) {
    }
}

// One arrival of this warp.
QN_DEVICE void warp_arrive(u64 *bar)
{
    if (lane_index() == 0) mbarrier_arrive(bar);
}

// ---- the blocks of a split: at least one, so that every split has the same steps; keys that no row sees are masked

struct Blocks {
    i32 first; // key
    i32 count;
};

QN_DEVICE Blocks blocks_between(i32 first_key, i32 last_key)
{
    const i32 first = first_key / KEYS * KEYS;
    return {first, max(ceil_div(last_key - first, KEYS), 1)};
}
