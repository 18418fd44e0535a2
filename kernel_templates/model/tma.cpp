// SPDX-License-Identifier: Apache-2.0
// cp.async.bulk.tensor: a box of a tensor to or from a swizzled tile of shared memory, landing late.
//
// The tile is dense, dimension 0 fastest; a byte's place is then moved by the swizzle, which acts on the shared-memory
// address. Outside the tensor loads give the fill value and stores write nothing.
#include "tma.h"

#include "tensor_map.h"
#include "copy.h"

namespace qm {
namespace {

constexpr int kSize[] = {1, 2, 4, 4, 8, 8, 2, 4, 8, 2, 4, 4, 4}; // bytes of the types that are modelled, 0 … 12

struct Tile {
    qm_tensor_map map;
    int start[5];
    u32 count[5]; // elements of the tile by dimension
    int size;     // bytes of an element
    u32 bytes;    // of the tile
    u32 address;  // of the tile, as instructions see it
    u8 *staged;   // stores: the dense tile after the first step
    void *from;   // stores: the tile in shared memory
    int targets;
    void *to[16];
};

u32 swizzled(u32 a, int mode)
{
    switch (mode) {
    case 1:
        return a ^ (a >> 7 & 1) << 4;
    case 2:
        return a ^ (a >> 7 & 3) << 4;
    case 3:
        return a ^ (a >> 7 & 7) << 4;
    case 4:
        return a ^ (a >> 7 & 3) << 5;
    case 5:
        return (a ^ (a >> 7 & 3) << 5) ^ (a >> 7 & 1) << 3;
    case 6:
        return a ^ (a >> 7 & 1) << 6;
    default:
        return a;
    }
}

// The tile's byte at the dense offset `at`: how far from the tile's start it lies in shared memory. Valid for 8 bytes on.
ptrdiff_t placed(const Tile &tile, u32 at)
{
    u32 dense = tile.address + at;
    return static_cast<ptrdiff_t>(swizzled(dense, tile.map.swizzle)) - static_cast<ptrdiff_t>(tile.address);
}

u32 tf32_rounded(u32 b)
{
    if ((b & 0x7FFFFFFF) > 0x7F800000) return 0x7FFFE000;
    if ((b & 0x7F800000) == 0x7F800000) return b;
    return (b + 0xFFF + (b >> 13 & 1)) & ~0x1FFFu;
}

// Calls visit(dense offset, address of the tensor's element or 0 outside, elements) for each row of the tile.
template <class Visit> void each_row(const Tile &tile, Visit visit)
{
    const qm_tensor_map &m = tile.map;
    u32 at[5] = {0, 0, 0, 0, 0};
    for (u32 row = 0; row * tile.count[0] * tile.size < tile.bytes; row++) {
        u64 address = m.address;
        bool inside = true;
        for (int j = 1; j < m.rank; j++) {
            int64_t c = static_cast<int64_t>(tile.start[j]) + static_cast<int64_t>(at[j]) * m.step[j];
            inside = inside && c >= 0 && c <= static_cast<int64_t>(m.dim_less_1[j]);
            address += static_cast<u64>(c) * m.stride[j - 1];
        }
        visit(row * tile.count[0] * tile.size, address, inside);
        for (int j = 1; j < m.rank && ++at[j] == tile.count[j]; j++) at[j] = 0;
    }
}

// Elements of a row that lie inside: [first, last) of the tile's columns.
struct Span {
    u32 first, last;
};
Span span_of(const Tile &tile, bool inside)
{
    int64_t start = tile.start[0], size = static_cast<int64_t>(tile.map.dim_less_1[0]) + 1, count = tile.count[0];
    if (!inside || start >= size || start + count <= 0) return {0, 0};
    return {static_cast<u32>(start < 0 ? -start : 0), static_cast<u32>(start + count > size ? size - start : count)};
}

void *device(u64 address)
{
    return reinterpret_cast<void *>(address);
}

void land_load(Tile &tile)
{
    bool round = tile.map.type == QM_TENSOR_TF32 || tile.map.type == QM_TENSOR_TF32_FTZ;
    u32 row_bytes = tile.count[0] * tile.size;
    u8 row[256 * 8];
    each_row(tile, [&](u32 dense, u64 address, bool inside) {
        for (u32 i = 0; i < row_bytes; i++) row[i] = tile.map.fill ? (i & 1 ? 0x7F : 0xF7) : 0;
        Span in = span_of(tile, inside);
        if (in.first < in.last)
            raw_copy(row + in.first * tile.size, device(address + (tile.start[0] + int64_t(in.first)) * tile.size),
                     (in.last - in.first) * tile.size);
        for (u32 i = in.first; round && i < in.last; i++) {
            u32 word;
            memcpy(&word, row + 4 * i, 4);
            word = tf32_rounded(word);
            memcpy(row + 4 * i, &word, 4);
        }
        for (int t = 0; t < tile.targets; t++)
            for (u32 i = 0; i < row_bytes; i += 8)
                raw_copy(static_cast<char *>(tile.to[t]) + placed(tile, dense + i), row + i, 8);
    });
}

void read_tile(Tile &tile)
{
    tile.staged = staging_take(tile.bytes);
    for (u32 i = 0; i < tile.bytes; i += 8)
        raw_copy(tile.staged + i, static_cast<char *>(tile.from) + placed(tile, i), 8);
}

void land_store(Tile &tile)
{
    each_row(tile, [&](u32 dense, u64 address, bool inside) {
        Span in = span_of(tile, inside);
        if (in.first < in.last)
            raw_copy(device(address + (tile.start[0] + int64_t(in.first)) * tile.size),
                     tile.staged + dense + in.first * tile.size, (in.last - in.first) * tile.size);
    });
    staging_give_back(tile.staged);
}

qm_tensor_map map_of(const void *map, Place at)
{
    qm_tensor_map record;
    if (reinterpret_cast<uintptr_t>(map) % 64) fail(at, "the tensor map %p is not aligned to 64 bytes", map);
    memcpy(&record, map, sizeof record);
    if (record.mark != QM_TENSOR_MAP_MARK) fail(at, "there is no tensor map at %p (made by qm_tensor_map_encode_tiled)", map);
    return record;
}

Tile tile_of(const void *map, const void *shared, int dims, const int *coordinates, Place at)
{
    need_arch(90, 0, false, at);
    Tile tile = {};
    tile.map = map_of(map, at);
    const qm_tensor_map &m = tile.map;
    if (m.rank != dims) fail(at, "the tensor map has %d dimensions", m.rank);
    if (m.type >= QM_TENSOR_PACKED) fail(at, "packed types (%d) are not modelled", m.type);
    if (m.interleave) fail(at, "interleaved layouts (%d) are not modelled", m.interleave);
    if (m.swizzle > 3) need_arch(100, 0, false, at);
    tile.size = kSize[m.type];
    tile.bytes = tile.size;
    for (int j = 0; j < dims; j++) {
        u32 step = j ? m.step[j] : 1; // without interleave, dimension 0's is not used
        tile.start[j] = coordinates[j];
        tile.count[j] = (m.box[j] + step - 1) / step;
        tile.bytes *= tile.count[j];
    }
    if (!is_shared(shared)) fail(at, "the tile %p is not in shared memory", shared);
    tile.address = shared_address(shared, at);
    if (tile.address % 128) fail(at, "the tile's address %#x is not aligned to 128 bytes", tile.address);
    return tile;
}

void (*const no_read)(Tile &) = nullptr;

} // namespace

void tensor_load(void *to, const void *map, void *bar, u32 ranks, int dims, const int *coordinates, Place at)
{
    Tile tile = tile_of(map, to, dims, coordinates, at);
    Async *op = async_begin(at);
    each_row(tile, [&](u32, u64 address, bool inside) {
        Span in = span_of(tile, inside);
        if (in.first < in.last)
            async_source(op, device(address + (tile.start[0] + int64_t(in.first)) * tile.size),
                         (in.last - in.first) * tile.size, true);
    });
    for (u32 r = 0; r < 16; r++) {
        if (ranks ? !(ranks >> r & 1) : r != self->rank) continue;
        void *target = ranks ? map_shared(to, r, at) : to;
        async_target(op, target, tile.bytes, true);
        async_signal_tx(op, ranks ? map_shared(bar, r, at) : bar, tile.bytes);
        tile.to[tile.targets++] = target;
    }
    async_launch(op, tile, no_read, land_load);
}

void tensor_store(const void *map, const void *from, int dims, const int *coordinates, Place at)
{
    Tile tile = tile_of(map, from, dims, coordinates, at);
    for (int j = 0; j < dims; j++)
        if (coordinates[j] < 0)
            fail(at, "coordinate %d is %d: a store's coordinates are not negative", j, coordinates[j]);
    tile.from = const_cast<void *>(from);
    Async *op = async_begin(at);
    async_source(op, from, tile.bytes, true);
    each_row(tile, [&](u32, u64 address, bool inside) {
        Span in = span_of(tile, inside);
        if (in.first < in.last)
            async_target(op, device(address + (tile.start[0] + int64_t(in.first)) * tile.size),
                         (in.last - in.first) * tile.size, true);
    });
    async_join(op, GROUP_BULK, self->thread);
    async_launch(op, tile, read_tile, land_store);
}

void tensor_prefetch(const void *map, Place at)
{
    need_arch(90, 0, false, at);
    map_of(map, at);
}

} // namespace qm
