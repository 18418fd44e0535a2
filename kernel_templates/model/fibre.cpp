// SPDX-License-Identifier: Apache-2.0
// The switch between stacks (fibre.h).
#include "fibre.h"

extern "C" {
__attribute__((weak)) void __sanitizer_start_switch_fiber(void **fake, const void *bottom, size_t bytes);
__attribute__((weak)) void __sanitizer_finish_switch_fiber(void *fake, const void **bottom_before,
                                                           size_t *bytes_before);
}

namespace qm {

static Fibre *left;    // who switched last
static Fibre *entered; // to whom

static void arrive(void *fake)
{
    if (!__sanitizer_finish_switch_fiber) return;
    const void *bottom = nullptr;
    size_t bytes = 0;
    __sanitizer_finish_switch_fiber(fake, &bottom, &bytes);
    if (left && !left->stack) {
        left->stack = static_cast<char *>(const_cast<void *>(bottom));
        left->bytes = bytes;
    }
}

static void enter()
{
    arrive(nullptr);
    entered->body();
    __builtin_trap();
}

#if defined(__x86_64__)
extern "C" void qm_fibre_swap(void **save, void *load);
asm(R"(
.text
.globl qm_fibre_swap
.hidden qm_fibre_swap
.type qm_fibre_swap,@function
qm_fibre_swap:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size qm_fibre_swap,.-qm_fibre_swap
)");

void fibre_make(Fibre *fibre, void (*body)())
{
    fibre->body = body;
    fibre->fake = nullptr;
    // The top: 16-byte aligned, a null return address that ends backtraces, enter() to return to, six registers.
    void **sp = reinterpret_cast<void **>(reinterpret_cast<uintptr_t>(fibre->stack + fibre->bytes) & ~uintptr_t(15));
    *--sp = nullptr;
    *--sp = reinterpret_cast<void *>(enter);
    sp -= 6;
    memset(sp, 0, 6 * sizeof *sp);
    fibre->sp = sp;
}
#else
void fibre_make(Fibre *fibre, void (*body)())
{
    fibre->body = body;
    fibre->fake = nullptr;
    getcontext(&fibre->context);
    fibre->context.uc_stack.ss_sp = fibre->stack;
    fibre->context.uc_stack.ss_size = fibre->bytes;
    fibre->context.uc_link = nullptr;
    makecontext(&fibre->context, enter, 0);
}
#endif

void fibre_switch(Fibre *from, Fibre *to, bool last)
{
    left = from;
    entered = to;
    if (__sanitizer_start_switch_fiber)
        __sanitizer_start_switch_fiber(last ? nullptr : &from->fake, to->stack, to->bytes);
#if defined(__x86_64__)
    qm_fibre_swap(&from->sp, to->sp);
#else
    swapcontext(&from->context, &to->context);
#endif
    arrive(from->fake);
}

} // namespace qm
