/* SPDX-License-Identifier: Apache-2.0
 *
 * One kernel call: which kernel, on what dimensions, with which operands. What a kernel does with them is said where
 * its dimensions and operands are named, in core/calls/calls_*.h:
 *
 *   calls_embedding.h   copies, words and positions
 *   calls_products.h    matrix products, and numbers of FP8
 *   calls_attention.h   attention, and what is done to queries and keys before
 *   calls_latent.h      what else latent attention needs
 *   calls_layer.h       norms, residuals, activation functions
 *   calls_experts.h     routers, and tokens that go to experts and come back
 *   calls_loss.h        cross entropy
 *   calls_parts.h       what workers that share a stage do together
 *   calls_step.h        sums of gradients, and the optimizer's step
 *
 * Dimensions have names, and are explained where these do not say enough, before the first block that has them. A
 * kernel's block reads like this one:
 *
 *   gelu: a += bias; u = drop(gelu(a))                  the kernel's name, and what it computes
 *       p      probability of dropout                   scalars
 *       u      out     [T, width]                       operands: out (written), in (read), in/out (both, in place)
 *       a      in/out  [T, width]; only read without a bias
 *       bias   in      [width] float; optional          ... optional: may lie nowhere (PP_MEM_NONE)
 *
 * Shapes are row-major and without gaps. Elements are those of activations, unless the block says float, int32, bf16 or
 * fp8: float32, but bfloat16 in programs of precision bf16 or fp8 (core/model/program.h). "grad": a gradient of
 * parameters, which is written, or added to where pp_call.adds is set. A bias that lies nowhere is not added, and an
 * operand that would only be written to add it is then not written either.
 *
 * Letters and names of dimensions:
 *
 *   rows, seq   rows of the microbatch, and tokens of each row that the worker has
 *   T           rows * seq: the tokens of the call
 *   d           columns of the residual stream (pp_shape.d_model)
 *   heads, dh   heads of queries that the worker has, and columns of each head
 *   kv          heads of keys and values; 0: as many as heads
 *   width       columns of a row
 *   vocab       words of which the worker has embeddings or logits
 *
 * Workers that share a stage. Each of pp_frame.tensor tensor ranks computes a part of the heads, columns and words; its
 * part begins at tensor_rank times the call's dimension. Each of pp_frame.context context ranks has a part of every
 * row: the tokens from context_rank * seq on, or, with pp_frame.halves, two chunks of the row (struct pp_row_places in
 * kernels/places.h). Dropout draws for each element the number that one worker with everything would draw.
 */
#ifndef PP_CORE_CALLS_CALL_H
#define PP_CORE_CALLS_CALL_H

#include <assert.h>
#include <stdbool.h>

#include "core/calls/calls_attention.h"
#include "core/calls/calls_embedding.h"
#include "core/calls/calls_experts.h"
#include "core/calls/calls_latent.h"
#include "core/calls/calls_layer.h"
#include "core/calls/calls_loss.h"
#include "core/calls/calls_parts.h"
#include "core/calls/calls_products.h"
#include "core/calls/calls_step.h"
#include "core/calls/operand.h"

/* All that PP_DIMS() and PP_OPERANDS() have named. */
#define PP_DIMS_LIST(X)                                                                                                \
    X(matrix)                                                                                                          \
    X(embed)                                                                                                           \
    X(positions)                                                                                                       \
    X(gemm)                                                                                                            \
    X(fp8)                                                                                                             \
    X(attention)                                                                                                       \
    X(merge)                                                                                                           \
    X(columns)                                                                                                         \
    X(rope)                                                                                                            \
    X(latent)                                                                                                          \
    X(heads)                                                                                                           \
    X(norm)                                                                                                            \
    X(activation)                                                                                                      \
    X(sigmoid)                                                                                                         \
    X(route)                                                                                                           \
    X(route_grad)                                                                                                      \
    X(places)                                                                                                          \
    X(combine)                                                                                                         \
    X(loss)                                                                                                            \
    X(pieces)                                                                                                          \
    X(join)                                                                                                            \
    X(exchange)                                                                                                        \
    X(sumsq)                                                                                                           \
    X(step)                                                                                                            \
    X(balance)
