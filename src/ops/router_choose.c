// SPDX-License-Identifier: Apache-2.0
// Which configuration of the family router serves which number of tokens on an architecture, where nothing is tuned. Called
// through the family's choose. By what was measured (kernel_templates/router/ANALYSIS.md).
#include <string.h>

#include "ops/router.h"

typedef quern_router_spec spec_t;

// ---- choose

// Of a configuration that is one of its plan: whether the device has room for its kernels.
static bool fits(const spec_t *s, const qn_arch *arch, const qn_config *c)
{
    const bool whole = c->value[QN_ROUTER_SUMS] == QN_ROUTER_WHOLE;
    if (!qn_router_is_tile(c)) return false;
    qn_router_shape one = qn_router_shape_of(s, c, whole, !whole && qn_router_is_fused(s, arch, c)), other = one;
    if (s->batch_invariant) other = qn_router_shape_of(s, c, true, false);
    return qn_router_has_room(arch, &one) && qn_router_has_room(arch, &other);
}

static bool choose_stages_for(const spec_t *s, const qn_arch *arch, int most, bool with_gate, qn_config *c)
{
    const qn_knob *knob = &qn_router_knobs[QN_ROUTER_STAGES];
    int blocks = qn_router_cut_of(s, c).slice / 64 + 1;
    for (size_t i = knob->choice_count; i-- > 0;) {
        c->value[QN_ROUTER_STAGES] = knob->choices[i];
        bool enough = i == 0 || c->value[QN_ROUTER_STAGES] <= most_of(blocks, 2);
        bool gate = !with_gate || qn_router_is_fused(s, arch, c);
        if (enough && gate && c->value[QN_ROUTER_STAGES] <= most && fits(s, arch, c)) return true;
    }
    return false;
}

// As many blocks in flight as a slice has and shared memory holds, beside the gate's own if it can be: a launch less is
// worth more than a block.
static void choose_stages(const spec_t *s, const qn_arch *arch, int most, qn_config *c)
{
    bool parts = c->value[QN_ROUTER_SUMS] == QN_ROUTER_PARTS;
    if (parts && choose_stages_for(s, arch, most, true, c)) return;
    (void)choose_stages_for(s, arch, most, false, c);
}

// Dots of up to four tokens: every SM some rows.
static bool choose_rows(const spec_t *s, const qn_arch *arch, int tokens, qn_config *c)
{
    for (int64_t experts = ceil_div(pitch_of(s), arch->sm_count); experts <= 8; experts++) {
        if (!qn_knob_has(&qn_router_knobs[QN_ROUTER_EXPERTS], experts)) continue;
        int64_t slices = least_of(arch->sm_count / ceil_div(pitch_of(s), experts), s->D / 512);
        while (slices > 1 && !qn_knob_has(&qn_router_knobs[QN_ROUTER_SLICES], slices)) slices--;
        memset(c, 0, sizeof *c);
        c->value[QN_ROUTER_PLAN] = QN_ROUTER_ROWS, c->value[QN_ROUTER_SUMS] = QN_ROUTER_PARTS;
        c->value[QN_ROUTER_TOKENS] = tokens, c->value[QN_ROUTER_EXPERTS] = (int)experts;
        c->value[QN_ROUTER_SLICES] = (int)least_of(most_of(slices, 1), QN_ROUTER_MOST_SLICES);
        if (fits(s, arch, c)) return true;
    }
    return false;
}

// What a CTA of a tile costs: bytes to load, and how many slices there are to gather. In elements, by measurement.
static int64_t cost_of(const spec_t *s, const qn_config *c)
{
    qn_router_cut d = qn_router_cut_of(s, c);
    return (int64_t)(c->value[QN_ROUTER_TOKENS] + c->value[QN_ROUTER_EXPERTS]) * d.slice + 800 * d.slices;
}

