#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the .vec files of this folder: inputs, and the outputs that the PTX manual's definitions give.

    generate.py [FOLDER]
    generate.py --public CHECKOUT       public_mma.vec and public_wgmma.vec, from a checkout of
                                        north-numerical-computing/MATLAB-tensor-core

A program of its own, on purpose: it shares no line and no shortcut with the model (kernel_templates/model), computes
with whole numbers of any size, and is run by hand when a case is added. Each subject is a file of vectors/. What the
manual leaves open (the order and rounding of tensor-core sums) follows the published models named in
kernel_templates/model/INSTRUCTIONS.md.

The format, words in hexadecimal, '#' lines are comments:
    kernel FILE threads N shared BYTES
    case NAME which N ctas N
    map TYPE RANK SWIZZLE FILL TARGET OFFSET / dims / strides / box / steps      (TARGET: in or out; OFFSET in words)
    in COUNT        and the words
    out FROM UNTIL COUNT        and the words: for architectures FROM <= cc < UNTIL; words of out start as eeeeeeee
    N*WORD among the words is WORD N times, N in decimal; "-" in place of a word of out: anything
"""
import os
import sys

from vectors.copies import write_copy
from vectors.matrix import write_matrix
from vectors.mma import write_mma
from vectors.public import write_public_mma, write_public_wgmma
from vectors.singles import write_numbers
from vectors.tiles import write_tma
from vectors.wgmma import write_wgmma


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
