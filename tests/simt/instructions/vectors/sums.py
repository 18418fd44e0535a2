# SPDX-License-Identifier: Apache-2.0
"""Elements of tensor-core products: where the manual leaves the sum open, as the published models have it."""
from .formats import ONE, decode, to_f16, to_f32


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
