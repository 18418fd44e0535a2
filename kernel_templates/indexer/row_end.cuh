// SPDX-License-Identifier: Apache-2.0
// The end of a row that several CTAs scored: what they left in memory becomes winners, in parts. The CTAs that come last take
// a part each: the first knows nothing of the others but that all is there, so nothing is exchanged.
//
//   ticket  counts CTAs. The last `parts` of them get a part by their number, and wait until all came
//   probes  64 of the candidates, ranked: every CTA finds the same. Two of them are its part's bounds, in the order of keys
//   filter  each CTA goes through all candidates: those above its part are counted, since that is its first winner's rank,
//           those in it are kept
//   end     bins, scatter and ranks of those few (finish.cuh)
//
// No CTA depends on one that waits: who has waited too long marks its part in the ticket and leaves, and the last one, which
// waits for nobody, does all parts that are marked. Where not all CTAs are resident at once the host asks for one part.
#pragma once

#include "share.cuh"

constexpr u32 kMostParts = 16;  // ops/indexer.c: MOST_PARTS
constexpr u32 kMostPolls = 256; // of a CTA that waits

static_assert(kMostParts <= 24 && SHARES < 256, "a ticket: CTAs in the low byte, a bit a part above");

// ---- who does what

// Whether all CTAs came, or the last one has made the ticket 0 again.
QN_DEVICE bool all_came(u32 ticket)
{
    return (ticket & 0xFFu) % kShares == 0;
}

// By one thread, of a CTA that came early. The part, as a bit; 0: left to the last one.
QN_DEVICE u32 wait_for_all(u32 *ticket, u32 part)
{
    const u32 mark = 0x100u << part;
    bool ready = false;
    for (u32 polls = 0; !ready && polls < kMostPolls; polls++) ready = all_came(load_polled(ticket));
    if (ready) return 1u << part;
    if (!all_came(atomicAdd(ticket, mark))) return 0;
    (void)atomicAdd(ticket, 0u - mark); // it came meanwhile, and did not see the mark
    return 1u << part;
}

// The parts of this CTA, as bits, into kTicket; none: others do them. What end_part asks for is made beside. raw: a
// short row, else the share's record lacks its bound. Begins and ends in a barrier.
QN_DEVICE void take_ticket(const indexer_params &p, i64 row, u32 parts, bool raw, const Select &s)
{
    if (thread_index() == 0) {
        u32 *ticket = reinterpret_cast<u32 *>(p.workspace) + row;
        if (!raw) record_of(p, row, blockIdx.x % kShares)[0] = bound_of_record(s);
        fence_device();
        const u32 before = atomicAdd(ticket, 1u), number = before & 0xFFu;
        u32 mine = 0;
        if (number == kShares - 1) {
            mine = before >> 8 | 1u << (parts - 1);
            (void)atomicAdd(ticket, 0u - (before + 1));
        } else if (number + parts >= kShares) {
            mine = wait_for_all(ticket, number + parts - kShares);
        }
        fence_device();
        s.word[kTicket] = mine;
        clear_words(s);
    }
    clear_fine(s);
    __syncthreads();
}

// ---- what was left, in memory: n places of the row. A thread holds four words of every kVectors-th piece

struct ShortRow { // every score, in order, as bits_of has it
    typedef u32 Word;
    static constexpr bool kBounds = false; // nothing is left out
    static constexpr u32 kMost = kRawMost, kVectors = (kRawMost / 4 + THREADS - 1) / THREADS;
    const u32 *score;
    u32 n;

    // Of four places from 4 i on; where there is none, NaN.
    QN_DEVICE void load(u32 i, u32 *word) const
    {
        uint4 four = make_uint4(~0u, ~0u, ~0u, ~0u);
        if (4 * i + 4 <= n) four = *reinterpret_cast<const uint4 *>(score + 4 * i);
        word[0] = four.x, word[1] = four.y, word[2] = four.z, word[3] = four.w;
        if (QN_UNLIKELY(i == n / 4)) {
#pragma unroll
            for (u32 k = 0; k < 3; k++)
                if (k < n % 4) word[k] = score[4 * i + k];
        }
    }
    QN_DEVICE bool is_there(u32, u32 place) const
    {
        return place < n;
    }
    QN_DEVICE static u32 key(u32 word)
    {
        return key_of_bits(word);
    }
    QN_DEVICE static u64 item(u32 word, u32 place)
    {
        return candidate(key_of_bits(word), place);
    }
    QN_DEVICE u64 operator()(u32 i) const
    {
        return candidate(key_of_bits(score[i]), i);
    }
    QN_DEVICE u64 bound(u32) const
    {
        return 0;
    }
};

