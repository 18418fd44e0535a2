// SPDX-License-Identifier: Apache-2.0
// The end of a row by all CTAs that scored it, at once: each finds the places of its own entries among those of all. All CTAs
// of the launch are expected to be resident at once; where they are not, it takes longer (below), and the result is the same.
//
//   publish  what others need of a share lies in the workspace as words that are 0 until they came: neither fence nor counter
//            nor a second round trip is needed
//   sort     the CTA's own, while the others' words are on their way; their keys become a search tree
//   search   for each foreign word: how many of the CTA's own come before it. Counts of that, summed up, are the ranks
//
// Of a row of up to 8,192 results and 16 shares or more, all scores are published (end_by_scores). Else each share's first
// LOCAL_K, in order (end_by_lists): if those that are not below the largest of the lists' last ones are enough, nothing that was
// left out wins. All CTAs count the same; if they are not enough, the first one goes through the row by itself.
//
// Two areas in turn: a launch clears what the one before it left in the other. No CTA depends on one that waits: who has waited
// too long notes that in the launch's word and leaves, and the last CTA, all others having published, then ends all rows.
#pragma once

#include "share.cuh"

constexpr u32 kMostPolls = 256;                      // of a CTA that waits
constexpr u32 kList = (LOCAL_K + 1) / 2 * 2;         // places of a share's list
constexpr u64 kListBytes = 8 * (u64)kShares * kList; // of a row's lists
constexpr u64 kMetBytes = kScoresMeet && kListBytes < 4 * kRawMost ? 4 * kRawMost : kListBytes; // of a row

// ---- the workspace: the launch's words, two areas

// The last four of the tickets: nothing, bytes that were used of each area, and the launch's: CTAs that came in the low byte,
// those that left above it, the number of launches in the high half.
QN_DEVICE u32 *meeting_words(const indexer_params &p)
{
    return reinterpret_cast<u32 *>(p.workspace) + kTickets - 4;
}
QN_DEVICE u8 *meeting_area(const indexer_params &p, u32 launch)
{
    return p.workspace + kTickets * 4 + (launch & 1) * (u64)((STATE_BYTES - kTickets * 4) / 2);
}
QN_DEVICE u8 *meeting_row(const indexer_params &p, u32 launch, i64 row)
{
    return meeting_area(p, launch) + row * kMetBytes;
}

// By one thread, before anything of the row is known.
QN_DEVICE uint4 load_meeting(const indexer_params &p)
{
    return load_polled(reinterpret_cast<const uint4 *>(meeting_words(p)));
}
QN_DEVICE void tell_meeting(const Select &s, const uint4 &words)
{
    const u32 launch = words.w >> 16;
    s.word[kTicket] = launch;
    s.word[kLast] = launch & 1 ? words.y : words.z; // of the other area
}

// After a barrier.
QN_DEVICE void clear_other_area(const indexer_params &p, const Select &s)
{
    const u32 vectors = s.word[kLast] / 16;
    uint4 *to = reinterpret_cast<uint4 *>(meeting_area(p, s.word[kTicket] + 1));
#pragma unroll 1
    for (u32 i = blockIdx.x * THREADS + thread_index(); i < vectors; i += gridDim.x * THREADS)
        to[i] = make_uint4(0, 0, 0, 0);
}

// What the end of a row needs, by value: a function of its own would read parameters from memory.
struct Met {
    u8 *row;     // what was published of it
    u32 *launch; // its words
    Output to;
    u32 number, wanted; // the launch's; winners
};
QN_DEVICE Met met_of(const indexer_params &p, const Select &s, i64 number)
{
    const u32 launch = s.word[kTicket];
    return Met{meeting_row(p, launch, number), meeting_words(p), output_of(p, number), launch,
               min((u32)K, s.word[kResults])};
}

