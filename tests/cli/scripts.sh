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

# tools/check.sh says which rules nothing here could judge: on a tree of one file, without clang-format and python3
mkdir -p "$TMPDIR/few" "$TMPDIR/tree/tools" "$TMPDIR/tree/src/base"
cp "$QUERN_CLI/../../tools/check.sh" "$TMPDIR/tree/tools"
echo '// SPDX-License-Identifier: Apache-2.0' >"$TMPDIR/tree/src/base/a.c"
for tool in bash sh dirname find sed sort grep xargs awk cat head; do ln -s "$(command -v $tool)" "$TMPDIR/few/$tool"; done
judge() { PATH="$TMPDIR/few" bash "$TMPDIR/tree/tools/check.sh" 2>&1 | grep '^check:'; }
t judge