// The cheapest of these tiles whose CTAs are resident together.
static bool choose_tile(const spec_t *s, const qn_arch *arch, const qn_config *first, const int *experts, size_t count,
                        int64_t token_tiles, qn_config *best)
{
    const int most_slices = first->value[QN_ROUTER_PLAN] >= QN_ROUTER_DEEP ? QN_ROUTER_MOST_SLICES : 8;
    int64_t least = INT64_MAX;
    for (size_t i = 0; i < count; i++) {
        for (size_t k = 0; k < qn_router_knobs[QN_ROUTER_SLICES].choice_count; k++) {
            qn_config c = *first;
            c.value[QN_ROUTER_EXPERTS] = experts[i],
            c.value[QN_ROUTER_SLICES] = qn_router_knobs[QN_ROUTER_SLICES].choices[k];
            qn_router_cut d = qn_router_cut_of(s, &c);
            int64_t ctas = token_tiles * ceil_div(pitch_of(s), experts[i]) * d.slices;
            if (d.slices != c.value[QN_ROUTER_SLICES] || (ctas > arch->sm_count && d.slices > 1)) continue;
            if (d.slices > most_slices) continue;
            if (c.value[QN_ROUTER_PLAN] >= QN_ROUTER_DEEP) choose_stages(s, arch, 16, &c);
            int64_t cost = cost_of(s, &c) * ceil_div(ctas, arch->sm_count);
            if (token_tiles == 1 && !qn_router_is_fused(s, arch, &c)) cost += 25000; // a launch more
            if (cost >= least || !fits(s, arch, &c)) continue;
            *best = c, least = cost;
        }
    }
    return least != INT64_MAX;
}

// Half the warps, each with twice the elements on their way, where enough are left to load.
static void use_fewer_warps(const spec_t *s, const qn_arch *arch, qn_config *c)
{
    enum { FEWEST = 7 };
    qn_config fewer = *c;
    fewer.value[QN_ROUTER_CHUNK] = 2 * c->value[QN_ROUTER_CHUNK];
    const qn_router_cut cut = qn_router_cut_of(s, &fewer);
    const bool enough = ceil_div(cut.slice, fewer.value[QN_ROUTER_CHUNK]) >= FEWEST;
    const bool same = cut.slices == c->value[QN_ROUTER_SLICES] && fits(s, arch, &fewer);
    if (enough && same && qn_router_is_fused(s, arch, c)) *c = fewer;
}

static bool choose_fragments(const spec_t *s, const qn_arch *arch, int64_t N, qn_config *best)
{
    static const int experts[] = {8, 16, 24, 32};
    qn_config first = {
        .value = {[QN_ROUTER_PLAN] = QN_ROUTER_FRAGMENTS, [QN_ROUTER_SUMS] = QN_ROUTER_PARTS, [QN_ROUTER_CHUNK] = 64}};
    first.value[QN_ROUTER_TOKENS] = N <= 8 ? 8 : N <= 16 ? 16 : N <= 32 ? 32 : 64;
    if (!choose_tile(s, arch, &first, experts, QN_COUNT(experts), 1, best)) return false;
    use_fewer_warps(s, arch, best);
    return true;
}

static bool choose_wide(const spec_t *s, const qn_arch *arch, qn_config *best)
{
    static const int experts[] = {8, 16, 24, 32, 48, 64};
    qn_config first = {
        .value = {[QN_ROUTER_PLAN] = QN_ROUTER_WIDE, [QN_ROUTER_SUMS] = QN_ROUTER_PARTS, [QN_ROUTER_TOKENS] = 64}};
    return choose_tile(s, arch, &first, experts, QN_COUNT(experts), 1, best);
}

static bool has_deep(const spec_t *s, const qn_arch *arch)
{
    return arch->has_wgmma && is_half(s) && s->w_layout == QUERN_W_ED;
}

static bool choose_deep(const spec_t *s, const qn_arch *arch, int64_t N, qn_config *best)
{
    static const int experts[] = {32, 48, 64, 96, 128, 192};
    qn_config first = {.value = {[QN_ROUTER_PLAN] = QN_ROUTER_DEEP,
                                 [QN_ROUTER_SUMS] = QN_ROUTER_PARTS,
                                 [QN_ROUTER_TOKENS] = N <= 64 ? 64 : 128}};
    return choose_tile(s, arch, &first, experts, QN_COUNT(experts), ceil_div(N, first.value[QN_ROUTER_TOKENS]), best);
}

