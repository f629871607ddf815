#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Spelling of everything that people read, and an SPDX line at the top of what they build from.
set -euo pipefail
cd "$1"
source tests/lint/files.sh
command -v codespell >/dev/null || { echo "codespell is not installed"; exit 77; }
bad=0
files=$(source_files '*.c' '*.h' '*.cu' '*.cuh' '*.md' '*.sh' '*.txt' '*.cmake' '*.sql' '*.gp' | grep -v '^tests/golden/')
mapfile -t text <<<"$files"
codespell --ignore-words tests/lint/words.txt "${text[@]}" || bad=1
files=$(grep -E '\.(c|h|cu|cuh|sh|cmake|sql|gp)$|CMakeLists.txt$' <<<"$files")
for file in $files; do
    head -n 3 "$file" | grep -q 'SPDX-License-Identifier: Apache-2.0' || { echo "$file: no SPDX line at the top"; bad=1; }
done
exit $bad