// By one thread of each CTA, after it has published.
QN_DEVICE u32 come(const Met &m)
{
    return atomicAdd(m.launch + 3, 1u);
}
QN_DEVICE bool all_came(const u32 word)
{
    return (word & 0xFFu) % gridDim.x == 0;
}
// Which CTAs left, a word each.
QN_DEVICE u32 *left_words(u32 *launch_words)
{
    return launch_words - (kTickets / 2 - 4);
}

// By one thread of a CTA that has waited too long. False: the others came meanwhile.
QN_DEVICE bool may_leave(const Met &m)
{
    if (!all_came(atomicAdd(m.launch + 3, 0x100u))) {
        store_polled(left_words(m.launch) + blockIdx.x, 1u);
        return true;
    }
    (void)atomicAdd(m.launch + 3, 0u - 0x100u);
    return false;
}
// By the same thread, with what `come` returned: the last CTA makes the words of the next launch. Returns how many left, of the
// last one.
QN_DEVICE u32 close_meeting(const Met &m, u32 before)
{
    if ((before & 0xFFu) != gridDim.x - 1) return 0;
    store_polled(m.launch + 1 + (m.number & 1), (u32)(gridDim.x / kShares * kMetBytes));
    store_polled(m.launch + 1 + ((m.number & 1) ^ 1), 0u);
    (void)atomicAdd(m.launch + 3, 0x10000u - ((before & 0xFFFFu) + 1));
    return before >> 8 & 0xFFu;
}

// ---- a CTA's own keys as a search tree, and counts of what comes before them

template <u32 kLevels> struct Tree {
    static constexpr u32 kNodes = (1u << kLevels) - 1;
    static constexpr u32 kCounts = kNodes + 1 > kWarp ? kNodes + 1 : kWarp;
    u32 *node;  // [kNodes + 1], from 1 on, level by level
    u32 *count; // [kCounts]: foreign words with so many of these before them

    QN_DEVICE static u32 node_of(u32 rank)
    {
        const u32 t = rank + 1, below = (u32)__ffs((i32)t) - 1;
        return (1u << (kLevels - 1 - below)) + (t >> (below + 1));
    }
    QN_DEVICE void put(u32 rank, u32 word) const { node[node_of(rank)] = word; }
    // How many are larger than each word; all at once, since a step of one waits for its load.
    template <u32 kCount> QN_DEVICE void find(const u32 (&word)[kCount], u32 (&larger)[kCount]) const
    {
        const u8 *nodes = reinterpret_cast<const u8 *>(node);
        u32 at[kCount]; // in bytes
#pragma unroll
        for (u32 i = 0; i < kCount; i++) at[i] = 4;
#pragma unroll
        for (u32 level = 0; level < kLevels; level++) {
#pragma unroll
            for (u32 i = 0; i < kCount; i++)
                at[i] = 2 * at[i] + (*reinterpret_cast<const u32 *>(nodes + at[i]) > word[i] ? 4u : 0u);
        }
#pragma unroll
        for (u32 i = 0; i < kCount; i++) larger[i] = at[i] / 4 - (1u << kLevels);
    }
    QN_DEVICE void clear_counts() const
    {
#pragma unroll 1
        for (u32 i = thread_index(); i < kCounts; i += THREADS) count[i] = 0;
    }
};