struct KeptRow { // records, one of each share
    typedef u64 Word;
    static constexpr bool kBounds = true;
    static constexpr u32 n = kShares * kRoom, kMost = n, kVectors = (n + 4 * THREADS - 1) / (4 * THREADS);
    const u8 *records;

    QN_DEVICE const u64 *record(u32 share) const
    {
        return reinterpret_cast<const u64 *>(records + share * kRecordBytes);
    }
    QN_DEVICE void load(u32 i, u64 *word) const
    {
#pragma unroll
        for (u32 k = 0; k < 4; k += 2) {
            const u32 pair = 2 * i + k / 2;
            uint4 two = make_uint4(0u, 0u, 0u, 0u);
            if (pair < n / 2)
                two = *reinterpret_cast<const uint4 *>(record(pair / (kRoom / 2)) + 2 + pair % (kRoom / 2) * 2);
            word[k] = (u64)two.y << 32 | two.x, word[k + 1] = (u64)two.w << 32 | two.z;
        }
    }
    QN_DEVICE static bool is_there(u64 word, u32)
    {
        return word != 0;
    }
    QN_DEVICE static u32 key(u64 word)
    {
        return candidate_key(word);
    }
    QN_DEVICE static u64 item(u64 word, u32)
    {
        return word;
    }
    QN_DEVICE u64 operator()(u32 i) const
    {
        return record(i / kRoom)[2 + i % kRoom];
    }
    QN_DEVICE u64 bound(u32 share) const
    {
        return record(share)[0];
    }
};

// Words on their way to a thread's registers.
template <class Items> struct Held {
    static constexpr u32 kWords = 4 * Items::kVectors;
    typename Items::Word word[kWords];
    QN_DEVICE void load(const Items &items)
    {
#pragma unroll
        for (u32 v = 0; v < Items::kVectors; v++) items.load(v * THREADS + thread_index(), word + 4 * v);
    }
    QN_DEVICE static u32 place(u32 j)
    {
        return 4 * (j / 4 * THREADS + thread_index()) + j % 4;
    }
};

// ---- a part's bounds

struct Part {
    u32 low, high; // keys: from low on, below high
    float step;    // how far the scores of some probes lie apart
    u64 bound;     // of all that records left out
};

constexpr u32 kNoKey = 0xFFFFFFFFu; // above all

QN_DEVICE u32 probe_at(const u32 *probe, u32 rank)
{
    if (rank == 0) return kNoKey;
    const u32 key = rank < kProbes ? probe[rank] : 0;
    return key < kKeyLeastFinite ? 0 : key; // 0: everything
}

constexpr u32 kManyParts = 4; // so many have few candidates each

// The rank among the probes where part i begins. Many parts share what lies above the cut evenly, of which some is below the
// last winner; few share the winners, and the last one goes down to the cut.
QN_DEVICE u32 rank_of_part(u32 n, u32 wanted, u32 i, u32 parts)
{
    if (i == parts || parts >= kManyParts) return min(rank_of_cut(n, wanted), kProbes) * i / parts;
    return (u32)((float)(wanted * kProbes * i) * reciprocal_ftz((float)(n * parts)));
}

// Every CTA of the row finds the same probes. Holds a barrier.
template <class Items> QN_DEVICE Part part_of(const Select &s, const Items &items, u32 number, u32 parts, u32 wanted)
{
    u32 *probe = reinterpret_cast<u32 *>(s.sorted);
    u64 *bounds = s.sorted + kProbes / 2; // of a warp's
    const u32 lane = lane_index();
    const u32 a = candidate_key(items(probed(lane, items.n))) / kProbes * kProbes | lane; // each another
    const u32 b = candidate_key(items(probed(lane + kWarp, items.n))) / kProbes * kProbes | (lane + kWarp);
    if constexpr (Items::kBounds) {
        const u32 share = thread_index();
        if (warp_index() < (kShares + kWarp - 1) / kWarp) {
            const u64 bound = share < kShares ? items.bound(share) : 0;
            const u32 high = warp_max((u32)(bound >> 32));
            const u32 low = warp_max((u32)(bound >> 32) == high ? (u32)bound : 0);
            if (lane == 0) bounds[warp_index()] = (u64)high << 32 | low;
        }
    }
#pragma unroll
    for (u32 j = 0; j < (kProbes + kWarps - 1) / kWarps; j++) {
        const u32 i = j * kWarps + warp_index();
        if (i >= kProbes) break;
        const u32 one = __shfl_sync(kFullMask, i < kWarp ? a : b, (i32)(i % kWarp));
        const u32 before = __ballot_sync(kFullMask, a > one), after = __ballot_sync(kFullMask, b > one);
        if (lane == 0) probe[__popc(before) + __popc(after)] = one / kProbes * kProbes;
    }
    __syncthreads();
    const u32 end = rank_of_part(items.n, wanted, number + 1, parts);
    Part part = {probe_at(probe, end), probe_at(probe, rank_of_part(items.n, wanted, number, parts)),
                 score_of(probe[0]) * 0.25f - score_of(probe[kProbes / 8]) * 0.25f, 0};
    if constexpr (Items::kBounds) {
#pragma unroll
        for (u32 i = 0; i < (kShares + kWarp - 1) / kWarp; i++) part.bound = max(part.bound, bounds[i]);
    }
    return part;
}

