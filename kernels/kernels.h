/* SPDX-License-Identifier: Apache-2.0
 *
 * The kernel table: every operation that a program may call, with the arithmetic it asks for, and what follows from a
 * call: its operands, the bytes it moves, its name. What a kernel computes, and what its dimensions and operands are,
 * is said in core/calls/calls_*.h; core/calls/call.h explains how to read that. A backend implements all kernels.
 */
#ifndef PP_KERNELS_KERNELS_H
#define PP_KERNELS_KERNELS_H

#include "core/calls/call.h"
#include "core/model/program.h"
#include "core/shape/work.h"
#include "kernels/places.h"

enum { PP_EXPERTS_MAX = 4096, PP_EXPERTS_PER_TOKEN_MAX = 64, PP_CHOICES_MAX = 8 << 20 /* of all tokens of a call */ };

/* Of dimensions of any type: products of a call of gemm; scores of attention; columns of a key and its value. */
#define PP_TIMES(n) ((n)->times ? (n)->times : 1)
#define PP_SCORES(n) ((n)->rows * (n)->heads * (n)->seq * PP_SEEN_KEYS(n))
#define PP_PAIR_COLUMNS(n) ((n)->dh + PP_VALUE_COLUMNS(n))
/* Operations for each score that are no product: of attention and its gradient; of flash_grad, which makes the score
 * again. */
enum { PP_SOFTMAX_FLOPS = 6, PP_SOFTMAX_AGAIN_FLOPS = 9 };

/* X(ID, name, dims, named, flops)
 *   dims    the PP_DIMS of its calls: call->dims
 *   named   how many of these dimensions, from the first on, stand in names of calls ("gemm_nt 175x600x200")
 *   flops   floating-point operations that a call asks for, of all scores, masked or not; with a window, of as many
 *           scores for each query as the window has keys. n: the dimensions, as doubles; bare: the call could have a
 *           bias, and has none
 */
