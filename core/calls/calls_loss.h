/* SPDX-License-Identifier: Apache-2.0
 *
 * The loss, whole or by the workers that share the vocabulary. How to read these blocks: core/calls/call.h.
 */
#ifndef PP_CORE_CALLS_CALLS_LOSS_H
#define PP_CORE_CALLS_CALLS_LOSS_H

#include "core/calls/operand.h"

/* Numbers that a worker tells the others of a row of logits: the greatest, the sum of exp(logit - greatest), and the
 * target's logit, or 0 where that is another worker's. */
enum { PP_ENTROPY_PART = 3 };

/* vocab: words of the worker; gradient: 0: nothing but the loss is written; columns: of a row of logits, at least
 * vocab; whole: words of all tensor ranks (not of cross_entropy) */
PP_DIMS(loss, rows, seq, vocab, gradient, columns, whole);

/* cross_entropy: *pp_frame.loss, unless NULL, = sum over tokens of -log softmax(logits + bias)[target]; dlogits = the
 * gradient of that, times pp_frame.loss_scale; its columns from vocab on become 0.
 *     logits    in   [T, columns] float
 *     bias      in   [vocab] float; optional
 *     targets   in   [T] int32
 *     dlogits   out  [T, columns]; may be the logits, but not in bf16; nowhere without `gradient`
 *
 * Where tensor ranks share the vocabulary, each with the words from tensor_rank * vocab on as far as there are `whole`,
 * the loss is made in two calls and a sum of `parts` over the ranks between them:
 *
 * cross_entropy_part: parts[tensor_rank] = PP_ENTROPY_PART numbers of each row of the worker's logits + bias; the other
 * ranks' parts become 0.
 *     logits, bias, targets   in
 *     parts                   out  [tensor, T, PP_ENTROPY_PART] float
 *
 * cross_entropy_join: of the sum of all parts the loss, and the gradient at the worker's logits. Columns that are no
 * word become 0.
 *     logits, bias, targets, dlogits   as cross_entropy's
 *     parts                            in   [tensor, T, PP_ENTROPY_PART] float
 */
PP_OPERANDS(loss, logits, bias, targets, dlogits, parts);

#endif