// CTAs of a cluster that have all experts between them, `fewest` at least: one, two or four, since others leave SMs out where
// a GPC has no multiple of them; as few experts to no purpose as can be.
static bool choose_columns(const spec_t *s, int fewest, qn_config *c)
{
    static const int experts[] = {128, 192, 96, 64, 256, 48, 32}; // the best first
    int64_t least = INT64_MAX;
    for (int columns = fewest; columns <= 4; columns *= 2) {
        for (size_t i = 0; i < QN_COUNT(experts); i++) {
            int64_t spare = (int64_t)experts[i] * columns - pitch_of(s), cost = spare * 8 + (int64_t)i;
            if (spare < 0 || cost >= least) continue;
            least = cost;
            c->value[QN_ROUTER_EXPERTS] = experts[i], c->value[QN_ROUTER_CLUSTER_E] = columns;
        }
    }
    return least != INT64_MAX;
}

// By the most tokens: a tile's tokens, CTAs for its experts, the parts of its logits, the gate and its CTAs an SM. Parts so
// many that clusters which have runs of blocks from one tile to the next can all be used, if that is shorter than whole tiles a
// cluster, but no more than the gate has registers for: twice, for up to 256 experts and for more.
static const struct row {
    int64_t last;
    int tokens, columns[2], slices[2], gate, gate_ctas;
} rows_of_multicast[] = {{128, 64, {1, 4}, {16, 14}, 1, 1}, {256, 64, {1, 4}, {8, 14}, 1, 2},
                         {512, 64, {1, 1}, {8, 8}, 1, 4},   {1024, 64, {1, 1}, {8, 8}, 2, 1},
                         {2048, 128, {1, 1}, {8, 8}, 2, 2}, {4096, 128, {1, 1}, {5, 4}, 2, 4},
                         {8192, 128, {1, 1}, {3, 3}, 3, 4}, {INT64_MAX, 128, {1, 1}, {2, 2}, 4, 8}};

static bool choose_multicast(const spec_t *s, const qn_arch *arch, int64_t N, qn_config *c)
{
    const struct row *row = rows_of_multicast;
    const int many = s->E > 256;
    while (row->last < N) row++;
    memset(c, 0, sizeof *c);
    c->value[QN_ROUTER_PLAN] = QN_ROUTER_MULTICAST;
    const bool whole = s->logits && N > 4096; // these are the logits then, without a workspace
    c->value[QN_ROUTER_SUMS] = whole ? QN_ROUTER_WHOLE : QN_ROUTER_PARTS;
    if (!has_deep(s, arch) || !choose_columns(s, row->columns[many], c)) return false;
    const int slices = row->slices[many] * (c->value[QN_ROUTER_CLUSTER_E] == 1 ? 2 : 1); // then there are more clusters
    c->value[QN_ROUTER_TOKENS] = row->tokens;
    c->value[QN_ROUTER_SLICES] = whole ? 1 : (int)least_of(slices, QN_ROUTER_MOST_SLICES);
    c->value[QN_ROUTER_GATE] = row->gate, c->value[QN_ROUTER_GATE_CTAS] = whole ? 0 : row->gate_ctas;
    c->value[QN_ROUTER_CLUSTER_N] = 1;
    c->value[QN_ROUTER_CTAS] = qn_router_cluster(c) <= 2 ? 132 : 120;
    return choose_stages_for(s, arch, 8, false, c);
}

static bool choose_ring(const spec_t *s, const qn_arch *arch, int64_t N, qn_config *best)
{
    static const int experts[] = {16, 32, 64};
    qn_config first = {
        .value = {
            [QN_ROUTER_PLAN] = is_half(s) ? QN_ROUTER_TILES : QN_ROUTER_EXACT, [QN_ROUTER_SUMS] = QN_ROUTER_PARTS}};
    first.value[QN_ROUTER_TOKENS] = N <= 8 && !is_half(s) ? 8 : N <= 16 ? 16 : N <= 32 ? 32 : 64;
    return choose_tile(s, arch, &first, experts, QN_COUNT(experts), ceil_div(N, first.value[QN_ROUTER_TOKENS]), best);
}

// Fma alone, more tokens than one launch gates: two CTAs an SM, so that one multiplies while the other waits for its blocks.
static bool choose_exact(const spec_t *s, const qn_arch *arch, int64_t N, qn_config *c)
{
    enum { TOKENS = 64, EXPERTS = 64, CTAS_OF_SM = 2, STAGES = 6 };
    const int64_t tiles = ceil_div(N, TOKENS) * ceil_div(pitch_of(s), EXPERTS);
    int64_t slices = least_of(CTAS_OF_SM * arch->sm_count / tiles, least_of(s->D / 256, QN_ROUTER_MOST_SLICES));
    while (slices > 1 && !qn_knob_has(&qn_router_knobs[QN_ROUTER_SLICES], slices)) slices--;
    if (slices < 2) return false;
    memset(c, 0, sizeof *c);
    c->value[QN_ROUTER_PLAN] = QN_ROUTER_EXACT, c->value[QN_ROUTER_SUMS] = QN_ROUTER_PARTS;
    c->value[QN_ROUTER_TOKENS] = TOKENS, c->value[QN_ROUTER_EXPERTS] = EXPERTS;
    c->value[QN_ROUTER_SLICES] = (int)slices;
    return choose_stages_for(s, arch, STAGES, false, c);
}

