// SPDX-License-Identifier: Apache-2.0
// Whether something could be made in a place, for `quern doctor`, which leaves nothing behind. A permission alone does not
// tell: root has every one, also on file systems that take no files.
#ifndef QUERN_TOOLS_PLACES_H
#define QUERN_TOOLS_PLACES_H

#include "base/text.h"

// The path itself or the nearest of its ancestors that exists.
void places_nearest(const char *path, char *out, size_t bytes);
// A folder for what becomes code: safe, and files can be made in it; or it is not there, and could be made so. UNSAFE_PATH,
// FILE_ERROR.
quern_status places_check_cache(const char *directory);
// A folder that exists and takes files, or whose parent does. FILE_ERROR.
quern_status places_check_folder(const char *directory);
// A file that can be appended to, or made. FILE_ERROR.
quern_status places_check_file(const char *file);

#endif
