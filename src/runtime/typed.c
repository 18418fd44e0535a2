// SPDX-License-Identifier: Apache-2.0
// The typed launches, quern_<family>(op, args, stream): one a family, made from the list of families.
#include "runtime/private.h"

#define X(name)                                                                                                        \
    QN_LAUNCH_PATH quern_status quern_##name(const quern_op *op, const quern_##name##_args *args,                      \
                                             struct CUstream_st *stream)                                               \
    {                                                                                                                  \
        return qn_launch_args(op, args ? &args->base : NULL, stream);                                                  \
    }
QN_FAMILIES(X)
#undef X
