// SPDX-License-Identifier: Apache-2.0
// What a configuration of the family router needs of an SM: threads, about how many registers, shared memory, as the kernels
// count (kernel_templates/router). Called by router_plan.c and router_choose.c.
#include "ops/gate.h"
#include "ops/router.h"

typedef quern_router_spec spec_t;

qn_router_cut qn_router_cut_of(const spec_t *s, const qn_config *c)
{
    int step = c->value[QN_ROUTER_PLAN] == QN_ROUTER_FRAGMENTS ? c->value[QN_ROUTER_CHUNK]
               : c->value[QN_ROUTER_PLAN] == QN_ROUTER_EXACT   ? 32
                                                               : 64;
    qn_router_cut made;
    if (c->value[QN_ROUTER_PLAN] == QN_ROUTER_MULTICAST) { // parts of any length, these are the most
        made.slices = c->value[QN_ROUTER_SLICES];
        made.slice = (int)round_up(s->D, 64);
        return made;
    }
    made.slice = (int)round_up(ceil_div(s->D, c->value[QN_ROUTER_SLICES]), step);
    made.slices = (int)ceil_div(s->D, made.slice);
    return made;
}

// As block.cuh and exchange.cuh count.
int qn_router_gate_shared(const spec_t *s, int threads, int slices)
{
    int each = (slices + 3) / 4, teams = (slices + each - 1) / each;
    quern_gate_spec gate;
    qn_router_gate_spec(s, &gate);
    return (int)round_up(qn_gate_block_shared(&gate, threads), 16) + teams * (int)pitch_of(s) * 4;
}

// What a gate by a CTA needs of registers beside nothing else: as ops/gate.c.
int qn_router_gate_registers(const spec_t *s)
{
    return s->K <= 8 ? 40 : s->K <= 16 ? 48 : 64;
}

// ---- the plans' numbers

// Threads for the gate, in a kernel that has one.
static int gate_part(const spec_t *s, bool fused)
{
    return fused ? gate_threads(s) : 32;
}

static qn_router_shape rows_shape(const spec_t *s, const qn_config *c, qn_router_cut d, bool fused)
{
    qn_router_shape n = {.units = 1};
    int eights = d.slice / 8, vectors = bytes_of(s->w) / 2; // 16 bytes of w for 8 elements
    while (eights > 512 * n.units && n.units * c->value[QN_ROUTER_EXPERTS] * vectors < 12) n.units++;
    int64_t threads = round_up(ceil_div(eights, n.units), 32);
    n.threads = (int)most_of(most_of(gate_part(s, fused), least_of(threads, 512)), 64);
    int sums = c->value[QN_ROUTER_EXPERTS] * c->value[QN_ROUTER_TOKENS];
    n.shared = sums * (n.threads / 32) * 4;
    n.registers = n.units * (c->value[QN_ROUTER_EXPERTS] * vectors + bytes_of(s->in) / 2) * 4 + sums + 40;
    return n;
}

static qn_router_shape fragments_shape(const spec_t *s, const qn_config *c, qn_router_cut d, bool fused)
{
    qn_router_shape n = {.multiply_warps = (int)ceil_div(d.slice, c->value[QN_ROUTER_CHUNK])};
    int blocks = c->value[QN_ROUTER_CHUNK] / 32, columns = c->value[QN_ROUTER_EXPERTS] / 8;
    int pitch = c->value[QN_ROUTER_EXPERTS] == 32   ? 40
                : c->value[QN_ROUTER_EXPERTS] == 16 ? 24
                                                    : c->value[QN_ROUTER_EXPERTS];
    n.threads = (int)most_of(gate_part(s, fused), n.multiply_warps * 32);
    n.shared = n.multiply_warps * c->value[QN_ROUTER_TOKENS] * pitch * 4;
    n.registers = blocks * (columns + 2) * 4 + columns * 4 + 36;
    return n;
}

