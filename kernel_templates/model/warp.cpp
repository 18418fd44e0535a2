// SPDX-License-Identifier: Apache-2.0
// Operations of a warp or of four warps: lanes are gathered, the last to arrive carries the operation out.
#include "machine.h"

namespace qm {

static char no_operand;
static std::vector<WarpOp *> spare;

static WarpOp *take(u32 mask, unsigned lanes, Carry carry, Place at)
{
    WarpOp *op;
    if (spare.empty()) {
        op = new WarpOp;
    } else {
        op = spare.back();
        spare.pop_back();
    }
    op->gather.mask = mask;
    op->gather.lanes = lanes;
    op->gather.at = at;
    memset(op->gather.operand, 0, lanes * sizeof(void *));
    op->arrived = 0;
    op->carry = carry;
    return op;
}

static bool same_place(Place a, Place b)
{
    return a.line == b.line && (a.what == b.what || !strcmp(a.what, b.what)) &&
           (a.file == b.file || !strcmp(a.file, b.file));
}

// The operation that this lane joins. One of another mask or place may be gathering at the same time: those lanes wait
// until this one comes there, too. If it never does, that is a deadlock.
static WarpOp *find(Warp *warp, u32 mask, Carry carry, Place at)
{
    for (WarpOp *op : warp->ops)
        if (op->gather.mask == mask && op->carry == carry && same_place(op->gather.at, at)) return op;
    warp->ops.push_back(take(mask, 32, carry, at));
    return warp->ops.back();
}

void warp_op(u32 mask, void *operand, Carry carry, Place at)
{
    Lane *a = current();
    Warp *warp = a->warp;
    u32 bit = 1u << a->me.lane;
    a->at = at;
    counts.operations++;
    if (!(mask & bit)) fail(at, "the lane is not in its own mask %08x", mask);
    if (mask & ~warp->live)
        fail(at, "mask %08x names lanes %08x, which have ended or never were", mask, mask & ~warp->live);
    WarpOp *op = find(warp, mask, carry, at);
    op->gather.operand[a->me.lane] = operand ? operand : &no_operand;
    op->arrived |= bit;
    if (op->arrived != mask) {
        wait_at(at);
        return;
    }
    for (size_t i = 0; i < warp->ops.size(); i++)
        if (warp->ops[i] == op) {
            warp->ops[i] = warp->ops.back();
            warp->ops.pop_back();
            break;
        }
    warp->synchronised++;
    if (carry) carry(op->gather);
    for (u32 m = mask & ~bit; m; m &= m - 1) wake(&warp->lane[__builtin_ctz(m)]);
    spare.push_back(op);
}

void warpgroup_op(void *operand, Carry carry, Place at)
{
    Lane *a = current();
    Cta *cta = a->cta;
    unsigned group = a->me.warp / 4, threads = launch.threads;
    a->at = at;
    counts.operations++;
    if (group * 128 + 128 > threads) fail(at, "warpgroup %u has %u of its 128 threads", group, threads - group * 128);
    for (unsigned w = 0; w < 4; w++)
        if (a->warp[(int)w - (int)(a->me.warp & 3)].live != ~0u) fail(at, "a thread of the warpgroup has ended");
    WarpOp *&op = cta->group[group];
    if (!op) {
        op = take(~0u, 128, carry, at);
        cta->group_come[group] = 0;
    } else if (op->carry != carry || !same_place(op->gather.at, at)) {
        fail(at, "the warpgroup gathers at %s, %s:%d", op->gather.at.what, op->gather.at.file, op->gather.at.line);
    }
    unsigned thread = a->me.thread - group * 128;
    op->gather.operand[thread] = operand ? operand : &no_operand;
    if (++cta->group_come[group] < 128) {
        wait_at(at);
        return;
    }
    WarpOp *done = op;
    op = nullptr;
    Lane *first = a - thread;
    for (unsigned w = 0; w < 4; w++) first[w * 32].warp->synchronised++;
    if (carry) carry(done->gather);
    for (unsigned l = 0; l < 128; l++)
        if (l != thread) wake(&first[l]);
    spare.push_back(done);
}

void set_max_registers(unsigned count, bool increase, Place at)
{
    need_arch(90, 0, true, at);
    if (count < 24 || count > 256 || count % 8) fail(at, "%u registers: 24 to 256 in steps of 8", count);
    struct Asked {
        unsigned count;
        bool increase;
    } asked = {count, increase};
    warpgroup_op(
        &asked,
        [](Gather &g) {
            const Asked &first = g.of<Asked>(0);
            for (unsigned l = 1; l < g.lanes; l++)
                if (g.of<Asked>(l).count != first.count || g.of<Asked>(l).increase != first.increase)
                    fail(g.at, "the threads of the warpgroup ask for different numbers of registers");
            unsigned &now = current()->cta->group_registers[current()->me.warp / 4];
            if (now && first.increase && now > first.count)
                fail(g.at, "inc to %u registers, the warpgroup has %u", first.count, now);
            if (now && !first.increase && now < first.count)
                fail(g.at, "dec to %u registers, the warpgroup has %u", first.count, now);
            now = first.count;
        },
        at);
}

} // namespace qm
