# SPDX-License-Identifier: Apache-2.0
# cache: rows that are damaged stop a chain of commands, and the good ones are saved all the same.
for experts in 8 16 24; do echo "gate E=$experts K=2 in=f32 [N 1]"; done >list
quern warm @list --arch sm_90a --db good.db >"$TMPDIR/out"
quern warm @list --arch sm_80 --db part1.db >"$TMPDIR/out"
spoil() { # FILE IDS: zeros in place of images
    cp good.db "$1"
    sqlite3 "$1" "UPDATE kernel SET image = zeroblob(length(image)) WHERE id IN ($2)"
}
spoil two.db 1,2
spoil all.db 1,2,3
t quern cache import two.db part1.db --db kernels.db
t quern cache verify kernels.db
quern cache import two.db part1.db --db kernels.db >"$TMPDIR/out" 2>&1 && quern cache verify kernels.db && quern cache seal kernels.db
echo "the chain: $?"
t quern cache import all.db --db none.db
t_json quern cache import two.db --db other.db --json

# A file that cannot be read stops no other, and fails.
: >empty.db
head -c 20000 good.db >torn.db
t quern cache import empty.db absent.db torn.db part1.db --db rest.db
t quern cache import rest.db part1.db --db rest.db

# A copy has what is sound.
t quern cache export copy.db --db two.db
t quern cache verify copy.db
t quern cache export nothing.db --db all.db
t quern cache info nothing.db >"$TMPDIR/shown"
grep entries "$TMPDIR/shown"
t quern cache export whole.db --db good.db
t quern cache export torn_copy.db --db torn.db
ls torn_copy.db 2>&1

# repair is for a file's structure, and says what is not its to mend.
t quern cache repair two.db
t quern cache repair good.db
t_json quern cache repair two.db --json
t quern cache prune two.db
t quern cache repair two.db
