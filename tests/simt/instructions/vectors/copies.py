# SPDX-License-Identifier: Apache-2.0
"""copy.vec: asynchronous copies and mbarriers."""
import random

from .sums import add_even
from .draw import draw
from .writing import ANY, POISON, Writer


def write_copy(folder):
    w = Writer(folder, "copy", 32, 512 + 8)
    rng = random.Random("copy")
    data = [rng.getrandbits(32) for _ in range(512)]

    def valid(size, words=data):
        return [rng.randint(0, size) for _ in range(32)] + words[32:]

    def lanes(words, size, valid_bytes=None):
        raw = b"".join(x.to_bytes(4, "little") for x in words)
        out = b""
        for t in range(32):
            n = size if valid_bytes is None else valid_bytes[t]
            out += raw[t * size:t * size + n] + bytes(size - n)
        out += POISON.to_bytes(4, "little") * ((512 - len(out)) // 4)
        return [int.from_bytes(out[i:i + 4], "little") for i in range(0, 512, 4)]

    poison = [POISON] * 128
    for which, size in ((0, 4), (1, 8), (2, 16), (6, 16)):
        w.case(f"cp.async.{'cg' if which == 6 else 'ca'}.{size}", which, data, [(ANY, lanes(data, size))])
    for which, size in ((3, 4), (4, 8), (5, 16), (7, 16)):
        words = valid(size)
        w.case(f"cp.async.{'cg' if which == 7 else 'ca'}.{size}.zfill", which, words, [(ANY, lanes(words, size, words[:32]))])
    groups = data[:32] + data[64:96] + [(x + 1) & 0xFFFFFFFF for x in data[:32] + data[64:96]]
    w.case("cp.async.wait_group", 8, data, [(ANY, groups)])
    w.case("cp.async.mbarrier.arrive.noinc", 9, data, [(ANY, data[:32] + data[31::-1] + poison[64:])])
    w.case("mbarrier.phases", 10, data, [(ANY, poison + [0, 1, 0, 1, 0, 0, 1, 1])])
    hopper = (90, 1000)
    landed = data[:8] + data[16:32] + poison[24:]
    w.case("mbarrier.transactions", 11, data, [(hopper, landed + [0, 0, data[0], data[31], 0])])
    w.case("cp.async.bulk.load", 12, data, [(hopper, data[:128])])
    memory = data[256:384]
    changed = [7] + memory[1:]
    w.case("cp.async.bulk.store", 13, data, [(hopper, changed + memory)])
    floats = data[:256] + [draw(rng, "f32", rng.choice(["near", "small", "small"])) for _ in range(256)]
    for i in range(256, 384):  # some sums cancel to a subnormal: kept by the H200, though the manual says it becomes zero
        if i % 4 == 0:
            floats[i] = 0x00800000 + i
            floats[i + 128] = 0x80800000 + rng.randint(0, 512)
    sums = [add_even(x, y, "f32") for x, y in zip(floats[384:], floats[256:384])]
    w.case("cp.reduce.async.bulk.add.f32", 14, floats, [(hopper, [7] + floats[257:384] + sums)])
    sums = [(x + y) & 0xFFFFFFFF for x, y in zip(data[384:], memory)]
    w.case("cp.reduce.async.bulk.add.u32", 15, data, [(hopper, changed + sums)])
    blocks = [data[256:384], data[384:512]]
    multicast = [b[:32] + data[:64] + b[96:] for b in blocks]
    w.case("cp.async.bulk.load.multicast", 16, data, [(hopper, multicast[0] + multicast[1])], ctas=2)
    sent = blocks[1][:64] + blocks[0][32:64] + blocks[1][96:]
    w.case("cp.async.bulk.send", 17, data, [(hopper, blocks[0] + sent)], ctas=2)
    arrived = [[1000 * (1 - r) + t for t in range(32)] + blocks[r][32:] for r in (0, 1)]
    w.case("mbarrier.arrive.shared::cluster", 18, data, [(hopper, arrived[0] + arrived[1])], ctas=2)
    masks = [0xFFFFFFFF, 1, 0x80000000, 0x0FF01234]
    w.case("elect.sync", 19, masks + data[4:], [(hopper, [1, 1, 1, 1] + poison[4:])])
    sent = [blocks[0][:96] + blocks[1][:32], blocks[1][:64] + blocks[1][32:64] + blocks[0][:32]]
    w.case("st.async", 20, data, [(hopper, sent[0] + sent[1])], ctas=2)
    w.case("fence.proxy.async.global", 21, data, [(hopper, data[256:384] * 2)])
    w.case("fence.acq_rel.cluster", 22, data, [(hopper, arrived[0] + arrived[1])], ctas=2)
    w.close()
