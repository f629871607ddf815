/* SPDX-License-Identifier: Apache-2.0
 *
 * The kernel table: every operation that a program may call, with its cost formulas. A backend implements all of them.
 *
 * T = rows * seq tokens. All matrices are row-major without gaps, float32 but for bf16 (core/program.h): there x, y, z,
 * xhat, u, qkv, kept, P, ctx, their gradients, and A and B of products are bfloat16; biases, gamma, beta, rstd, lse,
 * embedding, logits and all of PP_MEM_PARAM and PP_MEM_GRAD are float32. "grad" operands are overwritten, or added to
 * where frame.accumulate is set. `site` != 0 and frame.training switch dropout on; f[] then holds its probability p.
 * Of frame.tensor workers one computes heads, columns and words from tensor_rank times those of the call on: embed
 * makes zeros of others' words, embed_grad passes over them, and dropout draws what it would draw for all of them. Of
 * frame.context workers one has, of each row, the tokens from context_rank times seq on, and positions and dropout are
 * those of these places; but attention has all tokens, and of the tensor rank's heads those from context_rank times
 * heads on. With frame.halves it has two chunks of each row instead (pp_row_places), which are attention's queries, and
 * all of the tensor rank's heads.
 * A bias that has no memory is none: nothing is added, and what would only be renewed by it is not written.
 *
 * kernel          n[]                          f[]       ref[], in order
 * copy            rows, width                            to, from; nothing happens where either region has no memory
 * embed           rows, seq, d, vocab, positions
 *                                              scale, p  out [T,d], tokens, weight [vocab,d], scratch [seq,d],
 *                                                        positions [context*seq,d]
 *                 out = drop(weight[token] * scale + position(t)), t the token's place in its row. positions: enum
 *                 pp_positions. Sinusoidal: made in scratch; rope: none is added; learned: those of ref[4]
 * embed_grad      rows, seq, d, vocab          scale, p  grad weight [vocab,d], tokens, dy [T,d]
 * positions_grad  rows, seq, d, places         -, p      grad positions [places,d], dy [T,d]
 *                 with embed's dropout, but not its scale: the gradient of a place is the sum of that of its token of
 *                 each row, in the order of the rows; of places without one 0, or as it was where the frame accumulates
 * gemm_nt         m, n, k, mode, wide, times                  C [m,n], A [m,k], B [n,k]      C = A B'
 * gemm_nn         m, n, k, mode, wide, times                  C [m,n], A [m,k], B [k,n]      C = A B
 * gemm_tn         m, n, k, mode, wide, times                  C [m,n], A [k,m], B [k,n]      C = A' B
 *                 mode: enum pp_gemm_mode. wide: C is float32 whatever the precision. times: so many products, each of
 *                 the matrices behind those of the one before; 0: one
 * attention       rows, seq, heads, dh, causal, kv
 *                                              p         ctx [T,heads*dh], P [rows,heads,seq,seq], qkv [T,width],
 *                                                        bias [width], scratch (pp_attention_scratch)
 *                 qkv += bias; P = softmax(q k' / sqrt(dh)), negative where dropout drops it; ctx = drop(P) v.
 *                 kv: heads of keys and values, 0: as many as heads. A token has heads queries, kv keys and kv values
 *                 of dh numbers each, one behind the other: width = (heads + 2*kv) * dh. The queries of heads / kv
 *                 successive heads see one head of keys and values, as PyTorch's scaled_dot_product_attention has it
 *                 with enable_gqa; what they give its gradients is added in the order of the heads
 * attention_grad  rows, seq, heads, dh, causal, kv
 *                                              p         qkv -> dqkv in place, P, dctx [T,heads*dh], scratch
 * flash           as attention, tokens         p         ctx [T,heads*dh], lse [rows,heads,seq], qkv [T,width],
 *                                                        bias [width], scratch (pp_flash_scratch),
 *                                                        keys [rows,tokens,2*kv*dh]
 *                 attention that stores no P: lse = logarithm of the sum of the exponentials of a query's scaled
 *                 scores. The same scores are dropped as by attention. tokens: of whole rows, context times seq, where
 *                 queries are those of the frame's halves, and keys and values of all tokens in `keys`; of qkv only the
 *                 queries count then, and there is no bias. 0: there is no ref[5]
 * flash_grad      as attention_grad, tokens    p         qkv -> dqkv in place, lse, ctx, dctx [T,heads*dh], scratch,
 *                                                        keys, their gradients
 *                 P is made again from q, k and lse; the sum of dP * P of a query is its ctx times its dctx. With
 *                 tokens of qkv the queries alone become their gradients; 0: there is no ref[5], nor ref[6]
 * qk_norm         rows, seq, heads, dh, 0, kv  -, eps    qkv [T,width] in place, bias [width], kept
 *                                                        [T,(heads+kv)*dh], gamma of queries, of keys [dh]
 *                 qkv += bias; kept = queries and keys; then each head x of these becomes x * rstd * gamma, rstd = 1 /
 *                 sqrt(mean of x^2 + eps)
 * qk_norm_grad    rows, seq, heads, dh, 0, kv  -, eps    dqkv [T,width] in place, kept, gamma of queries, of keys,
 *                                                        their gradients [dh]
 *                 dq and dk become gradients at what is kept, from which rstd is made again. The gradients of gamma are
 *                 of all heads of all tokens of the call
 * rope            rows, seq, heads, dh, 0, kv  theta     qkv [T,width] in place, bias [width]
 *                 qkv += bias; then queries and keys of the row's token t are rotated: columns i and
 *                 i + dh/2 of a head, x and y, become x cos a - y sin a and y cos a + x sin a, a = t * theta^(-2i/dh)
 *                 (Su et al. 2021; pairs are those of Hugging Face's Llama, "rotate half", not neighbours). dh is even
 * rope_grad       rows, seq, heads, dh, 0, kv  theta     dqkv [T,width] in place: dq and dk are rotated back
 * layernorm       rows, seq, d, plain, whole, pieces  p, eps  y [T,d], z -> xhat in place [T,d], rstd [T], x [T,d],
 *                                                        bias, gamma, beta [d], sum [T,d]
 *                 r = x + drop(z + bias), written to sum too unless that has no memory; plain: r = x, and z is written
 *                 only; xhat = (r - mean) * rstd; y = xhat * gamma + beta, unless y has no memory (a recomputed stage
 *                 sends nothing). sum may be x.
 *                 whole, pieces: of norms, residual and their gradients; not 0 where a tensor rank has a part of the
 *                 tokens, or of each of so many pieces of them, room for rows * seq: then `whole` there are in all, and
 *                 pp_call_tokens() says which it works on
 * layernorm_grad  rows, seq, d, plain, whole, pieces  p  dr [T,d], xhat -> dz in place, rstd, dy [T,d], gamma,
 *                                                        grad gamma, grad beta, add [T,d]
 *                 dr = gradient of r, plus add unless that has no memory; dz = gradient of z from dr (dropout applied),
 *                 which a plain norm does not write. dr may be dy, or add.
 * rmsnorm         rows, seq, d, plain, whole, pieces  p, eps  as layernorm's, without beta: there is no ref[6]
 *                 the same with rstd = 1 / sqrt(mean of r^2 + eps), xhat = r * rstd, y = xhat * gamma
 * rmsnorm_grad    rows, seq, d, plain, whole, pieces  p  as layernorm_grad's, without grad beta: there is no ref[6]
 * residual        rows, seq, d, 0, whole, pieces      p  y [T,d], z [T,d], x [T,d], bias [d]
 *                 y = x + drop(z + bias); nothing happens where y has no memory. y may be x.
 * residual_grad   rows, seq, d, 0, whole, pieces      p  dz [T,d], dy [T,d]: dz = dy where z was kept, scaled, else 0
 * relu            rows, seq, width             p         u in place: u = drop(max(u + bias, 0)), bias [width]
 * relu_grad       rows, seq, width             p         du in place, u: du = du / (1 - p) where u > 0, else 0
 * gelu            rows, seq, width, tanh       p         u [T,width], a [T,width] in place, bias [width]
 *                 a = a + bias; u = drop(gelu(a)), gelu(a) = a (1 + erf(a / sqrt(2))) / 2, or, tanh,
 *                 a (1 + tanh(sqrt(2 / pi) (a + 0.044715 a^3))) / 2
 * gelu_grad       rows, seq, width, tanh       p         du in place, a: du = gelu'(a) du / (1 - p) where u was kept,
 *                                                        else 0
 * swiglu          rows, seq, width             p         u [T,width], a [T,2*width] in place, bias [2*width]
 *                 a = a + bias; u = drop(silu(g) h), where a token's a is g, h and silu(g) = g / (1 + exp(-g))
 * swiglu_grad     rows, seq, width             p         a [T,2*width] -> its gradient in place, du [T,width]
 * sigmoid         tokens                                 x [tokens] float32, in place: x = 1 / (1 + exp(-x))
 * sigmoid_grad    tokens                                 dx [tokens], dy, y [tokens] float32: dx = dy y (1 - y), of
 *                 y = sigmoid(x)
 * route           rows, seq, experts, chosen, capacity, local, of_all    logits -> probabilities in place [T,experts],
 *                 choices [T,chosen], gates [T,chosen], places [T,chosen], holds [local*capacity], counts [experts]
 *                 probabilities = softmax(logits), float32. choices (int32): the experts of a token with the greatest
 *                 ones, the greatest first, of equal ones the lower number; gates (float32): their probabilities by the
 *                 sum of these, or, of_all, alone. Then the first choices of all tokens in their order take places of
 *                 their experts, then the second ones, and so on, as long as an expert has any of its `capacity`. The
 *                 worker has `local` experts, from tensor_rank * local on: places (int32) has the place (expert -
 *                 first) * capacity + i of a choice, -1 where it has none or the expert is another worker's; holds
 *                 (int32) what a place holds, t * chosen + choice, -1: nothing; counts (int32) how often each expert
 *                 was chosen, place or not
 * route_grad      rows, seq, experts, chosen, of_all  aux     dlogits [T,experts], dgates [T,chosen] (float32), and
 *                 route's probabilities, choices, gates, counts. dlogits, an activation, is the gradient at the logits
 *                 of the gates and of aux * experts * sum over experts of f P: f its part of all choices, from counts,
 *                 which has no gradient, P the mean of its probabilities over the microbatch, whose part of the batch's
 *                 tokens (frame.loss_scale * T) this loss is scaled by
 * dispatch        places, width, tokens, chosen          to [places,width], from [tokens,width], holds [places]
 *                 the row of the token that each place holds; 0 where it holds none
 * combine         tokens, width, places, chosen, mode    to [tokens,width], from [places,width], places [tokens,chosen]
 *                 the sum of the rows of a token's places, in the order of its choices, in float32; mode: enum
 *                 pp_gemm_mode, what becomes of `to`: the sum is made first. Each is the gradient of the other
 * weigh           places, width, tokens, chosen          u [places,width] in place, gates [tokens,chosen], holds
 *                 rows times the gate of what the place holds; rows of places that hold nothing stay. holds without
 *                 memory: place i holds choice i
 * weigh_grad      places, width, tokens, chosen          du [places,width] in place, dgates [tokens,chosen] float32, u
 *                 (weighed), gates, places [tokens,chosen]: of a choice with a place dgates = du u / gate summed
 *                 over its row, 0 where the gate is 0, and du = du * gate; of another one dgates = 0. places without
 *                 memory: choice i has place i
 * cross_entropy   rows, seq, vocab, gradient, columns    logits [T,columns], bias [vocab], targets, dlogits [T,columns]
 *                 *frame.loss (unless NULL) = sum of -log softmax(logits + bias)[target]; the gradient is scaled by
 *                 frame.loss_scale; dlogits may be the logits; its columns from vocab on become 0; gradient = 0:
 *                 nothing but the loss is written
 * cross_entropy_part  rows, seq, vocab, 0, columns, whole    logits [T,columns], bias [vocab], targets, none, parts
 *                 [tensor,T,3]: of the frame's tensor ranks. Words tensor_rank * vocab and the following ones, as far
 *                 as the whole vocabulary has them: their greatest logit + bias, the sum of exp(logit + bias -
 *                 greatest), the target's logit + bias or 0, into parts[tensor_rank]; the others' parts become 0
 * cross_entropy_join  rows, seq, vocab, gradient, columns, whole  logits, bias, targets, dlogits (as cross_entropy's),
 *                 parts of all: loss, and gradient of the worker's logits. Columns of no word become 0
 * to_pieces       tokens, width, shared, parts            to [parts,tokens,(width+2*shared)/parts], from
 *                 [tokens,width+2*shared], bias [width+2*shared]: a token has `width` numbers, then `shared` ones, then
 *                 as many: queries, keys and values; or, shared 0, what attention makes of it. Of each of these, plus
 *                 bias, an equal part for part after part, one behind the other
 * from_pieces     as to_pieces                            to, from: the other way, to is as to_pieces' from
 * copy_keys       tokens, width, shared                   to [tokens,2*shared], qkv [tokens,width+2*shared] in place,
 *                                                         bias [width+2*shared]: qkv += bias; to = what is behind the
 *                                                         first `width` numbers of a token, its keys and values
 * sum_keys        tokens, width, shared, parts            qkv [tokens,width+2*shared], from [parts,tokens,2*shared]:
 *                                                         the same numbers become the sum of the parts in their order,
 *                                                         made in float32
 * all_reduce      rows, width, beside, 0, wide, group    memory [rows,width]: frame.join, if there is one.
 *                 wide: float32 whatever the precision; group: enum pp_join_group; beside: see struct pp_join_call
 * reduce_scatter  as all_reduce, not wide                memory [rows,width] of as many equal parts as tensor ranks:
 *                 the rank's own becomes the sum of that part
 * all_gather      as reduce_scatter                      memory: all parts become those of the ranks that have them
 * await           0, 0, beside, 0, 0, group              what comes next waits for the one with that number
 * all_to_all      rows, width, each, back, wide, group, halves  to [rows,width], from [rows,width]: equal pieces, so
 *                 many for each worker of the group (the places of its experts; rows of which it has the tokens).
 *                 frame.join, if there is one, sends the others theirs: from [workers, each] to [each, workers], of the
 *                 k-th piece what worker after worker has of it; back: the other way. halves: 0, or so many workers:
 *                 pieces are chunks of rows (pp_join_call.halves), and `from` has a worker's alone,
 *                 [rows/halves,width], or, back, what it has for all. Without frame.join, where a worker is measured
 *                 alone: to = from, as often as it has room, so that numbers are there which cost what numbers do
 * colsum          rows, width                            grad [width], in [rows,width]
 * take            rows, width                            grad [rows,width], in [rows,width], float32: grad = in; zeros
 *                 where that has no memory
 * sumsq           rows, width, index, once, apart        gradient; frame.sums[index], or, apart, as many behind it as
 *                 the number of the expert rank, = sum of squares, in double; once: enum pp_once, of a tensor that all
 *                 tensor ranks have, or all expert ranks: 0 in others than the first
 * sgd             rows, width, sparse                    w, g, copy: w -= frame.learning_rate * factor * g, with the
 *                 frame's *clip or clip_factor; copy = w rounded to bfloat16, unless it has no memory. sparse: most of
 *                 g is zero, so it pays to leave those weights alone; the same result
 * adamw           rows, width                            w, g, copy (as sgd's), m, v: what struct pp_adamw says, with
 *                 frame.adamw and the gradient times *clip or clip_factor
 */
