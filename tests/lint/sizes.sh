#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Files fit the eye: at most 400 lines of 120 columns; functions at most 60 lines and 15 paths (McCabe). A kernel of a GPU may have 25: the
# same loop once for each pass over memory, with the ends of rows in each. Templates of *.cuh pmccabe cannot read.
# Documents have 120 columns, too, but where lines cannot be cut: in tables, code, and long links.
set -euo pipefail
cd "$1"
source tests/lint/files.sh
command -v pmccabe >/dev/null || { echo "pmccabe is not installed"; exit 77; }
bad=0

report() {
    [ -z "$1" ] || { echo "$1"; bad=1; }
}

# Each list is a variable of its own first: bash goes on where a command fails inside of another's arguments.
files=$(source_files '*.c' '*.h' '*.cu' '*.cuh')
mapfile -t sources <<<"$files"
found=$(wc -l "${sources[@]}" | awk '$2 != "total" && $1 > 400 { print $2 ": " $1 " lines, more than 400" }')
report "$found"
found=$(awk 'length > 120 { print FILENAME ":" FNR ": " length " columns, more than 120" }' "${sources[@]}")
report "$found"

documents=$(source_files '*.md' | grep -v '^docs/results/.*-runs/') # what programs made
mapfile -t documents <<<"$documents"
found=$(LC_ALL=C awk '
    FNR == 1 { fenced = 0 }
    /^ *```/ { fenced = !fenced }
    fenced || /^    / || /^ *\|/ || /^[ >-]*[^ ]+$/ { next }
    { gsub(/[\200-\277]/, "") } # the second and further bytes of UTF-8
    length > 120 { print FILENAME ":" FNR ": " length " columns, more than 120" }' "${documents[@]}")
report "$found"

# pmccabe does not understand the lists of core/calls/call.h, which has no functions. What else it complains of has no size.
files=$(grep -E '\.(c|h|cu)$' <<<"$files" | grep -vx core/calls/call.h)
mapfile -t units <<<"$files"
# modified McCabe, McCabe, statements, first line, lines, place, name
found=$(pmccabe "${units[@]}" 2>&1 | awk '
    !/^[0-9]/ { print; next }
    { most = $6 ~ /\.cu\(/ ? 25 : 15 }
    $2 > most { print $6 " " $7 ": McCabe " $2 ", more than " most }
    $5 > 60 { print $6 " " $7 ": " $5 " lines, more than 60" }')
report "$found"
exit $bad
