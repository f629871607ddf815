/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory layout: where everything lies in each rank's arena. It is a function of plans and model, never of time: what
 * ppsim reports is what ppexec allocates, byte for byte.
 *
 * A worker has one arena for all plans of the run (training, evaluation), one after the other. Its regions, in this
 * order, each aligned to 256 bytes:
 *   parameters; their bfloat16 and FP8 copies; gradients; gradients rounded to bfloat16 to be summed; optimizer state;
 *   slots: activations, checkpoints, received, sent, local, gathered parameters (ZeRO 3), gradients of parts (ZeRO 2
 *   and 3); tokens and targets; scratch.
 * Pools of several plans with equal kind, rank and key use the same memory. It is as large as the plan that needs most
 * of it: the number of its slots times the size of its largest slot.
 */
#ifndef PP_CORE_MODEL_LAYOUT_H
#define PP_CORE_MODEL_LAYOUT_H

#include <stdint.h>

#include "core/model/model.h"
#include "core/plan/plan.h"

enum pp_memory_kind {
    PP_BYTES_PARAM,    /* parameters, bfloat16 and FP8 copies, parameter slots */
    PP_BYTES_GRAD,     /* gradients, gradients rounded to be summed, gradient slots */
    PP_BYTES_STATE,    /* optimizer state, and weights in float32 that only the optimizer reads */
    PP_BYTES_ACT,      /* activation slots */
    PP_BYTES_CKPT,     /* checkpoint slots */
    PP_BYTES_TRANSFER, /* receive, send and local slots */
    PP_BYTES_DATA,     /* tokens and targets of one step */
    PP_BYTES_WORK,     /* scratch */
    PP_BYTES_KINDS
};
extern const char *const pp_memory_names[PP_BYTES_KINDS];

/* A plan of the run, with its programs for one number of tokens per row. */
struct pp_phase {
    const struct pp_plan *plan;
    int seq;                     /* tokens per row */
    bool once;                   /* programs are written so (pp_program_spec.once) */
    struct pp_program *programs; /* [plan->nclasses]; transfers and collectives have empty programs */
    /* [plan->nclasses] the first class whose program has the same calls (with `once`: calls that do the same); the
     * class itself if there is none before it. Such programs have their calls at one place in memory. */
    int *same_as;
    int *lent; /* [plan->nclasses] the class of the lender whose program it has; -1: none, the program is its own */
};

/* The same phase of the same point with the model cut into stages in another way. It lends its programs to stages that
 * are alike (pp_stages_alike()), and must outlive who borrows them. */
struct pp_lender {
    const struct pp_model *model;
    const struct pp_phase *phase;
};

/* Offsets are bytes from the beginning of a rank's arena. */
struct pp_layout {
    int ranks, nstages;
    int neighbours; /* workers of one rank in a group of C replicas: C T N (core/plan/workers.h). All workers of a rank
                     * have the same arena */
    int nplans;
    int64_t *param_offset, *grad_offset; /* [nstages] */
    int64_t *param16_offset;             /* [nstages] bfloat16, FP8 copies (PP_MEM_PARAM16); -1: none */
    int64_t *state_offset;               /* [nstages] optimizer state (PP_MEM_STATE); -1: there is none */
    /* [ranks] room for the gradients that one REDUCE_GRAD, and for the shares that one REDUCE_SHARE, rounds to bfloat16
     * to sum them; -1: gradients are not rounded */
    int64_t *sent_offset, *sent_share_offset;
    int64_t *arena_bytes;             /* [ranks] */
    int64_t (*bytes)[PP_BYTES_KINDS]; /* [ranks] arena_bytes by kind; padding counts with what it follows */
    /* [ranks] arena_bytes, but of the activation and checkpoint slots only the most bytes that are in use at once, in
     * issue order */
    int64_t *live_peak_bytes;
    int64_t *data_offset;  /* [ranks] int32 tokens[data_elements], then int32 targets[data_elements] */
    int64_t *work_offset;  /* [ranks] scratch */
    int64_t data_elements; /* tokens of one step that a worker has, in the largest phase */
    int64_t **slot_offset; /* [nplans][plan->nslots], in the arena of the slot's rank */
};

/* What programs keep in an activation slot with room for `rows` rows of `seq` tokens, where backwards are whole.
 * checkpoint: enum pp_checkpoint. */
struct pp_program_spec pp_slot_spec(int seq, int rows, bool training, int checkpoint);
/* What the programs of the phase are written for, if activation slots have room for `rows` rows. */
struct pp_program_spec pp_phase_spec(const struct pp_phase *phase, int rows);

/* Makes a phase of which plan, seq and once are set; the rest is 0. The plan must outlive it. lender: NULL if there is
 * none; one with `once` lends nothing to a phase without. Call pp_phase_free() also after a failure. */
pp_status pp_phase_create(const struct pp_model *model, const struct pp_model_ops *ops, const struct pp_lender *lender,
                          struct pp_phase *phase) PP_MUST_CHECK;
void pp_phase_free(struct pp_phase *phase);

/* Bytes of the checkpoint of a microbatch of `rows` rows: what it keeps to run the stage, or its layers, again. */
int64_t pp_phase_checkpoint_bytes(const struct pp_model *model, const struct pp_phase *phase, int stage, int rows);

/* The layout for phases[n]. Phases of the same plan share slot offsets: slot_offset has one table for each distinct
 * plan, in the order in which the plans first appear. There is room for gradients only if some phase trains. PP_USAGE
 * if all workers of the first plan together would need more than 1 EiB. */
pp_status pp_layout_create(const struct pp_model *model, const struct pp_model_ops *ops, const struct pp_phase *phases,
                           int n, struct pp_layout **out) PP_MUST_CHECK;
void pp_layout_free(struct pp_layout *layout);

/* Regions and slots begin at multiples of this. */
enum { PP_LAYOUT_ALIGNMENT = 256 };
static inline int64_t pp_layout_align(int64_t bytes)
{
    return (bytes + PP_LAYOUT_ALIGNMENT - 1) / PP_LAYOUT_ALIGNMENT * PP_LAYOUT_ALIGNMENT;
}

/* Sets layout->live_peak_bytes; all other fields must be set (pp_layout_create() calls it). */
void pp_layout_live_peaks(const struct pp_model *model, const struct pp_model_ops *ops, const struct pp_phase *phases,
                          int n, struct pp_layout *layout);

/* Regions that a stage has in training, whatever the plan: parameters and their bfloat16 and FP8 copies, of which with
 * ZeRO 3 a worker has only its share; gradients (ZeRO 2 and 3); and optimizer state (with ZeRO of the own share), with
 * float32 weights that only the optimizer reads. Bytes, without what aligns them. */
struct pp_stage_bytes {
    int64_t values, copies, gradients, state;
};
struct pp_stage_bytes pp_stage_bytes_of(const struct pp_model *model, int stage);

/* Bytes of activation and checkpoint slots that come into use when `task` starts (*taken), and that are free again when
 * it ends (*freed). Both 0 for tasks without an activation slot. */
void pp_layout_task_bytes(const struct pp_model *model, const struct pp_model_ops *ops, const struct pp_phase *phase,
                          int32_t task, int64_t *taken, int64_t *freed);

#endif
