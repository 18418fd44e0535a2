# SPDX-License-Identifier: Apache-2.0
"""tma.vec: tiles that tensor maps describe."""
import random

from .writing import POISON, Writer

TYPES = {"u8": (0, 1), "u16": (1, 2), "u32": (2, 4), "f16": (6, 2), "f32": (7, 4), "f64": (8, 8), "bf16": (9, 2),
         "tf32": (11, 4)}


def moved(address, swizzle):
    """The swizzle of 32, 64 and 128 bytes: 16-byte units of a 128-byte line change places by the line's number."""
    return address ^ (address >> 7 & (0, 1, 3, 7)[swizzle]) << 4


def tf32_rounded(word):
    if word & 0x7FFFFFFF > 0x7F800000:
        return 0x7FFFE000
    if word & 0x7F800000 == 0x7F800000:
        return word
    kept, rest = word >> 13, word & 0x1FFF
    return (kept + (1 if rest > 0x1000 or (rest == 0x1000 and kept & 1) else 0)) << 13


def tile_positions(rank, counts):
    def walk(j):
        if j < 0:
            yield ()
            return
        for i in range(counts[j]):
            for rest in walk(j - 1):
                yield rest + (i,)
    yield from walk(rank - 1)


class Tensor:
    def __init__(self, kind, dims, box, start, swizzle=0, fill=0, steps=None, pad=0):
        self.kind, self.dims, self.box, self.start, self.swizzle, self.fill = kind, dims, box, start, swizzle, fill
        self.code, self.size = TYPES[kind]
        self.steps = steps or [1] * len(dims)
        self.counts = [box[0]] + [(b + s - 1) // s for b, s in zip(box[1:], self.steps[1:])]
        self.strides, bytes_ = [], dims[0] * self.size
        for d in dims[1:]:
            bytes_ = (bytes_ + pad + 15) // 16 * 16
            self.strides.append(bytes_)
            bytes_ *= d
        self.bytes = (bytes_ + 3) // 4 * 4
        assert start[0] * self.size % 16 == 0  # else an illegal instruction on the H200
        self.row_bytes, self.rows = self.counts[0] * self.size, 1
        for n in self.counts[1:]:
            self.rows *= n
        self.pitch = max(self.row_bytes, (0, 32, 64, 128)[swizzle])  # narrower rows take the pattern's width
        self.span = self.rows * self.pitch

    def text(self, target, offset):
        join = lambda values: " ".join(str(v) for v in values)
        return (f"{self.code} {len(self.dims)} {self.swizzle} {self.fill} {target} {offset} / {join(self.dims)} / "
                f"{join(self.strides)} / {join(self.box)} / {join(self.steps)}")

    def address(self, index):
        """Byte of the tensor, or None outside it, of a tile position."""
        c = [s + i * (p if j else 1) for j, (s, i, p) in enumerate(zip(self.start, index, self.steps))]
        if any(x < 0 or x >= d for x, d in zip(c, self.dims)):
            return None
        return c[0] * self.size + sum(x * s for x, s in zip(c[1:], self.strides))

    def each(self):
        """(byte in shared memory, byte in the tensor or None) of every element."""
        for i, index in enumerate(tile_positions(len(self.dims), self.counts)):
            row, column = divmod(i, self.counts[0])
            yield moved(row * self.pitch + column * self.size, self.swizzle), self.address(index)

    def header(self):
        words = [c & 0xFFFFFFFF for c in self.start] + [0] * (5 - len(self.start))
        words += [self.span // 4, self.rows * self.row_bytes]
        return words + [0] * (64 - len(words))


def bytes_of(words):
    return bytearray(b"".join(x.to_bytes(4, "little") for x in words))


def words_of(raw):
    return [int.from_bytes(raw[i:i + 4], "little") for i in range(0, len(raw), 4)]


def load_case(w, rng, name, which, t, ctas=1):
    data = [rng.getrandbits(32) for _ in range(t.bytes // 4)]
    if t.kind == "tf32":
        data[:8] = [0x7F800001, 0xFF800000, 0x3F801000, 0x3F803000, 0x3F800FFF, 0x3F801001, 0x7F7FFFFF, 0x00001FFF]
    source, tile = bytes_of(data), bytes_of([POISON] * (t.span // 4))
    outside = bytes([0xF7, 0x7F] * 4)[:t.size] if t.fill else bytes(t.size)
    for place, address in t.each():
        element = outside if address is None else bytes(source[address:address + t.size])
        if t.kind == "tf32" and address is not None:
            element = tf32_rounded(int.from_bytes(element, "little")).to_bytes(4, "little")
        tile[place:place + t.size] = element
    w.case(name, which, t.header() + data, [((90, 1000), words_of(tile) * ctas)], ctas=ctas, tensor_map=t.text("in", 64))


def store_case(w, rng, name, which, t):
    image = [rng.getrandbits(32) for _ in range(t.span // 4)]
    tile, target = bytes_of(image), bytes_of([POISON] * (t.bytes // 4))
    for place, address in t.each():
        if address is not None:
            target[address:address + t.size] = tile[place:place + t.size]
    w.case(name, which, t.header() + image, [((90, 1000), words_of(target))], tensor_map=t.text("out", 0))


def write_tma(folder):
    w = Writer(folder, "tma", 32, 16384 + 8)
    rng = random.Random("tma")
    load = lambda name, which, t, ctas=1: load_case(w, rng, name, which, t, ctas)
    load("load.1d", 1, Tensor("u32", [200], [64], [100]))
    load("load.1d/both-ends-outside", 1, Tensor("u8", [40], [64], [-16]))
    load("load.2d", 2, Tensor("f32", [24, 10], [8, 6], [8, 2]))
    load("load.2d/left-and-above", 2, Tensor("u16", [40, 9], [32, 6], [-8, -2]))
    load("load.2d/right-and-below", 2, Tensor("u16", [40, 9], [32, 6], [16, 6]))
    load("load.2d/nowhere", 2, Tensor("u16", [40, 9], [32, 4], [104, 100]))
    load("load.2d/nan-fill-f16", 2, Tensor("f16", [40, 9], [32, 6], [-8, -2], fill=1))
    load("load.2d/nan-fill-f32", 2, Tensor("f32", [12, 5], [8, 4], [8, 3], fill=1))
    load("load.2d/tf32-rounds", 2, Tensor("tf32", [16, 6], [8, 4], [0, 0]))
    load("load.2d/tf32-rounds-nan-fill", 2, Tensor("tf32", [16, 6], [8, 4], [12, 3], fill=1))
    load("load.2d/f64", 2, Tensor("f64", [10, 6], [4, 4], [8, 3]))
    load("load.2d/swizzle-32", 2, Tensor("bf16", [48, 20], [16, 16], [16, 2], swizzle=1))
    load("load.2d/swizzle-64", 2, Tensor("bf16", [80, 20], [32, 16], [16, 2], swizzle=2))
    load("load.2d/swizzle-128", 2, Tensor("bf16", [128, 20], [64, 16], [16, 2], swizzle=3))
    load("load.2d/swizzle-128-u8-outside", 2, Tensor("u8", [144, 20], [128, 16], [48, -3], swizzle=3))
    load("load.2d/swizzle-64-f32", 2, Tensor("f32", [20, 20], [16, 8], [8, 1], swizzle=2))
    load("load.2d/swizzle-32-narrow", 2, Tensor("bf16", [128, 20], [8, 16], [16, 2], swizzle=1))
    load("load.2d/swizzle-64-narrow", 2, Tensor("bf16", [128, 20], [16, 16], [16, 2], swizzle=2))
    load("load.2d/swizzle-128-narrow", 2, Tensor("bf16", [128, 20], [32, 16], [16, 2], swizzle=3))
    load("load.2d/swizzle-128-narrow-48", 2, Tensor("bf16", [128, 20], [24, 9], [16, 2], swizzle=3))
    load("load.2d/steps", 2, Tensor("u32", [16, 20], [8, 9], [4, 1], steps=[1, 2]))
    load("load.2d/padded-rows", 2, Tensor("u16", [40, 9], [32, 6], [16, 2], pad=48))
    load("load.3d", 3, Tensor("u16", [24, 7, 5], [16, 4, 3], [16, 5, -1], swizzle=1))
    load("load.3d/steps", 3, Tensor("u16", [24, 12, 9], [16, 7, 8], [8, 1, 2], steps=[1, 3, 4]))
    load("load.4d", 4, Tensor("u8", [48, 5, 4, 3], [32, 3, 2, 2], [32, 3, 3, 1]))
    load("load.5d", 5, Tensor("f32", [8, 3, 4, 3, 3], [4, 2, 2, 2, 2], [4, 2, -1, 2, 1]))
    store = lambda name, which, t: store_case(w, rng, name, which, t)
    store("store.1d", 6, Tensor("u32", [100], [64], [48]))
    store("store.2d", 7, Tensor("f32", [24, 10], [8, 6], [8, 2]))
    store("store.2d/right-and-below", 7, Tensor("u16", [40, 9], [32, 6], [16, 6]))
    store("store.2d/swizzle-32", 7, Tensor("bf16", [48, 20], [16, 16], [16, 2], swizzle=1))
    store("store.2d/swizzle-64", 7, Tensor("bf16", [80, 20], [32, 16], [64, 2], swizzle=2))
    store("store.2d/swizzle-128", 7, Tensor("bf16", [128, 20], [64, 16], [16, 12], swizzle=3))
    store("store.2d/swizzle-128-narrow", 7, Tensor("bf16", [128, 20], [32, 8], [16, 2], swizzle=3))
    store("store.3d", 8, Tensor("u16", [24, 7, 5], [16, 4, 3], [16, 5, 3]))
    store("store.4d", 9, Tensor("u8", [48, 5, 4, 3], [32, 3, 2, 2], [32, 3, 3, 1]))
    store("store.5d", 10, Tensor("f32", [8, 3, 4, 3, 3], [4, 2, 2, 2, 2], [4, 2, 1, 2, 1]))
    load("load.2d.multicast", 12, Tensor("bf16", [80, 20], [32, 8], [56, 14], swizzle=2), ctas=2)
    load("load.3d.multicast", 13, Tensor("u16", [24, 7, 5], [16, 4, 2], [8, 5, -1]), ctas=2)
    load("load.4d.multicast", 14, Tensor("u8", [48, 5, 4, 3], [32, 2, 2, 2], [16, 3, 3, 1]), ctas=2)
    w.close()
