// SPDX-License-Identifier: Apache-2.0
// Loading NVRTC and saying which one it is. Called by runtime on the first miss, and by tools.
//   (1) RTLD_LOCAL, and never closed: what a host has loaded itself is shared and not disturbed, and an exit is quiet.
//   (2) The identity is the library's own build-id, or its bytes' sum: the version alone tells no patch levels apart.
#include "cuda/nvrtc.h"

#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/key.h"
#include "cuda/nvrtc_guard.h"
#include "cuda/nvrtc_search.h"

enum { MAX_ARCHS = 256 };

// The first success, never freed. Threads that load at the same time all do the work, and one result is kept: there is
// no lock that a fork could leave taken.
static _Atomic(const qn_nvrtc *) current;
static _Atomic(const qn_nvrtc *) replacement; // tests

// One candidate after the other: what is found goes to nvrtc, what failed and why to tried.
typedef struct attempt {
    qn_nvrtc nvrtc;
    qn_text tried;
} attempt;

// ---- identity

typedef struct build_id {
    ElfW(Addr) address; // inside the library
    char hex[65];
} build_id;

static bool holds(const struct dl_phdr_info *info, ElfW(Addr) address)
{
    for (size_t i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *part = &info->dlpi_phdr[i];
        ElfW(Addr) from = info->dlpi_addr + part->p_vaddr;
        if (part->p_type == PT_LOAD && address >= from && address - from < part->p_memsz) return true;
    }
    return false;
}

// Looks for the GNU build-id among the notes of one segment, which the loader has mapped.
static void read_notes(const unsigned char *at, size_t bytes, char hex[65])
{
    while (bytes >= sizeof(ElfW(Nhdr))) {
        ElfW(Nhdr) head;
        memcpy(&head, at, sizeof head);
        size_t name = ((size_t)head.n_namesz + 3) & ~(size_t)3, content = ((size_t)head.n_descsz + 3) & ~(size_t)3;
        if (name > bytes - sizeof head || content > bytes - sizeof head - name) return;
        const unsigned char *id = at + sizeof head + name;
        if (head.n_type == NT_GNU_BUILD_ID && head.n_namesz == 4 && !memcmp(at + sizeof head, "GNU", 4)) {
            for (size_t i = 0; i < head.n_descsz && i < 32; i++) snprintf(hex + 2 * i, 3, "%02x", id[i]);
            return;
        }
        at += sizeof head + name + content;
        bytes -= sizeof head + name + content;
    }
}

static int note_build_id(struct dl_phdr_info *info, size_t bytes, void *user)
{
    build_id *wanted = user;

    (void)bytes;
    if (!holds(info, wanted->address)) return 0;
    for (size_t i = 0; i < info->dlpi_phnum && !wanted->hex[0]; i++) {
        const ElfW(Phdr) *part = &info->dlpi_phdr[i];
        if (part->p_type != PT_NOTE) continue;
        read_notes((const unsigned char *)(uintptr_t)(info->dlpi_addr + part->p_vaddr), part->p_memsz, wanted->hex);
    }
    return 1;
}

// Wheels before 12.9 have no build-id: then the sum of the whole file, some ten milliseconds once a process.
static void identify(qn_nvrtc *nvrtc)
{
    build_id id = {(ElfW(Addr))(uintptr_t)nvrtc->nvrtcVersion, ""};
    qn_message_mark mark;
    qn_hash hash;
    const char *kind = "build";

    dl_iterate_phdr(note_build_id, &id);
    if (!id.hex[0]) {
        kind = "sum";
        qn_message_save(&mark);
        if (qn_hash_file(nvrtc->path, &hash) == QUERN_OK) qn_hash_hex(&hash, id.hex);
        qn_message_restore(&mark);
    }
    snprintf(nvrtc->identity, sizeof nvrtc->identity, "nvrtc %d.%d %s %s", nvrtc->major, nvrtc->minor, kind,
             id.hex[0] ? id.hex : "unknown");
}

// ---- loading

