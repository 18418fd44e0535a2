#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Does anything write to registers that a wgmma still reads?

    QUERN_DUMP=dump quern warm 'attention d=128 causal=1' --arch sm_90a
    tools/wgmma_registers.py dump/*.cubin

wgmma reads its first operand, where that is in registers, at any time until the wait for its group. ptxas leaves those
registers alone up to a wait it sees in the same stretch of code; behind the jump back of a loop it does not (13.0), and
gives them to something else at once. This follows every path from each such instruction (HGMMA, IGMMA, QGMMA) to the
wait that ends it and prints what writes to its operand. It also counts the waits that leave products running: where
ptxas runs one product after another instead (its log: "serialized"), there are none. It needs nvdisasm, of CUDA's toolkit or of the package
nvidia-cuda-nvdisasm ($NVDISASM names another one); a file *.sass is its text already. Ends with 1 if something was
found, with 77 without nvdisasm. tests/cubin runs it."""
import os
import re
import shutil
import subprocess
import sys

LINE = re.compile(r"\s+/\*([0-9a-f]{4,})\*/\s+(.*?)\s*;")
LABEL = re.compile(r"^(\.L_x_\d+):")
MULTIPLY = re.compile(r"[HIQB]GMMA\.\S+ R\d+, R(\d+), gdesc")
WAIT = re.compile(r"WARPGROUP\.DEPBAR\.LE gsb0, (0x[0-9a-f]+)")
WRITE = re.compile(r"(?:@!?U?P\w+ )?([A-Z][A-Z0-9_.]*) R(\d+)\b")
JUMP = re.compile(r"(@!?U?P\w+ )?BRA(?:\.\S+)? (?:!?U?P\w+, )?`\((\.L_x_\d+)\)")
NO_RESULT = ("ST", "RED", "SYNCS", "BAR", "R2UR", "WARPSYNC", "UTMA")


def disassembly(path):
    if path.endswith(".sass"):
        with open(path, encoding="utf-8") as file:
            return file.read()
    tool = os.environ.get("NVDISASM") or shutil.which("nvdisasm") or shutil.which("nvdisasm", path="/usr/local/cuda/bin")
    if not tool:
        print("skipped: no nvdisasm")
        sys.exit(77)
    return subprocess.run([tool, path], check=True, capture_output=True, text=True).stdout


def functions(text):
    """Each function of the disassembly: its name, its instructions, and where its labels are."""
    name, code, labels = None, [], {}
    for line in text.splitlines():
        if line.startswith(".text."):
            if name:
                yield name, code, labels
            name, code, labels = line[6:].rstrip(":"), [], {}
        elif label := LABEL.match(line):
            labels[label[1]] = len(code)
        elif found := LINE.match(line):
            code.append((found[1], re.sub(r"\s+", " ", found[2])))
    if name:
        yield name, code, labels


def written(text):
    """The registers that an instruction writes."""
    found = WRITE.match(text)
    if not found or found[1].startswith(NO_RESULT):
        return range(0)
    words = 4 if ".128" in found[1] else 2 if ".64" in found[1] or ".WIDE" in found[1] else 1
    return range(int(found[2]), int(found[2]) + words)


def is_wait_for(text, later):
    """Does this wait end a group that `later` groups were closed after?"""
    found = WAIT.match(text)
    return found and int(found[1], 16) <= later


def writes_before_wait(code, labels, at, operand):
    """The instructions that write to `operand` on a path from instruction `at` to the wait that ends it."""
    found, seen, todo = [], set(), [(at, 0, False)]
    while todo:
        i, later, closed = todo.pop()
        while i < len(code) and (i, later) not in seen:
            seen.add((i, later))
            place, text = code[i]
            if is_wait_for(text, later if closed else -1) or text.startswith("EXIT"):
                break
            if i != at and not MULTIPLY.search(text) and set(written(text)) & set(operand):
                found.append((place, text))
                break
            if "gsb0" in text and "GMMA" in text:
                later, closed = later + closed, True
            jump = JUMP.match(text)
            if jump and jump[2] in labels:
                todo.append((labels[jump[2]], later, closed))
                if not jump[1]:
                    break
            i += 1
            if later > 8:
                break
    return found


def main(cubins):
    bad = checked = overlapped = 0
    for cubin in cubins:
        for name, code, labels in functions(disassembly(cubin)):
            for at, (place, text) in enumerate(code):
                wait = WAIT.match(text)
                overlapped += bool(wait and int(wait[1], 16) > 0)
                multiply = MULTIPLY.search(text)
                if not multiply:
                    continue
                checked += 1
                operand = range(int(multiply[1]), int(multiply[1]) + 4)
                for where, what in writes_before_wait(code, labels, at, operand):
                    bad += 1
                    print(f"{name}: {where} {what}\n    writes to an operand of {place} {text}")
    print(f"{checked} products with an operand in registers, {bad} writes to one before its wait; {overlapped} waits "
          "that leave products running")
    return 1 if bad else 0


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1:]))
