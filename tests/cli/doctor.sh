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
# Values that nothing accepts, and names that nothing reads: bad where a known one is near. (QUERN_CLI is this test's own.)
t env QUERN_LOG=compile,cahce QUERN_LINE_INFO=yes QUERN_MODEL=asna QUERN_DUMP=dumps QUERN_SEALD=a.db QUERN_LOGFILE=x \
    QUERN_CACHE=y QUERN_COLOUR=1 quern doctor >"$TMPDIR/broken"
awk '/^environment/ { shown = /QUERN_/ && !/QUERN_NVRTC/ } shown' "$TMPDIR/broken"
chmod 700 "$QUERN_CACHE_DIR"
t quern doctor --db "$TMPDIR/here/own.db" >"$TMPDIR/shown"
grep -E '^(cache folder|free space|database|model cache)|^=' "$TMPDIR/shown"
mkdir -p "$QUERN_CACHE_DIR/model" && truncate -s 300M "$QUERN_CACHE_DIR/model/large.so" # of a run that is not over
quern doctor | grep -A 1 '^model cache'
rm -r "$QUERN_CACHE_DIR/model"
# A place that takes no files, though its mode allows them, is not ok, and neither is one below it.
for place in /proc/x /proc; do
    t env QUERN_CACHE_DIR=$place QUERN_DUMP=$place/dump QUERN_LOG_FILE=$place/log quern doctor >"$TMPDIR/shown"
    grep -E '^(cache folder|database|model cache|environment.*(DUMP|LOG_FILE))|^=' "$TMPDIR/shown"
done
t quern doctor --db /proc/own.db >"$TMPDIR/shown"
grep -E '^(cache folder|database)|^=' "$TMPDIR/shown"
mkdir -m 700 "$TMPDIR/taken" && : >"$TMPDIR/taken/file"
t env QUERN_CACHE_DIR="$TMPDIR/taken/file/x" quern doctor >"$TMPDIR/shown"
grep -E '^(cache folder|model cache)|^=' "$TMPDIR/shown"
t env QUERN_CACHE_DIR="$TMPDIR/taken/a/b" quern doctor >"$TMPDIR/shown"
grep -E '^(cache folder|model cache)|^=' "$TMPDIR/shown"
ls -A "$TMPDIR/taken" # nothing was left
t env QUERN_TEMPLATES="$TMPDIR/taken" quern doctor >"$TMPDIR/shown"
grep '^templates' "$TMPDIR/shown"
t quern doctor --db absent/own.db >"$TMPDIR/shown"
grep -E '^(cache folder|free space|database)|^=' "$TMPDIR/shown"
# A program with a --version is no compiler for that; of several words in CXX the first is the program.
printf '#!/bin/sh\necho "pretender 1.0"\n' >pretender && chmod +x pretender
for cxx in ./pretender false /nonexistent/g++ "env ${CXX:-g++}"; do
    t env CXX="$cxx" quern doctor >"$TMPDIR/shown"
    awk '/^C\+\+ compiler/ { lines = 2 } lines-- > 0 && !/^model cache/' "$TMPDIR/shown"
done
