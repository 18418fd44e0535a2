// SPDX-License-Identifier: Apache-2.0
// How long a database's path may be. SQLite's limit is the system interface's, far below PATH_MAX: with it in force an open
// fails with "unable to open database file" alone, of a folder in which nothing is wrong.
#include <sqlite3.h>
#include <stdlib.h>
#include <string.h>

#include "base/path.h"
#include "cache/store.h"

// Of the path that SQLite opens: absolute, with symbolic links followed. The file need not be there.
static size_t length_followed(const qn_text *path)
{
    char *real = realpath(qn_text_string(path), NULL);
    size_t length = real ? strlen(real) : path->length;
    char *slash = path->length ? strrchr(path->bytes, '/') : NULL;
    if (!real && slash) {
        size_t name = strlen(slash + 1);
        *slash = 0;
        real = realpath(slash == path->bytes ? "/" : path->bytes, NULL);
        if (real) length = strlen(real) + strlen("/") + name;
        *slash = '/';
    }
    free(real);
    return length;
}

quern_status qn_sqlite_check_path(const char *file)
{
    const size_t beside = strlen("-journal");
    const sqlite3_vfs *vfs = sqlite3_vfs_find(NULL);
    qn_text path = QN_TEXT_INIT;
    qn_path_absolute(file, &path);
    size_t length = length_followed(&path);
    qn_text_fini(&path);
    if (!vfs || length + beside <= (size_t)vfs->mxPathname) return QUERN_OK;
    return qn_fail(
        QUERN_STORE_OPEN,
        "a database's path of %zu bytes, symbolic links followed: SQLite opens at most %zu; name a shorter one "
        "than '%s'",
        length, (size_t)vfs->mxPathname - beside, file);
}
