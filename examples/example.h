/* SPDX-License-Identifier: Apache-2.0
 * What the examples share: a failed call ends the program with what it said. Exit status: 0 right, 1 a call failed, 2 the
 * results are not those of the reference. */
#ifndef EXAMPLE_H
#define EXAMPLE_H

#include <cuda.h>
#include <quern/quern.h>
#include <stdio.h>
#include <stdlib.h>

static void example_quern(quern_status status, const char *call)
{
    if (status == QUERN_OK) return;
    fprintf(stderr, "%s: %s: %s\n", call, quern_status_name(status), quern_message());
    exit(1);
}

static void example_cuda(CUresult result, const char *call)
{
    const char *text = NULL;
    if (result == CUDA_SUCCESS) return;
    cuGetErrorString(result, &text);
    fprintf(stderr, "%s: %s\n", call, text ? text : "unknown error");
    exit(1);
}

#define QUERN(call) example_quern((call), #call)
#define CUDA(call)  example_cuda((call), #call)

#endif