// All blocks of a slice lie in shared memory at once.
static qn_router_shape wide_shape(const spec_t *s, const qn_config *c, qn_router_cut d, bool fused)
{
    int blocks = d.slice / 64, experts = c->value[QN_ROUTER_EXPERTS];
    qn_router_shape n = {.groups = (int)least_of(most_of(ceil_div(s->E, 128), 2), 3)}; // more are slower
    if (n.groups > blocks) n.groups = blocks;
    n.threads = (int)most_of(gate_part(s, fused), n.groups * 128);
    n.shared = blocks * ((64 + experts) * 128 + 8) + (int)most_of((n.groups - 1) * experts * 256, 8);
    n.registers = experts / 2 + 56;
    return n;
}

static int ring_bytes(const spec_t *s, const qn_config *c, int block, int stages)
{
    int bytes =
        stages * block * (c->value[QN_ROUTER_TOKENS] * bytes_of(s->in) + c->value[QN_ROUTER_EXPERTS] * bytes_of(s->w));
    return (int)round_up(bytes, 1024);
}

static qn_router_shape deep_shape(const spec_t *s, const qn_config *c, bool fused)
{
    qn_router_shape n = {.block = 64, .groups = c->value[QN_ROUTER_TOKENS] / 64};
    n.threads = (int)most_of(gate_part(s, fused), n.groups * 128);
    n.shared = ring_bytes(s, c, n.block, c->value[QN_ROUTER_STAGES]);
    n.registers = c->value[QN_ROUTER_EXPERTS] / 2 + 60;
    return n;
}

// A ring of blocks with three mbarriers each; one warpgroup more, which loads. Registers are dealt by setmaxnreg where there
// are several that multiply.
static qn_router_shape multicast_shape(const qn_config *c)
{
    int tokens = c->value[QN_ROUTER_TOKENS], experts = c->value[QN_ROUTER_EXPERTS];
    qn_router_shape n = {.block = 64, .groups = tokens == 64 ? 1 : tokens == 192 ? 3 : 2};
    static const int given[] = {0, 255, 232, 160};
    int wanted = tokens / n.groups * experts / 128 + 32;
    n.threads = (n.groups + 1) * 128;
    n.shared = c->value[QN_ROUTER_STAGES] * ((tokens + experts) * 128 + 24);
    n.registers = wanted <= given[n.groups] ? 65536 / n.threads / 8 * 8 : wanted;
    return n;
}

static qn_router_shape tiles_shape(const spec_t *s, const qn_config *c, qn_router_cut d, bool whole, bool fused)
{
    int tokens = c->value[QN_ROUTER_TOKENS], experts = c->value[QN_ROUTER_EXPERTS],
        folds = whole && d.slices > 1 ? 3 : 1;
    qn_router_shape n = {.block = 64, .warps_m = tokens >= 64 ? 2 : (int)most_of(tokens / 16, 1)};
    if (tokens >= 128 && experts < 128) n.warps_m = 4;
    n.warps_n = (int)least_of(8 / n.warps_m, most_of(experts / 8, 1));
    int columns = experts / n.warps_n / 8, rows = tokens / n.warps_m / 16;
    n.threads = (int)most_of(gate_part(s, fused), most_of(32 * n.warps_m * n.warps_n, 128));
    n.shared = ring_bytes(s, c, n.block, c->value[QN_ROUTER_STAGES]);
    n.registers = rows * columns * 4 * folds + columns * 2 + 48;
    return n;
}

static qn_router_shape exact_shape(const spec_t *s, const qn_config *c, qn_router_cut d, bool whole, bool fused)
{
    int tokens = c->value[QN_ROUTER_TOKENS], experts = c->value[QN_ROUTER_EXPERTS],
        folds = whole && d.slices > 1 ? 3 : 1;
    qn_router_shape n = {.block = 32, .warps_m = tokens >= 64 ? 2 : 1};
    n.warps_n = (int)least_of(8 / n.warps_m, most_of(experts / 8, 1));
    int columns = experts / n.warps_n / 4, rows = tokens / n.warps_m / 8;
    n.threads = (int)most_of(gate_part(s, fused), most_of(32 * n.warps_m * n.warps_n, 128));
    n.shared = ring_bytes(s, c, n.block, c->value[QN_ROUTER_STAGES]);
    n.registers = rows * columns * folds + columns * 8 + 60;
    return n;
}

