/* SPDX-License-Identifier: Apache-2.0
 *
 * Multi-head latent attention before and behind attention itself. How to read these blocks: core/calls/call.h.
 *
 * Of each token a product makes a latent vector of `rank` columns; that of keys and values has `shared` columns behind
 * it, which are a part of every head's key. The latent vector is divided by its root mean square, and one more product
 * makes of it the queries, or the keys and values, of all heads. Tokens are the worker's own, heads all of the tensor
 * rank's.
 */
#ifndef PP_CORE_CALLS_CALLS_LATENT_H
#define PP_CORE_CALLS_CALLS_LATENT_H

#include "core/calls/operand.h"

/* rank: columns of the latent vector; shared: columns behind it, 0 for queries. */
PP_DIMS(latent, rows, seq, rank, shared);

/* latent_norm: y = x * rstd * gamma of each latent vector x, with rstd = 1 / sqrt(mean of x^2 + eps).
 *     eps
 *     y       out   [T, rank]
 *     rstd    out   [T] float
 *     x       in    [T, rank + shared], of which the first `rank` columns
 *     gamma   in    [rank] float
 */
PP_OPERANDS(latent_norm, y, rstd, x, gamma);

/* latent_norm_grad: x becomes its gradient: of the latent vector from dy; of the columns behind it dshared.
 *     x            in/out  [T, rank + shared]
 *     rstd         in      [T] float
 *     dy           in      [T, rank]
 *     dshared      in      [T, shared]; nowhere if shared is 0
 *     gamma        in      [rank] float
 *     gamma_grad   grad    [rank] float
 */
PP_OPERANDS(latent_norm_grad, x, rstd, dy, dshared, gamma, gamma_grad);

/* Of a head, `still` columns of queries and keys that are its own, behind these `shared` columns, of keys the same for
 * all heads; `values` columns of values. */
PP_DIMS(heads, rows, seq, heads, still, shared, values, rank);

/* join_heads: qkv of attention with dh = still + shared and dv = values. Queries are q. A key is the first `still`
 * columns of the head's part of kv, and behind these the last `shared` columns of x. A value is the last `values`
 * columns of the head's part of kv.
 *     qkv   out   [T, heads * (2 * (still + shared) + values)]
 *     q     in    [T, heads * (still + shared)]
 *     kv    in    [T, heads * (still + values)]
 *     x     in    [T, rank + shared]
 */
PP_OPERANDS(join_heads, qkv, q, kv, x);

/* split_heads: the gradients at what join_heads reads. dshared is the sum over the heads in their order, in float32.
 *     dqkv      in    [T, heads * (2 * (still + shared) + values)]
 *     dq        out   [T, heads * (still + shared)]
 *     dkv       out   [T, heads * (still + values)]
 *     dshared   out   [T, shared]
 */
PP_OPERANDS(split_heads, dqkv, dq, dkv, dshared);

/* Of dimensions `heads` of any type: columns of a head's query or key; of all queries; of all keys and values before
 * they are joined; of qkv. */
#define PP_JOINED_COLUMNS(n) ((n)->still + (n)->shared)
#define PP_JOINED_QUERIES(n) ((n)->heads * PP_JOINED_COLUMNS(n))
#define PP_JOINED_KV(n) ((n)->heads * ((n)->still + (n)->values))
#define PP_JOINED_QKV(n) ((n)->heads * (2 * PP_JOINED_COLUMNS(n) + (n)->values))

#endif
