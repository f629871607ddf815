#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# ppprof measures the links between emulated GPUs of two processes, by every carrier, and stores what the simulator
# asks for, also where workers that share rows exchange inside tasks.
# shellcheck source=tests/mpi/common.sh
source "$(dirname "$0")/../mpi/common.sh"
need sqlite3
need jq

shared=(--device cuda --preset lab --stages 1 --tokens 8 --context-parallel 2 --db shared.db)
ask() { sqlite3 links.db "$1" | tr '\n' ' '; }

carriers=$(movers CARRIER)
[ "$(wc -w <<<"$carriers")" -gt 1 ] || fail "carriers: $carriers"
for transport in $carriers; do
    rm -f links.db*
    mpirun -n 2 ppprof --device cuda --preset lab --seconds 0.001 --transport "$transport" --db links.db >out.log 2>err.log ||
        fail "$transport: exit status $?"
    figures=$(ask "SELECT parameter FROM link WHERE link = '$transport p2p' AND value >= 0 ORDER BY parameter")
    [ "$figures" = "latency_ns ns_per_byte posts_in_order receiver_copies recv_overhead_ns send_overhead_ns " ] ||
        fail "$transport p2p has $figures"
    figures=$(ask "SELECT parameter FROM link WHERE link = '$transport allreduce' AND value >= 0 ORDER BY parameter")
    [ "$figures" = "latency_ns ns_per_byte " ] || fail "$transport allreduce has $figures"
    in_order=$(ask "SELECT value FROM link WHERE link = '$transport p2p' AND parameter = 'posts_in_order'")
    case $transport in
        nccl) expected='1.0 ' ;;
        staged) expected='0.0 ' ;;
        *) expected=$in_order ;;
    esac
    [ "$in_order" = "$expected" ] || fail "$transport: posts_in_order $in_order"
    contexts=$(ask "SELECT DISTINCT context FROM link_time WHERE name = '$transport p2p' ORDER BY context")
    [ "$contexts" = "in a row round trip " ] || fail "$transport p2p was measured $contexts"
    [ "$(ask "SELECT device || ' ' || transport FROM run")" = "cuda $transport " ] || fail "$transport: not in the run"
    rm -f shared.db*
    mpirun -n 2 ppprof "${shared[@]}" --seconds 0.001 --transport "$transport" >out.log 2>err.log ||
        fail "$transport: exit status $? with --context-parallel"
    ppsim "${shared[@]}" --transport "$transport" --format json 2>ppsim.log |
        jq -e '.[0] | .cost_source == "profile" and .tensor_ms > 0' >/dev/null || fail "$transport: not what was measured"
    ! grep 'never measured' ppsim.log || fail "$transport: the profile lacks something"
done
