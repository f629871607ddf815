#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The include rule: a library folder includes itself and core/ only; only the four programs join folders. A folder of core/
# includes itself and those below it. Foreign headers stay in the folders that own them.
set -euo pipefail
cd "$1"
source tests/lint/files.sh
programs='^(sim/ppsim|exec/ppexec|kernels/ppprof|analysis/ppreport)\.c$'
declare -A core=([base]=0 [calls]=1 [shape]=2 [plan]=3 [model]=4 [options]=5 [job]=6 [database]=7) # the lowest first
bad=0

complain() {
    echo "$1:$2: includes $3, which $4"
    bad=1
}

# file line header, for each #include of the sources
includes() {
    source_files '*.c' '*.h' '*.cu' '*.cuh' | grep -v '^tests/' |
        xargs grep -HnE '^[[:space:]]*#[[:space:]]*include' |
        sed -E 's/^([^:]+):([0-9]+):[^<"]*[<"]([^>"]+)[>"].*/\1 \2 \3/'
}

lines=$(includes) # not <(includes), whose failure nobody would see
while read -r file line header; do
    folder=${file%%/*}
    case $header in
        core/*)
            part=${header#core/} part=${part%%/*} own=${file#core/} own=${own%%/*}
            if [ -z "${core[$part]:-}" ]; then
                complain "$file" "$line" "$header" "is in no folder of core that has a height"
            elif [ "$folder" = core ] && [ "${core[$own]:--1}" -lt "${core[$part]}" ]; then
                complain "$file" "$line" "$header" "is above core/$own"
            fi ;;
        "$folder"/*) ;;
        schedules/* | kernels/* | sim/* | exec/* | analysis/*)
            [[ $file =~ $programs ]] || complain "$file" "$line" "$header" "is neither core/ nor $folder/" ;;
        mpi.h) [ "$folder" = exec ] || complain "$file" "$line" "$header" "belongs to exec/" ;;
        sqlite3.h) [[ $folder == analysis || $file == core/database/* ]] ||
            complain "$file" "$line" "$header" "belongs to core/database/ and analysis/" ;;
        cblas.h | Random123/*) [ "$folder" = kernels ] || complain "$file" "$line" "$header" "belongs to kernels/" ;;
        cuda* | nccl*) [[ $folder == kernels || $folder == exec ]] ||
            complain "$file" "$line" "$header" "belongs to kernels/ and exec/" ;;
        *) if grep -qF "#include \"$header\"" "$file"; then
            complain "$file" "$line" "$header" "is not written from the root of the source"
        fi ;;
    esac
done <<<"$lines"
exit $bad
