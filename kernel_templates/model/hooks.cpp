// SPDX-License-Identifier: Apache-2.0
// The functions that -fsanitize=thread has the compiler call before each load and store of the kernel's text: this file
// stands in for that library. Only kernels of the access build call it. Shared memory goes to access.cpp, device memory to
// device.cpp and global.cpp; of the rest (stacks, constants) only hidden bytes matter.
//   (1) clang's older versions copy structures by plain memcpy: kernels are linked with --wrap for these names.
#include "machine.h"

namespace qm {

static inline void hook(const void *p, size_t bytes, Access access, void *pc)
{
    counts.accesses++;
    if (!self || !bytes) return;
    if (in_shared(p)) {
        access_checked(p, bytes, access, {nullptr, 0, nullptr}, pc);
        return;
    }
    const char *kind = access == READ ? "load" : "store";
    if (is_device(p)) {
        std::string text;
        const char *wrong = device_check(p, bytes, access, text);
        if (wrong) fail_pc(pc, kind, "%s: %s of %zu bytes; %s", wrong, kind, bytes, text.c_str());
        const Buffer &b = device_buffer();
        if (b.marks) global_checked(b, p, bytes, access, {nullptr, 0, nullptr}, pc);
        return;
    }
    Place by;
    if (!hidden_check(p, bytes, &by))
        fail_pc(pc, kind, "%s of registers that %s, issued at %s:%d, still uses", kind, by.what, by.file, by.line);
}

} // namespace qm

#define HOOK extern "C" __attribute__((visibility("default")))
#define PC   __builtin_return_address(0)

#define SIZED(n)                                                                                                       \
    HOOK void __tsan_read##n(void *p)                                                                                  \
    {                                                                                                                  \
        qm::hook(p, n, qm::READ, PC);                                                                                  \
    }                                                                                                                  \
    HOOK void __tsan_write##n(void *p)                                                                                 \
    {                                                                                                                  \
        qm::hook(p, n, qm::WRITE, PC);                                                                                 \
    }                                                                                                                  \
    HOOK void __tsan_unaligned_read##n(void *p)                                                                        \
    {                                                                                                                  \
        qm::hook(p, n, qm::READ, PC);                                                                                  \
    }                                                                                                                  \
    HOOK void __tsan_unaligned_write##n(void *p)                                                                       \
    {                                                                                                                  \
        qm::hook(p, n, qm::WRITE, PC);                                                                                 \
    }
SIZED(1)
SIZED(2)
SIZED(4)
SIZED(8)
SIZED(16)

HOOK void __tsan_read_range(void *p, size_t n)
{
    qm::hook(p, n, qm::READ, PC);
}
HOOK void __tsan_write_range(void *p, size_t n)
{
    qm::hook(p, n, qm::WRITE, PC);
}
HOOK void __tsan_init() {}
HOOK void __tsan_func_entry(void *) {}
HOOK void __tsan_func_exit() {}

#define COPY(name, function)                                                                                           \
    HOOK void *name(void *to, const void *from, size_t n)                                                              \
    {                                                                                                                  \
        qm::hook(from, n, qm::READ, PC);                                                                               \
        qm::hook(to, n, qm::WRITE, PC);                                                                                \
        return function(to, from, n);                                                                                  \
    }
#define FILL(name)                                                                                                     \
    HOOK void *name(void *p, int byte, size_t n)                                                                       \
    {                                                                                                                  \
        qm::hook(p, n, qm::WRITE, PC);                                                                                 \
        return memset(p, byte, n);                                                                                     \
    }
COPY(__tsan_memcpy, memcpy)
COPY(__wrap_memcpy, memcpy)
COPY(__tsan_memmove, memmove)
COPY(__wrap_memmove, memmove)
FILL(__tsan_memset)
FILL(__wrap_memset)
