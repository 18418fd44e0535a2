# Reads quern.h without comments; writes a C program that prints its ABI: the size of each structure, offset and size of each
# member, the value of each enumerator, the text of each prototype. Used by abi.sh.
function emit(line) { print line }
function quoted(text) { gsub(/"/, "\\\"", text); return text }

# name of a declarator: the word before an array's bracket, after the stars; of a function pointer the word in (*name)
function member_of(text,    n, parts) {
    if (match(text, /\(\*[a-z_0-9A-Z]+\)/)) return substr(text, RSTART + 2, RLENGTH - 3)
    sub(/\[.*/, "", text)
    gsub(/[*]/, " ", text)
    n = split(text, parts, /[ \t]+/)
    while (n > 0 && parts[n] == "") n--
    return parts[n]
}
function members(type, text,    n, i, statements, k, j, names, name) {
    n = split(text, statements, ";")
    for (i = 1; i <= n; i++) {
        gsub(/[ \t\n]+/, " ", statements[i])
        if (statements[i] ~ /^ *$/) continue
        k = 1
        if (statements[i] ~ /\(\*/) names[1] = statements[i]
        else k = split(statements[i], names, ",")
        for (j = 1; j <= k; j++) {
            name = member_of(names[j])
            emit("    printf(\"member " type "." name " %zu %zu\\n\", offsetof(" type ", " name "), sizeof ((" type " *)0)->" name ");")
        }
    }
}
function values(type, text,    n, i, parts, name) {
    n = split(text, parts, ",")
    for (i = 1; i <= n; i++) {
        name = parts[i]
        sub(/=.*/, "", name)
        gsub(/[ \t\n]/, "", name)
        if (name ~ /^QUERN_[A-Z0-9_]+$/ && name !~ /STATUS_LIST/)
            emit("    printf(\"value " type " " name " %lld\\n\", (long long)" name ");")
    }
}
BEGIN {
    emit("#include <quern/quern.h>\n#include <stdio.h>\n\nint main(void)\n{")
}
/^[ \t]*#/ { continued = /\\$/; next } # a directive and the lines that it goes on in
continued { continued = /\\$/; next }
kind == "" && /^(typedef )?(struct|union|enum) quern[a-z_0-9]* *\{/ {
    kind = /enum/ ? "enum" : "struct"
    type = $0
    sub(/^(typedef )?(struct|union|enum) /, "", type)
    sub(/ *\{.*/, "", type)
    is_typedef = /^typedef/
    body = $0
    sub(/^[^{]*\{/, "", body)
    if (body !~ /\}/) next
    $0 = body # all of it on one line
    body = ""
}
kind != "" && /\}/ {
    sub(/\}.*/, "", $0)
    body = body "\n" $0
    if (type == "quern_status") body = "" # its list says all of them, below
    if (kind == "enum") values(type, body)
    else {
        emit("    printf(\"size " type " %zu\\n\", sizeof(" (is_typedef ? "" : "struct ") type "));")
        members((is_typedef ? "" : "struct ") type, body)
    }
    kind = ""
    next
}
kind != "" { body = body "\n" $0; next }
/^QUERN_API/ { prototype = "" ; in_prototype = 1 }
in_prototype {
    prototype = prototype " " $0
    if (/;/) {
        in_prototype = 0
        sub(/^ *QUERN_API */, "", prototype)
        sub(/;.*/, "", prototype)
        gsub(/[ \t\n]+/, " ", prototype)
        emit("    puts(\"function " quoted(prototype) "\");")
    }
}
END {
    emit("#define X(name, code, text) printf(\"value quern_status QUERN_\" #name \" %d\\n\", (int)QUERN_##name);")
    emit("    QUERN_STATUS_LIST(X)\n    return 0;\n}")
}
