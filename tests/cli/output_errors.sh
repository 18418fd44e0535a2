# SPDX-License-Identifier: Apache-2.0
# Outputs that cannot be written: exit status 1 before anything is computed, and the other outputs stay as they were.
spec='softmax_topk V=8 K=3 in=bf16'
logits logits.npy
echo old >indices.npy
mkdir folder.npy closed
t quern run "$spec" logits=logits.npy indices=indices.npy values=absent/values.npy --device cpu
t quern run "$spec" logits=logits.npy indices=indices.npy values=folder.npy --device cpu
t quern run "$spec" logits=logits.npy indices=indices.npy values=/dev/null --device cpu
cat indices.npy
ls

# A folder and a file that this user may not write: as root, another user is needed.
as=
if [ "$(id -u)" = 0 ]; then as='setpriv --reuid 65534 --regid 65534 --clear-groups'; chmod 755 "$TMPDIR" . ; fi
chmod 555 closed
t $as quern run "$spec" logits=logits.npy values=closed/values.npy --device cpu >"$TMPDIR/shown"
tail -n +2 "$TMPDIR/shown"
ls closed
t $as quern show plan "$spec" --arch sm_90a --db /etc/passwd >"$TMPDIR/shown" # in a folder that is not this user's
tail -n +2 "$TMPDIR/shown"

# A link stays a link, and an existing file keeps its mode.
echo old >target.npy
chmod 640 target.npy
ln -s target.npy link.npy
t quern run "$spec" logits=logits.npy indices=link.npy --device cpu
stat -c '%N %a' link.npy target.npy | sed "s/[‘’'\"]//g"
integers target.npy

# One file under two names, there already or not yet.
t quern run "$spec" logits=logits.npy values=./logits.npy --device cpu
t quern run "$spec" logits=logits.npy values=fresh.npy indices=./fresh.npy --device cpu
t quern run "$spec" logits=logits.npy values=target.npy indices=link.npy --device cpu