// put(i, n) for the tree's i-th word, n: foreign ones before it. Begins after a barrier.
template <u32 kLevels, class Put> QN_DEVICE void for_ranks(const Select &s, const Tree<kLevels> &t, Put put)
{
    constexpr u32 kNodes = Tree<kLevels>::kNodes;
    if constexpr (kNodes < 8 * kWarp) { // a warp looks at all counts before its own
        const u32 i = thread_index(), lane = lane_index();
        if (warp_index() >= Tree<kLevels>::kCounts / kWarp) return;
        u32 before = 0;
#pragma unroll 1
        for (u32 c = 0; c < warp_index(); c++) before += t.count[c * kWarp + lane];
        before = warp_sum(before) + warp_inclusive_sum(t.count[i]);
        if (i < kNodes) put(i, before);
    } else {
        constexpr u32 kEach = (kNodes + THREADS) / THREADS;
        const u32 first = thread_index() * kEach;
        u32 mine = 0, total;
#pragma unroll
        for (u32 e = 0; e < kEach; e++)
            if (first + e < kNodes) mine += t.count[first + e];
        u32 before = block_exclusive_sum(mine, s.scratch, &total);
#pragma unroll
        for (u32 e = 0; e < kEach; e++)
            if (first + e < kNodes) t.count[first + e] = before += t.count[first + e];
        __syncthreads();
#pragma unroll 1
        for (u32 i = thread_index(); i < kNodes; i += THREADS)
            put(i, t.count[i]); // so that neighbours store to neighbours
    }
}

// ---- foreign words on their way

// Vectors v * THREADS + thread, those whose bit is set, until each word is there; what stays set did not come in time.
template <u32 kVectors> QN_DEVICE u32 poll_words(const uint4 *from, u32 missing, uint4 (&word)[kVectors])
{
    for (u32 polls = 0; missing && polls < kMostPolls; polls++) {
#pragma unroll
        for (u32 v = 0; v < kVectors; v++)
            if (missing >> v & 1) word[v] = load_polled(from + v * THREADS + thread_index());
#pragma unroll
        for (u32 v = 0; v < kVectors; v++)
            if (word[v].x && word[v].y && word[v].z && word[v].w) missing &= ~(1u << v);
    }
    return missing;
}

// Every thread, when some words of the CTA did not come. True: the CTA leaves. Begins after a barrier and ends in one.
QN_DEVICE bool leaves(const Met &m, const Select &s)
{
    if (thread_index() == 0) s.word[kCount] = may_leave(m);
    __syncthreads();
    return s.word[kCount] != 0;
}

enum Ended { kDone, kLeft, kShort }; // kShort: lists do not tell the winners

// ---- by scores

constexpr u32 kOwnUnits = (kRawMost / kUnitEntries + kShares - 1) / kShares;
constexpr u32 kOwn = kOwnUnits * kUnitEntries;                   // places of a share
constexpr u32 kSoMany = LOCAL_K < K ? LOCAL_K * 3 / 4 : LOCAL_K; // win of a share, but for few cases
constexpr u32 kScoreLevels = whole_log2(kSoMany < kOwn ? kSoMany : kOwn) + 1;
typedef Tree<kScoreLevels> ScoreTree;

static_assert(!kEndsTogether || kShares * kOwn == kRawMost, "places of a row");

QN_DEVICE u32 score_word(u64 item) // 0 is no word
{
    return item ? candidate_key(item) + 1 : 1;
}
QN_DEVICE u32 entry_of_place(u32 share, u32 place)
{
    const u32 local = place / kUnitEntries;
    return (local * kShares + ((share + 7 * local) & (kShares - 1))) * kUnitEntries + place % kUnitEntries;
}

constexpr u32 kNoWord = 0xFFFFFFFFu; // none is so large

struct Own {
    u32 *word;   // [kOwn], in the order of entries
    u32 *rank;   // [kOwn]
    u32 *place;  // [kNodes + 1]: of the tree's words
    u32 *sorted; // [kNodes + 1]: they in descending order, then kNoWord
    ScoreTree tree;
};
QN_DEVICE Own own_pieces()
{
    constexpr u32 kEach = ScoreTree::kNodes + 1;
    u32 *at = reinterpret_cast<u32 *>(select_pieces().item), *tree = at + 2 * kOwn;
    return Own{at, at + kOwn, tree, tree + kEach, {tree + 2 * kEach, tree + 3 * kEach}};
}

