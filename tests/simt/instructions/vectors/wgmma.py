# SPDX-License-Identifier: Apache-2.0
"""wgmma.vec: wgmma of every form, its layouts in shared memory."""
import random

from .formats import WIDTH
from .sums import integer_element, wgmma_element
from .draw import draw, draw_c
from .writing import Writer, by_lane, packed
from .mma import a_place
from .tiles import moved, words_of


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
