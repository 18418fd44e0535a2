// SPDX-License-Identifier: Apache-2.0
// Images of kernels, which come out of databases: any bytes are looked at without reading past them.
#include "cuda/nvrtc.h"
#include "fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count)
{
    int registers = -2, shared = -2, local = -2;

    FUZZ_CHECK(!qn_cubin_is_plausible(bytes, count < 64 ? count : 63)); // shorter than an ELF head
    qn_cubin_is_plausible(bytes, count);
    qn_cubin_resources(bytes, count, NULL, &registers, &shared, &local);
    FUZZ_CHECK(registers >= -1 && shared >= -1 && local >= -1);
    qn_cubin_resources(bytes, count, "kernel", &registers, &shared, &local);
    FUZZ_CHECK(registers >= -1 && shared >= -1 && local >= -1);
    qn_cubin_has_entry(bytes, count, "kernel");
    FUZZ_CHECK(qn_cubin_parameter_bytes(bytes, count, "kernel") >= -1);
    return 0;
}
