/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/kernels.h"

#define X(ID, name, dims, flops)                                                                                       \
    static double flops_##name(const double *n, bool bare) { return (void)n, (void)bare, flops; }
PP_KERNEL_LIST(X)
#undef X

const struct pp_kernel_info pp_kernel_table[PP_KERNELS] = {
#define X(ID, name, dims, flops) [PP_KERNEL_##ID] = {#name, dims, flops_##name},
    PP_KERNEL_LIST(X)
#undef X
};

/* The bias (index of ref[]) that calls of a kernel may lack, which spares work; 0: none. */
static const int bias_of[PP_KERNELS] = {
    [PP_KERNEL_ATTENTION] = 3, [PP_KERNEL_FLASH] = 3, [PP_KERNEL_ROPE] = 1,  [PP_KERNEL_QK_NORM] = 1,
    [PP_KERNEL_COPY_KEYS] = 2, [PP_KERNEL_GELU] = 2,  [PP_KERNEL_SWIGLU] = 2};

bool pp_call_lacks_bias(const struct pp_call *call)
{
    const int bias = bias_of[call->kernel];
    return bias && call->ref[bias].region == PP_MEM_NONE;
}

double pp_call_flops(const struct pp_call *call)
{
    double n[PP_CALL_DIMS];
    for (int i = 0; i < PP_CALL_DIMS; i++) n[i] = call->n[i];
    return pp_kernel_table[call->kernel].flops(n, pp_call_lacks_bias(call));
}

/* The operands of all kernels as data: what checks of programs and the bytes that calls move derive from. */
#define READ PP_USE_READ
#define WRITE PP_USE_WRITE
#define BOTH PP_USE_BOTH

/* Rows of the table: C of products is float32 where n[4] is set, and read where it is added to; whether it is that by
 * the frame, pp_call_again_bytes() adds. */
#define SUMMED(mode) ((mode) == PP_GEMM_ADD || (mode) == PP_GEMM_ADD_ONCE ? 2 : 1)
#define PRODUCT(X, ID)                                                                                                 \
    X(ID, 0, c, n[4] ? PP_TYPE_FLOAT : PP_TYPE_ACTIVATION, n[3] == PP_GEMM_WRITE ? WRITE : BOTH,                       \
      PP_TIMES(n) * n[0] * n[1], PP_TIMES(n) * SUMMED(n[3]) * n[0] * n[1])                                             \
    X(ID, 1, a, PP_TYPE_ACTIVATION, READ, PP_TIMES(n) * n[0] * n[2], PP_TIMES(n) * n[0] * n[2])                        \
    X(ID, 2, b, PP_TYPE_ACTIVATION, READ, PP_TIMES(n) * n[1] * n[2], PP_TIMES(n) * n[1] * n[2])

/* What the workers that share a vocabulary tell of its logits. */
#define TOLD PP_ENTROPY_PART *t *((n[5] + n[2] - 1) / n[2])

/* What a plain norm (n[3]) reads and writes beside x: xhat only; its gradient only reads it. */
#define PLAIN n[3]
#define NORM(X, ID)                                                                                                    \
    X(ID, 0, y, PP_TYPE_ACTIVATION, WRITE, t *n[2], t *n[2])                                                           \
    X(ID, 1, z, PP_TYPE_ACTIVATION, PLAIN ? WRITE : BOTH, t *n[2], (PLAIN ? 1 : 2) * t * n[2])                         \
    X(ID, 2, rstd, PP_TYPE_FLOAT, WRITE, t, 0)                                                                         \
    X(ID, 3, x, PP_TYPE_ACTIVATION, READ, t *n[2], t *n[2])                                                            \
    X(ID, 4, bias, PP_TYPE_FLOAT, READ, PLAIN ? 0 : n[2], 0)                                                           \
    X(ID, 5, gamma, PP_TYPE_FLOAT, READ, n[2], 0)                                                                      \
    X(ID, 7, sum, PP_TYPE_ACTIVATION, WRITE, PLAIN ? 0 : t *n[2], t *n[2])
