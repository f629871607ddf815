#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Emulated GPUs: while a first exchange of NCCL is under way in a process of several workers, none of the others allocates or joins
# a communicator: the call may wait for the exchange, and the exchange's other end for that worker. The emulator says so where it happens.
# shellcheck source=tests/mpi/common.sh
source "$(dirname "$0")/../mpi/common.sh"
need jq

# Everything in a queue begins late, so that first exchanges take their time.
export PP_EMULATE_DEVICES=8 PP_EMULATE_JITTER_US=10000 PP_EMULATE_STATS=$PWD/stats
mpirun -n 2 ppexec --device cuda --transport nccl --preset lab --layers 4 --stages 4 --replicas 2 --chunks 1 --clip 1 --epochs 1 \
    --max-batches 1 --no-eval >out.log 2>err.log || fail "exit status $?"
[ "$(wc -l <stats)" -eq 2 ] || fail "$(wc -l <stats) accounts of 2 processes"
jq -es 'all(.collectives > 0)' stats >/dev/null || fail "NCCL was not used"
