// SPDX-License-Identifier: Apache-2.0
// The built-in tuning table: results that come with the library. Made by tools/built_in.sh from what
// `quern tune --export` wrote; not edited by hand. Read by tuned.c.
#include "runtime/tuned.h"

// clang-format off
const qn_tune_row qn_tuned_built_in[] = {
    {{"NVIDIA H200", 90, 132, 233472, 62914560, 13}, "0.1.0-1", "sm_90a", "gate E=256 K=6 in=bf16 bias=1", "N 1..64", "N=1", "plan=block ctas=8", "best", "", 1570.7499696873128, 14.499993994832039, 1796044914},
    {{"NVIDIA H200", 90, 132, 233472, 62914560, 13}, "0.1.0-1", "sm_90a", "gate E=256 K=6 in=bf16 bias=1", "N 513..1024", "N=1024", "plan=block ctas=8", "best", "", 2996.3666573166847, 19.86672480901097, 1796044916},
    {{"NVIDIA H200", 90, 132, 233472, 62914560, 13}, "0.1.0-1", "sm_90a", "gate E=256 K=6 in=bf16 bias=1", "N 65..512", "N=512", "plan=block ctas=8", "best", "", 2111.62498453632, 8.999835699796677, 1796044915},
    {{"NVIDIA H200", 90, 132, 233472, 62914560, 13}, "0.1.0-1", "sm_90a", "gate E=256 K=6 in=f32 bias=1", "N 1..64", "N=1", "plan=block ctas=8", "best", "", 1423.625013558194, 24.000066332519054, 1796044896},
    {{"NVIDIA H200", 90, 132, 233472, 62914560, 13}, "0.1.0-1", "sm_90a", "gate E=256 K=6 in=f32 bias=1", "N 1025..8192", "N=4096", "plan=lanes lanes=16 units=2 warps=8 ctas=4", "best", "", 4831.733306248982, 71.46646579106618, 1796044899},
    {{"NVIDIA H200", 90, 132, 233472, 62914560, 13}, "0.1.0-1", "sm_90a", "gate E=256 K=6 in=f32 bias=1", "N 513..1024", "N=1024", "plan=block ctas=8", "best", "", 3026.8666644891105, 34.66680645942688, 1796044898},
    {{"NVIDIA H200", 90, 132, 233472, 62914560, 13}, "0.1.0-1", "sm_90a", "gate E=256 K=6 in=f32 bias=1", "N 65..512", "N=512", "plan=block ctas=8", "best", "", 1923.8749810028821, 14.999997802078724, 1796044897},
    {{"NVIDIA H200", 90, 132, 233472, 62914560, 13}, "0.1.0-1", "sm_90a", "gate E=256 K=6 in=f32 bias=1", "N 8193…", "N=16384", "plan=lanes lanes=8 units=4 warps=8 ctas=4", "best", "", 9440.999943763018, 127.99973289171795, 1796044899},
    {{"NVIDIA H200", 90, 132, 233472, 62914560, 13}, "0.1.0-1", "sm_90a", "gate E=256 K=8 in=f32 act=sigmoid bias=1 n_group=8 topk_group=4 scale=2.5", "N 1..64", "N=1", "plan=block ctas=8", "best", "", 1897.3750120494515, 25.999965146183968, 1796044909},
    {{"NVIDIA H200", 90, 132, 233472, 62914560, 13}, "0.1.0-1", "sm_90a", "gate E=256 K=8 in=f32 act=sigmoid bias=1 n_group=8 topk_group=4 scale=2.5", "N 1025..8192", "N=4096", "plan=lanes lanes=16 units=2 warps=8 ctas=4", "best", "", 5873.600021004677, 84.26656325658132, 1796044913},
    {{"NVIDIA H200", 90, 132, 233472, 62914560, 13}, "0.1.0-1", "sm_90a", "gate E=256 K=8 in=f32 act=sigmoid bias=1 n_group=8 topk_group=4 scale=2.5", "N 513..1024", "N=1024", "plan=lanes lanes=32 units=1 warps=4 ctas=8", "best", "", 3562.1332625548043, 29.06670173009207, 1796044912},
    {{"NVIDIA H200", 90, 132, 233472, 62914560, 13}, "0.1.0-1", "sm_90a", "gate E=256 K=8 in=f32 act=sigmoid bias=1 n_group=8 topk_group=4 scale=2.5", "N 65..512", "N=512", "plan=lanes lanes=32 units=2 warps=2 ctas=8", "best", "", 2818.124950863421, 16.999896615743637, 1796044910},
    {{"NVIDIA H200", 90, 132, 233472, 62914560, 13}, "0.1.0-1", "sm_90a", "gate E=256 K=8 in=f32 act=sigmoid bias=1 n_group=8 topk_group=4 scale=2.5", "N 8193…", "N=16384", "plan=lanes lanes=16 units=2 warps=8 ctas=4", "best", "", 13974.999698499838, 154.66660261154175, 1796044913},
    {{"NVIDIA H200", 90, 132, 233472, 62914560, 13}, "0.1.0-1", "sm_90a", "gate E=256 K=8 in=f32 bias=1", "N 1..64", "N=1", "plan=block ctas=8", "best", "", 1627.0000487565994, 15.500001609325409, 1796044905},
    {{"NVIDIA H200", 90, 132, 233472, 62914560, 13}, "0.1.0-1", "sm_90a", "gate E=256 K=8 in=f32 bias=1", "N 1025..8192", "N=4096", "plan=lanes lanes=16 units=2 warps=8 ctas=4", "best", "", 5006.39999906222, 80.00036080678363, 1796044908},
    {{"NVIDIA H200", 90, 132, 233472, 62914560, 13}, "0.1.0-1", "sm_90a", "gate E=256 K=8 in=f32 bias=1", "N 513..1024", "N=1024", "plan=block ctas=8", "best", "", 3327.6000370581946, 30.666589736938477, 1796044907},
    {{"NVIDIA H200", 90, 132, 233472, 62914560, 13}, "0.1.0-1", "sm_90a", "gate E=256 K=8 in=f32 bias=1", "N 65..512", "N=512", "plan=block ctas=4", "best", "", 2271.8749823980033, 20.50003968179226, 1796044906},
    {{"NVIDIA H200", 90, 132, 233472, 62914560, 13}, "0.1.0-1", "sm_90a", "gate E=256 K=8 in=f32 bias=1", "N 8193…", "N=16384", "plan=lanes lanes=8 units=4 warps=8 ctas=4", "best", "", 10580.000157157581, 190.66656629244605, 1796044908},
    {{"NVIDIA H200", 90, 132, 233472, 62914560, 13}, "0.1.0-1", "sm_90a", "gate E=384 K=6 in=f32 bias=1", "N 1..64", "N=1", "plan=block ctas=4", "best", "", 1643.1249969173223, 22.000051103532314, 1796044901},
    {{"NVIDIA H200", 90, 132, 233472, 62914560, 13}, "0.1.0-1", "sm_90a", "gate E=384 K=6 in=f32 bias=1", "N 1025..8192", "N=4096", "plan=lanes lanes=16 units=2 warps=8 ctas=4", "best", "", 5856.799893081188, 107.19969868659973, 1796044904},
    {{"NVIDIA H200", 90, 132, 233472, 62914560, 13}, "0.1.0-1", "sm_90a", "gate E=384 K=6 in=f32 bias=1", "N 513..1024", "N=1024", "plan=lanes lanes=32 units=1 warps=4 ctas=8", "best", "", 3591.8000154197216, 37.60010004043579, 1796044903},
    {{"NVIDIA H200", 90, 132, 233472, 62914560, 13}, "0.1.0-1", "sm_90a", "gate E=384 K=6 in=f32 bias=1", "N 65..512", "N=512", "plan=block ctas=4", "best", "", 2720.375021453947, 90.4998742043972, 1796044902},
    {{"NVIDIA H200", 90, 132, 233472, 62914560, 13}, "0.1.0-1", "sm_90a", "gate E=384 K=6 in=f32 bias=1", "N 8193…", "N=16384", "plan=lanes lanes=16 units=2 warps=1 ctas=4", "best", "", 11686.399951577187, 115.20013213157654, 1796044904},
    {{"NVIDIA H200", 90, 132, 233472, 62914560, 13}, "0.1.0-1", "sm_90a", "softmax_topk V=128256 K=1024 in=bf16", "rows 1..4", "rows=1", "plan=cluster block=512 ctas=1 local_k=8 cluster=16 group=2 keep=vectors threshold=bins", "best", "", 7314.574330013299, 29.197292755188897, 1796044971},
    {{"NVIDIA H200", 90, 132, 233472, 62914560, 13}, "0.1.0-1", "sm_90a", "softmax_topk V=128256 K=256 in=bf16", "rows 1..4", "rows=1", "plan=cluster block=512 ctas=1 local_k=4 cluster=16 group=8 keep=vectors threshold=bins", "best", "", 5391.771948750296, 23.397068870528948, 1796044955},
    {{"NVIDIA H200", 90, 132, 233472, 62914560, 13}, "0.1.0-1", "sm_90a", "softmax_topk V=128256 K=256 in=bf16", "rows 265..528", "rows=512", "plan=stream block=256 ctas=4 local_k=8 unroll=4", "best", "", 38654.00031208992, 231.99915885925293, 1796044966},
    {{"NVIDIA H200", 90, 132, 233472, 62914560, 13}, "0.1.0-1", "sm_90a", "softmax_topk V=128256 K=256 in=bf16", "rows 5..14", "rows=8", "plan=cluster block=512 ctas=1 local_k=2 cluster=8 group=4 keep=vectors threshold=bins", "best", "", 6163.0967163270525, 40.77390316994034, 1796044959},
    {{"NVIDIA H200", 90, 132, 233472, 62914560, 13}, "0.1.0-1", "sm_90a", "softmax_topk V=128256 K=256 in=bf16", "rows 529…", "rows=4096", "plan=stream block=256 ctas=4 local_k=8 unroll=8", "best", "", 271369.6002960205, 8348.798751831055, 1796044969},
    {{"NVIDIA H200", 90, 132, 233472, 62914560, 13}, "0.1.0-1", "sm_90a", "softmax_topk V=128256 K=50 in=bf16", "rows 1..4", "rows=1", "plan=cluster block=512 ctas=1 local_k=4 cluster=16 group=32 keep=vectors threshold=bisection", "best", "", 4793.450205971898, 24.9615997500916, 1796044939},
    {{"NVIDIA H200", 90, 132, 233472, 62914560, 13}, "0.1.0-1", "sm_90a", "softmax_topk V=128256 K=50 in=bf16", "rows 265..528", "rows=512", "plan=stream block=256 ctas=4 local_k=6 unroll=4", "best", "", 36976.8001139164, 360.0001335144043, 1796044949},
    {{"NVIDIA H200", 90, 132, 233472, 62914560, 13}, "0.1.0-1", "sm_90a", "softmax_topk V=128256 K=50 in=bf16", "rows 5..14", "rows=8", "plan=cluster block=512 ctas=1 local_k=2 cluster=8 group=16 keep=vectors threshold=bisection", "best", "", 5566.451578370987, 55.22562611487558, 1796044942},
    {{"NVIDIA H200", 90, 132, 233472, 62914560, 13}, "0.1.0-1", "sm_90a", "softmax_topk V=128256 K=50 in=bf16", "rows 529…", "rows=4096", "plan=stream block=256 ctas=4 local_k=6 unroll=8", "best", "", 259565.19842147827, 6107.187271118164, 1796044952},
    {{"NVIDIA H200", 90, 132, 233472, 62914560, 13}, "0.1.0-1", "sm_90a", "softmax_topk V=128256 K=50 in=bf16", "rows 63..66", "rows=64", "plan=cluster block=1024 ctas=1 local_k=1 cluster=2 group=8 keep=maxima threshold=bisection", "best", "", 11579.333494106928, 170.66672444343567, 1796044945},
    {{"NVIDIA H200", 90, 132, 233472, 62914560, 13}, "0.1.0-1", "sm_90a", "softmax_topk V=128256 K=8 in=bf16", "rows 265..528", "rows=512", "plan=stream block=256 ctas=4 local_k=4 unroll=4", "best", "", 36220.00068426132, 497.6004362106323, 1796044931},
    {{"NVIDIA H200", 90, 132, 233472, 62914560, 13}, "0.1.0-1", "sm_90a", "softmax_topk V=128256 K=8 in=bf16", "rows 529…", "rows=4096", "plan=stream block=256 ctas=4 local_k=4 unroll=8", "best", "", 256626.3973712921, 21435.189247131348, 1796044936},
    {{0}, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}, // the end, not counted
};
// clang-format on
const size_t qn_tuned_built_in_count = QN_COUNT(qn_tuned_built_in) - 1;
