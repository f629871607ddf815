#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Threads, processes, and processes of several threads compute the same bits, by every transport: losses and weights.
# shellcheck source=tests/mpi/common.sh
source "$(dirname "$0")/common.sh"
need jq

model=(--d-model 24 --heads 2 --d-ff 40 --layers 4 --vocab 60 --rows 6 --tokens 11 --clip 0.25 --lr 1 --dropout 0.3
    --generated-tokens 3000 --max-batches 8 --epochs 2 --eval-batches 3 --eval-rows 5)

transports=$(movers TRANSPORT)
[ -n "$transports" ] || fail "no transport joins processes"

compare() { # processes options...
    local n=$1 transport
    shift
    ppexec "${model[@]}" "$@" --format json --save threads.safetensors 2>threads.log | losses >threads || fail "$*: no losses"
    for transport in $transports; do
        mpirun -n "$n" ppexec "${model[@]}" "$@" --transport "$transport" --format json --save processes.safetensors \
            2>processes.log | losses >processes || fail "$n processes, $transport, $*: no losses"
        grep -q "^transport   $transport: " processes.log || fail "$n processes, $*: not by $transport"
        cmp threads processes || fail "$n processes, $transport, $*: other losses"
        cmp threads.safetensors processes.safetensors || fail "$n processes, $transport, $*: other weights"
    done
}

compare 2 --schedule gpipe --stages 2 --chunks 3
compare 2 --schedule interleaved --stages 2 --virtual 2 --chunks 2
compare 4 --schedule 1f1b --stages 4 --chunks 6 --checkpoint except_last
compare 2 --schedule gpipe --stages 2 --chunks 6 --checkpoint layers
compare 2 --schedule zbv --stages 2 --chunks 3
compare 4 --schedule zb-h2 --stages 4 --chunks 6
compare 4 --schedule 1f1b --stages 2 --tensor 2 --chunks 3 --warmup-steps 3 --lr-schedule cosine --lr-steps 12 --min-lr 0.1 --init-std 0.02
compare 4 --schedule zb-auto:5 --stages 4 --chunks 6
compare 2 --schedule 1f1b --stages 4 --chunks 3
compare 4 --schedule gpipe --stages 2 --replicas 2 --chunks 3
compare 2 --schedule 1f1b --stages 2 --replicas 2 --chunks 3
compare 4 --schedule 1f1b --stages 2 --replicas 2 --chunks 3 --attention flash --tokens 70
compare 3 --schedule 1f1b --stages 1 --replicas 3 --chunks 2 --clip 0
compare 4 --schedule zbv --stages 2 --replicas 2 --chunks 3 --optimizer adamw --lr 0.01 --zero 1
compare 4 --schedule 1f1b --stages 2 --replicas 2 --chunks 3 --optimizer adamw --lr 0.01 --zero 3 --checkpoint always
compare 2 --schedule gpipe --stages 1 --replicas 2 --tensor 2 --sequence-parallel --chunks 3 --zero 3 --tie-embeddings yes --qk-norm yes
compare 4 --schedule 1f1b --stages 1 --replicas 4 --chunks 3 --optimizer adamw --lr 0.01 --zero 3 --shard-degree 2
compare 4 --schedule zbv --stages 2 --replicas 4 --chunks 3 --zero 1 --shard-degree 2 --overlap-grad-reduce --bucket-size 1B
compare 4 --schedule 1f1b --stages 1 --replicas 4 --chunks 3 --grad-reduce-in-bf16
compare 4 --schedule zbv --stages 2 --replicas 4 --chunks 3 --zero 1 --shard-degree 2 --grad-reduce-in-bf16 --overlap-grad-reduce --bucket-size 1B
compare 2 --schedule gpipe --stages 1 --tensor 2 --chunks 3
compare 4 --schedule 1f1b --stages 2 --tensor 2 --chunks 6 --checkpoint always
compare 2 --schedule zb-h1 --stages 2 --tensor 2 --replicas 2 --chunks 3 --optimizer adamw --lr 0.01 --zero 1
compare 2 --schedule gpipe --stages 1 --tensor 2 --sequence-parallel --chunks 3
compare 2 --schedule 1f1b --stages 2 --tensor 2 --sequence-parallel --chunks 3 --overlap-tensor-sums 3 --dropout 0.2
compare 4 --schedule 1f1b --stages 2 --tensor 2 --sequence-parallel --replicas 2 --chunks 3 --norm pre --optimizer adamw --lr 0.01 --zero 1
compare 4 --schedule zbv --stages 1 --tensor 4 --sequence-parallel --heads 4 --d-ff 48 --tokens 5 --chunks 3
compare 4 --schedule zbv --stages 2 --replicas 2 --chunks 3 --overlap-grad-reduce --bucket-size 1B --norm pre
compare 2 --schedule 1f1b --stages 2 --replicas 2 --chunks 3 --zero 1 --overlap-grad-reduce --bucket-size 1B --overlap-param-gather
compare 4 --schedule 1f1b --stages 4 --chunks 3 --tie-embeddings yes
compare 4 --schedule zbv --stages 2 --replicas 2 --chunks 3 --bias no --experts 6 --expert-parallel 2 --overlap-expert-exchange 3
compare 4 --schedule 1f1b --stages 1 --replicas 2 --tensor 2 --sequence-parallel --chunks 3 --bias no --experts 4 --expert-parallel 2
compare 4 --schedule 1f1b --stages 1 --replicas 4 --chunks 2 --bias no --experts 4 --expert-bias yes --expert-parallel 2 --norm pre --activation swiglu --zero 1 --optimizer adamw --lr 0.01 \
    --overlap-grad-reduce --bucket-size 1B --overlap-param-gather
