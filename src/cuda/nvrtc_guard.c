// SPDX-License-Identifier: Apache-2.0
// NVRTC has locks of its own, and none of them is set free by a fork: a child that is born while another thread is inside
// NVRTC would wait for ever for a thread that it does not have, where no time limit reaches it. So the stays are counted,
// and such a child is told so.
//   (1) One word holds the process and its count: a child finds its parent's, as of the fork. A count of 0: the locks are
//       free, and the word becomes the child's own. Else it stays, for the child's children too.
//   (2) The count goes up before NVRTC is called and down after it has come back. A child that sees a lock of NVRTC taken
//       sees the count as well.
//   (3) What other users of NVRTC in the process do cannot be known.
#include "cuda/nvrtc_guard.h"

#include <stdatomic.h>
#include <unistd.h>

static _Atomic uint64_t stays; // process << 32 | threads inside

static uint64_t of_this_process(void)
{
    return (uint64_t)(uint32_t)getpid() << 32;
}

static bool is_torn(uint64_t word)
{
    return (uint32_t)word != 0 && (word >> 32) << 32 != of_this_process();
}

bool qn_nvrtc_is_torn(void)
{
    return is_torn(atomic_load(&stays));
}

quern_status qn_nvrtc_usable(void)
{
    if (!qn_nvrtc_is_torn()) return QUERN_OK;
    return qn_fail(
        QUERN_WOULD_COMPILE,
        "a miss that this process cannot compile: it was forked while a thread of its parent was compiling, "
        "and the compiler's locks stay taken in it; compile in the parent or in a new process (fork and exec, "
        "'quern warm'), or fork while nothing is compiled");
}

bool qn_nvrtc_enter(void)
{
    uint64_t word = atomic_load(&stays), next;
    do {
        if (is_torn(word)) return false;
        next = (of_this_process() | (uint32_t)word) + 1;
    } while (!atomic_compare_exchange_weak(&stays, &word, next));
    return true;
}

// A thread that forked inside NVRTC (in the caller's cancel) leaves in the child as well, where the word is not its own.
void qn_nvrtc_leave(void)
{
    uint64_t word = atomic_load(&stays);
    while (!is_torn(word) && (uint32_t)word && !atomic_compare_exchange_weak(&stays, &word, word - 1)) continue;
}
