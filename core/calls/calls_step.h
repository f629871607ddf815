/* SPDX-License-Identifier: Apache-2.0
 *
 * Sums of gradients, and the optimizer's step. How to read these blocks: core/calls/call.h.
 */
#ifndef PP_CORE_CALLS_CALLS_STEP_H
#define PP_CORE_CALLS_CALLS_STEP_H

#include "core/calls/operand.h"

/* colsum: grad = the sum of all rows (struct pp_matrix_dims)
 *     grad   grad  [width] float
 *     in     in    [rows, width]
 */
PP_OPERANDS(colsum, grad, in);

/* take: grad = in (struct pp_matrix_dims)
 *     grad   grad  [rows, width] float
 *     in     in    [rows, width] float; nowhere: zeros
 */
PP_OPERANDS(take, grad, in);

/* Which ranks have all of a tensor, so that its squares count in the first of them only; several may be set. */
enum pp_once { PP_ONCE_TENSOR = 1, PP_ONCE_EXPERT = 2 };

/* index: into pp_frame.sums; once: enum pp_once; apart: 1: expert ranks have a sum each, expert_rank behind index */
PP_DIMS(sumsq, rows, width, index, once, apart);

/* sumsq: pp_frame.sums[index], or, apart, [index + expert_rank], = sum of the squares, in double; 0 in ranks that
 * `once` leaves out.
 *     gradient   in  [rows, width] float
 */
PP_OPERANDS(sumsq, gradient);

/* sparse: of sgd, 1: most of g is zero, so that it pays to leave those weights alone; the result is the same */
PP_DIMS(step, rows, width, sparse);

/* Both multiply the gradient by the factor that clips it: pp_frame.clip, or clip_factor where that is NULL.
 * sgd:   w -= pp_frame.learning_rate * factor * g
 * adamw, adamw_bf16: what struct pp_adamw says, with pp_frame.adamw
 *     w      in/out  [rows, width] float
 *     g      in      [rows, width] float
 *     copy   out     [rows, width] bf16: w, rounded; optional
 *     m, v   in/out  [rows, width] what adamw keeps, as float, and adamw_bf16, as bf16, rounded; sgd has none
 */
PP_OPERANDS(step, w, g, copy, m, v);

/* experts: all of the layer; chosen: choices of a token */
PP_DIMS(balance, rows, width, experts, chosen);

/* balance: bias += rate where the load of an expert is below the mean, -= rate where it is above; the mean is
 * pp_frame.tokens * chosen / experts.
 *     scale   rate
 *     bias    in/out  [rows, width] float: of some of the experts
 *     loads   in      [rows, width] float: how many tokens of the batch have chosen each of these experts
 */
PP_OPERANDS(balance, bias, loads);

#endif
