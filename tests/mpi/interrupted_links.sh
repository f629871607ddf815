#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Ctrl-C while ppprof measures tasks, then links, at any moment: it ends as an interrupted program does, or is done already.
# shellcheck source=tests/mpi/common.sh
source "$(dirname "$0")/common.sh"

for delay in 0.3 0.4 0.5 0.55 0.6 0.65 0.7 0.75 0.8 0.85 0.9 1.0 1.1; do
    env --default-signal=INT ppprof --preset lab --seconds 0.05 --db profile.db >out.log 2>err.log &
    sleep "$delay"
    kill -s INT $! 2>/dev/null || true
    await_end $!
    [ "$status" -eq 130 ] || [ "$status" -eq 0 ] || fail "after $delay s: exit status $status, not 130"
done
