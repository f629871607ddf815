/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention, and what is done to queries and keys before it. How to read these blocks: core/calls/call.h.
 *
 * qkv: a token has `heads` queries, then kv keys, then kv values: Q = PP_QKV_COLUMNS columns. Queries and keys have dh
 * columns each; values, and what attention makes for a head, have dv.
 * The queries of heads / kv successive heads see one head of keys and values (PyTorch's scaled_dot_product_attention
 * with enable_gqa); what they give its gradients is added in the order of the heads.
 *
 * With all-to-all context parallelism a call of attention, flash or rope has all tokens of its rows, and of the tensor
 * rank's heads those from context_rank * heads on. With all-gather context parallelism (pp_frame.halves) these have the
 * worker's tokens and all of the tensor rank's heads, and flash has `keys` of all tokens besides. qk_norm always has
 * the worker's own tokens, and all of the tensor rank's heads.
 * With a ring of keys and values a call of flash has the queries of one chunk of each row, and the keys of one chunk,
 * its own or another one: merge makes one of what such calls make.
 */
#ifndef PP_CORE_CALLS_CALLS_ATTENTION_H
#define PP_CORE_CALLS_CALLS_ATTENTION_H

#include "core/calls/operand.h"

/* seq: queries of a row; causal: 1: a query sees no later keys (0 for qk_norm); kv: 0: as many as heads; keys:
 * of flash alone, tokens of a whole row whose keys and values lie in the operand `keys`; 0: those of qkv; window: only
 * with causal: the query of a row's token t sees the keys of the tokens t - window + 1 to t, as far as there are any;
 * 0: of all tokens up to t (0 for qk_norm). Tokens count by their places in the whole row. dv: columns of a
 * value; 0: dh (qk_norm needs that).
 * keys equal to seq: queries are one chunk of a row and keys are one, so that a query's place among the keys is its own
 * number (pp_attention_places_of() in kernels/places.h): with causal 1 they are the same chunk; with 0 a query sees all
 * keys. Such calls have no dropout, window or bias. */
PP_DIMS(attention, rows, seq, heads, dh, causal, kv, keys, window, dv);

/* Of such dimensions of any type: heads of keys and values; columns of a value, and of a key or value, whichever is
 * wider; columns of all keys and values of a token; columns of its qkv; keys of a
 * row; the most keys that any query sees. */
#define PP_KV_HEADS(n) ((n)->kv ? (n)->kv : (n)->heads)
#define PP_VALUE_COLUMNS(n) ((n)->dv ? (n)->dv : (n)->dh)
#define PP_WIDEST_COLUMNS(n) (PP_VALUE_COLUMNS(n) > (n)->dh ? PP_VALUE_COLUMNS(n) : (n)->dh)
#define PP_KV_COLUMNS(n) (PP_KV_HEADS(n) * ((n)->dh + PP_VALUE_COLUMNS(n)))
#define PP_QKV_COLUMNS(n) ((n)->heads * (n)->dh + PP_KV_COLUMNS(n))
#define PP_ROW_KEYS(n) ((n)->keys ? (n)->keys : (n)->seq)
#define PP_SEEN_KEYS(n) ((n)->window && (n)->window < PP_ROW_KEYS(n) ? (n)->window : PP_ROW_KEYS(n))

/* What attention multiplies its scores by. */
#define PP_SCORE_SCALE(call) (((call)->scale > 0 ? (call)->scale : 1) / sqrtf((float)(call)->attention.dh))

/* attention: qkv += bias; P = softmax(factor q k' / sqrt(dh)); ctx = drop(P) v
 *     p               probability of dropout
 *     scale           factor; 0: 1
 *     ctx             out     [T, heads * dv]
 *     probabilities   out     [rows, heads, seq, seq]: P, negative where dropout drops it
 *     qkv             in/out  [T, Q]; only read without a bias
 *     bias            in      [Q] float; optional
 *     scratch         out     pp_attention_scratch() bytes
 */
PP_OPERANDS(attention, ctx, probabilities, qkv, bias, scratch);

/* attention_grad: the gradient at qkv, in its place.
 *     p, scale        as attention's
 *     qkv             in/out  [T, Q], becomes dqkv
 *     probabilities   in      [rows, heads, seq, seq]
 *     dctx            in      [T, heads * dv]
 *     scratch         out     pp_attention_scratch() bytes
 */
PP_OPERANDS(attention_grad, qkv, probabilities, dctx, scratch);

/* flash: attention that does not store P. Of `keys` tokens, if not 0, keys and values are read from the operand `keys`;
 * of qkv only the queries count then, and there is no bias. Drops the same scores as attention.
 *     p         probability of dropout
 *     scale     as attention's
 *     ctx       out     [T, heads * dv]
 *     lse       out     [rows, heads, seq] float: log of the sum of exp(factor * score / sqrt(dh)) of a query
 *     qkv       in/out  [T, Q]; only read without a bias
 *     bias      in      [Q] float; optional
 *     scratch   out     pp_flash_scratch() bytes
 *     keys      in      [rows, keys, PP_KV_COLUMNS]: of each token its keys, then its values; nowhere if keys is 0
 */
PP_OPERANDS(flash, ctx, lse, qkv, bias, scratch, keys);

/* flash_grad: the gradient at qkv, in its place. P is made again of queries, keys and lse; the sum of dP P of a query
 * is its ctx times its dctx.
 *     p, scale  as flash's
 *     qkv       in/out  [T, Q], becomes dqkv; if keys is not 0 the queries alone
 *     lse       in      [rows, heads, seq] float
 *     ctx       in      [T, heads * dv]
 *     dctx      in      [T, heads * dv]
 *     scratch   out     pp_flash_scratch() bytes
 *     keys      in      [rows, keys, PP_KV_COLUMNS]; nowhere if keys is 0
 *     dkeys     out     [rows, keys, PP_KV_COLUMNS]: the gradient at `keys`; nowhere if keys is 0
 */
