// SPDX-License-Identifier: Apache-2.0
// The plan "wgmma": who does what, what lies where in shared memory, and the mbarriers between loading and computing.
//
// A CTA is one warpgroup that loads and `kGroups` that compute. With COLUMNS 1 each of these has 64 rows for itself, of the
// tile that they share or (ROWS 64) of a tile of its own; with COLUMNS 2 the two of them share 64 rows, and each has a part
// of the output's columns.
//
// With tiles of their own the groups share no more than the SM: each has a warp that loads, its own blocks of keys and
// values, and its own way through the tiles. So one group's first scores and last output fall into the others' products.
//
//   queries  [row group][chunk]  64 rows x 64 columns   a chunk: 64 columns, 128 bytes a row, swizzled by 128 B as TMA and
//   keys     [stage][chunk]    KEYS rows x 64 columns   wgmma agree on; columns past the head_dim arrive as zeros
//   values   [stage][chunk]    KEYS rows x 64 columns   DV 128, 192: and a chunk of ones a stage, below
//   ones           16 keys x 64 columns                 DV 64: more columns of v, whose products are sums of probabilities
//   probabilities [2]            64 rows x 64 keys      COLUMNS 2: from the first group to the second
//
// Every piece has an mbarrier that says it is full, and one that says it is empty. With COLUMNS 2 blocks of keys and of
// values have two pieces each: of keys the first and the second half of their chunks, so that the first can be used, and
// brought again, early; of values those of the two groups.
#pragma once

#include "../common/async_copy.cuh"
#include "../common/elect.cuh"
#include "../common/fence.cuh"
#include "../common/mbarrier.cuh"
#include "../common/tma.cuh"
#include "args_wgmma.h"
#include "problem.cuh"

constexpr i32 kGroupThreads = 128;
constexpr i32 kGroups = THREADS / kGroupThreads - 1; // that compute
constexpr bool kOwnTiles = COLUMNS == 1 && ROWS == 64;
constexpr i32 kLines = kOwnTiles ? kGroups : 1;                      // of tiles, with all pieces that these need
constexpr i32 kRowGroups = COLUMNS == 1 && !kOwnTiles ? kGroups : 1; // of a tile
constexpr i32 kStages = SLOTS / 2;
// Registers a thread: 64 Ki in all, of which the loading group needs few.
constexpr int kLoaderRegisters = kOwnTiles && KEYS < 128 ? 56 : kGroups == 3 ? 32 : 40;
constexpr int kComputerRegisters = kOwnTiles && KEYS < 128 ? 152 : kGroups == 3 ? 160 : 232;
constexpr int kFirstRegisters = 208, kSecondRegisters = 248; // COLUMNS 2
constexpr i32 kChunks = (D + 63) / 64, kValueChunks = (DV + 63) / 64;
constexpr i32 kKeyPieces = kChunks > 1 ? COLUMNS : 1, kValuePieces = COLUMNS;

// The rows' sums of probabilities as eight more columns of the output, products with a chunk of ones: in the threads' own
// arithmetic they are a quarter of a block's instructions. A descriptor reaches chunks at one distance from each other. At
// DV 64 that is any, and ones for 16 keys do; otherwise ones for a whole block lie behind its chunks of v, where there is room.
constexpr i32 kSumColumns = COLUMNS == 1 && (DV == 64 || DV == 128 || DV == 192) && D <= DV ? 8 : 0;
constexpr i32 kOnesBytes = kSumColumns > 0 && DV == 64 ? 16 * 128 : 0;
constexpr i32 kOnesChunks = kSumColumns > 0 && DV > 64 ? 1 : 0; // a stage

static_assert(COLUMNS == 1 || (COLUMNS == 2 && kGroups == 2 && KEYS == 64), "COLUMNS 2: two groups, blocks of 64 keys");
static_assert(THREADS % kGroupThreads == 0 && (kGroups == 2 || kGroups == 3),
              "THREADS: 2 or 3 groups and the loading one");
static_assert(ROWS == 64 * kRowGroups, "ROWS: 64 a group");
static_assert(!kOwnTiles || (kGroups == 3 && DV <= 64), "ROWS 64, COLUMNS 1: three groups, DV up to 64");
static_assert(KEYS % 16 == 0 && KEYS <= 256, "KEYS: whole steps of 16, a box of TMA");
static_assert(SLOTS % 2 == 0 && kStages >= 1, "SLOTS: a block of keys and one of values a stage");
static_assert(kValueChunks >= COLUMNS, "DV: columns for every group");

