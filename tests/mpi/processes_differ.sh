#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Processes that read other plans, data or options than each other would hang, or train something wrong: all end first, and say why.
# shellcheck source=tests/mpi/common.sh
source "$(dirname "$0")/common.sh"

export OMPI_MCA_odls_base_sigkill_timeout=0 PRTE_MCA_odls_base_sigkill_timeout=0 # mpirun waits 1 s for processes that have ended

# Each process in a folder of its own, as on hosts with disks of their own.
cat >apart.sh <<'SCRIPT'
cd "$OMPI_COMM_WORLD_RANK"
exec "$@"
SCRIPT
mkdir 0 1
lab=(ppexec --preset lab --stages 2 --chunks 2 --max-batches 2 --no-eval)

# refused REGEX COMMAND...: all end with one line that matches; nothing is printed or stored.
refused() {
    local regex=$1
    shift
    rm -f 0/run.db
    mpirun -n 2 bash apart.sh "$@" >out.log 2>err.log &
    await_end $!
    [ "$status" -eq 1 ] || fail "$*: exit status $status"
    [ ! -s out.log ] || fail "$*: something was printed"
    # A sweep has trained something before, perhaps on a busy machine. -a: mpirun of Open MPI 5 ends its own words with a byte of zero.
    [ "$(grep -a '^ppexec: ' err.log | grep -vc 'warning: other programs')" -eq 1 ] || fail "$*: not one message"
    grep -qE "^ppexec: $regex" err.log || fail "$*: no message like $regex"
}

printf '0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n' | tee 0/two.csv >1/two.csv
mpirun -n 2 bash apart.sh "${lab[@]}" --schedule two.csv >out.log 2>err.log || fail "equal files: $(cat err.log)"
grep -q two.csv out.log || fail "nothing was printed"

# The same work in another order, which hangs or swaps messages; another shape, which one of them refuses.
printf '0F1,0F0,0B1,0B0\n1F1,1B1,1F0,1B0\n' >1/two.csv
number='[0-9a-f]{16}'
refused "process 1 has another plan \(schedule two.csv#[0-9a-f]{4}: $number\) than process 0 \(schedule two.csv#[0-9a-f]{4}: $number\): .* same on all hosts" \
    "${lab[@]}" --schedule two.csv --db run.db
[ -z "$(sqlite3 0/run.db 'SELECT * FROM run')" ] || fail "a run was stored"
printf '0F0,0B0\n1F0,1B0\n' >1/two.csv
refused 'process 1 refuses what process 0 accepts: schedule two.csv has P = 2' "${lab[@]}" --schedule two.csv
refused 'process 1 refuses what process 0 accepts: schedule two.csv has P = 2' "${lab[@]}" --schedule gpipe,two.csv

# A file that only one can read.
echo 0F0 >1/two.csv
refused 'two.csv: rank 0: stage 0, microbatch 0 has no backward' "${lab[@]}" --schedule two.csv

# Texts with as many words.
for i in 0 1; do
    mkdir $i/text
    for part in train valid test; do printf 'one two three %s\n' {1..30} >$i/text/$part.txt; done
done
echo 'two one three 1' >1/text/train.txt
printf 'one two three %s\n' {2..30} >>1/text/train.txt
refused "process 1 has another text \($number\) than process 0" "${lab[@]}" --data text --tokens 4 --rows 2

# Weights to begin with, and checkpoints after as many steps: of those only the numbers differ. Without checksums, too.
for i in 0 1; do (cd $i && "${lab[@]}" --epochs 1 --seed $i --save init.st >../save.log 2>&1); done
refused "process 1 has another file of --init \($number\) than process 0 \($number\): is the file the same on all hosts\?" "${lab[@]}" --init init.st
for i in 0 1; do (cd $i && "${lab[@]}" --epochs 1 --init init.st --save run.st --save-every 2 >../save.log 2>&1 && cp init.st plain.st && LC_ALL=C sed -i 's/crc32 of each MiB/crc-2 of each M_B/' plain.st); done
refused "process 1 has another file of --init \($number\) than" "${lab[@]}" --init plain.st
refused "process 1 has another content of the checkpoint \($number\) than process 0 \($number\): let all machines see the same file" \
    "${lab[@]}" --epochs 2 --init init.st --save run.st --save-every 2 --resume
cp 0/init.st 1/init.st
mpirun -n 2 bash apart.sh "${lab[@]}" --init init.st >out.log 2>err.log || fail "equal weights: $(cat err.log)"

# Options that a wrapper or an environment sets for one of them.
cat >apart.sh <<'SCRIPT'
[ "$OMPI_COMM_WORLD_RANK" = 0 ] || set -- "$@" --lr 0.5
exec "$@"
SCRIPT
refused 'process 1 has another lr \(0.5\) than process 0 \(2\): start all processes with the same options' "${lab[@]}" --lr 2

cat >apart.sh <<'SCRIPT'
[ "$OMPI_COMM_WORLD_RANK" = 0 ] || set -- "$@" --d-model 24
exec "$@"
SCRIPT
mpirun -n 2 bash apart.sh ppprof --preset lab --seconds 0.01 --db prof.db >out.log 2>err.log && fail "ppprof takes other options in each process"
grep -q '^ppprof: process 1 has another d-model (24) than process 0 (12): start all processes with the same options' err.log || fail "ppprof: no message"

# Devices that are named otherwise, and are the same here.
cat >apart.sh <<'SCRIPT'
[ "$OMPI_COMM_WORLD_RANK" = 0 ] || set -- "$@" --device auto
exec "$@"
SCRIPT
mpirun -n 2 bash apart.sh "${lab[@]}" >out.log 2>err.log &
await_end $!
[ "$status" -eq 0 ] || fail "--device auto beside the default: exit status $status"
