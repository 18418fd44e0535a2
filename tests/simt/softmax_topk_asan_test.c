// SPDX-License-Identifier: Apache-2.0
// softmax_topk on the functional model, in the build in which AddressSanitizer and UBSan watch
// (tests/support/softmax_topk_sweep.h).
#include "support/softmax_topk_sweep.h"

int main(int argc, char **argv)
{
    return softmax_topk_sweep(MODEL_ASAN, argc, argv);
}
