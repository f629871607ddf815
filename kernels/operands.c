/* SPDX-License-Identifier: Apache-2.0
 *
 * The operands of all kernels as a table: what checks of programs, and the bytes that calls move, derive from. What the
 * operands mean is said in core/calls/calls_*.h.
 */
#include "kernels/kernels.h"

/* The bias that calls of a kernel may lack, which spares work: its index among the operands; 0: there is none such. */
static const size_t bias_of[PP_KERNELS] = {
    [PP_KERNEL_ATTENTION] = PP_OPERAND(attention, bias), [PP_KERNEL_FLASH] = PP_OPERAND(flash, bias),
    [PP_KERNEL_ROPE] = PP_OPERAND(rope, bias),           [PP_KERNEL_QK_NORM] = PP_OPERAND(qk_norm, bias),
    [PP_KERNEL_COPY_KEYS] = PP_OPERAND(copy_keys, bias), [PP_KERNEL_GELU] = PP_OPERAND(gelu, bias),
    [PP_KERNEL_SWIGLU] = PP_OPERAND(swiglu, bias)};

bool pp_call_lacks_bias(const struct pp_call *call)
{
    const size_t bias = bias_of[call->kernel];
    return bias && call->ref[bias].region == PP_MEM_NONE;
}

/* ---- the table: X(kernel, its PP_OPERANDS, operand, type, use, elements, moved), see struct pp_operand ----
 *
 * n: the dimensions by name; t: the product of the first two, which are rows and seq where a kernel is about tokens;
 * bare: the call could have a bias, and has none. An operand of 0 elements is none. */
#define ACTIVATION PP_TYPE_ACTIVATION
#define FLOAT PP_TYPE_FLOAT
#define INT32 PP_TYPE_INT32
#define BF16 PP_TYPE_BF16
#define FP8 PP_TYPE_FP8
#define READ PP_USE_READ
#define WRITE PP_USE_WRITE
#define BOTH PP_USE_BOTH

/* An operand that is written only to add the bias to it, and how often each of its elements moves. */
#define RENEWED (bare ? READ : BOTH)
#define RENEWALS (bare ? 1 : 2)

/* How often each element of a sum moves: it is read, too, where it is added to. Where the call says so,
 * pp_call_again_bytes() counts that. */
#define SUMMED(mode) ((mode) == PP_GEMM_ADD || (mode) == PP_GEMM_ADD_ONCE ? 2 : 1)
#define PRODUCT(X, ID, operands, factors)                                                                              \
    X(ID, operands, c, n->wide ? FLOAT : ACTIVATION, n->mode == PP_GEMM_WRITE ? WRITE : BOTH,                          \
      PP_TIMES(n) * n->m * n->n, PP_TIMES(n) * SUMMED(n->mode) * n->m * n->n)                                          \
    X(ID, operands, a, factors, READ, PP_TIMES(n) * n->m * n->k, PP_TIMES(n) * n->m * n->k)                            \
    X(ID, operands, b, factors, READ, PP_TIMES(n) * n->n * n->k, PP_TIMES(n) * n->n * n->k)
#define MATRICES (t * PP_TIMES(n))

#define STEP(X, ID)                                                                                                    \
    X(ID, step, w, FLOAT, BOTH, n->rows * n->width, 2 * n->rows * n->width)                                            \
    X(ID, step, g, FLOAT, READ, n->rows * n->width, n->rows * n->width)                                                \
    X(ID, step, copy, BF16, WRITE, n->rows * n->width, n->rows * n->width)

/* Columns of a token's queries, keys and values; of its queries and keys, which are normalised; of these, which are
 * rotated. */
#define WIDTH PP_QKV_COLUMNS(n)
#define NORMALISED ((n->heads + PP_KV_HEADS(n)) * n->dh)
#define ROTATED ((n->heads + PP_KV_HEADS(n)) * PP_ROPE_COLUMNS(n))
/* Columns of what attention makes. */
#define ATTENDED (n->heads * PP_VALUE_COLUMNS(n))
/* Columns of a latent vector and of what all heads share behind it. */
#define LATENT (n->rank + n->shared)
/* Of flash: keys and values of whole rows; columns of qkv that it works on, without these where it has them. */
#define GATHERED (n->rows * n->keys * PP_KV_COLUMNS(n))
#define OWN_WIDTH (n->keys ? n->heads * n->dh : WIDTH)