#ifndef PP_KERNELS_KERNELS_H
#define PP_KERNELS_KERNELS_H

#include "core/program.h"
#include "kernels/places.h"

enum { PP_EXPERTS_MAX = 4096, PP_EXPERTS_PER_TOKEN_MAX = 64, PP_CHOICES_MAX = 8 << 20 /* of all tokens of a call */ };

/* Products that a call of a product makes. */
#define PP_TIMES(n) ((n)->times ? (n)->times : 1)

#define PP_SCORES(n) ((n)->rows * (n)->heads * (n)->seq * PP_ROW_KEYS(n))
/* Operations for each score that are no product: of attention and its gradient; where the gradient makes it again. */
enum { PP_SOFTMAX_FLOPS = 6, PP_SOFTMAX_AGAIN_FLOPS = 9 };

/* X(ID, name, dimensions in its name, floating-point operations of what it is asked for: with a mask, too, of all
 * scores); n[] are doubles in the formulas; bare: the call could have a bias, and has none. */
#define PP_KERNEL_LIST(X)                                                                                              \
    X(COPY, copy, matrix, 2, 0)                                                                                        \
    X(EMBED, embed, embed, 4, (n->positions == PP_POSITIONS_ROPE ? 2 : 3) * n->rows * n->seq * n->d)                   \
    X(EMBED_GRAD, embed_grad, embed, 4, 2 * n->rows * n->seq * n->d)                                                   \
    X(POSITIONS_GRAD, positions_grad, positions, 4, n->rows * n->seq * n->d)                                           \
    X(GEMM_NT, gemm_nt, gemm, 3, 2 * n->m * n->n * n->k * PP_TIMES(n))                                                 \
    X(GEMM_NN, gemm_nn, gemm, 3, 2 * n->m * n->n * n->k * PP_TIMES(n))                                                 \
    X(GEMM_TN, gemm_tn, gemm, 3, 2 * n->m * n->n * n->k * PP_TIMES(n))                                                 \
    X(ATTENTION, attention, attention, 5, PP_SCORES(n) * (4 * n->dh + PP_SOFTMAX_FLOPS))                               \
    X(ATTENTION_GRAD, attention_grad, attention, 5, PP_SCORES(n) * (8 * n->dh + PP_SOFTMAX_FLOPS))                     \
    X(FLASH, flash, attention, 5, PP_SCORES(n) * (4 * n->dh + PP_SOFTMAX_FLOPS))                                       \
    X(FLASH_GRAD, flash_grad, attention, 5, PP_SCORES(n) * (10 * n->dh + PP_SOFTMAX_AGAIN_FLOPS))                      \
    X(QK_NORM, qk_norm, attention, 4,                                                                                  \
      n->rows * n->seq * n->dh * ((bare ? 4 : 5) * (n->heads + PP_KV_HEADS(n)) + (bare ? 0 : PP_KV_HEADS(n))))         \
    X(QK_NORM_GRAD, qk_norm_grad, attention, 4, 11 * n->rows * n->seq * n->dh * (n->heads + PP_KV_HEADS(n)))           \
    X(ROPE, rope, attention, 4,                                                                                        \
      n->rows * n->seq * n->dh * ((bare ? 3 : 4) * (n->heads + PP_KV_HEADS(n)) + (bare ? 0 : PP_KV_HEADS(n))))         \
    X(ROPE_GRAD, rope_grad, attention, 4, 3 * n->rows * n->seq * n->dh * (n->heads + PP_KV_HEADS(n)))                  \
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
    X(SUM_KEYS, sum_keys, pieces, 4, 2 * n->tokens * n->shared * (n->parts - 1))                                       \
    X(ALL_REDUCE, all_reduce, join, 2, 0)                                                                              \
    X(REDUCE_SCATTER, reduce_scatter, join, 2, 0)                                                                      \
    X(ALL_GATHER, all_gather, join, 2, 0)                                                                              \
    X(AWAIT, await, join, 3, 0)                                                                                        \
    X(ALL_TO_ALL, all_to_all, exchange, 2, 0)                                                                          \
    X(COLSUM, colsum, matrix, 2, n->rows * n->width)                                                                   \
    X(TAKE, take, matrix, 2, n->rows * n->width)                                                                       \
    X(SUMSQ, sumsq, sumsq, 2, 2 * n->rows * n->width)                                                                  \
    X(SGD, sgd, step, 2, 2 * n->rows * n->width)                                                                       \
    X(ADAMW, adamw, step, 2, 14 * n->rows * n->width)

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
    return kernel == PP_KERNEL_GEMM_NT || kernel == PP_KERNEL_GEMM_NN || kernel == PP_KERNEL_GEMM_TN;
}

