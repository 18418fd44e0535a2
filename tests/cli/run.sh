#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Runs a command-line test: run.sh [--update] QUERN NAME. Executes NAME.sh, which lies beside this file, in an empty
# folder with an environment of its own, and compares its transcript with NAME.expected. Exit status 0: they agree.
#
# A script runs commands through t (lib.sh), which writes "$ command", its output, its error output with "! " before
# each line, and "= status". In an expected line <N> stands for a number, <*> for anything; a line "..." for any lines.
# --update writes NAME.expected anew, without wildcards: put them back by hand.
set -u
umask 022 # a folder that its group may write to is refused as a database's
update=no
if [ "${1:-}" = --update ]; then update=yes; shift; fi
if [ $# -ne 2 ]; then echo "usage: run.sh [--update] QUERN NAME" >&2; exit 2; fi

here=$(cd "$(dirname "$0")" && pwd) || exit 2
quern=$(cd "$(dirname "$1")" && pwd)/$(basename "$1") || exit 2
name=$2
scratch=$(mktemp -d "${TMPDIR:-/tmp}/quern-cli-XXXXXX") || exit 2
trap 'chmod -R u+w "$scratch" 2>/dev/null; rm -rf "$scratch"' EXIT INT TERM

mkdir "$scratch/bin" "$scratch/home" "$scratch/here" && ln -s "$quern" "$scratch/bin/quern" || exit 2
for variable in $(env | sed -n 's/^\(QUERN_[A-Z_]*\)=.*/\1/p'); do
    case $variable in QUERN_NVRTC) ;; *) unset "$variable" ;; esac
done
unset XDG_CACHE_HOME
# No GPU is shown, so that a transcript is the same on every machine.
export LC_ALL=C HOME="$scratch/home" PATH="$scratch/bin:$PATH" CUDA_VISIBLE_DEVICES="" \
    QUERN_CACHE_DIR="$scratch/cache" QUERN_CLI="$here" TMPDIR="$scratch"

(cd "$scratch/here" && . "$here/lib.sh" && . "$here/$name.sh") >"$scratch/transcript" 2>&1
sed "s|$scratch|SCRATCH|g" "$scratch/transcript" >"$scratch/seen"

if [ "$update" = yes ]; then cp "$scratch/seen" "$here/$name.expected"; exit 0; fi
if awk -f "$here/match.awk" "$here/$name.expected" "$scratch/seen"; then exit 0; fi
echo "---- the whole transcript"
cat "$scratch/seen"
exit 1