// Of the products alone.
static qn_router_shape products_of(const spec_t *s, const qn_config *c, bool whole, bool fused)
{
    qn_router_cut d = qn_router_cut_of(s, c);
    switch (c->value[QN_ROUTER_PLAN]) {
    case QN_ROUTER_ROWS:
        return rows_shape(s, c, d, fused);
    case QN_ROUTER_FRAGMENTS:
        return fragments_shape(s, c, d, fused);
    case QN_ROUTER_WIDE:
        return wide_shape(s, c, d, fused);
    case QN_ROUTER_DEEP:
        return deep_shape(s, c, fused);
    case QN_ROUTER_MULTICAST:
        return multicast_shape(c);
    case QN_ROUTER_EXACT:
        return exact_shape(s, c, d, whole, fused);
    default:
        return tiles_shape(s, c, d, whole, fused);
    }
}

// whole: through all of D; fused: with the gate.
qn_router_shape qn_router_shape_of(const spec_t *s, const qn_config *c, bool whole, bool fused)
{
    qn_router_shape n = products_of(s, c, whole, fused);
    n.shared = n.gate_at = (int)round_up(n.shared, 16);
    if (fused) n.shared += qn_router_gate_shared(s, n.threads, qn_router_cut_of(s, c).slices);
    if (fused) n.registers = (int)most_of(n.registers, qn_router_gate_registers(s));
    return n;
}

bool qn_router_has_room(const qn_arch *arch, const qn_router_shape *n)
{
    return n->threads <= 1024 && n->multiply_warps <= 32 && n->shared <= arch->shared_cta &&
           round_up(n->registers, 8) * round_up(n->threads, 128) <= arch->registers_sm;
}

bool qn_router_is_fused(const spec_t *s, const qn_arch *arch, const qn_config *c)
{
    if (c->value[QN_ROUTER_PLAN] == QN_ROUTER_MULTICAST) return false; // it is for more tokens than one launch gates
    qn_router_shape n = qn_router_shape_of(s, c, false, true);
    return qn_router_has_room(arch, &n);
}

// ---- tiles

// The tiles that each plan has.
typedef struct tile_range {
    int tokens[2], experts[2];
} tile_range;
static const tile_range tiles_of_plan[] = {
    [QN_ROUTER_ROWS] = {{1, 4}, {1, 8}},           [QN_ROUTER_FRAGMENTS] = {{8, 64}, {8, 32}},
    [QN_ROUTER_WIDE] = {{64, 64}, {8, 64}},        [QN_ROUTER_DEEP] = {{64, 128}, {32, 256}},
    [QN_ROUTER_TILES] = {{16, 128}, {16, 128}},    [QN_ROUTER_EXACT] = {{8, 64}, {16, 64}},
    [QN_ROUTER_MULTICAST] = {{64, 256}, {16, 256}}};

bool qn_router_is_tile(const qn_config *c)
{
    int p = c->value[QN_ROUTER_PLAN], t = c->value[QN_ROUTER_TOKENS], e = c->value[QN_ROUTER_EXPERTS];
    const tile_range *range = &tiles_of_plan[p];
    bool eights = p == QN_ROUTER_ROWS || e % 8 == 0,
         powers = p < QN_ROUTER_TILES || p == QN_ROUTER_MULTICAST || (e & (e - 1)) == 0;
    return t >= range->tokens[0] && t <= range->tokens[1] && e >= range->experts[0] && e <= range->experts[1] &&
           eights && powers;
}

quern_status qn_router_check_tile(const qn_config *c)
{
    int p = c->value[QN_ROUTER_PLAN];
    const tile_range *range = &tiles_of_plan[p];
    if (qn_router_is_tile(c)) return QUERN_OK;
    return qn_fail(QUERN_NO_PLAN, "plan=%s tokens=%d experts=%d: it has tiles of %d … %d tokens and %d … %d experts%s",
                   word_of(qn_router_plan_names, p), c->value[QN_ROUTER_TOKENS], c->value[QN_ROUTER_EXPERTS],
                   range->tokens[0], range->tokens[1], range->experts[0], range->experts[1],
                   p == QN_ROUTER_TILES || p == QN_ROUTER_EXACT ? ", a power of two"
                   : p == QN_ROUTER_ROWS                        ? ""
                                                                : ", in eights");
}
