// SPDX-License-Identifier: Apache-2.0
// Names of buckets that one configuration serves. Called by runtime/prepare.c and the command; knows no family by name.
#include <stdio.h>
#include <string.h>

#include "ops/family.h"

// A bucket's name is "SIZE a..b", "SIZE a…" for the last one, or "SIZE a".
void qn_buckets_name(const qn_family *family, size_t first, size_t last, char *text, size_t bytes)
{
    char from[96] = "", to[96] = "";

    family->bucket_name(first, from, sizeof from);
    family->bucket_name(last, to, sizeof to);
    const char *from_end = strstr(from, ".."), *to_end = strstr(to, "..");
    if (!to_end) to_end = strstr(to, "…");
    if (first == last)
        snprintf(text, bytes, "%s", from);
    else if (to_end)
        snprintf(text, bytes, "%.*s%s", from_end ? (int)(from_end - from) : (int)strlen(from), from, to_end);
    else
        snprintf(text, bytes, "%s to %s", from, to);
}