/* A norm, or a norm's gradient. */
static inline bool pp_kernel_is_norm(int kernel)
{
    return kernel == PP_KERNEL_LAYERNORM || kernel == PP_KERNEL_LAYERNORM_GRAD || kernel == PP_KERNEL_RMSNORM ||
           kernel == PP_KERNEL_RMSNORM_GRAD;
}

/* Does it add to C in a task of this frame? */
static inline bool pp_gemm_adds(int mode, const struct pp_frame *frame)
{
    return mode == PP_GEMM_ADD || (mode == PP_GEMM_BY_FRAME && frame->accumulate) ||
           (mode == PP_GEMM_ADD_ONCE && frame->tensor_rank == 0);
}

static inline bool pp_counts_elsewhere(int once, const struct pp_frame *frame)
{
    return (once & PP_ONCE_TENSOR && frame->tensor_rank > 0) || (once & PP_ONCE_EXPERT && frame->expert_rank > 0);
}

/* Which of the frame's sums a sumsq makes. */
static inline int pp_sum_index(const struct pp_call *call, const struct pp_frame *frame)
{
    return call->sumsq.index + (call->sumsq.apart ? frame->expert_rank : 0);
}

enum pp_operand_type { PP_TYPE_ACTIVATION, PP_TYPE_FLOAT, PP_TYPE_BF16, PP_TYPE_INT32 };
enum pp_operand_use { PP_USE_READ = 1, PP_USE_WRITE = 2, PP_USE_BOTH = 3 };

