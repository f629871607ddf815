#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Ctrl-C, SIGTERM and a lost terminal (SIGHUP) end a run of threads, and the making of its plan: exit status 130, of what is not complete
# nothing on standard output, what was recorded is in the database.
# A run that was started to ignore them (nohup, background job of a script) goes on.
# shellcheck source=tests/mpi/common.sh
source "$(dirname "$0")/common.sh"
need sqlite3
need jq

for signal in INT TERM HUP; do
    rm -f run.db*
    # A shell without job control starts background processes with SIGINT ignored; env puts it back.
    env --default-signal=INT,HUP "${long_run[@]}" --stages 2 --save lost.st >out.log 2>err.log &
    await_steps
    kill -s "$signal" $!
    await_end $!
    [ "$status" -eq 130 ] || fail "SIG$signal: exit status $status, not 130"
    [ ! -s out.log ] || fail "SIG$signal: something was printed"
    grep -q 'stopped by a signal' err.log || fail "SIG$signal: no message"
    grep -q -- '--save: lost.st was not written' err.log || fail "SIG$signal: weights are lost without a word"
    [ ! -e lost.st ] || fail "SIG$signal: weights of a training that has not ended"
    check_database
    [ "$(sqlite3 run.db 'SELECT status FROM run')" = interrupted ] || fail "SIG$signal: the database does not say so"
done

# Configurations of a sweep that are complete are printed.
rm -f run.db*
ppexec --preset lab --data generated --device delay --times 1,1,1 --stages 1 --rows 200 --chunks 1,200 --no-eval --epochs 1 --max-batches 50 \
    --db run.db --format json >out.log 2>err.log &
second_trains() { [ "$(sqlite3 run.db 'SELECT count(*) FROM step WHERE run = 2' 2>sqlite.log)" -gt 0 ] 2>sqlite.log; }
within_patience second_trains || fail "a sweep: the second configuration does not train"
kill -s TERM $!
await_end $!
[ "$status" -eq 130 ] || fail "a sweep: exit status $status, not 130"
[ "$(jq -c 'map(.chunks)' out.log)" = '[1]' ] || fail "a sweep: the configuration that was complete is not printed alone"
grep -q 'stopped by a signal' err.log || fail "a sweep: no message"

# Nor does --save keep a run: not while nobody reads its pipe, nor while the reader rests.
mkfifo pipe
small_run=(ppexec --d-model 256 --epochs 1 --max-batches 1 --no-eval --rows 2 --chunks 1 --tokens 2 --save pipe)
"${small_run[@]}" >out.log 2>err.log &
waits() { grep -q '^--save waits for a program that reads the pipe pipe$' err.log; }
within_patience waits || fail "a pipe without a reader: nothing says that it is waited for"
kill -s TERM $!
await_end $!
[ "$status" -eq 130 ] || fail "a pipe without a reader: exit status $status, not 130"
grep -qx 'ppexec: stopped by a signal, while --save waited for a reader of pipe' err.log || fail "a pipe without a reader: no message"
exec 3<>pipe # this shell could read the pipe, but takes nothing from it
"${small_run[@]}" >out.log 2>err.log &
epoch_ends() { grep -q 'end of epoch' err.log; }
within_patience epoch_ends || fail "a reader that rests: the run does not get so far"
sleep 0.5
kill -s TERM $!
await_end $!
[ "$status" -eq 130 ] || fail "a reader that rests: exit status $status, not 130"
[ ! -s out.log ] || fail "a reader that rests: something was printed"
exec 3<&-

# While a large plan is made nobody looks at the flag: the process ends at once, before it says what it will run.
env --default-signal=INT ppexec --device delay --times 1,1,1 --layers 128 --stages 128 --rows 8192 --chunks 8192 --tokens 1 --no-eval \
    >out.log 2>err.log &
sleep 0.3
kill -s INT $!
await_end $!
[ "$status" -eq 130 ] || fail "a large plan: exit status $status, not 130"
! grep -q '^model' err.log || fail "a large plan: it was made all the same"

# So it does where earlier configurations have stored their rows, but it closes the database first.
rm -f run.db*
env --default-signal=INT ppexec --preset lab --data generated --device delay --times 0.001,0.001,0.001 --layers 128 --stages 1,128 \
    --rows 8192 --chunks 1,8192 --tokens 1 --no-eval --epochs 1 --max-batches 1 --db run.db >out.log 2>err.log &
runs() { [ "$(sqlite3 run.db "SELECT count(*) FROM run WHERE status = 'ok'" 2>sqlite.log)" = 3 ]; }
within_patience runs || fail "the first three configurations did not end"
sleep 0.3
kill -s INT $!
await_end $!
[ "$status" -eq 130 ] || fail "a later plan: exit status $status, not 130"
[ "$(grep -c '^model' err.log)" -le 3 ] || fail "a later plan: it was made all the same"
[ ! -e run.db-wal ] || fail "a later plan: the database was not closed"
runs || fail "a later plan: rows of earlier ones are gone"

rm -f run.db*
steps() { sqlite3 run.db 'SELECT count(*) FROM step'; }
goes_on() { [ "$(steps)" -gt "$before" ]; }
(trap '' HUP INT TERM && exec "${long_run[@]}" --stages 2) >out.log 2>err.log &
trap 'kill -9 $!; rm -rf "$folder"' EXIT
await_steps
for signal in HUP INT TERM; do
    before=$(steps)
    if ! kill -s "$signal" $! || ! within_patience goes_on; then fail "SIG$signal: ignored by whoever started it, it ended the run"; fi
done
