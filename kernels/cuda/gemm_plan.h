/* SPDX-License-Identifier: Apache-2.0
 *
 * Private to the implementation of kernels/cuda/gemm.h: how a product is described to cublasLt, and by which algorithm
 * it is computed.
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
    int hopper_sms; /* as in struct pp_cuda_gemm_spec */
    struct pp_gemm_plan *plans;
    int nplans;
    int64_t room;
    struct pp_algorithms algorithms;
    char text[80];
};

/* For FIRST, SECOND and RESULT, and for the scales of the first two: the number of that operand in a call, whose
 * operands are C, A, B, and the scales of A and B. */
extern const int pp_gemm_operand_of[PP_GEMM_ADDRESSES];

/* The key of a call's product. where: for each operand, in the order of the call (C, A, B), its address or offset,
 * or'ed with all that may be added to that; its lowest bit that is set is the operand's alignment. */
struct pp_gemm_key pp_gemm_key_of(const struct pp_call *call, const uint64_t *where);
/* The same, from the offsets in the call. */
struct pp_gemm_key pp_gemm_key_of_offsets(const struct pp_call *call);
/* Rows of C that a kernel of our own computes at a time, all or, of a product that turns a factor, so many as there is
 * scratch for. 0: cuBLAS computes it. key: of the call. */
int pp_gemm_own_rows(const struct pp_cuda_gemm *gemm, const struct pp_call *call, const struct pp_gemm_key *key,
                     int64_t scratch_bytes);

/* Bytes of all matrices of an operand (FIRST, SECOND or RESULT). */
int64_t pp_gemm_operand_bytes(const struct pp_gemm_key *key, int operand);

/* PP_OK, or a message "cuBLAS cannot <doing> <product>: <cuBLAS's words>". key: the product's; NULL: the message names
 * no product. */
pp_status pp_gemm_check(cublasStatus_t status, const struct pp_gemm_key *key, const char *doing);

/* Makes the descriptors of the product and of its matrices, for plan->key. The caller calls pp_gemm_plan_free, also
 * after a failure. */
pp_status pp_gemm_describe(const struct pp_cuda_gemm *gemm, struct pp_gemm_plan *plan) PP_MUST_CHECK;
void pp_gemm_plan_free(struct pp_gemm_plan *plan);

/* The algorithms, `most` at most, that the heuristic offers for the worker's multiprocessors and that fit into the
 * workspace, in the heuristic's order. *n: how many; it may be 0. */
pp_status pp_gemm_candidates(const struct pp_cuda_gemm *gemm, const struct pp_gemm_plan *plan, int most,
                             cublasLtMatmulHeuristicResult_t *out, int *n) PP_MUST_CHECK;
/* Sets plan->algorithm and plan->workspace_bytes: the file's algorithm, else the first that the heuristic offers. */
pp_status pp_gemm_choose(const struct pp_cuda_gemm *gemm, struct pp_gemm_plan *plan) PP_MUST_CHECK;

/* Queues RESULT = FIRST x SECOND + beta RESULT; of an FP8 product, FIRST and SECOND are multiplied by their scales. p:
 * [PP_GEMM_ADDRESSES] device addresses; those of scales may be NULL for other products. */
pp_status pp_gemm_multiply(const struct pp_cuda_gemm *gemm, const struct pp_gemm_plan *plan, void *const *p, float beta,
                           cudaStream_t stream) PP_MUST_CHECK;

#endif
