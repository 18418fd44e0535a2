// SPDX-License-Identifier: Apache-2.0
// Configurations that tests of router's kernels force, each plan at least once, whatever the number of tokens would choose.
#ifndef QN_SUPPORT_FORCED_ROUTER_H
#define QN_SUPPORT_FORCED_ROUTER_H

static const char *const forced_router[] = {
    "plan=rows sums=parts tokens=2 experts=3 slices=2",
    "plan=fragments sums=parts tokens=8 experts=16 slices=2 chunk=32",
    "plan=fragments sums=parts tokens=64 experts=24 slices=1 chunk=64",
    "plan=fragments sums=parts tokens=16 experts=16 slices=1 chunk=128",
    "plan=wide sums=parts tokens=64 experts=24 slices=2",
    "plan=deep sums=parts tokens=64 experts=32 slices=2 stages=2",
    "plan=deep sums=whole tokens=128 experts=64 slices=1 stages=3 gate=2",
    "plan=multicast sums=parts tokens=64 experts=64 slices=2 stages=2 gate=1 cluster_n=1 cluster_e=1 ctas=32 "
    "gate_ctas=2",
    "plan=multicast sums=parts tokens=128 experts=24 slices=3 stages=3 gate=3 cluster_n=2 cluster_e=3 ctas=32 "
    "gate_ctas=4",
    "plan=multicast sums=parts tokens=64 experts=64 slices=16 stages=3 gate=2 cluster_n=2 cluster_e=4 ctas=108 "
    "gate_ctas=1",
    "plan=multicast sums=whole tokens=192 experts=96 slices=1 stages=4 gate=2 cluster_n=1 cluster_e=4 ctas=132",
    "plan=multicast sums=whole tokens=256 experts=192 slices=1 stages=2 gate=3 cluster_n=4 cluster_e=2 ctas=32",
    "plan=tiles sums=parts tokens=16 experts=32 slices=3 stages=2",
    "plan=tiles sums=parts tokens=32 experts=16 slices=2 stages=3",
    "plan=tiles sums=whole tokens=64 experts=64 slices=1 stages=2 gate=1",
    "plan=tiles sums=whole tokens=128 experts=32 slices=1 stages=3 gate=3",
    "plan=tiles sums=whole tokens=128 experts=128 slices=1 stages=4 gate=3",
    "plan=exact sums=parts tokens=8 experts=16 slices=3 stages=3",
    "plan=exact sums=parts tokens=32 experts=32 slices=6 stages=2",
    "plan=exact sums=whole tokens=64 experts=64 slices=1 stages=2 gate=4",
};

#endif
