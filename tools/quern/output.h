// SPDX-License-Identifier: Apache-2.0
// Every file that an option or an operand of the command names to be written, but databases: SQLite makes those itself.
//   (1) A regular file is written beside its place and renamed at the end: a reader never sees half of it, and a failure
//       changes nothing. A symbolic link stays one, what it leads to is replaced. The mode stays, too.
//   (2) An SQLite database, or what SQLite keeps beside one, is never replaced, whichever option names it.
//   (3) A character device or a pipe is written to where that makes sense (text), else refused; whatever else is no
//       regular file is always refused.
#ifndef QUERN_TOOLS_OUTPUT_H
#define QUERN_TOOLS_OUTPUT_H

#include "base/text.h"

typedef enum output_kind {
    OUTPUT_FILE, // a regular file only: arrays, of which several appear together
    OUTPUT_TEXT, // or a device or pipe: /dev/stdout, /dev/null
} output_kind;

typedef struct output_file {
    char *target;    // symbolic links followed
    char *temporary; // beside it; NULL: written straight to the target
    int descriptor;
} output_file;

// Fails here, before any work, when the place cannot be written. FILE_ERROR.
quern_status output_open(const char *path, output_kind kind, output_file *out);
quern_status output_write(output_file *file, const void *bytes, size_t count);
quern_status output_close(output_file *file);  // all is written: what the disk refuses late is told here
quern_status output_commit(output_file *file); // renames; the output is gone then
void output_abort(output_file *file);          // removes the temporary file; harmless on one that is closed or zeroed

// Whether output_text could write there, told before the work. Opens no device and no pipe.
quern_status output_check(const char *path);
// A whole text: open, write, close, commit.
quern_status output_text(const char *path, const void *bytes, size_t count);

bool output_is_stream(const char *path); // a device, a pipe, or where standard output or standard error go

#endif
