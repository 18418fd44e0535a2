// SPDX-License-Identifier: Apache-2.0
// indexer, plan "fused": scores and the exact selection in one launch, SHARES CTAs a row; the one that ends last merges.
//
//   share   a warp takes a tile of entries at a time; the bytes of the next one (of the next two where a tile has 16
//           entries and q is shared) are on their way to its registers. Tiles go round the CTAs of a row, so that a
//           cluster of high scores falls to all of them alike. Candidates lie in shared memory; when they fill it, the
//           first LOCAL_K are kept, and from then on only what comes before their last counts
//   record  the first LOCAL_K or a few more, and a bound that everything left out lies below → workspace
//   ticket  store, barrier, fence, count: whoever counts SHARES - 1 is last and sees every record
//   merge   the K first of all records, in order. Should one of the bounds reach past the last winner, a share held more
//           winners than its record: then the last CTA goes through the whole row by itself
//
// So memory for scores is SHARES · ROOM candidates a row, whatever its length. The workspace: kTickets words, 0 between
// launches (a ticket wraps to 0 by itself, so that a captured graph may be replayed), then SHARES records a row. Launches
// of more than kTickets rows give each row to one CTA. ANALYSIS.md: bytes, work, why it is exact.
//
// Prologue, besides problem.cuh's: SHARES, LOCAL_K, ROOM (places of a record), CAP (candidates in shared memory).
#include "../common/async_copy.cuh"
#include "score.cuh"
#include "select.cuh"

static_assert(SHARES >= 1 && SHARES <= 128 && (SHARES & (SHARES - 1)) == 0, "SHARES: a power of two up to 128");
static_assert(SHARES == 1 || (LOCAL_K <= ROOM && SHARES * ROOM <= CAP && SHARES * LOCAL_K >= K && ROOM % 2 == 0),
              "LOCAL_K, ROOM, CAP");
static_assert(LOCAL_K <= 2048 && CAP >= LOCAL_K + 512 && CAP / 4 * 3 > K + 256, "LOCAL_K, CAP");

constexpr u32 kTickets = 1024; // ops/indexer.c: TICKETS
constexpr u32 kShares = SHARES;
constexpr u32 kRoom = ROOM;
constexpr u64 kRecordBytes = 8 * (2 + (u64)ROOM); // bound, extremes, candidates

// A unit of work: what one warp makes whole results of.
constexpr bool kManyBlocks = BLOCKS && kTile % EPB == 0; // blocks a tile
constexpr u32 kUnitEntries = !BLOCKS || kManyBlocks ? kTile : EPB;
constexpr u32 kUnitTiles = (kUnitEntries + kTile - 1) / kTile;
constexpr u32 kUnitResults = !BLOCKS ? kTile : kManyBlocks ? kTile / EPB : 1;
constexpr u32 kTileSteps = kHeads ? kHeadCount : 1;
constexpr u32 kUnitSteps = kUnitTiles * kTileSteps;
constexpr u32 kAhead = kMatrices == 2 || !QUERY_SHARED ? 1 : 2; // steps whose bytes are on their way

struct Shared {
    Select select;
    Query query;
    u64 *bound; // [kShares], of the records
};

QN_DEVICE Shared shared_pieces()
{
    QN_SHARED_FIRST;
    QN_SHARED_ARRAY(uint4, scale, kColumns / 2 + 1);
    QN_SHARED_ARRAY(uint4, item, kCapacity / 2);
    QN_SHARED_ARRAY(uint4, fragment, (kFragments + 1) / 2);
    QN_SHARED_ARRAY(u64, sorted, kSorted);
    QN_SHARED_ARRAY(u64, bound, kShares);
    QN_SHARED_ARRAY(u32, bins, kBins);
    QN_SHARED_ARRAY(uint2, weight, kColumns / 2 + 1);
    QN_SHARED_ARRAY(u32, scratch, kWarps);
    QN_SHARED_ARRAY(u32, word, kWords + 1);
    return Shared{{reinterpret_cast<u64 *>(item), sorted, bins, scratch, word},
                  {reinterpret_cast<uint2 *>(fragment), reinterpret_cast<float *>(weight),
                   reinterpret_cast<float *>(scale), word + kWords},
                  bound};
}

QN_DEVICE Select select_pieces()
{
    return shared_pieces().select;
}

static_assert(SHARED_BYTES == 8 * (kCapacity + kSorted + (kFragments + 1) / 2 * 2 + kShares + 3 * (kColumns / 2 + 1)) +
                                  4 * (kBins + kWarps + kWords + 1),
              "SHARED_BYTES: as ops/indexer.c counts it");

// ---- a share of a row: every shares-th unit, turned a little each round

struct Share {
    Row row;
    u32 number, shares; // shares: a power of two
    u32 units;          // of this share
};

