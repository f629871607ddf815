#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What only the first process looks at, and refuses, ends the others too.
# shellcheck source=tests/mpi/common.sh
source "$(dirname "$0")/common.sh"

mkdir weights
mpirun -n 2 ppexec --preset lab --save weights >out.log 2>err.log &
await_end $!
[ "$status" -ne 0 ] || fail "exit status 0"
[ ! -s out.log ] || fail "something was printed"
grep -q 'weights is a folder' err.log || fail "no message"
