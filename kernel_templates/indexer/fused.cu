// SPDX-License-Identifier: Apache-2.0
// indexer, plan "fused": scores and the exact selection in one launch, SHARES CTAs a row; the one that ends last merges.
//
//   share   a warp takes a tile of entries at a time; the bytes of the next one (of the next two where a tile has 16
//           entries and q is shared) are on their way to its registers. Tiles go round the CTAs of a row, so that a
//           cluster of high scores falls to all of them alike. Candidates lie in shared memory; when they fill it, the
//           first LOCAL_K are kept, and from then on only what comes before their last counts
//   record  the first LOCAL_K or a few more, and a bound that everything left out lies below → workspace; of a row of up to
//           8,192 results all keys instead
//   ticket  store, barrier, fence, count: whoever counts SHARES - 1 is last and sees what all left
//   merge   the K first of it, in order (finish.cuh). Should one of the bounds reach past the last winner, a share held more
//           winners than its record: then the last CTA goes through the whole row by itself
//
// So memory for scores is SHARES · ROOM candidates or 32 KiB a row, whatever its length. The workspace: kTickets words, those
// of this plan 0 between launches (a ticket wraps to 0 by itself, so that a captured graph may be replayed), the two areas of
// row_together.cuh, then the rows' memory. Launches that have more CTAs than tickets give each row to one CTA. ANALYSIS.md:
// bytes, work, why it is exact.
//
// Prologue, besides problem.cuh's: SHARES, LOCAL_K, ROOM (places of a record), CAP (candidates in shared memory).
#include "score.cuh"

// A unit of work: what one warp makes whole results of.
constexpr bool kManyBlocks = BLOCKS && kTile % EPB == 0; // blocks a tile
constexpr u32 kUnitEntries = !BLOCKS || kManyBlocks ? kTile : EPB;
constexpr u32 kUnitTiles = (kUnitEntries + kTile - 1) / kTile;
constexpr u32 kUnitResults = !BLOCKS ? kTile : kManyBlocks ? kTile / EPB : 1;
constexpr u32 kTileSteps = kHeads ? kHeadCount : 1;
constexpr u32 kUnitSteps = kUnitTiles * kTileSteps;
constexpr u32 kAhead = kMatrices == 2 || !QUERY_SHARED ? 1 : 2; // steps whose bytes are on their way

constexpr bool kEndsTogether = false;
constexpr u32 kWhole = 0;
constexpr bool kScoresMeet = false;
#include "share.cuh"

struct Shared {
    Select select;
    Query query;
};

QN_DEVICE Shared shared_pieces()
{
    QN_SHARED_FIRST;
    QN_SHARED_ARRAY(uint4, scale, kColumns / 2 + 1);
    QN_SHARED_ARRAY(uint4, item, kCapacity / 2);
    QN_SHARED_ARRAY(uint4, fragment, (kFragments + 1) / 2);
    QN_SHARED_ARRAY(u64, sorted, kSortedRoom);
    QN_SHARED_ARRAY(u32, bins, kFineBins + kWarp);
    QN_SHARED_ARRAY(uint2, weight, kColumns / 2 + 1);
    QN_SHARED_ARRAY(u32, scratch, kWarps);
    QN_SHARED_ARRAY(u32, word, kWords + 1);
    return Shared{{reinterpret_cast<u64 *>(item), sorted, bins, scratch, word},
                  {reinterpret_cast<uint2 *>(fragment), reinterpret_cast<float *>(weight),
                   reinterpret_cast<float *>(scale), word + kWords}};
}

QN_DEVICE Select select_pieces()
{
    return shared_pieces().select;
}
QN_DEVICE u32 *batch_scores() // of row_together.cuh, which is not for this plan
{
    return nullptr;
}
QN_DEVICE u32 *all_rows_word()
{
    return nullptr;
}
QN_DEVICE u32 *again_word()
{
    return nullptr;
}

static_assert(SHARED_BYTES == 8 * (kCapacity + kSortedRoom + (kFragments + 1) / 2 * 2 + 3 * (kColumns / 2 + 1)) +
                                  4 * (kFineBins + kWarp + kWarps + kWords + 1),
              "SHARED_BYTES: as ops/indexer.c counts it");

// ---- candidates of a tile

QN_DEVICE u32 own_row()
{
    return lane_index() / 4 + own_part() * 8;
}

