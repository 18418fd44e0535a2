// SPDX-License-Identifier: Apache-2.0
// .npy files: any bytes are an array or refused; an array's parts agree, and it is written and read back the same.
#include <string.h>
#include <unistd.h>

#include "fuzz/fuzz.h"
#include "quern/npy.h"

static void write_again(const npy_array *array, const char *file)
{
    output_file out;
    npy_array again;

    FUZZ_CHECK(output_open(file, OUTPUT_FILE, &out) == QUERN_OK);
    FUZZ_CHECK(npy_write(&out, array->dtype, &array->shape, array->data) == QUERN_OK);
    FUZZ_CHECK(output_close(&out) == QUERN_OK);
    FUZZ_CHECK(output_commit(&out) == QUERN_OK);
    FUZZ_CHECK(npy_read(file, &again) == QUERN_OK);
    FUZZ_CHECK(again.dtype == array->dtype && again.count == array->count && again.bytes == array->bytes);
    FUZZ_CHECK(again.shape.rank == array->shape.rank && !memcmp(again.data, array->data, array->bytes));
    npy_fini(&again);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count)
{
    static const char *file, *copy;
    npy_array array = {0};

    if (!file) file = fuzz_file(".npy"), copy = fuzz_file(".copy.npy");
    fuzz_write(file, bytes, count);
    if (npy_read(file, &array) != QUERN_OK) {
        FUZZ_CHECK(!strncmp(quern_message(), file, strlen(file)));
        FUZZ_CHECK(!array.data);
        return 0;
    }
    FUZZ_CHECK(array.bytes <= count && array.shape.rank <= NPY_MAX_RANK);
    FUZZ_CHECK(npy_shape_count(&array.shape) == array.count);
    for (size_t i = 0; i < array.shape.rank; i++) FUZZ_CHECK(array.shape.extent[i] >= 0);
    write_again(&array, copy);
    npy_fini(&array);
    return 0;
}