QN_DEVICE u32 unit_of(const Share &share, u32 local)
{
    return local * share.shares + ((share.number + 7 * local) & (share.shares - 1));
}

QN_DEVICE Share share_of(const Row &row, u32 number, u32 shares)
{
    const u32 total = (row.length + kUnitEntries - 1) / kUnitEntries;
    Share share = {row, number, shares, (total + shares - 1) / shares};
    if (share.units && unit_of(share, share.units - 1) >= total) share.units--;
    return share;
}

// ---- candidates of a tile

struct Scan {
    u64 last; // of those kept, 0: none were left out
    Extremes extremes;
};

// One candidate a lane, or 0. place: where it goes in the first batch.
QN_DEVICE void put_candidate(const Select &s, Scan &scan, bool mine, u32 place, u64 item)
{
    if (scan.last == 0) {
        if (mine) s.item[place] = item;
    } else {
        const bool wins = mine && item > scan.last;
        const u32 ballot = __ballot_sync(kFullMask, wins);
        u32 first = 0;
        if (ballot && lane_index() == 0) first = atomicAdd(&s.word[kCount], (u32)__popc(ballot));
        first = __shfl_sync(kFullMask, first, 0);
        if (wins) s.item[first + lanes_below(ballot)] = item;
    }
    if (mine && item) extend(scan.extremes, candidate_key(item));
}

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

// Keeps the first `wanted` candidates, or a few more where bins tell them from the rest; from then on only what comes
// after scan.last counts. Returns how many. Begins and ends in a barrier.
QN_DEVICE u32 compact(const Select &s, Scan &scan, u32 n, u32 wanted)
{
    share_extremes(s, scan.extremes);
    (void)bin_items(n, wanted);
    const u32 end = s.word[kEnd], end_bin = s.word[kEndBin];
    if (QN_UNLIKELY(end > wanted + kMostInBin)) {
        scan.last = keep_first(s, n, wanted);
        return wanted;
    }
    const Scale by = scale_of(s);
    u32 least = 0xFFFFFFFFu;
    for (u32 i = thread_index(); i < n; i += THREADS) {
        const u64 item = s.item[i];
        if (item == 0 || bin_of(by, candidate_key(item)) > end_bin) continue;
        least = min(least, candidate_key(item));
        s.sorted[atomicAdd(&s.word[kCount], 1u)] = item;
    }
    least = warp_min(least);
    if (lane_index() == 0) atomicMax(&s.word[kLeast], ~least);
    __syncthreads();
#pragma unroll 1
    for (u32 i = thread_index(); i < end; i += THREADS) s.item[i] = s.sorted[i];
    scan.last = ((u64)~s.word[kLeast] << 32) - 1; // all that was left out has a smaller key
    __syncthreads();
    return end;
}

// All of a share. Returns the candidates that lie in shared memory: all of it, or its first `wanted` or more.
// Begins and ends in a barrier.
QN_DEVICE u32 run_share(const indexer_params &p, const Shared &s, const Share &share, u32 wanted, bool prepare,
                        Scan &scan)
{
    Flow flow = {};
    u32 n = 0, begin = 0;
    scan.last = 0;
    scan.extremes = Extremes{0u, 0xFFFFFFFFu};
    for (;;) {
        const u32 end = min(share.units, begin + (kCapacity - n) / kUnitResults);
        begin_flow(p, share, begin, end, flow);
        if (prepare) {
            prepare_query(p, share.row, s.query);
            prepare = false;
        }
        if (thread_index() == 0) {
            s.select.word[kCount] = n;
            if (begin == 0) s.select.word[kHigh] = s.select.word[kLow] = 0;
        }
        __syncthreads();
        run_batch(p, s, share, begin, flow, scan);
        __syncthreads();
        n = scan.last ? s.select.word[kCount] : end * kUnitResults;
        __syncthreads();
        begin = end;
        if (begin >= share.units) {
            share_extremes(s.select, scan.extremes);
            return n;
        }
        if (kCapacity - n >= kCapacity / 4) continue;
        n = compact(s.select, scan, n, wanted);
    }
}

// ---- records

QN_DEVICE u64 *record_of(const indexer_params &p, i64 row, u32 share)
{
    return reinterpret_cast<u64 *>(p.workspace + kTickets * 4 + ((u64)row * kShares + share) * kRecordBytes);
}