#define NORM_GRAD(X, ID)                                                                                               \
    X(ID, 0, dr, PP_TYPE_ACTIVATION, WRITE, t *n[2], t *n[2])                                                          \
    X(ID, 1, xhat, PP_TYPE_ACTIVATION, PLAIN ? READ : BOTH, t *n[2], (PLAIN ? 1 : 2) * t * n[2])                       \
    X(ID, 2, rstd, PP_TYPE_FLOAT, READ, t, 0)                                                                          \
    X(ID, 3, dy, PP_TYPE_ACTIVATION, READ, t *n[2], t *n[2])                                                           \
    X(ID, 4, gamma, PP_TYPE_FLOAT, READ, n[2], 0)                                                                      \
    X(ID, 5, gamma_grad, PP_TYPE_FLOAT, BOTH, n[2], 0)                                                                 \
    X(ID, 7, add, PP_TYPE_ACTIVATION, READ, t *n[2], t *n[2])

/* Columns of a token's queries, keys and values; those that are normalised and rotated. */
#define WIDTH (PP_QKV_HEADS(n) * n[3])
#define ROTATED ((n[2] + PP_KV_HEADS(n)) * n[3])
/* Keys and values of whole rows; columns of a token that flash works on: without these, where it has them. */
#define GATHERED (2 * n[0] * n[6] * PP_KV_HEADS(n) * n[3])
#define OWN_WIDTH (n[6] ? n[2] * n[3] : WIDTH)

/* Of an operand that a kernel writes only to add its bias. */
#define RENEWED (bare ? READ : BOTH)
#define RENEWALS (bare ? 1 : 2)