#define PP_KERNEL_LIST(X)                                                                                              \
    X(COPY, copy, matrix, 2, 0)                                                                                        \
    X(EMBED, embed, embed, 4, (n->positions == PP_POSITIONS_ROPE ? 2 : 3) * n->rows * n->seq * n->d)                   \
    X(EMBED_GRAD, embed_grad, embed, 4, 2 * n->rows * n->seq * n->d)                                                   \
    X(POSITIONS_GRAD, positions_grad, positions, 4, n->rows * n->seq * n->d)                                           \
    X(GEMM_NT, gemm_nt, gemm, 3, 2 * n->m * n->n * n->k * PP_TIMES(n))                                                 \
    X(GEMM_NN, gemm_nn, gemm, 3, 2 * n->m * n->n * n->k * PP_TIMES(n))                                                 \
    X(GEMM_TN, gemm_tn, gemm, 3, 2 * n->m * n->n * n->k * PP_TIMES(n))                                                 \
    X(GEMM_FP8, gemm_fp8, gemm, 3, 2 * n->m * n->n * n->k * PP_TIMES(n))                                               \
    X(AMAX, amax, fp8, 2, n->rows * n->width * PP_TIMES(n))                                                            \
    X(TO_FP8, to_fp8, fp8, 2, 2 * n->rows * n->width * PP_TIMES(n))                                                    \
    X(ATTENTION, attention, attention, 5, PP_SCORES(n) * (2 * PP_PAIR_COLUMNS(n) + PP_SOFTMAX_FLOPS))                  \
    X(ATTENTION_GRAD, attention_grad, attention, 5, PP_SCORES(n) * (4 * PP_PAIR_COLUMNS(n) + PP_SOFTMAX_FLOPS))        \
    X(FLASH, flash, attention, 5, PP_SCORES(n) * (2 * PP_PAIR_COLUMNS(n) + PP_SOFTMAX_FLOPS))                          \
    X(FLASH_GRAD, flash_grad, attention, 5,                                                                            \
      PP_SCORES(n) * (4 * PP_PAIR_COLUMNS(n) + 2 * n->dh + PP_SOFTMAX_AGAIN_FLOPS))                                    \
    X(MERGE, merge, merge, 3, 8 * n->tokens * n->heads * n->dv)                                                        \
    X(ADD_COLUMNS, add_columns, columns, 2, n->adds * n->rows * n->width)                                              \
    X(QK_NORM, qk_norm, attention, 4,                                                                                  \
      n->rows * n->seq * n->dh * ((bare ? 4 : 5) * (n->heads + PP_KV_HEADS(n)) + (bare ? 0 : PP_KV_HEADS(n))))         \
    X(QK_NORM_GRAD, qk_norm_grad, attention, 4, 11 * n->rows * n->seq * n->dh * (n->heads + PP_KV_HEADS(n)))           \
    X(ROPE, rope, rope, 4,                                                                                             \
      n->rows * n->seq * (3 * PP_ROPE_COLUMNS(n) * (n->heads + PP_KV_HEADS(n)) + (bare ? 0 : PP_QKV_COLUMNS(n))))      \
    X(ROPE_GRAD, rope_grad, rope, 4, 3 * n->rows * n->seq * PP_ROPE_COLUMNS(n) * (n->heads + PP_KV_HEADS(n)))          \
    X(LATENT_NORM, latent_norm, latent, 4, 4 * n->rows * n->seq * n->rank)                                             \
    X(LATENT_NORM_GRAD, latent_norm_grad, latent, 4, 9 * n->rows * n->seq * n->rank)                                   \
    X(JOIN_HEADS, join_heads, heads, 7, 0)                                                                             \
    X(SPLIT_HEADS, split_heads, heads, 7, n->rows * n->seq * n->shared * (n->heads - 1))                               \
    X(LAYERNORM, layernorm, norm, 3, 9 * n->rows * n->seq * n->d)                                                      \
    X(LAYERNORM_GRAD, layernorm_grad, norm, 3, 14 * n->rows * n->seq * n->d)                                           \
    X(RMSNORM, rmsnorm, norm, 3, 7 * n->rows * n->seq * n->d)                                                          \
    X(RMSNORM_GRAD, rmsnorm_grad, norm, 3, 11 * n->rows * n->seq * n->d)                                               \
    X(RESIDUAL, residual, norm, 3, 3 * n->rows * n->seq * n->d)                                                        \
    X(RESIDUAL_GRAD, residual_grad, norm, 3, n->rows * n->seq * n->d)                                                  \
    X(RELU, relu, activation, 3, 3 * n->rows * n->seq * n->width)                                                      \
    X(RELU_GRAD, relu_grad, activation, 3, n->rows * n->seq * n->width)                                                \
    X(GELU, gelu, activation, 3, (n->tanh ? 34 : 40) * n->rows * n->seq * n->width)                                    \
    X(GELU_GRAD, gelu_grad, activation, 3, (n->tanh ? 39 : 42) * n->rows * n->seq * n->width)                          \
    X(SWIGLU, swiglu, activation, 3, 32 * n->rows * n->seq * n->width)                                                 \
    X(SWIGLU_GRAD, swiglu_grad, activation, 3, 38 * n->rows * n->seq * n->width)                                       \
    X(SIGMOID, sigmoid, sigmoid, 1, 15 * n->tokens)                                                                    \
    X(SIGMOID_GRAD, sigmoid_grad, sigmoid, 1, 3 * n->tokens)                                                           \
    X(ROUTE, route, route, 5, n->rows * n->seq * n->experts * (4 + n->chosen))                                         \
    X(ROUTE_GRAD, route_grad, route_grad, 4, n->rows * n->seq * (4 * n->experts + 4 * n->chosen))                      \
    X(DISPATCH, dispatch, places, 4, 0)                                                                                \
    X(COMBINE, combine, combine, 4, n->tokens * n->width * n->chosen)                                                  \
    X(WEIGH, weigh, places, 4, n->places * n->width)                                                                   \
    X(WEIGH_GRAD, weigh_grad, places, 4, 3 * n->places * n->width)                                                     \
    X(CROSS_ENTROPY, cross_entropy, loss, 4, 5 * n->rows * n->seq * n->vocab)                                          \
    X(CROSS_ENTROPY_PART, cross_entropy_part, loss, 4, 3 * n->rows * n->seq * n->vocab)                                \
    X(CROSS_ENTROPY_JOIN, cross_entropy_join, loss, 4, 3 * n->rows * n->seq * n->vocab)                                \
    X(TO_PIECES, to_pieces, pieces, 4, 0)                                                                              \
    X(FROM_PIECES, from_pieces, pieces, 4, 0)                                                                          \
    X(COPY_KEYS, copy_keys, pieces, 3, 0)                                                                              \
    X(SUM_KEYS, sum_keys, pieces, 4, n->tokens *PP_PIECE_KEYS(n) * (n->parts - 1))                                     \
    X(ALL_REDUCE, all_reduce, join, 2, 0)                                                                              \
    X(REDUCE_SCATTER, reduce_scatter, join, 2, 0)                                                                      \
    X(ALL_GATHER, all_gather, join, 2, 0)                                                                              \
    X(AWAIT, await, join, 3, 0)                                                                                        \
    X(ALL_TO_ALL, all_to_all, exchange, 2, 0)                                                                          \
    X(SHIFT, shift, exchange, 2, 0)                                                                                    \
    X(COLSUM, colsum, matrix, 2, n->rows * n->width)                                                                   \
    X(TAKE, take, matrix, 2, n->rows * n->width)                                                                       \
    X(SUMSQ, sumsq, sumsq, 2, 2 * n->rows * n->width)                                                                  \
    X(SGD, sgd, step, 2, 2 * n->rows * n->width)                                                                       \
    X(ADAMW, adamw, step, 2, 14 * n->rows * n->width)                                                                  \
    X(ADAMW_BF16, adamw_bf16, step, 2, 14 * n->rows * n->width)                                                        \
    X(BALANCE, balance, balance, 2, 3 * n->rows * n->width)

