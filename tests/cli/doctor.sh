# SPDX-License-Identifier: Apache-2.0
# doctor: every part is spoken of; what is broken makes it fail, what is absent does not.
t quern doctor
mkdir -p "$QUERN_CACHE_DIR"
chmod 777 "$QUERN_CACHE_DIR"
t env QUERN_TEMPLATES=/nonexistent QUERN_SEALED=absent.db quern doctor >"$TMPDIR/broken"
grep -E ' bad  |^[!=]' "$TMPDIR/broken"
t env QUERN_NVRTC=/nonexistent/libnvrtc.so quern doctor >"$TMPDIR/broken"
grep -A 2 '^nvrtc' "$TMPDIR/broken"
tail -n 2 "$TMPDIR/broken"
t env QUERN_MODE=srict QUERN_TUNE=off quern doctor >"$TMPDIR/broken"
grep -A 1 '^environment.*QUERN_MODE' "$TMPDIR/broken"
grep '^environment.*QUERN_TUNE' "$TMPDIR/broken"
chmod 700 "$QUERN_CACHE_DIR"
t quern doctor --db "$TMPDIR/here/own.db" >"$TMPDIR/shown"
grep -E '^(cache folder|free space|database|model cache)|^=' "$TMPDIR/shown"
t quern doctor --db absent/own.db >"$TMPDIR/shown"
grep -E '^(cache folder|free space|database)|^=' "$TMPDIR/shown"