/* X(kernel, index of ref[], name, type, use, elements, moved) */
#define OPERANDS(X)                                                                                                    \
    X(COPY, 0, to, PP_TYPE_ACTIVATION, WRITE, n[0] * n[1], n[0] * n[1])                                                \
    X(COPY, 1, from, PP_TYPE_ACTIVATION, READ, n[0] * n[1], n[0] * n[1])                                               \
    X(EMBED, 0, out, PP_TYPE_ACTIVATION, WRITE, t *n[2], t *n[2])                                                      \
    X(EMBED, 1, tokens, PP_TYPE_INT32, READ, t, 0)                                                                     \
    X(EMBED, 2, weight, PP_TYPE_FLOAT, READ, n[2] * n[3], t * n[2])                                                    \
    X(EMBED, 3, scratch, PP_TYPE_FLOAT, WRITE, n[4] == PP_POSITIONS_SINUSOIDAL ? n[1] * n[2] : 0, t * n[2])            \
    X(EMBED, 4, positions, PP_TYPE_FLOAT, READ, n[4] == PP_POSITIONS_LEARNED ? n[1] * n[2] : 0, t * n[2])              \
    X(EMBED_GRAD, 0, weight_grad, PP_TYPE_FLOAT, BOTH, n[2] * n[3], 2 * t * n[2] + n[2] * n[3])                        \
    X(EMBED_GRAD, 1, tokens, PP_TYPE_INT32, READ, t, 0)                                                                \
    X(EMBED_GRAD, 2, dy, PP_TYPE_ACTIVATION, READ, t *n[2], t *n[2])                                                   \
    X(POSITIONS_GRAD, 0, positions_grad, PP_TYPE_FLOAT, BOTH, n[2] * n[3], n[2] * n[3])                                \
    X(POSITIONS_GRAD, 1, dy, PP_TYPE_ACTIVATION, READ, t *n[2], t *n[2])                                               \
    PRODUCT(X, GEMM_NT)                                                                                                \
    PRODUCT(X, GEMM_NN)                                                                                                \
    PRODUCT(X, GEMM_TN)                                                                                                \
    X(ATTENTION, 0, ctx, PP_TYPE_ACTIVATION, WRITE, t *n[2] * n[3], t * n[2] * n[3])                                   \
    X(ATTENTION, 1, p, PP_TYPE_ACTIVATION, WRITE, t *n[2] * n[1], t * n[2] * n[1])                                     \
    X(ATTENTION, 2, qkv, PP_TYPE_ACTIVATION, RENEWED, t *WIDTH, RENEWALS *t *WIDTH)                                    \
    X(ATTENTION, 3, bias, PP_TYPE_FLOAT, READ, WIDTH, 0)                                                               \
    X(ATTENTION, 4, scratch, PP_TYPE_FLOAT, WRITE, scratch(n), 0)                                                      \
    X(ATTENTION_GRAD, 0, qkv, PP_TYPE_ACTIVATION, BOTH, t *WIDTH, 2 * t * WIDTH)                                       \
    X(ATTENTION_GRAD, 1, p, PP_TYPE_ACTIVATION, READ, t *n[2] * n[1], t * n[2] * n[1])                                 \
    X(ATTENTION_GRAD, 2, dctx, PP_TYPE_ACTIVATION, READ, t *n[2] * n[3], t * n[2] * n[3])                              \
    X(ATTENTION_GRAD, 3, scratch, PP_TYPE_FLOAT, WRITE, scratch(n), 0)                                                 \
    X(FLASH, 0, ctx, PP_TYPE_ACTIVATION, WRITE, t *n[2] * n[3], t * n[2] * n[3])                                       \
    X(FLASH, 1, lse, PP_TYPE_FLOAT, WRITE, t *n[2], t *n[2])                                                           \
    X(FLASH, 2, qkv, PP_TYPE_ACTIVATION, RENEWED, t *WIDTH, RENEWALS *t *OWN_WIDTH)                                    \
    X(FLASH, 3, bias, PP_TYPE_FLOAT, READ, WIDTH, 0)                                                                   \
    X(FLASH, 4, scratch, PP_TYPE_FLOAT, WRITE, flash_scratch(n), 0)                                                    \
    X(FLASH, 5, keys, PP_TYPE_ACTIVATION, READ, GATHERED, GATHERED)                                                    \
    X(FLASH_GRAD, 0, qkv, PP_TYPE_ACTIVATION, BOTH, t *WIDTH, 2 * t * OWN_WIDTH)                                       \
    X(FLASH_GRAD, 1, lse, PP_TYPE_FLOAT, READ, t *n[2], t *n[2])                                                       \
    X(FLASH_GRAD, 2, ctx, PP_TYPE_ACTIVATION, READ, t *n[2] * n[3], t * n[2] * n[3])                                   \
    X(FLASH_GRAD, 3, dctx, PP_TYPE_ACTIVATION, READ, t *n[2] * n[3], t * n[2] * n[3])                                  \
    X(FLASH_GRAD, 4, scratch, PP_TYPE_FLOAT, WRITE, flash_scratch(n), 0)                                               \
    X(FLASH_GRAD, 5, keys, PP_TYPE_ACTIVATION, READ, GATHERED, GATHERED)                                               \
    X(FLASH_GRAD, 6, dkeys, PP_TYPE_ACTIVATION, WRITE, GATHERED, GATHERED)                                             \
    X(QK_NORM, 0, qkv, PP_TYPE_ACTIVATION, BOTH, t *WIDTH, 2 * t * (bare ? ROTATED : WIDTH))                           \
    X(QK_NORM, 1, bias, PP_TYPE_FLOAT, READ, WIDTH, 0)                                                                 \
    X(QK_NORM, 2, kept, PP_TYPE_ACTIVATION, WRITE, t *ROTATED, t *ROTATED)                                             \
    X(QK_NORM, 3, q_gamma, PP_TYPE_FLOAT, READ, n[3], 0)                                                               \
    X(QK_NORM, 4, k_gamma, PP_TYPE_FLOAT, READ, n[3], 0)                                                               \
    X(QK_NORM_GRAD, 0, dqkv, PP_TYPE_ACTIVATION, BOTH, t *WIDTH, 2 * t * ROTATED)                                      \
    X(QK_NORM_GRAD, 1, kept, PP_TYPE_ACTIVATION, READ, t *ROTATED, t *ROTATED)                                         \
    X(QK_NORM_GRAD, 2, q_gamma, PP_TYPE_FLOAT, READ, n[3], 0)                                                          \
    X(QK_NORM_GRAD, 3, k_gamma, PP_TYPE_FLOAT, READ, n[3], 0)                                                          \
    X(QK_NORM_GRAD, 4, q_gamma_grad, PP_TYPE_FLOAT, BOTH, n[3], 0)                                                     \
    X(QK_NORM_GRAD, 5, k_gamma_grad, PP_TYPE_FLOAT, BOTH, n[3], 0)                                                     \
    X(ROPE, 0, qkv, PP_TYPE_ACTIVATION, BOTH, t *WIDTH, 2 * t * (bare ? ROTATED : WIDTH))                              \
    X(ROPE, 1, bias, PP_TYPE_FLOAT, READ, WIDTH, 0)                                                                    \
    X(ROPE_GRAD, 0, dqkv, PP_TYPE_ACTIVATION, BOTH, t *WIDTH, 2 * t * ROTATED)                                         \
    NORM(X, LAYERNORM)                                                                                                 \
    X(LAYERNORM, 6, beta, PP_TYPE_FLOAT, READ, n[2], 0)                                                                \
    NORM_GRAD(X, LAYERNORM_GRAD)                                                                                       \
    X(LAYERNORM_GRAD, 6, beta_grad, PP_TYPE_FLOAT, BOTH, n[2], 0)                                                      \
    NORM(X, RMSNORM)                                                                                                   \
    NORM_GRAD(X, RMSNORM_GRAD)                                                                                         \
    X(RESIDUAL, 0, y, PP_TYPE_ACTIVATION, WRITE, t *n[2], t *n[2])                                                     \
    X(RESIDUAL, 1, z, PP_TYPE_ACTIVATION, READ, t *n[2], t *n[2])                                                      \
    X(RESIDUAL, 2, x, PP_TYPE_ACTIVATION, READ, t *n[2], t *n[2])                                                      \
    X(RESIDUAL, 3, bias, PP_TYPE_FLOAT, READ, n[2], 0)                                                                 \
    X(RESIDUAL_GRAD, 0, dz, PP_TYPE_ACTIVATION, WRITE, t *n[2], t *n[2])                                               \
    X(RESIDUAL_GRAD, 1, dy, PP_TYPE_ACTIVATION, READ, t *n[2], t *n[2])                                                \
    X(RELU, 0, u, PP_TYPE_ACTIVATION, BOTH, t *n[2], 2 * t * n[2])                                                     \
    X(RELU, 1, bias, PP_TYPE_FLOAT, READ, n[2], 0)                                                                     \
    X(RELU_GRAD, 0, du, PP_TYPE_ACTIVATION, BOTH, t *n[2], 2 * t * n[2])                                               \
    X(RELU_GRAD, 1, u, PP_TYPE_ACTIVATION, READ, t *n[2], t *n[2])                                                     \
    X(GELU, 0, u, PP_TYPE_ACTIVATION, WRITE, t *n[2], t *n[2])                                                         \
    X(GELU, 1, a, PP_TYPE_ACTIVATION, RENEWED, t *n[2], RENEWALS *t *n[2])                                             \
    X(GELU, 2, bias, PP_TYPE_FLOAT, READ, n[2], 0)                                                                     \
    X(GELU_GRAD, 0, du, PP_TYPE_ACTIVATION, BOTH, t *n[2], 2 * t * n[2])                                               \
    X(GELU_GRAD, 1, a, PP_TYPE_ACTIVATION, READ, t *n[2], t *n[2])                                                     \
    X(SWIGLU, 0, u, PP_TYPE_ACTIVATION, WRITE, t *n[2], t *n[2])                                                       \
    X(SWIGLU, 1, a, PP_TYPE_ACTIVATION, RENEWED, 2 * t * n[2], RENEWALS * 2 * t * n[2])                                \
    X(SWIGLU, 2, bias, PP_TYPE_FLOAT, READ, 2 * n[2], 0)                                                               \
    X(SWIGLU_GRAD, 0, a, PP_TYPE_ACTIVATION, BOTH, 2 * t * n[2], 4 * t * n[2])                                         \
    X(SWIGLU_GRAD, 1, du, PP_TYPE_ACTIVATION, READ, t *n[2], t *n[2])                                                  \
    X(SIGMOID, 0, x, PP_TYPE_FLOAT, BOTH, n[0], 2 * n[0])                                                              \
    X(SIGMOID_GRAD, 0, dx, PP_TYPE_ACTIVATION, WRITE, n[0], n[0])                                                      \
    X(SIGMOID_GRAD, 1, dy, PP_TYPE_FLOAT, READ, n[0], n[0])                                                            \
    X(SIGMOID_GRAD, 2, y, PP_TYPE_FLOAT, READ, n[0], n[0])                                                             \
    X(ROUTE, 0, probabilities, PP_TYPE_FLOAT, BOTH, t *n[2], 2 * t * n[2])                                             \
    X(ROUTE, 1, choices, PP_TYPE_INT32, WRITE, t *n[3], t *n[3])                                                       \
    X(ROUTE, 2, gates, PP_TYPE_FLOAT, WRITE, t *n[3], t *n[3])                                                         \
    X(ROUTE, 3, places, PP_TYPE_INT32, WRITE, t *n[3], t *n[3])                                                        \
    X(ROUTE, 4, holds, PP_TYPE_INT32, WRITE, n[4] * n[5], n[4] * n[5])                                                 \
    X(ROUTE, 5, counts, PP_TYPE_INT32, WRITE, n[2], 0)                                                                 \
    X(ROUTE_GRAD, 0, dlogits, PP_TYPE_ACTIVATION, WRITE, t *n[2], t *n[2])                                             \
    X(ROUTE_GRAD, 1, dgates, PP_TYPE_FLOAT, READ, t *n[3], t *n[3])                                                    \
    X(ROUTE_GRAD, 2, probabilities, PP_TYPE_FLOAT, READ, t *n[2], t *n[2])                                             \
    X(ROUTE_GRAD, 3, choices, PP_TYPE_INT32, READ, t *n[3], t *n[3])                                                   \
    X(ROUTE_GRAD, 4, gates, PP_TYPE_FLOAT, READ, t *n[3], t *n[3])                                                     \
    X(ROUTE_GRAD, 5, counts, PP_TYPE_INT32, READ, n[2], 0)                                                             \
    X(DISPATCH, 0, to, PP_TYPE_ACTIVATION, WRITE, n[0] * n[1], n[0] * n[1])                                            \
    X(DISPATCH, 1, from, PP_TYPE_ACTIVATION, READ, n[2] * n[1], n[0] * n[1])                                           \
    X(DISPATCH, 2, holds, PP_TYPE_INT32, READ, n[0], 0)                                                                \
    X(COMBINE, 0, to, PP_TYPE_ACTIVATION, n[4] == PP_GEMM_WRITE ? WRITE : BOTH, n[0] * n[1],                           \
      SUMMED(n[4]) * n[0] * n[1])                                                                                      \
    X(COMBINE, 1, from, PP_TYPE_ACTIVATION, READ, n[2] * n[1], n[2] * n[1])                                            \
    X(COMBINE, 2, places, PP_TYPE_INT32, READ, n[0] * n[3], 0)                                                         \
    X(WEIGH, 0, u, PP_TYPE_ACTIVATION, BOTH, n[0] * n[1], 2 * n[0] * n[1])                                             \
    X(WEIGH, 1, gates, PP_TYPE_FLOAT, READ, n[2] * n[3], 0)                                                            \
    X(WEIGH, 2, holds, PP_TYPE_INT32, READ, n[0], 0)                                                                   \
    X(WEIGH_GRAD, 0, du, PP_TYPE_ACTIVATION, BOTH, n[0] * n[1], 2 * n[0] * n[1])                                       \
    X(WEIGH_GRAD, 1, dgates, PP_TYPE_FLOAT, WRITE, n[2] * n[3], n[2] * n[3])                                           \
    X(WEIGH_GRAD, 2, u, PP_TYPE_ACTIVATION, READ, n[0] * n[1], n[0] * n[1])                                            \
    X(WEIGH_GRAD, 3, gates, PP_TYPE_FLOAT, READ, n[2] * n[3], 0)                                                       \
    X(WEIGH_GRAD, 4, places, PP_TYPE_INT32, READ, n[2] * n[3], 0)                                                      \
    X(CROSS_ENTROPY, 0, logits, PP_TYPE_FLOAT, READ, t *n[4], t *n[2])                                                 \
    X(CROSS_ENTROPY, 1, bias, PP_TYPE_FLOAT, READ, n[2], 0)                                                            \
    X(CROSS_ENTROPY, 2, targets, PP_TYPE_INT32, READ, t, 0)                                                            \
    X(CROSS_ENTROPY, 3, dlogits, PP_TYPE_ACTIVATION, WRITE, n[3] * t * n[4], n[3] * t * n[2])                          \
    X(CROSS_ENTROPY_PART, 0, logits, PP_TYPE_FLOAT, READ, t *n[4], t *n[2])                                            \
    X(CROSS_ENTROPY_PART, 1, bias, PP_TYPE_FLOAT, READ, n[2], 0)                                                       \
    X(CROSS_ENTROPY_PART, 2, targets, PP_TYPE_INT32, READ, t, 0)                                                       \
    X(CROSS_ENTROPY_PART, 4, parts, PP_TYPE_FLOAT, WRITE, TOLD, 0)                                                     \
    X(CROSS_ENTROPY_JOIN, 0, logits, PP_TYPE_FLOAT, READ, t *n[4], n[3] * t * n[2])                                    \
    X(CROSS_ENTROPY_JOIN, 1, bias, PP_TYPE_FLOAT, READ, n[2], 0)                                                       \
    X(CROSS_ENTROPY_JOIN, 2, targets, PP_TYPE_INT32, READ, t, 0)                                                       \
    X(CROSS_ENTROPY_JOIN, 3, dlogits, PP_TYPE_ACTIVATION, WRITE, n[3] * t * n[4], n[3] * t * n[2])                     \
    X(CROSS_ENTROPY_JOIN, 4, parts, PP_TYPE_FLOAT, READ, TOLD, 0)                                                      \
    X(TO_PIECES, 0, to, PP_TYPE_ACTIVATION, WRITE, n[0] * (n[1] + 2 * n[2]), n[0] * (n[1] + 2 * n[2]))                 \
    X(TO_PIECES, 1, from, PP_TYPE_ACTIVATION, READ, n[0] * (n[1] + 2 * n[2]), n[0] * (n[1] + 2 * n[2]))                \
    X(TO_PIECES, 2, bias, PP_TYPE_FLOAT, READ, n[1] + 2 * n[2], 0)                                                     \
    X(FROM_PIECES, 0, to, PP_TYPE_ACTIVATION, WRITE, n[0] * (n[1] + 2 * n[2]), n[0] * (n[1] + 2 * n[2]))               \
    X(FROM_PIECES, 1, from, PP_TYPE_ACTIVATION, READ, n[0] * (n[1] + 2 * n[2]), n[0] * (n[1] + 2 * n[2]))              \
    X(COPY_KEYS, 0, to, PP_TYPE_ACTIVATION, WRITE, 2 * n[0] * n[2], 2 * n[0] * n[2])                                   \
    X(COPY_KEYS, 1, qkv, PP_TYPE_ACTIVATION, RENEWED, n[0] * (n[1] + 2 * n[2]),                                        \
      bare ? 2 * n[0] * n[2] : 2 * n[0] * (n[1] + 2 * n[2]))                                                           \
    X(COPY_KEYS, 2, bias, PP_TYPE_FLOAT, READ, n[1] + 2 * n[2], 0)                                                     \
    X(SUM_KEYS, 0, qkv, PP_TYPE_ACTIVATION, BOTH, n[0] * (n[1] + 2 * n[2]), 2 * n[0] * n[2])                           \
    X(SUM_KEYS, 1, from, PP_TYPE_ACTIVATION, READ, 2 * n[3] * n[0] * n[2], 2 * n[3] * n[0] * n[2])                     \
    X(ALL_REDUCE, 0, memory, n[4] ? PP_TYPE_FLOAT : PP_TYPE_ACTIVATION, BOTH, n[0] * n[1], 0)                          \
    X(REDUCE_SCATTER, 0, memory, PP_TYPE_ACTIVATION, BOTH, n[0] * n[1], 0)                                             \
    X(ALL_GATHER, 0, memory, PP_TYPE_ACTIVATION, BOTH, n[0] * n[1], 0)                                                 \
    X(ALL_TO_ALL, 0, to, n[4] ? PP_TYPE_FLOAT : PP_TYPE_ACTIVATION, WRITE, n[0] * n[1], 0)                             \
    X(ALL_TO_ALL, 1, from, n[4] ? PP_TYPE_FLOAT : PP_TYPE_ACTIVATION, READ,                                            \
      n[6] && !n[3] ? n[0] / n[6] * n[1] : n[0] * n[1], 0)                                                             \
    X(COLSUM, 0, grad, PP_TYPE_FLOAT, BOTH, n[1], 0)                                                                   \
    X(COLSUM, 1, in, PP_TYPE_ACTIVATION, READ, n[0] * n[1], n[0] * n[1])                                               \
    X(TAKE, 0, grad, PP_TYPE_FLOAT, BOTH, n[0] * n[1], n[0] * n[1])                                                    \
    X(TAKE, 1, in, PP_TYPE_FLOAT, READ, n[0] * n[1], n[0] * n[1])                                                      \
    X(SUMSQ, 0, gradient, PP_TYPE_FLOAT, READ, n[0] * n[1], n[0] * n[1])                                               \
    X(SGD, 0, w, PP_TYPE_FLOAT, BOTH, n[0] * n[1], 2 * n[0] * n[1])                                                    \
    X(SGD, 1, g, PP_TYPE_FLOAT, READ, n[0] * n[1], n[0] * n[1])                                                        \
    X(SGD, 2, copy, PP_TYPE_BF16, WRITE, n[0] * n[1], n[0] * n[1])                                                     \
    X(ADAMW, 0, w, PP_TYPE_FLOAT, BOTH, n[0] * n[1], 2 * n[0] * n[1])                                                  \
    X(ADAMW, 1, g, PP_TYPE_FLOAT, READ, n[0] * n[1], n[0] * n[1])                                                      \
    X(ADAMW, 2, copy, PP_TYPE_BF16, WRITE, n[0] * n[1], n[0] * n[1])                                                   \
    X(ADAMW, 3, m, PP_TYPE_FLOAT, BOTH, n[0] * n[1], 2 * n[0] * n[1])                                                  \
    X(ADAMW, 4, v, PP_TYPE_FLOAT, BOTH, n[0] * n[1], 2 * n[0] * n[1])

