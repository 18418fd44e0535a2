# SPDX-License-Identifier: Apache-2.0
"""numbers.vec: arithmetic of single numbers, warp operations, loads, barriers."""
import random
from decimal import Decimal, getcontext
from fractions import Fraction

from .formats import FORMATS, ONE, decode, encode, to_f32
from .sums import integer_element
from .draw import draw
from .writing import ANY, Writer, packed

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


def between_0_and_1(word):
    kind, value = whole_of("f32", word)
    if kind == "nan" or word >> 31:
        return 0
    return 0x3F800000 if kind == "inf" or value >= 1 else word


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
    one("add.sat.f32", 19, [x & 0x3FFFFFFF if i % 3 == 0 else x for i, x in enumerate(floats)], between_0_and_1)


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
    write_more_warp_numbers(gathered, words, small, none, rng)
    gathered("lanemask_lt", 38, none, none, lambda a, b, lane: (1 << lane) - 1)


def signed(word):
    return word - (word >> 31 << 32)


def same_as(values, lane):
    return sum((value == values[lane]) << i for i, value in enumerate(values))


def in_half(values, lane):
    """The lanes of this lane's half of the warp."""
    return values[lane // 16 * 16:lane // 16 * 16 + 16]


def write_more_warp_numbers(gathered, words, small, none, rng):
    count = len(words)
    gathered("shfl.sync.down/width-16", 43, words, [x & 15 for x in small],
             lambda a, b, lane: a[lane + b[lane]] if lane % 16 + b[lane] < 16 else a[lane])
    others = words[::-1]
    others[40] = words[40]  # in one warp's first round alone two are equal
    gathered("vote.sync.all", 44, words, others, lambda a, b, lane: all(x != y for x, y in zip(a, b)))
    gathered("match.any.sync.b32", 45, words, none, lambda a, b, lane: same_as([x & 3 for x in a], lane))
    gathered("match.any.sync.b64/halves", 46, words, small, lambda a, b, lane:
             same_as(in_half([(x & 1, y & 1) for x, y in zip(a, b)], lane), lane % 16) << lane // 16 * 16)
    equal = [words[i // 32] for i in range(count)]
    equal[32 + 7] ^= 1 << 31
    gathered("match.all.sync.b32", 47, equal, none, lambda a, b, lane: 0xFFFFFFFF ^ 0x55555555 if len(set(a)) == 1 else 0)

    def folded(values, function):
        result = values[0]
        for value in values[1:]:
            result = function(result, value)
        return result

    bits = [rng.getrandbits(32) | rng.getrandbits(32) | rng.getrandbits(32) for _ in range(count)]
    gathered("redux.sync.and", 48, bits, words, lambda a, b, lane: folded([x | y for x, y in zip(a, b)], int.__and__))
    gathered("redux.sync.or/halves", 49, [1 << x for x in small], words,
             lambda a, b, lane: folded(in_half([x & y for x, y in zip(a, b)], lane), int.__or__))
    gathered("redux.sync.xor", 50, words, none, lambda a, b, lane: folded(a, int.__xor__))
    gathered("redux.sync.min.s32", 51, words, none, lambda a, b, lane: min(map(signed, a)))
    gathered("redux.sync.max.s32/halves", 52, words, none, lambda a, b, lane: max(map(signed, in_half(a, lane))))


def write_atomics(case, rng, count):
    """A word of each thread's own, in shared and in device memory; out: what it is afterwards."""
    edges = [0, 1, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF]
    pairs = [(x, y) for x in edges for y in edges] + [(rng.getrandbits(32), rng.getrandbits(32)) for _ in range(count)]
    a, b = ([pair[i] for pair in pairs[:count]] for i in (0, 1))
    compared = [x if i % 2 else x ^ 1 << i % 32 for i, x in enumerate(a)]
    results = (("add", lambda x, y, z: x + y & 0xFFFFFFFF), ("min.u32", lambda x, y, z: min(x, y)),
               ("max.u32", lambda x, y, z: max(x, y)), ("and", lambda x, y, z: x & y), ("or", lambda x, y, z: x | y),
               ("xor", lambda x, y, z: x ^ y), ("exch", lambda x, y, z: y), ("cas", lambda x, y, z: y if x == z else x),
               ("inc", lambda x, y, z: 0 if x >= y else x + 1))
    for i, (name, function) in enumerate(results):
        case("atom." + name, 60 + i, a, b, compared, [function(*three) for three in zip(a, b, compared)])


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
    write_atomics(case, random.Random("atomics"), count)
    w.close()