// A NaN counts as the largest while blocks are made, and no entry as the least.
QN_DEVICE u32 block_max(u32 key, u32 distance)
{
    return max(key, __shfl_xor_sync(kFullMask, key, distance));
}
QN_DEVICE u32 block_part(u32 key, bool valid)
{
    return !valid ? 0u : key == kKeyNaN ? 0xFFFFFFFFu : key;
}
QN_DEVICE u32 block_key(u32 part)
{
    return part == 0xFFFFFFFFu ? kKeyNaN : part;
}

// The score of this lane's row of a tile that begins at entry `first`, of which `count` entries are the unit's.
// part: of a block that is longer than a tile, so far.
QN_DEVICE void take_scores(const Shared &s, const Share &share, Scan &scan, u32 local, u32 tile, u32 first, float score,
                           u32 &part)
{
    const u32 row = own_row(), entry = first + row, key = key_of(score);
    const bool valid = entry < share.row.length && tile * kTile + row < kUnitEntries;
    const bool lead = lane_index() % 4 < kRows; // else it repeats another
    if constexpr (!BLOCKS) {
        put_candidate(s.select, scan, lead, local * kUnitResults + row, valid ? candidate(key, entry) : 0);
    } else if constexpr (kManyBlocks) {
        u32 most = block_part(key, valid);
        if (EPB > 1) most = block_max(most, 4);
        if (EPB > 2) most = block_max(most, 8);
        if (EPB > 4) most = block_max(most, 16);
        if (EPB > 8) most = block_max(most, 1);
        if (EPB > 16) most = block_max(most, 2);
        const bool any = first + row / EPB * EPB < share.row.length;
        put_candidate(s.select, scan, lead && row % EPB == 0, local * kUnitResults + row / EPB,
                      any ? candidate(block_key(most), entry / EPB) : 0);
    } else {
        u32 most = block_part(key, valid);
        most = block_max(most, 4), most = block_max(most, 8), most = block_max(most, 16), most = block_max(most, 1);
        if (kRows > 2) most = block_max(most, 2);
        part = tile ? max(part, most) : most;
        if (tile + 1 == kUnitTiles)
            put_candidate(s.select, scan, lane_index() == 0, local, candidate(block_key(part), unit_of(share, local)));
    }
}

// Rows of a tile that need the other way, one after another. odd: of this lane's rows, what its part of them tells.
QN_DEVICE float mend_scores(const indexer_params &p, const Share &share, u32 first, u32 odd, float score)
{
    if (!__any_sync(kFullMask, odd != 0)) return score;
    odd |= __shfl_xor_sync(kFullMask, odd, 1);
    odd |= __shfl_xor_sync(kFullMask, odd, 2);
    const bool own = (odd >> own_part() & 1u) && lane_index() % 4 < kRows && first + own_row() < share.row.length;
    u32 lanes = __ballot_sync(kFullMask, own);
#pragma unroll 1
    for (; lanes; lanes &= lanes - 1) {
        const u32 lane = (u32)__ffs((i32)lanes) - 1, row = lane / 4 + lane % 4 * 8;
        const float exact = score_exactly(p, share.row.number, first + row);
        if (own_row() == row) score = exact;
    }
    return score;
}

// ---- a batch: local units [begin, end), dealt to the warps

struct Step {
    u32 local, tile, head, first; // first entry of the tile
};

QN_DEVICE Step step_of(const Share &share, u32 begin, u32 i)
{
    const u32 local = begin + warp_index() + i / kUnitSteps * kWarps, rest = i % kUnitSteps;
    const u32 tile = rest / kTileSteps;
    return Step{local, tile, rest % kTileSteps, unit_of(share, local) * kUnitEntries + tile * kTile};
}

struct Flow { // what is on its way
    Raw raw[kAhead];
    u32 page[kAhead][kPages];
    u32 steps;
};

QN_DEVICE void begin_flow(const indexer_params &p, const Share &share, u32 begin, u32 end, Flow &flow)
{
    const u32 units = end > begin + warp_index() ? (end - begin - warp_index() + kWarps - 1) / kWarps : 0;
    flow.steps = units * kUnitSteps;
#pragma unroll
    for (u32 a = 0; a < kAhead; a++)
        if (a < flow.steps) look_up(share.row, step_of(share, begin, a).first, flow.page[a]);
#pragma unroll
    for (u32 a = 0; a < kAhead; a++) {
        if (a < flow.steps && p.keys_aligned) {
            const Step at = step_of(share, begin, a);
            fetch(p, share.row, at.first, at.head, flow.page[a], flow.raw[a]);
        }
        if (a + kAhead < flow.steps) look_up(share.row, step_of(share, begin, a + kAhead).first, flow.page[a]);
    }
}

