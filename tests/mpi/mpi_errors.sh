#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What the MPI library refuses, the program tells in its own words, and all processes end. mpi_errors.sh LIBRARY: of mpi_fails.c.
# shellcheck source=tests/mpi/common.sh
source "$(dirname "$0")/common.sh"
library=$1

export ASAN_OPTIONS=${ASAN_OPTIONS:-}:verify_asan_link_order=0:detect_leaks=0

# From the first call of a run to messages of its first step.
for call in MPI_Comm_split_type MPI_Bcast MPI_Allreduce MPI_Iallgather MPI_Comm_dup MPI_Isend; do
    mpirun -n 2 env LD_PRELOAD="$library" PP_MPI_FAILS=$call ppexec --preset lab --epochs 1 >out.log 2>err.log &
    await_end $!
    [ "$status" -ne 0 ] || fail "$call: exit status 0"
    [ ! -s out.log ] || fail "$call: something was printed"
    grep -q "^ppexec: .*$call.* failed: " err.log || fail "$call: no message"
done
