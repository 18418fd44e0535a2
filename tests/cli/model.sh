# SPDX-License-Identifier: Apache-2.0
# --device model with a compiler that is none: the first run says what takes its time, where it is kept, and that nothing
# is kept below a cache folder that others may write to. What the model computes is tested by tests/simt.
cat >"$TMPDIR/bin/c++fake" <<'END'
#!/bin/sh
# Preprocesses and makes shared objects, empty ones; the engine does not compile.
case " $* " in
*' --version '*) echo 'c++fake 1.0' ;;
*' -c '*) echo 'fake: no'; exit 1 ;;
*) while [ $# -gt 0 ]; do if [ "$1" = -o ]; then : >"$2"; fi; shift; done ;;
esac
END
chmod +x "$TMPDIR/bin/c++fake"
export CXX=c++fake QUERN_TEMPLATES="$QUERN_CLI/../../kernel_templates"
logits logits.npy
spec='softmax_topk V=8 K=3 in=bf16'
mkdir -p "$QUERN_CACHE_DIR/model/work-killed" # as a process leaves it that was killed
chmod 700 "$QUERN_CACHE_DIR" "$QUERN_CACHE_DIR/model"
t quern run "$spec" logits=logits.npy --device model
ls "$QUERN_CACHE_DIR"
ls "$QUERN_CACHE_DIR/model" | grep work-
chmod 770 "$QUERN_CACHE_DIR"
t quern run "$spec" logits=logits.npy --device model
t quern doctor >"$TMPDIR/shown"
grep -A 1 '^model cache' "$TMPDIR/shown"
ls -A "$TMPDIR" | grep quern-model
