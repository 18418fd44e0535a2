// SPDX-License-Identifier: Apache-2.0
// A fault's report, and leaving the case: from a lane by switching to the main stack for good, from the main stack (an
// operation that lands, a deadlock) by CaseOver, which scheduler.cpp catches.
#include "machine.h"

#include <cstdarg>
#include <cstdio>
#include <dlfcn.h>

namespace qm {

std::string fault_text;
void **crash_frame;

void fault_reset()
{
    fault_text.clear();
}

static std::string formatted(const char *format, va_list list)
{
    char text[1024];
    vsnprintf(text, sizeof text, format, list);
    return text;
}

static std::string printed(const char *format, ...) __attribute__((format(printf, 1, 2)));
static std::string printed(const char *format, ...)
{
    va_list list;
    va_start(list, format);
    std::string text = formatted(format, list);
    va_end(list);
    return text;
}

// ---- positions

static std::string block_name(Dim block)
{
    if (!block.y && !block.z) return printed("%u", block.x);
    return printed("(%u,%u,%u)", block.x, block.y, block.z);
}

static bool same_position(const Lane &a, const Lane &b)
{
    return a.state == b.state && a.at.line == b.at.line && a.at.what == b.at.what && a.at.file == b.at.file;
}

static std::string position(const Lane &a)
{
    if (a.state == DONE) return "ended";
    const char *how = a.state == BLOCKED ? "waits in" : &a == current() ? "is in" : "runs after";
    if (!a.at.what) return "has not begun";
    return printed("%s %s at %s:%d", how, a.at.what, a.at.file, a.at.line);
}

// Groups of a warp's lanes with the same position, one a line, without the warp's name.
static std::vector<std::string> warp_positions(const Warp &w)
{
    std::vector<std::string> lines;
    unsigned count = launch.threads - w.lane[0].me.thread;
    u32 exist = count >= 32 ? ~0u : (1u << count) - 1, seen = 0;
    for (unsigned l = 0; l < 32; l++) {
        if (!(exist >> l & 1) || (seen >> l & 1)) continue;
        u32 group = 0;
        for (unsigned k = l; k < 32; k++)
            if ((exist >> k & 1) && same_position(w.lane[k], w.lane[l])) group |= 1u << k;
        seen |= group;
        lines.push_back(printed("lanes %08x: ", group) + position(w.lane[l]));
    }
    return lines;
}

// Of every warp that is resident; neighbours with the same positions share their lines.
std::string positions()
{
    enum { MOST_LINES = 120 };
    std::string text;
    int lines = 0;
    for (const Cluster &c : clusters())
        for (size_t w = 0; w < c.warps.size();) {
            const Warp &first = c.warps[w];
            std::vector<std::string> groups = warp_positions(first);
            size_t end = w + 1;
            while (end < c.warps.size() && c.warps[end].cta == first.cta && warp_positions(c.warps[end]) == groups)
                end++;
            unsigned from = first.lane[0].me.warp, to = from + (unsigned)(end - w) - 1;
            std::string name = "  block " + block_name(first.cta->block);
            name += from == to ? printed(" warp %u ", from) : printed(" warps %u..%u ", from, to);
            for (const std::string &g : groups)
                if (++lines <= MOST_LINES) text += name + g + "\n";
            w = end;
        }
    if (lines > MOST_LINES) text += printed("  and %d lines more\n", lines - MOST_LINES);
    return text;
}

std::string position_of_lane()
{
    Lane *a = current();
    if (!a) return "outside the kernel's lanes";
    return "block " + block_name(a->me.bid) + printed(", warp %u, lane %u", a->me.warp, a->me.lane);
}

// ---- addresses of code

struct Line {
    std::string function, place;
};

// The lines of addresses in the kernel's object, inlined functions included, by addr2line; none when that is missing.
static std::vector<Line> code_lines(const std::vector<void *> &addresses)
{
    std::vector<Line> lines;
    Dl_info object, here;
    if (addresses.empty() || !dladdr(reinterpret_cast<void *>(launch.entry), &object)) return lines;
    std::string command = printed("addr2line -s -f -C -i -e '%s'", object.dli_fname);
    bool any = false;
    for (void *pc : addresses) {
        if (!dladdr(pc, &here) || here.dli_fbase != object.dli_fbase) continue;
        command += printed(" 0x%zx", (size_t)((char *)pc - (char *)object.dli_fbase) - 1);
        any = true;
    }
    FILE *pipe = any ? popen((command + " 2>/dev/null").c_str(), "r") : nullptr;
    if (!pipe) return lines;
    char function[600], place[600];
    while (fgets(function, sizeof function, pipe) && fgets(place, sizeof place, pipe)) {
        function[strcspn(function, "\n")] = 0;
        place[strcspn(place, "\n (")] = 0;
        lines.push_back({function, place});
    }
    pclose(pipe);
    return lines;
}

// Return addresses on this lane's stack, innermost first, by frame pointers (kernels are compiled with them).
static std::vector<void *> stack_addresses()
{
    std::vector<void *> addresses;
    Lane *a = current();
    if (!a) return addresses;
    char *low = a->fibre.stack, *high = low + a->fibre.bytes;
    void **frame = static_cast<void **>(__builtin_frame_address(0));
    if ((char *)frame < low || (char *)frame >= high) frame = crash_frame; // on the stack for crashes
    while ((char *)frame >= low && (char *)frame + 16 <= high && addresses.size() < 32) {
        if (frame[1]) addresses.push_back(frame[1]);
        void **next = static_cast<void **>(frame[0]);
        if (next <= frame) break;
        frame = next;
    }
    return addresses;
}

// A line of the model's own headers, which a reader of the kernel does not care for.
static bool of_the_model(const Line &l)
{
    for (const char *file : {"words.h:", "device.h:", "shim.h:", "engine.h:", "??"})
        if (l.place.compare(0, strlen(file), file) == 0) return true;
    return l.function.compare(0, 4, "qm::") == 0;
}

static std::string called_from(const std::vector<Line> &lines, const std::string &known)
{
    std::string text;
    for (const Line &l : lines) {
        if (l.place == known || of_the_model(l)) continue;
        text += "  called from " + l.function + " at " + l.place + "\n";
    }
    return text;
}

// ---- failing

static std::string base_name(const char *file)
{
    const char *slash = file ? strrchr(file, '/') : nullptr;
    return slash ? slash + 1 : file ? file : "";
}

[[noreturn]] static void leave(const std::string &text)
{
    if (fault_text.empty()) fault_text = text + positions();
    if (!current()) throw CaseOver();
    leave_case();
    __builtin_trap();
}

void fail(Place at, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    std::string text = formatted(format, list) + "\n";
    va_end(list);
    if (at.line)
        text += printed("  in %s at %s:%d, ", at.what, at.file, at.line) + position_of_lane() + "\n";
    else
        text += printed("  in %s, ", at.what ? at.what : "the kernel") + position_of_lane() + "\n";
    if (current()) current()->at = at;
    text += called_from(code_lines(stack_addresses()), base_name(at.file) + printed(":%d", at.line));
    leave(text);
}

void fail_pc(void *pc, const char *what, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    std::string text = formatted(format, list) + "\n";
    va_end(list);
    std::vector<void *> addresses = stack_addresses();
    for (size_t i = 0; i < addresses.size(); i++) // what is inside of it is the model
        if (addresses[i] == pc) addresses.erase(addresses.begin(), addresses.begin() + (long)i + 1);
    addresses.insert(addresses.begin(), pc);
    std::vector<Line> lines = code_lines(addresses);
    std::string place = printed("address %p", pc);
    for (size_t i = lines.size(); i > 0; i--) // the innermost that is the kernel's
        if (!of_the_model(lines[i - 1])) place = lines[i - 1].place;
    text += printed("  in %s at %s, ", what, place.c_str()) + position_of_lane() + "\n";
    text += called_from(lines, place);
    leave(text);
}

void need_arch(int from, int until, bool specific, Place at)
{
    const Limits &l = launch.limits;
    const char suffix[2] = {(char)l.suffix, 0};
    if (l.cc < from || (until && l.cc >= until))
        fail(at, "the instruction is not in sm_%d%s (it is in sm_%d%s%s)", l.cc, suffix, from, specific ? "a" : "",
             until ? ", and not in later ones" : " and later ones");
    if (specific && !l.suffix) fail(at, "the instruction needs an architecture-specific target, as sm_%da", l.cc);
}

} // namespace qm
