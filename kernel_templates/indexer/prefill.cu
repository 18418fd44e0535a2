// SPDX-License-Identifier: Apache-2.0
// indexer, plan "prefill": many rows of queries a sequence. A CTA takes ROWS neighbouring rows at a time, keys are decoded
// once for all of them (group_score.cuh), and each warp then selects for one row (row_select.cuh).
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
// Prologue, besides problem.cuh's: ROWS, and CAP (for select.cuh's checks only).
#include "group_score.cuh"
#include "row_select.cuh"

enum { kRunFirst, kRunBegin, kRunEnd, kRunWords };

struct Shared {
    Group group;
    u32 *run;      // [kRunWords]: the group's first row; of it, the rows of one sequence, which are done now
    u32 *sequence; // [kGroupRows]
    u32 *slow;     // [kGroupRows], 1: the row is left to the whole CTA
    uint4 *range;  // [kGroupRows]: the cut, then the bins' two numbers; entries of the chunk that the row has
    u32 *found;    // [kGroupRows]: how many scores reached the cut
};

constexpr u32 kSelectAt =
    (kQueryVectors + kWeightVectors + kGroupRows) * 16 + 4 * (5 * kGroupRows + 1 + kParts + kRunWords);
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
    QN_SHARED_ARRAY(u32, most, kParts);
    QN_SHARED_ARRAY(u32, run, kRunWords);
    return Shared{{query, weight, length, most, odd}, run, sequence, slow, range, found};
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
    QN_SHARED_ARRAY(u32, bins, kRowBinBytes / 4);
    return bins;
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

constexpr u32 kLongTile = 16384;

QN_DEVICE u32 tile_pitch(const indexer_params &p) // floats a row: as many candidates as a short chunk has entries
{
    return min(2 * (u32)p.chunk, max((u32)p.chunk, kLongTile));
}

QN_DEVICE float *tile_of(const indexer_params &p)
{
    const u64 row_bytes = (u64)tile_pitch(p) * 4 + 8 * (u64)(kListPlaces + (K + 1) / 2 * 2);
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
};

struct RowSink { // scores from the cut on; again: all of them, row after row
    bool again;
    const uint4 *range;
    const u32 *odd;
    u32 *count;
    float *tile;
    u32 pitch, base; // floats a row; the chunk's first entry
    QN_DEVICE void find(u32 row, u32 at, float score) const
    {
        const uint4 r = range[row];
        if (!(score >= __uint_as_float(r.x)) || at >= r.w) return;
        const u32 place = atomicAdd(&count[row], 1u);
        u64 *found = reinterpret_cast<u64 *>(tile + (u64)row * pitch);
        if (place < pitch / 2) found[place] = candidate(key_of(score), base + at);
    }
    QN_DEVICE void put_exact(u32 row, u32 at, float score) const
    {
        if (again)
            tile[(u64)row * pitch + at] = score;
        else
            find(row, at, score);
    }
    QN_DEVICE void put(u32 row, u32 at, float score, bool fits) const
    {
        if (again || (fits && !odd[row])) put_exact(row, at, score);
    }
};

// ---- rows of one sequence: first + begin … first + end - 1

QN_DEVICE bool has_row(const Shared &s, u32 base) // this warp
{
    const u32 mine = warp_index();
    return mine >= s.run[kRunBegin] && mine < s.run[kRunEnd] && s.group.length[mine] > base;
}

// Each warp the range of a row, from a sample over `sampled` entries. Begins and ends in a barrier.
QN_DEVICE void find_ranges(const indexer_params &p, const Shared &s, u32 base, u32 sampled)
{
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
        s.range[mine] =
            make_uint4(__float_as_uint(range.low), __float_as_uint(range.by.high), __float_as_uint(range.by.scale), n);
        s.found[mine] = 0;
    }
    __syncthreads();
}

// Each warp for a row. Begins and ends in a barrier; true: some row is left to the whole CTA.
QN_DEVICE bool select_rows(const indexer_params &p, const Shared &s, u32 base)
{
    const u32 mine = warp_index(), length = s.group.length[mine];
    bool done = true;
    __syncthreads();
    if (has_row(s, base)) {
        const uint4 r = s.range[mine];
        const Range range = {__uint_as_float(r.x), Scale{__uint_as_float(r.y), __uint_as_float(r.z)}};
        const u32 found = s.found[mine];
        done = found <= tile_pitch(p) / 2 && select_row(p, s.run[kRunFirst], mine, length, base, found, range);
    }
    if (mine >= s.run[kRunBegin] && mine < s.run[kRunEnd] && base == 0 && length < K)
        pad_row(p, row_named((i64)s.run[kRunFirst] + mine, length), length);
    if (lane_index() == 0) s.slow[mine] = done ? 0u : 1u;
    return block_any(!done);
}

// The rows that were left, from all their scores. Begins and ends in a barrier.
QN_DEVICE void select_again(const indexer_params &p, const Shared &s, u32 base)
{
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
    if (thread_index() < kParts) {
        u32 most = 0;
#pragma unroll
        for (u32 i = 0; i < kPart; i++) most = max(most, s.group.length[thread_index() * kPart + i]);
        s.group.most[thread_index()] = most;
    }
    __syncthreads();
    Row row = row_of(p, (i64)s.run[kRunFirst] + s.run[kRunBegin]);
    row.length = 0;
    for (u32 i = 0; i < kParts; i++) row.length = max(row.length, s.group.most[i]);
#pragma unroll 1
    for (u32 base = 0;; base += (u32)p.chunk) {
        const u32 count = min(row.length - base, (u32)p.chunk);
        if (count) score_spread<kSamples>(p, s.group, row, base, count, SampleSink{row_samples()});
        find_ranges(p, s, base, count);
        RowSink sink = {false, s.range, s.group.odd, s.found, tile_of(p), tile_pitch(p), base};
#pragma unroll 1
        for (;;) {
            score_entries(p, s.group, row, s.run[kRunFirst], base, count, sink);
            if (sink.again || !select_rows(p, s, base)) break;
            sink.again = true;
        }
        if (sink.again) select_again(p, s, base);
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
    for (u32 turn = blockIdx.x; turn < groups; turn += gridDim.x) {
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
    }
}