// Places of the share that it has no unit for. Before a barrier.
QN_DEVICE void begin_scores(const Own &o, u32 units, u32 *words)
{
#pragma unroll 1
    for (u32 i = thread_index(); i < kOwn; i += THREADS) {
        o.rank[i] = 0;
        if (i < units * kUnitEntries) continue;
        o.word[i] = 1;
        store_polled(words + i, 1u);
    }
}

// Ranks among the CTA's own, by counting; of equal ones the first comes first.
QN_DEVICE void rank_own(const Own &o)
{
    constexpr u32 kTeams = THREADS / kOwn > 0 ? THREADS / kOwn : 1, kEach = (kOwn / 4 + kTeams - 1) / kTeams;
#pragma unroll 1
    for (u32 i = thread_index(); i < kOwn * kTeams; i += THREADS) {
        const u32 e = i % kOwn, team = i / kOwn, mine = o.word[e];
        u32 rank[4] = {}; // so that not each waits for the one before
#pragma unroll 4
        for (u32 v = team * kEach; v < min((team + 1) * kEach, kOwn / 4); v++) {
            const uint4 four = reinterpret_cast<const uint4 *>(o.word)[v];
            const u32 least = mine - (v < e / 4); // equal ones before it count
            rank[0] += four.x > least, rank[1] += four.y > least, rank[2] += four.z > least, rank[3] += four.w > least;
        }
        if (team == 0) {
#pragma unroll
            for (u32 j = 0; j < 3; j++) rank[j] += j < e % 4 && o.word[e / 4 * 4 + j] == mine;
        }
        atomicAdd(&o.rank[e], rank[0] + rank[1] + rank[2] + rank[3]);
    }
}

// The CTA's entries from rank `first` on into the tree.
QN_DEVICE void plant_scores(const Own &o, u32 first)
{
    o.tree.clear_counts();
#pragma unroll 1
    for (u32 e = thread_index(); e < kOwn; e += THREADS) {
        const u32 r = o.rank[e] - first;
        if (r < ScoreTree::kNodes) o.tree.put(r, o.word[e]), o.sorted[r] = o.word[e], o.place[r] = e;
    }
#pragma unroll 1
    for (u32 r = kOwn - first + thread_index(); r < ScoreTree::kNodes; r += THREADS)
        o.tree.put(r, 0), o.sorted[r] = kNoWord;
    if (thread_index() == 0) o.sorted[ScoreTree::kNodes] = kNoWord;
}

constexpr u32 kScoreVectors = (kRawMost / 4 + THREADS - 1) / THREADS;

// Of the CTA's own with the same word those that come before it too.
QN_NOINLINE u32 after_ties(u32 place, u32 word, u32 n)
{
    const Own o = own_pieces();
    const u32 entry = entry_of_place(place / kOwn, place % kOwn);
    while (n < ScoreTree::kNodes && o.sorted[n] == word && entry_of_place(blockIdx.x % kShares, o.place[n]) < entry)
        n++;
    return n;
}

// Words of this thread, four of each vector; those of the CTA's own are 0, which all of its own are larger than.
QN_DEVICE void search_scores(const Own &o, const uint4 (&vector)[kScoreVectors])
{
    constexpr u32 kCount = 4 * kScoreVectors;
    u32 word[kCount], n[kCount];
    bool ties = false;
#pragma unroll
    for (u32 v = 0; v < kScoreVectors; v++) {
        word[4 * v] = vector[v].x, word[4 * v + 1] = vector[v].y;
        word[4 * v + 2] = vector[v].z, word[4 * v + 3] = vector[v].w;
    }
    o.tree.find(word, n);
#pragma unroll
    for (u32 i = 0; i < kCount; i++) ties |= o.sorted[n[i]] == word[i];
    if (QN_UNLIKELY(ties)) {
#pragma unroll
        for (u32 i = 0; i < kCount; i++)
            if (o.sorted[n[i]] == word[i])
                n[i] = after_ties(4 * (i / 4 * THREADS + thread_index()) + i % 4, word[i], n[i]);
    }
#pragma unroll
    for (u32 i = 0; i < kCount; i++)
        if (n[i] < ScoreTree::kNodes) atomicAdd(&o.tree.count[n[i]], 1u);
}