// Logits first: tiles as large as leave every SM one.
static void choose_whole(const spec_t *s, const qn_arch *arch, size_t bucket, qn_config *c)
{
    static const int tiles[][2] = {{128, 128}, {128, 64}, {64, 64}, {64, 32}, {32, 32}, {16, 32}, {16, 16}};
    const int64_t N = least_of(qn_router_bucket_last[bucket], 16384);
    for (size_t i = 0; i < QN_COUNT(tiles); i++) {
        bool is_last = i + 1 == QN_COUNT(tiles);
        memset(c, 0, sizeof *c);
        c->value[QN_ROUTER_PLAN] = has_deep(s, arch) && tiles[i][0] >= 64 ? QN_ROUTER_DEEP
                                   : is_half(s)                           ? QN_ROUTER_TILES
                                                                          : QN_ROUTER_EXACT;
        c->value[QN_ROUTER_SUMS] = QN_ROUTER_WHOLE;
        c->value[QN_ROUTER_TOKENS] = tiles[i][0], c->value[QN_ROUTER_EXPERTS] = tiles[i][1],
        c->value[QN_ROUTER_SLICES] = 1;
        c->value[QN_ROUTER_GATE] = N <= 512 ? 1 : N <= 1024 ? 2 : N <= 8192 ? 3 : 4;
        int64_t ctas = ceil_div(N, tiles[i][0]) * ceil_div(s->E, tiles[i][1]);
        if (!is_last && (tiles[i][1] >= 2 * s->E || 10 * ctas < 7 * arch->sm_count)) continue;
        choose_stages(s, arch, c->value[QN_ROUTER_PLAN] == QN_ROUTER_DEEP ? 6 : 4, c);
        if (fits(s, arch, c)) return;
    }
}

// One configuration for every N: its parts serve few tokens, its logits many.
static void choose_invariant(const spec_t *s, const qn_arch *arch, qn_config *c)
{
    if (choose_ring(s, arch, ROUTER_MOST_WHOLE, c)) return;
    memset(c, 0, sizeof *c);
    c->value[QN_ROUTER_PLAN] = is_half(s) ? QN_ROUTER_TILES : QN_ROUTER_EXACT,
    c->value[QN_ROUTER_SUMS] = QN_ROUTER_PARTS;
    c->value[QN_ROUTER_TOKENS] = 16, c->value[QN_ROUTER_EXPERTS] = 16, c->value[QN_ROUTER_SLICES] = 1;
    choose_stages(s, arch, 4, c);
}

// By what was measured (ANALYSIS.md).
void qn_router_choose(const quern_spec *base, const qn_arch *arch, size_t bucket, qn_config *config)
{
    const spec_t *s = (const spec_t *)base;
    const int64_t N = qn_router_bucket_last[bucket];
    const bool rows = s->w_layout == QUERN_W_ED && N <= (is_half(s) ? 1 : 4);
    if (s->batch_invariant) {
        choose_invariant(s, arch, config);
        return;
    }
    if (rows && choose_rows(s, arch, (int)N, config)) return;
    if (N <= ROUTER_MOST_WHOLE && is_half(s) && s->w_layout == QUERN_W_ED) {
        if (N > 16 && arch->has_wgmma && choose_wide(s, arch, config)) return;
        if (choose_fragments(s, arch, N, config)) return;
    }
    if (N > ROUTER_MOST_WHOLE && choose_multicast(s, arch, N, config)) return;
    if (N <= 1024 && has_deep(s, arch) && choose_deep(s, arch, N, config)) return;
    if (N > ROUTER_MOST_WHOLE && !is_half(s) && choose_exact(s, arch, N, config)) return;
    if (N <= 512 && choose_ring(s, arch, N, config)) return;
    choose_whole(s, arch, bucket, config);
}
