#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A run is killed again and again, at random moments, many of them while it writes its checkpoint, and goes on each time under
# another schedule. Whatever was computed until the end has the bits of a run that was never killed.
# shellcheck source=tests/mpi/common.sh
source "$(dirname "$0")/common.sh"
need jq
need sqlite3

run=(ppexec --d-model 48 --heads 2 --d-ff 96 --layers 4 --vocab 400 --rows 6 --tokens 12 --chunks 3 --dropout 0.3
    --generated-tokens 30000 --max-batches 200 --epochs 4 --eval-batches 3 --eval-rows 5 --lr 1 --format json)
variants=('--schedule gpipe' '--schedule 1f1b' '--schedule interleaved --virtual 2' '--schedule 1f1b --stages 4 --checkpoint always')
RANDOM=${PP_SEED:-1}

# What the log says of losses; times differ.
lines() { sed -nE '/^\|/{s/(ms\/batch|time:) *[0-9.]+s?//;p}' "$1"; }

steps_done() { grep -ao '"step":"[0-9]*"' run.st.checkpoint 2>/dev/null | grep -o '[0-9]*' || echo 0; }

# With best weights and what the optimizer keeps in the checkpoint, and without; at one rate, and at one of each step;
# where workers share rows and what the optimizer keeps.
for options in "--save-every 1 --optimizer adamw" "--save-every 2 --optimizer adamw --context-parallel 2 --zero 1 --lr 0.01" \
    "--save-every 3 --no-eval --warmup-steps 100 --lr-schedule cosine --lr-steps 700 --min-lr 0.1"; do
    read -ra saving <<<"$options"
    rm -f run.* whole.*
    "${run[@]}" "${saving[@]:2}" --save whole.st --db whole.db >whole 2>whole.log
    kills=0
    while [ "$kills" -lt 12 ] && [ "$(steps_done)" -lt 400 ]; do
        read -ra variant <<<"${variants[kills % 4]}"
        "${run[@]}" "${saving[@]}" "${variant[@]}" --save run.st --resume --db run.db >part 2>part.log &
        process=$!
        sleep "0.$(printf '%03d' $((50 + RANDOM % 300)))"
        kill -9 $process 2>/dev/null || true # it may have come to its end
        kills=$((kills + 1))
        wait $process || [ $? -eq 137 ] || fail "a run ended by itself"
    done
    echo "$options: $kills kills, the last after $(steps_done) steps were saved"
    "${run[@]}" "${saving[@]:2}" --save run.st --save-every 100 --resume --db run.db >rest 2>rest.log || fail "it does not go on"
    cmp whole.st run.st || fail "other weights"
    ends_as whole rest || fail "other losses"
    lines rest.log >rest.lines
    [ -s rest.lines ] || fail "no lines in the log"
    lines whole.log | tail -n "$(wc -l <rest.lines)" | cmp - rest.lines || fail "other lines in the log"
    [ "$(sqlite3 run.db "ATTACH 'whole.db' AS whole; SELECT count(*) > 0 AND sum(s.loss IS NULL OR s.loss IS NOT w.loss) = 0
        FROM step s JOIN whole.step w USING(step)")" -eq 1 ] || fail "other losses in the database, or none"
    [ "$(echo run.st*)" = "run.st run.st.checkpoint" ] || fail "something was left: $(echo run.st*)"
done
