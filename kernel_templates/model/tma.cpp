// SPDX-License-Identifier: Apache-2.0
// cp.async.bulk.tensor: a box of a tensor to or from a swizzled tile of shared memory, landing late.
//
// The tile is dense, dimension 0 fastest; only with a swizzle does a row that is narrower than the pattern's still take
// the pattern's width. A byte's place is then moved by the swizzle, which acts on the shared-memory address. Outside
// the tensor loads give the fill value and stores write nothing. Coordinate 0 must be a multiple of 16 bytes: the
// H200 stops with an illegal instruction otherwise, which the manual does not say.
#include "tma.h"

#include "copy.h"
#include "tensor_map.h"

namespace qm {
namespace {

constexpr int kSize[] = {1, 2, 4, 4, 8, 8, 2, 4, 8, 2, 4, 4, 4}; // bytes of the types that are modelled, 0 … 12

struct Tile {
    qm_tensor_map map;
    int start[5];
    u32 count[5]; // elements of the tile by dimension
    int size;     // bytes of an element
    u32 bytes;    // of the tile, as the mbarrier counts them
    u32 rows, row_bytes;
    u32 pitch;   // from row to row in shared memory
    u32 address; // of the tile, as instructions see it
    u8 *staged;  // stores: the dense tile after the first step
    void *from;  // stores: the tile in shared memory
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

// How far from the tile's start byte `at` of a row lies in shared memory. Valid for 8 bytes on.
ptrdiff_t placed(const Tile &tile, u32 row, u32 at)
{
    u32 address = tile.address + row * tile.pitch + at;
    return static_cast<ptrdiff_t>(swizzled(address, tile.map.swizzle)) - static_cast<ptrdiff_t>(tile.address);
}

u32 tf32_rounded(u32 b)
{
    if ((b & 0x7FFFFFFF) > 0x7F800000) return 0x7FFFE000;
    if ((b & 0x7F800000) == 0x7F800000) return b;
    return (b + 0xFFF + (b >> 13 & 1)) & ~0x1FFFu;
}

// Calls visit(row of the tile, address of the tensor's row, whether it exists) for each row of the tile.
template <class Visit> void each_row(const Tile &tile, Visit visit)
{
    const qm_tensor_map &m = tile.map;
    u32 at[5] = {0, 0, 0, 0, 0};
    for (u32 row = 0; row < tile.rows; row++) {
        u64 address = m.address;
        bool inside = true;
        for (int j = 1; j < m.rank; j++) {
            int64_t c = static_cast<int64_t>(tile.start[j]) + static_cast<int64_t>(at[j]) * m.step[j];
            inside = inside && c >= 0 && c <= static_cast<int64_t>(m.dim_less_1[j]);
            address += static_cast<u64>(c) * m.stride[j - 1];
        }
        visit(row, address, inside);
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

void *first_inside(const Tile &tile, u64 row_address, Span in)
{
    return device(row_address + static_cast<u64>(tile.start[0] + static_cast<int64_t>(in.first)) * tile.size);
}

void land_load(Tile &tile)
{
    bool round = tile.map.type == QM_TENSOR_TF32 || tile.map.type == QM_TENSOR_TF32_FTZ;
    u8 line[256 * 8];
    each_row(tile, [&](u32 row, u64 address, bool inside) {
        for (u32 i = 0; i < tile.row_bytes; i++) line[i] = tile.map.fill ? (i & 1 ? 0x7F : 0xF7) : 0;
        Span in = span_of(tile, inside);
        if (in.first < in.last)
            raw_copy(line + in.first * tile.size, first_inside(tile, address, in), (in.last - in.first) * tile.size);
        for (u32 i = in.first; round && i < in.last; i++) {
            u32 word;
            memcpy(&word, line + 4 * i, 4);
            word = tf32_rounded(word);
            memcpy(line + 4 * i, &word, 4);
        }
        for (int t = 0; t < tile.targets; t++)
            for (u32 i = 0; i < tile.row_bytes; i += 8)
                raw_copy(static_cast<char *>(tile.to[t]) + placed(tile, row, i), line + i, 8);
    });
}

void read_tile(Tile &tile)
{
    tile.staged = staging_take(tile.bytes);
    for (u32 row = 0; row < tile.rows; row++)
        for (u32 i = 0; i < tile.row_bytes; i += 8)
            raw_copy(tile.staged + row * tile.row_bytes + i, static_cast<char *>(tile.from) + placed(tile, row, i), 8);
}

void land_store(Tile &tile)
{
    each_row(tile, [&](u32 row, u64 address, bool inside) {
        Span in = span_of(tile, inside);
        if (in.first < in.last)
            raw_copy(first_inside(tile, address, in), tile.staged + row * tile.row_bytes + in.first * tile.size,
                     (in.last - in.first) * tile.size);
    });
    staging_give_back(tile.staged);
}

// Calls visit(offset from the tile's start, bytes) for the runs of shared memory that the tile takes.
template <class Visit> void each_run(const Tile &tile, Visit visit)
{
    if (tile.pitch == tile.row_bytes) {
        visit(0, tile.bytes);
        return;
    }
    for (u32 row = 0; row < tile.rows; row++)
        for (u32 i = 0; i < tile.row_bytes; i += 16) visit(placed(tile, row, i) & ~static_cast<ptrdiff_t>(15), 16);
}

qm_tensor_map map_of(const void *map, Place at)
{
    qm_tensor_map record;
    if (reinterpret_cast<uintptr_t>(map) % 64) fail(at, "the tensor map %p is not aligned to 64 bytes", map);
    memcpy(&record, map, sizeof record);
    if (record.mark != QM_TENSOR_MAP_MARK)
        fail(at, "there is no tensor map at %p (made by qm_tensor_map_encode_tiled)", map);
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
    tile.rows = 1;
    for (int j = 0; j < dims; j++) {
        u32 step = j ? m.step[j] : 1; // without interleave, dimension 0's is not used
        tile.start[j] = coordinates[j];
        tile.count[j] = (m.box[j] + step - 1) / step;
        if (j) tile.rows *= tile.count[j];
    }
    tile.row_bytes = tile.count[0] * tile.size;
    tile.bytes = tile.rows * tile.row_bytes;
    u32 width = m.swizzle == 0 ? 0 : m.swizzle < 3 ? 16u << m.swizzle : 128;
    tile.pitch = tile.row_bytes < width ? width : tile.row_bytes;
    if (static_cast<int64_t>(tile.start[0]) * tile.size % 16)
        fail(at, "coordinate 0 is %d elements of %d bytes: must be a multiple of 16 bytes", tile.start[0], tile.size);
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
            async_source(op, first_inside(tile, address, in), (in.last - in.first) * tile.size, true);
    });
    for (u32 r = 0; r < 16; r++) {
        if (ranks ? !(ranks >> r & 1) : r != self->rank) continue;
        char *target = static_cast<char *>(ranks ? map_shared(to, r, at) : to);
        each_run(tile, [&](ptrdiff_t offset, u32 bytes) { async_target(op, target + offset, bytes, true); });
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
    each_run(tile, [&](ptrdiff_t offset, u32 bytes) {
        async_source(op, static_cast<const char *>(from) + offset, bytes, true);
    });
    each_row(tile, [&](u32, u64 address, bool inside) {
        Span in = span_of(tile, inside);
        if (in.first < in.last)
            async_target(op, first_inside(tile, address, in), (in.last - in.first) * tile.size, true);
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
