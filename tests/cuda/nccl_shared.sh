#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Smoke test: two processes of one GPU under NCCL, which NVIDIA does not support and a trick makes possible. They compute what
# threads of one process do, and are told that times mean nothing. Skipped, with the reason, where there is no GPU, no NCCL
# or no mpirun.
# shellcheck source=tests/mpi/common.sh
source "$(dirname "$0")/../mpi/common.sh"
need jq
need mpirun

lab=(--device cuda --gpus 1 --preset lab --epochs 20 --format json)

# OPTION...: threads of one process, then two processes.
compare() {
    ppexec "${lab[@]}" "$@" >threads.json 2>threads.log || {
        grep -qE 'no NVIDIA driver|finds no GPU|too old' threads.log || fail "threads of one process: exit status $?"
        echo "skipped: $(tail -n 1 threads.log)"
        exit 77
    }
    local status=0
    timeout 120 mpirun -n 2 ppexec "${lab[@]}" "$@" --transport nccl >processes.json 2>processes.log || status=$?
    if [ "$status" -ne 0 ] && grep -q 'NCCL cannot be loaded' processes.log; then
        echo "skipped: $(grep -m 1 'NCCL cannot be loaded' processes.log)"
        exit 77
    fi
    [ "$status" -eq 0 ] || fail "two processes on one GPU by NCCL: exit status $status"
    grep -q 'meaningless' processes.log || fail "no word about times on a shared GPU"
    jq -e '.[0].ms_per_batch == null' processes.json >/dev/null || fail "times of a shared GPU were told"
    # A whole GPU and a half of it may choose other algorithms for products.
    jq -e -n --slurpfile a threads.json --slurpfile b processes.json \
        '[$a[0][0].loss, $b[0][0].loss] | transpose | length > 0 and all(.[]; (.[0] - .[1]) / .[0] | fabs < 1e-3)' >/dev/null ||
        fail "other losses: $(jq -c '.[0].loss[-1]' threads.json) by threads, $(jq -c '.[0].loss[-1]' processes.json) by processes"
}
compare
# Tokens sent to experts: groups of sends and receives inside tasks.
compare --stages 1 --replicas 2 --bias no --experts 4 --expert-parallel 2
