#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Emulated GPUs: processes, by every carrier, and processes of several threads compute the bits of threads of
# one process: losses and weights. Sums of two members have one order only, so this holds for NCCL's too; of three whose
# sum depends on it, the emulated NCCL adds in member order, as a real one need not. And they follow the cpu.
# shellcheck source=tests/mpi/common.sh
source "$(dirname "$0")/../mpi/common.sh"
need jq

model=(--d-model 24 --heads 2 --d-ff 40 --layers 2 --vocab 60 --rows 6 --tokens 11 --clip 0.25 --lr 1 --dropout 0.3
    --generated-tokens 3000 --max-batches 2 --epochs 1 --eval-batches 1 --eval-rows 5 --log-interval 1)

train() { # NAME [mpirun -n N] -- options...
    local name=$1 start=()
    shift
    while [ "$1" != -- ]; do start+=("$1") && shift; done
    shift
    "${start[@]}" ppexec "${model[@]}" "$@" --format json --save "$name.safetensors" 2>"$name.log" >"$name.json" ||
        fail "$name $*: exit status $?"
    losses <"$name.json" >"$name" || fail "$name $*: no losses"
}

carriers=$(movers CARRIER)
[ "$(wc -w <<<"$carriers")" -gt 1 ] || fail "carriers: $carriers"

compare() { # processes options...
    local n=$1 transport
    shift
    train threads -- --device cuda "$@"
    for transport in $carriers; do
        train "$transport" mpirun -n "$n" -- --device cuda --transport "$transport" "$@"
        grep -q "^transport   $transport" "$transport.log" || fail "$n processes, $*: not by $transport"
        cmp threads "$transport" || fail "$n processes, $transport, $*: other losses"
        cmp threads.safetensors "$transport.safetensors" || fail "$n processes, $transport, $*: other weights"
    done
}

# What another comparison comes close to: in the slow test only.
seldom() { [ -z "${PP_ALL:-}" ] || "$@"; }

follow_cpu() { # options...
    train cpu -- --device cpu "$@"
    train gpu -- --device cuda "$@"
    jq -e -n --slurpfile a cpu --slurpfile b gpu \
        '[$a[0], $b[0]] | map(flatten) | transpose | all((.[0] - .[1]) / .[0] | fabs < 1e-3)' >/dev/null ||
        fail "$*: $(cat cpu) on the cpu, $(cat gpu) on the GPU"
}

export PP_EMULATE_JITTER_US=50 PP_EMULATE_DEVICES=4
compare 4 --schedule 1f1b --stages 4 --layers 4 --chunks 6 --checkpoint except_last --epochs 2
seldom compare 2 --schedule 1f1b --stages 4 --layers 4 --chunks 3 --checkpoint layers
seldom compare 2 --schedule 1f1b --stages 2 --layers 4 --replicas 2 --chunks 3
compare 3 --schedule 1f1b --stages 1 --replicas 3 --chunks 2 --clip 0 # switches must not add
grep -qE 'equal bits .*sums by NCCL 2\.[0-9]+\.[0-9]+"' nccl.log || fail "the key does not name NCCL's version"
compare 3 --schedule 1f1b --stages 1 --replicas 3 --chunks 2 --zero 1 --overlap-grad-reduce --overlap-param-gather --bucket-size 1K
grep -qE 'equal bits .*sums by NCCL [0-9.]+ in shares in parts"' nccl.log || fail "the key does not say that NCCL sums parts"