PP_OPERANDS(flash_grad, qkv, lse, ctx, dctx, scratch, keys, dkeys);

/* tokens: queries, of one row; dv: columns of a value */
PP_DIMS(merge, tokens, heads, dv);

/* merge: attention of the same queries, of some keys and of others, becomes that of all these keys: with l =
 * log(exp(lse) + exp(part_lse)), ctx = ctx * exp(lse - l) + part * exp(part_lse - l); lse = l. In float32.
 *     ctx        in/out  [tokens, heads * dv]
 *     lse        in/out  [heads, tokens] float
 *     part       in      [tokens, heads * dv]
 *     part_lse   in      [heads, tokens] float
 */
PP_OPERANDS(merge, ctx, lse, part, part_lse);

/* to_pitch, from_pitch: numbers from a row to the next one, in `to` and in `from`; adds: 1: is added to */
PP_DIMS(columns, rows, width, to_pitch, from_pitch, adds);

/* add_columns: some columns of rows: to = from; or, if it adds, to += from, made in float32. Columns between these stay
 * as they are.
 *     to     out  [rows, width], with adds in/out; rows lie to_pitch apart
 *     from   in   [rows, width]; rows lie from_pitch apart
 */
PP_OPERANDS(add_columns, to, from);

/* qk_norm: qkv += bias; kept = queries and keys; then each head x of these becomes x * rstd * gamma, with rstd = 1 /
 * sqrt(mean of x^2 + eps).
 *     eps
 *     qkv       in/out  [T, Q]
 *     bias      in      [Q] float; optional
 *     kept      out     [T, (heads + kv) * dh]
 *     q_gamma   in      [dh] float: of queries
 *     k_gamma   in      [dh] float: of keys
 */
PP_OPERANDS(qk_norm, qkv, bias, kept, q_gamma, k_gamma);

/* qk_norm_grad: dq and dk become the gradients at `kept`, of which rstd is made again. The gradients of gamma are sums
 * over all heads of all tokens of the call.
 *     eps
 *     dqkv           in/out  [T, Q]
 *     kept           in      [T, (heads + kv) * dh]
 *     q_gamma        in      [dh] float
 *     k_gamma        in      [dh] float
 *     q_gamma_grad   grad    [dh] float
 *     k_gamma_grad   grad    [dh] float
 */
PP_OPERANDS(qk_norm_grad, dqkv, kept, q_gamma, k_gamma, q_gamma_grad, k_gamma_grad);

/* columns: of each head so many are rotated, an even number; 0: all dh of them. still: columns before these, which stay
 * as they are, as do those behind. dv: as attention's. */
PP_DIMS(rope, rows, seq, heads, dh, columns, kv, still, dv);
#define PP_ROPE_COLUMNS(n) ((n)->columns ? (n)->columns : (n)->dh)

/* Scalars of rope and rope_grad: pair i of a head's R rotated columns turns by theta^(-2i/R) from token to token,
 * unless that is slowed down, as struct pp_rope_scaling (core/shape/rope.h) says (factor <= 1: it is not). The angles
 * themselves: kernels/rotation.h. magnitude: sines and cosines are multiplied by it; 0: by 1. */
struct pp_rope_scalars {
    float theta, factor, low, high, tokens, magnitude;
    int32_t kind, whole; /* enum pp_rope_kind; 1: of yarn, truncate */
};

/* rope: qkv += bias; then queries and keys of the row's token t are rotated: columns still + i and still + i + R/2 of a
 * head, x and y, become x cos a - y sin a and y cos a + x sin a, a being t times the angle of pair i (Su et al. 2021).
 * Pairs are those of Hugging Face's Llama ("rotate half"), not neighbours. Other columns stay as they are. R is even.
 *     turns   struct pp_rope_scalars; sines and cosines are times its magnitude
 *     qkv     in/out  [T, Q]
 *     bias    in      [Q] float; optional
 */
PP_OPERANDS(rope, qkv, bias);

/* rope_grad: dq and dk are rotated back, and multiplied by the magnitude.
 *     turns   as rope's
 *     dqkv    in/out  [T, Q]
 */
PP_OPERANDS(rope_grad, dqkv);

/* On the cpu, flash takes queries in blocks of PP_FLASH_QUERIES; with a window, attention does, too. With a window a
 * block's scores begin with the first key that its first query sees, rounded down to a multiple of PP_WINDOW_STEP. */
enum { PP_FLASH_QUERIES = 64, PP_WINDOW_STEP = 16 };

/* Bytes of scratch of attention and attention_grad, for one row and head at a time: two squares of scores, gradients of
 * the keys and values of a group. columns: of a key and a value together. */
static inline int64_t pp_attention_scratch(int seq, int columns)
{
    return (int64_t)sizeof(float) * seq * (2 * (int64_t)seq + columns);
}

/* Bytes of scratch of flash and flash_grad, for the queries and keys of a row: two blocks of scores, gradients of the
 * keys and values of a group. columns: as above. */
static inline int64_t pp_flash_scratch(int queries, int keys, int columns)
{
    const int64_t block = queries < PP_FLASH_QUERIES ? queries : PP_FLASH_QUERIES;
    return (int64_t)sizeof(float) * keys * (2 * block + columns);
}

#endif
