// SPDX-License-Identifier: Apache-2.0
// Names of buckets that one configuration serves. Called by runtime/prepare.c and the command; knows no family by name.
//
// A bucket's name is parts between ", ", one a size: "SIZE a..b", "SIZE a…" where there is no end, or "SIZE a". The last size
// is the one that changes fastest from bucket to bucket.
#include <stdio.h>
#include <string.h>

#include "ops/family.h"

enum { NAME_BYTES = 96, MOST_PARTS = 4 };

typedef struct parts {
    char text[NAME_BYTES];
    char *part[MOST_PARTS];
    size_t count;
} parts;

static void split(const qn_family *family, size_t bucket, parts *p)
{
    p->text[0] = 0;
    family->bucket_name(bucket, p->text, sizeof p->text);
    p->count = 0;
    for (char *at = p->text; at && p->count < MOST_PARTS;) {
        p->part[p->count++] = at;
        at = strstr(at, ", ");
        if (at) *at = 0, at += 2;
    }
}

// "SIZE a" before a part's first number ends.
static size_t begin_of(const char *part)
{
    const char *number = strchr(part, ' ');
    return number ? (size_t)(number + 1 - part) + strspn(number + 1, "0123456789") : 0;
}

// Whether nothing stands after the range.
static bool is_plain(const char *part)
{
    const char *end = part + begin_of(part);
    if (!strncmp(end, "..", 2)) end += 2 + strspn(end + 2, "0123456789");
    return end > part && (!*end || !strcmp(end, "…"));
}

// "SIZE a..b" and "SIZE c..d" are "SIZE a..d", and "SIZE a…" has whatever follows. false: they are of two sizes, or more than
// ranges.
static bool join(const char *from, const char *to, char *text, size_t bytes)
{
    size_t begin = begin_of(from), size = strcspn(from, " ") + 1, end = begin_of(to);
    if (!strcmp(from, to)) return snprintf(text, bytes, "%s", from) > 0;
    if (!is_plain(from) || strncmp(from, to, size) != 0) return false;
    if (!strcmp(from + begin, "…")) return snprintf(text, bytes, "%s", from) > 0;
    if (!is_plain(to)) return false;
    bool one = !to[end]; // "SIZE c"
    snprintf(text, bytes, "%.*s%s%s", (int)begin, from, one ? ".." : "", to + (one ? size : end));
    return true;
}

// Whether buckets first … last are all pairs of ranges, one a part: after a part that differs, the others begin with the
// first range that there is of their size, and end with the last.
static bool is_product(const qn_family *family, const parts *from, const parts *to)
{
    parts lowest, highest;
    bool differs = false;
    split(family, 0, &lowest);
    split(family, family->bucket_count - 1, &highest);
    if (from->count != to->count) return false;
    for (size_t i = 0; i < from->count; i++) {
        if (differs && (lowest.count != from->count || highest.count != from->count)) return false;
        if (differs && (strcmp(from->part[i], lowest.part[i]) || strcmp(to->part[i], highest.part[i]))) return false;
        differs |= strcmp(from->part[i], to->part[i]) != 0;
    }
    return true;
}

void qn_buckets_name(const qn_family *family, size_t first, size_t last, char *text, size_t bytes)
{
    parts from, to;
    char joined[MOST_PARTS][NAME_BYTES];
    split(family, first, &from);
    split(family, last, &to);
    if (first == 0 && first != last && last + 1 == family->bucket_count) { // all sizes
        snprintf(text, bytes, "%.*s…", (int)begin_of(from.part[0]), from.part[0]);
        return;
    }
    bool ok = is_product(family, &from, &to);
    for (size_t i = 0; i < from.count && ok; i++) ok = join(from.part[i], to.part[i], joined[i], sizeof joined[i]);
    for (size_t i = 0, used = 0; i < from.count && ok && used < bytes; i++)
        used += (size_t)snprintf(text + used, bytes - used, "%s%s", i ? ", " : "", joined[i]);
    if (ok) return;
    char one[NAME_BYTES] = "", other[NAME_BYTES] = "";
    family->bucket_name(first, one, sizeof one);
    family->bucket_name(last, other, sizeof other);
    snprintf(text, bytes, "%s to %s", one, other);
}