# Replicas that share the optimizer's work: by every carrier, and within one process, the bits of those that do not. The
# second epoch makes everything worse, so that the best weights are put together again from their shares.
worse=(--stages 2 --layers 4 --replicas 2 --chunks 3 --optimizer adamw --lr 0.05 --lr-decay 40 --precision bf16 --epochs 2)
train alone -- --device cuda "${worse[@]}"
seldom compare 4 "${worse[@]}" --zero 1
seldom cmp alone threads || fail "--zero 1: other losses than --zero 0"
seldom cmp alone.safetensors threads.safetensors || fail "--zero 1: other weights than --zero 0"
seldom compare 2 --schedule 1f1b --stages 1 --replicas 4 --chunks 2 --zero 1
# Their sums and gathering in parts beside the computations.
parts=(--overlap-grad-reduce --bucket-size 1B)
compare 4 "${worse[@]}" --zero 1 "${parts[@]}" --overlap-param-gather
cmp alone threads || fail "--overlap-param-gather: other losses"
cmp alone.safetensors threads.safetensors || fail "--overlap-param-gather: other weights"
seldom compare 2 --schedule 1f1b --stages 1 --replicas 4 --chunks 2 --precision bf16 "${parts[@]}"
# Replicas that keep shares of all: of one microbatch the bits of those that do not.
one=("${worse[@]}" --chunks 1)
train alone -- --device cuda "${one[@]}"
compare 4 "${one[@]}" --zero 3
cmp alone threads || fail "--zero 3: other losses"
cmp alone.safetensors threads.safetensors || fail "--zero 3: other weights"
seldom compare 4 --schedule 1f1b --stages 2 --layers 4 --replicas 2 --chunks 3 --zero 3 --precision bf16 --checkpoint layers
# Of gradients alone; and experts, of which fewer have the same ones.
seldom compare 4 "${one[@]}" --zero 2 --overlap-param-gather
seldom cmp alone threads || fail "--zero 2: other losses"
seldom cmp alone.safetensors threads.safetensors || fail "--zero 2: other weights"
compare 4 --schedule 1f1b --stages 1 --replicas 4 --chunks 2 --bias no --experts 4 --expert-parallel 2 --zero 2 --precision bf16
grep -qE 'equal bits .*sums by NCCL [0-9.]+ in shares in parts"' nccl.log || fail "the key leaves out expert ranks, who sum"
# In groups, which sum shares: each process has a group, or a replica of each.
compare 2 --schedule 1f1b --stages 1 --replicas 4 --chunks 3 --zero 3 --shard-degree 2 --precision bf16
seldom compare 4 --schedule 1f1b --stages 2 --layers 4 --replicas 4 --chunks 3 --zero 1 --shard-degree 2 "${parts[@]}" --overlap-param-gather
# Gradients that are rounded to be summed, in a queue of their own: the bits do not depend on who shares.
rounded=("${worse[@]}" --grad-reduce-in-bf16)
train alone -- --device cuda "${rounded[@]}"
compare 4 "${rounded[@]}" --zero 1 "${parts[@]}" --overlap-param-gather
cmp alone threads || fail "--grad-reduce-in-bf16 --zero 1: other losses"
cmp alone.safetensors threads.safetensors || fail "--grad-reduce-in-bf16 --zero 1: other weights"
seldom compare 4 --schedule 1f1b --stages 1 --replicas 4 --chunks 2 --zero 3 --shard-degree 2 --precision bf16 --grad-reduce-in-bf16
seldom compare 2 --schedule 1f1b --stages 2 --layers 4 --replicas 4 --chunks 3 --zero 1 --shard-degree 2 --grad-reduce-in-bf16 "${parts[@]}"
follow_cpu --schedule 1f1b --stages 2 --layers 4 --replicas 2 --chunks 3 --grad-reduce-in-bf16

