# SPDX-License-Identifier: Apache-2.0
"""The .vec files: their lines, and registers as the words of a warp or a CTA."""
import os

ANY = (80, 1000)
POISON = 0xEEEEEEEE


class Writer:
    def __init__(self, folder, kernel, threads, shared, name=None, notes=()):
        self.path = os.path.join(folder, (name or kernel) + ".vec")
        self.lines = ["# Made by generate.py; do not edit."] + [f"# {note}" for note in notes]
        self.lines.append(f"kernel {kernel}.cu threads {threads} shared {shared}")

    def words(self, words):
        items, at = [], 0
        while at < len(words):
            same = at
            while same < len(words) and words[same] == words[at]:
                same += 1
            if same - at < 4:
                same = at + 1
            word = "-" if words[at] is None else f"{words[at]:08x}"
            items.append(word if same == at + 1 else f"{same - at}*{word}")
            at = same
        for at in range(0, len(items), 16):
            self.lines.append(" ".join(items[at:at + 16]))

    def case(self, name, which, words, outs, ctas=1, tensor_map=None):
        self.lines.append(f"case {name} which {which} ctas {ctas}")
        if tensor_map:
            self.lines.append("map " + tensor_map)
        self.lines.append(f"in {len(words)}")
        self.words(words)
        for (start, until), out in outs:
            self.lines.append(f"out {start} {until} {len(out)}")
            self.words(out)

    def close(self):
        with open(self.path, "w") as f:
            f.write("\n".join(self.lines) + "\n")


def packed(elements, width):
    """Elements of a register array, from the lowest bits up."""
    per = 32 // width
    return [sum(e << (width * i) for i, e in enumerate(elements[at:at + per])) for at in range(0, len(elements), per)]


def by_lane(registers):
    """registers[lane][word] as the words of all lanes, word by word."""
    return [registers[t][i] for i in range(len(registers[0])) for t in range(len(registers))]