struct MetScores { // of a row; each has come or will
    const u32 *word;
    QN_DEVICE u64 operator()(u32 i) const
    {
        u32 x = 0;
        while (x == 0) x = load_polled(word + i);
        return candidate(x - 1, entry_of_place(i / kOwn, i % kOwn));
    }
};

// Begins after a barrier.
QN_NOINLINE Ended end_by_scores(Met m)
{
    const Select s = select_pieces();
    const Own o = own_pieces();
    const u32 share = blockIdx.x % kShares;
    const uint4 *all = reinterpret_cast<const uint4 *>(m.row);
    uint4 word[kScoreVectors];
    u32 foreign = 0, before = 0;
    if (thread_index() == 0) before = come(m);
#pragma unroll
    for (u32 v = 0; v < kScoreVectors; v++) {
        const u32 i = v * THREADS + thread_index();
        word[v] = make_uint4(0, 0, 0, 0);
        if (i < kRawMost / 4 && i / (kOwn / 4) != share) foreign |= 1u << v;
    }
    rank_own(o);
    __syncthreads();
    plant_scores(o, 0);
    u32 missing = foreign;
    while (block_any((missing = poll_words(all, missing, word)) != 0))
        if (leaves(m, s)) return kLeft;
#pragma unroll 1
    for (u32 first = 0;; first += ScoreTree::kNodes) {
        search_scores(o, word);
        if (first == 0 && thread_index() == 0) *all_rows_word() = close_meeting(m, before);
        __syncthreads();
        bool more = false;
        for_ranks(s, o.tree, [&](u32 i, u32 others) {
            const u32 rank = first + i + others;
            if (first + i >= kOwn || rank >= m.wanted) return;
            store_winner(m.to, rank, candidate(o.sorted[i] - 1, entry_of_place(share, o.place[i])));
            more = i == ScoreTree::kNodes - 1 && first + ScoreTree::kNodes < kOwn;
        });
        if (!block_any(more)) return kDone;
        plant_scores(o, first + ScoreTree::kNodes);
        __syncthreads();
    }
}

// ---- by lists

constexpr u32 kListLevels = whole_log2(kList) + 1;
typedef Tree<kListLevels> ListTree;
constexpr u32 kListVectors = (kShares * kList / 2 + THREADS - 1) / THREADS; // two candidates each
constexpr u64 kNobody = 1;                                                  // behind every candidate: an empty place

struct Lists {
    u64 *list; // [kList]
    ListTree tree;
};
QN_DEVICE Lists list_pieces(bool whole) // where candidates would be if they were kept, else where scores were
{
    u64 *at = whole ? select_pieces().item : reinterpret_cast<u64 *>(batch_scores());
    u32 *tree = reinterpret_cast<u32 *>(at + kList);
    return Lists{at, {tree, tree + (ListTree::kNodes + 1)}};
}
static_assert(!kEndsTogether || 2 * kList + ListTree::kNodes + 1 + ListTree::kCounts <= kCapacity,
              "CAP: a list and its tree");

QN_DEVICE uint2 list_word(u64 item) // neither half is 0
{
    return make_uint2((u32)(item >> 32) + 1, (u32)item);
}
QN_DEVICE u64 item_of_word(u32 high, u32 low)
{
    return (u64)(high - 1) << 32 | low;
}

