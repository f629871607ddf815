#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Ctrl-C under mpirun: all processes end soon, the first says that a signal stopped it, and accuses nobody; the database opens with what was
# recorded.
# shellcheck source=tests/mpi/common.sh
source "$(dirname "$0")/common.sh"
need sqlite3

env --default-signal=INT mpirun -n 2 "${long_run[@]}" --stages 2 >out.log 2>err.log &
await_steps
kill -s INT $!
await_end $!
[ "$status" -ne 0 ] || fail "exit status 0"
[ ! -s out.log ] || fail "something was printed"
# Open MPI 5 passes on no words once it has the signal, but says itself that the process ended all with 130.
grep -qxE 'ppexec: stopped by a signal|  Errorcode: 130' err.log || fail "the last words are others"
check_database
