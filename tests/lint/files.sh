# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# Sourced by the lints. source_files PATTERN ...: files of the source below the current folder, one a line, without what was built.
source_files() {
    if git rev-parse --is-inside-work-tree >/dev/null 2>&1; then
        git ls-files --cached --others --exclude-standard -- "$@" | while read -r file; do
            if [ -f "$file" ]; then echo "$file"; fi # pipefail: a file that is gone fails nobody
        done
    else
        local pattern
        for pattern in "$@"; do
            find . \( -path ./build -o -path ./quickstart-results \) -prune -o -type f -path "./$pattern" -print | sed 's|^\./||'
        done
    fi
}
