# SPDX-License-Identifier: Apache-2.0
"""matrix.vec: ldmatrix, stmatrix, movmatrix."""
import random

from .writing import Writer, by_lane, packed


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
