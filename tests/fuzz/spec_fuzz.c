// SPDX-License-Identifier: Apache-2.0
// Spec text: any text is parsed or refused with a message; what is accepted reads back from its own text as the same spec.
#include <string.h>

#include "fuzz/fuzz.h"
#include "quern/quern.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count)
{
    char text[2048], first[512], second[512], small[8];
    quern_any_spec spec, again;

    if (count >= sizeof text) return 0;
    memcpy(text, bytes, count);
    text[count] = 0;
    if (quern_spec_parse(text, &spec) != QUERN_OK) {
        FUZZ_CHECK(*quern_message());
        return 0;
    }
    FUZZ_CHECK(quern_spec_check(&spec.base) == QUERN_OK);
    FUZZ_CHECK(quern_spec_format(&spec.base, first, sizeof first) == QUERN_OK);
    FUZZ_CHECK(quern_spec_format(&spec.base, small, sizeof small) != QUERN_OK);
    FUZZ_CHECK(quern_spec_parse(first, &again) == QUERN_OK);
    FUZZ_CHECK(quern_spec_format(&again.base, second, sizeof second) == QUERN_OK);
    FUZZ_CHECK(!strcmp(first, second));
    return 0;
}
