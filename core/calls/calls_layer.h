/* SPDX-License-Identifier: Apache-2.0
 *
 * Norms, residuals and activation functions. How to read these blocks: core/calls/call.h.
 */
#ifndef PP_CORE_CALLS_CALLS_LAYER_H
#define PP_CORE_CALLS_CALLS_LAYER_H

#include "core/calls/operand.h"

/* Norms, residuals and their gradients. plain: 1: the norm of x alone, without a residual. whole, pieces: 0, unless
 * each tensor rank has a part of the tokens (sequence parallelism), or a part of each of so many pieces of them. Then
 * rows * seq is what the worker has room for, `whole` is the number of tokens of all ranks, and pp_call_tokens()
 * (kernels/places.h) says which of them the call works on. */
PP_DIMS(norm, rows, seq, d, plain, whole, pieces);

/* layernorm: r = x + drop(z + bias), or r = x if plain; xhat = (r - mean) * rstd, rstd = 1 / sqrt(variance + eps);
 *            y = xhat * gamma + beta
 * rmsnorm:   the same with rstd = 1 / sqrt(mean of r^2 + eps), xhat = r * rstd, y = xhat * gamma
 *     p, eps   probability of dropout; what is added below the root
 *     y        out     [T, d]; nowhere: it is not written (a stage that is computed again sends nothing)
 *     z        in/out  [T, d], becomes xhat; if plain only written
 *     rstd     out     [T] float
 *     x        in      [T, d]
 *     bias     in      [d] float; optional, not if plain
 *     gamma    in      [d] float
 *     beta     in      [d] float; rmsnorm has none
 *     sum      out     [T, d]: r; optional, not if plain; may be x
 */
PP_OPERANDS(norm, y, z, rstd, x, bias, gamma, beta, sum);

/* layernorm_grad, rmsnorm_grad: dr, the gradient at r, plus `add`; of this dz, the gradient at z, through the dropout,
 * unless plain.
 *     p            as the norm's
 *     dr           out     [T, d]; may be dy, or add
 *     xhat         in/out  [T, d], becomes dz; if plain only read
 *     rstd         in      [T] float
 *     dy           in      [T, d]
 *     gamma        in      [d] float
 *     gamma_grad   grad    [d] float
 *     beta_grad    grad    [d] float; rmsnorm_grad has none
 *     add          in      [T, d]; optional
 */
PP_OPERANDS(norm_grad, dr, xhat, rstd, dy, gamma, gamma_grad, beta_grad, add);

/* residual: y = x + drop(z + bias). Nothing happens where y lies nowhere.
 *     p      probability of dropout
 *     y      out  [T, d]; may be x
 *     z      in   [T, d]
 *     x      in   [T, d]
 *     bias   in   [d] float; optional
 */
PP_OPERANDS(residual, y, z, x, bias);

/* residual_grad: dz = dy / (1 - p) where z was kept, else 0
 *     p    as residual's
 *     dz   out  [T, d]
 *     dy   in   [T, d]
 */
PP_OPERANDS(residual_grad, dz, dy);

/* Activation functions, all with dropout behind them. width: columns of u; tanh: 1: gelu's approximation by tanh */
PP_DIMS(activation, rows, seq, width, tanh);

/* relu: u = drop(max(u + bias, 0))
 *     p      probability of dropout
 *     u      in/out  [T, width]
 *     bias   in      [width] float; optional
 */
PP_OPERANDS(relu, u, bias);

/* relu_grad: du = du / (1 - p) where u > 0, else 0
 *     p    as relu's
 *     du   in/out  [T, width]
 *     u    in      [T, width]
 */
PP_OPERANDS(relu_grad, du, u);

/* gelu: a += bias; u = drop(gelu(a)), gelu(a) = a (1 + erf(a / sqrt(2))) / 2, or, tanh, a (1 + tanh(sqrt(2 / pi) (a +
 * 0.044715 a^3))) / 2
 *     p      probability of dropout
 *     u      out     [T, width]
 *     a      in/out  [T, width]; only read without a bias
 *     bias   in      [width] float; optional
 */
PP_OPERANDS(gelu, u, a, bias);

/* gelu_grad: du = gelu'(a) du / (1 - p) where u was kept, else 0
 *     p    as gelu's
 *     du   in/out  [T, width]
 *     a    in      [T, width]
 */
PP_OPERANDS(gelu_grad, du, a);

/* swiglu: a += bias; u = drop(silu(g) h), where a token's a is g, then h, and silu(g) = g / (1 + exp(-g))
 *     p      probability of dropout
 *     u      out     [T, width]
 *     a      in/out  [T, 2 * width]; only read without a bias
 *     bias   in      [2 * width] float; optional
 */
PP_OPERANDS(swiglu, u, a, bias);

/* swiglu_grad: a becomes the gradient at it.
 *     p    as swiglu's
 *     a    in/out  [T, 2 * width]
 *     du   in      [T, width]
 */
PP_OPERANDS(swiglu_grad, a, du);

#endif