// Resolves the functions; returns the name of the first that is missing.
static const char *fill(void *library, qn_nvrtc *nvrtc)
{
    const char *missing = NULL;

    memset(nvrtc, 0, sizeof *nvrtc);
#define TAKE(name, needed)                                                                                             \
    {                                                                                                                  \
        void *found = dlsym(library, #name);                                                                           \
        if (!found && needed && !missing) missing = #name;                                                             \
        memcpy(&nvrtc->name, &found, sizeof found);                                                                    \
    }
    TAKE(nvrtcVersion, true)
    TAKE(nvrtcGetNumSupportedArchs, true)
    TAKE(nvrtcGetSupportedArchs, true)
    TAKE(nvrtcCreateProgram, true)
    TAKE(nvrtcDestroyProgram, true)
    TAKE(nvrtcCompileProgram, true)
    TAKE(nvrtcGetCUBINSize, true)
    TAKE(nvrtcGetCUBIN, true)
    TAKE(nvrtcGetProgramLogSize, true)
    TAKE(nvrtcGetProgramLog, true)
    TAKE(nvrtcGetErrorString, true)
    TAKE(nvrtcSetFlowCallback, false)
#undef TAKE
    return missing;
}

// The compiler opens its built-in headers by soname when it first compiles. From its own folder they are opened here,
// so that a folder outside the loader's search works. A failure shows itself, with its text, in the first compile.
static void open_builtins(const qn_nvrtc *nvrtc)
{
    const char *slash = strrchr(nvrtc->path, '/');
    char path[600];

    if (!slash) return;
    snprintf(path, sizeof path, "%.*s/libnvrtc-builtins.so.%d.%d", (int)(slash - nvrtc->path), nvrtc->path,
             nvrtc->major, nvrtc->minor);
    if (!dlopen(path, RTLD_NOW | RTLD_LOCAL)) dlerror();
}

static bool refuse(attempt *a, const char *name, const char *reason)
{
    qn_text_putf(&a->tried, "\n  %s: %s", name, reason ? reason : "not opened");
    return false;
}

static bool take(void *user, const char *name, bool only_loaded)
{
    attempt *a = user;
    void *library = dlopen(name, RTLD_NOW | RTLD_LOCAL | (only_loaded ? RTLD_NOLOAD : 0));
    Dl_info info;
    char reason[80];

    if (!library) {
        const char *why = dlerror();
        return refuse(a, name, only_loaded ? "not loaded in this process yet" : why);
    }
    const char *missing = fill(library, &a->nvrtc);
    if (missing) {
        snprintf(reason, sizeof reason, "has no function %s", missing);
        return refuse(a, name, reason);
    }
    if (a->nvrtc.nvrtcVersion(&a->nvrtc.major, &a->nvrtc.minor) != NVRTC_SUCCESS || a->nvrtc.major < 12) {
        snprintf(reason, sizeof reason, "is version %d.%d; 12.0 or later is needed", a->nvrtc.major, a->nvrtc.minor);
        return refuse(a, name, reason);
    }
    bool known = dladdr((void *)(uintptr_t)a->nvrtc.nvrtcVersion, &info) && info.dli_fname;
    snprintf(a->nvrtc.path, sizeof a->nvrtc.path, "%s", known ? info.dli_fname : name);
    open_builtins(&a->nvrtc);
    identify(&a->nvrtc);
    return true;
}

static quern_status load(const char *file, bool ignore_environment, qn_nvrtc *to)
{
    attempt a;
    quern_status status = QUERN_OK;

    memset(&a, 0, sizeof a);
    if (qn_nvrtc_search(file, ignore_environment, take, &a)) {
        *to = a.nvrtc;
    } else {
        status =
            qn_fail(QUERN_NVRTC_NOT_FOUND,
                    "NVRTC (libnvrtc.so.13 or .12) was not found; install the CUDA toolkit or the nvidia-cuda-nvrtc "
                    "wheel, or name the file ($QUERN_NVRTC, nvrtc_file). Tried:%s",
                    qn_text_string(&a.tried));
    }
    qn_text_fini(&a.tried);
    return status;
}

// Loads and publishes; gives the one that is kept.
static quern_status load_and_keep(const char *file, bool ignore_environment, const qn_nvrtc **kept)
{
    qn_nvrtc *made = malloc(sizeof *made);
    const qn_nvrtc *first = NULL;

    if (!made) return qn_fail(QUERN_OUT_OF_MEMORY, "no memory for NVRTC's table");
    if (!qn_nvrtc_enter()) { // a library's constructors may hold locks too
        free(made);
        return qn_nvrtc_usable();
    }
    quern_status status = load(file, ignore_environment, made);
    qn_nvrtc_leave();
    if (status == QUERN_OK && atomic_compare_exchange_strong(&current, &first, made)) {
        *kept = made;
        return QUERN_OK;
    }
    free(made);
    if (status == QUERN_OK) *kept = first;
    return status;
}

quern_status qn_nvrtc_load(const char *file, bool ignore_environment, const qn_nvrtc **nvrtc)
{
    const qn_nvrtc *have = atomic_load_explicit(&replacement, memory_order_acquire);

    if (!have) have = atomic_load_explicit(&current, memory_order_acquire);
    if (!have) QN_TRY(load_and_keep(file, ignore_environment, &have));
    *nvrtc = have;
    return QUERN_OK;
}

void qn_nvrtc_replace(const qn_nvrtc *fake)
{
    atomic_store_explicit(&replacement, fake, memory_order_release);
}

// Lists hold plain numbers. Code for 'a' goes with each number that has it since 12.0; code for families came in 12.9.
// No memory is asked for: having none must not look like a compiler that is too old.
bool qn_nvrtc_has_arch(const qn_nvrtc *nvrtc, const qn_arch *arch)
{
    int count = 0, list[MAX_ARCHS];
    bool found = false;

    if (arch->suffix == 'f' && nvrtc->major * 100 + nvrtc->minor < 1209) return false;
    if (nvrtc->nvrtcGetNumSupportedArchs(&count) != NVRTC_SUCCESS || count <= 0 || count > MAX_ARCHS) return false;
    if (nvrtc->nvrtcGetSupportedArchs(list) != NVRTC_SUCCESS) return false;
    for (int i = 0; i < count; i++) found |= list[i] == arch->cc;
    return found;
}
