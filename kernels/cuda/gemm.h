/* SPDX-License-Identifier: Apache-2.0
 *
 * Matrix products through cublasLt: what pp_cuda_gemm_nt, _nn and _tn (kernels/cuda/launch.h) work with.
 *
 * A plan holds all that cublasLt wants to know of a product (descriptors, algorithm). It is made once per operation,
 * shape, number of matrices, precision, type of C and alignment of the operands, and kept: equal products give equal
 * bits, and no heuristic is asked inside a step. The algorithm is the one that a file names (algorithms.h), else the
 * heuristic's first: never one that was timed in this run. fp32 products round no operand; tf32 and bf16 sum in
 * float32. Where a sum is split over multiprocessors, its parts are float32 in the workspace and are added in a fixed
 * order.
 *
 * One per worker, used by one thread and one stream, for its workspace serves one product at a time.
 */
#ifndef PP_KERNELS_CUDA_GEMM_H
#define PP_KERNELS_CUDA_GEMM_H

#include "core/call.h"
#include "kernels/cuda/launch.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Of each worker: what cuBLAS recommends for Hopper is 32 MiB, but the partial sums of three splits of 700x4096 in
 * float32 do not fit into that. */
enum { PP_CUDA_GEMM_WORKSPACE_BYTES = 64 << 20 };

struct pp_cuda_gemm_spec {
    int sms; /* multiprocessors that the worker may use, for which algorithms are chosen; 0: all of the device */
    const char *gpu;        /* "NVIDIA H200, 132 SMs": what a file of algorithms must be of; needed with one */
    const char *algorithms; /* the file; NULL: none */
};

/* Allocates handle and workspace on the current device, and reads the file. */
pp_status pp_cuda_gemm_open(const struct pp_cuda_gemm_spec *spec, struct pp_cuda_gemm **out) PP_MUST_CHECK;
/* NULL is allowed. The device must have finished all products. */
void pp_cuda_gemm_close(struct pp_cuda_gemm *gemm);

/* Makes the plan of a call and runs it on zeros, once as it writes and once as it adds, so that its kernels are loaded:
 * no first use inside a step stops the device. Calls of other kernels are passed over, as are those whose plan is
 * there. Blocks, and takes device memory for as long; a product that finds none is loaded by its first use. Operands
 * are taken to be aligned as their offsets say, regions to 16 bytes or more. */
pp_status pp_cuda_gemm_prepare(struct pp_cuda_gemm *gemm, const struct pp_call *call,
                               cudaStream_t stream) PP_MUST_CHECK;

/* The launchers in the project's words: as they, but with a message. They return cudaErrorUnknown where this fails, and
 * pp_message() then says why. */
pp_status pp_cuda_gemm_run(const struct pp_cuda_call *c) PP_MUST_CHECK;

/* "cuBLAS 13.1.0", "cuBLAS 13.1.0, algorithms 0123456789abcdef"; valid until close. */
const char *pp_cuda_gemm_describe(const struct pp_cuda_gemm *gemm);

#ifdef __cplusplus
}
#endif

#endif
