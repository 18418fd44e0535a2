// SPDX-License-Identifier: Apache-2.0
// Writing a whole piece to a descriptor. A closed pipe and a file-size limit are errors, not signals of the host's.
#ifndef QN_BASE_WRITE_H
#define QN_BASE_WRITE_H

#include <stdbool.h>
#include <stddef.h>

// False, with errno, when not all of it could be written. Neither SIGPIPE nor SIGXFSZ reaches the process.
bool qn_write_all(int fd, const void *bytes, size_t count);

#endif
