#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# says.sh PATTERN COMMAND...: the command must end with 0, and say what the extended regular expression says, whose dot is also
# the end of a line. (Where CTest has a PASS_REGULAR_EXPRESSION, it does not look at the exit status.)
set -euo pipefail
pattern=$1
shift
status=0
said=$("$@" 2>&1) || status=$?
echo "$said"
[ "$status" -eq 0 ] || exit "$status"
[[ $said =~ $pattern ]] || { echo "it did not say: $pattern"; exit 1; }
