/* SPDX-License-Identifier: Apache-2.0
 *
 * What workers with parts of tensors, tokens or experts do together, and how rows are laid out for that. How to read
 * these blocks: core/calls/call.h.
 */
#ifndef PP_CORE_CALLS_CALLS_PARTS_H
#define PP_CORE_CALLS_CALLS_PARTS_H

#include "core/calls/operand.h"

/* A token has `width` numbers, then `shared` ones, then `values` ones: queries, keys and values. values: 0: as many as
 * keys. shared 0: what attention makes, [tokens, width]. parts: context ranks (0 for copy_keys) */
PP_DIMS(pieces, tokens, width, shared, parts, values);

/* Of such dimensions of any type: numbers of a token's keys and values, k; of its row, all: width + k. */
#define PP_PIECE_VALUES(n) ((n)->values ? (n)->values : (n)->shared)
#define PP_PIECE_KEYS(n) ((n)->shared + PP_PIECE_VALUES(n))
#define PP_PIECE_ROW(n) ((n)->width + PP_PIECE_KEYS(n))

/* to_pieces: to = from + bias, laid out part after part: of a token's queries, keys and values each an equal part, one
 * behind the other.
 * from_pieces: the other way, without a bias: `to` is as to_pieces' `from`.
 *     to     out  [parts, tokens, all / parts]; of from_pieces [tokens, all]
 *     from   in   [tokens, all]; of from_pieces [parts, tokens, all / parts]
 *     bias   in   [all] float; optional; from_pieces has none
 */
PP_OPERANDS(pieces, to, from, bias);

/* copy_keys: qkv += bias; to = the keys and values of each token
 *     to     out     [tokens, k]
 *     qkv    in/out  [tokens, all]; only read without a bias
 *     bias   in      [all] float; optional
 */
PP_OPERANDS(copy_keys, to, qkv, bias);

/* sum_keys: the keys and values in qkv = the sum of the parts in their order, made in float32
 *     qkv    out  [tokens, all], of which the last k columns
 *     from   in   [parts, tokens, k]
 */
PP_OPERANDS(sum_keys, qkv, from);

/* beside: 0: what comes next waits for it; else a number, and what comes next may run beside it until an await with
 * this number (struct pp_join_call); wide: 1: float32 whatever the precision (all_reduce); group: enum pp_join_group */
PP_DIMS(join, rows, width, beside, wide, group);

/* What pp_frame.join does with the other workers of the group. Without it, where a worker is measured alone, nothing.
 * all_reduce:     memory = the sum over all workers
 * reduce_scatter: of as many equal parts as there are workers the worker's own = the sum of this part
 * all_gather:     each part = as the worker has it whose own it is
 * await:          what comes next waits for the call with the number `beside`; no operand, rows and width are 0
 *     memory   in/out  [rows, width]; float if wide
 */
PP_OPERANDS(join, memory);

/* each: pieces for each worker of the group; back: 1: the other way; halves: 0, or the number of workers: pieces are
 * chunks of rows (pp_join_call.halves); beside: as of joins */
PP_DIMS(exchange, rows, width, each, back, wide, group, halves, beside);

/* all_to_all: rows are equal pieces, `each` for each worker of the group: the places of its experts, or rows of which
 * it has the tokens. pp_frame.join, if there is one, sends the others theirs: from [workers, each] to [each, workers],
 * of the k-th piece what worker after worker has of it; back: the other way. Without it, where a worker is measured
 * alone, to = from, as often as there is room, so that there are numbers which cost what numbers do.
 *     to     out  [rows, width]; float if wide
 *     from   in   [rows, width]; halves: the worker's alone [rows / halves, width], or, back, what it has for all
 *                 [rows, width]; float if wide
 *
 * shift: pp_frame.join sends `from` to the next worker of the group, the last one's to the first, and `to` is what the
 * worker before sends. Without it to = from. each, back and halves are 0.
 *     to     out  [rows, width]; float if wide
 *     from   in   [rows, width]; float if wide
 */
PP_OPERANDS(exchange, to, from);

#endif
