#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Ctrl-C while ppprof measures links, then tasks, at moments over all of its run: it ends as an interrupted program does, or is done already.
# shellcheck source=tests/mpi/common.sh
source "$(dirname "$0")/common.sh"

profile=(env --default-signal=INT ppprof --preset lab --seconds 0.05 --db profile.db)
begun_ms=$(date +%s%3N)
"${profile[@]}" >out.log 2>err.log || fail "exit status $?"
whole_ms=$(($(date +%s%3N) - begun_ms))

interrupted=0
for percent in 12 18 24 30 35 40 45 50 60 75; do
    delay_ms=$((whole_ms * percent / 100))
    "${profile[@]}" >out.log 2>err.log &
    sleep "$((delay_ms / 1000)).$(printf '%03d' $((delay_ms % 1000)))"
    kill -s INT $! 2>/dev/null || true
    await_end $!
    case $status in
        0) ;; # another time it was slower
        130) interrupted=$((interrupted + 1)) ;;
        *) fail "after $delay_ms of $whole_ms ms: exit status $status, not 130" ;;
    esac
done
[ "$interrupted" -gt 0 ] || fail "no signal came while it measured, of $whole_ms ms"
