# SPDX-License-Identifier: Apache-2.0
# cache: a database's life: filled, listed, verified, copied, merged, sealed, served read-only, pruned, damaged, mended.
spec='softmax_topk V=16 K=4 in=f32'
t quern warm "$spec" --arch sm_90a --db first.db
t quern cache list --db first.db
t quern cache info first.db
t quern cache verify --db first.db
t quern cache export copy.db --db first.db
t quern cache import copy.db --db second.db
t quern cache seal second.db
sum=$(cksum <second.db)
t env QUERN_SEALED=second.db QUERN_MODE=strict quern warm "$spec" --arch sm_90a
t env QUERN_SEALED=second.db QUERN_MODE=strict quern warm "$spec" --arch sm_80
[ "$sum" = "$(cksum <second.db)" ] && echo 'the sealed file is as it was'
chmod a+w second.db
t env QUERN_SEALED=second.db QUERN_MODE=strict quern warm "$spec" --arch sm_90a --db ''
chmod 0444 second.db
t quern cache prune --cap 0 --db first.db
t quern warm "$spec" --arch sm_90a --db first.db
head -c 8192 first.db >torn.db
t quern cache verify --db torn.db
t quern cache repair --db torn.db
t quern cache frobnicate
t quern cache
t_json quern cache list --db first.db --json
t_json quern cache info --db first.db --json

# A copy that was cut off at once.
: >empty.db
t quern cache verify empty.db
t quern cache seal empty.db
t quern cache list empty.db
t quern cache export of_empty.db --db empty.db
ls of_empty.db 2>&1
t quern cache import empty.db --db first.db
rm -f empty.db

# What repair is not for.
seq 20000 >text.txt
t quern cache repair text.txt
sqlite3 foreign.db 'PRAGMA application_id = 1234; CREATE TABLE t(x)'
t quern cache repair foreign.db
head -c 16384 /dev/zero | dd of=first.db conv=notrunc status=none
t quern cache repair first.db
t quern cache verify first.db
ls
