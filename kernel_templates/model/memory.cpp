// SPDX-License-Identifier: Apache-2.0
// What instructions' bodies do with memory: the checks of a plain access, copies with and without them, hidden bytes.
// Checks of bounds hold in every build; what needs a mark for every byte is access.cpp's, in the access build.
#include "machine.h"

// The sanitizers' own marks, where one is linked in.
extern "C" {
__attribute__((weak)) void __asan_poison_memory_region(void const volatile *p, size_t bytes);
__attribute__((weak)) void __asan_unpoison_memory_region(void const volatile *p, size_t bytes);
__attribute__((weak)) void __msan_poison(void const volatile *p, size_t bytes);
}

namespace qm {

// ---- hidden bytes. AddressSanitizer and MemorySanitizer have marks of their own; the access build asks this list for
// accesses to stacks (shared memory has flags).
struct Hidden {
    const char *begin, *end;
    Place at;
};
static std::vector<std::vector<Hidden>> hidden; // by the stack that the bytes are on; 0: on none

static std::vector<Hidden> &hidden_near(const void *p)
{
    size_t stack = stack_of(p);
    if (stack >= hidden.size()) hidden.resize(stack + 1);
    return hidden[stack];
}

void hide(void *p, size_t bytes, Place at)
{
    if (__asan_poison_memory_region) __asan_poison_memory_region(p, bytes);
    if (__msan_poison) __msan_poison(p, bytes);
    if (checking && !is_shared(p))
        hidden_near(p).push_back({static_cast<char *>(p), static_cast<char *>(p) + bytes, at});
}

// Of what is hidden in the access build: bytes of one stack, or of none.
void show(void *p, size_t bytes)
{
    if (__asan_unpoison_memory_region) __asan_unpoison_memory_region(p, bytes);
    if (!checking || is_shared(p)) return;
    std::vector<Hidden> &list = hidden_near(p);
    for (size_t i = 0; i < list.size();) {
        if (list[i].begin >= (char *)p && list[i].end <= (char *)p + bytes) {
            list[i] = list.back();
            list.pop_back();
        } else {
            i++;
        }
    }
}

void hidden_reset()
{
    for (std::vector<Hidden> &list : hidden) list.clear();
}

bool hidden_check(const void *p, size_t bytes, Place *by)
{
    const char *q = static_cast<const char *>(p);
    size_t stack = stack_of(p);
    if (stack >= hidden.size()) return true;
    for (const Hidden &h : hidden[stack])
        if (q < h.end && q + bytes > h.begin) {
            *by = h.at;
            return false;
        }
    return true;
}

// ---- copies without checks. Not memcpy: the sanitizers' one would look at hidden bytes.

#if defined(QN_MODEL_MSAN) // instrumented, so that marks are copied with the bytes
void raw_copy(void *to, const void *from, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        static_cast<volatile char *>(to)[i] = static_cast<const volatile char *>(from)[i];
}
void raw_fill(void *to, int byte, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) static_cast<volatile char *>(to)[i] = (char)byte;
}
#else
typedef u64 __attribute__((may_alias, aligned(1))) Word;
void raw_copy(void *to, const void *from, size_t bytes)
{
    char *d = static_cast<char *>(to);
    const char *s = static_cast<const char *>(from);
    for (; bytes >= 8; bytes -= 8, d += 8, s += 8) {
        *reinterpret_cast<volatile Word *>(d) = *reinterpret_cast<const volatile Word *>(s);
    }
    for (; bytes; bytes--) *static_cast<volatile char *>(d++) = *static_cast<const volatile char *>(s++);
}
void raw_fill(void *to, int byte, size_t bytes)
{
    char *d = static_cast<char *>(to);
    u64 word = 0x0101010101010101ull * (u8)byte;
    for (; bytes >= 8; bytes -= 8, d += 8) *reinterpret_cast<volatile Word *>(d) = word;
    for (; bytes; bytes--) *static_cast<volatile char *>(d++) = (char)byte;
}
#endif

// ---- accesses of instructions

void touch(const void *p, size_t bytes, Access access, Place at)
{
    current()->at = at;
    if (!is_shared(p)) {
        check_global(p, bytes, access, at);
        if (checking && is_device(p)) global_checked(device_buffer(), p, bytes, access, at, nullptr);
        return;
    }
    const char *wrong = shared_check(p, bytes);
    if (wrong) fail(at, "%s (%zu bytes at offset %zu of the arena)", wrong, bytes, shared_offset(p) % ARENA_BYTES);
    access_checked(p, bytes, access, at, nullptr);
}

void load(void *to, const void *from, size_t bytes, Place at)
{
    touch(from, bytes, READ, at);
    raw_copy(to, from, bytes);
}

void store(void *to, const void *from, size_t bytes, Place at)
{
    touch(to, bytes, WRITE, at);
    raw_copy(to, from, bytes);
}

} // namespace qm