# Workers of a rank, whose sums are inside tasks: of one process, of several, of both.
seldom compare 4 --schedule 1f1b --stages 2 --layers 4 --tensor 2 --chunks 3
seldom compare 2 --schedule 1f1b --stages 2 --layers 4 --tensor 2 --chunks 3 --precision bf16 --overlap-tensor-sums 3
seldom compare 2 --schedule gpipe --stages 1 --tensor 4 --heads 4 --d-ff 48 --chunks 2 --precision bf16
compare 4 --schedule 1f1b --stages 2 --layers 4 --tensor 2 --sequence-parallel --chunks 3 --precision bf16 --overlap-tensor-sums 4
seldom compare 4 --schedule 1f1b --stages 2 --layers 4 --tensor 2 --sequence-parallel --chunks 3 --precision bf16
seldom compare 2 --schedule gpipe --stages 1 --tensor 4 --sequence-parallel --heads 4 --d-ff 48 --tokens 5 --chunks 2 --norm pre
compare 2 --schedule gpipe --stages 1 --tensor 2 --sequence-parallel --d-model 4 --d-ff 8 --tokens 2 --rows 2 --chunks 2 --eval-rows 1 # parts below a line

# The gradients of tied embeddings, summed over two ranks, or on one that has both.
seldom compare 4 --schedule gpipe --stages 2 --layers 4 --replicas 2 --chunks 3 --batch-w 2 --tie-embeddings yes
seldom compare 2 --schedule zbv --stages 2 --layers 4 --chunks 3 --tie-embeddings yes --precision bf16
seldom compare 3 --schedule gpipe --stages 3 --layers 4 --chunks 3 --tie-embeddings yes --optimizer adamw --lr 0.01 --clip 0
# Tokens sent to the workers that have their experts.
experts=(--bias no --experts 6 --norm pre --activation swiglu --chunks 2)
seldom compare 4 --schedule zbv --stages 1 --replicas 4 "${experts[@]}" --expert-parallel 2 --precision bf16 --overlap-expert-exchange 3
compare 3 --schedule 1f1b --stages 1 --replicas 3 "${experts[@]}" --expert-parallel 3 --dense-layers 1 --dense-ff 56 --router-score sigmoid --precision bf16 --shared-ff 20 --overlap-expert-exchange 2
compare 4 --schedule 1f1b --stages 1 --replicas 4 --tensor 2 --sequence-parallel "${experts[@]}" --experts 8 --expert-parallel 4 --precision bf16
seldom compare 4 --schedule interleaved --stages 2 --layers 4 --virtual 2 --replicas 4 "${experts[@]}" --expert-parallel 2 --zero 1 --optimizer adamw --lr 0.01 "${parts[@]}"
# Tokens of rows, exchanged for heads: by themselves; with replicas, whose groups are no successive workers; with all else that meets.
shared=(--heads 4 --tokens 12 --context-parallel 2 --chunks 3)
seldom compare 4 --schedule 1f1b --stages 2 --layers 4 "${shared[@]}" --precision bf16
seldom compare 2 --schedule 1f1b --stages 2 --layers 4 "${shared[@]}" --attention flash
seldom compare 3 --schedule gpipe --stages 1 --context-parallel 3 --heads 6 --tokens 12 --chunks 2 --positions learned --max-positions 20 --checkpoint layers
compare 4 --schedule 1f1b --stages 1 --heads 2 --tokens 16 --context-parallel 4 --chunks 3 --attention flash --cp-comm-type all_gather --precision bf16 --window-size 6
compare 4 --schedule 1f1b --stages 1 --heads 2 --tokens 16 --context-parallel 4 --chunks 3 --attention flash --cp-comm-type p2p --dropout 0 --precision bf16 --mask causal
seldom compare 2 --schedule zbv --stages 2 --layers 4 "${shared[@]}" --attention flash --cp-comm-type p2p --dropout 0 --positions rope --qk-norm yes
seldom compare 2 --schedule 1f1b --stages 2 --layers 4 "${shared[@]}" --attention flash --cp-comm-type all_gather --positions rope --qk-norm yes
compare 2 --schedule gpipe --stages 1 --context-parallel 4 --heads 4 --tokens 12 --chunks 1 # pieces fill a queue
latent=(--bias no --positions rope --kv-lora-rank 10 --qk-nope-head-dim 6 --qk-rope-head-dim 4 --v-head-dim 8)
compare 4 --schedule 1f1b --stages 1 "${shared[@]}" --tensor 2 "${latent[@]}" --q-lora-rank 12
seldom compare 4 --schedule 1f1b --stages 2 --layers 4 --replicas 2 "${shared[@]}" --clip 0
train threads -- --device cuda --schedule 1f1b --stages 2 --layers 4 --replicas 2 "${shared[@]}" --precision bf16
cp threads unshared && cp threads.safetensors unshared.safetensors
compare 8 --schedule 1f1b --stages 2 --layers 4 --replicas 2 "${shared[@]}" --precision bf16 --zero 1 "${parts[@]}" --overlap-param-gather
cmp unshared threads || fail "--context-parallel 2 --zero 1: other losses than --zero 0"
cmp unshared.safetensors threads.safetensors || fail "--context-parallel 2 --zero 1: other weights than --zero 0"
seldom compare 4 --schedule zbv --stages 2 --layers 4 "${shared[@]}" --zero 1 --tie-embeddings yes
seldom compare 4 --schedule 1f1b --stages 1 --replicas 2 "${shared[@]}" "${experts[@]}" --expert-parallel 2
compare 8 --schedule 1f1b --stages 1 --replicas 2 "${shared[@]}" "${experts[@]}" --experts 8 --expert-parallel 2 --tensor 2 --sequence-parallel --overlap-tensor-sums 2 --overlap-expert-exchange 2 --zero 1 --optimizer adamw --lr 0.01 --precision bf16
# Everything at once.
compare 8 --schedule interleaved --stages 2 --layers 4 --virtual 2 --tensor 2 --replicas 2 --chunks 2 --tie-embeddings yes --zero 1 --optimizer adamw --lr 0.01 \
    "${parts[@]}" --overlap-param-gather

