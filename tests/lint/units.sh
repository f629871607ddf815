#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What unit tests leave out under AddressSanitizer run-tests runs without it, too.
set -euo pipefail
cd "$1"
units=$(sed -n "s/^units='\(.*\)'$/\1/p" run-tests)
bad=0
[ -n "$units" ] || { echo "run-tests: no line units='...'" && exit 1; }
files=$(grep -lE '__SANITIZE_ADDRESS__|\bSCARCE\b' tests/unit/test_*.c) # some do: a failure is one
while read -r file; do
    name=$(basename "$file" .c)
    [[ ${name#test_} =~ $units ]] || { echo "$file does less under AddressSanitizer, and is not of units in run-tests" && bad=1; }
done <<<"$files"
exit $bad
