// SPDX-License-Identifier: Apache-2.0
// What the tests of the runtime share: a quern on a database of its own, its log lines, a machine of fake devices, kernels
// made from a number, and a store made of a few rows in memory that can be told to fail. The same number makes the same
// kernel everywhere.
#ifndef TESTS_SUPPORT_RUNTIME_FIXTURE_H
#define TESTS_SUPPORT_RUNTIME_FIXTURE_H

#include <pthread.h>
#include <stdatomic.h>

#include "cache/store.h"
#include "runtime/runtime.h"

// ---- log lines

typedef struct runtime_log {
    pthread_mutex_t lock;
    int count[4]; // by level
    qn_text lines;
} runtime_log;
#define RUNTIME_LOG_INIT                                                                                               \
    {                                                                                                                  \
        PTHREAD_MUTEX_INITIALIZER, {0}, QN_TEXT_INIT                                                                   \
    }
void runtime_log_write(void *user, quern_log_level level, const char *line);
bool runtime_log_has(runtime_log *log, const char *part); // some line has it
void runtime_log_fini(runtime_log *log);

// ---- a quern

// No environment, this database ("": none), this log (may be NULL), short time limits.
quern_options runtime_options(const char *cache_file, runtime_log *log);
quern *runtime_open(const quern_options *options); // asserts success
quern_counters runtime_counters(const quern *q);
quern_softmax_topk_spec runtime_spec(int64_t V, int64_t K);
quern_op *runtime_prepare(quern *q, int64_t V, int device); // of runtime_spec(V, 8); asserts success

// ---- a machine

// The fake NVRTC and fake devices of these compute capabilities; the context of the first is current on this thread.
void runtime_devices_make(const int *cc, int count);
void runtime_devices_remove(void);
// The same with a new folder and the name of a database in it.
void runtime_machine_make(char folder[64], char database[128], const int *cc, int count);
void runtime_machine_remove(const char *folder);

// ---- kernels by number

void runtime_plan(qn_kernel_plan *plan, int number);
quern_status runtime_obtain(quern *q, int number, const char *arch, const qn_image **image);

// ---- a store in memory

enum { RUNTIME_STORE_ROWS = 64 };
typedef struct runtime_store {
    pthread_mutex_t lock;
    quern_record row[RUNTIME_STORE_ROWS]; // pointers are the store's own copies
    size_t rows;
    _Atomic int gets, puts, removes;
    _Atomic int get_status, put_status, remove_status; // not 0: what the callback answers, and does nothing
    bool ignores_keys;                                 // any row answers any get
    bool lies_on_remove;                               // says it removed and did not
} runtime_store;
#define RUNTIME_STORE_INIT                                                                                             \
    {                                                                                                                  \
        PTHREAD_MUTEX_INITIALIZER, {{0}}, 0, 0, 0, 0, 0, 0, 0, false, false                                            \
    }
quern_store runtime_store_callbacks(runtime_store *store);
void runtime_store_fini(runtime_store *store);
// Puts another image in the place of a row's, with its size and sum made right; NULL: flips a byte and leaves the sum.
void runtime_store_spoil(runtime_store *store, size_t row, const qn_text *image);

#endif
