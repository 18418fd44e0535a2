// SPDX-License-Identifier: Apache-2.0
// Reading a cubin: an ELF64 file of machine EM_CUDA. Called after each compile and by the cache's checks.
//   (1) Any bytes are safe: every offset and count is checked against the length before it is used.
//   (2) Nothing of the image is changed or kept.
//
// Where the numbers are, as NVRTC 12 and 13 write them:
//   .nv.info           attributes, each: format (1), attribute (1), then for format 4 a size (2) and that many bytes;
//                      REGCOUNT and MIN_STACK_SIZE hold a symbol's index and a number
//   .nv.info.<entry>   the same for one kernel: PARAMETER_BYTES
//   .text.<entry>      sh_info's top byte: registers, before sm_90
//   .nv.shared.<entry> its size: static shared memory; from sm_90 on with the 1 KiB that the system keeps below it
#include <elf.h>
#include <string.h>

#include "cuda/nvrtc.h"

enum {
    EM_CUDA_ = 190,
    ATTR_FORMAT_HALF = 3,
    ATTR_FORMAT_SIZED = 4,
    ATTR_PARAMETER_BYTES = 0x19,
    ATTR_REGCOUNT = 0x2f,
    ATTR_MIN_STACK_SIZE = 0x12,
    RESERVED_SHARED = 1024
};
enum { MAX_NAME = 1024 }; // longer names are none of ours; the bound keeps hostile tables cheap

typedef struct cubin {
    const unsigned char *bytes;
    size_t count;
    Elf64_Ehdr head;
} cubin;

static bool is_inside(const cubin *c, uint64_t offset, uint64_t bytes)
{
    return offset <= c->count && bytes <= c->count - offset;
}

static bool open_cubin(const void *image, size_t bytes, cubin *c)
{
    if (!image || bytes < sizeof c->head) return false;
    c->bytes = image;
    c->count = bytes;
    memcpy(&c->head, image, sizeof c->head);
    const Elf64_Ehdr *h = &c->head;
    if (memcmp(h->e_ident, ELFMAG, SELFMAG) || h->e_ident[EI_CLASS] != ELFCLASS64 || h->e_ident[EI_DATA] != ELFDATA2LSB)
        return false;
    if (h->e_machine != EM_CUDA_ || !h->e_shnum || h->e_shentsize != sizeof(Elf64_Shdr)) return false;
    if (h->e_phnum &&
        (h->e_phentsize != sizeof(Elf64_Phdr) || !is_inside(c, h->e_phoff, (uint64_t)h->e_phnum * sizeof(Elf64_Phdr))))
        return false;
    return is_inside(c, h->e_shoff, (uint64_t)h->e_shnum * sizeof(Elf64_Shdr));
}

// One section's head; false if its bytes are not all in the file.
static bool read_section(const cubin *c, size_t index, Elf64_Shdr *section)
{
    if (index >= c->head.e_shnum) return false;
    memcpy(section, c->bytes + c->head.e_shoff + index * sizeof *section, sizeof *section);
    return section->sh_type == SHT_NOBITS || is_inside(c, section->sh_offset, section->sh_size);
}

bool qn_cubin_is_plausible(const void *image, size_t bytes)
{
    cubin c;
    Elf64_Shdr section;

    if (!open_cubin(image, bytes, &c)) return false;
    for (size_t i = 0; i < c.head.e_shnum; i++) {
        if (!read_section(&c, i, &section)) return false;
    }
    return true;
}

// A string of a string table; "" where none ends inside it.
static const char *string_at(const cubin *c, size_t table, uint64_t offset)
{
    Elf64_Shdr strings;

    if (!read_section(c, table, &strings) || strings.sh_type != SHT_STRTAB || offset >= strings.sh_size) return "";
    const char *string = (const char *)c->bytes + strings.sh_offset + offset;
    uint64_t left = strings.sh_size - offset;
    return memchr(string, 0, left < MAX_NAME ? left : MAX_NAME) ? string : "";
}

// The first section named prefix + entry, or prefix + anything when entry is NULL; *rest is what follows the prefix.
static bool find_section(const cubin *c, const char *prefix, const char *entry, Elf64_Shdr *section, const char **rest)
{
    size_t length = strlen(prefix);

    for (size_t i = 0; i < c->head.e_shnum; i++) {
        if (!read_section(c, i, section)) continue;
        const char *name = string_at(c, c->head.e_shstrndx, section->sh_name);
        if (strncmp(name, prefix, length) || (entry && strcmp(name + length, entry))) continue;
        *rest = name + length;
        return true;
    }
    return false;
}

