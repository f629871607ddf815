/* SPDX-License-Identifier: Apache-2.0
 *
 * Inside kernels/cuda/gemm.h: a product as cublasLt wants to know it, and what it can be computed with.
 */
#ifndef PP_KERNELS_CUDA_GEMM_PLAN_H
#define PP_KERNELS_CUDA_GEMM_PLAN_H

#include <cublasLt.h>

#include "kernels/cuda/algorithms.h"
#include "kernels/cuda/gemm.h"

struct pp_gemm_plan {
    struct pp_gemm_key key;
    cublasLtMatmulDesc_t product;
    cublasLtMatrixLayout_t layout[PP_GEMM_OPERANDS];
    cublasLtMatmulAlgo_t algorithm;
    size_t workspace_bytes;
};

struct pp_cuda_gemm {
    cublasLtHandle_t handle;
    void *workspace;
    int sms;
    struct pp_gemm_plan *plans;
    int nplans;
    int64_t room;
    struct pp_algorithms algorithms;
    char text[80];
};

/* The index among a call's operands, which are C, A, B, of FIRST, SECOND, RESULT. */
extern const int pp_gemm_operand_of[PP_GEMM_OPERANDS];

/* where: of the operands in pp_call's order, addresses or offsets, with whatever is added to them. */
struct pp_gemm_key pp_gemm_key_of(const struct pp_call *call, const uint64_t *where);
/* ... as the offsets in the call say. */
struct pp_gemm_key pp_gemm_key_of_offsets(const struct pp_call *call);
/* Of all its matrices. */
int64_t pp_gemm_operand_bytes(const struct pp_gemm_key *key, int operand);

/* PP_OK, or a message "cuBLAS cannot <doing> <product>: <cuBLAS's words>". key: NULL, or of the product. */
pp_status pp_gemm_check(cublasStatus_t status, const struct pp_gemm_key *key, const char *doing);

/* Descriptors of the product and its matrices, for plan->key. pp_gemm_plan_free, also after a failure. */
pp_status pp_gemm_describe(const struct pp_cuda_gemm *gemm, struct pp_gemm_plan *plan) PP_MUST_CHECK;
void pp_gemm_plan_free(struct pp_gemm_plan *plan);

/* Algorithms that fit the workspace and the worker's multiprocessors, in the heuristic's order; *n may be 0. */
pp_status pp_gemm_candidates(const struct pp_cuda_gemm *gemm, const struct pp_gemm_plan *plan, int most,
                             cublasLtMatmulHeuristicResult_t *out, int *n) PP_MUST_CHECK;
/* Sets the algorithm: the file's, else the heuristic's first. */
pp_status pp_gemm_choose(const struct pp_cuda_gemm *gemm, struct pp_gemm_plan *plan) PP_MUST_CHECK;

/* p: FIRST, SECOND, RESULT. */
pp_status pp_gemm_multiply(const struct pp_cuda_gemm *gemm, const struct pp_gemm_plan *plan, void *const *p, float beta,
                           cudaStream_t stream) PP_MUST_CHECK;

#endif
