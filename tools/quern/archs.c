// SPDX-License-Identifier: Apache-2.0
// The choice of architectures (command.h): those named, or those of the GPUs present.
#include <stdio.h>
#include <string.h>

#include "base/path.h"
#include "command.h"
#include "cuda/nvrtc.h"
#include "device.h"

static bool add(command_archs *archs, const qn_arch *arch)
{
    for (size_t i = 0; i < archs->count; i++)
        if (archs->item[i] == arch) return true;
    if (archs->count == COMMAND_MAX_ARCHS) return false;
    archs->item[archs->count++] = arch;
    return true;
}

static quern_status add_named(const char *list, command_archs *archs)
{
    for (const char *word = list;;) {
        char name[32];
        size_t length = strcspn(word, ",");
        const qn_arch *arch;
        snprintf(name, sizeof name, "%.*s", (int)length, word);
        QN_TRY(qn_arch_find(name, &arch));
        add(archs, arch);
        if (!word[length]) return QUERN_OK;
        word += length + 1;
    }
}

const qn_arch *command_target(int cc)
{
    const qn_arch *targets[8];
    const qn_nvrtc *nvrtc;
    size_t count = qn_arch_targets(cc, targets);
    if (count > 0 && qn_nvrtc_load(qn_environment("QUERN_NVRTC", false), false, &nvrtc) == QUERN_OK)
        for (size_t i = 0; i < count; i++)
            if (qn_nvrtc_has_arch(nvrtc, targets[i])) return targets[i];
    return count > 0 ? targets[0] : NULL;
}

static quern_status add_present(command_archs *archs)
{
    int count;
    QN_TRY(device_count(&count));
    for (int ordinal = 0; ordinal < count; ordinal++) {
        device d;
        QN_TRY(device_look(ordinal, &d));
        const qn_arch *arch = command_target(d.cc);
        if (arch) add(archs, arch);
    }
    return archs->count ? QUERN_OK : QUERN_NO_DEVICE; // the caller has the message
}

static void known_names(qn_text *names)
{
    size_t count;
    const qn_arch *list = qn_arch_list(&count);
    for (size_t i = 0; i < count; i++) qn_text_putf(names, "%s%s", i ? ", " : "", list[i].name);
}

bool command_choose_archs(const char *list, command_archs *archs, int *exit_status)
{
    archs->count = 0;
    quern_status status = list ? add_named(list, archs) : add_present(archs);
    if (status == QUERN_OK) return true;
    if (list) {
        *exit_status = command_status(status);
        return false;
    }
    qn_text names = QN_TEXT_INIT;
    known_names(&names);
    *exit_status =
        command_usage("no GPU was found ('quern doctor' says why): name architectures with --arch; known are %s",
                      qn_text_string(&names));
    qn_text_fini(&names);
    return false;
}
