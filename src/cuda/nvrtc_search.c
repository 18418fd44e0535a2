// SPDX-License-Identifier: Apache-2.0
// The order in which libnvrtc is looked for. Called by nvrtc.c only; opens nothing but asks the loader what is open.
//
//   1  the file the caller names, and then nothing else
//   2  one that this process has open already: a host runtime and Quern share it
//   3  beside an open libcudart: the toolkit or wheel that the host chose
//   4  the loader's own search: LD_LIBRARY_PATH, RUNPATH, ld.so.conf
//   5  $CUDA_PATH, $CUDA_HOME, /usr/local/cuda, /usr/local/cuda-13*, /usr/local/cuda-12*
//
// A cubin of a newer major than the driver's does not load: where a driver of CUDA 12 is open, 12 is asked before 13.
#include "cuda/nvrtc_search.h"

#include <dlfcn.h>
#include <glob.h>
#include <link.h>
#include <stdlib.h>
#include <string.h>

#include "base/path.h"

typedef struct search {
    qn_nvrtc_try try;
    void *user;
    const char *sonames[2];
} search;

static void order_sonames(search *s)
{
    int (*get_version)(int *) = NULL;
    int version = 0;
    void *libcuda = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);

    if (libcuda) {
        void *symbol = dlsym(libcuda, "cuDriverGetVersion");
        memcpy(&get_version, &symbol, sizeof symbol);
        if (get_version) get_version(&version);
        dlclose(libcuda); // gives back what RTLD_NOLOAD counted; the host keeps its own
    }
    bool old = version > 0 && version < 13000;
    s->sonames[0] = old ? "libnvrtc.so.12" : "libnvrtc.so.13";
    s->sonames[1] = old ? "libnvrtc.so.13" : "libnvrtc.so.12";
}

static bool try_names(search *s, bool only_loaded)
{
    for (size_t i = 0; i < QN_COUNT(s->sonames); i++) {
        if (s->try(s->user, s->sonames[i], only_loaded)) return true;
    }
    return false;
}

// Both names in a folder that exists; folders that do not are no candidates, and messages stay short.
static bool try_folder(search *s, const char *folder)
{
    bool taken = false;

    if (!qn_file_exists(folder)) return false;
    for (size_t i = 0; i < QN_COUNT(s->sonames) && !taken; i++) {
        qn_text path = QN_TEXT_INIT;
        qn_text_putf(&path, "%s/%s", folder, s->sonames[i]);
        taken = !path.failed && s->try(s->user, path.bytes, false);
        qn_text_fini(&path);
    }
    return taken;
}

// ---- beside libcudart

static int note_cudart(struct dl_phdr_info *info, size_t bytes, void *user)
{
    (void)bytes;
    const char *slash = info->dlpi_name ? strrchr(info->dlpi_name, '/') : NULL;
    if (!slash || strncmp(slash + 1, "libcudart.so", 12)) return 0;
    qn_text_put(user, info->dlpi_name, (size_t)(slash - info->dlpi_name));
    return 1;
}

// The folder itself, and where the wheels of CUDA 12 put NVRTC relative to cuda_runtime/lib.
static bool try_beside_cudart(search *s)
{
    qn_text folder = QN_TEXT_INIT;
    bool taken = false;

    if (dl_iterate_phdr(note_cudart, &folder) && !folder.failed) {
        taken = try_folder(s, folder.bytes);
        qn_text_puts(&folder, "/../../cuda_nvrtc/lib");
        if (!taken && !folder.failed) taken = try_folder(s, folder.bytes);
    }
    qn_text_fini(&folder);
    return taken;
}

// ---- toolkits

#if defined(__aarch64__)
#define TARGET_LIB "targets/sbsa-linux/lib"
#else
#define TARGET_LIB "targets/x86_64-linux/lib"
#endif

static bool try_toolkit(search *s, const char *root)
{
    static const char *const below[] = {"lib64", "lib", TARGET_LIB};
    bool taken = false;

    for (size_t i = 0; root && i < QN_COUNT(below) && !taken; i++) {
        qn_text folder = QN_TEXT_INIT;
        qn_text_putf(&folder, "%s/%s", root, below[i]);
        if (!folder.failed) taken = try_folder(s, folder.bytes);
        qn_text_fini(&folder);
    }
    return taken;
}

// Versioned toolkits, the highest version first.
static bool try_versions(search *s, const char *pattern)
{
    glob_t found;
    bool taken = false;

    if (!glob(pattern, 0, NULL, &found)) {
        for (size_t i = found.gl_pathc; i > 0 && !taken; i--) taken = try_toolkit(s, found.gl_pathv[i - 1]);
    }
    globfree(&found);
    return taken;
}

bool qn_nvrtc_search(const char *file, bool ignore_environment, qn_nvrtc_try try, void *user)
{
    search s = {try, user, {NULL, NULL}};

    if (file) return try(user, file, false);
    order_sonames(&s);
    return try_names(&s, true) || try_beside_cudart(&s) || try_names(&s, false) ||
           try_toolkit(&s, qn_environment("CUDA_PATH", ignore_environment)) ||
           try_toolkit(&s, qn_environment("CUDA_HOME", ignore_environment)) || try_toolkit(&s, "/usr/local/cuda") ||
           try_versions(&s, "/usr/local/cuda-13*") || try_versions(&s, "/usr/local/cuda-12*");
}
