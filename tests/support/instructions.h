// SPDX-License-Identifier: Apache-2.0
// Micro-tests of single instructions: the .vec files of tests/simt/instructions (their format is in generate.py there),
// read for the model (tests/simt) and for the device (tests/gpu) alike. A malformed file fails the test.
#ifndef TESTS_SUPPORT_INSTRUCTIONS_H
#define TESTS_SUPPORT_INSTRUCTIONS_H

#include <stdalign.h>

#include "base/text.h"
#include "cuda/arch.h"

// Words that are compared; `any` marks those that may be anything.
typedef struct instruction_words {
    size_t count;
    uint32_t *word;
    bool *any;
} instruction_words;

typedef struct instruction_map { // the arguments of cuTensorMapEncodeTiled
    bool present, of_output;     // address: out + offset, or in + offset
    unsigned type, rank, swizzle, fill;
    size_t offset; // words
    uint64_t dims[5], strides[5];
    uint32_t box[5], steps[5];
} instruction_map;

typedef struct instruction_case {
    char name[96];
    uint32_t which, ctas; // ctas: one cluster of so many
    instruction_map map;
    instruction_words in;
    struct {
        int from, until; // cc
        instruction_words words;
    } out[4];
    size_t out_count;
} instruction_case;

typedef struct instruction_file {
    char name[32];   // "mma"
    char kernel[32]; // "mma.cu"
    int threads, shared;
    instruction_case *cases;
    size_t count;
} instruction_file;

extern const char *const instruction_files[]; // their names; ends with NULL

void instruction_file_read(const char *name, instruction_file *file);
void instruction_file_fini(instruction_file *file);

// What a case must give on an architecture; NULL when it isn't for it.
const instruction_words *instruction_expected(const instruction_case *c, int cc);

// Has the kernel a meaning there? (tiles need sm_90, wgmma sm_90a)
bool instruction_file_fits(const instruction_file *file, const qn_arch *arch);

// Is the case asked for? $QUERN_TEST_CASE: a part of "file/case".
bool instruction_wanted(const instruction_file *file, const instruction_case *c);
// Says what is wrong with a case, and the command that repeats it.
void instruction_complain(const instruction_file *file, const instruction_case *c, const char *arch, const char *text);

// The kernel's complete text, as NVRTC and the model get it. Entry: "instruction_test".
quern_status instruction_source(const instruction_file *file, const qn_arch *arch, qn_text *source);

// The kernel's parameter (struct Case of case.cuh).
typedef struct instruction_params {
    alignas(64) unsigned char map[128];
    uint64_t in, out; // device addresses
    uint32_t which;
} instruction_params;

enum { INSTRUCTION_POISON = 0xEEEEEEEEu };

// "" when all is as expected, else what differs, for the failing test's message.
const char *instruction_difference(const instruction_words *expected, const uint32_t *got, char text[200]);

#endif
