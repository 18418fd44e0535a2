// SPDX-License-Identifier: Apache-2.0
// What the benches of gate and router share: their options and lists, and their peers: a case as a message to
// tools/bench/peers.py, and what becomes of the answer.
#ifndef QUERN_TOOLS_BENCH_ROUTING_H
#define QUERN_TOOLS_BENCH_ROUTING_H

#include "bench_session.h"

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

// Adds the case to a request that has "op" and "inputs", and asks. The answer is as of bench_peers_ask.
quern_status routing_ask(bench_peers *peers, const routing_case *c, cJSON *request, cJSON **answer);

// ---- the bench: specs × numbers of tokens, one row of a table each

enum { ROUTING_MOST_TOKENS = 32 };
typedef struct routing_bench routing_bench;
struct routing_bench {
    bench_session session; // its name is the family's
    const char *text;      // for --help
    const char *const *specs;
    size_t spec_count;
    const int64_t *default_tokens;
    size_t default_count;
    const char *tokens_doc, *spec_doc, *config_doc; // of --N, --spec and --config
    // Checks and times one case, and adds its row to session.table. spec: parsed, and its canonical text.
    quern_status (*run)(routing_bench *t, const quern_any_spec *spec, const char *spec_text, int64_t N);
    // Filled by routing_bench_main:
    const char *tokens, *spec_text, *config_text; // options; NULL: not given
    int64_t N[ROUTING_MOST_TOKENS];
    size_t N_count;
};
// The command: options, every case, the table or the JSON. What was measured before a failure is printed all the same.
int routing_bench_main(routing_bench *t, int argc, char **argv);

#endif
