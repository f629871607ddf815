#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A process of a run is killed: the others end soon, with an error, and the database opens with what was recorded.
# shellcheck source=tests/mpi/common.sh
source "$(dirname "$0")/common.sh"
need sqlite3
need pgrep

for victim in 1 2; do
    rm -f run.db*
    mpirun -n 2 "${long_run[@]}" --stages 2 --replicas 2 >out.log 2>err.log &
    launcher=$!
    await_steps
    mapfile -t processes < <(pgrep -P "$launcher")
    [ "${#processes[@]}" -eq 2 ] || fail "mpirun has ${#processes[@]} children"
    kill -9 "${processes[victim - 1]}"
    await_end "$launcher" "$killed_s"
    [ "$status" -ne 0 ] || fail "exit status 0"
    [ ! -s out.log ] || fail "something was printed"
    ! grep -qx 'ppexec: stopped by a signal' err.log || fail "it was not the user who sent a signal"
    for process in "${processes[@]}"; do await_gone "$process"; done
    check_database
done
