# SPDX-License-Identifier: Apache-2.0
"""public_mma.vec and public_wgmma.vec: dot products measured on GPUs, on the diagonal of a tile."""
import os

from .formats import FORMATS, WIDTH, decode, encode
from .writing import Writer, by_lane, packed
from .mma import MMA_FORMS, a_place, b_place, c_place
from .wgmma import image_of

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
