// SPDX-License-Identifier: Apache-2.0
// A row as 16-byte vectors. A row may start at any element, so it is read as the aligned vectors that cover it; those
// that an end of the row cuts are read element by element, with -inf for what lies outside. Element q of vector v is the
// row's element v * kPerVector + q - lead.
//
// BATCH_INVARIANT: which thread adds which elements must not depend on the row's address. Then vectors are counted
// from the row's own first element (lead = 0), and a vector that straddles two aligned ones is put together from both.
#pragma once

#include "problem.cuh"

struct Row {
    const uint4 *vectors; // the aligned vectors that cover the row
    u32 lead;             // elements of vector 0 that come before the row; 0 with BATCH_INVARIANT
    u32 shift;            // BATCH_INVARIANT: elements of the first aligned vector that come before the row
    u32 count;            // vectors
};

QN_DEVICE Row row_of(const softmax_topk_params &p, i64 row)
{
    const Raw *first = static_cast<const Raw *>(p.logits) + row * p.logits_stride; // [V]
    const u64 address = reinterpret_cast<u64>(first);
    const u32 before = (u32)(address % 16) / (u32)sizeof(Raw);
    Row r;
    r.vectors = reinterpret_cast<const uint4 *>(reinterpret_cast<const unsigned char *>(first) - address % 16);
    r.lead = BATCH_INVARIANT ? 0 : before;
    r.shift = BATCH_INVARIANT ? before : 0;
    r.count = (r.lead + kV + kPerVector - 1) / kPerVector;
    return r;
}

// Element `index` of a row.
QN_DEVICE u32 row_raw(const softmax_topk_params &p, i64 row, u32 index)
{
    return static_cast<const Raw *>(p.logits)[row * p.logits_stride + index];
}

// Vectors from here on are cut by the row's end, or (BATCH_INVARIANT) what they are put together from is.
QN_DEVICE u32 row_whole_end(const Row &r)
{
    const u32 end = (r.lead + r.shift + kV) / kPerVector;
    return r.shift && end ? end - 1 : end;
}

// Whether vector v can be loaded as a whole: nothing of it lies outside the row.
QN_DEVICE bool row_has_whole(const Row &r, u32 v)
{
    return (v > 0 || r.lead + r.shift == 0) && v < row_whole_end(r);
}

// A vector that the row's end cuts, element by element: no load leaves the row, which may end where its allocation ends.
QN_DEVICE uint4 row_load_cut(const Row &r, u32 v)
{
    const Raw *row = reinterpret_cast<const Raw *>(r.vectors) + (r.lead + r.shift); // [V]
    const u32 first = v * kPerVector - r.lead;
    u32 word[4] = {0, 0, 0, 0};
#pragma unroll
    for (u32 q = 0; q < kPerVector; q++) {
        const u32 raw = first + q < kV ? (u32)__ldg(row + (first + q)) : Element::kPad & (u32)(Raw) ~(Raw)0;
        if constexpr (sizeof(Raw) == 2)
            word[q / 2] |= raw << (q % 2 * 16);
        else
            word[q] = raw;
    }
    return make_uint4(word[0], word[1], word[2], word[3]);
}

// 16 bytes that begin `shift` elements into the pair (a, b).
QN_DEVICE uint4 row_join(const uint4 &a, const uint4 &b, u32 shift)
{
    const u32 byte = shift * (u32)sizeof(Raw);
    u32 word[8] = {a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w};
    if (byte & 8u) {
#pragma unroll
        for (int i = 0; i < 6; i++) word[i] = word[i + 2];
    }
    if (byte & 4u) {
#pragma unroll
        for (int i = 0; i < 5; i++) word[i] = word[i + 1];
    }
    if (byte & 2u) {
#pragma unroll
        for (int i = 0; i < 4; i++) word[i] = word[i] >> 16 | word[i + 1] << 16;
    }
    return make_uint4(word[0], word[1], word[2], word[3]);
}

QN_DEVICE uint4 row_pad()
{
    return make_uint4(Element::kPad, Element::kPad, Element::kPad, Element::kPad);
}

// Vector v < count of the row is fetched, then mended: a whole one by the first step, one that an end cuts by the second.
// Loads that are to be in flight together are all fetched first.
QN_DEVICE uint4 row_fetch(const Row &r, u32 v)
{
    if (!row_has_whole(r, v)) return row_pad();
    if (BATCH_INVARIANT && r.shift) return row_join(__ldg(r.vectors + v), __ldg(r.vectors + v + 1), r.shift);
    return __ldg(r.vectors + v);
}

QN_DEVICE uint4 row_mend(const uint4 &x, const Row &r, u32 v)
{
    return QN_UNLIKELY(!row_has_whole(r, v)) ? row_load_cut(r, v) : x;
}

// Both: -inf is in place of what the vector holds outside the row.
QN_DEVICE uint4 row_load(const Row &r, u32 v)
{
    return row_mend(row_fetch(r, v), r, v);
}

// A whole vector, at its place: read once, not kept in L1.
QN_DEVICE uint4 row_fetch_inner(const uint4 *vector, u32 shift)
{
    if (!BATCH_INVARIANT || !shift) return load_streaming(vector);
    return row_join(__ldg(vector), __ldg(vector + 1), shift);
}

// Bit q: element q of vector v belongs to the row.
QN_DEVICE u32 inside_row(const Row &r, u32 v)
{
    u32 inside = 0;
#pragma unroll
    for (u32 q = 0; q < kPerVector; q++) inside |= (v * kPerVector + q - r.lead < kV ? 1u : 0u) << q;
    return inside;
}

// Calls each(x, v) for every vector of [begin, end) that falls to this thread; kBatch loads are in flight at a time.
template <u32 kBatch, class Each> QN_DEVICE void row_for_each_vector(const Row &r, u32 begin, u32 end, Each each)
{
    for (u32 base = begin; base < end; base += THREADS * kBatch) {
        uint4 x[kBatch];
#pragma unroll
        for (u32 u = 0; u < kBatch; u++) {
            const u32 v = base + u * THREADS + thread_index();
            x[u] = v < end ? row_fetch(r, v) : row_pad();
        }
#pragma unroll
        for (u32 u = 0; u < kBatch; u++) {
            const u32 v = base + u * THREADS + thread_index();
            if (v < end) each(row_mend(x[u], r, v), v);
        }
    }
}