compare 4 --schedule 1f1b --stages 2 --replicas 4 --chunks 3 --bias no --experts 4 --expert-parallel 2 --zero 3 --shard-degree 2 --optimizer adamw --lr 0.01
compare 4 --schedule 1f1b --stages 2 --replicas 2 --chunks 3 --bias no --experts 4 --expert-parallel 2 --zero 2 --overlap-param-gather
compare 4 --schedule 1f1b --stages 2 --replicas 2 --chunks 3 --bias no --experts 4 --expert-parallel 2 --zero 3 --dense-layers 1 --dense-ff 56 --router-score sigmoid --shared-ff 20
compare 4 --schedule zbv --stages 2 --replicas 2 --chunks 3 --bias no --experts 4 --expert-parallel 2 --experts-every 2 --overlap-grad-reduce --bucket-size 1B
compare 4 --schedule zbv --stages 2 --context-parallel 2 --tokens 10 --chunks 3
compare 4 --schedule 1f1b --stages 2 --context-parallel 2 --replicas 2 --tokens 10 --chunks 3 --attention flash --norm pre --optimizer adamw --lr 0.01 --zero 1 --tie-embeddings yes
compare 4 --schedule 1f1b --stages 2 --context-parallel 2 --tokens 12 --chunks 3 --attention flash --cp-comm-type all_gather --positions rope --qk-norm yes --norm-epsilon 1e-6 \
    --window-size 5 --window-attn-skip-freq 2
compare 4 --schedule zbv --stages 2 --context-parallel 2 --tokens 12 --chunks 3 --attention flash --cp-comm-type p2p --dropout 0 --mask causal --positions rope
compare 3 --schedule 1f1b --stages 1 --context-parallel 3 --tokens 12 --chunks 2 --attention flash --cp-comm-type p2p --dropout 0 --mask none --checkpoint layers --zero 1
compare 4 --schedule 1f1b --stages 1 --context-parallel 2 --tensor 2 --sequence-parallel --tokens 10 --heads 4 --chunks 3 --overlap-grad-reduce --bucket-size 1B
latent=(--bias no --positions rope --kv-lora-rank 10 --qk-nope-head-dim 6 --qk-rope-head-dim 4 --v-head-dim 8)
compare 2 --schedule zbv --stages 2 --chunks 3 "${latent[@]}" --q-lora-rank 12
compare 4 --schedule 1f1b --stages 1 --context-parallel 2 --tensor 2 --sequence-parallel --tokens 10 --heads 4 --chunks 3 "${latent[@]}" --q-lora-rank 12 --zero 3
compare 2 --schedule 1f1b --stages 2 --context-parallel 2 --tokens 12 --chunks 3 --attention flash --cp-comm-type all_gather "${latent[@]}"
compare 2 --schedule zbv --stages 2 --replicas 2 --chunks 3 --tie-embeddings yes --optimizer adamw --lr 0.01 --zero 1
compare 4 --schedule gpipe --stages 2 --tensor 2 --replicas 2 --chunks 3 --tie-embeddings yes --clip 0
