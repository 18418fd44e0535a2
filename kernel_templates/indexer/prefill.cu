// SPDX-License-Identifier: Apache-2.0
// indexer, plan "prefill": many rows of queries a sequence. A CTA takes ROWS neighbouring rows at a time, keys are decoded
// once for all of them (group_rows.cuh), and each warp then selects for one row (row_select.cuh).
//
//   sample   512 entries spread over the next `chunk`, scored first: a cut for each row
//   scores   of all entries of the chunk; those from the cut on into the row's list in the CTA's memory
//   select   each row's first K of its list and of what it kept of earlier chunks; to the outputs where they were the last
//   again    where that did not serve: all scores into the tile, which is the lists' memory, and the selection by digits
//
// So memory is a tile a resident CTA, whatever the length. Two CTAs an SM: one's products run while the other selects. Rows
// of a group that are of another sequence are done one sequence after another. The last rows, which are the longest under a
// causal limit, come first.
//
// Prologue, besides problem.cuh's: ROWS, LIST_BYTES (as the host counted them), and CAP (for select.cuh's checks only).
#include "group_rows.cuh"
#include "row_select.cuh"

enum { kRunFirst, kRunBegin, kRunEnd, kRunWords };

struct Shared {
    Group group;
    u32 *run;      // [kRunWords]: the group's first row; of it, the rows of one sequence, which are done now
    u32 *sequence; // [kGroupRows]
    u32 *slow;     // [kGroupRows], 1: the row is left to the whole CTA
    uint4 *range;  // [kGroupRows]: the cut, entries of the chunk that the row has, two numbers of the bins
    u32 *found;    // [kGroupRows]: how many scores reached the cut
};

constexpr u32 kSelectAt =
    (kQueryVectors + kWeightVectors + kGroupRows) * 16 + 4 * (5 * kGroupRows + 1 + kMosts + kRunWords);
constexpr u32 kSelectFrom = (kSelectAt + 15) / 16 * 16;
static_assert(kSamples * 4 <= kRowBins * 2, "samples lie where bins do later");
constexpr u32 kRowBinBytes = kGroupRows * kRowBins * 2, kSlowBytes = 8 * kSorted + 4 * (kBins + kWarps + kWords);

static_assert(SHARED_BYTES == kSelectFrom + (kRowBinBytes > kSlowBytes ? kRowBinBytes : kSlowBytes),
              "SHARED_BYTES: as ops/indexer_prefill.c counts it");

QN_DEVICE Shared shared_pieces()
{
    QN_SHARED_FIRST;
    QN_SHARED_ARRAY(uint4, query, kQueryVectors);
    QN_SHARED_ARRAY(float4, weight, kWeightVectors);
    QN_SHARED_ARRAY(uint4, range, kGroupRows);
    QN_SHARED_ARRAY(u32, length, kGroupRows);
    QN_SHARED_ARRAY(u32, odd, kGroupRows + 1);
    QN_SHARED_ARRAY(u32, sequence, kGroupRows);
    QN_SHARED_ARRAY(u32, slow, kGroupRows);
    QN_SHARED_ARRAY(u32, found, kGroupRows);
    QN_SHARED_ARRAY(u32, most, kMosts);
    QN_SHARED_ARRAY(u32, run, kRunWords);
    return Shared{{query, weight, length, most, run + kRunFirst, odd}, run, sequence, slow, range, found};
}
QN_DEVICE Group group_pieces()
{
    return shared_pieces().group;
}

// Three uses of the same memory, a barrier between them.
QN_DEVICE float *row_samples()
{
    QN_SHARED_FROM(kSelectFrom);
    QN_SHARED_ARRAY(float, sample, kGroupRows *kSamples);
    return sample;
}
QN_DEVICE u32 *row_bins()
{
    QN_SHARED_FROM(kSelectFrom);
    QN_SHARED_ARRAY(uint4, bins, kRowBinBytes / 16); // pieces of a list lie there too
    return reinterpret_cast<u32 *>(bins);
}
QN_DEVICE Select select_pieces()
{
    QN_SHARED_FROM(kSelectFrom);
    QN_SHARED_ARRAY(u64, sorted, kSorted);
    QN_SHARED_ARRAY(u32, bins, kBins);
    QN_SHARED_ARRAY(u32, scratch, kWarps);
    QN_SHARED_ARRAY(u32, word, kWords);
    return Select{nullptr, sorted, bins, scratch, word};
}

