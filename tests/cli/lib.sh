# SPDX-License-Identifier: Apache-2.0
# What the scripts of command-line tests share; sourced by run.sh.

# Runs a command and writes its transcript.
t() {
    printf '$'
    for word in "$@"; do
        case $word in *[!A-Za-z0-9_./=:,@+-]* | '') printf " '%s'" "$word" ;; *) printf ' %s' "$word" ;; esac
    done
    printf '\n'
    "$@" >"$TMPDIR/out" 2>"$TMPDIR/err"
    status=$?
    cat "$TMPDIR/out"
    sed 's/^/! /' "$TMPDIR/err"
    printf '= %d\n' "$status"
}

# A .npy file: npy FILE DESCR FORTRAN SHAPE DATA, DATA with the escapes of printf.
npy() {
    printf '\223NUMPY\001\000\166\000%-117s\n' "{'descr': '$2', 'fortran_order': $3, 'shape': $4, }" >"$1"
    printf "$5" >>"$1"
}

# Two rows of eight bf16 numbers: 1 3 2 0 3 -1 0 2 and eight times 1.
logits() {
    npy "$1" '<u2' False '(2, 8)' \
        '\200\077\100\100\000\100\000\000\100\100\200\277\000\000\000\100\200\077\200\077\200\077\200\077\200\077\200\077\200\077\200\077'
}

# The integers of a .npy file, without its header.
integers() {
    tail -c +129 "$1" | od -An -v -t "d${2:-4}"
}

# Says whether standard output of the last t was JSON.
json() {
    sqlite3 :memory: "SELECT CASE json_valid(CAST(readfile('$TMPDIR/out') AS TEXT)) WHEN 1 THEN 'json' ELSE 'not json' END"
}

# As t, but only whether the output is JSON is written of it.
t_json() {
    t "$@" >"$TMPDIR/whole"
    head -n 1 "$TMPDIR/whole"
    json
    tail -n 1 "$TMPDIR/whole"
}
