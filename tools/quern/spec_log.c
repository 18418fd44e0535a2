// SPDX-License-Identifier: Apache-2.0
// A log as a list of specs: what ran in production becomes what the next image is warmed with. Any text will do whose
// lines have spec="…", as those of $QUERN_LOG do (quern.h, section 14), with whatever a logger of the host's put before.
#include <stdio.h>
#include <string.h>

#include "base/path.h"
#include "cuda/arch.h"
#include "specs.h"

// The words between ` name="` and the quote, or ` name=` and a blank. false: the line has none, or was cut.
static bool find_value(const char *line, const char *name, char end, char *value, size_t bytes)
{
    const char *at = strstr(line, name);
    if (!at) return false;
    at += strlen(name);
    size_t length = strcspn(at, (char[]){end, 0});
    if (at[length] != end || length >= bytes) return false;
    memcpy(value, at, length);
    value[length] = 0;
    return true;
}

// Architectures that this library does not know are those of another version's log.
static void take_arch(const char *line, command_archs *archs)
{
    char name[32];
    const qn_arch *arch;
    size_t i = 0;
    if (!find_value(line, " arch=", ' ', name, sizeof name) || qn_arch_find(name, &arch) != QUERN_OK) return;
    while (i < archs->count && archs->item[i] != arch) i++;
    if (i == archs->count && i < COMMAND_MAX_ARCHS) archs->item[archs->count++] = arch;
}

static quern_status take_line(spec_list *list, size_t first, const char *line, command_archs *archs)
{
    char text[512], canonical[512];
    quern_any_spec spec;
    if (!find_value(line, " spec=\"", '"', text, sizeof text)) {
        list->passed_over += strstr(line, " spec=\"") != NULL;
        return QUERN_OK;
    }
    // "source ENTRY" is a kernel of the host's own; a bad spec is another version's, or a line that was damaged.
    if (quern_spec_parse(text, &spec) != QUERN_OK ||
        quern_spec_format(&spec.base, canonical, sizeof canonical) != QUERN_OK) {
        list->passed_over++;
        return QUERN_OK;
    }
    take_arch(line, archs);
    return spec_list_has(list, first, canonical) ? QUERN_OK : spec_list_add_text(list, canonical);
}

quern_status spec_list_add_log(spec_list *list, const char *file)
{
    qn_text content = QN_TEXT_INIT;
    command_archs archs = {.count = 0};
    const size_t first = list->count;
    QN_TRY(qn_file_read(file, &content));
    quern_status status = QUERN_OK;
    for (size_t i = 0; i < content.length; i++) // a crash may leave zeros in a log, which would end it
        if (!content.bytes[i]) content.bytes[i] = '\n';
    for (char *rest = content.bytes, *line; status == QUERN_OK && rest && (line = strsep(&rest, "\n"));)
        status = take_line(list, first, line, &archs);
    qn_text_fini(&content);
    for (size_t i = 0; i < archs.count; i++) spec_list_add_arch(list, first, archs.item[i]);
    if (status == QUERN_OK && !list->count)
        return qn_fail(QUERN_BAD_FILE, "%s: no line has the spec of a family (QUERN_LOG=compile,cache makes them)",
                       file);
    return status;
}