QN_DEVICE void advance_flow(const indexer_params &p, const Share &share, u32 begin, u32 i, u32 a, Flow &flow)
{
    if (i + kAhead < flow.steps && p.keys_aligned) {
        const Step at = step_of(share, begin, i + kAhead);
        fetch(p, share.row, at.first, at.head, flow.page[a], flow.raw[a]);
    }
    if (i + 2 * kAhead < flow.steps) look_up(share.row, step_of(share, begin, i + 2 * kAhead).first, flow.page[a]);
}

struct Sums { // of a tile, over heads
    float sum[kRows];
    u32 odd; // bit r: row r
};

// One step: its bytes to operands, the next bytes asked for, then the arithmetic. True when the tile's scores are whole.
QN_DEVICE bool do_step(const indexer_params &p, const Shared &s, const Share &share, u32 begin, u32 i, u32 a,
                       Flow &flow, Sums &sums, float &score)
{
    const Step at = step_of(share, begin, i);
    u32 operand[kMatrices][kSteps][4], least[kRows];
    float factor[kRows];
    if (at.head == 0) {
#pragma unroll
        for (u32 r = 0; r < kRows; r++) sums.sum[r] = 0.f;
        sums.odd = *s.query.odd ? (1u << kRows) - 1 : 0;
    }
#pragma unroll
    for (u32 r = 0; r < kRows; r++) {
        bool fits;
        least[r] = 0, factor[r] = 1.f;
        if constexpr (kInteger)
            fits = decode_integer(flow.raw[a].value[r], flow.raw[a].scale[r], r, least[r], operand);
        else
            fits = decode_float(flow.raw[a].value[r], flow.raw[a].scale[r], r, factor[r], operand);
        sums.odd |= fits ? 0u : 1u << r;
    }
    advance_flow(p, share, begin, i, a, flow);
    if constexpr (kHeads) {
        const float tensor = __ldg(p.tensor_scale);
        add_head(p, share.row, s.query, operand, at.head, factor[0] * tensor, sums.sum);
        score = own_of(sums.sum);
    } else if constexpr (kInteger) {
        sum_integers(s.query, operand, sums.sum);
        const u32 exponent = min(own_of(least), kMostScale) + 48;
        score = row_sum(sums.sum) * __uint_as_float(exponent << 23);
    } else {
        sum_floats(p, share.row, s.query, operand, factor, sums.sum);
        score = row_sum(sums.sum);
    }
    return at.head + 1 == kTileSteps;
}

QN_DEVICE void run_batch(const indexer_params &p, const Shared &s, const Share &share, u32 begin, Flow &flow,
                         Scan &scan)
{
    Sums sums;
    u32 part = 0;
#pragma unroll 1
    for (u32 i = 0; i < flow.steps; i += kAhead) {
#pragma unroll
        for (u32 a = 0; a < kAhead; a++) {
            if (i + a >= flow.steps) break;
            float score = 0.f;
            if (!do_step(p, s, share, begin, i + a, a, flow, sums, score)) continue;
            const Step at = step_of(share, begin, i + a);
            score = mend_scores(p, share, at.first, sums.odd, score);
            take_scores(s, share, scan, at.local, at.tile, at.first, score, part);
        }
    }
}

QN_DEVICE void take_batch(const indexer_params &, const Shared &, const Share &, u32, u32, Scan &) {
} // put as they came

struct Early {};
QN_DEVICE void begin_early(const indexer_params &p, const Share &share, u32 end, const Early &, Flow &flow)
{
    begin_flow(p, share, 0, end, flow);
}
QN_DEVICE Early load_early(const indexer_params &, i64)
{
    return Early{};
}
QN_DEVICE void prepare_row(const indexer_params &p, const Shared &s, const Row &row, const Early &)
{
    prepare_query(p, row, s.query);
}

constexpr bool kAgainApart = true;

#include "run_row.cuh"

extern "C" __global__ void __launch_bounds__(THREADS, MIN_CTAS) QN_ENTRY(const __grid_constant__ indexer_params p)
{
    do_row(p, shared_pieces());
}
