#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The man pages that the build made are well-formed.
set -euo pipefail
cd "$1"
command -v mandoc >/dev/null || { echo "mandoc is not installed"; exit 77; }
compgen -G '*.1' >/dev/null || { echo "no man pages were built (help2man is not installed)"; exit 77; }
# help2man writes the month only, which mandoc would have as a day. Both programs fail as often as they succeed: what is
# printed counts.
found=$(mandoc -T lint -W warning ./*.1 2>&1 | grep -v 'cannot parse date') || true
[ -z "$found" ] || { echo "$found"; exit 1; }
