// SPDX-License-Identifier: Apache-2.0
// Shared memory: an arena a CTA, all of them in one range of addresses, so that an address says whose it is. Pieces lie
// in it with hidden bytes between them.
//   (1) The offset of a piece in the kernel's text names it; its place in the arena is the model's business.
//   (2) Places keep the text's alignment up to 1024, and lie below 256 KiB, which is what descriptors can name.
#include "machine.h"

#include <sys/mman.h>

namespace qm {

enum { GAP = 64, DESCRIPTOR_REACH = 256 << 10 };
char *arenas;

char *shared_arena(unsigned slot, unsigned rank)
{
    if (!arenas) {
        // One arena more than needed, to begin at a multiple of the arena's size.
        char *p = static_cast<char *>(mmap(nullptr, SHARED_RANGE + ARENA_BYTES, PROT_READ | PROT_WRITE,
                                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
        if (p == MAP_FAILED) fail({"", 0, "launch"}, "the model has no memory for shared memory");
        arenas =
            reinterpret_cast<char *>((reinterpret_cast<uintptr_t>(p) + ARENA_BYTES - 1) & ~uintptr_t(ARENA_BYTES - 1));
    }
    return arenas + ((size_t)slot * MAX_CLUSTER + rank) * ARENA_BYTES;
}

void *shared_marks(size_t bytes_each)
{
    void *p = mmap(nullptr, SHARED_RANGE * bytes_each, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) fail({"", 0, "launch"}, "the model has no memory for its marks");
    return p;
}

void shared_begin(Cluster *cluster)
{
    for (Cta &cta : cluster->ctas) {
        show(cta.arena, ARENA_BYTES);
        hide(cta.arena, ARENA_BYTES, {"", 0, "shared memory"});
    }
}

void shared_end(Cta *cta)
{
    hide(cta->arena, ARENA_BYTES, {"", 0, "shared memory of a CTA that has ended"});
}

bool is_shared(const void *p)
{
    return in_shared(p);
}
unsigned shared_rank(const void *p)
{
    return (unsigned)(shared_offset(p) / ARENA_BYTES % MAX_CLUSTER);
}

Cta *shared_cta(const void *p)
{
    size_t arena = shared_offset(p) / ARENA_BYTES;
    if (arena / MAX_CLUSTER >= clusters().size()) return nullptr;
    Cluster &c = clusters()[arena / MAX_CLUSTER];
    return arena % MAX_CLUSTER < c.ctas.size() ? &c.ctas[arena % MAX_CLUSTER] : nullptr;
}

const Piece *shared_piece(const void *p, size_t bytes)
{
    const Cta *cta = shared_cta(p);
    if (!cta) return nullptr;
    size_t at = shared_offset(p) % ARENA_BYTES;
    for (const Piece &piece : cta->pieces)
        if (at >= piece.at && at + bytes <= piece.at + piece.bytes) return &piece;
    return nullptr;
}

const char *shared_check(const void *p, size_t bytes)
{
    const Cta *cta = shared_cta(p);
    if (!cta || !cta->live) return "shared memory of a CTA that has ended";
    return shared_piece(p, bytes) ? nullptr : "outside every piece of shared memory";
}

void *shared_take(size_t &offset, size_t bytes, size_t align, Place at)
{
    Cta *cta = current()->cta;
    offset = (offset + align - 1) / align * align;
    size_t here = offset;
    offset += bytes;
    for (const Piece &piece : cta->pieces)
        if (piece.offset == here && piece.bytes == bytes && piece.align == align) return cta->arena + piece.at;
    if (offset > launch.shared_bytes)
        fail(at, "shared memory up to byte %zu, the launch gives %zu", offset, launch.shared_bytes);
    size_t place = (cta->used + GAP + align - 1) / align * align;
    if (place + bytes + GAP > DESCRIPTOR_REACH)
        fail(at, "the model's arena is full: %zu bytes with gaps, %d at most", place + bytes + GAP, DESCRIPTOR_REACH);
    cta->used = place + bytes;
    cta->pieces.push_back({here, bytes, align, place});
    char *p = cta->arena + place;
    show(p, bytes);
    raw_fill(p, 0xFF, bytes);
    if (build == BUILD_MSAN) hide(p, bytes, at);
    access_piece(p, bytes);
    return p;
}

// The peer may not have come to its declarations yet: it gets the pieces of this CTA in the same places.
static void lay_out_alike(const Cta *mine, Cta *peer)
{
    for (const Piece &piece : mine->pieces) {
        bool has = false;
        for (const Piece &its : peer->pieces) has = has || its.at == piece.at;
        if (has) continue;
        peer->pieces.push_back(piece);
        if (peer->used < piece.at + piece.bytes) peer->used = piece.at + piece.bytes;
        char *q = peer->arena + piece.at;
        show(q, piece.bytes);
        raw_fill(q, 0xFF, piece.bytes);
        if (build == BUILD_MSAN) hide(q, piece.bytes, {"", 0, "shared memory"});
        access_piece(q, piece.bytes);
    }
}

void *map_shared(const void *p, unsigned rank, Place at)
{
    need_arch(90, 0, false, at);
    Lane *a = current();
    Cluster *c = a->cta->cluster;
    const Cta *mine = is_shared(p) ? shared_cta(p) : nullptr;
    if (!mine || mine->cluster != c) fail(at, "the address is not in the cluster's shared memory");
    if (rank >= c->ctas.size()) fail(at, "rank %u in a cluster of %zu", rank, c->ctas.size());
    Cta *peer = &c->ctas[rank];
    if (!peer->live) fail(at, "CTA %u of the cluster has ended", rank);
    if (!shared_piece(p, 1)) fail(at, "the address is outside every piece of shared memory");
    char *mapped = peer->arena + ((const char *)p - mine->arena);
    if (!shared_piece(mapped, 1)) lay_out_alike(mine, peer);
    return mapped;
}

u32 shared_address(const void *p, Place at)
{
    if (!is_shared(p)) fail(at, "the address is not in shared memory");
    return shared_rank(p) << 24 | (u32)(shared_offset(p) % ARENA_BYTES);
}

void *shared_pointer(u32 address, Place at)
{
    Cluster *c = current()->cta->cluster;
    u32 rank = address >> 24, offset = address & 0xFFFFFF;
    if (rank >= c->ctas.size())
        fail(at, "shared address %08x: rank %u in a cluster of %zu", address, rank, c->ctas.size());
    char *p = c->ctas[rank].arena + offset;
    if (offset >= ARENA_BYTES || !shared_piece(p, 1)) fail(at, "shared address %08x is in no piece", address);
    return p;
}

} // namespace qm
