#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Nothing may depend on, or speak of, a folder of one developer's machine.
set -euo pipefail
cd "$1"
source tests/lint/files.sh
files=$(source_files '*' | grep -v '^tests/lint/paths\.sh$')
# Of grep only 1 says that it found nothing: 2 is an error, and xargs makes 123 of both.
# shellcheck disable=SC2016
found=$(xargs -d '\n' bash -c 'grep -InE "$@" || [ $? -eq 1 ]' grep '(^|[^A-Za-z0-9_.-])/(work|home|root|opt)/' <<<"$files")
[ -z "$found" ] || { echo "$found"; exit 1; }
