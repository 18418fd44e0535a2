// SPDX-License-Identifier: Apache-2.0
// The environment, and the choice of the cache directory. Called by runtime/open.c, cuda/nvrtc_search.c and tools.
//   (1) getenv stands here and nowhere else.
//   (2) A choice is never the working directory by accident, nor a name in /tmp that another user can foresee.
#include "base/path.h"

#include <errno.h>
#include <pwd.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

const char *const qn_environment_names[] = {
    "QUERN_CACHE_DIR", "QUERN_SEALED",          "QUERN_NVRTC", "QUERN_TEMPLATES", "QUERN_MODE",           "QUERN_TUNE",
    "QUERN_LOG",       "QUERN_LOG_FILE",        "QUERN_DUMP",  "QUERN_LINE_INFO", "QUERN_MODEL",          "CXX",
    "XDG_CACHE_HOME",  "NVTX_INJECTION64_PATH", "CUDA_PATH",   "CUDA_HOME",       "CUDA_VISIBLE_DEVICES", NULL};

const char *qn_environment(const char *name, bool ignore)
{
    const char *value = ignore ? NULL : secure_getenv(name);
    return value && *value ? value : NULL;
}

static bool is_known(const char *name)
{
    for (const char *const *known = qn_environment_names; *known; known++)
        if (!strcmp(*known, name)) return true;
    return false;
}

bool qn_environment_unknown(size_t *at, char *name, size_t bytes)
{
    while (environ && environ[*at]) {
        const char *entry = environ[(*at)++];
        size_t length = strcspn(entry, "=");
        if (strncmp(entry, "QUERN_", strlen("QUERN_")) != 0 || length >= bytes) continue;
        memcpy(name, entry, length);
        name[length] = 0;
        if (!is_known(name)) return true;
    }
    return false;
}

void qn_path_absolute(const char *path, qn_text *directory)
{
    if (path[0] != '/') {
        char *here = getcwd(NULL, 0);
        if (!here) return;
        qn_text_putf(directory, "%s/", here);
        free(here);
    }
    qn_text_puts(directory, path);
}

// Puts <home>/.cache/quern of the effective user, if the passwd entry names a home that exists.
static void put_home_cache(qn_text *directory)
{
    struct passwd entry, *found = NULL;
    struct stat home;
    size_t bytes = 1024;

    for (;;) {
        char *buffer = malloc(bytes);
        if (!buffer) return;
        int error = getpwuid_r(geteuid(), &entry, buffer, bytes, &found);
        if (!error && found && found->pw_dir && found->pw_dir[0] == '/' && !stat(found->pw_dir, &home) &&
            S_ISDIR(home.st_mode)) {
            qn_text_putf(directory, "%s%s.cache/quern", found->pw_dir, found->pw_dir[1] ? "/" : "");
        }
        free(buffer);
        if (error != ERANGE || bytes > (1u << 20)) return;
        bytes *= 2;
    }
}

void qn_cache_directory(bool ignore_environment, qn_text *directory)
{
    const char *own = qn_environment("QUERN_CACHE_DIR", ignore_environment);
    const char *xdg = qn_environment("XDG_CACHE_HOME", ignore_environment);

    if (own)
        qn_path_absolute(own, directory);
    else if (xdg && xdg[0] == '/')
        qn_text_putf(directory, "%s/quern", xdg);
    else
        put_home_cache(directory);
}
