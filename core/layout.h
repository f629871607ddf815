/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory layout: where everything lies in each rank's arena. A function of plans and model, never of time: what ppsim
 * reports is what ppexec allocates, byte for byte.
 *
 * A run has one arena per worker and several plans over it (training, evaluation). Regions, in this order, each aligned
 * to 256 bytes: parameters, their bfloat16 copies, gradients, those that are rounded to be summed, what the optimizer
 * keeps, activation slots, checkpoint slots, receive, send and local slots, tokens and targets, scratch. Pools of
 * several plans that mean the same (kind, rank, key) share their memory, which is as large as the plan needs that needs
 * most: its slots, each as large as its largest microbatch needs.
 */
#ifndef PP_CORE_LAYOUT_H
#define PP_CORE_LAYOUT_H

#include <stdint.h>

#include "core/plan.h"
#include "core/program.h"

enum pp_memory_kind {
    PP_BYTES_PARAM,
    PP_BYTES_GRAD,
    PP_BYTES_STATE, /* of the optimizer */
    PP_BYTES_ACT,
    PP_BYTES_CKPT,
    PP_BYTES_TRANSFER, /* receive, send and local slots */
    PP_BYTES_DATA,     /* tokens and targets of one step */
    PP_BYTES_WORK,
    PP_BYTES_KINDS
};
extern const char *const pp_memory_names[PP_BYTES_KINDS];

/* One plan of the run with its programs for one sequence length. */
struct pp_phase {
    const struct pp_plan *plan;
    int seq;                     /* tokens per row */
    struct pp_program *programs; /* [plan->nclasses]; transfers and collectives are empty */
};

struct pp_layout {
    int ranks, members, nstages, nplans; /* members: workers of each rank, all with the same arena */
    int64_t *param_offset, *grad_offset; /* [nstages], in the arena of the stage's rank */
    int64_t *param16_offset;             /* [nstages] of the bfloat16 copies (PP_MEM_PARAM16); -1: there are none */
    int64_t *state_offset;               /* [nstages] of what the optimizer keeps (PP_MEM_STATE); -1: nothing */
    /* [ranks] where gradients lie that are rounded to be summed over replicas, and shares of them over groups: one sum
     * at a time; -1: none are */
    int64_t *sent_offset, *sent_share_offset;
    int64_t *arena_bytes;                /* [ranks] */
    int64_t (*bytes)[PP_BYTES_KINDS];    /* [ranks] how arena_bytes is made up (alignment counts where it falls) */
    /* [ranks] fixed regions + most bytes of slots in use at once, in issue order */
    int64_t *live_peak_bytes;
    int64_t *data_offset, *work_offset; /* [ranks] data: int32 tokens[max rows*seq], then targets */
    int64_t data_elements;              /* tokens (and targets) of one step, the largest phase */
    int64_t **slot_offset;              /* [nplans][plan->nslots] in the arena of the slot's rank */
};

/* What programs of the phase are written for, over slots with room for so many rows. */
struct pp_program_spec pp_phase_spec(const struct pp_phase *phase, int rows);

/* The phase of a plan, which must outlive it, for rows of so many tokens. To be freed also after a failure. */
pp_status pp_phase_create(const struct pp_model *model, const struct pp_model_ops *ops, const struct pp_plan *plan,
                          int seq, struct pp_phase *out) PP_MUST_CHECK;
void pp_phase_free(struct pp_phase *phase);

/* What a microbatch of so many rows keeps to run a stage again. */
int64_t pp_phase_checkpoint_bytes(const struct pp_model *model, const struct pp_phase *phase, int stage, int rows);

/* phases: [n]; phases that share a plan share slot offsets; nplans counts distinct plans in order of appearance, and
 * phase i uses slot_offset[plan index]. With gradients only if some phase trains. PP_USAGE where the workers of all
 * replicas of the first plan would need more than 1 EiB. */
pp_status pp_layout_create(const struct pp_model *model, const struct pp_model_ops *ops, const struct pp_phase *phases,
                           int n, struct pp_layout **out) PP_MUST_CHECK;
void pp_layout_free(struct pp_layout *layout);

/* Regions and slots begin at multiples of so many bytes. */
enum { PP_LAYOUT_ALIGNMENT = 256 };
static inline int64_t pp_layout_align(int64_t bytes)
{
    return (bytes + PP_LAYOUT_ALIGNMENT - 1) / PP_LAYOUT_ALIGNMENT * PP_LAYOUT_ALIGNMENT;
}

/* Sets live_peak_bytes of a layout that is complete but for these: pp_layout_create() does. */
void pp_layout_live_peaks(const struct pp_model *model, const struct pp_model_ops *ops, const struct pp_phase *phases,
                          int n, struct pp_layout *layout);

/* Bytes that come into use when `task` starts and that are free again when it ends, on the rank of a compute task
 * (activation and checkpoint slots). For memory over time. */
void pp_layout_task_bytes(const struct pp_model *model, const struct pp_model_ops *ops, const struct pp_phase *phase,
                          int32_t task, int64_t *taken, int64_t *freed);

#endif
