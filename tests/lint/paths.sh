#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Nothing may depend on, or speak of, a folder of one developer's machine.
set -euo pipefail
cd "$1"
source tests/lint/files.sh
files=$(source_files '*' | grep -v '^tests/lint/paths\.sh$')
# 123: grep found nothing in some of the files, whatever it found in others
found=$(xargs -d '\n' grep -InE '(^|[^A-Za-z0-9_.-])/(work|home|root|opt)/' <<<"$files") || [ $? -eq 123 ]
[ -z "$found" ] || { echo "$found"; exit 1; }
