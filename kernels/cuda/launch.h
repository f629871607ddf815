/* SPDX-License-Identifier: Apache-2.0
 *
 * The launchers of the CUDA kernels, one for each row of the kernel table (what each computes: core/calls_*.h), as C
 * sees them. Each puts its kernels into the call's stream and returns; it allocates nothing and waits for nothing.
 *
 * Element types follow the program's precision: activations, their gradients, P, and what travels are float32, or
 * bfloat16 for PP_BF16; rstd, parameters, gradients of parameters, logits and sums are as core/calls_*.h say.
 * Random numbers are those of the cpu, for the same elements. No result depends on the number of multiprocessors, on
 * timing or on atomics' order: equal calls give equal bits.
 */
#ifndef PP_KERNELS_CUDA_LAUNCH_H
#define PP_KERNELS_CUDA_LAUNCH_H

#include <cuda_runtime_api.h>

#include "core/queue.h"
#include "kernels/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

/* pp_cuda_call.scratch of each worker, beside the workspace of products; more where a call of its programs needs it. */
enum { PP_CUDA_SCRATCH_BYTES = 16 << 20 };
/* Tokens that embed_grad sorts at a time; the work of that is their square. */
enum { PP_CUDA_SORT_TOKENS = 1 << 12 };

struct pp_cuda_gemm; /* kernels/cuda/gemm.h */

struct pp_cuda_call {
    const struct pp_call *call;
    const struct pp_frame *frame;
    union { /* addresses of the operands, by number or by name; NULL where an operand lies nowhere */
        void *p[PP_CALL_REFS];
        union pp_call_memory at;
    };
    int sms;               /* multiprocessors of this worker */
    void *scratch;         /* contents undefined; calls of one stream use it one after another */
    int64_t scratch_bytes; /* pp_cuda_scratch_bytes(), or fewer for the calls that ask */
    cudaStream_t stream;
    struct pp_cuda_gemm *gemm;
};

#define X(ID, name, dims, named, flops) cudaError_t pp_cuda_##name(const struct pp_cuda_call *c);
PP_KERNEL_LIST(X)
#undef X

/* Launch n calls of one kernel at once, PP_CUDA_GROUP at most. All are of one frame and stream, and none reads what
 * another writes. The bits are those of one launch after the other. */
cudaError_t pp_cuda_sumsq_group(const struct pp_cuda_call *c, int n);
cudaError_t pp_cuda_sgd_group(const struct pp_cuda_call *c, int n);
cudaError_t pp_cuda_adamw_group(const struct pp_cuda_call *c, int n);

/* The kernels of pp_queue_ops (core/queue.h): narrow, widen, sum, clip_factor. */
cudaError_t pp_cuda_narrow(cudaStream_t stream, void *to, const void *from, int64_t n);
cudaError_t pp_cuda_widen(cudaStream_t stream, void *to, const void *from, int64_t n);
cudaError_t pp_cuda_sum(cudaStream_t stream, void *to, const void *const *parts, int nparts, int64_t elements,
                        int type);
cudaError_t pp_cuda_clip_factor(cudaStream_t stream, const double *sums, int n, double most, float *factor);
/* `blocks` thread blocks of one thread, each `cycles` of the device's clock long: for the probe and the reference. */
cudaError_t pp_cuda_spin(cudaStream_t stream, int blocks, int64_t cycles);
/* Holds the stream back until *opened, memory of the host that the device reads, is `ticket` or later (modulo 2^32), or
 * most_cycles of the device's clock have passed. Takes one thread of one multiprocessor of the stream's share. */
cudaError_t pp_cuda_hold(cudaStream_t stream, const unsigned *opened, unsigned ticket, int64_t most_cycles);
/* Sets what kernels need once per device (shared memory limits) and loads them, so that no launch in a step does. */
cudaError_t pp_cuda_prepare(void);

#ifdef __cplusplus
}
#endif

#endif
