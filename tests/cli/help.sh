# SPDX-License-Identifier: Apache-2.0
# Help and version: on standard output, exit status 0; no command at all is usage.
t quern
t quern --help
t quern --version
for command in run warm tune cache show ops pack unpack doctor bench; do
    t quern "$command" --help >"$TMPDIR/help"
    head -n 2 "$TMPDIR/help"
    tail -n 1 "$TMPDIR/help"
done
t quern show -h
t quern bench softmax_topk --help >"$TMPDIR/help"
head -n 2 "$TMPDIR/help"
t quern help
t quern version
t quern help bench >"$TMPDIR/help"
head -n 2 "$TMPDIR/help"
t quern help frobnicate
t quern help warm show
t quern version now
for word in help version; do # commands too, with no help but the whole's
    t quern help $word >"$TMPDIR/help"
    head -n 2 "$TMPDIR/help"
    tail -n 1 "$TMPDIR/help"
done
t quern verison
