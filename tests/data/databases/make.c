// SPDX-License-Identifier: Apache-2.0
// Writes the golden database: make FILE. Built and run by make.sh. Its three records are those of
// tests/support/cache_fixture.c, numbers 1 to 3, with a fixed time, so that the file's rows are the same every time.
#include <stdio.h>

#include "support/cache_fixture.h"

int main(int argc, char **argv)
{
    qn_sqlite_options options = {.file = argc > 1 ? argv[1] : "", .busy_timeout_ms = 1000, .cap_bytes = -1};
    quern_status status;
    quern_store store;

    status = qn_sqlite_open(&options, &store);
    for (int number = 1; number <= 3 && !status; number++) {
        cache_sample sample;
        cache_sample_make(&sample, number, 5000);
        sample.record.created = sample.record.used = 1700000000 + number;
        status = store.put(store.self, &sample.record);
        cache_sample_free(&sample);
    }
    if (status)
        fprintf(stderr, "%s: %s\n", quern_status_name(status), quern_message());
    else
        qn_sqlite_close(&store);
    return status != QUERN_OK;
}
