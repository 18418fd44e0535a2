// SPDX-License-Identifier: Apache-2.0
// The list of families. Called by spec parsing, runtime and tools; the one place where the list becomes code.
#include <string.h>

#include "base/nearest.h"
#include "ops/family.h"

static const qn_family *const families[] = {
#define X(name) &qn_family_##name,
    QN_FAMILIES(X)
#undef X
};

const qn_family *const *qn_families(size_t *count)
{
    *count = QN_COUNT(families);
    return families;
}

quern_status qn_family_find(const char *name, const qn_family **family)
{
    qn_text known = QN_TEXT_INIT;
    qn_nearest nearest;

    for (size_t i = 0; name && i < QN_COUNT(families); i++) {
        if (strcmp(families[i]->name, name)) continue;
        *family = families[i];
        return QUERN_OK;
    }
    qn_nearest_init(&nearest, name, name ? strlen(name) : 0);
    for (size_t i = 0; i < QN_COUNT(families); i++) {
        qn_text_putf(&known, "%s%s", i ? ", " : "", families[i]->name);
        qn_nearest_offer(&nearest, families[i]->name);
    }
    quern_status status = qn_fail(QUERN_UNKNOWN_FAMILY, "family '%s' is not known%s; the families are %s",
                                  name ? name : "", qn_nearest_hint(&nearest), qn_text_string(&known));
    qn_text_fini(&known);
    return status;
}
