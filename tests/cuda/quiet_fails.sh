#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# quiet.sh fails where something complained, and says what; else it ends as its command does, also after a complaint.
set -euo pipefail
quiet=$(dirname "$0")/quiet.sh
status=0
# shellcheck disable=SC2016 # quiet.sh sets it
said=$("$quiet" bash -c 'for i in 1 2; do echo said >>"$PP_EMULATE_COMPLAINTS"; done') || status=$?
[[ $status -eq 1 && $said =~ ^\ *2\ said$ ]] || { echo "after a complaint: $status, $said"; exit 1; }
for wanted in 0 1 77; do
    status=0
    "$quiet" bash -c "exit $wanted" || status=$?
    [ "$status" -eq "$wanted" ] || { echo "a command that ends with $wanted: $status"; exit 1; }
done
