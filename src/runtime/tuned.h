// SPDX-License-Identifier: Apache-2.0
// Tuning results as prepare and warm use them: reading the tables once a spec, and which result serves a bucket of sizes
// on a device. Used by plan.c, prepare.c, warm.c, and by the tuner and the command to say what is used and what is not.
//
//   (1) Reading never fails: a table that cannot be read has no results.
//   (2) What was read is a snapshot: all plans of one prepare are made from it.
//   (3) A batch-invariant spec has one configuration for all sizes: results, which are by ranges of sizes, do not count.
//   (4) A result that this library does not understand, or whose plan is refused, is passed over for the next one; so is one of
//       a device with more SMs, where its launches here would not go by it (family->fit).
#ifndef QN_RUNTIME_TUNED_H
#define QN_RUNTIME_TUNED_H

#include "cache/tune.h"
#include "cuda/driver.h"
#include "ops/family.h"

// Where a configuration came from, best first.
typedef enum qn_tuned_level {
    QN_TUNED_DEVICE,
    QN_TUNED_SM_COUNT,
    QN_TUNED_ARCH,
    QN_TUNED_BUILT_IN, // and in it this device, the same SM count, the architecture
    QN_TUNED_HEURISTIC = QN_TUNED_BUILT_IN + 3
} qn_tuned_level;
const char *qn_tuned_library(void);              // "0.1.0-1": version and generator, as results name them
const char *qn_tuned_word(qn_tuned_level level); // "tuned (this device)", …

// What a result is bound to, read from a device.
typedef struct qn_fingerprint {
    char name[128];
    qn_tune_device numbers; // without the name
} qn_fingerprint;
quern_status qn_fingerprint_read(const qn_driver *driver, CUdevice device, qn_fingerprint *fingerprint);
qn_tune_device qn_fingerprint_device(const qn_fingerprint *fingerprint); // its name lives as long as the fingerprint

// The winners of one spec in every table in use.
typedef struct qn_tuned {
    qn_tune_list list;           // from databases
    const qn_tune_row *built_in; // of any spec
    size_t built_in_count;       //
    const char *spec, *library;  // library: qn_tuned_library()
} qn_tuned;
extern const qn_tune_row qn_tuned_built_in[]; // tuned_built_in.c, made by tools/built_in.sh
extern const size_t qn_tuned_built_in_count;

// For whom a choice is made. Without a device: for the architecture's usual part, under any driver.
typedef struct qn_tuned_view {
    const qn_tuned *tuned;        // NULL: heuristics only
    const qn_tune_device *device; // NULL: none
    bool own;                     // the library's own choice: built-in table, heuristic
    uint32_t buckets;             // of which plans are made, 1 << bucket; 0: of all
} qn_tuned_view;

// spec_text must outlive the result.
void qn_tuned_read(quern *q, const char *spec_text, qn_tuned *tuned);
void qn_tuned_fini(qn_tuned *tuned);

// Whether a database's result counts for a device (NULL: none) with this library; else why not, in words.
bool qn_tuned_is_current(const qn_tune_row *row, const char *library, const qn_tune_device *device, const char **why);

// The configuration of a bucket and where it is from. Never fails: the heuristic is the last.
qn_tuned_level qn_tuned_choose(const qn_tuned_view *view, const qn_family *family, const quern_spec *spec,
                               const qn_arch *arch, size_t bucket, qn_config *config);

// Every configuration that some device of the architecture may be given for some bucket of the view (its tables and
// buckets count), each once, but those of `known`. *configs is to be freed.
quern_status qn_tuned_others(const qn_tuned_view *view, const qn_family *family, const quern_spec *spec,
                             const qn_arch *arch, const qn_config *known, size_t known_count, qn_config **configs,
                             size_t *count);

#endif
