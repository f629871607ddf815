/* SPDX-License-Identifier: Apache-2.0
 *
 * What lies in cublasLt's opaque structures.
 */
#ifndef PP_EMULATOR_CUBLASLT_H
#define PP_EMULATOR_CUBLASLT_H

#include <cublasLt.h>

#include "emulator.h"

struct cublasLtContext {
    int device;
};

struct product {
    cublasComputeType_t compute;
    cublasOperation_t transpose[2];
    int32_t sms;
    const float *scale[2]; /* of the factors, on the device; NULL: 1 */
    int8_t fast;           /* sums of FP8 products need not be exact */
};

struct layout {
    cudaDataType type;
    cublasLtOrder_t order;
    uint64_t rows, columns;
    int64_t ld;
    int32_t batches;
    int64_t stride; /* in elements, to the next matrix */
};

struct preference {
    uint64_t workspace;
    uint32_t reductions, alignment[4];
};

/* As pp_emu_enter, in cublasLt's words. */
cublasStatus_t pp_emu_cublas_enter(const char *function);

#endif
