#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# quiet.sh COMMAND...: ends as the command does, or with 1 if the emulator complained in any of its processes, wherever
# their standard error went.
set -euo pipefail
export PP_EMULATE_COMPLAINTS=$PWD/complaints
rm -f "$PP_EMULATE_COMPLAINTS"
status=0
"$@" || status=$?
if [ -s "$PP_EMULATE_COMPLAINTS" ]; then
    sort "$PP_EMULATE_COMPLAINTS" | uniq -c | head -n 20
    exit 1
fi
exit "$status"