struct OwnList { // where finish_row puts a share's first: the list, and the words that kRawAt tells
    bool whole;
};
QN_DEVICE void store_winner(const OwnList &to, u32 rank, u64 item)
{
    const Select s = select_pieces();
    uint2 *words = reinterpret_cast<uint2 *>((u64)s.word[kRawAtHigh] << 32 | s.word[kRawAt]);
    list_pieces(to.whole).list[rank] = item;
    store_polled(words + rank, list_word(item));
}
QN_DEVICE void pad_winners(const OwnList &to, u32 from)
{
#pragma unroll 1
    for (u32 i = from + thread_index(); i < kList; i += THREADS) store_winner(to, i, kNobody);
}

QN_NOINLINE u32 after_ties(const u64 *list, u32 high, u32 low, u32 n)
{
    const u64 item = item_of_word(high, low);
    while (n < kList && list[n] > item) n++;
    return n;
}

// Candidates of this thread, two of each vector; what is not foreign is 0.
QN_DEVICE void search_items(const Lists &l, const uint4 (&vector)[kListVectors])
{
    constexpr u32 kCount = 2 * kListVectors;
    u32 word[kCount], n[kCount];
    bool ties = false;
#pragma unroll
    for (u32 v = 0; v < kListVectors; v++) word[2 * v] = vector[v].x, word[2 * v + 1] = vector[v].z;
    l.tree.find(word, n);
#pragma unroll
    for (u32 i = 0; i < kCount; i++) ties |= (u32)(l.list[min(n[i], kList - 1)] >> 32) + 1 == word[i];
    if (QN_UNLIKELY(ties)) {
#pragma unroll
        for (u32 i = 0; i < kCount; i++)
            if (n[i] < kList && word[i])
                n[i] = after_ties(l.list, word[i], i % 2 ? vector[i / 2].w : vector[i / 2].y, n[i]);
    }
#pragma unroll
    for (u32 i = 0; i < kCount; i++)
        if (n[i] < kList) atomicAdd(&l.tree.count[n[i]], 1u);
}

// A share's scores where they are all there still, unit by unit (the first batch).
struct ShareItems {
    typedef u32 Word;
    const u32 *raw;
    QN_DEVICE u64 operator()(u32 i) const { return item(raw[i], i); }
    QN_DEVICE void load(u32 begin, u32 (&word)[kBatch]) const
    {
        const uint4 four = *reinterpret_cast<const uint4 *>(raw + begin);
        word[0] = four.x, word[1] = four.y, word[2] = four.z, word[3] = four.w;
    }
    QN_DEVICE static float score(u32 word) { return __uint_as_float(word); }
    QN_DEVICE static bool is_there(u32) { return true; }
    QN_DEVICE static u64 item(u32 word, u32 i)
    {
        return candidate(key_of(__uint_as_float(word)), entry_of_place(blockIdx.x % kShares, i));
    }
};

// A foreign vector's first candidate is a list's place 2 i % kList. What was left out comes after the lists' last ones.
constexpr u32 kEndOfList = LOCAL_K - 1;
constexpr bool kLeavesOut = LOCAL_K < K;

QN_DEVICE u32 end_of_list(u32 i, const uint4 &word)
{
    if (2 * i % kList != kEndOfList / 2 * 2) return 0;
    return kEndOfList % 2 ? word.z : word.x;
}

// Whether those that do not come after the last of all lists' last ones are enough: exactly, with equal keys. Every thread gets the
// same.
QN_NOINLINE bool is_enough(const uint4 *all, u32 high, u32 wanted)
{
    const Select s = select_pieces();
    u32 low = 0, count = 0;
    __syncthreads();
    if (thread_index() == 0) s.word[kLow] = s.word[kHigh] = 0;
    __syncthreads();
#pragma unroll 1
    for (u32 i = kEndOfList / 2 + thread_index() * (kList / 2); i < kShares * kList / 2; i += THREADS * (kList / 2)) {
        const uint4 word = load_polled(all + i);
        if (end_of_list(i, word) == high) low = max(low, kEndOfList % 2 ? word.w : word.y);
    }
    if (low) atomicMax(&s.word[kLow], low);
    __syncthreads();
    const u64 bound = item_of_word(high, s.word[kLow]);
#pragma unroll 1
    for (u32 i = thread_index(); i < kShares * kList / 2; i += THREADS) {
        const uint4 word = load_polled(all + i);
        count += (u32)(item_of_word(word.x, word.y) >= bound) + (u32)(item_of_word(word.z, word.w) >= bound);
    }
    count = warp_sum(count);
    if (lane_index() == 0) atomicAdd(&s.word[kHigh], count);
    __syncthreads();
    return s.word[kHigh] >= wanted;
}

