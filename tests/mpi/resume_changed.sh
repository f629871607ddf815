#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A checkpoint holds whole tensors, whoever had them, and says where in the data it is. So --resume-changed goes on with another
# layout, and with other numbers to learn by; what --resume is for still has the same bits.
# shellcheck source=tests/mpi/common.sh
source "$(dirname "$0")/common.sh"
need jq

model=(--d-model 24 --heads 4 --d-ff 48 --layers 4 --vocab 60 --rows 6 --tokens 12 --clip 0.25 --lr 0.003 --optimizer adamw --dropout 0
    --generated-tokens 3000 --max-batches 8 --eval-batches 3 --eval-rows 5 --chunks 3 --log-interval 1 --format json)

# train OUTPUT OPTIONS...: results in OUTPUT, messages in OUTPUT.log
train() {
    local out=$1
    shift
    ppexec "${model[@]}" "$@" >"$out" 2>"$out.log" || fail "ppexec $*"
}

# refused PATTERN OPTIONS...
refused() {
    local pattern=$1
    shift
    if ppexec "${model[@]}" "$@" >refused 2>refused.log; then fail "not refused: $*"; fi
    grep -qE -- "$pattern" refused.log || fail "$*: no message '$pattern'"
}

# close MOST A B: the losses of B, which went on where another run had been, are those of A, but for so much.
close() {
    jq -es --argjson most "$1" '.[0][0] as $a | .[1][0] as $b |
        [[$a.loss[$b.first_step:], $b.loss], [$a.valid_loss[$b.first_epoch:], $b.valid_loss], [[$a.test_loss], [$b.test_loss]]] |
        map(select(.[0][0] != null)) | length > 0 and all(.[]; (.[0] | length) == (.[1] | length)) and
        ([.[] | transpose[] | .[0] - .[1] | fabs] | max) <= $most' "$2" "$3" >/dev/null || fail "$4: other losses"
}

# save_after_three FILE OPTIONS...: kills a run as soon as it has a checkpoint; false where that is not the one of step 3 any more.
save_after_three() {
    local to=$1
    shift
    rm -f inside.st*
    ppexec "${model[@]}" "$@" --epochs 100000 --save inside.st --save-every 3 >inside 2>inside.log &
    local process=$!
    until [ -e inside.st.checkpoint ] || has_ended $process; do :; done
    kill -9 $process || fail "it ended without a checkpoint"
    wait $process 2>/dev/null || true
    cp inside.st.checkpoint "$to"
    grep -aq '"step":"3"' "$to" && grep -aq '"batches of the epoch":"3"' "$to"
}

save_inside() { within_patience save_after_three "$@" || fail "no checkpoint of step 3"; }

go_on() { # FROM OUTPUT OPTIONS...
    cp "$1" part.st.checkpoint
    train "$2" --save part.st --resume-changed "${@:3}"
}

# --- layouts ---

# All compute the same sums in another order, in float32, which rounds by 6e-8: after 24 steps losses differ by less than 1e-6 between
# layouts. (With AdamW's steps three times as long that grows from step to step, to 9e-5.)
layouts=('--chunks 2 --stages 4' '--tensor 2' '--tensor 2 --sequence-parallel --stages 1' '--replicas 2 --rows 3'
    '--replicas 3 --rows 2 --chunks 2 --zero 1' '--replicas 2 --rows 3 --zero 2 --tensor 2' '--replicas 2 --rows 3 --zero 3'
    '--replicas 6 --rows 1 --chunks 1 --zero 1 --shard-degree 3' '--context-parallel 2'
    '--context-parallel 2 --cp-comm-type all_gather --attention flash --zero 1' '--attention flash'
    '--rows 2 --replicas 3 --chunks 1 --overlap-grad-reduce')
train whole --epochs 3 --save whole.st
train begun --epochs 1 --save begun.st --save-every 5
mv begun.st.checkpoint end
save_inside inside_epoch
for layout in "${layouts[@]}"; do
    read -ra to <<<"$layout"
    for from in end inside_epoch; do
        go_on "$from" part --epochs 3 "${to[@]}"
        close 1e-5 whole part "from $from to $layout"
        grep -q 'warning: part.st.checkpoint was written with other options: .*; the run goes on with the new ones$' part.log ||
            fail "$layout: not said"
    done
    train begun --epochs 1 --save begun.st --save-every 5 "${to[@]}"
    go_on begun.st.checkpoint part --epochs 3
    close 1e-5 whole part "from $layout"
    rm -f begun.st*
done