// ---- the CTA's memory: scores of each row or what was found, its list, what it kept

constexpr u32 kLongTile = INDEXER_LONG_TILE;
constexpr u32 kListBytes = 8 * (kListPlaces + (K + 1) / 2 * 2); // of a row: its list, what it kept
static_assert(kListBytes == LIST_BYTES, "the sizes of ops/indexer_prefill.c");

QN_DEVICE u32 tile_pitch(const indexer_params &p) // floats a row: as many candidates as a short chunk has entries
{
    return min(2 * (u32)p.chunk, max((u32)p.chunk, kLongTile));
}

QN_DEVICE float *tile_of(const indexer_params &p)
{
    const u64 row_bytes = (u64)tile_pitch(p) * 4 + kListBytes;
    return reinterpret_cast<float *>(p.workspace + (u64)blockIdx.x * kGroupRows * row_bytes);
}

QN_DEVICE RowTask task_of(const indexer_params &p, u32 row, u32 length, u32 base)
{
    float *tile = tile_of(p);
    u64 *lists = reinterpret_cast<u64 *>(tile + kGroupRows * (u64)tile_pitch(p));
    RowTask t;
    t.score = tile + row * (u64)tile_pitch(p);
    t.found = reinterpret_cast<const u64 *>(t.score);
    t.sample = row_samples() + row * kSamples;
    t.list = lists + row * kListPlaces;
    t.kept = lists + kGroupRows * kListPlaces + row * ((K + 1) / 2 * 2);
    t.bins = row_bins() + row * (kRowBins / 2);
    t.base = base, t.n = min(length - base, (u32)p.chunk);
    t.sampled = 0;
    t.found_count = 0;
    t.kept_count = base ? K : 0;
    t.need = min((u32)K, t.n + t.kept_count);
    t.last = base + t.n == length;
    return t;
}

// ---- where scores go

struct SampleSink {
    float *sample;
    QN_DEVICE void put(u32 row, u32 at, float score, bool fits) const
    {
        sample[row * kSamples + at] = fits ? score : not_a_number();
    }
    QN_DEVICE void put_rows(u32 first, u32 at, const float (&score)[kRowPairs], bool fits) const
    {
#pragma unroll
        for (u32 i = 0; i < kRowPairs; i++) put(first + 2 * i, at, score[i], fits);
    }
};

