# SPDX-License-Identifier: Apache-2.0
"""mma.vec: mma.sync of every form."""
import random

from .formats import WIDTH
from .sums import integer_element, mma_element
from .draw import draw, draw_c
from .writing import Writer, by_lane, packed


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