/* Of add_columns: from the first column of the first row to the last one of the last row. */
#define COLUMNS(pitch) ((n->rows - 1) * (pitch) + n->width)

/* A plain norm only writes xhat, and its gradient only reads it. */
#define NORM(X, ID)                                                                                                    \
    X(ID, norm, y, ACTIVATION, WRITE, t * n->d, t * n->d)                                                              \
    X(ID, norm, z, ACTIVATION, n->plain ? WRITE : BOTH, t * n->d, (n->plain ? 1 : 2) * t * n->d)                       \
    X(ID, norm, rstd, FLOAT, WRITE, t, 0)                                                                              \
    X(ID, norm, x, ACTIVATION, READ, t * n->d, t * n->d)                                                               \
    X(ID, norm, bias, FLOAT, READ, n->plain ? 0 : n->d, 0)                                                             \
    X(ID, norm, gamma, FLOAT, READ, n->d, 0)                                                                           \
    X(ID, norm, sum, ACTIVATION, WRITE, n->plain ? 0 : t * n->d, t * n->d)
#define NORM_GRAD(X, ID)                                                                                               \
    X(ID, norm_grad, dr, ACTIVATION, WRITE, t * n->d, t * n->d)                                                        \
    X(ID, norm_grad, xhat, ACTIVATION, n->plain ? READ : BOTH, t * n->d, (n->plain ? 1 : 2) * t * n->d)                \
    X(ID, norm_grad, rstd, FLOAT, READ, t, 0)                                                                          \
    X(ID, norm_grad, dy, ACTIVATION, READ, t * n->d, t * n->d)                                                         \
    X(ID, norm_grad, gamma, FLOAT, READ, n->d, 0)                                                                      \
    X(ID, norm_grad, gamma_grad, FLOAT, BOTH, n->d, 0)                                                                 \
    X(ID, norm_grad, add, ACTIVATION, READ, t * n->d, t * n->d)

/* What the tensor ranks tell each other of their logits: there are as many as parts of the whole vocabulary. */
#define TOLD (PP_ENTROPY_PART * t * ((n->whole + n->vocab - 1) / n->vocab))

/* Columns of a token's row in the kernels of pieces. */
#define ROW PP_PIECE_ROW(n)