/* One operand of a call. */
struct pp_operand {
    const char *name;  /* NULL: the call has no such operand */
    int type, use;     /* enum pp_operand_type, enum pp_operand_use */
    int64_t elements;  /* in memory, from the operand's address on, without gaps */
    int64_t moved;     /* elements that are read, plus elements that are written; without what is as small as a row */
    int element_bytes; /* of the type, in the call's precision */
};
/* i: index of ref[]. */
struct pp_operand pp_call_operand(const struct pp_call *call, int i);

/* Could it have a bias, and has none? */
bool pp_call_lacks_bias(const struct pp_call *call);

/* Arithmetic and bytes of operands read and written of one call. */
double pp_call_flops(const struct pp_call *call);
double pp_call_bytes(const struct pp_call *call);
/* What is added to the bytes where frame.accumulate is set; may be negative. */
double pp_call_again_bytes(const struct pp_call *call);

/* What a device does for it: kernels/work.c. */
struct pp_work pp_call_work(const struct pp_call *call, bool gpu);

struct pp_join_work pp_call_join(const struct pp_call *call);

/* Has frame.join do what the call says, if there is one. */
void pp_call_meet(const struct pp_call *call, const struct pp_frame *frame);

/* "gemm_nt 175x600x200", the key of kernel times; further words where a call is not plain: the columns of padded logits
 * ("/28800"), "kv2" where there are fewer heads of keys and values, "plain" for a call that is, and for attention,
 * qk_norm and rope without a bias, "learned" for an embedding with such positions, "sum" for a norm (its gradient) that
 * has its last operand, "unsent" for a norm without its first one, "tanh" for a gelu (its gradient) of that kind,
 * "nobias" where that spares a pass over memory, "times8" for so many products, "of4096" for queries of some of so many
 * tokens, "drop" for a dropout site, the precision, "wide" for a product whose result is wider than its operands.
 * Returns buf. */
const char *pp_call_text(const struct pp_call *call, char *buf, size_t size);

#endif
