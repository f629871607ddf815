#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Every unit test and case of the command line is given to CMake, and documents name only tests that are.
set -euo pipefail
cd "$1"
source tests/lint/files.sh
declare -A folder=([unit]=. [cli]=cli [run]=mpi [emulated]=cuda [gpu]=cuda [oracle]=oracle [faults]=faults
    [measuring]=measuring [fuzz]=fuzz [install]=install [lint]=lint)
declare -A known # FAMILY.WORD: most names stand in lists there, so that any word may be one
bad=0

complain() {
    echo "$1"
    bad=1
}

for family in "${!folder[@]}"; do
    case $family in unit | cli) continue ;; esac
    words=$(sed 's/#.*//' "tests/${folder[$family]}/CMakeLists.txt" | grep -oE '[a-z0-9_]+')
    for word in $words; do known[$family.$word]=1; done
done

calls=$(grep -hoE '^ *pp_(unit|cli)_test\([a-z0-9_]+' tests/CMakeLists.txt tests/cli/CMakeLists.txt | tr -d ' ')
files=$(source_files 'tests/cli/*.test' 'tests/unit/test_*.c')
while IFS='_(' read -r _ family _ name; do known[$family.$name]=1; done <<<"$calls"
named=$(grep -hoE 'NAME (unit|cli)\.[a-z0-9_]+' tests/CMakeLists.txt tests/cli/CMakeLists.txt)
while read -r _ name; do known[$name]=1; done <<<"$named"
while read -r file; do
    name=${file##*/} name=${name%.*}
    if [[ $file == *.test ]]; then call="pp_cli_test($name"; else call="pp_unit_test(${name#test_}"; fi
    grep -qxF -- "$call" <<<"$calls" || complain "$file: no line $call ...) in CMakeLists.txt"
done <<<"$files"

files=$(source_files '*.md')
names=$(xargs -d '\n' grep -HoE "\`($(IFS='|' && echo "${!folder[*]}"))\.[a-z0-9_]+\`" <<<"$files" | tr -d '`' |
    grep -vE '\.(sh|cuh)$' | sort -u)
while IFS=: read -r file name; do
    [ "${known[$name]-}" ] || complain "$file: there is no test $name"
done <<<"$names"
exit $bad
