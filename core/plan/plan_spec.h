/* SPDX-License-Identifier: Apache-2.0
 *
 * What a plan is made from: the shape of the pipeline, the modes that add tasks, and what a schedule may decide by.
 */
#ifndef PP_CORE_PLAN_PLAN_SPEC_H
#define PP_CORE_PLAN_PLAN_SPEC_H

#include <stdbool.h>
#include <stdint.h>

#include "core/plan/task.h"
#include "core/shape/zero.h"

/* Activation checkpointing: what a microbatch keeps of a stage for its backward. */
enum pp_checkpoint {
    /* All activations. */
    PP_CHECKPOINT_NEVER,
    /* The stage's input alone, from which R runs the stage's forward again (torchgpipe's modes): in all microbatches
     * but the last, or in all. */
    PP_CHECKPOINT_EXCEPT_LAST,
    PP_CHECKPOINT_ALWAYS,
    /* The input of each layer, from which B runs one layer again before it goes back through it; there is no R, and no
     * split backward (Megatron-LM's full recomputation, method uniform, one layer at a time; other than there, the last
     * stage's decoder is run again, too). */
    PP_CHECKPOINT_LAYERS,
    /* From here on modes change what a slot holds, not the tasks, which are those of PP_CHECKPOINT_NEVER. */
    /* All but the outputs of activation functions, which the backward computes again from their inputs (DeepSeek-V3,
     * 2024; Megatron-LM's moe_act). */
    PP_CHECKPOINT_ACTIVATION,
    PP_CHECKPOINTS,
    /* PP_CHECKPOINT_SOME_LAYERS + N - 1, for N = 1, 2, ...: the first N layers of each stage keep their inputs alone
     * and are run again one by one, as with PP_CHECKPOINT_LAYERS; all others keep everything (Megatron-LM's full
     * recomputation, method block). */
    PP_CHECKPOINT_SOME_LAYERS = PP_CHECKPOINTS
};

/* N of PP_CHECKPOINT_SOME_LAYERS; 0 for the other modes. */
static inline int pp_checkpoint_some(int checkpoint)
{
    return checkpoint < PP_CHECKPOINT_SOME_LAYERS ? 0 : checkpoint - PP_CHECKPOINT_SOME_LAYERS + 1;
}

/* Does the mode only change what a slot holds, and leave the tasks as they are? */
static inline bool pp_checkpoint_in_slots(int checkpoint) { return checkpoint >= PP_CHECKPOINT_ACTIVATION; }

/* The mode as --checkpoint has it: "never", "layers", "layers:2", ... Returns buf. */
#define PP_CHECKPOINT_TEXT 24
const char *pp_checkpoint_text(int checkpoint, char buf[PP_CHECKPOINT_TEXT]);

/* The times that a schedule may decide by, in any one unit. They are whole numbers, so that every machine decides
 * alike. Stragglers, jitter and a shorter last microbatch are not in them. */
struct pp_stage_costs {
    const int64_t *forward, *input, *weight; /* [stages] time of F, I and W of one microbatch */
    int64_t hop;                             /* from the end of a task until another rank has its result */
};

/* The letters P, V, M, T, N and C are those of struct pp_plan (core/plan/plan.h), which also explains the fields whose
 * names it shares. */
struct pp_plan_spec {
    const char *schedule; /* a registered name (schedules/schedule.h), or the path of a schedule file */
    int ranks, virtual_stages, microbatches; /* P, V, M */
    int replicas;                            /* a multiple of C. Several replicas (or N > 1) add REDUCE_GRAD */
    int tensor, expert_parallel, context;    /* T, N, C; 0 means 1 */
    /* enum pp_zero: PP_ZERO_OPTIMIZER adds GATHER_PARAM, PP_ZERO_GRADIENTS also ADD_GRAD, and PP_ZERO_PARAMETERS also
     * PUT_PARAM */
    int zero;
    int shard_group;     /* replicas in a group that shards; 0 means all. Fewer than all add REDUCE_SHARE */
    bool rounds_weights; /* weights are rounded to FP8 (see struct pp_plan) */
    const int *rows;     /* [microbatches] rows of each; NULL = 1 each */
    int checkpoint;      /* enum pp_checkpoint */
    int recv_buffers;    /* receive slots per channel; 0 = transfers have no slots, so nothing limits them */
    bool training;       /* false: forward only (evaluation) */
    bool optimizer;      /* adds STEP */
    bool clip;           /* gradient clipping: adds NORM and NORM_ALL */
    bool tied;           /* tied embedding and decoder: adds REDUCE_TIED */
    /* [stages] bytes of the parts of an activation slot: in a plan without W tasks, and in one with them. NULL: all
     * slots are equal, and have one part. If the second is NULL, the first counts for both. */
    const int64_t (*act_bytes[2])[PP_ACT_PARTS];
    /* K > 1: the weight gradients of up to K successive microbatches of a stage become one W task (count > 1), if the
     * order of the schedule, with each B split into I and W, allows the W to wait. 0 and 1: one W per microbatch. */
    int batch_w;
    /* [stages] number of parts in which a stage's gradients are summed, each as soon as the stage's last backward has
     * made it. 0 and 1: as a whole; NULL: all stages as a whole. */
    const int *parts;
    bool gather_first; /* GATHER_PARAM begins the step, in those parts, beside the forwards that need the parameters */
    const struct pp_stage_costs *costs; /* NULL: all tasks take equally long, and hops take no time */
};

#endif
