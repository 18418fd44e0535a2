# SPDX-License-Identifier: Apache-2.0
"""Inputs of tensor-core cases, drawn by a seeded generator in several styles."""
from .formats import FORMATS, WIDTH


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
