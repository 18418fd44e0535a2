// SPDX-License-Identifier: Apache-2.0
// Whether NVRTC may be called after a fork (notes in the .c). Called by nvrtc.c, nvrtc_compile.c and the runtime.
#ifndef QN_CUDA_NVRTC_GUARD_H
#define QN_CUDA_NVRTC_GUARD_H

#include <stdbool.h>

#include "base/status.h"

// WOULD_COMPILE, with the way out, in a process that was forked while a thread of its parent was inside NVRTC.
quern_status qn_nvrtc_usable(void);
bool qn_nvrtc_is_torn(void); // the same without a message

// Around every stay inside NVRTC. Enter is false where it is not usable; then there is nothing to leave.
bool qn_nvrtc_enter(void);
void qn_nvrtc_leave(void);

#endif
