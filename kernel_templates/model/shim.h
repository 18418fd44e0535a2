// SPDX-License-Identifier: Apache-2.0
// Force-included before a kernel's text: makes the same bytes that NVRTC gets a C++17 program for the model. The few
// standard headers come first (engine.h), since some of CUDA's words are theirs too; then CUDA's words; then the second
// bodies of everything in common/ that holds an instruction. QN_MODEL_EXPORT is the last line of the compiled unit.
#ifndef QN_MODEL_SHIM_H
#define QN_MODEL_SHIM_H

#define QN_MODEL 1

#include "words.h"

#include "bodies.h"
#include "device.h"

// The entry by its one parameter, a structure by value: how the runner calls it, and how many bytes the host must pack.
namespace qm {
template <class P> struct EntryOf {
    static void run(void (*kernel)(P), const void *parameters) { kernel(*static_cast<const P *>(parameters)); }
    static constexpr size_t bytes = sizeof(P);
};
template <class P> EntryOf<P> entry_of(void (*)(P));
} // namespace qm

#define QN_MODEL_EXPORT(kernel)                                                                                        \
    extern "C" __attribute__((visibility("default"))) void qn_model_run(const void *parameters)                        \
    {                                                                                                                  \
        decltype(qm::entry_of(kernel))::run(kernel, parameters);                                                       \
    }                                                                                                                  \
    extern "C" __attribute__((visibility("default"))) const size_t qn_model_params_bytes =                             \
        decltype(qm::entry_of(kernel))::bytes;

#endif
