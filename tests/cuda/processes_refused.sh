#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What does not work with several processes of emulated GPUs is told in one line of ours; --transport auto finds what does.
# shellcheck source=tests/mpi/common.sh
source "$(dirname "$0")/../mpi/common.sh"

run() { # processes options... : exit status in $status
    local n=$1
    shift
    status=0
    timeout 300 mpirun -n "$n" ppexec --preset lab --max-batches 3 --epochs 1 --device cuda "$@" >out.log 2>err.log || status=$?
}

ends() { # lines status text processes options...: at most so many lines of ours
    local lines=$1 expected=$2 text=$3
    shift 3
    run "$@"
    [ "$status" -eq "$expected" ] || fail "$*: exit status $status"
    grep -q "^ppexec: .*$text" err.log || fail "$*: does not say '$text'"
    [ "$(grep -c '^ppexec: ' err.log)" -le "$lines" ] || fail "$*: more than $lines lines"
    [ ! -s out.log ] || fail "$*: something was printed"
}

refuses() { ends 1 "$@"; }
# What fails in each process may be told by each, until the first one's end reaches the others.
breaks() { ends "$3" "$@"; }

works() { # text processes options...
    local text=$1
    shift
    run "$@"
    [ "$status" -eq 0 ] || fail "$*: exit status $status"
    grep -q "$text" err.log || fail "$*: does not say '$text'"
}

works '^transport   nccl: ' 2
refuses 2 '--transport mpi moves memory of hosts' 2 --transport mpi
PPKIT_NCCL=/nonexistent refuses 1 '--transport nccl: NCCL cannot be loaded' 2 --transport nccl
PPKIT_NCCL=/nonexistent works '^transport staged, not nccl: NCCL cannot be loaded' 2
PP_EMULATE_DEVICES=1 works '^transport staged, not nccl: processes share a GPU' 2
PP_EMULATE_DEVICES=1 works '^transport   nccl: ' 2 --transport nccl
PP_EMULATE_DEVICES=2 works '^transport staged, not nccl: threads of a process share a GPU' 2 --replicas 2
PP_EMULATE_DEVICES=2 works '^transport   nccl between processes: ' 2 --replicas 2 --transport nccl
PP_EMULATE_DEVICES=8 works 'worker 1 has 33 streams with --transport nccl, and a GPU 32' 8 --transport nccl --layers 8 \
    --schedule zbv --stages 4 --replicas 2 --clip 0.1
refuses 2 '--transport nccl joins several processes' 1 --transport nccl
refuses 2 '--transport staged joins several processes' 1 --transport staged

# Only one of the processes has a word that cannot mean anything there.
for words in '--transport mpi|' '|--transport mpi'; do
    status=0
    timeout 60 mpirun -n 2 "$each" "ppexec --preset lab --device cuda ${words%|*}" "ppexec --preset lab --device cuda ${words#*|}" \
        >out.log 2>err.log || status=$?
    [ "$status" -eq 1 ] || fail "$words: exit status $status"
    grep -q '^ppexec: process [01] refuses what process [01] accepts: --transport mpi moves memory of hosts' err.log || fail "$words: does not say why"
done

# Failures of NCCL: when a channel is opened, in its first exchange, in a step, in a sum.
PP_EMULATE_FAIL=ncclCommInitRankConfig:1 breaks 1 'channel from worker 0 to 1: ncclCommInitRankConfig failed' 2 --transport nccl
PP_EMULATE_FAIL=ncclSend:1 breaks 1 'channel from worker 0 to 1: the first exchange failed' 2 --transport nccl
PP_EMULATE_FAIL=ncclSend:3 breaks 1 'channel from worker [01] to [01]: ncclSend failed' 2 --transport nccl
PP_EMULATE_FAIL=ncclRecv:3 breaks 1 'channel from worker [01] to [01]: ncclRecv failed' 2 --transport nccl
PP_EMULATE_FAIL=ncclAllReduce:2 breaks 1 'sum over workers 0 to 1: ncclAllReduce failed' 2 --transport nccl --clip 0.1
