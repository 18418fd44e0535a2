# SPDX-License-Identifier: Apache-2.0
# Ctrl-C while results are imported: it ends, says what is kept, and that is what is there. The import is held by a lock
# on the database, so that the signal finds it in the middle.
version=$(quern --version | sed 's/quern //')-1
i=0
echo 'quern-tune 1' >many.txt
while [ $i -lt 200 ]; do
    i=$((i + 1))
    printf 'GPU %d\t90\t132\t233472\t62914560\t13\t%s\tsm_90a\tgate E=40 K=6 in=f32\tN 1..64\tN=8\t' $i "$version"
    printf 'plan=block ctas=8\tbest\t5000\t40\t1000\t\n'
done >>many.txt
head -n 2 many.txt >one.txt
quern tune --import many.txt --db many.db

# catches PROCESS: whether it has a handler of SIGINT
catches() { mask=$(sed -n 's/^SigCgt:.*\(.\)$/\1/p' "/proc/$1/status" 2>/dev/null); case $mask in [2367abefABEF]) ;; *) return 1 ;; esac; }
# interrupt COMMAND...: its output and status; own.db is locked until the signal has been sent
interrupt() {
    rm -f own.db hold locked
    quern tune --import one.txt --db own.db >/dev/null
    mkfifo hold
    sqlite3 own.db <hold >locked &
    holder=$!
    exec 9>hold
    echo 'BEGIN IMMEDIATE; SELECT 1;' >&9
    until [ -s locked ]; do sleep 0.05; done
    "$@" >out 2>err &
    process=$!
    until catches $process || ! kill -0 $process 2>/dev/null; do sleep 0.05; done
    kill -INT $process
    echo 'ROLLBACK;' >&9
    exec 9>&-
    wait $holder
    wait $process
    echo "= $?"
    sed 's/^/! /' err
    kept=$(sed -n 's/.*interrupted: .*\<\([0-9]*\) ranges\{0,1\} of sizes .*imported.*/\1/p' err)
    [ "$(sqlite3 own.db 'SELECT count(*) FROM tune')" = $((kept + 1)) ] && [ "$kept" -lt 199 ] && echo "as many as it says"
    ls own.db-journal 2>/dev/null
}
interrupt quern tune --import many.txt --db own.db
quern tune --import many.txt --db own.db >out && sqlite3 own.db 'SELECT count(*) FROM tune'
interrupt quern cache import many.db --db own.db
