# SPDX-License-Identifier: Apache-2.0
# An end from outside while a compiler works for the model: the command ends by that signal, and leaves no folder of work,
# neither in the cache nor, without one, in the temporary folder.
export QUERN_TEMPLATES="$QUERN_CLI/../../kernel_templates"
cat >slow <<'SH'
#!/bin/sh
case "$*" in *--version) echo 'slow 1'; exit ;; esac
: >"$BEGUN"
sleep 1
SH
chmod +x slow
logits logits.npy
interrupted() { # SIGNAL CACHE
    rm -f begun
    env CXX="$PWD/slow" BEGUN="$PWD/begun" QUERN_CACHE_DIR="$2" quern run 'softmax_topk V=8 K=3 in=bf16' logits=logits.npy \
        --device model >out 2>err &
    process=$!
    until [ -e begun ] || ! kill -0 $process 2>/dev/null; do sleep 0.05; done
    ls -d "$TMPDIR"/cache/model/work-* "$TMPDIR"/quern-model-*/work-* 2>/dev/null | grep -c . # there is one now
    kill -"$1" $process
    { wait $process; } 2>/dev/null
    echo "$1 = $?"
    ls -d "$TMPDIR"/cache/model/work-* "$TMPDIR"/quern-model-* 2>/dev/null
}
interrupted TERM "$TMPDIR/cache"
interrupted HUP "$TMPDIR/cache"
# A signal that is ignored, as under nohup, ends nothing: the compiler, which makes no object here, does.
(trap '' HUP; interrupted HUP "$TMPDIR/cache"; grep -c interrupted err)
mkdir -m 777 "$TMPDIR/open" # is not safe, so that objects go to a temporary folder
interrupted TERM "$TMPDIR/open"
