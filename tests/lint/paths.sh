#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Nothing may depend on, or speak of, a folder of one developer's machine.
set -euo pipefail
cd "$1"
source tests/lint/files.sh
source_files '*' | grep -v '^tests/lint/paths\.sh$' | xargs -d '\n' grep -InE '(^|[^A-Za-z0-9_.-])/(work|home|root|opt)/' && exit 1
exit 0