#define OPERANDS(X)                                                                                                    \
    X(COPY, copy, to, ACTIVATION, WRITE, n->rows * n->width, n->rows * n->width)                                       \
    X(COPY, copy, from, ACTIVATION, READ, n->rows * n->width, n->rows * n->width)                                      \
    X(EMBED, embed, out, ACTIVATION, WRITE, t * n->d, t * n->d)                                                        \
    X(EMBED, embed, tokens, INT32, READ, t, 0)                                                                         \
    X(EMBED, embed, weight, FLOAT, READ, n->d * n->vocab, t * n->d)                                                    \
    X(EMBED, embed, scratch, FLOAT, WRITE, n->positions == PP_POSITIONS_SINUSOIDAL ? n->seq * n->d : 0, t * n->d)      \
    X(EMBED, embed, positions, FLOAT, READ, n->positions == PP_POSITIONS_LEARNED ? n->seq * n->d : 0, t * n->d)        \
    X(EMBED_GRAD, embed_grad, weight_grad, FLOAT, BOTH, n->d * n->vocab, 2 * t * n->d + n->d * n->vocab)               \
    X(EMBED_GRAD, embed_grad, tokens, INT32, READ, t, 0)                                                               \
    X(EMBED_GRAD, embed_grad, dy, ACTIVATION, READ, t * n->d, t * n->d)                                                \
    X(POSITIONS_GRAD, positions_grad, positions_grad, FLOAT, BOTH, n->d * n->places, n->d * n->places)                 \
    X(POSITIONS_GRAD, positions_grad, dy, ACTIVATION, READ, t * n->d, t * n->d)                                        \
    PRODUCT(X, GEMM_NT, gemm, ACTIVATION)                                                                              \
    PRODUCT(X, GEMM_NN, gemm, ACTIVATION)                                                                              \
    PRODUCT(X, GEMM_TN, gemm, ACTIVATION)                                                                              \
    PRODUCT(X, GEMM_FP8, gemm_fp8, FP8)                                                                                \
    X(GEMM_FP8, gemm_fp8, scale_a, FLOAT, READ, 1, 0)                                                                  \
    X(GEMM_FP8, gemm_fp8, scale_b, FLOAT, READ, 1, 0)                                                                  \
    X(AMAX, amax, amax, FLOAT, WRITE, 1, 0)                                                                            \
    X(AMAX, amax, x, ACTIVATION, READ, MATRICES, MATRICES)                                                             \
    X(TO_FP8, to_fp8, q, FP8, WRITE, MATRICES, MATRICES)                                                               \
    X(TO_FP8, to_fp8, turned, FP8, WRITE, MATRICES, MATRICES)                                                          \
    X(TO_FP8, to_fp8, scale, FLOAT, WRITE, 1, 0)                                                                       \
    X(TO_FP8, to_fp8, x, ACTIVATION, READ, MATRICES, MATRICES)                                                         \
    X(TO_FP8, to_fp8, amax, FLOAT, READ, 1, 0)                                                                         \
    X(ATTENTION, attention, ctx, ACTIVATION, WRITE, t *ATTENDED, t *ATTENDED)                                          \
    X(ATTENTION, attention, probabilities, ACTIVATION, WRITE, t * n->heads * n->seq, t * n->heads * n->seq)            \
    X(ATTENTION, attention, qkv, ACTIVATION, RENEWED, t *WIDTH, RENEWALS *t *WIDTH)                                    \
    X(ATTENTION, attention, bias, FLOAT, READ, WIDTH, 0)                                                               \
    X(ATTENTION, attention, scratch, FLOAT, WRITE, scratch(n), 0)                                                      \
    X(ATTENTION_GRAD, attention_grad, qkv, ACTIVATION, BOTH, t *WIDTH, 2 * t * WIDTH)                                  \
    X(ATTENTION_GRAD, attention_grad, probabilities, ACTIVATION, READ, t * n->heads * n->seq, t * n->heads * n->seq)   \
    X(ATTENTION_GRAD, attention_grad, dctx, ACTIVATION, READ, t *ATTENDED, t *ATTENDED)                                \
    X(ATTENTION_GRAD, attention_grad, scratch, FLOAT, WRITE, scratch(n), 0)                                            \
    X(FLASH, flash, ctx, ACTIVATION, WRITE, t *ATTENDED, t *ATTENDED)                                                  \
    X(FLASH, flash, lse, FLOAT, WRITE, t * n->heads, t * n->heads)                                                     \
    X(FLASH, flash, qkv, ACTIVATION, RENEWED, t *WIDTH, RENEWALS *t *OWN_WIDTH)                                        \
    X(FLASH, flash, bias, FLOAT, READ, WIDTH, 0)                                                                       \
    X(FLASH, flash, scratch, FLOAT, WRITE, flash_scratch(n), 0)                                                        \
    X(FLASH, flash, keys, ACTIVATION, READ, GATHERED, GATHERED)                                                        \
    X(FLASH_GRAD, flash_grad, qkv, ACTIVATION, BOTH, t *WIDTH, 2 * t * OWN_WIDTH)                                      \
    X(FLASH_GRAD, flash_grad, lse, FLOAT, READ, t * n->heads, t * n->heads)                                            \
    X(FLASH_GRAD, flash_grad, ctx, ACTIVATION, READ, t *ATTENDED, t *ATTENDED)                                         \
    X(FLASH_GRAD, flash_grad, dctx, ACTIVATION, READ, t *ATTENDED, t *ATTENDED)                                        \
    X(FLASH_GRAD, flash_grad, scratch, FLOAT, WRITE, flash_scratch(n), 0)                                              \
    X(FLASH_GRAD, flash_grad, keys, ACTIVATION, READ, GATHERED, GATHERED)                                              \
    X(FLASH_GRAD, flash_grad, dkeys, ACTIVATION, WRITE, GATHERED, GATHERED)                                            \
    X(MERGE, merge, ctx, ACTIVATION, BOTH, t * n->dv, 2 * t * n->dv)                                                   \
    X(MERGE, merge, lse, FLOAT, BOTH, t, 2 * t)                                                                        \
    X(MERGE, merge, part, ACTIVATION, READ, t * n->dv, t * n->dv)                                                      \
    X(MERGE, merge, part_lse, FLOAT, READ, t, t)                                                                       \
    X(ADD_COLUMNS, add_columns, to, ACTIVATION, n->adds ? BOTH : WRITE, COLUMNS(n->to_pitch), (n->adds ? 2 : 1) * t)   \
    X(ADD_COLUMNS, add_columns, from, ACTIVATION, READ, COLUMNS(n->from_pitch), t)                                     \
    X(QK_NORM, qk_norm, qkv, ACTIVATION, BOTH, t *WIDTH, 2 * t * (bare ? NORMALISED : WIDTH))                          \
    X(QK_NORM, qk_norm, bias, FLOAT, READ, WIDTH, 0)                                                                   \
    X(QK_NORM, qk_norm, kept, ACTIVATION, WRITE, t *NORMALISED, t *NORMALISED)                                         \
    X(QK_NORM, qk_norm, q_gamma, FLOAT, READ, n->dh, 0)                                                                \
    X(QK_NORM, qk_norm, k_gamma, FLOAT, READ, n->dh, 0)                                                                \
    X(QK_NORM_GRAD, qk_norm_grad, dqkv, ACTIVATION, BOTH, t *WIDTH, 2 * t * NORMALISED)                                \
    X(QK_NORM_GRAD, qk_norm_grad, kept, ACTIVATION, READ, t *NORMALISED, t *NORMALISED)                                \
    X(QK_NORM_GRAD, qk_norm_grad, q_gamma, FLOAT, READ, n->dh, 0)                                                      \
    X(QK_NORM_GRAD, qk_norm_grad, k_gamma, FLOAT, READ, n->dh, 0)                                                      \
    X(QK_NORM_GRAD, qk_norm_grad, q_gamma_grad, FLOAT, BOTH, n->dh, 0)                                                 \
    X(QK_NORM_GRAD, qk_norm_grad, k_gamma_grad, FLOAT, BOTH, n->dh, 0)                                                 \
    X(ROPE, rope, qkv, ACTIVATION, BOTH, t *WIDTH, 2 * t * (bare ? ROTATED : WIDTH))                                   \
    X(ROPE, rope, bias, FLOAT, READ, WIDTH, 0)                                                                         \
    X(ROPE_GRAD, rope_grad, dqkv, ACTIVATION, BOTH, t *WIDTH, 2 * t * ROTATED)                                         \
    X(LATENT_NORM, latent_norm, y, ACTIVATION, WRITE, t * n->rank, t * n->rank)                                        \
    X(LATENT_NORM, latent_norm, rstd, FLOAT, WRITE, t, 0)                                                              \
    X(LATENT_NORM, latent_norm, x, ACTIVATION, READ, t *LATENT, t * n->rank)                                           \
    X(LATENT_NORM, latent_norm, gamma, FLOAT, READ, n->rank, 0)                                                        \
    X(LATENT_NORM_GRAD, latent_norm_grad, x, ACTIVATION, BOTH, t *LATENT, t *(2 * n->rank + n->shared))                \
    X(LATENT_NORM_GRAD, latent_norm_grad, rstd, FLOAT, READ, t, 0)                                                     \
    X(LATENT_NORM_GRAD, latent_norm_grad, dy, ACTIVATION, READ, t * n->rank, t * n->rank)                              \
    X(LATENT_NORM_GRAD, latent_norm_grad, dshared, ACTIVATION, READ, t * n->shared, t * n->shared)                     \
    X(LATENT_NORM_GRAD, latent_norm_grad, gamma, FLOAT, READ, n->rank, 0)                                              \
    X(LATENT_NORM_GRAD, latent_norm_grad, gamma_grad, FLOAT, BOTH, n->rank, 0)                                         \
    X(JOIN_HEADS, join_heads, qkv, ACTIVATION, WRITE, t *PP_JOINED_QKV(n), t *PP_JOINED_QKV(n))                        \
    X(JOIN_HEADS, join_heads, q, ACTIVATION, READ, t *PP_JOINED_QUERIES(n), t *PP_JOINED_QUERIES(n))                   \
    X(JOIN_HEADS, join_heads, kv, ACTIVATION, READ, t *PP_JOINED_KV(n), t *PP_JOINED_KV(n))                            \
    X(JOIN_HEADS, join_heads, x, ACTIVATION, READ, t *LATENT, t * n->shared)                                           \
    X(SPLIT_HEADS, split_heads, dqkv, ACTIVATION, READ, t *PP_JOINED_QKV(n), t *PP_JOINED_QKV(n))                      \
    X(SPLIT_HEADS, split_heads, dq, ACTIVATION, WRITE, t *PP_JOINED_QUERIES(n), t *PP_JOINED_QUERIES(n))               \
    X(SPLIT_HEADS, split_heads, dkv, ACTIVATION, WRITE, t *PP_JOINED_KV(n), t *PP_JOINED_KV(n))                        \
    X(SPLIT_HEADS, split_heads, dshared, ACTIVATION, WRITE, t * n->shared, t * n->shared)                              \
    NORM(X, LAYERNORM)                                                                                                 \
    X(LAYERNORM, norm, beta, FLOAT, READ, n->d, 0)                                                                     \
    NORM_GRAD(X, LAYERNORM_GRAD)                                                                                       \
    X(LAYERNORM_GRAD, norm_grad, beta_grad, FLOAT, BOTH, n->d, 0)                                                      \
    NORM(X, RMSNORM)                                                                                                   \
    NORM_GRAD(X, RMSNORM_GRAD)                                                                                         \
    X(RESIDUAL, residual, y, ACTIVATION, WRITE, t * n->d, t * n->d)                                                    \
    X(RESIDUAL, residual, z, ACTIVATION, READ, t * n->d, t * n->d)                                                     \
    X(RESIDUAL, residual, x, ACTIVATION, READ, t * n->d, t * n->d)                                                     \
    X(RESIDUAL, residual, bias, FLOAT, READ, n->d, 0)                                                                  \
    X(RESIDUAL_GRAD, residual_grad, dz, ACTIVATION, WRITE, t * n->d, t * n->d)                                         \
    X(RESIDUAL_GRAD, residual_grad, dy, ACTIVATION, READ, t * n->d, t * n->d)                                          \
    X(RELU, relu, u, ACTIVATION, BOTH, t * n->width, 2 * t * n->width)                                                 \
    X(RELU, relu, bias, FLOAT, READ, n->width, 0)                                                                      \
    X(RELU_GRAD, relu_grad, du, ACTIVATION, BOTH, t * n->width, 2 * t * n->width)                                      \
    X(RELU_GRAD, relu_grad, u, ACTIVATION, READ, t * n->width, t * n->width)                                           \
    X(GELU, gelu, u, ACTIVATION, WRITE, t * n->width, t * n->width)                                                    \
    X(GELU, gelu, a, ACTIVATION, RENEWED, t * n->width, RENEWALS * t * n->width)                                       \
    X(GELU, gelu, bias, FLOAT, READ, n->width, 0)                                                                      \
    X(GELU_GRAD, gelu_grad, du, ACTIVATION, BOTH, t * n->width, 2 * t * n->width)                                      \
    X(GELU_GRAD, gelu_grad, a, ACTIVATION, READ, t * n->width, t * n->width)                                           \
    X(SWIGLU, swiglu, u, ACTIVATION, WRITE, t * n->width, t * n->width)                                                \
    X(SWIGLU, swiglu, a, ACTIVATION, RENEWED, 2 * t * n->width, RENEWALS * 2 * t * n->width)                           \
    X(SWIGLU, swiglu, bias, FLOAT, READ, 2 * n->width, 0)                                                              \
    X(SWIGLU_GRAD, swiglu_grad, a, ACTIVATION, BOTH, 2 * t * n->width, 4 * t * n->width)                               \
    X(SWIGLU_GRAD, swiglu_grad, du, ACTIVATION, READ, t * n->width, t * n->width)                                      \
    X(SIGMOID, sigmoid, x, FLOAT, BOTH, n->tokens, 2 * n->tokens)                                                      \
    X(SIGMOID_GRAD, sigmoid_grad, dx, ACTIVATION, WRITE, n->tokens, n->tokens)                                         \
    X(SIGMOID_GRAD, sigmoid_grad, dy, FLOAT, READ, n->tokens, n->tokens)                                               \
    X(SIGMOID_GRAD, sigmoid_grad, y, FLOAT, READ, n->tokens, n->tokens)                                                \
    X(ROUTE, route, probabilities, FLOAT, BOTH, t * n->experts, 2 * t * n->experts)                                    \
    X(ROUTE, route, choices, INT32, WRITE, t * n->chosen, t * n->chosen)                                               \
    X(ROUTE, route, gates, FLOAT, WRITE, t * n->chosen, t * n->chosen)                                                 \
    X(ROUTE, route, places, INT32, WRITE, t * n->chosen, t * n->chosen)                                                \
    X(ROUTE, route, holds, INT32, WRITE, n->capacity * n->local, n->capacity * n->local)                               \
    X(ROUTE, route, counts, FLOAT, WRITE, n->experts, 0)                                                               \
    X(ROUTE, route, bias, FLOAT, READ, n->experts, 0)                                                                  \
    X(ROUTE_GRAD, route_grad, dlogits, ACTIVATION, WRITE, t * n->experts, t * n->experts)                              \
    X(ROUTE_GRAD, route_grad, dgates, FLOAT, READ, t * n->chosen, t * n->chosen)                                       \
    X(ROUTE_GRAD, route_grad, probabilities, FLOAT, READ, t * n->experts, t * n->experts)                              \
    X(ROUTE_GRAD, route_grad, choices, INT32, READ, t * n->chosen, t * n->chosen)                                      \
    X(ROUTE_GRAD, route_grad, gates, FLOAT, READ, t * n->chosen, t * n->chosen)                                        \
    X(ROUTE_GRAD, route_grad, counts, FLOAT, READ, n->experts, 0)                                                      \
    X(DISPATCH, dispatch, to, ACTIVATION, WRITE, n->places * n->width, n->places * n->width)                           \
    X(DISPATCH, dispatch, from, ACTIVATION, READ, n->tokens * n->width, n->places * n->width)                          \
    X(DISPATCH, dispatch, holds, INT32, READ, n->places, 0)                                                            \
    X(COMBINE, combine, to, ACTIVATION, n->mode == PP_GEMM_WRITE ? WRITE : BOTH, n->tokens * n->width,                 \
      SUMMED(n->mode) * n->tokens * n->width)                                                                          \
    X(COMBINE, combine, from, ACTIVATION, READ, n->places * n->width, n->places * n->width)                            \
    X(COMBINE, combine, places, INT32, READ, n->tokens * n->chosen, 0)                                                 \
    X(WEIGH, weigh, u, ACTIVATION, BOTH, n->places * n->width, 2 * n->places * n->width)                               \
    X(WEIGH, weigh, gates, FLOAT, READ, n->tokens * n->chosen, 0)                                                      \
    X(WEIGH, weigh, holds, INT32, READ, n->places, 0)                                                                  \
    X(WEIGH_GRAD, weigh_grad, du, ACTIVATION, BOTH, n->places * n->width, 2 * n->places * n->width)                    \
    X(WEIGH_GRAD, weigh_grad, dgates, FLOAT, WRITE, n->tokens * n->chosen, n->tokens * n->chosen)                      \
    X(WEIGH_GRAD, weigh_grad, u, ACTIVATION, READ, n->places * n->width, n->places * n->width)                         \
    X(WEIGH_GRAD, weigh_grad, gates, FLOAT, READ, n->tokens * n->chosen, 0)                                            \
    X(WEIGH_GRAD, weigh_grad, places, INT32, READ, n->tokens * n->chosen, 0)                                           \
    X(CROSS_ENTROPY, loss, logits, FLOAT, READ, t * n->columns, t * n->vocab)                                          \
    X(CROSS_ENTROPY, loss, bias, FLOAT, READ, n->vocab, 0)                                                             \
    X(CROSS_ENTROPY, loss, targets, INT32, READ, t, 0)                                                                 \
    X(CROSS_ENTROPY, loss, dlogits, ACTIVATION, WRITE, n->gradient *t * n->columns, n->gradient * t * n->vocab)        \
    X(CROSS_ENTROPY_PART, loss, logits, FLOAT, READ, t * n->columns, t * n->vocab)                                     \
    X(CROSS_ENTROPY_PART, loss, bias, FLOAT, READ, n->vocab, 0)                                                        \
    X(CROSS_ENTROPY_PART, loss, targets, INT32, READ, t, 0)                                                            \
    X(CROSS_ENTROPY_PART, loss, parts, FLOAT, WRITE, TOLD, 0)                                                          \
    X(CROSS_ENTROPY_JOIN, loss, logits, FLOAT, READ, t * n->columns, n->gradient * t * n->vocab)                       \
    X(CROSS_ENTROPY_JOIN, loss, bias, FLOAT, READ, n->vocab, 0)                                                        \
    X(CROSS_ENTROPY_JOIN, loss, targets, INT32, READ, t, 0)                                                            \
    X(CROSS_ENTROPY_JOIN, loss, dlogits, ACTIVATION, WRITE, n->gradient *t * n->columns, n->gradient * t * n->vocab)   \
    X(CROSS_ENTROPY_JOIN, loss, parts, FLOAT, READ, TOLD, 0)                                                           \
    X(TO_PIECES, pieces, to, ACTIVATION, WRITE, n->tokens *ROW, n->tokens *ROW)                                        \
    X(TO_PIECES, pieces, from, ACTIVATION, READ, n->tokens *ROW, n->tokens *ROW)                                       \
    X(TO_PIECES, pieces, bias, FLOAT, READ, ROW, 0)                                                                    \
    X(FROM_PIECES, pieces, to, ACTIVATION, WRITE, n->tokens *ROW, n->tokens *ROW)                                      \
    X(FROM_PIECES, pieces, from, ACTIVATION, READ, n->tokens *ROW, n->tokens *ROW)                                     \
    X(COPY_KEYS, copy_keys, to, ACTIVATION, WRITE, n->tokens *PP_PIECE_KEYS(n), n->tokens *PP_PIECE_KEYS(n))           \
    X(COPY_KEYS, copy_keys, qkv, ACTIVATION, RENEWED, n->tokens *ROW,                                                  \
      bare ? n->tokens *PP_PIECE_KEYS(n) : 2 * n->tokens * ROW)                                                        \
    X(COPY_KEYS, copy_keys, bias, FLOAT, READ, ROW, 0)                                                                 \
    X(SUM_KEYS, sum_keys, qkv, ACTIVATION, BOTH, n->tokens *ROW, 2 * n->tokens * PP_PIECE_KEYS(n))                     \
    X(SUM_KEYS, sum_keys, from, ACTIVATION, READ, n->parts * n->tokens * PP_PIECE_KEYS(n),                             \
      n->parts * n->tokens * PP_PIECE_KEYS(n))                                                                         \
    X(ALL_REDUCE, join, memory, n->wide ? FLOAT : ACTIVATION, BOTH, n->rows * n->width, 0)                             \
    X(REDUCE_SCATTER, join, memory, ACTIVATION, BOTH, n->rows * n->width, 0)                                           \
    X(ALL_GATHER, join, memory, ACTIVATION, BOTH, n->rows * n->width, 0)                                               \
    X(ALL_TO_ALL, exchange, to, n->wide ? FLOAT : ACTIVATION, WRITE, n->rows * n->width, 0)                            \
    X(ALL_TO_ALL, exchange, from, n->wide ? FLOAT : ACTIVATION, READ,                                                  \
      n->halves && !n->back ? n->rows / n->halves * n->width : n->rows * n->width, 0)                                  \
    X(SHIFT, exchange, to, n->wide ? FLOAT : ACTIVATION, WRITE, n->rows * n->width, 0)                                 \
    X(SHIFT, exchange, from, n->wide ? FLOAT : ACTIVATION, READ, n->rows * n->width, 0)                                \
    X(COLSUM, colsum, grad, FLOAT, BOTH, n->width, 0)                                                                  \
    X(COLSUM, colsum, in, ACTIVATION, READ, n->rows * n->width, n->rows * n->width)                                    \
    X(TAKE, take, grad, FLOAT, BOTH, n->rows * n->width, n->rows * n->width)                                           \
    X(TAKE, take, in, FLOAT, READ, n->rows * n->width, n->rows * n->width)                                             \
    X(SUMSQ, sumsq, gradient, FLOAT, READ, n->rows * n->width, n->rows * n->width)                                     \
    STEP(X, SGD)                                                                                                       \
    STEP(X, ADAMW)                                                                                                     \
    X(ADAMW, step, m, FLOAT, BOTH, n->rows * n->width, 2 * n->rows * n->width)                                         \
    X(ADAMW, step, v, FLOAT, BOTH, n->rows * n->width, 2 * n->rows * n->width)                                         \
    STEP(X, ADAMW_BF16)                                                                                                \
    X(ADAMW_BF16, step, m, BF16, BOTH, n->rows * n->width, 2 * n->rows * n->width)                                     \
    X(ADAMW_BF16, step, v, BF16, BOTH, n->rows * n->width, 2 * n->rows * n->width)                                     \
    X(BALANCE, balance, bias, FLOAT, BOTH, n->rows * n->width, 2 * n->rows * n->width)                                 \
    X(BALANCE, balance, loads, FLOAT, READ, n->rows * n->width, n->rows * n->width)