// The share's first of n to its list and the others. whole: of its scores, else of what it kept. What lies behind the row's end
// is like NaN there, which comes after all of the row. Begins after a barrier and ends in one.
QN_DEVICE void publish_list(u32 n, bool whole)
{
    const Select s = select_pieces();
    const u32 share = blockIdx.x % kShares;
    const OwnList to = {whole};
    if (whole && thread_index() < kUnitEntries && n > 0) {
        const u32 place = n - kUnitEntries + thread_index();
        if (entry_of_place(share, place) >= s.word[kResults]) batch_scores()[place] = __float_as_uint(not_a_number());
    }
    begin_finish(whole ? 0 : n);
    if (whole)
        (void)finish_row(to, ShareItems{batch_scores()}, n, (u32)LOCAL_K);
    else
        (void)finish_row(to, KeptItems{s.item}, n, (u32)LOCAL_K);
    if (thread_index() == 0) s.word[kScaleHigh] = s.word[kScaleFactor] = 0; // of the lists' ends the largest; before it
    __syncthreads();
}

// Of a published list. Begins after a barrier.
QN_NOINLINE Ended end_by_lists(Met m, bool whole)
{
    const Select s = select_pieces();
    const Lists l = list_pieces(whole);
    const uint4 *all = reinterpret_cast<const uint4 *>(m.row);
    uint4 word[kListVectors];
    u32 foreign = 0, high = 0, sure = 0, before = 0;
    if (thread_index() == 0) before = come(m);
#pragma unroll
    for (u32 v = 0; v < kListVectors; v++) {
        const u32 i = v * THREADS + thread_index();
        word[v] = make_uint4(0, 0, 0, 0);
        if (i < kShares * kList / 2 && i / (kList / 2) != blockIdx.x % kShares) foreign |= 1u << v;
    }
    l.tree.clear_counts();
#pragma unroll 1
    for (u32 r = thread_index(); r < ListTree::kNodes; r += THREADS)
        l.tree.put(r, r < kList ? list_word(l.list[r]).x : 0);
    u32 missing = foreign;
    for (;;) {
        missing = poll_words(all, missing, word);
        if constexpr (kLeavesOut) {
#pragma unroll
            for (u32 v = 0; v < kListVectors; v++)
                if (foreign >> v & 1) high = max(high, end_of_list(v * THREADS + thread_index(), word[v]));
            if (high) atomicMax(&s.word[kScaleHigh], high);
        }
        if (!block_any(missing != 0)) break;
        if (leaves(m, s)) return kLeft;
    }
    if constexpr (kLeavesOut) high = max(s.word[kScaleHigh], list_word(l.list[kEndOfList]).x);
    search_items(l, word);
    if constexpr (kLeavesOut) {
#pragma unroll
        for (u32 v = 0; v < kListVectors; v++) sure += (u32)(word[v].x > high) + (u32)(word[v].z > high);
    }
    if constexpr (kLeavesOut) {
#pragma unroll 1
        for (u32 i = thread_index(); i < kList; i += THREADS) sure += list_word(l.list[i]).x > high;
        sure = warp_sum(sure);
        if (lane_index() == 0) atomicAdd(&s.word[kScaleFactor], sure);
    }
    if (thread_index() == 0) *all_rows_word() = close_meeting(m, before);
    __syncthreads();
    if (kLeavesOut && high > 1 && s.word[kScaleFactor] < m.wanted && !is_enough(all, high, m.wanted)) return kShort;
    for_ranks(s, l.tree, [&](u32 i, u32 others) {
        if (i + others < m.wanted && i < kList) store_winner(m.to, i + others, l.list[i]);
    });
    return kDone;
}