struct RowSink { // scores from the cut on; again: all of them, row after row. What can be made again is not kept
    const indexer_params *p;
    u32 base; // the chunk's first entry
    bool again;
    QN_DEVICE uint2 cut_of(u32 row) const { return *reinterpret_cast<const uint2 *>(shared_pieces().range + row); }
    QN_DEVICE bool wants_odd() const { return again; }
    QN_DEVICE void find(u32 row, u32 at, float score) const
    {
        const uint2 cut = cut_of(row);
        if (!(score >= __uint_as_float(cut.x)) || at >= cut.y) return;
        const u32 place = atomicAdd(&shared_pieces().found[row], 1u), pitch = tile_pitch(*p);
        u64 *found = reinterpret_cast<u64 *>(tile_of(*p) + (u64)row * pitch);
        if (place < pitch / 2) found[place] = candidate(key_of(score), base + at);
    }
    QN_DEVICE void put_exact(u32 row, u32 at, float score) const
    {
        if (again)
            tile_of(*p)[(u64)row * tile_pitch(*p) + at] = score;
        else
            find(row, at, score);
    }
    QN_DEVICE void put(u32 row, u32 at, float score, bool fits) const
    {
        if (fits) put_exact(row, at, score);
    }
    // Rows first, first + 2, …: all that need to be waited for once.
    QN_DEVICE void put_rows(u32 first, u32 at, const float (&score)[kRowPairs], bool fits) const
    {
        if (again) {
#pragma unroll
            for (u32 i = 0; i < kRowPairs; i++) put_exact(first + 2 * i, at, score[i]);
            return;
        }
        const u32 lane = lane_index(), mine = 0x33333333u << (lane & 2); // lanes with the same rows
        u32 who[kRowPairs], any = 0, place = 0;
#pragma unroll
        for (u32 i = 0; i < kRowPairs; i++) {
            const uint2 cut = cut_of(first + 2 * i);
            const bool wanted = fits & (score[i] >= __uint_as_float(cut.x)) & (at < cut.y);
            who[i] = __ballot_sync(kFullMask, wanted);
            any |= who[i];
        }
        if (any == 0) return;
        u32 count_of = who[0]; // lane 4 i + 2 h, h 0 or 1, counts row 2 i + h
#pragma unroll
        for (u32 i = 1; i < kRowPairs; i++) count_of = lane / 4 == i ? who[i] : count_of;
        if (lane < 4 * kRowPairs && lane % 2 == 0)
            place = atomicAdd(&shared_pieces().found[lane / 2], (u32)__popc(count_of & mine));
        const u32 pitch = tile_pitch(*p);
        u64 *found = reinterpret_cast<u64 *>(tile_of(*p) + (u64)first * pitch);
        const u32 below = mine & ((1u << lane) - 1);
#pragma unroll
        for (u32 i = 0; i < kRowPairs; i++, found += pitch) {
            const u32 to = __shfl_sync(kFullMask, place, (i32)(4 * i + (lane & 2))) + (u32)__popc(who[i] & below);
            if ((who[i] >> lane & 1) != 0 && to < pitch / 2) found[to] = candidate(key_of(score[i]), base + at);
        }
    }
};

// ---- rows of one sequence: first + begin … first + end - 1

QN_DEVICE bool has_row(const Shared &s, u32 base) // this warp
{
    const u32 mine = warp_index();
    return mine >= s.run[kRunBegin] && mine < s.run[kRunEnd] && s.group.length[mine] > base;
}

// Each warp the range of a row, from a sample over `sampled` entries. Begins and ends in a barrier.
QN_NOINLINE void find_ranges(const indexer_params &p, u32 base, u32 sampled)
{
    const Shared s = shared_pieces();
    const u32 mine = warp_index();
    Range range = {not_a_number(), Scale{0.f, 0.f}};
    u32 n = 0;
    __syncthreads();
    if (has_row(s, base)) {
        RowTask t = task_of(p, mine, s.group.length[mine], base);
        t.sampled = sampled;
        range = find_range(t), n = t.n;
    }
    if (lane_index() == 0) {
        s.range[mine] = make_uint4(__float_as_uint(s.group.odd[mine] ? not_a_number() : range.low), n,
                                   __float_as_uint(range.by.high), __float_as_uint(range.by.scale));
        s.found[mine] = 0;
    }
    __syncthreads();
}

// Each warp for a row. Begins and ends in a barrier; true: some row is left to the whole CTA.
QN_NOINLINE bool select_rows(const indexer_params &p, u32 base)
{
    const Shared s = shared_pieces();
    const u32 mine = warp_index(), length = s.group.length[mine];
    bool done = true;
    __syncthreads();
    if (has_row(s, base)) {
        const uint4 r = s.range[mine];
        const Range range = {__uint_as_float(r.x), Scale{__uint_as_float(r.z), __uint_as_float(r.w)}};
        const u32 found = s.found[mine];
        done = !s.group.odd[mine] && found <= tile_pitch(p) / 2 &&
               select_row(p, s.run[kRunFirst], mine, length, base, found, range);
    }
    if (mine >= s.run[kRunBegin] && mine < s.run[kRunEnd] && base == 0 && length < K)
        pad_row(p, row_named((i64)s.run[kRunFirst] + mine, length), length);
    if (lane_index() == 0) s.slow[mine] = done ? 0u : 1u;
    return block_any(!done);
}