static int64_t scratch(const struct pp_attention_sizes *n)
{
    return pp_attention_scratch((int)n->seq, (int)(n->dh + PP_VALUE_COLUMNS(n))) / (int64_t)sizeof(float);
}
static int64_t flash_scratch(const struct pp_attention_sizes *n)
{
    return pp_flash_scratch((int)n->seq, (int)PP_ROW_KEYS(n), (int)(n->dh + PP_VALUE_COLUMNS(n))) /
           (int64_t)sizeof(float);
}

/* The dimensions of a kernel's calls by their names. (unused: await has no operands.) */
#define X(ID, name, dims, named, flops)                                                                                \
    __attribute__((unused)) static inline const struct pp_##dims##_sizes *sizes_of_##ID(                               \
        const union pp_call_sizes *sizes)                                                                              \
    {                                                                                                                  \
        return &sizes->dims;                                                                                           \
    }
PP_KERNEL_LIST(X)
#undef X

#define X(ID, operands, member, type, use, elements, moved)                                                            \
    static struct pp_operand operand_##ID##_##member(const union pp_call_sizes *sizes, int64_t t, bool bare)           \
    {                                                                                                                  \
        const __auto_type n = sizes_of_##ID(sizes);                                                                    \
        return (void)n, (void)t, (void)bare, (struct pp_operand){#member, type, use, elements, moved, 0};              \
    }
OPERANDS(X)
#undef X

static struct pp_operand (*const operand_of[PP_KERNELS][PP_CALL_REFS])(const union pp_call_sizes *, int64_t t,
                                                                       bool bare) = {
#define X(ID, operands, member, type, use, elements, moved)                                                            \
    [PP_KERNEL_##ID][PP_OPERAND(operands, member)] = operand_##ID##_##member,
    OPERANDS(X)
#undef X
};

struct pp_operand pp_call_operand(const struct pp_call *call, int i)
{
    const int element_bytes[] = {[PP_TYPE_ACTIVATION] = pp_element_bytes(call->precision),
                                 [PP_TYPE_FLOAT] = sizeof(float),
                                 [PP_TYPE_BF16] = 2,
                                 [PP_TYPE_FP8] = 1,
                                 [PP_TYPE_INT32] = sizeof(int32_t)};
    union pp_call_sizes sizes;
    for (int k = 0; k < PP_CALL_DIMS; k++) sizes.n[k] = call->n[k];
    if (!operand_of[call->kernel][i]) return (struct pp_operand){0};
    struct pp_operand operand = operand_of[call->kernel][i](&sizes, sizes.n[0] * sizes.n[1], pp_call_lacks_bias(call));
    if (operand.elements == 0) return (struct pp_operand){0};
    operand.element_bytes = element_bytes[operand.type];
    return operand;
}

int64_t pp_call_copies(const struct pp_call *call)
{
    const int64_t sent = pp_call_operand(call, 1).elements;
    return sent > 0 ? pp_call_operand(call, 0).elements / sent : 0;
}