#define PP_OPERANDS_LIST(X)                                                                                            \
    X(copy)                                                                                                            \
    X(embed)                                                                                                           \
    X(embed_grad)                                                                                                      \
    X(positions_grad)                                                                                                  \
    X(gemm)                                                                                                            \
    X(gemm_fp8)                                                                                                        \
    X(amax)                                                                                                            \
    X(to_fp8)                                                                                                          \
    X(attention)                                                                                                       \
    X(attention_grad)                                                                                                  \
    X(flash)                                                                                                           \
    X(flash_grad)                                                                                                      \
    X(merge)                                                                                                           \
    X(add_columns)                                                                                                     \
    X(qk_norm)                                                                                                         \
    X(qk_norm_grad)                                                                                                    \
    X(rope)                                                                                                            \
    X(rope_grad)                                                                                                       \
    X(latent_norm)                                                                                                     \
    X(latent_norm_grad)                                                                                                \
    X(join_heads)                                                                                                      \
    X(split_heads)                                                                                                     \
    X(norm)                                                                                                            \
    X(norm_grad)                                                                                                       \
    X(residual)                                                                                                        \
    X(residual_grad)                                                                                                   \
    X(relu)                                                                                                            \
    X(relu_grad)                                                                                                       \
    X(gelu)                                                                                                            \
    X(gelu_grad)                                                                                                       \
    X(swiglu)                                                                                                          \
    X(swiglu_grad)                                                                                                     \
    X(sigmoid)                                                                                                         \
    X(sigmoid_grad)                                                                                                    \
    X(route)                                                                                                           \
    X(route_grad)                                                                                                      \
    X(dispatch)                                                                                                        \
    X(combine)                                                                                                         \
    X(weigh)                                                                                                           \
    X(weigh_grad)                                                                                                      \
    X(loss)                                                                                                            \
    X(pieces)                                                                                                          \
    X(copy_keys)                                                                                                       \
    X(sum_keys)                                                                                                        \
    X(join)                                                                                                            \
    X(exchange)                                                                                                        \
    X(colsum)                                                                                                          \
    X(take)                                                                                                            \
    X(sumsq)                                                                                                           \
    X(step)                                                                                                            \
    X(balance)

/* The dimensions of a call for formulas: as whole numbers whose products do not overflow, and as reals. */
union pp_call_sizes {
    int64_t n[PP_CALL_DIMS];
#define X(name) struct pp_##name##_sizes name;
    PP_DIMS_LIST(X)
#undef X
};
union pp_call_reals {
    double n[PP_CALL_DIMS];
#define X(name) struct pp_##name##_reals name;
    PP_DIMS_LIST(X)
#undef X
};

/* call->at.gemm.c is where C of a gemm lies: call->ref[0]. */
union pp_call_refs {
#define X(name) struct pp_##name##_refs name;
    PP_OPERANDS_LIST(X)
#undef X
};

/* c->at.gemm.c is the address of C in one task. */
union pp_call_memory {
#define X(name) struct pp_##name##_memory name;
    PP_OPERANDS_LIST(X)
#undef X
};

struct pp_call {
    int32_t kernel; /* enum pp_kernel (kernels/kernels.h) */
    /* The dimensions by number, for who treats all kernels alike, or by name: call->gemm.m is call->n[0]. */
    union {
        int32_t n[PP_CALL_DIMS];
#define X(name) struct pp_##name##_dims name;
        PP_DIMS_LIST(X)
#undef X
    };
    int32_t site;      /* of dropout: the part of the random numbers' key that tells calls apart; 0: no dropout */
    int32_t precision; /* enum pp_precision; never PP_FP8 */
    bool adds;         /* "grad" operands are added to, not written */
    float p;           /* probability of dropout, with which site != 0 and pp_frame.training zero an element */
    union {            /* scalars, by their names in the kernel's block */
        float scale, eps;
        struct pp_route_scalars routing;
        struct pp_rope_scalars turns;
    };
    union {
        struct pp_ref ref[PP_CALL_REFS];
        union pp_call_refs at;
    };
};

#define X(name)                                                                                                        \
    static_assert(sizeof(struct pp_##name##_dims) <= sizeof(int32_t[PP_CALL_DIMS]), "more than PP_CALL_DIMS: " #name);
PP_DIMS_LIST(X)
#undef X
static_assert(sizeof(union pp_call_refs) <= sizeof(struct pp_ref[PP_CALL_REFS]), "a kernel of more than PP_CALL_REFS");

#endif
