// SPDX-License-Identifier: Apache-2.0
// A kernel that leaves its memory, overflows a lane's stack or loops without ever waiting: signals. The handler sends the
// lane to crash_entry() on a stack of its own, which reports the fault like any other. A signal in the model itself ends
// the process, which the host sees; so does a sanitizer's report, to which the lane's position is added here.
#include "machine.h"

#include <csignal>
#include <cstdio>
#include <dlfcn.h>
#include <sys/time.h>
#include <ucontext.h>
#include <unistd.h>

extern "C" __attribute__((weak)) int __asan_report_present();

namespace qm {

enum { ALTERNATE_BYTES = 64 << 10, CRASH_BYTES = 256 << 10, TICK_SECONDS = 2 };
static char alternate[ALTERNATE_BYTES], crash_stack[CRASH_BYTES];
static void *crash_pc, *crash_address;
static int crash_signal;
static u64 switches_at_tick;

static bool in_kernel(void *pc)
{
    Dl_info here, object;
    return launch.entry && dladdr(pc, &here) && dladdr(reinterpret_cast<void *>(launch.entry), &object) &&
           here.dli_fbase == object.dli_fbase;
}

static void crash_entry()
{
    if (crash_signal == SIGVTALRM)
        fail_pc(crash_pc, "a loop", "no lane has waited for %d seconds of processor time: a loop that never waits",
                (int)TICK_SECONDS);
    const Lane *a = current();
    const char *p = static_cast<const char *>(crash_address);
    if (p < a->fibre.stack && p >= a->fibre.stack - 4096)
        fail_pc(crash_pc, "a function", "the lane's stack of %zu bytes is full", a->fibre.bytes);
    std::string text;
    if (is_device(p) && device_check(p, 1, READ, text))
        fail_pc(crash_pc, "an access", "outside every buffer of device memory; %s", text.c_str());
    if (is_device(p)) fail_pc(crash_pc, "a store", "a store to an input");
    Dl_info where = {};
    dladdr(crash_pc, &where);
    fail_pc(crash_pc, "an access", "signal %d at address %p, which is no memory of the kernel (code in %s)",
            crash_signal, crash_address, where.dli_fname ? where.dli_fname : "no file");
}

#if defined(__x86_64__)
static void redirect(ucontext_t *context)
{
    uintptr_t top = (reinterpret_cast<uintptr_t>(crash_stack) + CRASH_BYTES) & ~uintptr_t(15);
    context->uc_mcontext.gregs[REG_RSP] = (greg_t)(top - 8);
    context->uc_mcontext.gregs[REG_RIP] = (greg_t) reinterpret_cast<uintptr_t>(crash_entry);
}
static void *pc_of(const ucontext_t *context)
{
    return reinterpret_cast<void *>(context->uc_mcontext.gregs[REG_RIP]);
}
static void **frame_of(const ucontext_t *context)
{
    return reinterpret_cast<void **>(context->uc_mcontext.gregs[REG_RBP]);
}
#else
static void redirect(ucontext_t *)
{
    _exit(5);
}
static void *pc_of(const ucontext_t *)
{
    return nullptr;
}
static void **frame_of(const ucontext_t *)
{
    return nullptr;
}
#endif

static void on_signal(int number, siginfo_t *info, void *context)
{
    ucontext_t *c = static_cast<ucontext_t *>(context);
    if (number == SIGVTALRM) {
        bool stuck = self && counts.switches == switches_at_tick;
        switches_at_tick = counts.switches;
        if (!stuck || !in_kernel(pc_of(c))) return;
    } else if (!self || (__asan_report_present && __asan_report_present())) {
        static const char text[] = "the model itself crashed, outside the kernel's lanes or in a sanitizer's report\n";
        if (write(2, text, sizeof text - 1) < 0) _exit(6);
        _exit(5);
    }
    crash_signal = number;
    crash_pc = static_cast<char *>(pc_of(c)) + 1; // as a return address
    crash_address = info->si_addr;
    crash_frame = frame_of(c);
    redirect(c);
}

void crash_begin()
{
    stack_t stack = {};
    stack.ss_sp = alternate;
    stack.ss_size = ALTERNATE_BYTES;
    sigaltstack(&stack, nullptr);
    struct sigaction action = {};
    action.sa_sigaction = on_signal;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART;
    for (int number : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGVTALRM}) sigaction(number, &action, nullptr);
    struct itimerval tick = {{TICK_SECONDS, 0}, {TICK_SECONDS, 0}};
    setitimer(ITIMER_VIRTUAL, &tick, nullptr);
}

} // namespace qm

// ---- what sanitizers ask for and call

static void print_position()
{
    std::string text = "  the lane: " + qm::position_of_lane() + "\n" + qm::positions();
    fflush(stderr);
    if (write(2, text.data(), text.size()) < 0) _exit(6);
}

extern "C" {
__attribute__((visibility("default"))) const char *__asan_default_options()
{
    return "exitcode=4:detect_leaks=0:handle_segv=0:handle_sigbus=0:handle_sigfpe=0:handle_sigill=0:"
           "detect_stack_use_after_return=0:allow_user_segv_handler=1:symbolize=1:print_legend=0:"
           "malloc_context_size=1"; // only the engine allocates
}
__attribute__((visibility("default"))) const char *__ubsan_default_options()
{
    return "exitcode=4:print_stacktrace=0";
}
__attribute__((visibility("default"))) const char *__msan_default_options()
{
    return "exit_code=4:handle_segv=0";
}
__attribute__((visibility("default"))) void __asan_on_error()
{
    print_position();
}
__attribute__((visibility("default"))) void __ubsan_on_report()
{
    print_position();
}
}
