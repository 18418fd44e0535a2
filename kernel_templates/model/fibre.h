// SPDX-License-Identifier: Apache-2.0
// A stack and the switch to it: what a lane of the model runs on. Used by scheduler.cpp and report.cpp alone.
// System V x86-64: six callee-saved registers and the stack pointer (the control words are nobody's to change here).
// Elsewhere: ucontext, whose system call a switch makes a run five times slower. Tells AddressSanitizer of each switch, where
// it is linked in.
#ifndef QN_MODEL_FIBRE_H
#define QN_MODEL_FIBRE_H

#include <cstddef>
#include <cstdint>
#include <cstring>

#if !defined(__x86_64__)
#include <ucontext.h>
#endif

namespace qm {

struct Fibre {
    char *stack = nullptr; // null: the thread's own stack, whose bounds are learnt when it is first left
    size_t bytes = 0;
    void (*body)() = nullptr;
    void *fake = nullptr; // AddressSanitizer's
#if defined(__x86_64__)
    void *sp = nullptr;
#else
    ucontext_t context;
#endif
};

// Makes the fibre ready to run body, which must not return.
void fibre_make(Fibre *fibre, void (*body)());

// Leaves `from` for `to`; last: `from` is never come back to.
void fibre_switch(Fibre *from, Fibre *to, bool last);

} // namespace qm
#endif
