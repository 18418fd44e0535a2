// SPDX-License-Identifier: Apache-2.0
// The fake NVRTC: fake_nvrtc.h says what it promises. Linked into every test; compiles nothing.
#include "support/fake_nvrtc.h"

#include <elf.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/key.h"

fake_nvrtc_state fake_nvrtc;

static const int default_archs[] = {75, 80, 86, 87, 88, 89, 90, 100, 103, 110, 120, 121};
static pthread_mutex_t options_lock = PTHREAD_MUTEX_INITIALIZER;

typedef struct program {
    char *source, *name;
    qn_text image;
    char log[256];
    int (*flow)(void *, void *);
    void *flow_user;
} program;

// ---- cubins

enum { EM_CUDA_NUMBER = 190, SECTIONS = 8 };

typedef struct elf_writer {
    qn_text *out;
    qn_text names;
    Elf64_Shdr section[SECTIONS];
    size_t count;
} elf_writer;

static size_t add_section(elf_writer *w, const char *name, const char *suffix, unsigned type, const void *bytes,
                          size_t count)
{
    Elf64_Shdr *s = &w->section[w->count];

    while (w->out->length % 8) qn_text_put(w->out, "", 1);
    memset(s, 0, sizeof *s);
    s->sh_name = (Elf64_Word)w->names.length;
    s->sh_type = type;
    s->sh_offset = w->out->length;
    s->sh_size = count;
    qn_text_puts(&w->names, name);
    qn_text_put(&w->names, suffix, strlen(suffix) + 1);
    if (type != SHT_NOBITS) qn_text_put(w->out, bytes, count);
    return w->count++;
}

static void put_info(qn_text *info, unsigned char attribute, uint32_t symbol, uint32_t value)
{
    unsigned char head[4] = {4, attribute, 8, 0};
    qn_text_put(info, head, sizeof head);
    qn_text_put(info, &symbol, 4);
    qn_text_put(info, &value, 4);
}

static void add_symbols(elf_writer *w, const char *entry)
{
    Elf64_Sym symbols[2];
    qn_text strings = QN_TEXT_INIT;

    memset(symbols, 0, sizeof symbols);
    symbols[1].st_name = 1;
    qn_text_put(&strings, "", 1);
    qn_text_put(&strings, entry, strlen(entry) + 1);
    w->out->failed |= strings.failed;
    size_t table = add_section(w, ".strtab", "", SHT_STRTAB, strings.bytes, strings.length);
    size_t at = add_section(w, ".symtab", "", SHT_SYMTAB, symbols, sizeof symbols);
    w->section[at].sh_link = (Elf64_Word)table;
    w->section[at].sh_entsize = sizeof symbols[0];
    qn_text_fini(&strings);
}

static void finish(elf_writer *w, int cc)
{
    Elf64_Ehdr head;
    size_t names = add_section(w, ".shstrtab", "", SHT_STRTAB, "", 0);

    w->section[names].sh_size = w->names.length;
    qn_text_put(w->out, w->names.bytes, w->names.length);
    while (w->out->length % 8) qn_text_put(w->out, "", 1);
    memset(&head, 0, sizeof head);
    memcpy(head.e_ident, ELFMAG, SELFMAG);
    head.e_ident[EI_CLASS] = ELFCLASS64, head.e_ident[EI_DATA] = ELFDATA2LSB, head.e_ident[EI_VERSION] = EV_CURRENT;
    head.e_ident[EI_OSABI] = 0x41, head.e_ident[EI_ABIVERSION] = 8;
    head.e_type = ET_EXEC, head.e_machine = EM_CUDA_NUMBER, head.e_version = EV_CURRENT;
    head.e_flags = 0x6000000u | (unsigned)cc << 8;
    head.e_ehsize = sizeof head, head.e_shentsize = sizeof(Elf64_Shdr);
    head.e_shoff = w->out->length, head.e_shnum = (Elf64_Half)w->count, head.e_shstrndx = (Elf64_Half)names;
    qn_text_put(w->out, w->section, w->count * sizeof w->section[0]);
    if (!w->out->failed) memcpy(w->out->bytes, &head, sizeof head);
}

void fake_cubin(const char *entry, int cc, const char *source, qn_text *image)
{
    static const unsigned char no_head[sizeof(Elf64_Ehdr)];
    elf_writer w = {.out = image};
    qn_text info = QN_TEXT_INIT;
    qn_hash hash = qn_hash_bytes(source, strlen(source));

    qn_text_clear(image);
    qn_text_put(image, no_head, sizeof no_head);
    add_section(&w, "", "", SHT_NULL, "", 0);
    w.section[0].sh_offset = 0;
    add_symbols(&w, entry);
    put_info(&info, 0x2f, 1, (uint32_t)fake_nvrtc.registers);
    put_info(&info, 0x12, 1, (uint32_t)fake_nvrtc.local_bytes);
    add_section(&w, ".nv.info", "", 0x70000000, info.bytes, info.length);
    add_section(&w, ".text.", entry, SHT_PROGBITS, hash.bytes, sizeof hash.bytes);
    size_t shared = (size_t)fake_nvrtc.shared_bytes + (cc >= 90 ? 1024 : 0); // with what the system keeps
    if (fake_nvrtc.shared_bytes) add_section(&w, ".nv.shared.", entry, SHT_NOBITS, "", shared);
    finish(&w, cc);
    image->failed |= info.failed || w.names.failed;
    qn_text_fini(&info);
    qn_text_fini(&w.names);
}

