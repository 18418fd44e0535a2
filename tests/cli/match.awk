# SPDX-License-Identifier: Apache-2.0
# awk -f match.awk EXPECTED SEEN: exit status 0 when the lines agree; else prints the first that do not. In EXPECTED <N>
# stands for a number, <*> for anything, a line "..." for any number of lines (up to the first that fits the next one).

# An expected line as a regular expression.
function pattern(line) {
    gsub(/[][\\^$.|?*+(){}]/, "\\\\&", line)
    gsub(/<N>/, "[0-9]+([.][0-9]+)?", line)
    gsub(/<\\\*>/, ".*", line)
    return "^" line "$"
}

# A script that has nothing to test here shows what is expected, wildcards and all.
function agrees(line, wanted) {
    return line == wanted || line ~ pattern(wanted)
}

FNR == NR { expected[++count] = $0; next }
{ seen[++lines] = $0 }

END {
    e = s = 1
    skipping = 0
    while (e <= count) {
        if (expected[e] == "...") { skipping = 1; e++; continue }
        while (skipping && s <= lines && !agrees(seen[s], expected[e])) s++
        if (s > lines || !agrees(seen[s], expected[e])) {
            printf "line %d: expected: %s\n", e, expected[e]
            printf "line %d: seen:     %s\n", s, (s > lines ? "(the end)" : seen[s])
            exit 1
        }
        skipping = 0
        e++
        s++
    }
    if (!skipping && s <= lines) {
        printf "line %d: not expected: %s\n", s, seen[s]
        exit 1
    }
}
