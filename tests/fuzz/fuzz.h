// SPDX-License-Identifier: Apache-2.0
// What the fuzz targets share. A target is LLVMFuzzerTestOneInput: with clang's libFuzzer (QUERN_FUZZ) new inputs are
// searched for; in other builds replay.c runs the kept ones of tests/fuzz/corpus/<target>, and simple changes of them.
#ifndef TESTS_FUZZ_FUZZ_H
#define TESTS_FUZZ_FUZZ_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count);

// A promise that did not hold: the fuzzer keeps the input.
#define FUZZ_CHECK(claim)                                                                                              \
    do {                                                                                                               \
        if (claim) break;                                                                                              \
        fprintf(stderr, "%s:%d: not so: %s (%s)\n", __FILE__, __LINE__, #claim, quern_message());                      \
        abort();                                                                                                       \
    } while (0)

// The path of a file of this process, in memory where the system has such a place; removed at exit.
const char *fuzz_file(const char *suffix);
// The file with these bytes.
void fuzz_write(const char *file, const void *bytes, size_t count);

#endif
