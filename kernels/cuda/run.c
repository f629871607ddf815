/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/cuda/device.h"

/* What the workers of a rank compute together (sums, exchanges) is made by the executor. The backend only tells it, at
 * the right place among the calls. */
static cudaError_t meet(const struct pp_cuda_call *c)
{
    pp_call_meet(c->call, c->frame);
    return cudaSuccess;
}

cudaError_t pp_cuda_all_reduce(const struct pp_cuda_call *c) { return meet(c); }
cudaError_t pp_cuda_reduce_scatter(const struct pp_cuda_call *c) { return meet(c); }
cudaError_t pp_cuda_all_gather(const struct pp_cuda_call *c) { return meet(c); }
cudaError_t pp_cuda_await(const struct pp_cuda_call *c) { return meet(c); }

static cudaError_t exchange(const struct pp_cuda_call *c)
{
    const struct pp_operand from = pp_call_operand(c->call, 1);
    const int64_t copies = pp_call_copies(c->call), bytes = from.elements * from.element_bytes;
    cudaError_t error = cudaSuccess;
    if (c->frame->join) return meet(c);
    for (int64_t i = 0; i < copies && error == cudaSuccess; i++)
        error = cudaMemcpyAsync((char *)c->at.exchange.to + i * bytes, c->at.exchange.from, (size_t)bytes,
                                cudaMemcpyDeviceToDevice, c->stream);
    return error;
}

cudaError_t pp_cuda_all_to_all(const struct pp_cuda_call *c) { return exchange(c); }
cudaError_t pp_cuda_shift(const struct pp_cuda_call *c) { return exchange(c); }

static cudaError_t (*const launchers[PP_KERNELS])(const struct pp_cuda_call *c) = {
#define X(ID, name, dims, named, flops) [PP_KERNEL_##ID] = pp_cuda_##name,
    PP_KERNEL_LIST(X)
#undef X
};

/* Kernels whose calls are launched in groups. A program has one such call for each tensor, and none reads what another
 * writes. */
static cudaError_t (*const group_launchers[PP_KERNELS])(const struct pp_cuda_call *c,
                                                        int n) = {[PP_KERNEL_SUMSQ] = pp_cuda_sumsq_group,
                                                                  [PP_KERNEL_SGD] = pp_cuda_sgd_group,
                                                                  [PP_KERNEL_ADAMW] = pp_cuda_adamw_group,
                                                                  [PP_KERNEL_ADAMW_BF16] = pp_cuda_adamw_bf16_group};

int pp_cuda_group(const struct pp_program *program, int first)
{
    const int kernel = program->calls[first].kernel;
    int n = 1;
    if (!group_launchers[kernel]) return 1;
    while (n < PP_CUDA_GROUP && first + n < program->ncalls && program->calls[first + n].kernel == kernel) n++;
    return n;
}

static struct pp_cuda_call cuda_call(const struct pp_device *device, const struct pp_call *call,
                                     const struct pp_frame *frame)
{
    const int64_t needed = pp_cuda_scratch_bytes(call);
    struct pp_cuda_call c = {.call = call,
                             .frame = frame,
                             .sms = device->share.sms,
                             .scratch = device->scratch,
                             .scratch_bytes = needed < device->scratch_bytes ? needed : device->scratch_bytes,
                             .stream = device->compute.stream,
                             .gemm = device->gemm};
    for (int i = 0; i < PP_CALL_REFS; i++) c.p[i] = pp_ref_address(&call->ref[i], frame);
    return c;
}

pp_status pp_cuda_queue_calls(const struct pp_device *device, const struct pp_call *calls, int n,
                              const struct pp_frame *frame)
{
    struct pp_cuda_call c[PP_CUDA_GROUP];
    char text[96];
    for (int i = 0; i < n; i++) c[i] = cuda_call(device, &calls[i], frame);
    if (pp_kernel_is_product(calls->kernel)) {
        const pp_status status = pp_cuda_gemm_run(c);
        return status == PP_OK ? PP_OK : pp_prefix(status, "%s", pp_call_text(calls, text, sizeof text));
    }
    const cudaError_t error = n > 1 ? group_launchers[calls->kernel](c, n) : launchers[calls->kernel](c);
    return error == cudaSuccess ? PP_OK : pp_cuda_check(error, pp_call_text(calls, text, sizeof text));
}

