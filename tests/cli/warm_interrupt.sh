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
kernels=$(sed -n 's/.*, \([0-9]*\) kernels compiled now are kept.*/\1/p' err)
[ "$(sqlite3 own.db 'SELECT count(*) FROM kernel')" = "$kernels" ] && echo "as many kernels as it says"
sed -n 's/^sm_90a *\(.*\): compiled in.*/\1/p' out >stored
count=$(grep -c gate stored)
sed -n 's/.*interrupted: \([0-9]*\) of 80.*/\1/p' err | grep -qx "$count" && echo "as many as it says"
quern warm @stored --arch sm_90a --db own.db >again
grep -c ': cached' again | grep -qx "$count" && echo "as many are there"
