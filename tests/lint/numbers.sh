#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What is no number fails a test: every comparison with NaN is false, so `if (error > most) fail_msg(...)` lets it pass, and
# `if (!(error <= most)) fail_msg(...)` does not. Found are, in
# an `if` of one line in C, comparisons of fabs(), and with a literal that is no whole number.
set -euo pipefail
cd "$1"
source tests/lint/files.sh
files=$(source_files 'tests/*.c' 'tests/*.h' 'tests/*.cu')
# Of grep only 1 says that it found nothing: 2 is an error, and xargs makes 123 of both.
# shellcheck disable=SC2016
found=$(xargs -d '\n' bash -c 'grep -HnE "$@" || [ $? -eq 1 ]' grep \
    '\bif \((fabsf?\(|[^!]*[<>]=? [^!;,]*[0-9](\.[0-9]|e-?[0-9]))' <<<"$files")
[ -z "$found" ] || { echo "$found" && echo "NaN passes: write if (!(...))" && exit 1; }
