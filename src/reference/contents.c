// SPDX-License-Identifier: Apache-2.0
// What kernels and references trust in tensors of positions: offsets, lengths, page numbers. A launch can't look at them;
// the command, which has them on the host, does. Optional in a family (qn_family.contents).
#include "ops/family.h"
#include "reference/reference.h"

static quern_status bad(const char *name, int64_t at, int64_t value, int64_t least, int64_t most)
{
    return qn_fail(QUERN_BAD_FILE, "%s[%lld] = %lld: it must be %lld … %lld", name, (long long)at, (long long)value,
                   (long long)least, (long long)most);
}

static quern_status check_all(const char *name, const int32_t *x, int64_t count, int64_t least, int64_t most)
{
    for (int64_t i = 0; x && i < count; i++)
        if (x[i] < least || x[i] > most) return bad(name, i, x[i], least, most);
    return QUERN_OK;
}

// Offsets of count sequences: 0, ascending, the last ≤ most.
static quern_status check_offsets(const char *name, const int32_t *x, int64_t count, int64_t most)
{
    if (!x) return QUERN_OK;
    if (x[0] != 0) return bad(name, 0, x[0], 0, 0);
    for (int64_t i = 1; i <= count; i++)
        if (x[i] < x[i - 1] || x[i] > most) return bad(name, i, x[i], x[i - 1], most);
    return QUERN_OK;
}

// The pages that hold a sequence's first `length` positions.
static quern_status check_pages(const int32_t *table, int64_t stride, int64_t sequence, int64_t length, int64_t page,
                                int64_t pages)
{
    for (int64_t i = 0; i < (length + page - 1) / page; i++) {
        int64_t value = table[sequence * stride + i];
        if (value < 0 || value >= pages)
            return qn_fail(QUERN_BAD_FILE, "block_table[%lld, %lld] = %lld: it must be 0 … %lld", (long long)sequence,
                           (long long)i, (long long)value, (long long)(pages - 1));
    }
    return QUERN_OK;
}

quern_status qn_attention_contents(const quern_spec *spec, const quern_args *args)
{
    const quern_attention_spec *s = (const quern_attention_spec *)spec;
    const quern_attention_args *a = (const quern_attention_args *)args;
    bool paged = s->layout == QUERN_LAYOUT_PAGED, empty;
    QN_TRY(qn_family_attention.check_args(spec, args, &empty));
    if (empty) return QUERN_OK;
    QN_TRY(check_offsets("cu_q", s->cu_q ? a->cu_q : NULL, a->B, a->Tq));
    QN_TRY(check_offsets("cu_k", s->layout == QUERN_LAYOUT_VARLEN ? a->cu_k : NULL, a->B, a->Tk));
    if (!s->length_k) return QUERN_OK;
    QN_TRY(check_all("length_k", a->length_k, a->B, 0, paged ? a->columns * s->page : a->Sk));
    int64_t stride = a->block_table_stride_B ? a->block_table_stride_B : a->columns;
    for (int64_t b = 0; paged && b < a->B; b++)
        QN_TRY(check_pages(a->block_table, stride, b, a->length_k[b], s->page, a->pages));
    return QUERN_OK;
}

quern_status qn_indexer_contents(const quern_spec *spec, const quern_args *args)
{
    const quern_indexer_spec *s = (const quern_indexer_spec *)spec;
    const quern_indexer_args *a = (const quern_indexer_args *)args;
    bool heads = s->layout == QUERN_INDEXER_NVFP4_HEADS, empty;
    QN_TRY(qn_family_indexer.check_args(spec, args, &empty));
    if (empty) return QUERN_OK;
    int64_t entries = s->page ? a->columns * s->page : heads ? a->blocks * s->epb : a->L;
    int64_t stride = a->block_table_stride_B ? a->block_table_stride_B : a->columns, B = a->B > 0 ? a->B : 1;
    QN_TRY(check_all("row_seq", s->row_seq ? a->row_seq : NULL, a->T, 0, B - 1));
    QN_TRY(check_offsets("cu_keys", s->cu_keys ? a->cu_keys : NULL, a->B, entries));
    for (int64_t t = 0; t < a->T; t++) {
        int64_t b = s->row_seq ? a->row_seq[t] : 0;
        int64_t most = s->cu_keys ? a->cu_keys[b + 1] - a->cu_keys[b] : entries;
        if (a->length[t] < 0 || a->length[t] > most) return bad("length", t, a->length[t], 0, most);
        if (s->page)
            QN_TRY(check_pages(a->block_table, stride, b, a->length[t], s->page, heads ? a->blocks : a->pages));
    }
    return QUERN_OK;
}