// ---- what those that left would have done, by one CTA, from what was published

struct LeftOutput { // winners of shares that left; the others have theirs
    Output to;
    const u32 *left; // of the row's shares
};
QN_DEVICE void store_winner(const LeftOutput &to, u32 rank, u64 winner)
{
    const u32 unit = candidate_index(winner) / kUnitEntries, share = (unit - 7 * (unit / kShares)) % kShares;
    if (load_polled(to.left + share)) store_winner(to.to, rank, winner);
}
QN_DEVICE void pad_winners(const LeftOutput &to, u32 from)
{
    if (load_polled(to.left)) pad_winners(to.to, from);
}

// By every thread of the last CTA: until `count` CTAs have told that they left.
QN_DEVICE void wait_for_left(const u32 *left, u32 count)
{
    if (thread_index() == 0) {
        u32 found = 0;
        for (u32 i = 0; found < count; i = i + 1 < gridDim.x ? i + 1 : 0) {
            if (i == 0) found = 0;
            found += load_polled(left + i);
        }
    }
    __syncthreads();
}

// False: lists do not tell the winners, and the CTA that would go through the row has left or is this one.
QN_DEVICE bool end_left_row(const indexer_params &p, u32 launch, i64 number, u32 results)
{
    const Select s = select_pieces();
    const LeftOutput to = {output_of(p, number), left_words(meeting_words(p)) + number * kShares};
    const u32 wanted = min((u32)K, results);
    const u32 *words = reinterpret_cast<const u32 *>(meeting_row(p, launch, number));
    bool some = false;
    for (u32 i = thread_index(); i < kShares; i += THREADS) some |= load_polled(to.left + i) != 0;
    const bool own = blockIdx.x == number * kShares; // else another one goes through the row, or has left
    if (!block_any(some) && !own) return true;
    if (kScoresMeet && results <= kRawMost) {
        if (wanted) put_slowly(to, MetScores{words}, kRawMost, wanted);
        pad_winners(to, wanted);
        return true;
    }
    u64 end = 0;
#pragma unroll 1
    for (u32 i = thread_index(); i < kShares * kList; i += THREADS) {
        u32 high = 0, low = 0;
        while (high == 0) high = load_polled(words + 2 * i);
        while (low == 0) low = load_polled(words + 2 * i + 1);
        const u64 item = item_of_word(high, low);
        s.item[i] = item == kNobody ? 0 : item;
        if (i % kList == kEndOfList && item != kNobody) end = max(end, item);
    }
    __syncthreads();
    u32 count = 0; // as all CTAs of the row did
    if (kLeavesOut) {
        if (thread_index() == 0) s.word[kHigh] = s.word[kLow] = s.word[kCount] = 0;
        __syncthreads();
        atomicMax(&s.word[kHigh], (u32)(end >> 32));
        __syncthreads();
        if ((u32)(end >> 32) == s.word[kHigh]) atomicMax(&s.word[kLow], (u32)end);
        __syncthreads();
        const u64 bound = (u64)s.word[kHigh] << 32 | s.word[kLow];
        for (u32 i = thread_index(); i < kShares * kList; i += THREADS) count += s.item[i] != 0 && s.item[i] >= bound;
        atomicAdd(&s.word[kCount], count);
        __syncthreads();
        if (s.word[kHigh] > 0 && s.word[kCount] < wanted) return !own && load_polled(to.left) == 0;
    }
    begin_finish(kShares * kList);
    (void)finish_row(to, KeptItems{s.item}, kShares * kList, wanted);
    return true;
}
