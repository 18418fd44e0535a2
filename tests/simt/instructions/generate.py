#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the .vec files of this folder: inputs, and the outputs that the PTX manual's definitions give.

    generate.py [FOLDER]
    generate.py --public CHECKOUT       public_mma.vec and public_wgmma.vec, from a checkout of
                                        north-numerical-computing/MATLAB-tensor-core

A program of its own, on purpose: it shares no line and no shortcut with the model (kernel_templates/model), computes
with whole numbers of any size, and is run by hand when a case is added. What the manual leaves open (the order and
rounding of tensor-core sums) follows the published models named in kernel_templates/model/INSTRUCTIONS.md.

The format, words in hexadecimal, '#' lines are comments:
    kernel FILE threads N shared BYTES
    case NAME which N ctas N
    map TYPE RANK SWIZZLE FILL TARGET OFFSET / dims / strides / box / steps      (TARGET: in or out; OFFSET in words)
    in COUNT        and the words
    out FROM UNTIL COUNT        and the words: for architectures FROM <= cc < UNTIL; words of out start as eeeeeeee
    N*WORD among the words is WORD N times, N in decimal; "-" in place of a word of out: anything
"""
import os
import random
import sys
from decimal import Decimal, getcontext
from fractions import Fraction

ANY = (80, 1000)
POISON = 0xEEEEEEEE

# ---- number formats: (exponent bits, fraction bits, infinity, nan)
FORMATS = {
    "f16": (5, 10, True), "bf16": (8, 7, True), "tf32": (8, 10, True), "f32": (8, 23, True),
    "e4m3": (4, 3, False), "e5m2": (5, 2, True),
}
WIDTH = {"f16": 16, "bf16": 16, "tf32": 32, "f32": 32, "e4m3": 8, "e5m2": 8, "s8": 8, "u8": 8}
ONE = 400  # values are whole multiples of 2^-400


def decode(fmt, bits):
    """('nan'), ('inf', sign) or ('number', value * 2^400, exponent)."""
    if fmt == "tf32":
        bits >>= 13
    exponent_bits, fraction_bits, has_infinity = FORMATS[fmt]
    fraction = bits & ((1 << fraction_bits) - 1)
    field = bits >> fraction_bits & ((1 << exponent_bits) - 1)
    sign = -1 if bits >> (exponent_bits + fraction_bits) & 1 else 1
    bias = (1 << (exponent_bits - 1)) - 1
    if has_infinity and field == (1 << exponent_bits) - 1:
        return ("nan",) if fraction else ("inf", sign)
    if not has_infinity and field == (1 << exponent_bits) - 1 and fraction == (1 << fraction_bits) - 1:
        return ("nan",)
    exponent = max(field, 1) - bias
    significand = fraction + ((1 << fraction_bits) if field else 0)
    return ("number", sign * (significand << (ONE + exponent - fraction_bits)), exponent)


def encode(value, fraction_bits, least, greatest, exponent_bits, rounding):
    """value * 2^400 as bits, rounded 'zero' or 'even'."""
    if value == 0:
        return 0
    sign, v = (1 if value < 0 else 0), abs(value)
    exponent = max(v.bit_length() - 1 - ONE, least)
    step = ONE + exponent - fraction_bits
    kept, rest = (v >> step, v & ((1 << step) - 1)) if step >= 0 else (v << -step, 0)
    if rounding == "even" and step > 0:
        half = 1 << (step - 1)
        if rest > half or (rest == half and kept & 1):
            kept += 1
            if kept == 2 << fraction_bits:
                kept, exponent = kept >> 1, exponent + 1
    top = sign << (exponent_bits + fraction_bits)
    if exponent > greatest:
        return top | ((1 << exponent_bits) - 1) << fraction_bits
    field = exponent - least + 1 if kept >> fraction_bits else 0
    return top | field << fraction_bits | kept & ((1 << fraction_bits) - 1)


def to_f32(value, rounding):
    return encode(value, 23, -126, 127, 8, rounding)


def to_f16(value, rounding):
    return encode(value, 10, -14, 15, 5, rounding)


# ---- tensor-core sums
def dot_add(fa, a, fb, b, c, sum_type, fraction, least):
    """Terms cut toward zero to multiples of 2^(E - fraction), added exactly, rounded once."""
    c_format = "f16" if sum_type == "f16" else "f32"
    nan, infinities, terms = False, set(), []
    for x, y in zip(a, b):
        x, y = decode(fa, x), decode(fb, y)
        if x[0] == "nan" or y[0] == "nan":
            nan = True
        elif x[0] == "inf" or y[0] == "inf":
            sx = x[1] if x[0] == "inf" else (x[1] > 0) - (x[1] < 0)
            sy = y[1] if y[0] == "inf" else (y[1] > 0) - (y[1] < 0)
            nan = nan or sx * sy == 0
            infinities.add(sx * sy)
        elif x[1] and y[1]:
            terms.append((x[1] * y[1] >> ONE, x[2] + y[2]))  # exact: 2^-400 is far below every product
    z = decode(c_format, c)
    if z[0] == "nan":
        nan = True
    elif z[0] == "inf":
        infinities.add(z[1])
    elif z[1]:
        terms.append((z[1], z[2]))
    infinities.discard(0)
    if nan or len(infinities) == 2:
        return 0x7FFF if sum_type == "f16" else 0x7FFFFFFF
    if infinities:
        sign = 1 if -1 in infinities else 0
        return 0x7C00 | sign << 15 if sum_type == "f16" else 0x7F800000 | sign << 31
    top = max([e for _, e in terms] + [least])
    quantum = ONE + top - fraction
    total = sum((abs(v) >> quantum << quantum) * (1 if v > 0 else -1) for v, _ in terms)
    if sum_type == "f16":
        bits = to_f16(total, "even")
        return bits if bits & 0x7FFF else 0  # what vanishes in rounding is +0
    bits = to_f32(total, "zero") & (~0x3FF if sum_type == "e8m13" else ~0)
    return bits if bits & 0x7FFFFFFF else 0


def add_even(a, b, fmt):
    x, y = decode(fmt, a), decode(fmt, b)
    nan = 0x7FFF if fmt == "f16" else 0x7FFFFFFF
    if x[0] == "nan" or y[0] == "nan" or (x[0] == "inf" and y[0] == "inf" and x[1] != y[1]):
        return nan
    if x[0] == "inf" or y[0] == "inf":
        sign = (x if x[0] == "inf" else y)[1] < 0
        return (0x7C00 | sign << 15) if fmt == "f16" else (0x7F800000 | sign << 31)
    if x[1] == y[1] == 0:
        return (a & b) & (0x8000 if fmt == "f16" else 0x80000000)
    return to_f16(x[1] + y[1], "even") if fmt == "f16" else to_f32(x[1] + y[1], "even")


def mma_element(cc, fa, fb, a, b, c, sum_type):
    """D of mma.sync: blocks of terms in order of k; fp8 by two dot products of f16 instructions and an addition."""
    k = len(a)
    least = (-21 if sum_type == "f16" else -133) + (1 if cc < 90 else 0)
    if fa in ("e4m3", "e5m2"):
        first = [i for i in range(k) if i % 4 < 2]
        second = [i for i in range(k) if i % 4 >= 2]
        total = 0
        for part in (first, second):
            total = dot_add(fa, [a[i] for i in part], fb, [b[i] for i in part], total, sum_type, 25, least)
        return add_even(c, total, sum_type)
    block = (4 if fa == "tf32" else 8) * (2 if cc >= 90 else 1)
    for at in range(0, k, block):
        c = dot_add(fa, a[at:at + block], fb, b[at:at + block], c, sum_type, 25 if cc >= 90 else 24, least)
    return c


def wgmma_element(fa, fb, a, b, c, sum_type):
    least = -21 if sum_type == "f16" else -133
    if fa in ("e4m3", "e5m2"):
        return dot_add(fa, a, fb, b, c, "f16" if sum_type == "f16" else "e8m13", 13, least)
    return dot_add(fa, a, fb, b, c, sum_type, 25, least)


def integer_element(fa, fb, a, b, c, saturate):
    def signed(v, bits):
        return v - (1 << bits) if v >> (bits - 1) else v

    total = signed(c, 32)
    for x, y in zip(a, b):
        total += (signed(x, 8) if fa == "s8" else x) * (signed(y, 8) if fb == "s8" else y)
    if saturate:
        total = max(-(1 << 31), min((1 << 31) - 1, total))
    return total & 0xFFFFFFFF


# ---- inputs
def draw(rng, fmt, style):
    """Bits of one element. near: ordinary values; wide: every finite one; small: around the subnormals; all: any bits;
    sparse: mostly zeros beside large and small values; zeros: of both signs; special: a few infinities and NaN;
    tiny: products near the least number of the sum."""
    width = WIDTH[fmt]
    if fmt in ("s8", "u8"):
        return rng.getrandbits(8) if style != "extreme" else rng.choice([0x80, 0x7F, 0xFF])
    exponent_bits, fraction_bits, _ = FORMATS[fmt]
    low = 13 if fmt == "tf32" else 0
    bias = (1 << (exponent_bits - 1)) - 1
    if style == "all":
        return rng.getrandbits(width)
    if style == "special" and rng.random() < 0.03:
        sign, top = rng.getrandbits(1) << (width - 1), ((1 << exponent_bits) - 1) << (fraction_bits + low)
        return sign | top | rng.choice([0, 0, 1, (1 << (fraction_bits + low)) - 1])
    if style == "special":
        style = "near"
    if style == "zeros" or style == "sparse" and rng.random() < 0.6:
        return rng.getrandbits(1) << (width - 1)
    if style == "near":
        field = bias + rng.randint(-2, 1)
    elif style == "tiny":
        field = bias - (12 if fmt == "f16" else 75) + rng.randint(-3, 3)
    elif style == "small":
        field = rng.randint(0, min(3, bias))
    elif style == "sparse":
        field = rng.choice([1, 2, bias, 2 * bias - 1, 2 * bias])
    else:
        field = rng.randint(0, 2 * bias)
    fraction = rng.getrandbits(fraction_bits + low)
    return rng.getrandbits(1) << (width - 1) | field << (fraction_bits + low) | fraction


def draw_c(rng, sum_type, style):
    fmt = "f16" if sum_type == "f16" else "f32"
    if style == "all" and rng.random() < 0.9:
        style = "wide"
    if style == "tiny":  # zero, or a few of the least steps
        return rng.getrandbits(1) << (WIDTH[fmt] - 1) | rng.choice([0, 0, 1, 5])
    return draw(rng, fmt, style)


# ---- writing
class Writer:
    def __init__(self, folder, kernel, threads, shared, name=None, notes=()):
        self.path = os.path.join(folder, (name or kernel) + ".vec")
        self.lines = ["# Made by generate.py; do not edit."] + [f"# {note}" for note in notes]
        self.lines.append(f"kernel {kernel}.cu threads {threads} shared {shared}")

    def words(self, words):
        items, at = [], 0
        while at < len(words):
            same = at
            while same < len(words) and words[same] == words[at]:
                same += 1
            if same - at < 4:
                same = at + 1
            word = "-" if words[at] is None else f"{words[at]:08x}"
            items.append(word if same == at + 1 else f"{same - at}*{word}")
            at = same
        for at in range(0, len(items), 16):
            self.lines.append(" ".join(items[at:at + 16]))

    def case(self, name, which, words, outs, ctas=1, tensor_map=None):
        self.lines.append(f"case {name} which {which} ctas {ctas}")
        if tensor_map:
            self.lines.append("map " + tensor_map)
        self.lines.append(f"in {len(words)}")
        self.words(words)
        for (start, until), out in outs:
            self.lines.append(f"out {start} {until} {len(out)}")
            self.words(out)

    def close(self):
        with open(self.path, "w") as f:
            f.write("\n".join(self.lines) + "\n")


def packed(elements, width):
    """Elements of a register array, from the lowest bits up."""
    per = 32 // width
    return [sum(e << (width * i) for i, e in enumerate(elements[at:at + per])) for at in range(0, len(elements), per)]


def by_lane(registers):
    """registers[lane][word] as the words of all lanes, word by word."""
    return [registers[t][i] for i in range(len(registers[0])) for t in range(len(registers))]


# ---- mma
def a_place(t, i, width):
    g, q = t >> 2, t & 3
    if width == 32:
        return g + 8 * (i & 1), q + 4 * (i >> 1)
    if width == 16:
        return g + 8 * ((i >> 1) & 1), 2 * q + (i & 1) + 8 * (i >> 2)
    return g + 8 * ((i >> 2) & 1), 4 * q + (i & 3) + 16 * (i >> 3)


def b_place(t, i, width):
    g, q = t >> 2, t & 3
    if width == 32:
        return q + 4 * i, g
    if width == 16:
        return 2 * q + (i & 1) + 8 * (i >> 1), g
    return 4 * q + (i & 3) + 16 * (i >> 2), g


def c_place(t, i):
    return (t >> 2) + 8 * (i >> 1), 2 * (t & 3) + (i & 1)


MMA_FORMS = [  # in the order of mma.cu: k, A, B, sum, first architecture
    (8, "f16", "f16", "f32", 80), (16, "f16", "f16", "f32", 80), (8, "f16", "f16", "f16", 80),
    (16, "f16", "f16", "f16", 80), (8, "bf16", "bf16", "f32", 80), (16, "bf16", "bf16", "f32", 80),
    (4, "tf32", "tf32", "f32", 80), (8, "tf32", "tf32", "f32", 80),
    (16, "s8", "s8", "s32", 80), (16, "s8", "u8", "s32", 80), (16, "u8", "s8", "s32", 80), (16, "u8", "u8", "s32", 80),
    (32, "s8", "s8", "s32", 80), (32, "s8", "u8", "s32", 80), (32, "u8", "s8", "s32", 80), (32, "u8", "u8", "s32", 80),
    (32, "s8", "s8", "sat", 80), (32, "u8", "u8", "sat", 80),
    (32, "e4m3", "e4m3", "f32", 90), (32, "e4m3", "e5m2", "f32", 90), (32, "e5m2", "e4m3", "f32", 90),
    (32, "e5m2", "e5m2", "f32", 90), (32, "e4m3", "e4m3", "f16", 90), (32, "e5m2", "e5m2", "f16", 90),
    (16, "e4m3", "e4m3", "f32", 90), (16, "e5m2", "e5m2", "f32", 90),
]


def mma_case(rng, form, style):
    k, fa, fb, sum_type, since = form
    width = WIDTH[fa]
    a = [[draw(rng, fa, style) for _ in range(k)] for _ in range(16)]
    b = [[draw(rng, fb, style) for _ in range(8)] for _ in range(k)]
    if sum_type in ("s32", "sat"):
        c = [[rng.getrandbits(32) for _ in range(8)] for _ in range(16)]
        if style == "extreme":
            c = [[rng.choice([0x7FFFFFFF, 0x80000000, 0x7FFFFFF0, 0x80000010]) for _ in range(8)] for _ in range(16)]
    else:
        c = [[draw_c(rng, sum_type, style) for _ in range(8)] for _ in range(16)]
    fragments_a, fragments_b, fragments_c = [], [], []
    c_width = 16 if sum_type == "f16" else 32
    for t in range(32):
        fragments_a.append(packed([a[r][x] for r, x in (a_place(t, i, width) for i in range(k // 2))], width))
        fragments_b.append(packed([b[x][n] for x, n in (b_place(t, i, width) for i in range(k // 4))], width))
        fragments_c.append(packed([c[r][n] for r, n in (c_place(t, i) for i in range(4))], c_width))
    words = by_lane(fragments_a) + by_lane(fragments_b) + by_lane(fragments_c)
    outs = []
    floating = sum_type in ("f32", "f16")
    ranges = [(80, 89), (90, 120)] if floating and since == 80 else [(since, 120)] if floating else [(80, 120)]
    for start, until in ranges:
        fragments = []
        for t in range(32):
            d = []
            for i in range(4):
                r, n = c_place(t, i)
                column = [b[x][n] for x in range(k)]
                if floating:
                    d.append(mma_element(start, fa, fb, a[r], column, c[r][n], sum_type))
                else:
                    d.append(integer_element(fa, fb, a[r], column, c[r][n], sum_type == "sat"))
            fragments.append(packed(d, c_width))
        outs.append(((start, until), by_lane(fragments)))
    return words, outs


def write_mma(folder):
    w = Writer(folder, "mma", 32, 0)
    for which, form in enumerate(MMA_FORMS):
        styles = ("near", "wide", "small", "sparse", "zeros", "special", "all")
        if form[3] in ("s32", "sat"):
            styles = ("all", "extreme")
        if form[1] in ("bf16", "tf32") or form[1] == form[3] == "f16":
            styles += ("tiny",)
        for style in styles:
            rng = random.Random(f"mma {which} {style}")
            words, outs = mma_case(rng, form, style)
            k, fa, fb, sum_type, _ = form
            w.case(f"m16n8k{k}.{sum_type}.{fa}.{fb}/{style}", which, words, outs)
    w.close()


# ---- ldmatrix, stmatrix, movmatrix
def halves(words):
    return [h for w in words for h in (w & 0xFFFF, w >> 16)]


def write_matrix(folder):
    w = Writer(folder, "matrix", 32, 512)
    rng = random.Random("matrix")
    for which in range(13):
        rows = list(range(32))
        rng.shuffle(rows)
        memory = [rng.getrandbits(32) for _ in range(128)]
        registers = [[rng.getrandbits(32) for _ in range(4)] for _ in range(32)]
        after_registers, after = [r[:] for r in registers], halves(memory)
        count, trans = (1, 2, 4)[which % 3], which % 6 >= 3
        for t in range(32):
            g, q = t >> 2, t & 3
            for j in range(count if which < 12 else 0):
                if which < 6:  # element (r, c) of matrix j: half-word c of the row that lane 8j + r addresses
                    at = [(2 * q, g), (2 * q + 1, g)] if trans else [(g, 2 * q), (g, 2 * q + 1)]
                    low, high = (halves(memory)[8 * rows[8 * j + r] + c] for r, c in at)
                    after_registers[t][j] = low | high << 16
                else:
                    at = [(2 * q, g), (2 * q + 1, g)] if trans else [(g, 2 * q), (g, 2 * q + 1)]
                    for (r, c), value in zip(at, halves([registers[t][j]])):
                        after[8 * rows[8 * j + r] + c] = value
            if which == 12:
                matrix = {(l >> 2, 2 * (l & 3) + h): halves([registers[l][0]])[h] for l in range(32) for h in (0, 1)}
                after_registers[t][0] = matrix[2 * q, g] | matrix[2 * q + 1, g] << 16
        name = "movmatrix" if which == 12 else f"{'ldmatrix' if which < 6 else 'stmatrix'}.x{count}{'.trans' if trans else ''}"
        since = 90 if 6 <= which < 12 else 80
        w.case(name, which, rows + memory + by_lane(registers),
               [((since, 1000), by_lane(after_registers) + packed(after, 16))])
    w.close()


# ---- copies and mbarriers
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


# ---- tiles
TYPES = {"u8": (0, 1), "u16": (1, 2), "u32": (2, 4), "f16": (6, 2), "f32": (7, 4), "f64": (8, 8), "bf16": (9, 2),
         "tf32": (11, 4)}


def moved(address, swizzle):
    """The swizzle of 32, 64 and 128 bytes: 16-byte units of a 128-byte line change places by the line's number."""
    return address ^ (address >> 7 & (0, 1, 3, 7)[swizzle]) << 4


