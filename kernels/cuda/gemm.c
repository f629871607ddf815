/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/cuda/gemm.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cuda/device.h"
#include "kernels/cuda/gemm_plan.h"
#include "kernels/cuda/tf32.h"

static pp_status open_workspace(struct pp_cuda_gemm *gemm)
{
    const cudaError_t error = cudaMalloc(&gemm->workspace, PP_CUDA_GEMM_WORKSPACE_BYTES);
    if (error == cudaSuccess) return PP_OK;
    return pp_fail(error == cudaErrorMemoryAllocation ? PP_NOMEM : PP_IO,
                   "no %d MiB of device memory for the workspace of products: %s", PP_CUDA_GEMM_WORKSPACE_BYTES >> 20,
                   cudaGetErrorString(error));
}

static pp_status read_algorithms(struct pp_cuda_gemm *gemm, const char *path)
{
    const size_t used = strlen(gemm->text);
    if (!path) return PP_OK;
    PP_TRY(pp_algorithms_read(&gemm->algorithms, path));
    snprintf(gemm->text + used, sizeof gemm->text - used, ", algorithms %016" PRIx64, gemm->algorithms.hash);
    return PP_OK;
}

pp_status pp_cuda_gemm_open(const struct pp_cuda_gemm_spec *spec, struct pp_cuda_gemm **out)
{
    PP_TRY(PP_NEW(out, 1));
    struct pp_cuda_gemm *gemm = *out;
    const size_t version = cublasLtGetVersion();
    gemm->sms = spec->sms;
    gemm->hopper_sms = spec->hopper_sms;
    pp_algorithms_begin(&gemm->algorithms, spec->gpu);
    snprintf(gemm->text, sizeof gemm->text, "cuBLAS %zu.%zu.%zu", version / 10000, version / 100 % 100, version % 100);
    pp_status status = pp_gemm_check(cublasLtCreate(&gemm->handle), NULL, "start on this device");
    if (status == PP_OK) status = open_workspace(gemm);
    if (status == PP_OK) status = read_algorithms(gemm, spec->algorithms);
    if (status == PP_OK) return PP_OK;
    pp_cuda_gemm_close(gemm);
    *out = NULL;
    return status;
}

void pp_cuda_gemm_close(struct pp_cuda_gemm *gemm)
{
    if (!gemm) return;
    for (int i = 0; i < gemm->nplans; i++) pp_gemm_plan_free(&gemm->plans[i]);
    free(gemm->plans);
    pp_algorithms_free(&gemm->algorithms);
    cudaFree(gemm->workspace);
    if (gemm->handle) cublasLtDestroy(gemm->handle);
    free(gemm);
}

const char *pp_cuda_gemm_describe(const struct pp_cuda_gemm *gemm) { return gemm->text; }

static struct pp_gemm_plan *plan_find(const struct pp_cuda_gemm *gemm, const struct pp_gemm_key *key)
{
    for (int i = 0; i < gemm->nplans; i++)
        if (!memcmp(&gemm->plans[i].key, key, sizeof *key)) return &gemm->plans[i];
    return NULL;
}

static pp_status plan_make(struct pp_cuda_gemm *gemm, const struct pp_gemm_key *key, struct pp_gemm_plan **out)
{
    PP_TRY(PP_GROW(&gemm->plans, gemm->nplans + 1, &gemm->room));
    struct pp_gemm_plan *plan = &gemm->plans[gemm->nplans];
    *plan = (struct pp_gemm_plan){.key = *key};
    pp_status status = pp_gemm_describe(gemm, plan);
    if (status == PP_OK) status = pp_gemm_choose(gemm, plan);
    if (status != PP_OK) {
        pp_gemm_plan_free(plan);
        return status;
    }
    gemm->nplans++;
    *out = plan;
    return PP_OK;
}

/* Runs the product on zeros so that its kernels are loaded: with beta 0 and with beta 1, for which cuBLAS may have two
 * kernels. All operands, and scales, lie in one piece of memory, for nobody reads the result. Without memory it does
 * nothing. */
