/* SPDX-License-Identifier: Apache-2.0
 *
 * Options as they are called elsewhere, whose spelling says nothing of what they are called here: of Megatron-LM
 * (megatron/training/arguments.py), and what people write for short.
 */
#include <string.h>

#include "core/options/options.h"

static const struct {
    const char *name, *here;
} other_names[] = {
    /* Megatron-LM */
    {"num-layers", "layers"},
    {"hidden-size", "d-model"},
    {"ffn-hidden-size", "d-ff"},
    {"num-attention-heads", "heads"},
    {"num-query-groups", "kv-heads"},
    {"kv-channels", "head-dim"},
    {"seq-length", "tokens"},
    {"vocab-size", "vocab"},
    {"position-embedding-type", "positions"},
    {"rotary-base", "rope-theta"},
    {"swiglu", "activation"},
    {"init-method-std", "init-std"},
    {"global-batch-size", "global-rows"},
    {"train-iters", "max-batches"},
    {"clip-grad", "clip"},
    {"bf16", "precision"},
    {"fp16", "precision"},
    {"fp8-format", "precision"},
    {"use-flash-attn", "attention"},
    {"tensor-model-parallel-size", "tensor"},
    {"pipeline-model-parallel-size", "stages"},
    {"context-parallel-size", "context-parallel"},
    {"expert-model-parallel-size", "expert-parallel"},
    {"num-virtual-stages-per-pipeline-rank", "virtual"},
    {"use-distributed-optimizer", "zero"},
    {"recompute-granularity", "checkpoint"},
    {"num-experts", "experts"},
    {"moe-router-topk", "experts-per-token"},
    {"moe-ffn-hidden-size", "d-ff"},
    {"save-interval", "save-every"},
    /* for short */
    {"tp", "tensor"},
    {"pp", "stages"},
    {"dp", "replicas"},
    {"cp", "context-parallel"},
    {"ep", "expert-parallel"},
    {"vpp", "virtual"},
    {"mbs", "micro-batch-size"},
    {"gbs", "global-rows"},
    {"batch-size", "rows"},
    {"microbatches", "chunks"},
    {"num-gpus", "workers"},
};

const char *pp_option_elsewhere(const char *name)
{
    for (size_t i = 0; i < sizeof other_names / sizeof *other_names; i++)
        if (strcmp(other_names[i].name, name) == 0) return other_names[i].here;
    return NULL;
}
