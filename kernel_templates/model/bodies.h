// SPDX-License-Identifier: Apache-2.0
// The second bodies of the files of common/ that hold instructions, but for device.cuh's: one line a file.
#ifndef QN_MODEL_BODIES_H
#define QN_MODEL_BODIES_H

#include "address.h"
#include "convert.h"
#include "copy.h"
#include "elect.h"
#include "matrix.h"
#include "mbarrier.h"
#include "mma.h"
#include "narrow.h"
#include "tally.h"
#include "tma.h"
#include "wgmma.h"

#endif