pp_status pp_cuda_queue_run(struct pp_device *device, const struct pp_program *program, const struct pp_frame *frame)
{
    for (int i = 0, n; i < program->ncalls && !(frame->join && frame->join->failed); i += n) {
        n = pp_cuda_group(program, i);
        PP_TRY(pp_cuda_queue_calls(device, &program->calls[i], n, frame));
    }
    return PP_OK;
}

int pp_cuda_queue_launches(struct pp_device *device, const struct pp_program *program)
{
    int launches = 0;
    (void)device;
    for (int i = 0; i < program->ncalls; i += pp_cuda_group(program, i))
        launches += pp_cuda_launches(&program->calls[i]);
    return launches;
}

/* Makes scratch at least as large as `bytes`. The old scratch is released first: there may not be enough memory for
 * both. */
static pp_status grow_scratch(struct pp_device *device, int64_t bytes)
{
    if (bytes <= device->scratch_bytes) return PP_OK;
    PP_CUDA(cudaStreamSynchronize(device->compute.stream), "waiting for the kernels");
    pp_cuda_release(device, device->scratch, device->scratch_bytes);
    device->scratch = NULL;
    device->scratch_bytes = 0;
    PP_TRY(pp_prefix(pp_cuda_alloc(device, bytes, &device->scratch), "scratch of kernels"));
    device->scratch_bytes = bytes;
    return PP_OK;
}

pp_status pp_cuda_prepare_program(struct pp_device *device, const struct pp_program *program)
{
    for (int i = 0; i < program->ncalls; i++) PP_TRY(grow_scratch(device, pp_cuda_scratch_bytes(&program->calls[i])));
    for (int i = 0; i < program->ncalls; i++)
        PP_TRY(pp_cuda_gemm_prepare(device->gemm, &program->calls[i], device->compute.stream));
    return PP_OK;
}

/* Refuses parts that lie in another GPU's memory which this GPU cannot access: a kernel that read it would fail, and
 * with it the whole context. */
static pp_status check_parts(const struct pp_device *device, const void *const *parts, int nparts)
{
    for (int i = 0; i < nparts; i++) {
        struct cudaPointerAttributes where;
        int can = 1;
        PP_CUDA(cudaPointerGetAttributes(&where, parts[i]), "asking for the GPU of an address");
        if (where.device == device->place.gpu) continue;
        PP_CUDA(cudaDeviceCanAccessPeer(&can, device->place.gpu, where.device), "asking for access to another GPU");
        if (!can)
            return pp_fail(PP_UNSUPPORTED,
                           "GPU %d cannot read the memory of GPU %d: start one process for each worker (mpirun)",
                           device->place.gpu, where.device);
    }
    return PP_OK;
}

pp_status pp_cuda_queue_sum(struct pp_device *device, struct pp_queue *queue, void *to, const void *const *parts,
                            int nparts, int64_t elements, int type)
{
    if (device->blind) PP_TRY(check_parts(device, parts, nparts));
    return pp_cuda_check(pp_cuda_sum(queue->stream, to, parts, nparts, elements, type), "adding up");
}

pp_status pp_cuda_queue_narrow(struct pp_device *device, struct pp_queue *queue, uint16_t *to, const float *from,
                               int64_t n)
{
    (void)device;
    return pp_cuda_check(pp_cuda_narrow(queue->stream, to, from, n), "rounding to bfloat16");
}

pp_status pp_cuda_queue_widen(struct pp_device *device, struct pp_queue *queue, float *to, const uint16_t *from,
                              int64_t n)
{
    (void)device;
    return pp_cuda_check(pp_cuda_widen(queue->stream, to, from, n), "reading bfloat16");
}

pp_status pp_cuda_queue_clip(struct pp_device *device, struct pp_queue *queue, const double *sums, int n, double most,
                             float *factor)
{
    (void)device;
    return pp_cuda_check(pp_cuda_clip_factor(queue->stream, sums, n, most, factor), "the clip factor");
}
