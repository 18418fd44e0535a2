# SPDX-License-Identifier: Apache-2.0
# tools/*.sh and .ci/run: help, and an argument that they do not know, do not begin the work.
export QUERN_BUILD="$TMPDIR/build" # where it would be seen
script() { timeout 20 bash "$QUERN_CLI/../../$@"; }
for name in tools/test.sh tools/demo.sh tools/deps.sh .ci/run; do
    t script $name --help
    t script $name --frobnicate
done
t script tools/test.sh --quick now
t script tools/demo.sh --device tpu
t script tools/demo.sh --device
[ -e "$QUERN_BUILD" ] || echo "nothing was begun"
