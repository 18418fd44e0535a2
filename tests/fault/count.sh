#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# tests/fault/count.sh [BUILD]: runs the fault tests of a build folder and says how many faults were tried and survived,
# by kind and in all. Exit status 1 if a test failed or a fault was not survived.
set -uo pipefail
build=${1:-build}
log=$(mktemp)
trap 'rm -f "$log"' EXIT
ctest --test-dir "$build" -L fault -V >"$log" 2>&1
status=$?
[ $status = 0 ] || grep -E 'FAILED|Failed|\*\*\*' "$log" >&2
sed -n 's/^[0-9]*: faults: \([0-9]*\) tried, \([0-9]*\) survived: \(.*\)$/\1 \2 \3/p' "$log" | awk '
  { tried = $1; survived = $2; $1 = $2 = ""; kind = substr($0, 3)
    all += tried; good += survived; printf "%7d tried %7d survived  %s\n", tried, survived, kind }
  END { printf "%7d tried %7d survived  all\n", all, good; exit !(all > 0 && all == good) }' || status=1
exit $status
