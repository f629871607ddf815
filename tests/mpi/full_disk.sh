#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A disk that fills up: --save says so, leaves no half file, and keeps the old one; --db says so. The results of a training that came
# to its end are printed all the same, and those of one that did not, for a checkpoint, are not.
# shellcheck source=tests/mpi/common.sh
source "$(dirname "$0")/common.sh"

expect_failure() { # lines-of-output text command...
    local lines=$1 text=$2
    shift 2
    status=0
    "$@" >out.log 2>err.log || status=$?
    [ "$status" -eq 1 ] || fail "$*: exit status $status, not 1"
    [ "$(grep -c '^gpipe ' out.log)" -eq "$lines" ] || fail "$*: not $lines lines of results"
    grep -q -- "$text" err.log || fail "$*: no message with '$text'"
}

expect_failure 1 'cannot write /dev/full: No space left' ppexec --preset lab --epochs 1 --save /dev/full

mkdir small
if ! mount -t tmpfs -o size=128k tmpfs small 2>/dev/null; then
    echo "no right to mount a small file system: only /dev/full was tested"
    exit 77
fi
trap 'umount "$folder/small"; rm -rf "$folder"' EXIT
run=(ppexec --d-model 16 --heads 2 --d-ff 16 --vocab 200 --max-batches 2 --no-eval)
"${run[@]}" --save small/old.safetensors >/dev/null 2>&1
cp small/old.safetensors before
expect_failure 1 'No space left' "${run[@]}" --vocab 2000 --save small/old.safetensors
cmp before small/old.safetensors
[ "$(ls small)" = old.safetensors ] || fail "something was left: $(ls small)"
# Nor is there half a checkpoint: the one before stays, and the run goes on from it when there is room again.
rm small/old.safetensors
run+=(--layers 2 --vocab 100)
"${run[@]}" --save small/run.st --save-every 1 >/dev/null 2>&1
cp small/run.st.checkpoint before
dd if=/dev/zero of=small/fill bs=1k 2>/dev/null || true
expect_failure 0 'cannot .*small/run.st.checkpoint: No space left' "${run[@]}" --epochs 9 --save small/run.st --save-every 1 --resume
cmp before small/run.st.checkpoint || fail "the checkpoint is another"
rm small/fill
"${run[@]}" --epochs 2 --save small/run.st --save-every 1 --resume >/dev/null 2>run.log || fail "it does not go on"
grep -q '^resumed .* after 2 steps' run.log || fail "it begins anew"
expect_failure 0 'small/run.db' "${run[@]}" --epochs 500 --db small/run.db
# The first configuration of several is printed, and it is told that the others were not begun. There is room for tables and a
# run, but not for its events.
rm -f small/*
mount -o remount,size=300k small
dd if=/dev/zero of=small/fill bs=1k count=130 2>/dev/null
expect_failure 1 '2 of 3 configurations were not begun' "${run[@]}" --max-batches 60 --trace-steps 60 --db small/run.db --schedule gpipe,1f1b,zb-h1