static bool find_symbol(const cubin *c, const char *name, uint32_t *index)
{
    Elf64_Shdr table;
    Elf64_Sym symbol;

    for (size_t i = 0; i < c->head.e_shnum; i++) {
        if (!read_section(c, i, &table) || table.sh_type != SHT_SYMTAB) continue;
        for (uint64_t n = 0; n < table.sh_size / sizeof symbol; n++) {
            memcpy(&symbol, c->bytes + table.sh_offset + n * sizeof symbol, sizeof symbol);
            if (strcmp(string_at(c, table.sh_link, symbol.st_name), name)) continue;
            *index = (uint32_t)n;
            return true;
        }
        return false;
    }
    return false;
}

static uint32_t le32(const unsigned char *at)
{
    return (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

// The number that .nv.info's attribute gives a symbol; -1 if none, or past what an int holds.
static int attribute_of(const cubin *c, const Elf64_Shdr *info, uint32_t symbol, int attribute)
{
    const unsigned char *at = c->bytes + info->sh_offset;
    size_t left = info->sh_size;

    while (left >= 4) {
        size_t bytes =
            at[0] == ATTR_FORMAT_SIZED ? (size_t)at[2] + 256 * (size_t)at[3] : 0; // others: 2 bytes, in place
        if (bytes > left - 4) return -1;
        if (at[0] == ATTR_FORMAT_SIZED && at[1] == attribute && bytes == 8 && le32(at + 4) == symbol) {
            uint32_t value = le32(at + 8);
            return value <= INT32_MAX ? (int)value : -1;
        }
        at += 4 + bytes;
        left -= 4 + bytes;
    }
    return -1;
}

// The architecture, 90 for sm_90 and sm_90a, from where the ABI of CUDA 13 (version 8) and the older ones keep it.
static int architecture(const cubin *c)
{
    unsigned flags = c->head.e_flags;
    return (int)(c->head.e_ident[EI_ABIVERSION] >= 8 ? flags >> 8 & 0xff : flags & 0xff);
}

static int static_shared(const cubin *c, const char *entry)
{
    Elf64_Shdr section;
    const char *rest;

    if (!find_section(c, ".nv.shared.", entry, &section, &rest)) return 0;
    if (section.sh_size > INT32_MAX) return -1;
    int bytes = (int)section.sh_size;
    return architecture(c) >= 90 && bytes >= RESERVED_SHARED ? bytes - RESERVED_SHARED : bytes;
}

void qn_cubin_resources(const void *image, size_t bytes, const char *entry, int *registers, int *shared, int *local)
{
    cubin c;
    Elf64_Shdr text, info;
    const char *name, *rest;
    uint32_t symbol;

    *registers = *shared = *local = -1;
    if (!open_cubin(image, bytes, &c) || !find_section(&c, ".text.", entry, &text, &name)) return;
    *shared = static_shared(&c, name);
    if (text.sh_info >> 24) *registers = (int)(text.sh_info >> 24);
    if (!find_section(&c, ".nv.info", "", &info, &rest) || info.sh_type == SHT_NOBITS ||
        !find_symbol(&c, name, &symbol))
        return;
    int counted = attribute_of(&c, &info, symbol, ATTR_REGCOUNT);
    if (counted >= 0) *registers = counted;
    *local = attribute_of(&c, &info, symbol, ATTR_MIN_STACK_SIZE);
}

bool qn_cubin_has_entry(const void *image, size_t bytes, const char *entry)
{
    cubin c;
    Elf64_Shdr text;
    const char *rest;

    return open_cubin(image, bytes, &c) && find_section(&c, ".text.", entry, &text, &rest);
}

// .nv.info.<entry> has one attribute of format 3 (2 bytes, in place) for it, and none when there are no parameters.
int qn_cubin_parameter_bytes(const void *image, size_t bytes, const char *entry)
{
    cubin c;
    Elf64_Shdr info;
    const char *rest;

    if (!open_cubin(image, bytes, &c) || !find_section(&c, ".nv.info.", entry, &info, &rest)) return -1;
    if (info.sh_type == SHT_NOBITS) return -1;
    const unsigned char *at = c.bytes + info.sh_offset;
    for (size_t left = info.sh_size; left >= 4;) {
        size_t payload = at[0] == ATTR_FORMAT_SIZED ? (size_t)at[2] + 256 * (size_t)at[3] : 0;
        if (at[0] == ATTR_FORMAT_HALF && at[1] == ATTR_PARAMETER_BYTES) return at[2] + 256 * at[3];
        if (payload > left - 4) return -1;
        at += 4 + payload;
        left -= 4 + payload;
    }
    return 0;
}
