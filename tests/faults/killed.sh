#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# killed.sh threads|mpi TIMES [SEED]: a run is killed that often, each time at another moment, from its start to some way into its steps:
# the whole process (threads), or one process of mpirun, once all have begun: a process that dies while it joins the others can let
# mpirun itself hang. The processes of mpirun take turns: the first prints for all. Nothing is left soon after, the database opens and is
# sound, and no step is missing that a reader saw before, nor any in between. One file for all runs: what earlier ones wrote stays.
# shellcheck source=tests/mpi/common.sh
source "$(dirname "$0")/../mpi/common.sh"
need sqlite3
need pgrep
how=$1
times=$2
RANDOM=${3:-1}
echo "killed $how $times times, seed ${3:-1}"

query() {
    sqlite3 -cmd '.timeout 5000' run.db "$1" 2>/dev/null
}

# Every run's steps count from 0 without a gap, and what was seen is there still.
check_all() { # steps that a reader saw
    [ "$(query 'PRAGMA integrity_check')" = ok ] || fail "the database is damaged"
    [ "$(query 'SELECT count(*) FROM (SELECT 1 FROM step GROUP BY run HAVING count(*) <> max(step) + 1)')" = 0 ] ||
        fail "steps are missing in the database"
    now=$(query 'SELECT count(*) FROM step')
    [ "$now" -ge "$1" ] || fail "a reader saw $1 steps, and $now are left"
}

pick() { # of the words that follow
    local n=$((RANDOM % $#))
    shift "$n"
    echo "$1"
}

launch() {
    local shape=(--schedule "$(pick gpipe 1f1b)")
    case $(pick ranks replicas parts rows all) in
        ranks) shape+=(--stages 2) ;;
        replicas) shape+=(--stages 2 --replicas 2) ;;
        parts) shape+=(--stages 1 --tensor 2) ;;
        rows) shape+=(--stages 1 --context-parallel 2 --tokens 36) ;;
        all) shape+=(--stages 2 --tensor 2) ;;
    esac
    if [ "$how" = threads ]; then
        exec "${long_run[@]}" "${shape[@]}" --db run.db
    else
        exec mpirun -n 2 "${long_run[@]}" "${shape[@]}" --db run.db
    fi
}

# One that can be killed: the process itself, or a child of mpirun (mpirun, while it has none).
victim_of() {
    mapfile -t children < <(pgrep -P "$1" -x ppexec || true)
    if [ "$how" = threads ] || [ ${#children[@]} -eq 0 ]; then echo "$1"; else echo "${children[round % ${#children[@]}]}"; fi
}

# Half of the runs shall come to their steps: how long does it take today?
launch >out.log 2>err.log &
begun_ms=$(date +%s%3N)
await_steps
longest_ms=$((2 * ($(date +%s%3N) - begun_ms)))
kill -s TERM $!
await_end $!

# In the database there is one run more than before.
has_begun() { [ "$(query 'SELECT count(*) FROM run' || echo 0)" -gt "$runs" ]; }

seen=0
for round in $(seq "$times"); do
    runs=$(query 'SELECT count(*) FROM run')
    launch >out.log 2>err.log &
    launcher=$!
    [ "$how" = threads ] || within_patience has_begun || fail "round $round: no run after $patience_s s"
    delay_ms=$((RANDOM % longest_ms))
    sleep "$((delay_ms / 1000)).$(printf '%03d' $((delay_ms % 1000)))"
    [ ! -e run.db ] || seen=$(query 'SELECT count(*) FROM step' || echo "$seen")
    victim=$(victim_of "$launcher")
    mapfile -t all < <(pgrep -P "$launcher" -x ppexec || true)
    kill -9 "$victim" || fail "round $round: it ended before it was killed"
    await_end "$launcher" "$killed_s"
    [ "$status" -ne 0 ] || fail "round $round: exit status 0"
    for process in "${all[@]}"; do await_gone "$process"; done
    [ ! -s out.log ] || fail "round $round: something was printed"
    ! grep -qx 'ppexec: stopped by a signal' err.log || fail "round $round: it was not the user who sent a signal"
    [ ! -e run.db ] || check_all "${seen:-0}"
done
total=$(query 'SELECT count(*) FROM step')
[ "${total:-0}" -gt "$times" ] || fail "only ${total:-0} steps in $times runs: the kills came too early to test anything"
echo "$total steps of $(query 'SELECT count(DISTINCT run) FROM step') runs are in the database"
