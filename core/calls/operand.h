/* SPDX-License-Identifier: Apache-2.0
 *
 * Where an operand of a kernel call lies, and how the dimensions and operands of kernels get their names.
 */
#ifndef PP_CORE_CALLS_OPERAND_H
#define PP_CORE_CALLS_OPERAND_H

#include <stddef.h>
#include <stdint.h>

/* Memory of a worker in which operands lie. struct pp_frame (core/model/program.h) says where each begins for one
 * task. */
enum pp_region {
    PP_MEM_NONE,  /* no memory: the call does without this operand */
    PP_MEM_PARAM, /* the stage's parameters (pp_tensor.value_offset) */
    PP_MEM_GRAD,  /* the stage's gradients (pp_tensor.offset) */
    /* Activation slot of (stage, microbatch): a region for each enum pp_act_part, in the same order. */
    PP_MEM_ACT,
    PP_MEM_ACT_MORE,
    PP_MEM_ACT_ENDS,
    PP_MEM_CKPT,    /* checkpoint: the input of the stage, or of each of its layers (pp_checkpoint_bytes) */
    PP_MEM_IN,      /* received (or local) input of the task: [rows*seq, d], or a part (pp_hidden_bytes) */
    PP_MEM_OUT,     /* output slot of the task: the same */
    PP_MEM_WORK,    /* scratch of the rank; undefined between tasks, but kept from a task's part to its next part */
    PP_MEM_TOKENS,  /* int32 [rows, pp_own_tokens()] input tokens of the microbatch */
    PP_MEM_TARGETS, /* int32 [rows, pp_own_tokens()] target tokens of the microbatch */
    PP_MEM_PARAM16, /* bf16, fp8: copies of the weights that products read (pp_tensor.offset16); else no memory */
    /* What the optimizer keeps of the worker's share (pp_shape.zero), or of everything: the first tensor of each
     * weight, then, share_bytes further on, the second one. Where only the bfloat16 copies are whole
     * (pp_shape_splits_weights), the worker's shares of the float32 weights follow, in the order of the copies. */
    PP_MEM_STATE,
    PP_MEM_REGIONS
};

/* An operand's place. pp_ref_address() (core/model/program.h) adds the offsets up; all but the first are 0 for
 * most. */
struct pp_ref {
    int32_t region;    /* enum pp_region */
    int32_t ring_step; /* see step_bytes */
    int64_t offset;    /* bytes from the region's beginning */
    /* Times pp_frame.act_row. In an activation slot: bytes of a row of the batch, as each buffer of a slot may hold
     * several microbatches one behind the other. Of a tensor that replicas share: bytes from share to share. */
    int64_t row_bytes;
    int64_t part_bytes;   /* times pp_frame.tensor_rank: bytes from one tensor rank's part to the next rank's */
    int64_t expert_bytes; /* times pp_frame.expert_rank: the same for the shares of expert ranks */
    int64_t step_bytes;   /* added where pp_frame.context_rank < ring_step (kernels/program_ring.c) */
};

enum { PP_CALL_DIMS = 10, PP_CALL_REFS = 8 };

/* PP_DIMS(gemm, m, n, k) names the dimensions of calls, in the order of pp_call.n[]: struct pp_gemm_dims. Formulas of
 * costs read the same names as int64_t (struct pp_gemm_sizes) or double (struct pp_gemm_reals), so that no product of
 * dimensions overflows. */
#define PP_DIMS(name, ...)                                                                                             \
    struct pp_##name##_dims {                                                                                          \
        int32_t __VA_ARGS__;                                                                                           \
    };                                                                                                                 \
    struct pp_##name##_sizes {                                                                                         \
        int64_t __VA_ARGS__;                                                                                           \
    };                                                                                                                 \
    struct pp_##name##_reals {                                                                                         \
        double __VA_ARGS__;                                                                                            \
    }

/* PP_OPERANDS(gemm, c, a, b) names the operands of a kernel, in the order of pp_call.ref[]: struct pp_gemm_refs says
 * where they lie in any task, struct pp_gemm_memory at which addresses in one (pp_cpu_call, pp_cuda_call). */
typedef void *pp_address;
#define PP_OPERANDS(name, ...)                                                                                         \
    struct pp_##name##_refs {                                                                                          \
        struct pp_ref __VA_ARGS__;                                                                                     \
    };                                                                                                                 \
    struct pp_##name##_memory {                                                                                        \
        pp_address __VA_ARGS__;                                                                                        \
    }

/* The index in pp_call.ref[] of an operand: PP_OPERAND(gemm, b) is 2. */
#define PP_OPERAND(name, operand) (offsetof(struct pp_##name##_refs, operand) / sizeof(struct pp_ref))

#endif