// Chunks of a piece: the first half has one more if they are odd.
QN_DEVICE constexpr i32 piece_begin(i32 chunks, i32 pieces, i32 piece)
{
    return piece == 0 ? 0 : piece == pieces ? chunks : (chunks + 1) / 2;
}

// The first chunk of the values that a group has. With COLUMNS 2 the first group has scores and softmax to do as well: it has
// a quarter.
QN_DEVICE constexpr i32 value_begin(i32 piece)
{
    constexpr i32 kQuarter = (kValueChunks + 2) / 4 > 0 ? (kValueChunks + 2) / 4 : 1;
    return piece == 0 ? 0 : piece == kValuePieces ? kValueChunks : kQuarter;
}

// Columns of the output before a group's.
QN_DEVICE constexpr i32 columns_before(i32 piece)
{
    return piece == kValuePieces ? DV : 64 * value_begin(piece);
}

struct alignas(1024) Rows8 {
    unsigned char bytes[1024]; // eight rows of a chunk: the swizzle's pattern
};
constexpr i32 kQueryChunkBytes = 64 * 128, kKeyChunkBytes = KEYS * 128;
constexpr i32 kKeyStageBytes = kChunks * kKeyChunkBytes,
              kValueStageBytes = (kValueChunks + kOnesChunks) * kKeyChunkBytes;
constexpr i32 kProbabilityBytes = 64 * 128;

struct Pieces {
    unsigned char *queries, *keys, *values, *ones, *probabilities;
    float *factors; // COLUMNS 2: [2][64], of the rows' sums so far, beside the probabilities
    float *totals;  // COLUMNS 2: [64], of the rows' rounded probabilities, from the second group to the first
    u64 *query_full, *query_empty;
    u64 *key_full, *key_empty;                 // [kStages][kKeyPieces]
    u64 *value_full, *value_empty;             // [kStages][kValuePieces]
    u64 *probability_full, *probability_empty; // COLUMNS 2: [2]
    u64 *total_full;                           // COLUMNS 2
    u64 *tail;                                 // values whose last rows have to be cleared
};

constexpr i32 kBarriers = 2 + 2 * kStages * (kKeyPieces + kValuePieces) + 4 + 2;
constexpr i32 kFactors = COLUMNS == 2 ? 3 * 64 : 0; // and totals
constexpr i32 kQueryBytes = kRowGroups * kChunks * kQueryChunkBytes;
constexpr i32 kTileBytes = kQueryBytes + kStages * (kKeyStageBytes + kValueStageBytes);
// Of several lines each has its barriers behind its pieces, so that one address tells where all is.
constexpr i32 kLineBytes = kTileBytes + (kOwnTiles ? 1024 : 0);
constexpr int kWgmmaBytes = kLines * kLineBytes + kOnesBytes + (COLUMNS == 2 ? 2 * kProbabilityBytes : 0) +
                            4 * kFactors + (kOwnTiles ? 0 : 8 * kBarriers);
static_assert(!kOwnTiles || 8 * kBarriers <= 1024, "SLOTS: room for their barriers");

QN_DEVICE Pieces shared_of_wgmma(i32 line)
{
    Pieces s;
    QN_SHARED_FIRST;
    QN_SHARED_ARRAY(Rows8, lines, kLines * kLineBytes / 1024);
    s.queries = lines->bytes + line * kLineBytes, s.keys = s.queries + kQueryBytes;
    s.values = s.keys + kStages * kKeyStageBytes;
    s.ones = s.probabilities = nullptr, s.factors = s.totals = nullptr;
    if constexpr (kOnesBytes > 0) {
        QN_SHARED_ARRAY(Rows8, ones, kOnesBytes / 1024);
        s.ones = ones->bytes;
    }
    if constexpr (COLUMNS == 2) {
        QN_SHARED_ARRAY(Rows8, probabilities, 2 * kProbabilityBytes / 1024);
        QN_SHARED_ARRAY(float, factors, kFactors);
        s.probabilities = probabilities->bytes, s.factors = factors, s.totals = factors + 2 * 64;
    }
    u64 *barriers = reinterpret_cast<u64 *>(s.queries + kTileBytes);
    if constexpr (!kOwnTiles) {
        QN_SHARED_ARRAY(u64, last, kBarriers);
        barriers = last;
    }
    s.query_full = barriers, s.query_empty = barriers + 1;
    s.key_full = barriers + 2, s.key_empty = s.key_full + kStages * kKeyPieces;
    s.value_full = s.key_empty + kStages * kKeyPieces, s.value_empty = s.value_full + kStages * kValuePieces;
    s.probability_full = s.value_empty + kStages * kValuePieces, s.probability_empty = s.probability_full + 2;
    s.total_full = s.probability_empty + 2, s.tail = s.total_full + 1;
    return s;
}

