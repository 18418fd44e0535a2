// SPDX-License-Identifier: Apache-2.0
// Where a test finds the tree's files, and the command that repeats a failed case as it stands.
#ifndef TESTS_SUPPORT_AGAIN_H
#define TESTS_SUPPORT_AGAIN_H

#include "base/text.h"

// $QUERN_TEST_SOURCE, else the tree that the program was built from, else the working folder.
const char *test_source(void);

// "    again: VARIABLES QUERN_TEST_CASE=name PROGRAM ARGUMENTS\n", with the variables that this run was given.
void test_again(const char *name, qn_text *report);

#endif
