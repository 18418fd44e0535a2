// SPDX-License-Identifier: Apache-2.0
// Trying what a place takes (places.h): an empty folder of an own name is made there and taken away again.
#include "places.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/path.h"

void places_nearest(const char *path, char *out, size_t bytes)
{
    snprintf(out, bytes, "%s", path);
    for (char *slash; out[1] && !qn_file_exists(out) && (slash = strrchr(out, '/'));) slash[slash == out] = 0;
}

// as_cache: and what is made there passes the checks of a cache folder, so that its ancestors do.
static quern_status try_inside(const char *folder, bool as_cache)
{
    qn_text made = QN_TEXT_INIT;
    qn_text_putf(&made, "%s/.quern-doctor-XXXXXX", folder);
    quern_status status = qn_text_check(&made);
    if (status == QUERN_OK && !mkdtemp(made.bytes))
        status = qn_fail(QUERN_FILE_ERROR, "nothing can be made in '%s': %s", folder, strerror(errno));
    else if (status == QUERN_OK) {
        status = as_cache ? qn_directory_check(made.bytes) : QUERN_OK;
        rmdir(made.bytes);
    }
    qn_text_fini(&made);
    return status;
}

quern_status places_check_cache(const char *directory)
{
    char existing[4096];
    struct stat info;
    bool exists = !lstat(directory, &info) || errno != ENOENT;
    if (exists) QN_TRY(qn_directory_check(directory));
    places_nearest(directory, existing, sizeof existing);
    return try_inside(existing, true);
}

static void parent_of(const char *path, qn_text *parent)
{
    qn_path_absolute(path, parent);
    char *slash = parent->length ? strrchr(parent->bytes, '/') : NULL;
    if (slash) slash[slash == parent->bytes] = 0;
}

quern_status places_check_folder(const char *directory)
{
    struct stat info;
    if (!stat(directory, &info)) {
        if (!S_ISDIR(info.st_mode)) return qn_fail(QUERN_FILE_ERROR, "'%s' is not a directory", directory);
        return try_inside(directory, false);
    }
    qn_text parent = QN_TEXT_INIT;
    parent_of(directory, &parent);
    quern_status status = try_inside(qn_text_string(&parent), false);
    qn_text_fini(&parent);
    return status;
}

quern_status places_check_file(const char *file)
{
    struct stat info;
    if (qn_file_is_beside_database(file)) return qn_fail(QUERN_FILE_ERROR, "'%s' belongs to a database", file);
    if (!stat(file, &info)) {
        if (qn_file_is_database(file)) return qn_fail(QUERN_FILE_ERROR, "'%s' is a database", file);
        if (!S_ISDIR(info.st_mode) && !access(file, W_OK)) return QUERN_OK;
        return qn_fail(QUERN_FILE_ERROR, "'%s' cannot be written to: %s", file,
                       S_ISDIR(info.st_mode) ? strerror(EISDIR) : strerror(errno));
    }
    qn_text parent = QN_TEXT_INIT;
    parent_of(file, &parent);
    quern_status status = try_inside(qn_text_string(&parent), false);
    qn_text_fini(&parent);
    return status;
}
