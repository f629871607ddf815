#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The same with processes and replicas, or workers that share rows: killed under MPI, gone on as threads, as processes, and
# as both; killed with the optimizer's memory shared by them, gone on without.
# shellcheck source=tests/mpi/common.sh
source "$(dirname "$0")/common.sh"
need jq
need pgrep

run=(ppexec --d-model 32 --heads 2 --d-ff 64 --layers 4 --vocab 200 --rows 6 --tokens 12 --chunks 3 --dropout 0.3
    --generated-tokens 30000 --max-batches 100 --epochs 2 --eval-batches 3 --eval-rows 5 --optimizer adamw --lr 0.01 --format json)

# go_on TITLE: what it left is the whole run's
compare() {
    cmp whole.st run.st || fail "$1: other weights"
    ends_as whole rest || fail "$1: other losses"
}

# kill_one OPTIONS...: a process of two, once there is a checkpoint
kill_one() {
    rm -f run.st*
    mpirun -n 2 "${run[@]}" "$@" --epochs 100 --save run.st --save-every 3 >out.log 2>err.log &
    local launcher=$!
    within_patience test -e run.st.checkpoint || fail "no checkpoint after $patience_s s"
    mapfile -t processes < <(pgrep -P "$launcher")
    kill -9 "${processes[RANDOM % 2]}"
    await_end "$launcher" "$killed_s"
    [ "$status" -ne 0 ] || fail "exit status 0"
}

for copies in "--replicas 1" "--context-parallel 2" "--replicas 2"; do
    read -ra of <<<"$copies"
    "${run[@]}" "${of[@]}" --save whole.st >whole 2>whole.log
    for how in "" "mpirun -n 2" "mpirun -n $((2 * of[1]))"; do
        kill_one "${of[@]}" --schedule 1f1b --zero 1
        $how "${run[@]}" "${of[@]}" --schedule interleaved --virtual 2 --save run.st --resume >rest 2>rest.log ||
            fail "'$how' does not go on"
        grep -q '^resumed ' rest.log || fail "'$how' began anew"
        compare "$copies, '$how'"
    done
done

# A process that does not see the file: all end, with a message, rather than going on from different steps.
mkdir elsewhere
refused() { # STATUS TEXT COMMAND...: one message, in which the text is
    local expected=$1 text=$2
    shift 2
    mpirun -n 2 bash apart.sh "$@" >out.log 2>err.log &
    await_end $!
    [ "$status" -eq "$expected" ] || fail "$*: exit status $status, not $expected"
    # -a: mpirun of Open MPI 5 ends its own words with a byte of zero
    grep -a '^ppexec: ' err.log >told.log || fail "$*: no message"
    [ "$(grep -c -e "$text" told.log)/$(wc -l <told.log)" = 1/1 ] || fail "$*: not one message '$text'"
}
cat >apart.sh <<'SCRIPT'
[ "${OMPI_COMM_WORLD_RANK:-0}" = 0 ] || cd elsewhere
exec "$@"
SCRIPT
again=("${run[@]}" --replicas 2 --epochs 3 --save run.st --resume)
refused 1 'process 1 has another checkpoint to resume from (none) than process 0 (after step [0-9]*): let all machines see the same file' \
    "${again[@]}"
# Nor does the first one begin anew alone, nor refuse what others accept; what none sees all refuse, as threads do.
mv run.st.checkpoint elsewhere
for every in "" "--save-every 5"; do
    # shellcheck disable=SC2086 # words
    refused 1 'process 1 has another checkpoint to resume from (after step [0-9]*) than process 0 (none): let all' "${again[@]}" $every
done
rm elsewhere/run.st.checkpoint
refused 2 '--resume: there is no run.st.checkpoint, and without --save-every none is made' "${again[@]}"