// ---- a part's candidates

// Those that lie in the part into shared memory, and how many lie above it and in it: kFound. Begins and ends in a barrier.
template <class Items>
QN_DEVICE void filter(const Select &s, const Items &items, const Held<Items> &held, const Part &part)
{
    const u32 width = part.high - part.low, bound = (u32)(part.bound >> 32), lane = lane_index();
    u32 above = 0, inside = 0, sure = 0, place = 0;
    bool mine[Held<Items>::kWords];
#pragma unroll
    for (u32 j = 0; j < Held<Items>::kWords; j++) {
        const u32 key = Items::key(held.word[j]);
        mine[j] = key - part.low < width && (part.low != 0 || items.is_there(held.word[j], Held<Items>::place(j)));
        above += key >= part.high, inside += mine[j];
        if (Items::kBounds) sure += key > bound;
    }
    const u32 until = warp_inclusive_sum(inside);
    above = warp_sum(above);
    if (lane == kWarp - 1) place = atomicAdd(&s.word[kFound], above << 16 | until);
    if constexpr (Items::kBounds) {
        sure = warp_sum(sure);
        if (lane == 0) (void)atomicAdd(&s.word[kSure], sure);
    }
    place = (__shfl_sync(kFullMask, place, kWarp - 1) & 0xFFFFu) + until - inside;
#pragma unroll
    for (u32 j = 0; j < Held<Items>::kWords; j++) {
        if (mine[j] && (kCapacity >= Items::kMost || place < kCapacity))
            s.item[place] = Items::item(held.word[j], Held<Items>::place(j));
        place += mine[j];
    }
    __syncthreads();
}

// Whether no share left out what comes before the last winner: the same in every CTA.
template <class Items> QN_DEVICE bool is_enough(const Select &s, const Items &items, u64 bound, u32 wanted)
{
    if (!Items::kBounds || s.word[kSure] >= wanted) return true; // with larger keys than the bound
    Held<Items> held;
    u32 count = 0;
    held.load(items);
    __syncthreads();
    if (thread_index() == 0) s.word[kSure] = 0;
#pragma unroll
    for (u32 j = 0; j < Held<Items>::kWords; j++) count += held.word[j] != 0 && held.word[j] >= bound;
    count = warp_sum(count);
    __syncthreads();
    if (lane_index() == 0) (void)atomicAdd(&s.word[kSure], count);
    __syncthreads();
    return s.word[kSure] >= wanted;
}

constexpr u32 kMostFew = kCapacity / 2 - kBatch; // so that the padding of the items stays clear of their notes
constexpr u32 kFewItems = kSorted < kMostFew ? kSorted : kMostFew;

// Bins for a part's candidates.
QN_DEVICE Range range_of_part(const Part &part, u32 count, bool many)
{
    if (part.low == 0 || (part.high != kNoKey && part.high > kKeyMostFinite))
        return range_of_all(KeptItems{select_pieces().item}, count);
    const u32 bins = many ? kFewBins : kFineBins, even = many ? kFewShift : kEvenShift;
    const float low = score_of(part.low), width = part.high == kNoKey ? part.step : score_of(part.high) - low;
    const float inverse = width > 0.f ? reciprocal_ftz(width) : 1.f;
    if (part.high == kNoKey) return make_range(-infinity(), low, inverse, even + 3, bins);
    return make_range(-infinity(), low, 0.9999f * inverse, even, bins);
}

