/* SPDX-License-Identifier: Apache-2.0
 *
 * Products of matrices. How to read these blocks: core/calls/call.h.
 */
#ifndef PP_CORE_CALLS_CALLS_PRODUCTS_H
#define PP_CORE_CALLS_CALLS_PRODUCTS_H

#include "core/calls/operand.h"

/* What becomes of C, or of another sum. */
enum pp_gemm_mode {
    PP_GEMM_WRITE,    /* it is written */
    PP_GEMM_ADD,      /* it is added to */
    PP_GEMM_GRADIENT, /* added to where pp_call.adds is set, else written: gradients of weights */
    PP_GEMM_ADD_ONCE  /* added to by tensor rank 0, written by the others: a sum over the tensor ranks follows */
};

/* mode: enum pp_gemm_mode; wide: 1: C is float32 whatever the precision; times: number of products, 0: one; gradient:
 * of gemm_fp8, 1: A is E5M2 */
PP_DIMS(gemm, m, n, k, mode, wide, times, gradient);

/* gemm_nt: C = A B'
 * gemm_nn: C = A B
 * gemm_tn: C = A' B
 * With `times`, so many such products: each operand is as many matrices, one behind the other.
 *     c   out     [m, n]; in/out where the mode adds; float if wide
 *     a   in      [m, k]; of gemm_tn [k, m]
 *     b   in      [k, n]; of gemm_nt [n, k]
 */
PP_OPERANDS(gemm, c, a, b);

/* gemm_fp8: C = scale_a scale_b A B'; sizes are multiples of PP_FP8_STEP (core/calls/fp8.h)
 * With `times`, so many such products with the same scales.
 *     c         out     [m, n]; in/out where the mode adds; float if wide
 *     a         in      [m, k] fp8: E4M3, with `gradient` E5M2
 *     b         in      [n, k] fp8: E4M3
 *     scale_a   in      [1] float
 *     scale_b   in      [1] float
 */
PP_OPERANDS(gemm_fp8, c, a, b, scale_a, scale_b);

/* times: number of matrices, 0: one; gradient: of to_fp8, 1: numbers become E5M2 (else E4M3) */
PP_DIMS(fp8, rows, width, times, gradient);

/* amax: amax = the largest |x|, NaN left aside
 *     amax   out  [1] float
 *     x      in   [times, rows, width]
 */
PP_OPERANDS(amax, amax, x);

/* to_fp8: scale = amax divided by the largest number of the format; q = x / scale, rounded to the nearest, ties to
 * even (core/calls/fp8.h: pp_fp8_factor(), pp_fp8())
 *     q        out  [times, rows, width] fp8; optional
 *     turned   out  [times, width, rows] fp8: each matrix transposed; optional
 *     scale    out  [1] float
 *     x        in   [times, rows, width]
 *     amax     in   [1] float
 */
PP_OPERANDS(to_fp8, q, turned, scale, x, amax);

#endif
