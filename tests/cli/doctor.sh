# SPDX-License-Identifier: Apache-2.0
# doctor: every part is spoken of; what is broken makes it fail, what is absent does not.
t quern doctor
mkdir -p "$QUERN_CACHE_DIR"
chmod 777 "$QUERN_CACHE_DIR"
t env QUERN_TEMPLATES=/nonexistent QUERN_SEALED=absent.db quern doctor >"$TMPDIR/broken"
grep -E ' bad  |^[!=]' "$TMPDIR/broken"
