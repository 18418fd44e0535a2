// SPDX-License-Identifier: Apache-2.0
// Counts what the fault tests do: how often each kind of fault was made to happen, and how often everything that the test
// claims afterwards held. Printed when the program ends; tests/fault/count.sh adds the lines up.
#ifndef TESTS_SUPPORT_FAULT_COUNT_H
#define TESTS_SUPPORT_FAULT_COUNT_H

#include <stddef.h>

// kind: a string that lives as long as the program. One fault at a time: a test that fails in between leaves tried ahead
// of survived.
void fault_tried(const char *kind);
void fault_survived(const char *kind);

// For programs whose every test is one fault of its own: counts them, and gives the number of failed ones back.
int fault_tests(const char *kind, size_t tests, int failed);

#endif
