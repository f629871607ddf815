#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A process of a run on emulated GPUs is killed at any moment, also while it starts: the others end soon, with an
# error, and the database opens. NCCL may notice the dead peer or, as between GPUs of one host, not.
# shellcheck source=tests/mpi/common.sh
source "$(dirname "$0")/../mpi/common.sh"
need sqlite3
need pgrep

RANDOM=4711
export PP_EMULATE_DEVICES=6
layouts=("--stages 3 --replicas 2" "--stages 3 --tensor 2" "--stages 1 --context-parallel 3 --heads 3 --d-model 36 --tokens 36")
killed_s=$((3 * killed_s)) # three emulated GPUs on two cores

# The processes of the run. While it starts, mpirun may have others for a moment, and then none.
find_processes() {
    until mapfile -t processes < <(pgrep -P "$launcher") && [ "${#processes[@]}" -gt 0 ]; do
        kill -0 "$launcher" || fail "round $round: the run has ended by itself: $(cat err.log)"
        sleep 0.01
    done
}

for round in $(seq 20); do
    transport=$((round % 4)) # of four rounds three by NCCL
    export PP_EMULATE_NCCL_MUTE=$((round % 2))
    read -ra layout <<<"${layouts[round / 3 % 3]}"
    rm -f run.db*
    mpirun -n 3 "${long_run[@]}" --device cuda --layers 3 "${layout[@]}" --transport \
        "$([ "$transport" -eq 0 ] && echo staged || echo nccl)" >out.log 2>err.log &
    launcher=$!
    find_processes
    if [ $((round % 3)) -eq 0 ]; then
        sleep 0.$((RANDOM % 10)) # starting
    else
        await_steps
    fi
    find_processes
    [ "${#processes[@]}" -eq 3 ] || [ $((round % 3)) -eq 0 ] || fail "mpirun has ${#processes[@]} children"
    sleep 0.0$((RANDOM % 100))
    kill -9 "${processes[RANDOM % ${#processes[@]}]}"
    await_end "$launcher" "$killed_s"
    [ "$status" -ne 0 ] || fail "round $round: exit status 0"
    [ ! -s out.log ] || fail "round $round: something was printed"
    for process in "${processes[@]}"; do await_gone "$process"; done
    [ $((round % 3)) -eq 0 ] || grep -Eq 'ppexec: |signal 9' err.log || fail "round $round: no word about it"
    [ ! -e run.db ] || [ $((round % 3)) -eq 0 ] || check_database
done
