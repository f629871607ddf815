/* SPDX-License-Identifier: Apache-2.0
 *
 * Matrix products through cublasLt: what pp_cuda_gemm_nt, _nn, _tn and _fp8 (kernels/cuda/launch.h) work with. Where
 * kernels of our own are faster (tf32.h), and no file names an algorithm of cuBLAS, these are taken instead.
 *
 * A plan holds what cublasLt needs for a product: descriptors and an algorithm. A plan is made once for each operation,
 * shape, number of matrices, precision, type of A and C and alignment of the operands, and then kept. So equal products
 * give equal bits, and the heuristic is not asked inside a step. The algorithm is the one that a file names
 * (algorithms.h), else the first one that the heuristic offers. Only pp_cuda_tune() chooses by time, and writes its
 * choice into the file. fp32 products round no operand; tf32 and bf16 products add in float32; FP8 products add faster
 * and less exactly, but those of gradients. Where a sum is split over multiprocessors, its parts are in the workspace
 * and are added in a fixed order; they are float32, or have the type of C where cuBLAS offers nothing else.
 *
 * Each worker has a struct pp_cuda_gemm of its own, for one thread and one stream: its workspace serves one product at
 * a time, and a plan names the scales of one FP8 product at a time.
 */
#ifndef PP_KERNELS_CUDA_GEMM_H
#define PP_KERNELS_CUDA_GEMM_H

#include "core/calls/call.h"
#include "kernels/cuda/launch.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The workspace of a worker. cuBLAS recommends 32 MiB for Hopper, but a product of 700 x 4096 elements whose sums are
 * split in three needs 34 MB for its parts in float32. */
enum { PP_CUDA_GEMM_WORKSPACE_BYTES = 64 << 20 };

struct pp_cuda_gemm_spec {
    int sms; /* multiprocessors that the worker may use, for which algorithms are chosen; 0: all of the device */
    int hopper_sms; /* the same, of a GPU of compute capability 9.0, which has its own TF32 kernels (tf32.h); else 0 */
    const char *gpu; /* "NVIDIA H200, 132 SMs": the GPU that a file of algorithms must name; needed with a file */
    const char *algorithms; /* path of the file; NULL: there is none */
};

/* Makes the handle, allocates the workspace on the current device, and reads the file. PP_NOMEM: no device memory;
 * PP_INPUT: the file (algorithms.h). */
pp_status pp_cuda_gemm_open(const struct pp_cuda_gemm_spec *spec, struct pp_cuda_gemm **out) PP_MUST_CHECK;
/* NULL is allowed. The device must have finished all products. */
void pp_cuda_gemm_close(struct pp_cuda_gemm *gemm);

/* Makes the plan of a call and runs the product twice on zeros: once with beta 0 (it writes C) and once with beta 1 (it
 * adds to C). That loads its kernels, so that no first use inside a step stops the device. Does nothing for a call of
 * another kernel, or if the plan exists. Blocks, and needs device memory for the largest operand meanwhile; if there is
 * none, the kernels are loaded by their first use. The alignment of operands follows from their offsets: regions of
 * memory are aligned to 16 bytes or more. PP_UNSUPPORTED: cuBLAS has no algorithm for the product. */
pp_status pp_cuda_gemm_prepare(struct pp_cuda_gemm *gemm, const struct pp_call *call,
                               cudaStream_t stream) PP_MUST_CHECK;

/* Queues the product of a call into c->stream. The launchers of products call it; where it fails they
 * return cudaErrorUnknown, and pp_message() says why. */
pp_status pp_cuda_gemm_run(const struct pp_cuda_call *c) PP_MUST_CHECK;

/* "cuBLAS 13.1.0", "cuBLAS 13.1.0, algorithms 0123456789abcdef"; valid until close. */
const char *pp_cuda_gemm_describe(const struct pp_cuda_gemm *gemm);

#ifdef __cplusplus
}
#endif

#endif
