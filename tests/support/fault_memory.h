// SPDX-License-Identifier: Apache-2.0
// An allocator that refuses: the n-th allocation, or all from the n-th on. A test that uses it is linked with --wrap of
// malloc, calloc, realloc and free (cmake/tests.cmake), so that the library's come through here; SQLite's by its own hook.
// One thread only.
#ifndef TESTS_SUPPORT_FAULT_MEMORY_H
#define TESTS_SUPPORT_FAULT_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { FAULT_LIBRARY = 1, FAULT_SQLITE = 2 }; // whose allocations count
#define FAULT_NEVER (INT64_MAX - 1)

void fault_memory_hook_sqlite(void); // before the first use of SQLite

// From here: the at-th allocation is refused (FAULT_NEVER: none), and all after it with for_ever.
void fault_memory_begin(unsigned whose, int64_t at, bool for_ever);
int64_t fault_memory_restore(void); // none is refused from here; how many were asked for
size_t fault_memory_end(void);      // how many blocks the library has made since begin and not freed

// The fault in words, for messages.
const char *fault_memory_name(void);

// Runs try(at, for_ever) for at = 1, 1 + stride, … until it returns fewer allocations than at; each is a fault of this
// kind, tried and survived. QUERN_TEST_LONG: stride 1; under a sanitizer it is larger.
typedef int64_t (*fault_memory_fn)(unsigned whose, int64_t at, bool for_ever);
void fault_memory_each(fault_memory_fn try, unsigned whose, bool for_ever, int64_t stride, const char *kind);

#endif
