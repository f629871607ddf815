# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# Sourced by quickstart and run-tests. install_packages WHEN ...: installs with apt what scripts/packages.txt names for these uses and
# is missing, and nothing else.

missing_packages() {
    local when package program use
    while read -r when package program; do
        for use in "$@"; do
            [ "$when" = "$use" ] || continue
            if [ -n "$program" ] && command -v "$program" >/dev/null; then continue; fi
            dpkg-query -W -f='${db:Status-Status}\n' "$package" 2>/dev/null | grep -qx installed || echo "$package"
        done
    done < <(grep -v '^#' "$(dirname "${BASH_SOURCE[0]}")/packages.txt")
}

# CMake names what it needs and does not find, and tests that lack something skip themselves.
go_on_without() {
    if command -v cmake >/dev/null && command -v "${CC:-cc}" >/dev/null; then return 0; fi
    echo "Without cmake and a C compiler nothing can be built." >&2
    return 1
}

# Of install_packages: `missing`, by `as_root`. No network and a sudo that refuses are no errors of ours.
with_apt() {
    "${as_root[@]}" apt-get update -qq &&
        "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
}

install_packages() {
    local missing as_root=()
    mapfile -t missing < <(missing_packages "$@")
    [ "${#missing[@]}" -gt 0 ] || return 0
    if ! command -v apt-get >/dev/null; then
        echo "There is no apt-get here. What build and tests turn out to lack is in these packages of Debian: ${missing[*]}" >&2
        go_on_without
        return
    fi
    if [ "$(id -u)" -ne 0 ]; then
        if ! command -v sudo >/dev/null; then
            echo "Neither root nor sudo: nothing is installed. As root: apt-get install ${missing[*]}" >&2
            go_on_without
            return
        fi
        as_root=(sudo)
    fi
    echo "Installing with apt: ${missing[*]}"
    if ! with_apt; then
        echo "They could not be installed. Once that is possible: apt-get install ${missing[*]}" >&2
        go_on_without
    fi
}
