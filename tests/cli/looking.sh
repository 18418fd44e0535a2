# SPDX-License-Identifier: Apache-2.0
# What only looks makes and changes nothing: no database, no folder of it; and one that is named must be there.
spec='gate E=8 K=2 in=f32'
for kind in plan source key; do t quern show $kind "$spec" --arch sm_90a --db typo.db; done
t quern tune --list --db typo.db
t quern tune --explain "$spec" --db typo.db
for kind in plan source key; do quern show $kind "$spec" --arch sm_90a >"$TMPDIR/out" 2>&1 || echo failed; done
quern tune --list >"$TMPDIR/out" 2>&1 || echo failed
quern tune --explain "$spec" >"$TMPDIR/out" 2>&1 || echo failed
quern tune --compare >"$TMPDIR/out" 2>&1 || echo failed
ls "$QUERN_CACHE_DIR" . 2>&1

# A database that is there is read, and stays as it is, byte for byte.
t quern warm "$spec" --arch sm_90a --db own.db
sum=$(cksum <own.db)
chmod a-w own.db
for kind in plan source key; do quern show $kind "$spec" --arch sm_90a --db own.db >"$TMPDIR/out" 2>&1 || echo failed; done
quern tune --list --db own.db >"$TMPDIR/out" 2>&1 || echo failed
[ "$sum" = "$(cksum <own.db)" ] && echo same
ls

# resources compiles, and keeps what it has compiled.
t quern show resources "$spec" --N 1 --arch sm_90a --db made.db >"$TMPDIR/shown"
grep -c ' compiled ' "$TMPDIR/shown"
t quern show resources "$spec" --N 1 --arch sm_90a --db made.db >"$TMPDIR/shown"
grep -c ' user ' "$TMPDIR/shown"

# The words of $QUERN_MODE stay what they are.
t env QUERN_MODE=srict quern show plan "$spec" --arch sm_90a
env QUERN_MODE=strict quern show plan "$spec" --arch sm_90a >"$TMPDIR/out" 2>&1 || echo failed