// The share's first LOCAL_K or more into its record, with the bound of what is left out. Begins in a barrier.
QN_DEVICE void store_record(const indexer_params &p, const Share &share, const Select &s, const Scan &scan, u32 n)
{
    u64 *record = record_of(p, share.row.number, share.number);
    u64 bound = scan.last;
    if (n <= kRoom) {
        __syncthreads();
        for (u32 i = thread_index(); i < kRoom; i += THREADS) record[2 + i] = i < n ? s.item[i] : 0;
    } else {
        const u32 total = bin_items(n, LOCAL_K), end = s.word[kEnd], end_bin = s.word[kEndBin];
        const bool by_bins = end <= kRoom;
        const Scale by = scale_of(s);
        const u64 last = by_bins || total == 0 ? 0 : nth_candidate(n, min((u32)LOCAL_K, total));
        __syncthreads();
        u32 least = 0xFFFFFFFFu;
#pragma unroll 2
        for (u32 i = thread_index(); i < n; i += THREADS) {
            const u64 item = s.item[i];
            if (item == 0 || (by_bins ? bin_of(by, candidate_key(item)) > end_bin : item < last)) continue;
            least = min(least, candidate_key(item));
            record[2 + atomicAdd(&s.word[kCount], 1u)] = item;
        }
        least = warp_min(least);
        if (lane_index() == 0) atomicMax(&s.word[kLeast], ~least);
        __syncthreads();
        const u32 count = s.word[kCount];
#pragma unroll 1
        for (u32 i = count + thread_index(); i < kRoom; i += THREADS) record[2 + i] = 0;
        const u64 left_out = count == total ? 0 : by_bins ? (u64)~s.word[kLeast] << 32 : last;
        bound = left_out > bound ? left_out : bound;
        // The least finite key of the record, where it holds less than the share.
        if (thread_index() == 0 && ~s.word[kLeast] >= kKeyLeastFinite && count < total)
            s.word[kLow] = min(s.word[kLow], s.word[kLeast]);
    }
    if (thread_index() == 0) record[0] = bound, record[1] = (u64)s.word[kHigh] << 32 | s.word[kLow];
}

// True in the CTA that ends the row: every record is then to be seen.
QN_DEVICE bool is_last_share(const indexer_params &p, i64 row, const Select &s)
{
    __syncthreads();
    if (thread_index() == 0) {
        fence_device();
        s.word[kTicket] = atomic_increment_wrapped(reinterpret_cast<u32 *>(p.workspace) + row, kShares - 1);
        fence_device();
        s.word[kHigh] = s.word[kLow] = 0;
    }
    __syncthreads();
    const bool last = s.word[kTicket] == kShares - 1;
    __syncthreads();
    return last;
}

// All records into shared memory. After it comes a barrier.
QN_DEVICE u32 load_records(const indexer_params &p, i64 row, const Shared &s)
{
    constexpr u32 kPairs = kRoom / 2;
    for (u32 i = thread_index(); i < kShares * kPairs; i += THREADS)
        cp_async_cg(s.select.item + 2 * i, record_of(p, row, i / kPairs) + 2 + i % kPairs * 2);
    for (u32 i = thread_index(); i < kShares; i += THREADS) {
        const u64 *record = record_of(p, row, i);
        const u64 extremes = load_l2(record + 1);
        s.bound[i] = load_l2(record);
        atomicMax(&s.select.word[kHigh], (u32)(extremes >> 32));
        atomicMax(&s.select.word[kLow], (u32)extremes);
    }
    cp_async_wait_all();
    return kShares * kRoom;
}

// Whether no share left out what comes before the last of `found` winners. Every thread gets the same.
QN_DEVICE bool records_suffice(const Shared &s, u32 found, u32 wanted)
{
    __syncthreads();
    const u64 last = found ? (u64)s.select.word[kLast] << 32 | s.select.word[kLastLow] : 0;
    bool short_of = found < wanted;
    for (u32 i = thread_index(); i < kShares; i += THREADS) short_of |= s.bound[i] > last;
    return !block_any(short_of);
}

extern "C" __global__ void __launch_bounds__(THREADS, MIN_CTAS) QN_ENTRY(const __grid_constant__ indexer_params p)
{
    const Shared s = shared_pieces();
    const u32 most = kShares > 1 ? (u32)p.shares : 1u;
    const Row row = row_of(p, blockIdx.x / most);
    const u32 wanted = min((u32)K, row.results);
    Scan scan = {};
#pragma unroll 1
    for (u32 shares = most;; shares = 1) {
        const bool again = shares != most;
        const Share share = share_of(row, again ? 0u : blockIdx.x % most, shares);
        u32 n = run_share(p, s, share, shares > 1 ? (u32)LOCAL_K : (u32)K, !again, scan);
        if (shares > 1) {
            store_record(p, share, s.select, scan, n);
            if (!is_last_share(p, row.number, s.select)) return;
            n = load_records(p, row.number, s);
        }
        const u32 found = finish_row(p, row, s.select, n, wanted);
        if (shares == 1 || records_suffice(s, found, wanted)) return;
    }
}
