// SPDX-License-Identifier: Apache-2.0
// The runner: a program that opens kernels' shared objects and runs the launches that the host side asks for, one after
// another, until its input ends (protocol.h). A fault ends its launch, not the program.
#include "machine.h"
#include "protocol.h"

#include <cstdio>
#include <cstdlib>
#include <dlfcn.h>
#include <sys/mman.h>
#include <unistd.h>

extern "C" {
__attribute__((weak)) void __asan_poison_memory_region(void const volatile *p, size_t bytes);
__attribute__((weak)) void __msan_poison(void const volatile *p, size_t bytes);
}

namespace qm {

// Which library it is linked with says which build it is; the access build has none, and is named by its argument.
static Build linked_build()
{
    return __asan_poison_memory_region ? BUILD_ASAN : __msan_poison ? BUILD_MSAN : BUILD_PLAIN;
}
Build build = linked_build();
bool checking = false;
void crash_begin();

static bool read_all(void *p, size_t bytes)
{
    char *q = static_cast<char *>(p);
    while (bytes) {
        ssize_t n = read(0, q, bytes);
        if (n <= 0) return false;
        q += n, bytes -= (size_t)n;
    }
    return true;
}

static bool write_all(const void *p, size_t bytes)
{
    const char *q = static_cast<const char *>(p);
    while (bytes) {
        ssize_t n = write(1, q, bytes);
        if (n <= 0) return false;
        q += n, bytes -= (size_t)n;
    }
    return true;
}

// Objects stay open: AddressSanitizer goes on looking at the globals of those that were closed.
static std::unordered_map<std::string, void *> objects;
static void *object; // of this launch

static std::string open_object(const std::string &path)
{
    void *&known = objects[path];
    launch.entry = nullptr;
    if (!known) known = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    object = known;
    return object ? "" : std::string("the kernel's object cannot be opened: ") + dlerror();
}

static std::string take_entry(size_t params_bytes)
{
    auto entry = reinterpret_cast<void (*)(const void *)>(dlsym(object, "qn_model_run"));
    auto bytes = static_cast<const size_t *>(dlsym(object, "qn_model_params_bytes"));
    if (!entry || !bytes) return "the kernel's object does not export its entry";
    if (*bytes != params_bytes)
        return "the kernel's parameter structure has " + std::to_string(*bytes) + " bytes, the plan says " +
               std::to_string(params_bytes);
    launch.entry = entry;
    return "";
}

static std::string check_launch(const qn_model_request &r)
{
    const Limits &l = launch.limits;
    if (!r.threads || r.threads > 1024) return "threads: 1 to 1024, not " + std::to_string(r.threads);
    if (r.shared_bytes > (u32)l.shared_cta)
        return "shared memory: " + std::to_string(r.shared_bytes) + " bytes, the architecture has " +
               std::to_string(l.shared_cta);
    if (!r.cluster || r.cluster > (u32)l.max_cluster || r.cluster > MAX_CLUSTER)
        return "a cluster of " + std::to_string(r.cluster) + " CTAs, the architecture has " +
               std::to_string(l.max_cluster);
    if (r.grid[0] % r.cluster)
        return "the grid's " + std::to_string(r.grid[0]) + " CTAs are no multiple of the cluster's";
    return "";
}

static std::string carry_out(const qn_model_request &r, const std::string &path, const void *params)
{
    launch.grid = {r.grid[0], r.grid[1], r.grid[2]};
    launch.threads = r.threads, launch.cluster = r.cluster, launch.shared_bytes = r.shared_bytes;
    launch.resident = r.resident;
    launch.limits = {(int)r.cc, (int)r.suffix, (int)r.shared_cta, (int)r.max_cluster};
    launch.shuffle = r.shuffle != 0, launch.seed = r.seed;
    launch.parameters = params;
    std::string wrong = check_launch(r);
    if (wrong.empty()) wrong = open_object(path);
    if (wrong.empty()) wrong = take_entry(r.params_bytes);
    if (wrong.empty() && !run_launch()) wrong = fault_text;
    return wrong;
}

static bool serve()
{
    qn_model_request r = {};
    if (!read_all(&r, sizeof r) || r.magic != QN_MODEL_REQUEST) return false;
    std::vector<char> path(r.path_bytes + 1);    // ends with a 0
    std::vector<char> room(r.params_bytes + 64); // tensor maps in it want 64-byte alignment
    char *params = room.data() + (64 - reinterpret_cast<uintptr_t>(room.data()) % 64) % 64;
    std::vector<qn_model_buffer> buffers(r.buffer_count);
    if (!read_all(path.data(), r.path_bytes) || !read_all(params, r.params_bytes)) return false;
    if (!read_all(buffers.data(), buffers.size() * sizeof buffers[0])) return false;
    launch.buffers.clear();
    for (qn_model_buffer &b : buffers) {
        b.name[sizeof b.name - 1] = 0;
        launch.buffers.push_back({b.name, reinterpret_cast<char *>(b.begin),
                                  reinterpret_cast<char *>(b.begin + b.bytes), b.input != 0, nullptr});
    }
    std::string text = carry_out(r, path.data(), params);
    qn_model_reply reply = {QN_MODEL_REPLY,  !text.empty(),   (u32)text.size(), 0, counts.switches, counts.operations,
                            counts.barriers, counts.landings, counts.accesses};
    return write_all(&reply, sizeof reply) && write_all(text.data(), text.size());
}

} // namespace qm

int main(int argc, char **argv)
{
    if (argc != 5) {
        fprintf(stderr,
                "usage: %s BUILD DESCRIPTOR ADDRESS BYTES: the functional model's runner, started by its host side\n",
                argv[0]);
        return 2;
    }
    char *address = reinterpret_cast<char *>(strtoull(argv[3], nullptr, 10));
    size_t bytes = strtoull(argv[4], nullptr, 10);
    void *p = mmap(address, bytes, PROT_NONE, MAP_SHARED | MAP_FIXED | MAP_NORESERVE, atoi(argv[2]), 0);
    if (p != address) {
        perror("the window of device memory cannot be mapped");
        return 3;
    }
    qm::checking = strcmp(argv[1], "access") == 0;
    qm::device_window(address, bytes);
    qm::crash_begin();
    while (qm::serve()) {
    }
    return 0;
}
