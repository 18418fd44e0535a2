// SPDX-License-Identifier: Apache-2.0
// The one path from spec to launch, as its parts see each other.
//
//   open.c       quern_open, quern_close, options, counters
//   prepare.c    spec → op: memory table, else plan every bucket, obtain each kernel, load, publish
//   plan.c       spec and architecture → configurations and kernels, without a device; tuned.c which tuning result counts
//   key.c        kernel plan → text, options, key
//   batch.c      all kernels of a plan side by side; which target architecture serves
//   obtain.c     one kernel: memory (memory.c), sealed and user's store (stores.c), compile, put
//   flight.c     one compile a key: in the process by condition variable, between processes by an OFD byte lock
//   state.c      what belongs to one process: locks, open stores; made anew after a fork
//   table.c      descriptor → op: no lock on a hit
//   load.c       image → CUkernel on a device
//   launch.c     arguments → driver call; typed.c the same by family, workspace.c its device memory
//   describe.c   looking inside an op; warm.c without a device; host.c the reference
//   custom.c     a caller's kernel; custom_check.c what is refused
//   dump.c       source and cubin as files
//
// private.h is what they share.
#ifndef QN_RUNTIME_H
#define QN_RUNTIME_H

#include "base/log.h"
#include "cuda/nvrtc.h"
#include "ops/family.h"
#include "runtime/tuned.h"

#define QN_GENERATOR_VERSION 1 // raise when the same plan means another kernel; it is in the key
enum { QN_KEY_VERSION = 1 };   // of the key's own layout

// The items of a key (base/key.h), in this order; one OPTION for each option, HEADER and HEADER_TEXT for each header.
enum {
    QN_KEY_TAG_VERSION = 'V',   // int
    QN_KEY_TAG_GENERATOR = 'G', // int
    QN_KEY_TAG_ARCH = 'A',      // "sm_90a"
    QN_KEY_TAG_KIND = 'K',      // int, 1 = cubin
    QN_KEY_TAG_ENTRY = 'E',     // the symbol
    QN_KEY_TAG_OPTION = 'O',
    QN_KEY_TAG_HEADER = 'H',      // of a caller's source: each name,
    QN_KEY_TAG_HEADER_TEXT = 'T', // then its text
    QN_KEY_TAG_DIGEST = 'D',      // the caller's
    QN_KEY_TAG_SOURCE = 'S'       // the final text
};

// An image and where it came from. Counted by the quern that holds it: lives until quern_close and the last release.
typedef struct qn_image {
    qn_text bytes;
    char entry[QN_MAX_ENTRY];
    char arch[16];
    int registers, shared_bytes, local_bytes;
    int64_t compile_us;
    quern_origin origin;
} qn_image;

// Plans without a device, for warm, show, tune and the model: what prepare would run on this architecture's usual part.
typedef struct qn_variant {
    size_t first_bucket, last_bucket; // consecutive buckets with the same configuration
    qn_config config;
    char chosen[48]; // qn_tuned_word, or "given"
    qn_plan plan;
} qn_variant;
typedef struct qn_variants {
    qn_variant item[QN_MAX_VARIANTS];
    size_t count;
    unsigned char of_bucket[QN_MAX_BUCKETS]; // QN_NO_VARIANT: the bucket is not planned
} qn_variants;
enum { QN_NO_VARIANT = 255 };
// spec must be complete (qn_spec_complete). A bucket whose configuration is refused fails the whole: NO_PLAN.
quern_status qn_variants_plan(quern *q, const qn_family *family, const quern_spec *spec, const qn_arch *arch,
                              qn_variants *variants);
// The same on a device of this kind (NULL: none); and from results that were read before.
quern_status qn_variants_plan_for(quern *q, const qn_family *family, const quern_spec *spec, const qn_arch *arch,
                                  const qn_tune_device *device, qn_variants *variants);
quern_status qn_variants_plan_view(const qn_tuned_view *view, const qn_family *family, const quern_spec *spec,
                                   const qn_arch *arch, qn_variants *variants);

// The text and the key of a kernel, and the kernel itself.
quern_status qn_kernel_source(quern *q, const qn_kernel_plan *plan, const qn_arch *arch, qn_text *source);
quern_status qn_kernel_key(quern *q, const char *source, const char *entry, const qn_arch *arch, qn_text *key);
quern_status qn_kernel_obtain(quern *q, const qn_kernel_plan *plan, const qn_arch *arch, const char *spec_text,
                              const qn_image **image);

// An op of one given configuration in place of the chosen ones, for tuner, bench and tests.
quern_status qn_prepare_config(quern *q, const quern_spec *spec, int device, const qn_config *config, quern_op **op);

// What quern_open would say of the word in $QUERN_MODE, $QUERN_TUNE, $QUERN_LOG or $QUERN_LINE_INFO; of any other: QUERN_OK.
quern_status qn_check_variable(const char *name);

#endif
