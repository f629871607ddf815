# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# Sourced by scripts/gpu: runs a step, remembers what became of it, and puts what was found where it is fetched from.
# `results` and `deadline` (of this call, in SECONDS) are scripts/gpu's.
: "${results:?}" "${deadline:?}"
out_of_time=0
matched=0 # steps that PP_GPU_ONLY names, done or not
running= # the step under way: it has a process group of its own
brought=$SECONDS bring_every=${PP_GPU_BRING_SECONDS:-60}
trap stopped TERM INT HUP

left_out() { echo "== $1: left out, $2" >&2; }

# hung STEP: its last run was ended by its own time limit. What would hang as well can be left out.
hung() { [ "$(awk -F'\t' -v step="$1" '$1 == step { state = $2 } END { print state }' "$results/steps.tsv" 2>/dev/null)" = "time limit" ]; }

# sum_of FIND-ARGUMENT...: of names and contents.
sum_of() { find "$@" -type f -print0 | LC_ALL=C sort -z | xargs -0 sha256sum | sha256sum | cut -c1-16; }
all_folders=(CMakeLists.txt cmake core kernels schedules sim exec profiles analysis tests scripts)
tree=$(sum_of "${all_folders[@]}" -not -name '*.pyc') # all that a step runs

# step NAME SECONDS COMMAND...: runs it once, with a limit; NAME is "part.step". Exit status 77 is "skipped", 3 is "go on next time".
step() {
    local name=$1 limit=$2 left=$((deadline - SECONDS)) begin=${EPOCHREALTIME/[.,]/} code state ended timer
    shift 2
    # shellcheck disable=SC2053 # a pattern
    [[ $name == ${PP_GPU_ONLY:-*} ]] || return 0
    matched=1
    if [ -e "$results/done/$name" ]; then return 0; fi
    # What failed late would take as much of each call, and nothing that it runs has changed.
    if [ -z "${PP_GPU_ONLY:-}" ] && [ "$(cat "$results/failed/$name" 2>/dev/null)" = "$tree" ]; then
        left_out "$name" "it took a minute and failed; PP_GPU_ONLY=$name tries it again"
        return 0
    fi
    if [ "$left" -lt 20 ]; then
        out_of_time=1
        return 0
    fi
    echo "== $name: $*" >&2
    touch "$results/.begun"
    if [ -f "$results/log/$name.log" ]; then mv "$results/log/$name.log"{,.before}; fi # it may say what went wrong
    timeout -k 10 "$((limit < left ? limit : left))" "$@" >"$results/log/$name.log" 2>&1 &
    running=$!
    while kill -0 "$running" 2>/dev/null; do # a step takes up to ten minutes, and whoever is killed has no time left
        sleep "$bring_every" >/dev/null 2>&1 &
        timer=$!
        wait -n -p ended "$running" "$timer"
        if [ "${ended:-}" = "$timer" ]; then bring_back; else kill "$timer" 2>/dev/null; fi
    done
    wait "$running" # also of one that ended while an archive was made: bash keeps its status
    code=$?
    running=
    case $code in
    0) state=ok ;;
    77) state=skipped ;;
    3) state=unfinished ;;
    124 | 137) state="time limit" ;;
    *) state="failed ($code)" ;;
    esac
    # Cut short because the call's time was up: not the step's fault.
    if [ "$state" = "time limit" ] && [ "$left" -lt "$limit" ]; then state=unfinished; fi
    if [ "$state" = unfinished ]; then out_of_time=1; fi
    remember "$name" "$state" "$((${EPOCHREALTIME/[.,]/} - begin))" "$@"
    if ((SECONDS - brought >= bring_every)); then bring_back; fi
    return 0
}

# remember NAME STATE MICROSECONDS COMMAND...
remember() {
    local name=$1 state=$2 taken=$(($3 / 100000))
    shift 3
    printf '%s\t%s\t%d.%d\t%s\n' "$name" "$state" $((taken / 10)) $((taken % 10)) "${*//"$PWD/"/}" >>"$results/steps.tsv"
    rm -f "$results/failed/$name"
    case $state in
    ok | skipped) touch "$results/done/$name" ;;
    unfinished) ;;
    *) if [ "$taken" -ge 600 ]; then echo "$tree" >"$results/failed/$name"; fi ;;
    esac
    echo "   $state, $((taken / 10)) s" >&2
    if [ "${state%% *}" = failed ]; then tail -12 "$results/log/$name.log" >&2; fi
}