// Arrivals: a full piece has its loader's, an empty one those of every warp that reads it; probabilities and totals have
// those of every lane.
QN_DEVICE void start_barriers(const Pieces &s)
{
    constexpr u32 kReaders = 4 * kRowGroups;
    mbarrier_init(s.query_full, 1), mbarrier_init(s.query_empty, kReaders);
    for (i32 i = 0; i < kStages * kKeyPieces; i++)
        mbarrier_init(s.key_full + i, 1), mbarrier_init(s.key_empty + i, kReaders);
    for (i32 i = 0; i < kStages * kValuePieces; i++)
        mbarrier_init(s.value_full + i, 1), mbarrier_init(s.value_empty + i, kReaders);
    for (i32 i = 0; i < 2; i++)
        mbarrier_init(s.probability_full + i, kGroupThreads), mbarrier_init(s.probability_empty + i, kGroupThreads);
    mbarrier_init(s.total_full, kGroupThreads);
    mbarrier_init(s.tail, 1);
    fence_mbarrier_init();
}

// All threads, before a barrier.
QN_DEVICE void write_ones(const Pieces &s)
{
    constexpr u32 kTwo = IN == 3 ? 0x3F803F80u : 0x3C003C00u;
    constexpr i32 kBytes = kOnesChunks > 0 ? kKeyChunkBytes : kOnesBytes;
    if constexpr (kSumColumns == 0) return;
    for (i32 stage = 0; stage < (kOnesChunks > 0 ? kStages : 1); stage++) {
        unsigned char *to = s.values + stage * kValueStageBytes + kValueChunks * kKeyChunkBytes;
        if constexpr (kOnesChunks == 0) to = s.ones;
        for (i32 at = thread_index(); at < kBytes / 16; at += THREADS)
            reinterpret_cast<uint4 *>(to)[at] = make_uint4(kTwo, kTwo, kTwo, kTwo);
    }
    fence_proxy_async_shared();
}

// The phase'th time that the barrier's phase ends, from 0 on.
QN_DEVICE void wait_phase(u64 *bar, u32 phase)
{
    while (!mbarrier_try_wait_parity(bar, phase & 1)) {
    }
}

// One arrival of this warp, after what all its lanes did.
QN_DEVICE void warp_arrive(u64 *bar)
{
    __syncwarp();
    if (lane_index() == 0) mbarrier_arrive(bar);
}

QN_DEVICE const TensorMap *map_of(const attention_map &map)
{
    return reinterpret_cast<const TensorMap *>(&map);
}

// ---- tiles

// The next tile that this CTA's line works on, as tile_at counts; -1: there is none. `visit` counts through them. Of a pair,
// the tile that sees more keys comes first; an odd one out makes a pair with nothing. Lines of a CTA have neighbouring items,
// which take about the same time.
QN_DEVICE i32 next_tile(const attention_wgmma_params &all, i32 line, i32 &visit)
{
    for (;;) {
        const i32 turn = all.pairs ? visit / 2 : visit, second = all.pairs ? visit % 2 : 0;
        const u32 item =
            (blockIdx.x + (u32)turn * gridDim.x) * kLines + line; // below twice the most items, which is 2^31
        visit++;
        if (item >= (u32)all.items) return -1;
        if (!all.pairs) return (i32)item;
        const i32 tiles = all.p.tiles, pair = (i32)item % all.pairs, number = second ? tiles - 1 - pair : pair;
        if (!second || number != pair) return (i32)item / all.pairs * tiles + number;
    }
}

// The blocks of keys that a tile goes through: at least one, so that every tile has the same steps; keys that no row sees
// are masked.
struct Blocks {
    i32 first; // key
    i32 count;
};

QN_DEVICE Blocks blocks_of(const Tile &t)
{
    const i32 first = t.first_key / KEYS * KEYS;
    return {first, max(ceil_div(t.last_key - first, KEYS), 1)};
}
