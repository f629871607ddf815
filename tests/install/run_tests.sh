#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Which failed tests run-tests runs once more: run_tests.sh SOURCE. CMake and its programs only pretend to.
set -euo pipefail
source=$1
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
mkdir "$folder"/{bin,scripts}
cp "$source/run-tests" "$folder/"
echo 'install_packages() { :; }' >"$folder/scripts/packages.sh"
printf '#!/bin/sh\n' >"$folder/bin/cmake"
printf '#!/bin/sh\ncat >/dev/null\n' >"$folder/bin/clang"
# Of preset FAILS two tests have failed at first, of which the second one has said SAYS, and one has passed that says all.
cat >"$folder/bin/ctest" <<'END'
#!/bin/sh
logs=build/$2/Testing/Temporary
mkdir -p "$logs"
echo "$*" >>calls
if [ "$2" != "$FAILS" ] || [ -e failed ]; then exit 0; fi
touch failed
printf '1:unit.one\n3:unit.three\n' >"$logs/LastTestsFailed.log"
printf '%s\n' '1/3 Testing: unit.one' 'one: some failure' '2/3 Testing: unit.two' '==1==ERROR: AddressSanitizer: of one that passes' \
    '3/3 Testing: unit.three' "$SAYS" '<end of output>' >"$logs/LastTest.log"
exit 8
END
chmod +x "$folder"/bin/*

# try STATUS TEXT FAILS SAYS: how it ends, and what it says.
try() {
    local status=0
    rm -f "$folder"/{calls,failed}
    FAILS=$3 SAYS=$4 PATH=$folder/bin:$PATH "$folder/run-tests" >"$folder/said" 2>&1 || status=$?
    if [ "$status" -ne "$1" ] || ! grep -qF -- "$2" "$folder/said"; then
        echo "$3, $4: exit status $status, not $1, or not said: $2"
        sed 's/^/  said: /' "$folder/said"
        exit 1
    fi
}

for preset in release asan tsan fuzz; do
    for harmless in 'a wait took too long' '==1==ERROR: libFuzzer: timeout after 25 seconds' \
        '==1==WARNING: AddressSanitizer failed to allocate 0x1 bytes'; do
        try 0 "Failed at first, passed alone: $preset: unit.one unit.three" "$preset" "$harmless"
        grep -qxF -- "--preset $preset --no-tests=error --tests-regex ^(unit.one|unit.three)\$" "$folder/calls"
    done
done
try 0 'Failed at first, passed alone: release' release 'PMIx: runtime error: none of a sanitizer'
for report in '==1==ERROR: AddressSanitizer: heap-use-after-free' '==1==ERROR: LeakSanitizer: detected memory leaks' \
    'WARNING: ThreadSanitizer: data race (pid=1)' 'a.c:1:2: runtime error: signed integer overflow' \
    '==1== ERROR: libFuzzer: deadly signal'; do
    for preset in asan tsan fuzz; do
        try 1 "Tests failed: $preset" "$preset" "$report"
        grep -qF 'not once more: unit.three ==' "$folder/said"
        ! grep -qF -- --tests-regex "$folder/calls" || exit 1
    done
done
