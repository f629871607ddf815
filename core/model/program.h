/* SPDX-License-Identifier: Apache-2.0
 *
 * Programs: the list of kernel calls of each class of tasks, and the frame, which says where the operands of one task
 * lie.
 *
 * One description, three uses: the executor runs a program, ppprof times it, the simulator adds up what was timed;
 * memory is computed from the same offsets. kernels/program_*.c write programs, devices run them
 * (core/model/backend.h); exec/ and sim/ know no more of them than this file and core/calls/call.h say. Operands are
 * (region, byte offset), not pointers, so one program serves every microbatch.
 *
 * Precision. fp32 and tf32: all data is float32; tf32 lets products round their operands. bf16: activations, their
 * gradients and what travels between stages are bfloat16; parameters, their gradients, statistics (rstd), logits and
 * all sums are float32; products read bfloat16 copies of the weights (PP_MEM_PARAM16), renewed by the optimizer step.
 * fp8: bf16, but that products of layers' linears read FP8 factors, which are rounded in scratch before each of them
 * (kernels/program_linear.c).
 */
#ifndef PP_CORE_MODEL_PROGRAM_H
#define PP_CORE_MODEL_PROGRAM_H

#include <stdbool.h>
#include <stdint.h>

#include "core/base/status.h"
#include "core/calls/call.h"
#include "core/plan/join.h"
#include "core/shape/optimizer.h"

enum { PP_CALL_NAME = 128, PP_SIGNATURE_BYTES = 256 };

struct pp_program {
    struct pp_call *calls;
    int ncalls;
    /* Of a program that is only asked what its calls take (pp_program_spec.once): which of the calls does what is
     * done, one after the other, at each of `length` places. NULL: each call is at its own place. */
    int32_t *order;
    int length;
    int64_t work_bytes; /* scratch it needs */
    double flops;       /* arithmetic of its calls; 0 with `once` */
    /* Names the work: equal for equal call lists on any stage, plan or chunk count ("F 2l 5x35 d200 h2 f200 causal
     * p0.2"). The key of measured task times. "" with `once`. */
    char signature[PP_SIGNATURE_BYTES];
};
void pp_program_free(struct pp_program *program);

/* Number of places, and the number of the call at one of them. */
static inline int pp_program_length(const struct pp_program *program)
{
    return program->order ? program->length : program->ncalls;
}
static inline int pp_program_at(const struct pp_program *program, int place)
{
    return program->order ? program->order[place] : place;
}

/* How long calls take: *out in ns. */
struct pp_call_times {
    pp_status (*ns)(void *from, const struct pp_call *call, double *out);
    void *from;
};

/* For a device that waits instead of computing (pp_backend.waits). A task's output begins with the time at which the
 * task ended, on the clock of the run's first process: so its receiver knows when it was sent. */
struct pp_wait {
    int64_t duration_ns;
    int64_t hop_ns;    /* the input is there so long after its sender's end, or after posted_ns; -1: it was not sent */
    int64_t posted_ns; /* on our clock: when there was a buffer to receive it */
    int64_t clock_offset_ns; /* this process's clock + offset = the first process's */
    bool waited;             /* the worker had to wait before this task */
    int64_t *begun_ns;       /* the device sets it: when the input was there */
};

/* What changes from task to task while the program stays. */
struct pp_frame {
    void *base[PP_MEM_REGIONS]; /* NULL: the region has no memory */
    /* Times pp_ref.row_bytes. In an activation slot: rows before the (first) microbatch of the task. In NORM, STEP,
     * PUT_PARAM and ADD_GRAD: the worker's number among the replicas that share. */
    int64_t act_row;
    bool training;    /* dropout on */
    float loss_scale; /* 1 / tokens of the whole batch over all replicas */
    int64_t tokens;   /* of the whole batch over all replicas */
    float learning_rate;
    struct pp_adamw adamw;
    float clip_factor; /* 1 where nothing is clipped */
    const float *clip; /* the factor in the device's memory, instead of clip_factor; NULL: clip_factor counts */

    /* The key of dropout, with site of the call and the place of the element; see tensor_rank and context_rank. */
    uint64_t seed;
    uint32_t step;     /* training step, counted over the whole run */
    int64_t first_row; /* global row of the microbatch's first row: data rank * rows + row */

    /* Results, in memory of the device. */
    double *loss; /* decoder and loss: *loss = sum over the microbatch's tokens of -log p; NULL: nobody asks */
    /* NORM: sums[i * pp_shape_sums + k] = sum of squares of part k of the stage's i-th gradient tensor
     * (pp_shape_parts). Of experts that expert ranks share: of part after part, in each of all ranks. Of a share, or of
     * one of several tensor ranks: of its part alone, whose number is then in the address. 0 where the worker has no
     * such part. */
    double *sums;

    struct pp_wait wait; /* for devices that wait */

    /* Who the worker is. tensor, tensor_rank: so many workers share the stage's tensors, and which of them this is; 0
     * and 1: it has them whole. Part of the dropout key, of which words it has, and of where products add. */
    int tensor, tensor_rank;
    int expert_rank; /* which of the workers that share the experts; 0: it has all */
    /* So many workers have parts of the same rows, and which of them this is; 0 and 1: it has all tokens. Part of the
     * dropout key, and of where a token stands in its row. halves: it has two chunks of each row
     * (pp_shape_halves_rows). */
    int context, context_rank;
    bool halves;
    const struct pp_join *join; /* how they meet; NULL: they do not, as in profiles of one worker */
};

/* Workers that share the stage's tensors; workers that have parts of the same rows. */
static inline int pp_frame_tensor(const struct pp_frame *frame) { return frame->tensor > 1 ? frame->tensor : 1; }
static inline int pp_frame_context(const struct pp_frame *frame) { return frame->context > 1 ? frame->context : 1; }

/* The address of an operand; NULL: its region has no memory. */
static inline void *pp_ref_address(const struct pp_ref *ref, const struct pp_frame *frame)
{
    char *base = (char *)frame->base[ref->region];
    if (!base) return NULL;
    return base + ref->offset + frame->act_row * ref->row_bytes + frame->tensor_rank * ref->part_bytes +
           frame->expert_rank * ref->expert_bytes + (frame->context_rank < ref->ring_step ? ref->step_bytes : 0);
}

#endif