static int64_t scratch(const int64_t *n) { return pp_attention_scratch((int)n[1], (int)n[3]) / (int64_t)sizeof(float); }
static int64_t flash_scratch(const int64_t *n)
{
    return pp_flash_scratch((int)n[1], (int)PP_ROW_KEYS(n), (int)n[3]) / (int64_t)sizeof(float);
}

/* t: tokens, where a kernel's first dimensions are rows and seq. */
#define X(ID, i, name, type, use, elements, moved)                                                                     \
    static struct pp_operand operand_##ID##_##i(const int64_t *n, int64_t t, bool bare)                                \
    {                                                                                                                  \
        return (void)n, (void)t, (void)bare, (struct pp_operand){#name, type, use, elements, moved, 0};                \
    }
OPERANDS(X)
#undef X

static struct pp_operand (*const operands[PP_KERNELS][PP_CALL_REFS])(const int64_t *n, int64_t t, bool bare) = {
#define X(ID, i, name, type, use, elements, moved) [PP_KERNEL_##ID][i] = operand_##ID##_##i,
    OPERANDS(X)
#undef X
};

struct pp_operand pp_call_operand(const struct pp_call *call, int i)
{
    const int element_bytes[] = {[PP_TYPE_ACTIVATION] = pp_element_bytes(call->precision),
                                 [PP_TYPE_FLOAT] = sizeof(float),
                                 [PP_TYPE_BF16] = 2,
                                 [PP_TYPE_INT32] = sizeof(int32_t)};
    int64_t n[PP_CALL_DIMS];
    for (int k = 0; k < PP_CALL_DIMS; k++) n[k] = call->n[k];
    if (!operands[call->kernel][i]) return (struct pp_operand){0};
    struct pp_operand operand = operands[call->kernel][i](n, n[0] * n[1], pp_call_lacks_bias(call));
    if (operand.elements == 0) return (struct pp_operand){0};
    operand.element_bytes = element_bytes[operand.type];
    return operand;
}

/* Products, and what takes gradients, read what they add to; the gradient of the embedding is not cleared; that of
 * positions is read as far as there are tokens, and not cleared beyond. */
double pp_call_again_bytes(const struct pp_call *call)
{
    const double c = (double)pp_element_bytes(call->n[4] ? PP_FP32 : call->precision) * call->n[0] * call->n[1];
    if (pp_kernel_is_product(call->kernel)) return call->n[3] == PP_GEMM_BY_FRAME ? PP_TIMES(call->n) * c : 0;
    if (call->kernel == PP_KERNEL_TAKE) return (double)sizeof(float) * call->n[0] * call->n[1];
    if (call->kernel == PP_KERNEL_POSITIONS_GRAD)
        return (double)sizeof(float) * call->n[2] * (2.0 * call->n[1] - call->n[3]);
    return call->kernel == PP_KERNEL_EMBED_GRAD ? -(double)sizeof(float) * call->n[2] * call->n[3] : 0;
}

double pp_call_bytes(const struct pp_call *call)
{
    double bytes = 0;
    for (int i = 0; i < PP_CALL_REFS; i++) {
        const struct pp_operand operand = pp_call_operand(call, i);
        if (call->ref[i].region != PP_MEM_NONE) bytes += (double)operand.moved * operand.element_bytes;
    }
    return bytes;
}

/* Other kernels join nothing. */
static const struct {
    enum pp_join_op op;
    int rounds;
} joins[PP_KERNELS] = {[PP_KERNEL_ALL_REDUCE] = {PP_JOIN_ALL_REDUCE, 2},
                       [PP_KERNEL_REDUCE_SCATTER] = {PP_JOIN_REDUCE_SCATTER, 1},
                       [PP_KERNEL_ALL_GATHER] = {PP_JOIN_ALL_GATHER, 1},
                       [PP_KERNEL_AWAIT] = {PP_JOIN_AWAIT, 0},
                       [PP_KERNEL_ALL_TO_ALL] = {PP_JOIN_ALL_TO_ALL, 1}};

struct pp_join_work pp_call_join(const struct pp_call *call)
{
    const enum pp_join_op op = joins[call->kernel].op;
    if (op == PP_JOIN_NONE) return (struct pp_join_work){0};
    const struct pp_operand memory = pp_call_operand(call, 0);
    const bool exchanges = op == PP_JOIN_ALL_TO_ALL;
    return (struct pp_join_work){.op = op,
                                 .bytes = memory.elements * memory.element_bytes,
                                 .rounds = joins[call->kernel].rounds,
                                 .pieces = exchanges ? call->n[2] : 0,
                                 .group = (enum pp_join_group)call->n[5],
                                 .beside = exchanges ? 0 : call->n[2]};
}

void pp_call_meet(const struct pp_call *call, const struct pp_frame *frame)
{
    const struct pp_join *join = frame->join;
    const bool exchanges = call->kernel == PP_KERNEL_ALL_TO_ALL;
    const struct pp_join_call what = {.op = joins[call->kernel].op,
                                      .group = (enum pp_join_group)call->n[5],
                                      .memory = pp_ref_address(&call->ref[0], frame),
                                      .from = exchanges ? pp_ref_address(&call->ref[1], frame) : NULL,
                                      .elements = (int64_t)call->n[0] * call->n[1],
                                      .type = call->precision == PP_BF16 && !call->n[4] ? PP_SUM_BF16 : PP_SUM_FLOAT,
                                      .each = exchanges ? call->n[2] : 0,
                                      .back = exchanges && call->n[3],
                                      .halves = exchanges && call->n[6],
                                      .beside = exchanges ? 0 : call->n[2]};
    if (join) join->run(join->arg, &what);
}
