/* SPDX-License-Identifier: Apache-2.0
 *
 * Copies, and the way from words to the residual stream. How to read these blocks: core/calls/call.h.
 */
#ifndef PP_CORE_CALLS_CALLS_EMBEDDING_H
#define PP_CORE_CALLS_CALLS_EMBEDDING_H

#include "core/calls/operand.h"

/* Of calls that see nothing but a matrix: copy, colsum, take. */
PP_DIMS(matrix, rows, width);

/* copy: to = from. Nothing happens where either lies nowhere.
 *     to     out  [rows, width]
 *     from   in   [rows, width]
 */
PP_OPERANDS(copy, to, from);

/* positions: enum pp_positions */
PP_DIMS(embed, rows, seq, d, vocab, positions);

/* embed: out = drop(weight[token] * scale + position(t)), t being the token's place in its whole row. Zeros for words
 * of other tensor ranks.
 * What is added at a place depends on the dimension `positions`: sinusoidal: sines and cosines, made in scratch; rope:
 * nothing; learned: the place's row of the operand `positions`.
 *     scale       of the words' rows
 *     p           probability of dropout
 *     out         out  [T, d]
 *     tokens      in   [T] int32
 *     weight      in   [vocab, d] float
 *     scratch     out  [seq, d] float; sinusoidal only
 *     positions   in   [context * seq, d] float; learned only
 */
PP_OPERANDS(embed, out, tokens, weight, scratch, positions);

/* embed_grad: weight_grad[token] += scale * drop'(dy), token after token. Words of other tensor ranks are passed over.
 *     scale, p      as embed's
 *     weight_grad   grad  [vocab, d] float
 *     tokens        in    [T] int32
 *     dy            in    [T, d]
 */
PP_OPERANDS(embed_grad, weight_grad, tokens, dy);

/* places: rows of learnt positions */
PP_DIMS(positions, rows, seq, d, places);

/* positions_grad: positions_grad[place] = sum of drop'(dy) over the tokens at this place, in the order of the rows.
 * With embed's dropout, but without its scale. A place that no token is at gets 0, or is left alone where the call
 * adds.
 *     p                as embed's
 *     positions_grad   grad  [places, d] float
 *     dy               in    [T, d]
 */
PP_OPERANDS(positions_grad, positions_grad, dy);

#endif