enum pp_kernel {
#define X(ID, name, dims, named, flops) PP_KERNEL_##ID,
    PP_KERNEL_LIST(X)
#undef X
        PP_KERNELS
};

struct pp_kernel_info {
    const char *name;
    int named; /* how many dimensions stand in the names of its calls */
};
extern const struct pp_kernel_info pp_kernel_table[PP_KERNELS];

static inline bool pp_kernel_is_product(int kernel)
{
    return kernel == PP_KERNEL_GEMM_NT || kernel == PP_KERNEL_GEMM_NN || kernel == PP_KERNEL_GEMM_TN ||
           kernel == PP_KERNEL_GEMM_FP8;
}

/* Is it a layernorm or rmsnorm, or the gradient of one? */
static inline bool pp_kernel_is_norm(int kernel)
{
    return kernel == PP_KERNEL_LAYERNORM || kernel == PP_KERNEL_LAYERNORM_GRAD || kernel == PP_KERNEL_RMSNORM ||
           kernel == PP_KERNEL_RMSNORM_GRAD;
}

/* Does the call, whose mode (enum pp_gemm_mode) this is, add to C in a task of this frame? */
static inline bool pp_gemm_adds(const struct pp_call *call, int mode, const struct pp_frame *frame)
{
    return mode == PP_GEMM_ADD || (mode == PP_GEMM_GRADIENT && call->adds) ||
           (mode == PP_GEMM_ADD_ONCE && frame->tensor_rank == 0);
}

/* once: enum pp_once. Do the squares count in another rank than this one? */
static inline bool pp_counts_elsewhere(int once, const struct pp_frame *frame)
{
    return (once & PP_ONCE_TENSOR && frame->tensor_rank > 0) || (once & PP_ONCE_EXPERT && frame->expert_rank > 0);
}

