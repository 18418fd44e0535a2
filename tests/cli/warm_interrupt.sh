# SPDX-License-Identifier: Apache-2.0
# Ctrl-C while warm compiles: it ends, says what is stored and what is not, and loses nothing of what it says.
i=0
while [ $i -lt 80 ]; do i=$((i + 1)); echo "gate E=$((8 * i)) K=2 in=f32 [N 1..1]"; done >list
: >out # it is looked into before the command may have begun
quern warm @list --arch sm_90a --db own.db -j 2 >>out 2>err &
process=$!
until [ "$(grep -c compiled out)" -ge 2 ] || ! kill -0 $process 2>/dev/null; do sleep 0.05; done
kill -INT $process
wait $process
echo "= $?"
cat err
tail -n 1 out

# As many kernels as it says, of pairs begun too; as many lines; and warming these again compiles nothing.
# The total says the same.
kernels=$(sed -n 's/.*: \([0-9]*\) compiled now and kept.*/\1/p' err)
[ "$(sqlite3 own.db 'SELECT count(*) FROM kernel')" = "$kernels" ] && echo "as many kernels as it says"
grep -q "^total    $kernels compiled in" out && echo "as the total"
sed -n 's/^sm_90a *\(.*\): compiled in.*/\1/p' out >stored
count=$(grep -c gate stored)
sed -n 's/.*interrupted: of 80 .* pairs \([0-9]*\) whole.*/\1/p' err | grep -qx "$count" && echo "as many as it says"
quern warm @stored --arch sm_90a --db own.db >again
grep -c ': cached' again | grep -qx "$count" && echo "as many are there"

# A pair of several kernels that is cut between them: message and total say how many are stored.
stored() { sqlite3 some.db 'SELECT count(*) FROM kernel' 2>/dev/null || echo 0; }
: >some.db
quern warm 'softmax_topk V=20000 K=30 in=bf16' --arch sm_90a --db some.db -j 1 >out 2>err &
process=$!
until [ "$(stored)" -ge 1 ] || ! kill -0 $process 2>/dev/null; do sleep 0.05; done
kill -INT $process
wait $process
echo "= $?"
grep -q "^total    $(stored) compiled in" out && echo "the total is what is stored"
grep -q ": $(stored) compiled now and kept, 0 there before" err && echo "the message too"
