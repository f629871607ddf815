# SPDX-License-Identifier: Apache-2.0
# For the scripts beside it: an empty folder, the programs in PATH, and a long run to disturb.
# shellcheck shell=bash disable=SC2034
set -euo pipefail
export PATH="${PP_BIN:?the folder of the programs}:$PATH"
movers_def=$(realpath "$(dirname "${BASH_SOURCE[0]}")/../../core/plan/movers.def")
each=$(realpath "$(dirname "${BASH_SOURCE[0]}")/each.sh")
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"

fail() {
    echo "FAILED: $*" >&2
    for log in *.log; do [ -e "$log" ] && sed "s/^/  $log: /" "$log" | tail -n 20 >&2; done
    exit 1
}

need() {
    command -v "$1" >/dev/null || { echo "$1 is not installed"; exit 77; }
}

# movers TRANSPORT|CARRIER: the names of those between processes that this build has.
movers() {
    local list name
    list=$(ppexec --list --format json | jq -r '(.transports + .carriers)[].name')
    while read -r name; do
        if grep -qx "$name" <<<"$list"; then echo "$name"; fi
    done < <(sed -nE "s/^PP_$1\((\w+), PROCESSES,.*/\1/p" "$movers_def")
}

# Hours of steps of a few ms each.
long_run=(ppexec --d-model 32 --heads 2 --d-ff 32 --vocab 500 --epochs 100000 --no-eval --db run.db)

# What takes a second on a machine that is idle, and many on one that is not; what hangs takes longer.
patience_s=60
# Users are promised that a run of which something was killed ends within 10 s. PP_SLOWER: how many times as slow programs are here.
killed_s=$((10 * ${PP_SLOWER:-1}))

# within SECONDS COMMAND...: tries it until it succeeds
within() {
    local end=$((SECONDS + $1))
    shift
    until "$@"; do
        [ "$SECONDS" -lt "$end" ] || return 1
        sleep 0.05
    done
}

within_patience() { within "$patience_s" "$@"; }

has_steps() { [ "$(sqlite3 run.db 'SELECT count(*) FROM step' 2>/dev/null || echo 0)" -gt 0 ]; }
has_ended() { ! kill -0 "$1" 2>/dev/null; }
is_gone() { ! grep -q '^State:.*[RSDT]' "/proc/$1/status" 2>/dev/null; }

# Waits until the database has steps of the run.
await_steps() { within_patience has_steps || fail "no steps in the database after $patience_s s"; }

# await_end PID [SECONDS]: its exit status in $status.
await_end() {
    if ! within "${2:-$patience_s}" has_ended "$1"; then
        kill -9 "$1"
        fail "still running ${2:-$patience_s} s later"
    fi
    status=0
    wait "$1" || status=$?
}

# The same for a process that is not a child of this shell. Dead ones whose parent does not care count as gone.
await_gone() { within "$killed_s" is_gone "$1" || fail "process $1 is still there $killed_s s later"; }

# The database opens, is sound, and holds steps without a gap.
check_database() {
    [ "$(sqlite3 run.db 'PRAGMA integrity_check')" = ok ] || fail "the database is damaged"
    [ "$(sqlite3 run.db 'SELECT count(*) = max(step) + 1 FROM step')" = 1 ] || fail "steps are missing in the database"
}

# losses <RESULT: those of a run in JSON. There are some, and all are numbers; else it fails.
losses() {
    jq -ce '.[0] | [.loss, .valid_loss, .test_loss] | select(.[0] != [] and (flatten | all(type == "number")))'
}

# ends_as WHOLE REST: are the losses of a run that went on the last ones of the run that was left alone? There are some, and one of
# the test where there are those of validation.
ends_as() {
    jq -es '.[1][0] as $r | .[0][0] | ($r.loss | length > 0 and all(type == "number")) and .loss[$r.first_step:] == $r.loss and
        (.valid_loss | type) == "array" and .valid_loss[(.valid_loss | length) - ($r.valid_loss | length):] == $r.valid_loss and
        (.test_loss != null) == (.valid_loss != []) and .test_loss == $r.test_loss' "$1" "$2" >/dev/null
}
