// SPDX-License-Identifier: Apache-2.0
// wgmma: gathered from the 128 threads of a warpgroup, its operands found through the descriptors, carried out late.
//   (1) Operands in shared memory are found when the instruction is issued, unit of 16 bytes by unit, and read when it
//       lands; the engine reports stores to them in between.
//   (2) The accumulators, and A's registers, are hidden from issue to the wait that covers them.
//   (3) A wgmma whose accumulators are not in flight needs a wgmma.fence since the warp's last wait (or since its
//       beginning); one whose accumulators are, but with another shape, needs one since that wgmma.
#include "wgmma.h"

namespace qm {
namespace {

enum { UNITS = 1024, MOST_IN_FLIGHT = 16, WARPS = 32 };

struct Operands {
    const WgmmaForm *form;
    void *d;
    const u32 *a; // null: a descriptor
    u64 a_descriptor, b_descriptor;
    bool accumulate;
};

// ---- descriptors

struct Descriptor {
    u32 start, leading, stride;
    u32 width; // of a swizzle row in bytes: 128, 64, 32; 16 for none
    bool swizzled;
};

Descriptor decode(u64 bits, const char *which, Place at)
{
    Descriptor d;
    d.start = static_cast<u32>(bits & 0x3FFF) << 4;
    d.leading = static_cast<u32>(bits >> 16 & 0x3FFF) << 4;
    d.stride = static_cast<u32>(bits >> 32 & 0x3FFF) << 4;
    u32 base = bits >> 49 & 7, mode = bits >> 62 & 3;
    d.width = mode == 0 ? 16 : 256u >> mode;
    d.swizzled = mode != 0;
    if (bits & 0x3FF1C000C000C000ull)
        fail(at, "%s's descriptor %016llx has bits outside its fields", which, (unsigned long long)bits);
    if (base) fail(at, "%s's descriptor has base offset %u: only 0 is modelled", which, base);
    // the pattern starts on a multiple of its 8 rows; the start may lie inside its first row (a later K step)
    if (d.swizzled && d.start % (8 * d.width) >= d.width)
        fail(at,
             "%s's descriptor starts at %#x, %u bytes into a swizzle pattern of %u: the pattern must start on a "
             "multiple of it",
             which, d.start, d.start % (8 * d.width), 8 * d.width);
    return d;
}

// The shared address of the 16-byte unit that holds element (mn, k), both first in it. size: bytes of an element.
u32 unit_address(const Descriptor &d, bool mn_major, u32 mn, u32 k, u32 size)
{
    u32 per = 16 / size, lin;
    if (!mn_major && d.swizzled)
        lin = mn / 8 * d.stride + mn % 8 * d.width + k * size;
    else if (!mn_major)
        lin = mn / 8 * d.stride + mn % 8 * 16 + k / per * d.leading;
    else if (d.swizzled)
        lin = mn * size / d.width * d.leading + mn * size % d.width + k / 8 * d.stride + k % 8 * d.width;
    else
        lin = mn / per * d.stride + k / 8 * d.leading + k % 8 * 16;
    u32 a = d.start + lin;
    return d.swizzled ? a ^ (a >> 7 & (d.width / 16 - 1)) << 4 : a;
}

// A matrix of `extent` rows (A) or columns (B) by k, as 16-byte units in shared memory.
struct Matrix {
    u32 extent, k, size;
    bool mn_major;
    const u8 *unit[UNITS]; // K-major: unit u of row mn is [mn * per_line + u]; MN-major: unit u of step k likewise
    u32 lines() const { return mn_major ? k : extent; }
    u32 per_line() const { return (mn_major ? extent : k) * size / 16; }
};

void locate(Matrix &m, const Descriptor &d, Place at)
{
    u32 per = 16 / m.size;
    for (u32 line = 0; line < m.lines(); line++)
        for (u32 u = 0; u < m.per_line(); u++) {
            u32 a = m.mn_major ? unit_address(d, true, u * per, line, m.size)
                               : unit_address(d, false, line, u * per, m.size);
            m.unit[line * m.per_line() + u] = static_cast<u8 *>(shared_pointer(self->rank << 24 | a, at));
        }
}

// Tells the engine what will be read: neighbouring units together.
void declare(Async *op, const Matrix &m)
{
    u32 count = m.lines() * m.per_line();
    for (u32 i = 0; i < count;) {
        const u8 *low = m.unit[i], *high = low + 16;
        u32 j = i + 1;
        for (; j < count && (m.unit[j] == high || m.unit[j] + 16 == low); j++) {
            if (m.unit[j] == high)
                high += 16;
            else
                low -= 16;
        }
        async_source(op, low, static_cast<size_t>(high - low), true);
        i = j;
    }
}

u32 read_element(const Matrix &m, u32 mn, u32 k)
{
    u32 line = m.mn_major ? k : mn, byte = (m.mn_major ? mn : k) * m.size, value = 0;
    raw_copy(&value, m.unit[line * m.per_line() + byte / 16] + byte % 16, m.size);
    return value;
}

// ---- one in flight

struct Operation {
    WgmmaForm form;
    bool accumulate, a_in_registers;
    u32 *d[128];
    u32 a[128][4];
    Matrix ma, mb;
};

u32 size_of(const WgmmaForm &form)
{
    return static_cast<u32>(bits_of(form.a)) / 8;
}
u32 words_of(const WgmmaForm &form)
{
    return static_cast<u32>(form.n) / (!form.integer && form.sum == Format::f16 ? 4 : 2);
}

// A's element (row, k) from the registers: the layout of mma.sync's A in each warp.
u32 register_element(const Operation &o, u32 row, u32 k)
{
    u32 size = size_of(o.form), per = 4 / size, g = row & 7, high = row >> 3 & 1;
    u32 half = k / (4 * per), q = k / per % 4, word = high + 2 * half;
    return o.a[row / 16 * 32 + 4 * g + q][word] >> (k % per * size * 8) & (size == 4 ? ~0u : (1u << size * 8) - 1);
}

u32 a_element(const Operation &o, u32 row, u32 k)
{
    return o.a_in_registers ? register_element(o, row, k) : read_element(o.ma, row, k);
}

// Where D's element (row, column) lives: thread, word and, for f16, half of the word.
struct Cell {
    u32 thread, word, shift;
    bool half;
};
Cell cell_of(const WgmmaForm &form, u32 row, u32 column)
{
    u32 r = (column & 1) + 2 * (row >> 3 & 1) + 4 * (column / 8);
    bool half = !form.integer && form.sum == Format::f16;
    return {row / 16 * 32 + 4 * (row & 7) + column / 2 % 4, half ? r / 2 : r, half ? 16 * (r & 1) : 0, half};
}

// The accumulators as words, thread by thread: read once, written once.
struct Accumulators {
    u32 words[128][128];
    u32 get(const Cell &c) const { return words[c.thread][c.word] >> c.shift & (c.half ? 0xFFFF : ~0u); }
    void put(const Cell &c, u32 value)
    {
        u32 mask = (c.half ? 0xFFFF : ~0u) << c.shift;
        words[c.thread][c.word] = (words[c.thread][c.word] & ~mask) | (value << c.shift & mask);
    }
};

void multiply_integers(const Operation &o, Accumulators &acc)
{
    u32 b[32];
    static u32 a[64][32];
    for (u32 row = 0; row < 64; row++)
        for (u32 k = 0; k < 32; k++) a[row][k] = a_element(o, row, k);
    for (u32 column = 0; column < static_cast<u32>(o.form.n); column++) {
        for (u32 k = 0; k < 32; k++) b[k] = read_element(o.mb, column, k);
        for (u32 row = 0; row < 64; row++) {
            Cell cell = cell_of(o.form, row, column);
            int32_t c = o.accumulate ? static_cast<int32_t>(acc.get(cell)) : 0;
            acc.put(cell, static_cast<u32>(integer_dot(o.form.a_signed, a[row], o.form.b_signed, b, 32, c, false)));
        }
    }
}

void multiply_floats(const Operation &o, Accumulators &acc)
{
    static Number a[64][32];
    Number b[32];
    u32 depth = static_cast<u32>(o.form.k);
    Rule rule = rule_of(Unit::wgmma, limits().cc, o.form.a, o.form.sum);
    for (u32 row = 0; row < 64; row++)
        for (u32 k = 0; k < depth; k++) {
            a[row][k] = number_of(o.form.a, a_element(o, row, k));
            a[row][k].negative ^= o.form.negate_a;
        }
    for (u32 column = 0; column < static_cast<u32>(o.form.n); column++) {
        for (u32 k = 0; k < depth; k++) {
            b[k] = number_of(o.form.b, read_element(o.mb, column, k));
            b[k].negative ^= o.form.negate_b;
        }
        for (u32 row = 0; row < 64; row++) {
            Cell cell = cell_of(o.form, row, column);
            acc.put(cell, dot_chain(a[row], b, o.form.k, o.accumulate ? acc.get(cell) : 0, rule));
        }
    }
}

void land(Operation &o)
{
    static Accumulators acc;
    u32 bytes = words_of(o.form) * 4;
    for (u32 t = 0; t < 128; t++) raw_copy(acc.words[t], o.d[t], bytes);
    if (o.form.integer)
        multiply_integers(o, acc);
    else
        multiply_floats(o, acc);
    for (u32 t = 0; t < 128; t++) raw_copy(o.d[t], acc.words[t], bytes);
}

void (*const no_read)(Operation &) = nullptr;

// ---- order: the accumulators that each warp has in flight, and its fences

struct InFlight {
    void *d[32];
    u32 bytes; // of a lane's accumulators
    int n, k;
    u32 group;  // the group it is or will be in
    u32 issued; // the warp's count then
};
struct WarpOrder {
    u32 now, fenced, waited, groups; // counts; 0: never
    u32 count;
    InFlight op[MOST_IN_FLIGHT];
};
struct Order {
    WarpOrder warp[WARPS];
};

const char order_key = 0;

WarpOrder &order_of(unsigned warp, Place at)
{
    return static_cast<Order *>(cta_state(&order_key, sizeof(Order), nullptr, at))->warp[warp];
}

void check_order(WarpOrder &w, const WgmmaForm &form, const void *d, Place at)
{
    const InFlight *found = nullptr;
    for (u32 i = 0; i < w.count; i++)
        if (w.op[i].d[0] == d) found = &w.op[i];
    if (!found) {
        if (w.fenced <= w.waited)
            fail(at, "no wgmma.fence since the warp's %s", w.waited ? "last wait_group" : "beginning");
    } else if ((found->n != form.n || found->k != form.k) && w.fenced <= found->issued) {
        fail(at, "the accumulators are those of an m64n%dk%d in flight: another shape needs a wgmma.fence first",
             found->n, found->k);
    }
}

void note(WarpOrder &w, const WgmmaForm &form, const Gather &gather, u32 first, Place at)
{
    u32 i = 0;
    while (i < w.count && w.op[i].d[0] != gather.of<Operands>(first).d) i++;
    if (i == MOST_IN_FLIGHT) fail(at, "more than %d accumulators of a warp in flight", MOST_IN_FLIGHT);
    if (i == w.count) w.count++;
    InFlight &f = w.op[i]; // of a chain on the same accumulators, the latest
    for (u32 l = 0; l < 32; l++) f.d[l] = gather.of<Operands>(first + l).d;
    f.bytes = words_of(form) * 4;
    f.n = form.n, f.k = form.k;
    f.group = w.groups;
    f.issued = ++w.now;
}

// ---- issue

void check_same(const Gather &gather)
{
    const Operands &first = gather.of<Operands>(0);
    for (u32 l = 1; l < 128; l++) {
        const Operands &o = gather.of<Operands>(l);
        if (o.a_descriptor != first.a_descriptor || o.b_descriptor != first.b_descriptor)
            fail(gather.at,
                 "thread %u of the warpgroup has other descriptors (%016llx, %016llx) than thread 0 (%016llx, %016llx)",
                 l, (unsigned long long)o.a_descriptor, (unsigned long long)o.b_descriptor,
                 (unsigned long long)first.a_descriptor, (unsigned long long)first.b_descriptor);
        if (o.accumulate != first.accumulate)
            fail(gather.at, "thread %u of the warpgroup has another scale-d than thread 0", l);
    }
}

void hand_registers(Async *async, Operation &o, const Gather &gather, u32 base)
{
    for (u32 t = 0; t < 128; t++) {
        const Operands &operands = gather.of<Operands>(t);
        o.d[t] = static_cast<u32 *>(operands.d);
        async_registers(async, base + t, operands.d, words_of(o.form) * 4);
        if (operands.a) {
            memcpy(o.a[t], operands.a, 16);
            async_registers(async, base + t, const_cast<u32 *>(operands.a), 16);
        }
        async_join(async, GROUP_WGMMA, base + t);
    }
}

void carry_issue(Gather &gather)
{
    const Operands &first = gather.of<Operands>(0);
    const WgmmaForm &form = *first.form;
    Place at = gather.at;
    u32 warp = self->warp & ~3u;
    check_same(gather);
    for (u32 w = 0; w < 4; w++) check_order(order_of(warp + w, at), form, gather.of<Operands>(32 * w).d, at);

    static Operation o;
    o.form = form;
    o.accumulate = first.accumulate;
    o.a_in_registers = first.a != nullptr;
    o.ma = {64, static_cast<u32>(form.k), size_of(form), form.a_mn_major, {}};
    o.mb = {static_cast<u32>(form.n), static_cast<u32>(form.k), size_of(form), form.b_mn_major, {}};
    Async *async = async_begin(at);
    if (!o.a_in_registers) {
        locate(o.ma, decode(first.a_descriptor, "A", at), at);
        declare(async, o.ma);
    }
    locate(o.mb, decode(first.b_descriptor, "B", at), at);
    declare(async, o.mb);
    hand_registers(async, o, gather, warp * 32);
    for (u32 w = 0; w < 4; w++) note(order_of(warp + w, at), form, gather, 32 * w, at);
    async_after(async, reinterpret_cast<uintptr_t>(o.d[0]));
    async_launch(async, o, no_read, land);
}

void carry_fence(Gather &gather)
{
    WarpOrder &w = order_of(self->warp, gather.at);
    w.fenced = ++w.now;
}

void carry_commit(Gather &gather)
{
    order_of(self->warp, gather.at).groups++;
}

void carry_wait(Gather &gather)
{
    WarpOrder &w = order_of(self->warp, gather.at);
    u32 pending = gather.of<u32>(static_cast<u32>(__builtin_ctz(gather.mask))), kept = 0;
    for (u32 i = 0; i < w.count; i++)
        if (w.op[i].group + pending >= w.groups) w.op[kept++] = w.op[i];
    w.count = kept;
    w.waited = ++w.now;
}

} // namespace

void wgmma(const WgmmaForm &form, void *d, const u32 *a, u64 a_descriptor, u64 b_descriptor, bool accumulate, Place at)
{
    need_arch(90, 100, true, at);
    Operands operands{&form, d, a, a_descriptor, b_descriptor, accumulate};
    warpgroup_op(&operands, carry_issue, at);
}

void wgmma_fence(Place at)
{
    need_arch(90, 100, true, at);
    warp_op(~0u, nullptr, carry_fence, at);
}

void wgmma_commit(Place at)
{
    need_arch(90, 100, true, at);
    warp_op(~0u, nullptr, carry_commit, at);
    group_commit(GROUP_WGMMA, at);
}

void wgmma_wait(unsigned pending, Place at)
{
    need_arch(90, 100, true, at);
    u32 count = pending;
    warp_op(~0u, &count, carry_wait, at);
    group_wait(GROUP_WGMMA, pending, false, at);
    // what was shown may still be another one's: the accumulators of a chain that is not finished
    const WarpOrder &w = order_of(self->warp, at);
    for (u32 i = 0; i < w.count; i++) hide(w.op[i].d[self->lane], w.op[i].bytes, at);
}

} // namespace qm
