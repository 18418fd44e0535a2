/* SPDX-License-Identifier: Apache-2.0
 * A C++17 program outside the project: the header, a spec as text, the reference; no GPU and no libcuda needed. */
#include <quern/quern.h>
#include <stdio.h>
#include <string.h>

int main(void)
{
    const float logits[4] = {1.0f, 3.0f, 2.0f, 3.0f};
    float values[2] = {0};
    int32_t indices[2] = {-1, -1};
    quern_any_spec spec;
    quern_softmax_topk_args args = QUERN_SOFTMAX_TOPK_ARGS_INIT;
    quern_options options = QUERN_OPTIONS_INIT;
    quern_op *op = NULL;
    quern *q = NULL;
    args.rows = 1, args.logits = logits, args.values = values, args.indices = indices;
    options.cache_file = "";

    if (quern_spec_parse("softmax_topk V=4 K=2 in=f32", &spec) != QUERN_OK) return 1;
    if (quern_reference(&spec.base, &args.base) != QUERN_OK) return 2;
    if (indices[0] != 1 || indices[1] != 3) return 3;
    if (quern_open(&options, &q) != QUERN_OK) return 4;
    if (quern_prepare(q, &spec.base, QUERN_DEVICE_CURRENT, &op) == QUERN_OK) return 5; /* no context is current */
    if (op != NULL || strlen(quern_message()) == 0) return 6;
    quern_source source = QUERN_SOURCE_INIT;
    quern_geometry geometry = QUERN_GEOMETRY_INIT;
    quern_counters counters = QUERN_COUNTERS_INIT;
    quern_kernel *kernel = NULL;
    source.source = "extern \"C\" __global__ void mine() {}", source.entry = "mine", source.threads = 0;
    if (quern_prepare_source(q, &source, QUERN_DEVICE_CURRENT, &kernel) != QUERN_BAD_ARGUMENT) return 8;
    if (quern_launch_packed(kernel, &geometry, NULL, 0, NULL) != QUERN_MISSING_ARGUMENT) return 9;
    quern_get_counters(q, &counters);
    if (counters.compiled != 0) return 10;
    quern_close(q);
    return strcmp(quern_version(), "0.1.0") == 0 ? 0 : 7;
}
