// SPDX-License-Identifier: Apache-2.0
// quern_reference: a family's oracle on host memory.
#include <string.h>

#include "runtime/private.h"

quern_status quern_reference(const quern_spec *spec, const quern_args *given)
{
    const qn_family *family;
    quern_any_spec full;
    qn_any_args args = {0};
    if (!spec || !given) return qn_fail(QUERN_MISSING_ARGUMENT, "%s is NULL", !spec ? "spec" : "args");
    QN_TRY(qn_spec_complete(spec, &family, &full));
    if (!given->family || strcmp(given->family, family->name)) return qn_wrong_family("spec", family->name, given);
    if (given->size <= sizeof *given)
        return qn_fail(QUERN_BAD_ARGUMENT, "args: size = %zu has no argument: start from the ARGS_INIT macro",
                       given->size);
    QN_TRY(qn_take_sized("args", given, args.bytes, family->args_bytes));
    return family->reference(&full.base, &args.base);
}
