// SPDX-License-Identifier: Apache-2.0
// Device memory: buffers of exact size in the window of addresses that host and runner share (protocol.h). Pages outside
// the launch's buffers are not mapped for it, and inputs are read-only; the bytes of a buffer's pages that are not its
// own are hidden from the ASan build.
#include "machine.h"
#include "protocol.h"

#include <algorithm>
#include <sys/mman.h>

namespace qm {

enum { PAGE = 4096 };
static char *window;
static size_t window_bytes;
static size_t last; // buffer of the last check
static std::vector<Buffer> mapped;

void device_window(char *begin, size_t bytes)
{
    window = begin, window_bytes = bytes;
}
bool is_device(const void *p)
{
    return (size_t)((const char *)p - window) < window_bytes;
}

static char *page_down(char *p)
{
    return window + (size_t)(p - window) / PAGE * PAGE;
}
static char *page_up(char *p)
{
    return page_down(p + PAGE - 1);
}

static void protect(const Buffer &b, int protection)
{
    char *begin = page_down(b.begin), *end = page_up(b.end);
    if (begin == end) return;
    mprotect(begin, (size_t)(end - begin), protection);
    if (build != BUILD_ASAN) return;
    show(begin, (size_t)(end - begin));
    if (protection == PROT_NONE) return;
    hide(begin, (size_t)(b.begin - begin), {"", 0, "device memory"});
    hide(b.end, (size_t)(end - b.end), {"", 0, "device memory"});
}

void device_begin()
{
    for (const Buffer &b : mapped) {
        protect(b, PROT_NONE);
        marks_forget(b.marks);
    }
    mapped = launch.buffers;
    std::sort(mapped.begin(), mapped.end(), [](const Buffer &a, const Buffer &b) { return a.begin < b.begin; });
    last = 0;
    for (Buffer &b : mapped) {
        protect(b, b.input ? PROT_READ : PROT_READ | PROT_WRITE);
        b.marks = checking && !b.input ? marks_make(b.begin, b.end) : nullptr;
    }
}

static bool inside(const Buffer &b, const char *p, size_t bytes)
{
    return p >= b.begin && p + bytes <= b.end;
}

const char *device_check(const void *q, size_t bytes, Access access, std::string &text)
{
    const char *p = static_cast<const char *>(q);
    bool writes = access != READ && access != ATOMIC_READ;
    if (last < mapped.size() && inside(mapped[last], p, bytes) && !(writes && mapped[last].input)) return nullptr;
    const Buffer *nearest = nullptr;
    for (size_t i = 0; i < mapped.size(); i++) {
        const Buffer &b = mapped[i];
        if (inside(b, p, bytes)) {
            last = i;
            if (!(writes && b.input)) return nullptr;
            text = "'" + b.name + "', byte " + std::to_string(p - b.begin);
            return "a store to an input";
        }
        if (p + bytes > b.begin - (PAGE << 4)) nearest = &b;
    }
    if (!nearest) return "outside every buffer of device memory";
    text = "'" + nearest->name + "' has " + std::to_string(nearest->end - nearest->begin) + " bytes, this is byte " +
           std::to_string(p - nearest->begin);
    return "outside every buffer of device memory";
}

const Buffer &device_buffer()
{
    return mapped[last];
}

void check_global(const void *p, size_t bytes, Access access, Place at)
{
    if (!is_device(p)) return;
    std::string text;
    const char *wrong = device_check(p, bytes, access, text);
    if (wrong) fail(at, "%s: %zu bytes; %s", wrong, bytes, text.c_str());
}

} // namespace qm
