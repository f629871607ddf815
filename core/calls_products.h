/* SPDX-License-Identifier: Apache-2.0
 *
 * Products of matrices. How to read these blocks: core/call.h.
 */
#ifndef PP_CORE_CALLS_PRODUCTS_H
#define PP_CORE_CALLS_PRODUCTS_H

#include "core/operand.h"

/* What becomes of C, or of another sum. */
enum pp_gemm_mode {
    PP_GEMM_WRITE,    /* it is written */
    PP_GEMM_ADD,      /* it is added to */
    PP_GEMM_BY_FRAME, /* added to where pp_frame.accumulate is set, else written: gradients of weights */
    PP_GEMM_ADD_ONCE  /* added to by tensor rank 0, written by the others: a sum over the tensor ranks follows */
};

/* mode: enum pp_gemm_mode; wide: 1: C is float32 whatever the precision; times: number of products, 0: one */
PP_DIMS(gemm, m, n, k, mode, wide, times);

/* gemm_nt: C = A B'
 * gemm_nn: C = A B
 * gemm_tn: C = A' B
 * With `times`, so many such products: each operand is as many matrices, one behind the other.
 *     c   out     [m, n]; in/out where the mode adds; float if wide
 *     a   in      [m, k]; of gemm_tn [k, m]
 *     b   in      [k, n]; of gemm_nt [n, k]
 */
PP_OPERANDS(gemm, c, a, b);

#endif
