#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Spelling of everything that people read, and an SPDX line at the top of what they build from.
set -euo pipefail
cd "$1"
source tests/lint/files.sh
command -v codespell >/dev/null || { echo "codespell is not installed"; exit 77; }
bad=0
# All but what programs have made, and what fuzz targets begin with.
files=$(source_files '*' | grep -vE '^tests/(golden|fuzz/corpus)/|^docs/results/.*-runs/|\.svg$')
mapfile -t text <<<"$files"
codespell --ignore-words tests/lint/words.txt "${text[@]}" || bad=1
# All but documents, and data that can have no comments.
files=$(grep -vE '\.(md|h2m|json|tsv)$|^LICENSE$|^\.(gitignore|clang-format)$|^tests/lint/words\.txt$' <<<"$files")
mapfile -t sources <<<"$files"
for file in "${sources[@]}"; do
    head -n 3 "$file" | grep -q 'SPDX-License-Identifier: Apache-2.0' || { echo "$file: no SPDX line at the top"; bad=1; }
done
exit $bad
