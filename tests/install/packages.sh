#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What scripts/packages.sh installs, and that it goes on where it cannot: packages.sh SOURCE. Its programs only pretend to.
set -euo pipefail
source=$1
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
mkdir "$folder/bin"
for program in bash dirname env grep; do ln -s "$(command -v "$program")" "$folder/bin/"; done

# fake NAME LINE: a program of that name, the only place where it is looked for.
fake() {
    printf '#!/bin/sh\n%s\n' "$2" >"$folder/bin/$1"
    chmod +x "$folder/bin/$1"
}
# shellcheck disable=SC2016
fakes() {
    fake cmake ''
    fake cc ''
    fake id 'echo "$USER_ID"'
    fake sudo '[ "$SUDO" = yes ] || exit 1; echo sudo >>"$CALLS"; exec "$@"'
    fake apt-get 'echo "apt-get $*" >>"$CALLS"; [ "$1" != "$FAILS" ]'
    fake dpkg-query 'for last; do :; done; case " $MISSING " in *" $last "*) exit 1 ;; esac; echo installed'
}

fail() {
    echo "$1"
    sed 's/^/  said: /' "$folder/said"
    sed 's/^/  called: /' "$folder/calls"
    exit 1
}

# try STATUS [NAME=VALUE ...]: what quickstart does first.
try() {
    local wanted=$1 status=0
    shift
    : >"$folder/calls"
    env -i "PATH=$folder/bin" "CALLS=$folder/calls" USER_ID=0 SUDO=yes FAILS=none 'MISSING=zlib1g-dev gnuplot-nox jq' "$@" \
        bash -euo pipefail -c "source '$source/scripts/packages.sh'; install_packages build; echo went on" >"$folder/said" 2>&1 || status=$?
    [ "$status" -eq "$wanted" ] || fail "$*: exit status $status, not $wanted"
    [ "$status" -ne 0 ] || grep -qx 'went on' "$folder/said" || fail "$*: it does not go on"
}
says() { grep -q -- "$1" "$folder/said" || fail "not said: $1"; }
calls() { [ "$(cat "$folder/calls")" = "$1" ] || fail "these calls were wanted: $1"; }

installs='apt-get install -y -qq --no-install-recommends zlib1g-dev gnuplot-nox'
fakes
try 0 MISSING=
calls ''
try 0
calls "apt-get update -qq"$'\n'"$installs"
try 0 USER_ID=1000
calls "sudo"$'\n'"apt-get update -qq"$'\n'"sudo"$'\n'"$installs"

# Without them, but not without knowing.
try 0 USER_ID=1000 SUDO=no
says 'apt-get install zlib1g-dev gnuplot-nox'
try 0 FAILS=update
says 'apt-get install zlib1g-dev gnuplot-nox'
try 0 FAILS=install
says 'apt-get install zlib1g-dev gnuplot-nox'
rm "$folder/bin/cmake"
try 1 FAILS=install
says 'Without cmake and a C compiler nothing can be built'
fakes
rm "$folder/bin/sudo"
try 0 USER_ID=1000
says 'Neither root nor sudo.*zlib1g-dev gnuplot-nox'
calls ''
rm "$folder/bin/apt-get"
try 0
says 'There is no apt-get here.*zlib1g-dev gnuplot-nox'