# Experts, with room for all tokens, and without the loss that depends on which tokens meet in a microbatch.
experts=(--experts 4 --bias no --capacity-factor 4 --aux-loss 0 --shared-ff 12 --dense-layers 1 --dense-ff 40 --router-score sigmoid)
train whole_experts "${experts[@]}" --epochs 3
train begun "${experts[@]}" --epochs 1 --save begun.st --save-every 5
for layout in '--tensor 2' '--replicas 2 --rows 3 --expert-parallel 2' '--replicas 2 --rows 3 --expert-parallel 2 --zero 1 --tensor 2' \
    '--replicas 2 --rows 3 --zero 3'; do
    read -ra to <<<"$layout"
    go_on begun.st.checkpoint part "${experts[@]}" --epochs 3 "${to[@]}"
    close 1e-5 whole_experts part "experts to $layout"
done
rm -f begun.st*

# What has not changed has the same bits. What has is said once: the next checkpoint has it.
go_on inside_epoch part --epochs 3 --schedule 1f1b --zero 1
cmp whole.st part.st || fail "other weights, though nothing had changed"
close 0 whole part "nothing had changed"
if grep warning part.log | grep -v -e --zero -e 'other programs had the cores'; then fail "a change was said where there was none"; fi
go_on inside_epoch part --epochs 2 --tensor 2 --save-every 2
train rest --epochs 3 --save part.st --resume --tensor 2

# Never by accident.
cp inside_epoch part.st.checkpoint
refused 'with other options: --lr was 0.003 and is 0.02, --clip was 0.25 and is 1; give the old ones, .*--resume-changed' \
    --epochs 3 --save part.st --resume --lr 0.02 --clip 1
for other in '--layers 5' '--optimizer sgd' '--mask none' '--norm-epsilon 1e-3' '--no-eval'; do
    read -ra to <<<"$other"
    cp inside_epoch part.st.checkpoint
    refused "is of another run: ${to[0]} was [^ ]* and is [^ ]*; that cannot change" --epochs 3 --save part.st --resume-changed --lr 0.02 "${to[@]}"
done
cp inside_epoch part.st.checkpoint
refused 'is of another run: data was [0-9a-f]* and is [0-9a-f]*; that cannot change \(without --data the text depends on --seed\)' \
    --epochs 3 --save part.st --resume-changed --seed 2 --lr 0.02
refused 'there is no nothing.st.checkpoint' --save nothing.st --resume-changed

# --- numbers to learn by ---

# As a run that begins with these weights, bit for bit: of SGD they are all there is. Epochs that have ended have made a quarter of --lr.
sgd=(--optimizer sgd --no-eval --lr-decay 0.5)
train begun "${sgd[@]}" --lr 0.5 --epochs 2 --save begun.st --save-every 5
mv begun.st.checkpoint end_sgd
for change in '' '--clip 0.1' '--rows 5' '--tokens 9' '--replicas 2' '--max-batches 5' '--rows 5 --tokens 7 --max-batches 0'; do
    read -ra to <<<"$change"
    go_on end_sgd part "${sgd[@]}" --lr 2 --epochs 3 "${to[@]}"
    train new "${sgd[@]}" --lr 0.5 --epochs 1 --init end_sgd "${to[@]}"
    jq -es '.[0][0] as $p | .[1][0].loss == $p.loss and ($p.loss | length) >= 5 and $p.first_epoch == 2 and $p.first_step == 16' \
        part new >/dev/null || fail "--lr 2 $change: not the losses of a run that begins so"
    grep -q '| epoch   3 |     1/.* | lr 0.50 |' part.log || fail "--lr 2 $change: another rate"
done
go_on end_sgd part "${sgd[@]}" --lr 0.5 --warmup-steps 32 --epochs 3 # a quarter of --lr, and step 16 of 32
grep -q '|     1/    8 batches | lr 0.0664 |' part.log || fail "--warmup-steps: another rate"

# --- the place in the data ---

# Other batches would have some words of an epoch twice, so they begin with one.
for change in '--rows 5' '--tokens 9' '--replicas 2'; do
    read -ra to <<<"$change"
    cp inside_epoch part.st.checkpoint
    refused 'it is inside an epoch, after 3 of its batches' --epochs 3 --save part.st --resume-changed "${to[@]}"
done

# An epoch gets more batches, or fewer, and has those of a run that began so; but not fewer than it has behind it.
save_inside inside_plain --no-eval
for batches in 11 8 5 3; do
    train new --no-eval --max-batches $batches --epochs 2
    go_on inside_plain part --no-eval --max-batches $batches --epochs 2
    close 0 new part "--max-batches $batches"
    jq -e ".[0] | .first_step == 3 and .first_epoch == 0 and (.loss | length) == 2 * $batches - 3" part >/dev/null ||
        fail "--max-batches $batches: another number of steps"
done
cp inside_epoch part.st.checkpoint
refused '--max-batches: the run to resume has done 3 batches of its epoch, which now has 2; use at least as many' \
    --epochs 100 --save part.st --resume-changed --max-batches 2
echo "as many layouts as ${#layouts[@]}, both ways"