// The kernel's name: what QN_ENTRY is defined as, else the word before the first '(' after __global__.
static void find_entry(const char *source, char entry[128])
{
    const char *at = strstr(source, "#define QN_ENTRY ");
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_";

    snprintf(entry, 128, "kernel");
    if (at) {
        at += strlen("#define QN_ENTRY ");
        snprintf(entry, 128, "%.*s", (int)strspn(at, letters), at);
        return;
    }
    const char *end = (at = strstr(source, "__global__")) ? strchr(at, '(') : NULL;
    if (!end) return;
    while (end > at && !strchr(letters, end[-1])) end--;
    const char *from = end;
    while (from > at && strchr(letters, from[-1])) from--;
    snprintf(entry, 128, "%.*s", (int)(end - from), from);
}

// ---- the table

static nvrtcResult version(int *major, int *minor)
{
    *major = fake_nvrtc.major;
    *minor = fake_nvrtc.minor;
    return NVRTC_SUCCESS;
}

static int arch_count(void)
{
    return fake_nvrtc.archs ? fake_nvrtc.arch_count : (int)QN_COUNT(default_archs);
}

static nvrtcResult arch_total(int *count)
{
    *count = arch_count();
    return NVRTC_SUCCESS;
}

static nvrtcResult arch_list(int *archs)
{
    memcpy(archs, fake_nvrtc.archs ? fake_nvrtc.archs : default_archs, (size_t)arch_count() * sizeof *archs);
    return NVRTC_SUCCESS;
}

static nvrtcResult create(nvrtcProgram *out, const char *source, const char *name, int headers,
                          const char *const *texts, const char *const *names)
{
    if (!source || headers < 0 || (headers && (!texts || !names))) return NVRTC_ERROR_INVALID_INPUT;
    program *p = calloc(1, sizeof *p);
    if (!p) return NVRTC_ERROR_OUT_OF_MEMORY;
    qn_text all = QN_TEXT_INIT; // headers are content: another one makes another image
    qn_text_puts(&all, source);
    for (int i = 0; i < headers; i++) qn_text_putf(&all, "\n// %s\n%s", names[i], texts[i]);
    p->source = all.bytes;
    p->name = qn_strdup(name ? name : "default_program");
    if (!p->source || !p->name) {
        free(p->source);
        free(p->name);
        free(p);
        return NVRTC_ERROR_OUT_OF_MEMORY;
    }
    fake_nvrtc.programs++;
    *out = (nvrtcProgram)p;
    return NVRTC_SUCCESS;
}

static nvrtcResult destroy(nvrtcProgram *handle)
{
    program *p = (program *)*handle;
    free(p->source);
    free(p->name);
    qn_text_fini(&p->image);
    free(p);
    *handle = NULL;
    fake_nvrtc.programs--;
    return NVRTC_SUCCESS;
}

static nvrtcResult set_flow(nvrtcProgram handle, int (*flow)(void *, void *), void *user)
{
    program *p = (program *)handle;
    p->flow = flow;
    p->flow_user = user;
    return NVRTC_SUCCESS;
}

static void note_options(int count, const char *const *options)
{
    pthread_mutex_lock(&options_lock);
    fake_nvrtc.last_options[0] = 0;
    for (int i = 0; i < count; i++) {
        size_t used = strlen(fake_nvrtc.last_options);
        snprintf(fake_nvrtc.last_options + used, sizeof fake_nvrtc.last_options - used, " %s", options[i]);
    }
    pthread_mutex_unlock(&options_lock);
}

// Sleeps in slices, as a compiler at work would poll.
static bool wait_and_poll(program *p)
{
    for (int waited = 0;; waited += 2) {
        if (p->flow && p->flow(p->flow_user, NULL)) return false;
        if (waited >= fake_nvrtc.delay_ms) return true;
        nanosleep(&(struct timespec){0, 2000000}, NULL);
    }
}

static bool take_failure(int *result)
{
    int times = fake_nvrtc.times;
    if (!fake_nvrtc.fail || !times) return false;
    *result = fake_nvrtc.fail;
    if (times > 0) fake_nvrtc.times--;
    return true;
}

