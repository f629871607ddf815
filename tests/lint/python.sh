#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Every Python file, known by its first line or its name, compiles without a warning, and the pyflakes package finds nothing in it.
set -euo pipefail
cd "$1"
source tests/lint/files.sh
command -v python3 >/dev/null || { echo "python3 is not installed"; exit 77; }
bad=0
files=$(source_files '*' | grep -v '^tests/golden/' |
    xargs -d '\n' awk 'FNR == 1 && (/^#!.*[\/ ]python[0-9.]*([ \t]|$)/ || FILENAME ~ /\.py$/) { print FILENAME } { nextfile }')
mapfile -t sources <<<"$files"
python3 -W error - "${sources[@]}" <<'END' || bad=1
import sys

bad = 0
for path in sys.argv[1:]:
    try:
        with open(path, "rb") as file:
            compile(file.read(), path, "exec")
    except (SyntaxError, ValueError) as error:
        print(f"{path}: {error}")
        bad = 1
sys.exit(bad)
END
# Debian's package is for Debian's Python.
for python in python3 /usr/bin/python3; do
    if "$python" -c 'import pyflakes' 2>/dev/null; then
        "$python" -m pyflakes "${sources[@]}" || bad=1
        exit $bad
    fi
done
[ $bad -eq 0 ] || exit 1
echo "pyflakes is not installed"
exit 77