// The rows that were left, from all their scores. Begins and ends in a barrier.
QN_NOINLINE void select_again(const indexer_params &p, u32 base)
{
    const Shared s = shared_pieces();
    __syncthreads();
#pragma unroll 1
    for (u32 i = s.run[kRunBegin]; i < s.run[kRunEnd]; i++)
        if (s.slow[i]) select_slowly(p, s.run[kRunFirst], i, s.group.length[i], base);
    __syncthreads();
}

QN_DEVICE void do_run(const indexer_params &p, const Shared &s)
{
    if (thread_index() < kGroupRows) {
        const u32 i = thread_index();
        const bool inside = i >= s.run[kRunBegin] && i < s.run[kRunEnd];
        s.group.length[i] = inside ? row_of(p, (i64)s.run[kRunFirst] + i).length : 0u;
    }
    __syncthreads();
    if (thread_index() < kMosts) {
        u32 most = 0;
#pragma unroll
        for (u32 i = 0; i < kMostRows; i++) most = max(most, s.group.length[thread_index() * kMostRows + i]);
        s.group.most[thread_index()] = most;
    }
    __syncthreads();
    Row row = row_of(p, (i64)s.run[kRunFirst] + s.run[kRunBegin]);
    row.length = 0;
    for (u32 i = 0; i < kMosts; i++) row.length = max(row.length, s.group.most[i]);
#pragma unroll 1
    for (u32 base = 0;; base += (u32)p.chunk) {
        const u32 count = min(row.length - base, (u32)p.chunk);
        if (count) score_spread<kSamples>(p, s.group, row, base, count, SampleSink{row_samples()});
        find_ranges(p, base, count);
        RowSink sink = {&p, base, false};
#pragma unroll 1
        for (;;) {
            score_entries(p, s.group, row, base, count, sink);
            if (sink.again || !select_rows(p, base)) break;
            sink.again = true;
        }
        if (sink.again) select_again(p, base);
        if (base + count == row.length) return;
    }
}

// The group's next run after row `begin`, or an empty one. By one thread.
QN_DEVICE void find_run(const indexer_params &p, const Shared &s, u32 begin)
{
    const u32 count = min(kGroupRows, (u32)p.rows - s.run[kRunFirst]);
    u32 end = begin;
    while (end < count && s.sequence[end] == s.sequence[begin]) end++;
    s.run[kRunBegin] = begin, s.run[kRunEnd] = end;
}

extern "C" __global__ void __launch_bounds__(THREADS, MIN_CTAS) QN_ENTRY(const __grid_constant__ indexer_params p)
{
    const Shared s = shared_pieces();
    const u32 groups = ((u32)p.rows + kGroupRows - 1) / kGroupRows;
#pragma unroll 1
    for (u32 turn = blockIdx.x; turn < groups;) {
        const u32 first = (groups - 1 - turn) * kGroupRows, i = thread_index();
        if (i <= kGroupRows) s.group.odd[i] = p.keys_aligned ? 0u : 1u;
        if (i < kGroupRows) s.sequence[i] = ROW_SEQ && first + i < (u32)p.rows ? (u32)__ldg(p.row_seq + first + i) : 0u;
        if (i == 0) s.run[kRunFirst] = first;
        __syncthreads();
        prepare_group(p, s.group, first);
        if (thread_index() == 0) find_run(p, s, 0);
        __syncthreads();
#pragma unroll 1
        while (s.run[kRunBegin] < s.run[kRunEnd]) {
            do_run(p, s);
            if (thread_index() == 0) find_run(p, s, s.run[kRunEnd]);
            __syncthreads();
        }
        turn = groups - 1 - s.run[kRunFirst] / kGroupRows; // no register keeps it meanwhile
        // Every second round the other way, so that long and short groups even out.
        turn += 2 * gridDim.x - 1 - turn % gridDim.x * 2;
        __syncthreads();
    }
}
