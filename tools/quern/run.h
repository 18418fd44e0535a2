// SPDX-License-Identifier: Apache-2.0
// The parts of `quern run` (run.c): where it computes, and what it says of the results.
#ifndef QUERN_TOOLS_RUN_H
#define QUERN_TOOLS_RUN_H

#include "arrays.h"
#include "command.h"
#include "device.h"
#include "table.h"

// Computes on a device whose context is current: copies inputs up, launches, waits, copies outputs down. *op is the
// caller's, also for what it says of its kernels.
quern_status run_on_gpu(quern *q, const device *d, arrays *a, quern_op **op);

// How far real numbers may be from expected ones: absolute + relative · |expected|. Not given: what the family promises of
// each output (qn_family.tolerance). Integers must be equal; NaN stands for NaN.
typedef struct expect_tolerance {
    bool is_given;
    double relative, absolute;
} expect_tolerance;
bool expect_tolerance_parse(const char *word, expect_tolerance *tolerance); // "1e-3" or "1e-3,1e-6": relative, absolute

// Compares outputs with expected files ("indices=FILE.npy"), whose last axis may be longer. Adds a row for each file to
// the table; *beyond: how many files have a number that is farther off than is allowed.
table *expect_table(void);
quern_status expect_compare(const arrays *a, const command_strings *expected, const expect_tolerance *tolerance,
                            table *t, int *beyond);

// The first winners of the first rows; tokens (may be NULL) is a file of "id<TAB>JSON string" lines.
typedef struct winners_request {
    int64_t rows, top;
    const char *tokens;
} winners_request;
quern_status winners_list(const arrays *a, const winners_request *request, table **out);

#endif
