// SPDX-License-Identifier: Apache-2.0
// Peers of gate and router: a case as a message to tools/bench/peers.py, and what becomes of the answer.
#ifndef QUERN_TOOLS_BENCH_ROUTING_H
#define QUERN_TOOLS_BENCH_ROUTING_H

#include "bench.h"

// A case whose results for the first copy of its inputs are on the device.
typedef struct routing_case {
    const bench *bench;
    const quern_gate_spec *gate; // its gate; `in` is not read
    const char *spec_text;
    int64_t N;
    const float *bias; // host, [E], with gate->bias
    CUdeviceptr weights, ids;
    size_t launches; // in a graph
    qn_timing own;
} routing_case;

// --vs, --python, --peers; without --vs no peers. The document gets what the process says of itself.
typedef struct routing_peers {
    bench_peers_options options; // which: NULL without --vs
    bench_peers *peers;
    int64_t number; // of inputs, one a case
} routing_peers;
quern_status routing_open(routing_peers *p, const bench *b);
void routing_close(routing_peers *p);

// Adds the case to a request that has "op" and "inputs", and asks. *answer, the caller's: {name: {"us_median", …,
// "x_quern", …} or {"error"}}.
quern_status routing_ask(routing_peers *p, const routing_case *c, cJSON *request, cJSON **answer);

// The fastest of an answer, which may be NULL: its name, and times; NULL and NaN when there is none.
const char *routing_best(const cJSON *answer, double *us, double *x_quern);

#endif
