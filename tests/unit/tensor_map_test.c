// SPDX-License-Identifier: Apache-2.0
// The model's tensor maps: the arguments that cuTensorMapEncodeTiled refuses are refused, with the argument named,
// and a refused map is untouched. (What a map does is tests/simt/instructions_test.c.)
#include <setjmp.h>
#include <stdalign.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "model/tensor_map.h"

typedef struct arguments {
    unsigned type;
    uint32_t rank;
    uintptr_t address;
    uint64_t dims[5], strides[5];
    uint32_t box[5], steps[5];
    unsigned interleave, swizzle, promotion, fill;
    size_t offset; // of the map from 64-byte alignment
} arguments;

static const arguments good = {.type = 9,
                               .rank = 3,
                               .address = 0x10000,
                               .dims = {128, 20, 4},
                               .strides = {256, 5120},
                               .box = {64, 8, 2},
                               .steps = {1, 1, 1},
                               .swizzle = 3};

static int encode(const arguments *a, qm_tensor_fault *fault)
{
    alignas(64) unsigned char room[256];
    memset(room, 0x5A, sizeof room);
    int result = qm_tensor_map_encode_tiled(room + a->offset, a->type, a->rank, (void *)a->address, a->dims, a->strides,
                                            a->box, a->steps, a->interleave, a->swizzle, a->promotion, a->fill, fault);
    for (size_t i = 0; result && i < sizeof room; i++) assert_int_equal(room[i], 0x5A);
    return result;
}

static void refused(arguments a, const char *argument)
{
    qm_tensor_fault fault = {""};
    assert_int_equal(encode(&a, &fault), 1);
    if (strncmp(fault.text, argument, strlen(argument)) != 0) fail_msg("'%s' does not name %s", fault.text, argument);
}

#define REFUSED(argument, ...)                                                                                         \
    do {                                                                                                               \
        arguments a = good;                                                                                            \
        __VA_ARGS__;                                                                                                   \
        refused(a, argument);                                                                                          \
    } while (0)
#define TAKEN(...)                                                                                                     \
    do {                                                                                                               \
        arguments a = good;                                                                                            \
        qm_tensor_fault fault = {""};                                                                                  \
        __VA_ARGS__;                                                                                                   \
        if (encode(&a, &fault) != 0) fail_msg("refused: %s", fault.text);                                              \
    } while (0)

static void good_arguments_are_taken(void **state)
{
    (void)state;
    TAKEN((void)0);
    TAKEN(a.rank = 1);
    TAKEN(a.dims[2] = 1ull << 32);
    TAKEN(a.box[1] = 256);
    TAKEN(a.steps[1] = 8);
    TAKEN(a.fill = 1);
    TAKEN(a.strides[1] = (1ull << 40) - 16);
    TAKEN(a.type = 13, a.box[0] = 32, a.swizzle = 0);
    TAKEN(a.type = 14, a.box[0] = 128, a.address = 0x20020, a.strides[0] = 96, a.swizzle = 3);
}

static void kinds_outside_their_ranges_are_refused(void **state)
{
    (void)state;
    REFUSED("tensorMap", a.offset = 32);
    REFUSED("tensorDataType", a.type = 16);
    REFUSED("tensorRank", a.rank = 0);
    REFUSED("tensorRank", a.rank = 6);
    REFUSED("interleave", a.interleave = 3);
    REFUSED("swizzle", a.swizzle = 7);
    REFUSED("l2Promotion", a.promotion = 4);
    REFUSED("oobFill", a.fill = 2);
    REFUSED("oobFill", a.fill = 1, a.type = 1);
    REFUSED("tensorRank", a.rank = 2, a.interleave = 1);
    REFUSED("swizzle", a.interleave = 2);
}

static void shapes_that_do_not_fit_are_refused(void **state)
{
    (void)state;
    REFUSED("globalAddress", a.address = 0x10008);
    REFUSED("globalDim[1]", a.dims[1] = 0);
    REFUSED("globalDim[0]", a.dims[0] = (1ull << 32) + 1);
    REFUSED("globalStrides[0]", a.strides[0] = 264);
    REFUSED("globalStrides[1]", a.strides[1] = 1ull << 40);
    REFUSED("globalDim[0]", a.type = 13, a.dims[0] = 127);
    REFUSED("globalAddress", a.type = 14, a.box[0] = 128, a.address = 0x10010);
    REFUSED("globalDim[0]", a.type = 14, a.box[0] = 128, a.dims[0] = 64);
}

static void boxes_that_do_not_fit_are_refused(void **state)
{
    (void)state;
    REFUSED("boxDim[1]", a.box[1] = 0);
    REFUSED("boxDim[2]", a.box[2] = 257);
    REFUSED("elementStrides[0]", a.steps[0] = 0);
    REFUSED("elementStrides[2]", a.steps[2] = 9);
    REFUSED("boxDim[0]", a.box[0] = 60);
    REFUSED("boxDim[0]", a.box[0] = 128);
    REFUSED("boxDim[0]", a.swizzle = 1, a.box[0] = 32);
    REFUSED("boxDim[0]", a.type = 15, a.box[0] = 64, a.address = 0x20000, a.strides[0] = 96);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(good_arguments_are_taken),
        cmocka_unit_test(kinds_outside_their_ranges_are_refused),
        cmocka_unit_test(shapes_that_do_not_fit_are_refused),
        cmocka_unit_test(boxes_that_do_not_fit_are_refused),
    };
    return cmocka_run_group_tests_name("tensor maps of the model", tests, NULL, NULL);
}
