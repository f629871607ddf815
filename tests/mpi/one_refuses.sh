#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What only the first process looks at, and refuses, ends the others too.
# shellcheck source=tests/mpi/common.sh
source "$(dirname "$0")/common.sh"

export OMPI_MCA_odls_base_sigkill_timeout=0 PRTE_MCA_odls_base_sigkill_timeout=0 # mpirun waits 1 s for processes that have ended

mkdir weights
mpirun -n 2 ppexec --preset lab --save weights >out.log 2>err.log &
await_end $!
[ "$status" -ne 0 ] || fail "exit status 0"
[ ! -s out.log ] || fail "something was printed"
grep -q 'weights is a folder' err.log || fail "no message"

# What all refuse one says, and none is killed: ppprof as it starts, and once it knows its configurations.
for wrong in '--device delay' '--stages 3'; do
    # shellcheck disable=SC2086 # words
    mpirun -n 2 ppprof --preset lab $wrong --db profile.db >out.log 2>err.log &
    await_end $!
    [ "$status" -eq 2 ] || fail "ppprof $wrong: exit status $status"
    [ "$(grep -c '^ppprof: ' err.log)" -eq 1 ] || fail "ppprof $wrong: not one message"
    ! grep -q MPI_ABORT err.log || fail "ppprof $wrong: killed"
done

# A profile each process looks for by itself, perhaps on a disk of its own: who lacks it, first or not, ends all.
ppprof --preset lab --stages 2 --seconds 0.01 --db profile.db >out.log 2>err.log || fail "ppprof fails: $(cat err.log)"
delayed='ppexec --preset lab --device delay --no-eval --max-batches 2 --db'
for files in 'profile.db missing.db' 'missing.db profile.db' 'missing.db missing.db'; do
    mpirun -n 2 "$each" "$delayed ${files% *}" "$delayed ${files#* }" >out.log 2>err.log &
    await_end $!
    [ "$status" -ne 0 ] || fail "$files: exit status 0"
    grep -q 'missing.db is not there' err.log || fail "$files: no message"
done

# What each finds before it meets the others: the first tells it for all, and another one only what is wrong with it alone.
unset OMPI_MCA_odls_base_sigkill_timeout PRTE_MCA_odls_base_sigkill_timeout # as users have it
for wrong in '--foo' '--schedule foo' '--save one --db one'; do
    # shellcheck disable=SC2086 # words
    mpirun --oversubscribe -n 4 ppexec --preset lab $wrong >out.log 2>err.log &
    await_end $!
    [ "$status" -eq 2 ] || fail "ppexec $wrong: exit status $status"
    [ "$(grep -c '^ppexec: ' err.log)" -eq 1 ] || fail "ppexec $wrong: not one line"
done
mpirun -n 2 "$each" "ppexec --preset lab" "ppexec --preset lab --foo" >out.log 2>err.log &
await_end $!
[ "$status" -ne 0 ] || fail "one process has --foo: exit status 0"
grep -q '^ppexec: there is no option --foo' err.log || fail "one process has --foo: no message"

# What only the first process finds while all train, though it looks like wrong usage: a folder where the checkpoint was.
rm -f run.db
mpirun -n 2 "${long_run[@]}" --save late.st --save-every 5 --stages 2 >out.log 2>err.log &
await_steps
becomes_folder() { rm -f late.st.checkpoint && mkdir late.st.checkpoint 2>/dev/null; } # unless the next one was quicker
within_patience becomes_folder || fail "checkpoints come too quickly"
await_end $! 20
[ "$status" -ne 0 ] || fail "the checkpoint is a folder: exit status 0"
# ... or, if it became one while the next checkpoint was written, the system's words
grep -qE '^ppexec: .*late.st.checkpoint( is a folder|: Is a directory)' err.log || fail "the checkpoint is a folder: no message"