# to_out FILE...: some hosts give back files of 16 MiB at most.
to_out() {
    local file
    [ -n "${OUT:-}" ] || return 0
    for file in "$@"; do
        if [ ! -f "$file" ]; then continue; fi
        if [ "$(stat -c %s "$file")" -gt 16000000 ]; then
            echo "gpu: ${file##*/} is too large for some hosts to give back: left out of OUT" >&2
            continue
        fi
        cp "$file" "$OUT/.${file##*/}" && mv "$OUT/.${file##*/}" "$OUT/${file##*/}" # whoever is stopped leaves the old one
    done
}

# written_now: names the databases that the step under way writes. What it commits may be in FILE-wal alone.
written_now() {
    local file
    [ -n "$running" ] || return 0
    find . '(' -path ./build -o -path ./bundle ')' -prune -o -name '*.db' -printf '%P\n' | while read -r file; do
        if [ "$file" -nt .begun ] || [ "$file-wal" -nt .begun ]; then echo "$file"; fi
    done
}

# copy_databases FILE...: into .copies, by SQLite: the files of one that is written are no database. What SQLite cannot copy is left out.
copy_databases() {
    nice python3 -c 'import pathlib, sqlite3, sys
for name in sys.argv[1:]:
    copy = pathlib.Path(".copies", name)
    copy.parent.mkdir(parents=True, exist_ok=True)
    try:
        sqlite3.connect(name).backup(sqlite3.connect(copy))
    except sqlite3.Error:
        copy.unlink(missing_ok=True)' "$@"
}

# pack OPTION...: what was measured.
pack() {
    local file written=() without=()
    mapfile -t written < <(written_now)
    for file in "${written[@]}"; do without+=(-not -path "./$file" -not -path "./$file-*"); done
    if [ "${#written[@]}" -gt 0 ]; then copy_databases "${written[@]}"; fi
    find . '(' -path ./build -o -path ./bundle ')' -prune -o -type f -not -name '*.tar.gz*' -not -name .begun "${without[@]}" -printf '%P\0' |
        nice tar -czf results.tar.gz.new "$@" --transform 's,^\.copies/,,' --null -T -
    local code=$?
    rm -rf .copies
    [ "$code" -le 1 ] # 1: a file changed meanwhile
}

# A host that is lent may be taken back at once: this goes to OUT while the call runs, too.
bring_back() {
    brought=$SECONDS
    # Without databases another host cannot add to a profile.
    if ! (cd "$results" && pack && { [ "$(stat -c %s results.tar.gz.new)" -le 16000000 ] || pack --exclude='*.db*'; } &&
        mv results.tar.gz.new results.tar.gz); then
        rm -f "$results/results.tar.gz.new"
        echo "gpu: no archive could be made; the one before stays (is the disk full?)" >&2
    fi
    to_out "$results"/{results,build}.tar.gz
}

# Whoever stops the call gets what there is.
stopped() {
    local i
    trap '' TERM INT HUP
    if [ -n "$running" ]; then
        kill "$running"
        for ((i = 0; i < 30; i++)); do kill -0 "$running" 2>/dev/null && sleep 0.1; done
        running=
    fi
    bring_back
    exit 143
}

# show_figures PAGE: what matters most of it. Where no file comes back, the call's output has this.
show_figures() { awk '/^## / { on = /Speed|Learning/ } /^All [0-9]+ together/ || (on && /^\|/)' "$1" 2>/dev/null | cut -c1-250; }

# Ends the call: 0 all has worked, 1 something failed, 3 out of time.
finish() {
    local failed=0
    echo
    show_figures "$results/$(machine_name).md"
    awk -F'\t' '{ state[$1] = $2 } END { for (step in state) { split(step, part, "."); n[part[1] "\t" state[step]]++ }
        for (key in n) print key "\t" n[key] }' "$results/steps.tsv" 2>/dev/null | sort | { column -t -s "$(printf '\t')" 2>/dev/null || cat; }
    echo "results: $results ($(machine_name).md)"
    awk -F'\t' '{ state[$1] = $2 } END { for (step in state) if (state[step] ~ /^(failed|time limit)/) exit 1 }' \
        "$results/steps.tsv" 2>/dev/null || failed=1
    if [ "$matched" = 0 ] && [ -n "${PP_GPU_ONLY:-}" ]; then echo "gpu: no step of these parts has a name like $PP_GPU_ONLY" >&2; fi
    if [ "$out_of_time" = 1 ]; then
        echo "out of time: start again to go on"
        exit 3
    fi
    exit "$failed"
}