# One GPU for all: each process a host of its own for NCCL, and two of a sum's members in one process.
export PP_EMULATE_DEVICES=1
compare 2 --schedule 1f1b --stages 2 --layers 4 --replicas 2 --chunks 3
grep -q 'times mean nothing' staged.log || fail "no word about times on a shared GPU"
seldom compare 2 --schedule 1f1b --stages 1 --replicas 4 --chunks 3
seldom compare 4 --schedule 1f1b --stages 1 --replicas 2 --tensor 2 --chunks 3
seldom compare 2 --schedule 1f1b --stages 2 --layers 4 --replicas 2 "${experts[@]}" --expert-parallel 2
compare 2 --schedule 1f1b --stages 2 --layers 4 --replicas 2 "${shared[@]}"
seldom compare 4 --schedule 1f1b --stages 1 --tensor 2 "${shared[@]}"

seldom follow_cpu --schedule 1f1b --stages 2 --layers 4 --replicas 2 --chunks 3
follow_cpu --schedule 1f1b --stages 2 --layers 4 --tensor 2 --sequence-parallel --chunks 3
seldom follow_cpu --schedule 1f1b --stages 2 --layers 4 --tie-embeddings yes --chunks 3
follow_cpu --schedule 1f1b --stages 2 --layers 4 --replicas 2 "${experts[@]}" --expert-parallel 2
follow_cpu --schedule 1f1b --stages 2 --layers 4 "${shared[@]}" --positions rope --kv-heads 2 --qk-norm yes --bias qkv --norm-epsilon 1e-6
follow_cpu --schedule 1f1b --stages 2 --layers 4 --tensor 2 --chunks 3 "${latent[@]}"
follow_cpu --schedule 1f1b --stages 2 --layers 4 --tensor 2 --chunks 3
cp gpu shared
train gpu -- --device cuda --schedule 1f1b --stages 2 --layers 4 --chunks 3
jq -e -n --slurpfile a shared --slurpfile b gpu \
    '[$a[0], $b[0]] | map(flatten) | transpose | all((.[0] - .[1]) / .[0] | fabs < 1e-5)' >/dev/null ||
    fail "--tensor 2: $(cat shared), --tensor 1: $(cat gpu)"