static bool is_listed(int cc)
{
    const int *list = fake_nvrtc.archs ? fake_nvrtc.archs : default_archs;
    for (int i = 0; i < arch_count(); i++) {
        if (list[i] == cc) return true;
    }
    return false;
}

static nvrtcResult make(program *p, int count, const char *const *options)
{
    static const char option[] = "--gpu-architecture=sm_";
    char entry[128];
    int result, cc = 0;

    for (int i = 0; i < count; i++) {
        if (!strncmp(options[i], option, sizeof option - 1)) cc = atoi(options[i] + sizeof option - 1);
    }
    if (!is_listed(cc)) {
        snprintf(p->log, sizeof p->log, "fake nvrtc: error: invalid value for --gpu-architecture (-arch)\n");
        return NVRTC_ERROR_INVALID_OPTION;
    }
    if (!wait_and_poll(p)) return NVRTC_ERROR_CANCELLED;
    if (take_failure(&result)) {
        snprintf(p->log, sizeof p->log, "%.80s(1): error: told to fail\n", p->name);
        return (nvrtcResult)result;
    }
    find_entry(p->source, entry);
    fake_cubin(entry, cc, p->source, &p->image);
    if (p->image.failed) return NVRTC_ERROR_OUT_OF_MEMORY;
    fake_nvrtc.finished++;
    return NVRTC_SUCCESS;
}

static nvrtcResult compile(nvrtcProgram handle, int count, const char *const *options)
{
    fake_nvrtc.compiles++;
    long running = ++fake_nvrtc.running, most = fake_nvrtc.most_running;
    while (running > most && !atomic_compare_exchange_weak(&fake_nvrtc.most_running, &most, running)) {
    }
    note_options(count, options);
    nvrtcResult result = make((program *)handle, count, options);
    fake_nvrtc.running--;
    return result;
}

static nvrtcResult image_size(nvrtcProgram handle, size_t *bytes)
{
    *bytes = ((program *)handle)->image.length;
    return NVRTC_SUCCESS;
}

static nvrtcResult image_copy(nvrtcProgram handle, char *to)
{
    const qn_text *image = &((program *)handle)->image;
    memcpy(to, image->bytes, image->length);
    return NVRTC_SUCCESS;
}

static nvrtcResult log_size(nvrtcProgram handle, size_t *bytes)
{
    *bytes = strlen(((program *)handle)->log) + 1;
    return NVRTC_SUCCESS;
}

static nvrtcResult log_copy(nvrtcProgram handle, char *to)
{
    strcpy(to, ((program *)handle)->log);
    return NVRTC_SUCCESS;
}

static const char *error_string(nvrtcResult result)
{
    switch (result) {
    case NVRTC_SUCCESS:
        return "NVRTC_SUCCESS";
    case NVRTC_ERROR_OUT_OF_MEMORY:
        return "NVRTC_ERROR_OUT_OF_MEMORY";
    case NVRTC_ERROR_INVALID_OPTION:
        return "NVRTC_ERROR_INVALID_OPTION";
    case NVRTC_ERROR_COMPILATION:
        return "NVRTC_ERROR_COMPILATION";
    case NVRTC_ERROR_CANCELLED:
        return "NVRTC_ERROR_CANCELLED";
    default:
        return "NVRTC_ERROR_OTHER";
    }
}

static qn_nvrtc table = {
    .nvrtcVersion = version,
    .nvrtcGetNumSupportedArchs = arch_total,
    .nvrtcGetSupportedArchs = arch_list,
    .nvrtcCreateProgram = create,
    .nvrtcDestroyProgram = destroy,
    .nvrtcCompileProgram = compile,
    .nvrtcGetCUBINSize = image_size,
    .nvrtcGetCUBIN = image_copy,
    .nvrtcGetProgramLogSize = log_size,
    .nvrtcGetProgramLog = log_copy,
    .nvrtcGetErrorString = error_string,
    .path = "/fake/lib/libnvrtc.so.13",
};

void fake_nvrtc_refresh(void)
{
    table.major = fake_nvrtc.major;
    table.minor = fake_nvrtc.minor;
    // The flow callback came with 12.8.
    table.nvrtcSetFlowCallback = table.major * 100 + table.minor >= 1208 ? set_flow : NULL;
    if (fake_nvrtc.identity)
        snprintf(table.identity, sizeof table.identity, "%s", fake_nvrtc.identity);
    else
        snprintf(table.identity, sizeof table.identity, "nvrtc %d.%d build fake", table.major, table.minor);
    qn_nvrtc_replace(&table);
}

void fake_nvrtc_install(int major, int minor)
{
    memset(&fake_nvrtc, 0, sizeof fake_nvrtc);
    fake_nvrtc.major = major;
    fake_nvrtc.minor = minor;
    fake_nvrtc.registers = 32;
    fake_nvrtc_refresh();
}

void fake_nvrtc_remove(void)
{
    qn_nvrtc_replace(NULL);
}
