#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs one case of command-line tests in an empty folder of its own: run.sh CASE.test
#
# A case is lines of
#   $ COMMAND            run by bash, the programs of the build first in PATH; a line that ends in \ goes on in the next
# each followed by what must hold of it:
#   exit N               exit status (0 if nothing is said)
#   fails N              so many calls of programs in it fail (0 if nothing is said, but with another `exit`), wherever they
#                        stand: in a loop, before a pipe, behind ||
#   stdout ~ REGEX       standard output has a line that matches (grep -E); !~ it has lines, but none that does; likewise
#                        stderr, which !~ lets be empty
#   stdout empty         nothing was printed; likewise stderr
#   stdout = TEXT        a line of it is exactly TEXT; the lines of several of these come in that order
#   json FILTER          standard output is one JSON document, no empty array, and jq finds FILTER true for it
# and of `needs PROGRAM`: the rest is skipped where there is no such program. '#' begins a comment. The folder
# tests/ of the source is $TESTS.
set -uo pipefail
# Who is started in the background by a script has interrupts ignored, and so have its programs.
[ "${PP_INTERRUPTS-}" ] || exec env --default-signal=INT PP_INTERRUPTS=default "$0" "$@"
case_file=$(realpath "$1")
TESTS=$(realpath "$(dirname "$0")/..")
export TESTS
export LC_ALL=C.UTF-8 # sort and ls have one order everywhere
export PATH="${PP_BIN:?the folder of the programs}:$PATH"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
mkdir "$folder/run"
cd "$folder/run" || exit 1

# Calls of these by name are counted where they fail; not those by timeout, env, xargs or exec.
export PP_FAILED=$folder/failed
# shellcheck disable=SC2317,SC2329 # the functions below call it
count_failed() { # status program argument ...; not who writes to a pipe that nobody reads any more
    [ "$1" -eq 141 ] || echo "$*" >>"$PP_FAILED"
    return "$1"
}
export -f count_failed
for program in ppsim ppexec ppprof ppreport mpirun; do
    eval "$program() { command $program \"\$@\" || count_failed \$? $program \"\$@\"; }"
    export -f "${program?}"
done

out=$folder/stdout err=$folder/stderr command='' status=0 checked_exit=true checked_fails=true failures=0 line_number=0
declare -A after # how many lines of a stream come up to the last one that `=` has found

complain() {
    failures=$((failures + 1))
    printf '%s:%d: %s\n  command: %s\n  exit status: %s\n' "$case_file" "$line_number" "$1" "$command" "$status"
    sed 's/^/  stdout: /' "$out" | head -n 20
    sed 's/^/  stderr: /' "$err" | head -n 20
}

# Unless a case says otherwise, a command must succeed.
finish_command() {
    [ "$checked_exit" = true ] || [ "$status" -eq 0 ] || complain "exit status is $status, not 0"
    [ "$checked_fails" = true ] || [ "$status" -ne 0 ] || check_fails 0
    checked_exit=true checked_fails=true
}

check_fails() { # number
    checked_fails=true
    [ "$(wc -l <"$PP_FAILED")" -eq "$1" ] || complain "not $1 of its programs failed: $(cat "$PP_FAILED")"
}

run_command() {
    command=$1
    : >"$PP_FAILED"
    bash -c "$command" >"$out" 2>"$err" </dev/null
    status=$?
    checked_exit=false checked_fails=false
    after=([$out]=0 [$err]=0)
}

# The next line behind those found before that is TEXT.
has_equal() { # file text
    local n
    n=$(tail -n "+$((after[$1] + 1))" "$1" | grep -nxF -m 1 -- "$2" | cut -d: -f1)
    if [ -n "$n" ]; then ((after[$1] += n)); else complain "$(basename "$1") has no line, behind those before, that is: $2"; fi
}

# An expression that grep does not understand has no matches either.
has_none() { # file regex
    grep -qE -- "$2" "$1"
    [ $? -eq 1 ] || complain "$(basename "$1") has a line that matches, or this is no expression: $2"
    [ "$1" = "$err" ] || [ -s "$1" ] || complain "$(basename "$1") has no lines of which none could match: $2"
}

check_stream() { # file relation text
    case $2 in
        '~') grep -qE -- "$3" "$1" || complain "$(basename "$1") has no line that matches: $3" ;;
        '!~') has_none "$1" "$3" ;;
        '=') has_equal "$1" "$3" ;;
        empty) [ ! -s "$1" ] || complain "$(basename "$1") is not empty" ;;
        *) complain "the case says '$2', which is not known" ;;
    esac
}

# Whatever is asked of all elements is true of no elements.
check_json() {
    jq -es "length == 1 and .[0] != [] and (.[0] | [$1] == [true])" "$out" >/dev/null 2>"$folder/jq" || complain "not true of the JSON: $1 $(cat "$folder/jq")"
}

check_line() {
    local word=${1%% *} rest=${1#* }
    case $word in
        '$') finish_command; run_command "$rest" ;;
        fails) check_fails "$rest" ;;
        exit) checked_exit=true; [ "$status" -eq "$rest" ] || complain "exit status is $status, not $rest" ;;
        stdout) check_stream "$out" "${rest%% *}" "${rest#* }" ;;
        stderr) check_stream "$err" "${rest%% *}" "${rest#* }" ;;
        json) check_json "$rest" ;;
        needs) finish_command; command -v "$rest" >/dev/null || { echo "skipped: there is no $rest"; exit $((failures > 0 ? 1 : 77)); } ;;
        '' | '#'*) [[ $1 != ' '* ]] || complain "a line begins with a blank" ;;
        *) complain "the case says '$word', which is not known" ;;
    esac
}

continued=''
while IFS= read -r line || [ -n "$line" ]; do
    line_number=$((line_number + 1))
    if [[ $line == *\\ && $continued$line != '#'* ]]; then
        continued+="${line%\\}"
    else
        check_line "$continued$line"
        continued=''
    fi
done <"$case_file"
finish_command
[ -z "$continued" ] || complain "the last line goes on, and there is no other"
[ -n "$command" ] || complain "the case runs nothing"
exit $((failures > 0))