QN_DEVICE u32 scan_part(const Select &s, const Range &range, u32 need)
{
    return range.top + 1 == kFewBins ? scan_fine<kFewEach>(s, need) : scan_fine(s, need);
}

// The first `need` of up to kFewItems kept items, in order: each one's count in its bin is also its place there. False where a
// bin has too many; then the bins are clear again.
QN_DEVICE bool put_few(const Select &s, const Output &to, const Range &range, u32 count, u32 need)
{
    uint2 *notes = reinterpret_cast<uint2 *>(s.item + kCapacity - kFewItems); // of an item: its bin, its place there
    bool crowded = false;
#pragma unroll 1
    for (u32 i = thread_index(); i < count; i += THREADS) {
        const u32 bin = fine_bin(range, KeptItems::score(s.item[i])), before = atomicAdd(&s.bins[bin], 1u);
        notes[i] = make_uint2(bin, before);
        crowded |= before >= kMostInBin;
    }
    if (QN_UNLIKELY(block_any(crowded))) {
        clear_fine(s);
        __syncthreads();
        return false;
    }
    (void)scan_part(s, range, count);
#pragma unroll 1
    for (u32 i = thread_index(); i < count; i += THREADS) s.sorted[s.bins[notes[i].x] + notes[i].y] = s.item[i];
    __syncthreads();
#pragma unroll 1
    for (u32 i = thread_index(); i < count; i += THREADS) {
        const u32 bin = notes[i].x, first = s.bins[bin], end = bin > 0 ? s.bins[bin - 1] : count;
        const u64 item = s.item[i];
        u32 rank = first;
        if (first >= need) continue;
#pragma unroll 1
        for (u32 j = first; j < end; j++) rank += s.sorted[j] > item;
        if (rank < need) store_winner(to, rank, item);
    }
    return true;
}

template <class Items> struct PartItems { // of all places, those of the part
    Items items;
    u32 low, width;
    QN_DEVICE u64 operator()(u32 i) const
    {
        const u64 item = items(i);
        return candidate_key(item) - low < width ? item : 0;
    }
};

// Part `number` of the row's winners to the outputs, the last part's CTA the padding too. False: what was left does not tell
// the winners; then no part writes. Before it, since a barrier: as take_ticket leaves it.
template <class Items> QN_NOINLINE bool end_part(Output to, Items items, u32 number, u32 parts, u32 wanted)
{
    const Select s = select_pieces();
    if (wanted == 0) {
        if (number + 1 == parts) pad_winners(to, 0);
    } else {
        Held<Items> held;
        held.load(items);
        Part part = part_of(s, items, number, parts, wanted);
        filter(s, items, held, part);
        if (number + 1 == parts && part.low != 0 && (s.word[kFound] >> 16) + (s.word[kFound] & 0xFFFFu) < wanted) {
            part.low = 0; // the cut was too high
            __syncthreads();
            if (thread_index() == 0) s.word[kFound] = s.word[kSure] = 0;
            __syncthreads();
            held.load(items);
            filter(s, items, held, part);
        }
        if (!is_enough(s, items, part.bound, wanted)) return false;
        const u32 first = s.word[kFound] >> 16, count = s.word[kFound] & 0xFFFFu;
        const u32 need = first < wanted ? min(count, wanted - first) : 0;
        if (number + 1 == parts) pad_winners(to, wanted);
        const Output mine = {to.indices + first, SCORES ? to.scores + first : nullptr};
        if (kCapacity < Items::kMost && count > kCapacity) {
            const PartItems<Items> all = {items, part.low, part.high - part.low};
            if (need > 0) put_slowly(mine, all, items.n, need);
        } else if (need > 0) {
            pad_items(s, count);
            const Range range = range_of_part(part, count, parts >= kManyParts);
            if (count <= kFewItems && put_few(s, mine, range, count, need)) return true;
            __syncthreads();
            count_fine(s, range, KeptItems{s.item}, count);
            __syncthreads();
            (void)scan_part(s, range, need);
            put_winners(mine, KeptItems{s.item}, range, count, need);
        }
    }
    return true;
}

// The parts of this CTA, one after another. False in one CTA of the row: as end_part.
template <class Items> QN_DEVICE bool end_parts(const Output &to, const Items &items, u32 mine, u32 parts, u32 wanted)
{
#pragma unroll 1
    for (;;) {
        if (!end_part(to, items, (u32)__ffs((i32)mine) - 1, parts, wanted)) return mine >> (parts - 1) == 0;
        mine &= mine - 1;
        if (mine == 0) return true;
        begin_finish(select_pieces(), 0);
    }
}
