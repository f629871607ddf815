#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs fuzz targets: run.sh [SECONDS [TARGET ...]], by default 30 s of each that was built. What is found lies in the folder
# PP_FUZZ_FINDINGS (default: build/fuzz-findings), and inputs that reach new code in build/fuzz-corpus, where a longer run goes on.
#
# A run by hand tries what no run tried before. With PP_FUZZ_SEED=N it tries the same as every other run of N: it begins from the
# corpus of the source, without random addresses, and ends after PP_FUZZ_RUNS inputs, unless SECONDS are over before.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
source=$(cd "$here/../.." && pwd)
bin=${PP_FUZZ_BIN:-$source/build/fuzz/tests/fuzz/bin}
findings=${PP_FUZZ_FINDINGS:-$source/build/fuzz-findings}
corpora=${PP_FUZZ_CORPUS:-$source/build/fuzz-corpus}
seconds=${1:-30}
shift || true
targets=("$@")
[ $# -gt 0 ] || mapfile -t targets < <(find "$bin" -name 'fuzz_*' -type f -printf '%f\n' 2>/dev/null | sed 's/^fuzz_//' | sort)
[ -x "$bin/fuzz_${targets[0]:-none}" ] || { echo "no fuzz target in $bin: cmake --preset fuzz && cmake --build --preset fuzz"; exit 77; }
bin=$(cd "$bin" && pwd)

folder=$(mktemp -d -p /dev/shm 2>/dev/null || mktemp -d)
trap 'rm -rf "$folder"' EXIT
repeat=() same_addresses=()
if [ -n "${PP_FUZZ_SEED:-}" ]; then
    corpora=$folder/corpus
    repeat=("-seed=$PP_FUZZ_SEED" "-runs=${PP_FUZZ_RUNS:--1}" -reload=0)
    ! setarch -R true 2>/dev/null || same_addresses=(setarch -R) # containers may forbid it
fi
export PP_FUZZ_FOLDER=. # relative, as the name is in messages, and those are compared
export ASAN_OPTIONS=allocator_may_return_null=1:detect_leaks=1 UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1
for target in "${targets[@]}"; do
    mkdir -p "$findings" "$corpora/$target" "$folder/files/$target"
    findings=$(cd "$findings" && pwd) corpora=$(cd "$corpora" && pwd)
    dictionary=()
    [ ! -e "$here/corpus/$target.dict" ] || dictionary=("-dict=$here/corpus/$target.dict")
    (cd "$folder/files/$target" && nice -n 10 "${same_addresses[@]}" "$bin/fuzz_$target" "${repeat[@]}" -max_total_time="$seconds" \
        -timeout=60 -rss_limit_mb=2048 -max_len=65536 -print_final_stats=1 -artifact_prefix="$findings/$target-" "${dictionary[@]}" \
        "$corpora/$target" "$here/corpus/$target") >"$folder/log" 2>&1 || { cat "$folder/log"; exit 1; }
    grep -E '^stat::number_of_executed_units|DONE' "$folder/log" | sed "s/^/$target: /"
done
