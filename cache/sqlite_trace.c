// SPDX-License-Identifier: Apache-2.0
// Whether a file that SQLite cannot read was a database of Quern: its mark in the header, or rows of table kernel where
// this format has them. Called before a file is called damaged, and before repair touches it.
//   (1) Only reads, through the connection's own descriptor, and a bounded number of pages.
//   (2) A file of anything else is not taken for ours: a row is recognised by the types of all its columns.
#include "cache/sqlite_private.h"

#include <stdlib.h>
#include <string.h>

enum {
    PAGE = QN_SCHEMA_PAGE_BYTES,
    FIRST_PAGE_OF_KERNEL = 3, // in every database of this format: the second maps the others (auto_vacuum)
    INTERIOR = 5,             // kinds of a table's pages, as they begin
    LEAF = 13,
    MOST_PAGES = 64,
    MOST_LEVELS = 8
};

// ---- numbers as SQLite writes them

static unsigned big_endian(const unsigned char *bytes, int count)
{
    unsigned value = 0;

    for (int i = 0; i < count; i++) value = value << 8 | bytes[i];
    return value;
}

// A varint of at most nine bytes, and *at after it. False past the page's end.
static bool read_varint(const unsigned char *page, int *at, uint64_t *value)
{
    *value = 0;
    for (int i = 0; i < 9; i++) {
        if (*at >= PAGE) return false;
        unsigned char byte = page[(*at)++];
        *value = i == 8 ? *value << 8 | byte : *value << 7 | (byte & 0x7f);
        if (i == 8 || byte < 0x80) return true;
    }
    return false;
}

// ---- rows

// Serial types: 0 NULL, 1 … 6, 8, 9 integers, from 12 on even a blob of (n - 12) / 2 bytes, from 13 on odd a text.
static bool is_type(char wanted, uint64_t type)
{
    switch (wanted) {
    case 'n': // the row's id, which stands elsewhere
        return type == 0;
    case 'h': // a hash of 16 bytes
        return type == 12 + 2 * 16;
    case 'b':
        return type >= 12 && type % 2 == 0;
    case 't':
        return type >= 13 && type % 2 == 1;
    default:
        return (type >= 1 && type <= 6) || type == 8 || type == 9;
    }
}

static bool is_row(const unsigned char *page, int at)
{
    static const char columns[] = "nhbttttihiiiiiihb"; // of table kernel (schema.h)
    uint64_t payload, id, header, type;

    if (!read_varint(page, &at, &payload) || !read_varint(page, &at, &id)) return false;
    int begin = at;
    if (!read_varint(page, &at, &header) || header >= payload) return false;
    for (const char *column = columns; *column; column++)
        if (!read_varint(page, &at, &type) || !is_type(*column, type)) return false;
    return (uint64_t)(at - begin) == header;
}

// ---- pages

// pages: room for one page of each level.
static bool has_rows(sqlite3 *db, unsigned char *pages, unsigned number, int level, int *budget)
{
    unsigned char *page = pages + (size_t)level * PAGE;
    bool found = false;

    if (level == MOST_LEVELS || !number || --*budget < 0) return false;
    if (!qn_read_raw(db, page, PAGE, (int64_t)(number - 1) * PAGE) || (*page != LEAF && *page != INTERIOR))
        return false;
    int head = *page == LEAF ? 8 : 12, cells = (int)big_endian(page + 3, 2);
    for (int i = 0; i < cells && head + 2 * i + 2 <= PAGE && !found; i++) {
        int at = (int)big_endian(page + head + 2 * i, 2);
        if (at < head || at + 4 > PAGE) continue;
        found = *page == LEAF ? is_row(page, at) : has_rows(db, pages, big_endian(page + at, 4), level + 1, budget);
    }
    return found || (*page == INTERIOR && has_rows(db, pages, big_endian(page + 8, 4), level + 1, budget));
}

quern_status qn_was_ours(const qn_sqlite *store, sqlite3 *db, bool *ours)
{
    static const unsigned char mark[4] = {'Q', 'r', 'n', '1'};
    unsigned char header[100];
    int budget = MOST_PAGES;

    *ours = false;
    if (!qn_read_raw(db, header, sizeof header, 0)) return QUERN_OK;
    *ours = !memcmp(header + 68, mark, sizeof mark);
    if (*ours) return QUERN_OK;
    unsigned char *pages = malloc((size_t)MOST_LEVELS * PAGE);
    if (!pages) return qn_fail(QUERN_OUT_OF_MEMORY, "%s: no memory for its pages", store->file);
    *ours = has_rows(db, pages, FIRST_PAGE_OF_KERNEL, 0, &budget);
    free(pages);
    return QUERN_OK;
}