def tf32_rounded(word):
    if word & 0x7FFFFFFF > 0x7F800000:
        return 0x7FFFE000
    if word & 0x7F800000 == 0x7F800000:
        return word
    kept, rest = word >> 13, word & 0x1FFF
    return (kept + (1 if rest > 0x1000 or (rest == 0x1000 and kept & 1) else 0)) << 13


def tile_positions(rank, counts):
    def walk(j):
        if j < 0:
            yield ()
            return
        for i in range(counts[j]):
            for rest in walk(j - 1):
                yield rest + (i,)
    yield from walk(rank - 1)


class Tensor:
    def __init__(self, kind, dims, box, start, swizzle=0, fill=0, steps=None, pad=0):
        self.kind, self.dims, self.box, self.start, self.swizzle, self.fill = kind, dims, box, start, swizzle, fill
        self.code, self.size = TYPES[kind]
        self.steps = steps or [1] * len(dims)
        self.counts = [box[0]] + [(b + s - 1) // s for b, s in zip(box[1:], self.steps[1:])]
        self.strides, bytes_ = [], dims[0] * self.size
        for d in dims[1:]:
            bytes_ = (bytes_ + pad + 15) // 16 * 16
            self.strides.append(bytes_)
            bytes_ *= d
        self.bytes = (bytes_ + 3) // 4 * 4
        assert start[0] * self.size % 16 == 0  # else an illegal instruction on the H200
        self.row_bytes, self.rows = self.counts[0] * self.size, 1
        for n in self.counts[1:]:
            self.rows *= n
        self.pitch = max(self.row_bytes, (0, 32, 64, 128)[swizzle])  # narrower rows take the pattern's width
        self.span = self.rows * self.pitch

    def text(self, target, offset):
        join = lambda values: " ".join(str(v) for v in values)
        return (f"{self.code} {len(self.dims)} {self.swizzle} {self.fill} {target} {offset} / {join(self.dims)} / "
                f"{join(self.strides)} / {join(self.box)} / {join(self.steps)}")

    def address(self, index):
        """Byte of the tensor, or None outside it, of a tile position."""
        c = [s + i * (p if j else 1) for j, (s, i, p) in enumerate(zip(self.start, index, self.steps))]
        if any(x < 0 or x >= d for x, d in zip(c, self.dims)):
            return None
        return c[0] * self.size + sum(x * s for x, s in zip(c[1:], self.strides))

    def each(self):
        """(byte in shared memory, byte in the tensor or None) of every element."""
        for i, index in enumerate(tile_positions(len(self.dims), self.counts)):
            row, column = divmod(i, self.counts[0])
            yield moved(row * self.pitch + column * self.size, self.swizzle), self.address(index)

    def header(self):
        words = [c & 0xFFFFFFFF for c in self.start] + [0] * (5 - len(self.start))
        words += [self.span // 4, self.rows * self.row_bytes]
        return words + [0] * (64 - len(words))


def bytes_of(words):
    return bytearray(b"".join(x.to_bytes(4, "little") for x in words))


def words_of(raw):
    return [int.from_bytes(raw[i:i + 4], "little") for i in range(0, len(raw), 4)]


def load_case(w, rng, name, which, t, ctas=1):
    data = [rng.getrandbits(32) for _ in range(t.bytes // 4)]
    if t.kind == "tf32":
        data[:8] = [0x7F800001, 0xFF800000, 0x3F801000, 0x3F803000, 0x3F800FFF, 0x3F801001, 0x7F7FFFFF, 0x00001FFF]
    source, tile = bytes_of(data), bytes_of([POISON] * (t.span // 4))
    outside = bytes([0xF7, 0x7F] * 4)[:t.size] if t.fill else bytes(t.size)
    for place, address in t.each():
        element = outside if address is None else bytes(source[address:address + t.size])
        if t.kind == "tf32" and address is not None:
            element = tf32_rounded(int.from_bytes(element, "little")).to_bytes(4, "little")
        tile[place:place + t.size] = element
    w.case(name, which, t.header() + data, [((90, 1000), words_of(tile) * ctas)], ctas=ctas, tensor_map=t.text("in", 64))


def store_case(w, rng, name, which, t):
    image = [rng.getrandbits(32) for _ in range(t.span // 4)]
    tile, target = bytes_of(image), bytes_of([POISON] * (t.bytes // 4))
    for place, address in t.each():
        if address is not None:
            target[address:address + t.size] = tile[place:place + t.size]
    w.case(name, which, t.header() + image, [((90, 1000), words_of(target))], tensor_map=t.text("out", 0))


def write_tma(folder):
    w = Writer(folder, "tma", 32, 16384 + 8)
    rng = random.Random("tma")
    load = lambda name, which, t, ctas=1: load_case(w, rng, name, which, t, ctas)
    load("load.1d", 1, Tensor("u32", [200], [64], [100]))
    load("load.1d/both-ends-outside", 1, Tensor("u8", [40], [64], [-16]))
    load("load.2d", 2, Tensor("f32", [24, 10], [8, 6], [8, 2]))
    load("load.2d/left-and-above", 2, Tensor("u16", [40, 9], [32, 6], [-8, -2]))
    load("load.2d/right-and-below", 2, Tensor("u16", [40, 9], [32, 6], [16, 6]))
    load("load.2d/nowhere", 2, Tensor("u16", [40, 9], [32, 4], [104, 100]))
    load("load.2d/nan-fill-f16", 2, Tensor("f16", [40, 9], [32, 6], [-8, -2], fill=1))
    load("load.2d/nan-fill-f32", 2, Tensor("f32", [12, 5], [8, 4], [8, 3], fill=1))
    load("load.2d/tf32-rounds", 2, Tensor("tf32", [16, 6], [8, 4], [0, 0]))
    load("load.2d/tf32-rounds-nan-fill", 2, Tensor("tf32", [16, 6], [8, 4], [12, 3], fill=1))
    load("load.2d/f64", 2, Tensor("f64", [10, 6], [4, 4], [8, 3]))
    load("load.2d/swizzle-32", 2, Tensor("bf16", [48, 20], [16, 16], [16, 2], swizzle=1))
    load("load.2d/swizzle-64", 2, Tensor("bf16", [80, 20], [32, 16], [16, 2], swizzle=2))
    load("load.2d/swizzle-128", 2, Tensor("bf16", [128, 20], [64, 16], [16, 2], swizzle=3))
    load("load.2d/swizzle-128-u8-outside", 2, Tensor("u8", [144, 20], [128, 16], [48, -3], swizzle=3))
    load("load.2d/swizzle-64-f32", 2, Tensor("f32", [20, 20], [16, 8], [8, 1], swizzle=2))
    load("load.2d/swizzle-32-narrow", 2, Tensor("bf16", [128, 20], [8, 16], [16, 2], swizzle=1))
    load("load.2d/swizzle-64-narrow", 2, Tensor("bf16", [128, 20], [16, 16], [16, 2], swizzle=2))
    load("load.2d/swizzle-128-narrow", 2, Tensor("bf16", [128, 20], [32, 16], [16, 2], swizzle=3))
    load("load.2d/swizzle-128-narrow-48", 2, Tensor("bf16", [128, 20], [24, 9], [16, 2], swizzle=3))
    load("load.2d/steps", 2, Tensor("u32", [16, 20], [8, 9], [4, 1], steps=[1, 2]))
    load("load.2d/padded-rows", 2, Tensor("u16", [40, 9], [32, 6], [16, 2], pad=48))
    load("load.3d", 3, Tensor("u16", [24, 7, 5], [16, 4, 3], [16, 5, -1], swizzle=1))
    load("load.3d/steps", 3, Tensor("u16", [24, 12, 9], [16, 7, 8], [8, 1, 2], steps=[1, 3, 4]))
    load("load.4d", 4, Tensor("u8", [48, 5, 4, 3], [32, 3, 2, 2], [32, 3, 3, 1]))
    load("load.5d", 5, Tensor("f32", [8, 3, 4, 3, 3], [4, 2, 2, 2, 2], [4, 2, -1, 2, 1]))
    store = lambda name, which, t: store_case(w, rng, name, which, t)
    store("store.1d", 6, Tensor("u32", [100], [64], [48]))
    store("store.2d", 7, Tensor("f32", [24, 10], [8, 6], [8, 2]))
    store("store.2d/right-and-below", 7, Tensor("u16", [40, 9], [32, 6], [16, 6]))
    store("store.2d/swizzle-32", 7, Tensor("bf16", [48, 20], [16, 16], [16, 2], swizzle=1))
    store("store.2d/swizzle-64", 7, Tensor("bf16", [80, 20], [32, 16], [64, 2], swizzle=2))
    store("store.2d/swizzle-128", 7, Tensor("bf16", [128, 20], [64, 16], [16, 12], swizzle=3))
    store("store.2d/swizzle-128-narrow", 7, Tensor("bf16", [128, 20], [32, 8], [16, 2], swizzle=3))
    store("store.3d", 8, Tensor("u16", [24, 7, 5], [16, 4, 3], [16, 5, 3]))
    store("store.4d", 9, Tensor("u8", [48, 5, 4, 3], [32, 3, 2, 2], [32, 3, 3, 1]))
    store("store.5d", 10, Tensor("f32", [8, 3, 4, 3, 3], [4, 2, 2, 2, 2], [4, 2, 1, 2, 1]))
    load("load.2d.multicast", 12, Tensor("bf16", [80, 20], [32, 8], [56, 14], swizzle=2), ctas=2)
    load("load.3d.multicast", 13, Tensor("u16", [24, 7, 5], [16, 4, 2], [8, 5, -1]), ctas=2)
    load("load.4d.multicast", 14, Tensor("u8", [48, 5, 4, 3], [32, 2, 2, 2], [16, 3, 3, 1]), ctas=2)
    w.close()


# ---- wgmma
def element_byte(mn, k, size, layout):
    """Byte of an element from the matrix's start, before the swizzle. layout: (MN-major, swizzle mode, leading, stride)."""
    mn_major, mode, leading, stride = layout
    width = {0: 16, 1: 128, 2: 64, 3: 32}[mode]
    unit = 16 // size
    if not mn_major:
        if mode:
            return mn // 8 * stride + mn % 8 * width + k * size
        return mn // 8 * stride + mn % 8 * 16 + k // unit * leading + k % unit * size
    if mode:
        return mn // (width // size) * leading + mn % (width // size) * size + k // 8 * stride + k % 8 * width
    return mn // unit * stride + mn % unit * size + k // 8 * leading + k % 8 * 16


def image_of(matrix, size, layout, start):
    """matrix[mn][k] as shared memory from the start of an aligned piece; the matrix begins `start` bytes into it."""
    mode = {0: 0, 1: 3, 2: 2, 3: 1}[layout[1]]
    places = {}
    for mn, row in enumerate(matrix):
        for k, value in enumerate(row):
            places[moved(start + element_byte(mn, k, size, layout), mode)] = value
    assert len(places) == len(matrix) * len(matrix[0]), layout
    raw = bytearray(b"\xa5" * ((max(places) + size + 15) // 16 * 16))
    for at, value in places.items():
        raw[at:at + size] = value.to_bytes(size, "little")
    return words_of(raw)


class Wgmma:
    def __init__(self, n, fa, fb, sum_type, a=None, b=(0, 1, 16, 1024), scale_a=1, scale_b=1):
        """a: None for registers, else its layout. Layouts: (MN-major, mode 0 none 1 128B 2 64B 3 32B, leading, stride)."""
        self.n, self.fa, self.fb, self.sum_type, self.a, self.b = n, fa, fb, sum_type, a, b
        self.scale_a, self.scale_b = scale_a, scale_b
        self.k = {32: 8, 16: 16, 8: 32}[WIDTH[fa]]


def negated(fmt, bits):
    return bits ^ 1 << (WIDTH[fmt] - 1)


def wgmma_case(w, rng, name, which, form, style, accumulate=True, start_a=0, start_b=0, repeats=1):
    k, n, width = form.k, form.n, WIDTH[form.fa]
    size = width // 8
    a = [[draw(rng, form.fa, style) for _ in range(k)] for _ in range(64)]
    b = [[draw(rng, form.fb, style) for _ in range(k)] for _ in range(n)]
    integer = form.sum_type == "s32"
    c = [[rng.getrandbits(32) if integer else draw_c(rng, form.sum_type, style) for _ in range(n)] for _ in range(64)]
    if not accumulate:
        c = [[0x7F7F if form.sum_type == "f16" else 0x7F7F7F7F] * n for _ in range(64)]
    image_a = image_of(a, size, form.a, start_a) if form.a else []
    image_b = image_of(b, size, form.b, start_b)
    header = [len(image_a), len(image_b)]
    for layout in (form.a or (0, 0, 0, 0), form.b):
        header += [layout[2], layout[3], layout[1]]
    header += [start_a, start_b, 1 if accumulate else 0, repeats, 0, 0, 0, 0]
    registers, accumulators = [], []
    d_width = 16 if form.sum_type == "f16" else 32

    def d_place(thread, r):
        t = thread % 32
        return 16 * (thread // 32) + (t >> 2) + 8 * ((r >> 1) & 1), 2 * (t & 3) + (r & 1) + 8 * (r >> 2)

    for thread in range(128):
        elements = []
        for i in range(k // 2):
            row, x = a_place(thread % 32, i, width)
            elements.append(a[16 * (thread // 32) + row][x] if form.a is None else 0)
        registers.append(packed(elements, width))
        accumulators.append(packed([c[r][x] for r, x in (d_place(thread, i) for i in range(n // 2))], d_width))
    words = header + image_a + image_b + by_lane(registers) + by_lane(accumulators)
    if form.scale_a == -1:
        a = [[negated(form.fa, x) for x in row] for row in a]
    if form.scale_b == -1:
        b = [[negated(form.fb, x) for x in row] for row in b]
    d = [[value if accumulate else 0 for value in row] for row in c]
    for _ in range(repeats):
        if integer:
            d = [[integer_element(form.fa, form.fb, a[r], b[x], d[r][x], False) for x in range(n)] for r in range(64)]
        else:
            d = [[wgmma_element(form.fa, form.fb, a[r], b[x], d[r][x], form.sum_type) for x in range(n)] for r in range(64)]
    out = [packed([d[r][x] for r, x in (d_place(thread, i) for i in range(n // 2))], d_width) for thread in range(128)]
    w.case(name, which, words, [((90, 100), by_lane(out))])


def write_wgmma(folder):
    w = Writer(folder, "wgmma", 128, 8192 + 32768)
    k128, k64, k32 = (0, 1, 16, 1024), (0, 2, 16, 512), (0, 3, 16, 256)
    none = (0, 0, 128, 256)
    count = [0]

    def case(name, which, form, style="near", **options):
        count[0] += 1
        wgmma_case(w, random.Random(f"wgmma {name} {style}"), f"{name}/{style}", which, form, style, **options)

    bf = lambda n, **more: Wgmma(n, "bf16", "bf16", "f32", **more)
    for style in ("near", "wide", "small", "sparse", "zeros", "special", "tiny", "all"):
        case("m64n8k16.f32.bf16", 0, bf(8, a=k128, b=k128), style)
    case("m64n24k16.f32.bf16.none", 1, bf(24, a=none, b=none))
    case("m64n24k16.f32.bf16.64B", 1, bf(24, a=k64, b=k64))
    case("m64n24k16.f32.bf16.32B", 1, bf(24, a=k32, b=k32))
    case("m64n64k16.f32.bf16.128B-later-step", 2, bf(64, a=k128, b=k128), start_a=64, start_b=32)
    case("m64n256k16.f32.bf16", 3, bf(256, a=k128, b=k128), accumulate=False)
    case("m64n64k16.f32.bf16.B-MN-128B", 4, bf(64, a=k128, b=(1, 1, 4096, 1024)), accumulate=False)
    case("m64n64k16.f32.bf16.B-MN-64B", 4, bf(64, a=k128, b=(1, 2, 1024, 512)), accumulate=False)
    case("m64n64k16.f32.bf16.A-MN-128B", 5, bf(64, a=(1, 1, 4096, 1024), b=k128), accumulate=False)
    case("m64n64k16.f32.bf16.A-MN-none", 5, bf(64, a=(1, 0, 1024, 128), b=none), accumulate=False)
    case("m64n128k16.f32.bf16.A-MN-32B-B-MN-128B", 6, bf(128, a=(1, 3, 512, 256), b=(1, 1, 2048, 1024)), accumulate=False)
    case("m64n128k16.f32.bf16.both-MN-none", 6, bf(128, a=(1, 0, 128, 256), b=(1, 0, 2048, 128)), accumulate=False)
    for style in ("near", "wide"):
        case("m64n16k16.f32.bf16.A-registers", 7, bf(16, b=k64), style)
    case("m64n32k16.f32.bf16.A-registers-B-MN", 8, bf(32, b=(1, 3, 512, 256)))
    case("m64n16k16.f32.bf16.minus-A", 9, bf(16, a=k128, b=k128, scale_a=-1))
    case("m64n16k16.f32.bf16.A-registers-minus-B", 10, bf(16, b=k128, scale_b=-1))
    case("m64n8k16.f32.bf16.chain", 0, bf(8, a=k128, b=k128), "wide", repeats=3)
    for style in ("wide", "small", "sparse", "all"):
        case("m64n16k16.f32.f16", 11, Wgmma(16, "f16", "f16", "f32", a=k128, b=k128), style)
    case("m64n16k16.f32.f16.A-registers", 12, Wgmma(16, "f16", "f16", "f32", b=k128), "wide")
    for style in ("near", "wide", "small", "all"):
        case("m64n16k16.f16.f16", 13, Wgmma(16, "f16", "f16", "f16", a=k128, b=k128), style)
    case("m64n8k16.f16.f16.A-registers", 14, Wgmma(8, "f16", "f16", "f16", b=k128))
    case("m64n64k16.f16.f16.both-MN", 15, Wgmma(64, "f16", "f16", "f16", a=(1, 1, 4096, 1024), b=(1, 1, 4096, 1024)),
         accumulate=False)
    for style in ("near", "wide", "small", "special", "all"):
        case("m64n16k8.f32.tf32", 16, Wgmma(16, "tf32", "tf32", "f32", a=k128, b=k64), style)
    case("m64n16k8.f32.tf32.none", 16, Wgmma(16, "tf32", "tf32", "f32", a=none, b=none))
    case("m64n16k8.f32.tf32.A-registers", 17, Wgmma(16, "tf32", "tf32", "f32", b=k128), "wide")
    for which, fa, fb in ((18, "e4m3", "e4m3"), (19, "e4m3", "e5m2"), (20, "e5m2", "e4m3")):
        for style in ("near", "wide", "small", "special", "all"):
            case(f"m64n16k32.f32.{fa}.{fb}", which, Wgmma(16, fa, fb, "f32", a=k128, b=k128), style)
    case("m64n16k32.f32.e4m3.e4m3.none", 18, Wgmma(16, "e4m3", "e4m3", "f32", a=none, b=none))
    case("m64n16k32.f32.e5m2.e5m2.A-registers", 21, Wgmma(16, "e5m2", "e5m2", "f32", b=k64), "wide")
    case("m64n16k32.f32.e4m3.e4m3.A-registers", 22, Wgmma(16, "e4m3", "e4m3", "f32", b=k32), "near")
    for style in ("near", "wide", "all"):
        case("m64n16k32.f16.e4m3.e4m3", 23, Wgmma(16, "e4m3", "e4m3", "f16", a=k128, b=k128), style)
    case("m64n16k32.f16.e5m2.e5m2.A-registers", 24, Wgmma(16, "e5m2", "e5m2", "f16", b=k128), "near")
    integer = lambda n, fa, fb, **more: Wgmma(n, fa, fb, "s32", **more)
    case("m64n16k32.s32.s8.s8", 25, integer(16, "s8", "s8", a=k128, b=k128), "all")
    case("m64n16k32.s32.s8.u8", 26, integer(16, "s8", "u8", a=k64, b=k32), "all")
    case("m64n16k32.s32.u8.s8.A-registers", 27, integer(16, "u8", "s8", b=k128), "extreme")
    case("m64n24k32.s32.u8.u8", 28, integer(24, "u8", "u8", a=none, b=none), "all")
    w.close()


# ---- arithmetic of single numbers, warp operations, loads, barriers
ROUNDS, NUMBER_THREADS = 4, 64


def whole_of(fmt, word):
    """The kind of a number, and its value as a fraction of whole numbers."""
    kind = decode(fmt, word)
    return kind[0], Fraction(kind[1], 1 << ONE) if kind[0] == "number" else kind[1:]


def f16_or_bf16(fmt, value, sign):
    """A fraction to nearest even, zeros with the sign."""
    exponent_bits, fraction_bits, _ = FORMATS[fmt]
    bias = (1 << (exponent_bits - 1)) - 1
    scaled = value * (1 << ONE)
    assert scaled.denominator == 1
    bits = encode(scaled.numerator, fraction_bits, 1 - bias, bias, exponent_bits, "even")
    return bits | sign << 15


def narrowed_even(fmt, word):
    kind, value = whole_of("f32", word)
    if kind == "nan":
        return 0x7FFF
    if kind == "inf":
        return {"f16": 0x7C00, "bf16": 0x7F80}[fmt] | word >> 31 << 15
    return f16_or_bf16(fmt, value, word >> 31)


def product(fmt, a, b):
    (kind_a, x), (kind_b, y) = whole_of(fmt, a), whole_of(fmt, b)
    sign = (a ^ b) >> 15
    if "nan" in (kind_a, kind_b) or "inf" in (kind_a, kind_b) and 0 in (x, y):
        return 0x7FFF
    if "inf" in (kind_a, kind_b):
        return {"f16": 0x7C00, "bf16": 0x7F80}[fmt] | sign << 15
    return f16_or_bf16(fmt, x * y, sign)


def by_halves(function):
    return lambda a, b: function(a & 0xFFFF, b & 0xFFFF) | function(a >> 16, b >> 16) << 16


def position(fmt, word):
    """Where a number stands among the others; None for NaN."""
    kind, value = whole_of(fmt, word)
    return None if kind == "nan" else value if kind == "number" else value[0] * (1 << 200)


def larger_or_nan(fmt, a, b):
    x, y = position(fmt, a), position(fmt, b)
    if x is None or y is None:
        return 0x7FFFFFFF if fmt == "f32" else 0x7FFF
    if x == y == 0:
        return a & b  # -0 is below +0
    return a if x >= y else b


def not_less(fmt, a, b):
    x, y = position(fmt, a), position(fmt, b)
    return x is None or y is None or x >= y


def to_u32_saturated(word):
    kind, value = whole_of("f32", word)
    if kind == "nan" or word >> 31:
        return 0
    return 0xFFFFFFFF if kind == "inf" else min(0xFFFFFFFF, value.numerator // value.denominator)


def from_f16(bits):
    kind, value = whole_of("f16", bits)
    if kind == "nan":
        return 0x7FFFFFFF
    sign = (bits >> 15) << 31
    return sign | 0x7F800000 if kind == "inf" else sign | to_f32((value * (1 << ONE)).numerator, "even")


def up_to_whole(word):
    kind, value = whole_of("f32", word)
    if kind != "number":
        return 0x7FFFFFFF if kind == "nan" else word
    return (word & 0x80000000) | to_f32(-(-value.numerator // value.denominator) << ONE, "even")


def bytes_chosen(a, b, selector):
    pool, word = (b << 32 | a).to_bytes(8, "little"), 0
    for i in range(4):
        nibble = selector >> 4 * i & 15
        byte = pool[nibble & 7]
        word |= (byte if nibble < 8 else 0xFF * (byte >> 7)) << 8 * i
    return word


def two_f16_of_e4m3(a):
    halves_ = []
    for byte in (a & 0xFF, a >> 8 & 0xFF):
        kind, value = whole_of("e4m3", byte)
        halves_.append(0x7FFF if kind == "nan" else f16_or_bf16("f16", value, byte >> 7))
    return halves_[0] | halves_[1] << 16


def bits_counted(a):
    lowest = (a & -a).bit_length()
    return bin(a).count("1") | 32 - a.bit_length() << 8 | lowest << 16


# Approximations: what exact arithmetic gives, rounded once; `flush`: subnormal arguments and results become 0.
def rounded_decimal(value):
    """A positive Decimal as an f32. Its digits are many more than those that could change the rounding."""
    return to_f32(int(value * (1 << ONE)), "even")


def flushed(word):
    return word & 0x80000000 if word & 0x7F800000 == 0 else word


def power_of_two(word, flush):
    kind, value = whole_of("f32", flushed(word) if flush else word)
    if kind == "nan":
        return 0x7FFFFFFF
    if kind == "inf":
        return 0 if value[0] < 0 else 0x7F800000
    if value >= 128 or value < -160:
        return 0x7F800000 if value > 0 else 0
    exact = rounded_decimal(Decimal(2) ** (Decimal(value.numerator) / Decimal(value.denominator)))
    return flushed(exact) if flush else exact


def square_root(word, flush):
    word = flushed(word) if flush else word
    kind, value = whole_of("f32", word)
    if kind == "nan" or word >> 31 and word != 0x80000000:
        return 0x7FFFFFFF
    if kind == "inf" or value == 0:
        return word
    return rounded_decimal((Decimal(value.numerator) / Decimal(value.denominator)).sqrt())


def one_over(word, flush):
    word = flushed(word) if flush else word
    kind, value = whole_of("f32", word)
    sign = word & 0x80000000
    if kind == "nan":
        return 0x7FFFFFFF
    if kind == "inf" or value == 0:
        return sign if kind == "inf" else sign | 0x7F800000
    exact = sign | rounded_decimal(Decimal(value.denominator) / Decimal(abs(value.numerator)))
    return flushed(exact) if flush else exact


def natural_logarithm(word):
    kind, value = whole_of("f32", word)
    if kind == "nan" or word >> 31 and word != 0x80000000:
        return 0x7FFFFFFF
    if kind == "inf" or value == 0:
        return 0x7F800000 if kind == "inf" else 0xFF800000
    exact = (Decimal(value.numerator) / Decimal(value.denominator)).ln()
    return (0x80000000 if exact < 0 else 0) | rounded_decimal(abs(exact))


def special_numbers(fmt):
    """Zeros, the least and the greatest of each kind, infinities or NaN, 1 and its neighbours; of both signs."""
    exponent_bits, fraction_bits, has_infinity = FORMATS[fmt]
    one = ((1 << (exponent_bits - 1)) - 1) << fraction_bits
    top = ((1 << exponent_bits) - 1) << fraction_bits
    numbers = [0, 1, (1 << fraction_bits) - 1, 1 << fraction_bits, one - 1, one, one + 1, one + (1 << fraction_bits),
               top - 1, top, top + 1 if has_infinity else top + (1 << fraction_bits) - 1]
    return numbers + [x | 1 << (exponent_bits + fraction_bits) for x in numbers]


def many_numbers(rng, fmt, count):
    listed = special_numbers(fmt)
    styles = ["near", "near", "wide", "small", "all"]
    return listed + [draw(rng, fmt, rng.choice(styles)) for _ in range(count - len(listed))]


def one_threshold_away(word, limits):
    """Is an approximation free to fall on either side of one of the limits, where its result changes its kind?"""
    kind, value = whole_of("f32", word)
    return kind == "number" and any(abs(abs(value) - x) * (1 << 18) < x for x in limits)


def write_approximations(case, rng):
    two = Fraction(2)
    getcontext().prec = 80
    for which, name, exact, ulps, limits in (
            (20, "ex2.approx.f32", lambda x: power_of_two(x, False), 2, (128,)),
            (21, "ex2.approx.ftz.f32", lambda x: power_of_two(x, True), 2, (126, 128)),
            (22, "sqrt.approx.f32", lambda x: square_root(x, False), 2, ()),
            (23, "sqrt.approx.ftz.f32", lambda x: square_root(x, True), 2, ()),
            (24, "rcp.approx.f32", lambda x: one_over(x, False), 1, (two ** -128,)),
            (25, "rcp.approx.ftz.f32", lambda x: one_over(x, True), 1, (two ** 126,)),
            (26, "logarithm", natural_logarithm, 1, ())):
        a = many_numbers(rng, "f32", 256)
        if which < 22:  # most numbers are no exponents of importance
            a[128:] = [(x & 0x80000000) | rng.randint(0x3B000000, 0x43180000) for x in a[128:]]
            a[96:128] = [0xC2F00000 + rng.getrandbits(21) for _ in range(32)]  # -120 to -144: subnormal results begin
        a = [0x3F800000 if one_threshold_away(x, limits) else x for x in a]
        b = [exact(x) for x in a]
        case(name, which, a, b, [ulps] * 256, b)


def write_exact_numbers(case, rng, count):
    none = [0] * count
    floats = many_numbers(rng, "f32", count)
    others = many_numbers(rng, "f32", count)
    rng.shuffle(others)
    others[:64] = [rng.choice([x, x ^ 1, x ^ 0x80000000]) for x in floats[:64]]
    near_whole = [rng.getrandbits(1) << 31 | rng.randint(0x3E800000, 0x4F900000) for _ in range(128)] + floats[:128]
    halves_all = list(range(0, 65536, 257)) + special_numbers("f16")
    words = [rng.getrandbits(32) for _ in range(3 * count)]
    more = [rng.getrandbits(32) for _ in range(3 * count)]

    def pairs(fmt):
        """Words of two numbers each; the first half against themselves or their neighbours."""
        a, b = many_numbers(rng, fmt, 2 * count), many_numbers(rng, fmt, 2 * count)
        rng.shuffle(a)
        rng.shuffle(b)
        b[:count] = [rng.choice([x, x, x ^ 1, x ^ 0x8000]) for x in a[:count]]
        one, nan = special_numbers(fmt)[5], special_numbers(fmt)[10]
        a[:16] = [nan, one, one, nan, one, one, one, one, nan, one + 1, one + 1, nan, one, one, one, 0x8000]
        b[:16] = [one, one + 1, one + 1, one, nan, one + 1, one + 1, nan, nan, nan, nan, one, one + 1, one, 0x8000, 0]
        return packed(a, 16), packed(b, 16)

    def two(name, which, a, b, function):
        case(name, which, a, b, none, [int(function(x, y)) for x, y in zip(a, b)])

    def one(name, which, a, function):
        two(name, which, a, none, lambda x, _: function(x))

    one("cvt.rzi.u32.f32", 0, near_whole, to_u32_saturated)
    one("cvt.f32.f16", 1, halves_all[-count:], from_f16)
    two("max.NaN.f32", 2, floats, others, lambda x, y: larger_or_nan("f32", x, y))
    for i, fmt in enumerate(("bf16", "f16")):
        a, b = pairs(fmt)
        halves_of = lambda x, y, f: [f(x & 0xFFFF, y & 0xFFFF), f(x >> 16, y >> 16)]
        compare = lambda x, y, fmt=fmt: halves_of(x, y, lambda p, q: not_less(fmt, p, q))
        two(f"max.NaN.{fmt}x2", 3 + i, a, b, by_halves(lambda x, y, fmt=fmt: larger_or_nan(fmt, x, y)))
        two(f"setp.geu.{fmt}x2", 5 + i, a, b, lambda x, y: any(compare(x, y)))
        two(f"set.geu.u32.{fmt}x2", 7 + i, a, b, lambda x, y: sum(0xFFFF << 16 * h for h in (0, 1) if compare(x, y)[h]))
    one("cvt.rpi.f32.f32", 9, near_whole, up_to_whole)
    for i, fmt in enumerate(("bf16", "f16")):
        _, fraction, _ = FORMATS[fmt]
        ties = [x & -(1 << (23 - fraction)) | 1 << (22 - fraction) for x in floats[:64]]  # half-way, and next to it
        a = floats[64:] + [x + rng.choice([-1, 0, 0, 1]) for x in ties]
        if fmt == "f16":  # half of them in the range of subnormal results, of the greatest, and beyond
            a[:96] = [x & 0x80000000 | rng.randint(0x32800000, 0x39000000) for x in a[:96]]
            a[96:112] = [0x477FE000 + i for i in (0, 0xFFF, 0x1000, 0x1001)] * 4
        two(f"cvt.rn.{fmt}x2.f32", 10 + i, a, others,
            lambda x, y, fmt=fmt: narrowed_even(fmt, x) | narrowed_even(fmt, y) << 16)
    case("prmt.b32", 12, words[:count], more[:count], words[count:2 * count],
         [bytes_chosen(x, y, z) for x, y, z in zip(words, more, words[count:2 * count])])
    extremes = [0x80808080, 0x7F7F7F7F, 0xFF00FF01, 0x80017F00] * 16
    a, b, c = extremes + words[64:count], extremes[::-1] + more[64:count], words[2 * count:]
    case("dp4a.s32.s32", 13, a, b, c, [integer_element("s8", "s8", x.to_bytes(4, "little"), y.to_bytes(4, "little"), z, False)
                                       for x, y, z in zip(a, b, c)])
    for which, fmt, name in ((14, "f16", "mul.rn.f16x2"), (15, "bf16", "fma.rn.bf16x2/product")):
        a, b = pairs(fmt)
        two(name, which, a, b, by_halves(lambda x, y, fmt=fmt: product(fmt, x, y)))
    one("cvt.rn.f16x2.e4m3x2", 16, [i | (i * 7 + 3 & 0xFF) << 8 | words[i] & 0xFFFF0000 for i in range(256)], two_f16_of_e4m3)
    one("popc.clz.ffs", 17, [0, 1, 0x80000000, 0xFFFFFFFF] + [x >> x % 32 for x in words[4:count]], bits_counted)
    two("mul.hi.u32", 18, words[:count], more[:count], lambda x, y: x * y >> 32)


def write_warp_numbers(case, rng, count):
    """count words: those of round i, thread t at i * NUMBER_THREADS + t; a warp is 32 of them from a multiple of 32."""
    none, words = [0] * count, [rng.getrandbits(32) for _ in range(count)]
    small = [rng.randint(0, 31) for _ in range(count)]

    def gathered(name, which, a, b, function):
        """function(lanes of a, lanes of b, lane)"""
        out = []
        for at in range(0, count, 32):
            out += [int(function(a[at:at + 32], b[at:at + 32], lane)) & 0xFFFFFFFF for lane in range(32)]
        case(name, which, a, b, none, out)

    gathered("shfl.sync.idx/width-8", 30, words, small, lambda a, b, lane: a[lane & 24 | b[lane] & 7])
    gathered("shfl.sync.bfly", 31, words, small[:32] * (count // 32), lambda a, b, lane: a[lane ^ b[lane]])
    gathered("shfl.sync.up/width-16", 32, words, [x & 15 for x in small],
             lambda a, b, lane: a[lane - b[lane]] if lane % 16 >= b[lane] else a[lane])
    gathered("vote.sync.ballot", 33, words, none, lambda a, b, lane: sum((x & 1) << i for i, x in enumerate(a)))
    some = words[:]
    some[5] = 0
    gathered("vote.sync.any", 34, some, none, lambda a, b, lane: any(x == y for x, y in zip(a, b)))
    gathered("redux.sync.add.u32", 35, words, none, lambda a, b, lane: sum(a))
    gathered("redux.sync.max.u32", 36, words, none, lambda a, b, lane: max(a))
    gathered("redux.sync.min.u32", 37, words, none, lambda a, b, lane: min(a))
    gathered("lanemask_lt", 38, none, none, lambda a, b, lane: (1 << lane) - 1)


def write_memory_and_barriers(case, rng, count):
    threads, none = NUMBER_THREADS, [0] * count
    words = [rng.getrandbits(32) for _ in range(count)]
    fours = [words[4 * t:4 * t + 4] for t in range(threads)]
    sums = [[v[i] + v[(i + 1) % 4] + v[(i + 2) % 4] + v[(i + 3) % 4] & 0xFFFFFFFF for v in fours] for i in range(4)]
    case("loads-and-stores", 40, words, none, none,
         sum(sums, []) + [v[0] for v in fours] + [x for v in fours for x in v[1:3]] + words)
    rounds, left = divmod(threads, 10)
    given = [rounds + (t < left) if t < 10 else 0 for t in range(threads)]
    case("atom.add.inc", 41, none, none, none, [1] * threads + given + [threads] * threads + [left] * threads + [left])
    handed = words[31::-1] + words[:32]
    flags = words[:threads] + [1 << 20] * threads + none[2 * threads:]
    case("barriers/somewhere", 42, flags[:threads + 40] + [40] + flags[threads + 41:], none, none,
         handed + [1] * threads + [0] * threads + [1] * threads)
    case("barriers/nowhere", 42, flags, none, none, handed + [0] * threads + [0] * threads + [1] * threads)


def write_numbers(folder):
    w = Writer(folder, "numbers", NUMBER_THREADS, 4 * (2 + 2 * NUMBER_THREADS))
    count = ROUNDS * NUMBER_THREADS

    def case(name, which, a, b, c, out):
        assert len(a) == len(b) == len(c) == count, name
        w.case(name, which, a + b + c, [(ANY, out)])

    write_exact_numbers(case, random.Random("numbers"), count)
    write_approximations(case, random.Random("approximations"))
    write_warp_numbers(case, random.Random("warp"), count)
    write_memory_and_barriers(case, random.Random("memory"), count)
    w.close()


# ---- public vectors: dot products measured on GPUs, put on the diagonal of a tile
PUBLIC_NOTES = (
    "A sample of model_validation/ of north-numerical-computing/MATLAB-tensor-core (commit b12b5a7), measured there on",
    "the GPU that a case's name gives. Copyright (c) 2025, Faizan A. Khattak and Mantas Mikaitis; BSD 2-Clause License:",
    "public.LICENCE. Each case has eight of its dot products on the diagonal of a tile; the rest is anything.",
)
PUBLIC_FORMATS = {"fp16": "f16", "bf16": "bf16", "tf32": "tf32", "E4M3": "e4m3", "E5M2": "e5m2"}


def narrowed(fmt, word, rounding=None):
    """Bits of an f32 word in a format that has its value, or to which it is rounded."""
    if fmt in ("f32", "tf32"):
        return word
    if fmt == "bf16":
        return word >> 16
    value = decode("f32", word)[1]
    exponent_bits, fraction_bits, _ = FORMATS[fmt]
    bias = (1 << (exponent_bits - 1)) - 1
    bits = encode(value, fraction_bits, 1 - bias, 2 * bias, exponent_bits, rounding or "zero")
    assert rounding or decode(fmt, bits)[1] == value
    return bits


def public_dots(checkout, chip, kind, out):
    """32 of the file's (a, b, c, d), evenly spread."""
    folder = os.path.join(checkout, "model_validation", chip, kind)

    def lines(name):
        with open(os.path.join(folder, name)) as f:
            return f.read().split("\n")

    files = [lines(f"{x}_{chip}_{kind}.txt") for x in "ab"] + [lines(f"c_{chip}_fp32.txt"), lines(f"d_{chip}_{out}.txt")]
    for i in range(0, 4992, 156):
        a, b = ([narrowed(PUBLIC_FORMATS[kind], int(x, 16)) for x in f[i].split()] for f in files[:2])
        c, d = (int(f[i].strip(), 2) for f in files[2:])
        yield (a, b, c, d) if out == "fp32" else (a, b, narrowed("f16", c, "even"), narrowed("f16", d) if d >> 16 else d)


def diagonal(dots, k, fmt, out):
    """A's, B's and C's words of a warp, and D's: dot i in row i and column i (f32) or 2i (f16, beside a zero column)."""
    width, step = WIDTH[fmt], 2 if out == "fp16" else 1
    columns = {i * step: i for i in range(8 // step)}
    a, b, c, d = [], [], [], []
    for t in range(32):
        spots = [a_place(t, i, width) for i in range(k // 2)]
        a.append(packed([dots[r][0][x] if r < len(columns) else 0 for r, x in spots], width))
        spots = [b_place(t, i, width) for i in range(k // 4)]
        b.append(packed([dots[columns[n]][1][x] if n in columns else 0 for x, n in spots], width))
        spots = [c_place(t, i) for i in range(4)]
        c.append(packed([dots[r][2] if columns.get(n) == r else 0 for r, n in spots], 32 // step))
        known = [dots[r][3] if columns.get(n) == r else None for r, n in spots]
        d.append(known[::step])  # f16: the odd column's half is zero
    return by_lane(a), by_lane(b), by_lane(c), by_lane(d)


def write_public_mma(folder, checkout):
    w = Writer(folder, "mma", 32, 0, "public_mma", PUBLIC_NOTES)
    forms = {(f[0], f[1], f[3]): i for i, f in enumerate(MMA_FORMS) if f[1] == f[2]}
    both, floats = ("fp32", "fp16"), ("fp32",)
    runs = [("A100", (80, 89)), ("H200", (90, 100)), ("B200", (100, 120))]
    kinds = [("fp16", both), ("bf16", floats), ("tf32", floats), ("E4M3", both), ("E5M2", both)]
    for chip, cc in runs:
        for kind, outs in kinds:
            if kind[0] == "E" and chip != "B200":
                outs = ("fp16",) if chip == "H200" else ()  # H200's f32 fp8 vectors are wgmma's
            for out in outs:
                dots, fmt = list(public_dots(checkout, chip, kind, out)), PUBLIC_FORMATS[kind]
                k, size = len(dots[0][0]), 8 if out == "fp32" else 4
                for at in range(0, len(dots), size):
                    a, b, c, d = diagonal(dots[at:at + size], k, fmt, out)
                    w.case(f"{chip}.{kind}.{out}/{at}", forms[k, fmt, "f16" if out == "fp16" else "f32"], a + b + c, [(cc, d)])
    w.close()


def write_public_wgmma(folder, checkout):
    """fp8 with f32 sums, measured with D = 0: e4m3 with A in shared memory, e5m2 with A in registers."""
    w = Writer(folder, "wgmma", 128, 8192 + 32768, "public_wgmma", PUBLIC_NOTES)
    for which, kind, fmt in ((18, "E4M3", "e4m3"), (21, "E5M2", "e5m2")):
        dots = list(public_dots(checkout, "H200", kind, "fp32"))
        for at in range(0, len(dots), 8):
            a = [dots[at + r][0] if r < 8 else [0] * 32 for r in range(64)]
            b = [dots[at + n][1] if n < 8 else [0] * 32 for n in range(16)]
            layout = (0, 1, 16, 1024)
            image_a, image_b = image_of(a, 1, layout, 0) if kind == "E4M3" else [], image_of(b, 1, layout, 0)
            registers, d = [], []
            for t in range(128):
                spots = [a_place(t % 32, i, 8) for i in range(16)]
                registers.append(packed([a[16 * (t // 32) + r][x] for r, x in spots], 8))
                spots = [(16 * (t // 32) + (t % 32 >> 2) + 8 * ((r >> 1) & 1), 2 * (t & 3) + (r & 1) + 8 * (r >> 2))
                         for r in range(8)]
                d.append([dots[at + r][3] if r == n and r < 8 else None for r, n in spots])
            header = [len(image_a), len(image_b), 16, 1024, 1, 16, 1024, 1, 0, 0, 0, 1, 0, 0, 0, 0]
            words = header + image_a + image_b + by_lane(registers) + [0] * (8 * 128)
            w.case(f"H200.{kind}.fp32/{at}", which, words, [((90, 100), by_lane(d))])
    w.close()


def main():
    if len(sys.argv) == 3 and sys.argv[1] == "--public":
        here = os.path.dirname(os.path.abspath(__file__))
        write_public_mma(here, sys.argv[2])
        write_public_wgmma(here, sys.argv[2])
        return
    folder = sys.argv[1] if len(sys.argv) > 1 else os.path.dirname(os.path.abspath(__file__))
    write_mma(folder)
    write_matrix(folder)
    write_copy(folder)
    write_tma(folder)
    write_wgmma(folder)
    write_numbers(folder)


if __name__ == "__main__":
    main()
