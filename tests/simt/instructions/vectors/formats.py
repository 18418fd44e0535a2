# SPDX-License-Identifier: Apache-2.0
"""Number formats of tensor cores, in whole multiples of 2^-400: bits to values and back."""

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