/* The index in pp_frame.sums of the sum that a sumsq makes. */
static inline int pp_sum_index(const struct pp_call *call, const struct pp_frame *frame)
{
    return call->sumsq.index + (call->sumsq.apart ? frame->expert_rank : 0);
}

enum pp_operand_type { PP_TYPE_ACTIVATION, PP_TYPE_FLOAT, PP_TYPE_BF16, PP_TYPE_INT32, PP_TYPE_FP8 };
enum pp_operand_use { PP_USE_READ = 1, PP_USE_WRITE = 2, PP_USE_BOTH = 3 };

/* What the table of operands (kernels/operands.c) says of one operand of a call. */
struct pp_operand {
    const char *name;  /* NULL: the call has no such operand */
    int type, use;     /* enum pp_operand_type, enum pp_operand_use */
    int64_t elements;  /* in memory, from the operand's address on, without gaps */
    int64_t moved;     /* elements that are read, plus elements that are written; 0 for what is as small as a row */
    int element_bytes; /* of the type, in the call's precision */
};
/* i: index into pp_call.ref[], as PP_OPERAND() gives it. */
struct pp_operand pp_call_operand(const struct pp_call *call, int i);

/* all_to_all and shift without other workers, as they are measured: so many copies of what is sent fill what is
 * received. */
int64_t pp_call_copies(const struct pp_call *call);

/* Could the call have a bias, which would take a pass over memory, and has none? */
bool pp_call_lacks_bias(const struct pp_call *call);

/* Floating-point operations of a call; bytes of its operands that it reads and writes. */
double pp_call_flops(const struct pp_call *call);
double pp_call_bytes(const struct pp_call *call);
/* How many bytes more it moves if it adds to gradients than if it writes them; negative for kernels that clear before
 * they write. 0: it makes no gradient, or as small a one as a row. */
double pp_call_again_bytes(const struct pp_call *call);

/* What a device does for the call (kernels/work.c). */
struct pp_work pp_call_work(const struct pp_call *call, bool gpu);

/* What the workers do together in the call; PP_JOIN_NONE for most kernels. */
struct pp_join_work pp_call_join(const struct pp_call *call);

/* Has frame->join do that, if there is one. */
void pp_call_meet(const struct pp_call *call, const struct pp_frame *frame);

/* The name of a call, the key of kernel times: kernel, dimensions, and further words where a call is not plain:
 *
 *   /28800      cross_entropy: columns, where rows of logits are padded
 *   kv2         attention, flash, qk_norm, rope: heads of keys and values, where there are fewer
 *   turn64      rope: columns of a head that are rotated, where not all are; turn64/128: behind 128 others
 *   of4096      flash: keys of a whole row, where queries are some of them; or as many keys of a chunk as queries
 *   w1024       attention, flash: the window, where it hides keys
 *   v128        attention, flash, rope, and kernels of pieces: columns of a value, or of all values, where they are not
 *               as many as those of keys
 *   plain       a plain norm; attention, flash, qk_norm and rope without a bias; an embedding without positions
 *   learned     an embedding with learnt positions
 *   sum         a norm that writes its sum; a norm's gradient that adds one
 *   unsent      a norm without y
 *   tanh        gelu by tanh
 *   of4/8       route: groups that a token chooses from, and all of them
 *   biased      route: experts are chosen with a bias
 *   sigmoid     route, route_grad: probabilities are logistic functions
 *   nobias      where having no bias spares a pass over memory
 *   times8      number of products, or of matrices
 *   e5m2        gemm_fp8, to_fp8: A, or what is made, is a gradient
 *   turned      to_fp8: what is made is transposed; both: one is, and one is not
 *   adds        add_columns: adds to what is there
 *   writes      writes a gradient of parameters, to which the same call of other microbatches adds
 *   drop        a dropout site
 *   bf16, tf32  the precision; wide: a product, sum or exchange whose result is float32 in bf16
 *
 * Returns buf. */
const char *pp_call_text(const struct pp_call *call, char *buf, size_t size);

#endif
