/* SPDX-License-Identifier: Apache-2.0
 *
 * Matrix products: one thin function over OpenBLAS, which is loaded when it is first needed. Loading it late is the
 * point: OpenBLAS picks its kernels in a constructor from OPENBLAS_CORETYPE, and a value inherited from somewhere can
 * halve the speed. Nor does it know processors younger than itself: it takes them for a Prescott, which is many times
 * slower.
 */
#ifndef PP_KERNELS_CPU_GEMM_H
#define PP_KERNELS_CPU_GEMM_H

#include "core/base/status.h"

enum pp_gemm_op {
    PP_GEMM_NT, /* C [m,n] = A [m,k] * B [n,k]' */
    PP_GEMM_NN, /* C [m,n] = A [m,k] * B [k,n] */
    PP_GEMM_TN  /* C [m,n] = A [k,m]' * B [k,n] */
};

/* Asks for the kernels of one processor ("Haswell", "SkylakeX", ...; NULL or "": the best). Before the first
 * pp_gemm_load. */
void pp_gemm_want_core(const char *core);

/* Loads OpenBLAS on the first call, which sets environment variables for it: call it while no other thread looks. */
pp_status pp_gemm_load(void) PP_MUST_CHECK;

/* The same, if it is not loaded; then sets the number of threads that a product uses, for the whole process, unless it
 * is this number: several workers may say so at the same time, also while others multiply. */
pp_status pp_gemm_open(int threads) PP_MUST_CHECK;

/* C = A B + beta C, row-major, leading dimensions in elements. pp_gemm_open must have succeeded. */
void pp_gemm(enum pp_gemm_op op, int m, int n, int k, const float *a, int lda, const float *b, int ldb, float beta,
             float *c, int ldc);

/* "OpenBLAS 0.3.21 SkylakeX" */
const char *pp_gemm_describe(void);

#endif
