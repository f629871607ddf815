#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Every shell script, known by its first line or its name, passes the shellcheck program.
set -euo pipefail
cd "$1"
source tests/lint/files.sh
command -v shellcheck >/dev/null || { echo "shellcheck is not installed"; exit 77; }
files=$(source_files '*' | grep -v '^tests/golden/' |
    xargs -d '\n' awk 'FNR == 1 && (/^#!.*[\/ ](ba|da|k)?sh([ \t]|$)/ || FILENAME ~ /\.(sh|bash)$/) { print FILENAME } { nextfile }')
mapfile -t scripts <<<"$files"
shellcheck --exclude SC1091 "${scripts[@]}"