static pp_status load(const struct pp_cuda_gemm *gemm, const struct pp_gemm_plan *plan, cudaStream_t stream)
{
    int64_t most = 0;
    for (int i = 0; i < PP_GEMM_OPERANDS; i++) {
        const int64_t bytes = pp_gemm_operand_bytes(&plan->key, i);
        most = bytes > most ? bytes : most;
    }
    void *memory;
    if (cudaMalloc(&memory, (size_t)most) != cudaSuccess) {
        cudaGetLastError(); /* clears the error, which the next launch would report */
        return PP_OK;
    }
    void *const p[PP_GEMM_ADDRESSES] = {memory, memory, memory, memory, memory};
    cudaError_t error = cudaMemsetAsync(memory, 0, (size_t)most, stream);
    pp_status status = PP_OK;
    for (int add = 0; add < 2 && error == cudaSuccess && status == PP_OK; add++)
        status = pp_gemm_multiply(gemm, plan, p, (float)add, stream);
    if (error == cudaSuccess) error = cudaStreamSynchronize(stream);
    cudaFree(memory);
    if (status == PP_OK && error != cudaSuccess)
        status = pp_fail(PP_IO, "the first product on the device failed: %s", cudaGetErrorString(error));
    return status;
}

pp_status pp_cuda_gemm_prepare(struct pp_cuda_gemm *gemm, const struct pp_call *call, cudaStream_t stream)
{
    if (!pp_kernel_is_product(call->kernel)) return PP_OK;
    const struct pp_gemm_key key = pp_gemm_key_of_offsets(call);
    struct pp_gemm_plan *plan;
    if (plan_find(gemm, &key) || pp_gemm_own_rows(gemm, call, &key, pp_tf32_bytes(call)) > 0) return PP_OK;
    PP_TRY(plan_make(gemm, &key, &plan));
    return load(gemm, plan, stream);
}

static pp_status multiply(const struct pp_cuda_call *c, const struct pp_gemm_key *key, void *const *p)
{
    struct pp_gemm_plan *plan = plan_find(c->gemm, key);
    if (!plan) PP_TRY(plan_make(c->gemm, key, &plan));
    const bool add = pp_gemm_adds(c->call, c->call->gemm.mode, c->frame);
    return pp_gemm_multiply(c->gemm, plan, p, add ? 1 : 0, c->stream);
}

pp_status pp_cuda_gemm_run(const struct pp_cuda_call *c)
{
    uint64_t where[PP_GEMM_OPERANDS];
    void *p[PP_GEMM_ADDRESSES];
    for (int i = 0; i < PP_GEMM_OPERANDS; i++) where[i] = (uint64_t)(uintptr_t)c->p[i];
    for (int i = 0; i < PP_GEMM_ADDRESSES; i++) p[i] = c->p[pp_gemm_operand_of[i]];
    const struct pp_gemm_key key = pp_gemm_key_of(c->call, where);
    const int rows = pp_gemm_own_rows(c->gemm, c->call, &key, c->scratch_bytes);
    if (rows == 0) return multiply(c, &key, p);
    PP_CUDA(pp_tf32_multiply(c, rows, pp_gemm_adds(c->call, c->call->gemm.mode, c->frame)), "multiplying in TF32");
    return PP_OK;
}

static cudaError_t launch(const struct pp_cuda_call *c)
{
    return pp_cuda_gemm_run(c) == PP_OK ? cudaSuccess : cudaErrorUnknown;
}

cudaError_t pp_cuda_gemm_nt(const struct pp_cuda_call *c) { return launch(c); }
cudaError_t pp_cuda_gemm_nn(const struct pp_cuda_call *c) { return launch(c); }
cudaError_t pp_cuda_gemm_tn(const struct pp_cuda_call *c) { return launch(c); }
cudaError_t pp_cuda_gemm_fp8(const struct pp_cuda_call *c) { return launch(c); }
