/* SPDX-License-Identifier: Apache-2.0
 *
 * The launchers of the CUDA kernels, with C linkage: one for each row of the kernel table. What each computes is in
 * core/calls/calls_*.h. A launcher puts its kernels into the call's stream and returns; it allocates nothing and waits
 * for nothing.
 *
 * Element types follow the program's precision. Activations, their gradients, attention's probabilities P, and messages
 * are float32, or bfloat16 for PP_BF16, the only precision of amax and to_fp8. Types of rstd, parameters, their
 * gradients, logits and sums are in core/calls/calls_*.h. An element gets the same random numbers as on the cpu.
 * Results do not depend on timing or on the order of atomic operations, so equal calls give equal bits; nor, but for
 * those of products (gemm.h), on the number of multiprocessors.
 */
#ifndef PP_KERNELS_CUDA_LAUNCH_H
#define PP_KERNELS_CUDA_LAUNCH_H

#include <cuda_runtime_api.h>

#include "core/model/queue.h"
#include "kernels/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Bytes of a worker's scratch (pp_cuda_call.scratch), which grows if a call of its programs needs more. The workspace
 * of products is not part of it. */
enum { PP_CUDA_SCRATCH_BYTES = 16 << 20 };
/* What a call asks for at most, unless it cannot do with less: with more of it some are faster. */
enum { PP_CUDA_MOST_SCRATCH_BYTES = 64 << 20 };
/* embed_grad sorts so many tokens at a time; the work is the square of this number. */
enum { PP_CUDA_SORT_TOKENS = 1 << 12 };

struct pp_cuda_gemm; /* kernels/cuda/gemm.h */

struct pp_cuda_call {
    const struct pp_call *call;
    const struct pp_frame *frame;
    union { /* device addresses of the operands, by number or by name; NULL: the call has no such operand */
        void *p[PP_CALL_REFS];
        union pp_call_memory at;
    };
    int sms;               /* multiprocessors of this worker's share of the GPU */
    void *scratch;         /* device memory with undefined contents; calls of one stream use it one after another */
    int64_t scratch_bytes; /* pp_cuda_scratch_bytes() of the call, or fewer if the worker has no more */
    cudaStream_t stream;
    struct pp_cuda_gemm *gemm;
};

#define X(ID, name, dims, named, flops) cudaError_t pp_cuda_##name(const struct pp_cuda_call *c);
PP_KERNEL_LIST(X)
#undef X

/* Queue n calls of one kernel, PP_CUDA_GROUP at most, as one launch. All have the same frame and stream, and none reads
 * what another writes. Results have the same bits as those of n launches. */
cudaError_t pp_cuda_sumsq_group(const struct pp_cuda_call *c, int n);
cudaError_t pp_cuda_sgd_group(const struct pp_cuda_call *c, int n);
cudaError_t pp_cuda_adamw_group(const struct pp_cuda_call *c, int n);
cudaError_t pp_cuda_adamw_bf16_group(const struct pp_cuda_call *c, int n);

/* The kernels of the operations narrow, widen, sum and clip_factor of struct pp_queue_ops (core/model/queue.h). */
cudaError_t pp_cuda_narrow(cudaStream_t stream, void *to, const void *from, int64_t n);
cudaError_t pp_cuda_widen(cudaStream_t stream, void *to, const void *from, int64_t n);
cudaError_t pp_cuda_sum(cudaStream_t stream, void *to, const void *const *parts, int nparts, int64_t elements,
                        int type);
cudaError_t pp_cuda_clip_factor(cudaStream_t stream, const double *sums, int n, double most, float *factor);
/* The kernel of pp_backend.draw(); init: any but PP_INIT_NORMAL. */
cudaError_t pp_cuda_draw_values(cudaStream_t stream, void *to, const struct pp_draw *draw);
/* to [columns, pitch_to] = from', of whose rows, which lie pitch_from numbers apart, the first `columns` numbers are
 * taken; behind `rows` numbers of each row of `to` are zeros. All but rows are multiples of 4, and addresses of 16. For
 * products (tf32.h). */
cudaError_t pp_cuda_turn(cudaStream_t stream, float *to, const float *from, int rows, int columns, int pitch_from,
                         int pitch_to);
/* Runs `blocks` thread blocks of one thread, each of which takes `cycles` cycles of its multiprocessor's clock: the
 * work of the probe (probe.c) and of the reference kernel (measure.c). */
cudaError_t pp_cuda_spin(cudaStream_t stream, int blocks, int64_t cycles);
/* Holds the stream back until *opened has come to `ticket` (counted modulo 2^32), or until most_cycles cycles of the
 * multiprocessor's clock have passed. opened: locked host memory that the device can read. Meanwhile one thread polls
 * on one multiprocessor. */
cudaError_t pp_cuda_hold(cudaStream_t stream, const unsigned *opened, unsigned ticket, int64_t most_cycles);
/* Sets the limits of kernels' shared memory on the current device and loads all kernels, so that no launch inside a
 * step has to. */
cudaError_t pp_cuda_prepare(void);

#ifdef __cplusplus
}
#endif

#endif
