#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Predicted and executed time of a step where tasks are timed waits: every schedule, threads and processes, with and without a straggler.
#   delay.sh [RANKS CHUNKS TIMES TOLERANCE]      tolerance in percent
# Each schedule has several tries, of which one must hold: a machine that is busy with other things only makes waits longer.
# shellcheck source=tests/mpi/common.sh
source "$(dirname "$0")/common.sh"
need jq
ranks=${1:-8} chunks=${2:-8} times=${3:-5,6,4,1} tolerance=${4:-10} tries=5
schedules=$(ppsim --list --format json | jq -r '[.schedules[].name] | join(",")')
[ -n "$schedules" ] || fail "ppsim --list shows no schedules"

# The smallest model: only its number of layers counts. Two stages on a rank at most.
pipeline=(--preset lab --data generated --layers $((2 * ranks)) --rows "$chunks" --stages "$ranks" --chunks "$chunks" --no-eval
    --device delay --times "$times" --format json)

ppexec_by() { # threads|processes options...
    local by=$1
    shift
    if [ "$by" = threads ]; then ppexec "$@"; else mpirun -n 2 ppexec "$@"; fi
}

# The lines that are further apart than allowed.
misses() {
    jq -rn --slurpfile p predicted --slurpfile m measured --argjson tolerance "$tolerance" --arg what "$*" '
        [$p[0], $m[0]] | transpose[] | {p: .[0], m: .[1], e: (100 * (.[1].ms_per_batch / .[0].ms_per_batch - 1))} |
        "\(if .p.plan == .m.plan and (.e | fabs) <= $tolerance then "within" else "MISSED" end) \(.p.schedule) \($what): " +
        "predicted \(.p.ms_per_batch) ms, executed \(.m.ms_per_batch) ms, \(.e * 1000 | round / 1000) %"'
}

compare() { # threads|processes options...
    local by=$1 try left=$schedules
    shift
    for try in $(seq $tries); do
        ppsim "${pipeline[@]}" --schedule "$left" "$@" >predicted
        ppexec_by "$by" "${pipeline[@]}" --schedule "$left" --epochs 1 --max-batches 3 --warmup 1 --trace-steps 1 "$@" \
            >measured 2>"$by.log"
        jq -e --slurpfile p predicted 'length == ($p[0] | length)' measured >/dev/null || fail "other configurations: $*"
        misses "$ranks ranks by $by $*" | tee lines
        left=$(awk '$1 == "MISSED" { print $2 }' lines | paste -sd,)
        [ -n "$left" ] || return 0
        echo "try $try of $tries: missed by $left"
    done
    fail "$ranks ranks by $by $*: $left further than $tolerance % from the prediction"
}

ways=(threads)
if command -v mpirun >/dev/null && ldd "$(command -v ppexec)" | grep libmpi >/dev/null; then ways+=(processes); fi
for by in "${ways[@]}"; do
    compare "$by"
    compare "$by" --straggler "$((ranks / 2)):1.5"
    [ "$by" = processes ] || compare "$by" --batch-w 2
done
