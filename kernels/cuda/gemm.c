/* SPDX-License-Identifier: Apache-2.0
 *
 * cublasLt counts columns first: our row-major C [m,n] is its C' [n,m], and C = op(A) op(B) becomes C' = op(B)' op(A)'.
 * So our B is its first factor, and an operand that we write transposed is one that it need not transpose.
 */
#include "kernels/cuda/gemm.h"

#include <cublasLt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The factors in cublasLt's order: C' = first second. */
enum { FIRST, SECOND, RESULT, OPERANDS };

/* Vector loads are of 16 bytes at most: no algorithm asks for more. */
enum { MOST_ALIGNMENT = 16, CANDIDATES = 8 };

/* All that the algorithm, and so the bits of a product, depends on. Only ints: compared as bytes. */
struct key {
    int kernel, m, n, k, precision, wide;
    int alignment[OPERANDS];
};

struct plan {
    struct key key;
    cublasLtMatmulDesc_t product;
    cublasLtMatrixLayout_t layout[OPERANDS];
    cublasLtMatmulAlgo_t algorithm;
    size_t workspace_bytes;
};

struct pp_cuda_gemm {
    cublasLtHandle_t handle;
    void *workspace;
    int sms;
    struct plan *plans;
    int nplans, room;
    char text[48];
};

/* How each operation looks to cublasLt, where a matrix of `rows` has these as its leading dimension. */
enum size { SIZE_M, SIZE_N, SIZE_K };
struct operation {
    int kernel;
    cublasOperation_t transpose[2]; /* FIRST, SECOND */
    struct {
        enum size rows, columns;
    } shape[OPERANDS];
};

static const struct operation operations[] = {
    {PP_KERNEL_GEMM_NT, {CUBLAS_OP_T, CUBLAS_OP_N}, {{SIZE_K, SIZE_N}, {SIZE_K, SIZE_M}, {SIZE_N, SIZE_M}}},
    {PP_KERNEL_GEMM_NN, {CUBLAS_OP_N, CUBLAS_OP_N}, {{SIZE_N, SIZE_K}, {SIZE_K, SIZE_M}, {SIZE_N, SIZE_M}}},
    {PP_KERNEL_GEMM_TN, {CUBLAS_OP_N, CUBLAS_OP_T}, {{SIZE_N, SIZE_K}, {SIZE_M, SIZE_K}, {SIZE_N, SIZE_M}}},
};

/* pp_call's operands are C, A, B. */
static const int operand_of[OPERANDS] = {[FIRST] = 2, [SECOND] = 1, [RESULT] = 0};

static const struct {
    cublasComputeType_t compute;
    cudaDataType_t type;
} arithmetic[] = {
    [PP_FP32] = {CUBLAS_COMPUTE_32F, CUDA_R_32F},
    [PP_TF32] = {CUBLAS_COMPUTE_32F_FAST_TF32, CUDA_R_32F},
    [PP_BF16] = {CUBLAS_COMPUTE_32F, CUDA_R_16BF},
};

static const struct operation *operation_of(int kernel)
{
    for (size_t i = 0; i < sizeof operations / sizeof operations[0]; i++)
        if (operations[i].kernel == kernel) return &operations[i];
    return NULL;
}

static int size_of(const struct key *key, enum size size)
{
    const int sizes[] = {[SIZE_M] = key->m, [SIZE_N] = key->n, [SIZE_K] = key->k};
    return sizes[size];
}

static cudaDataType_t type_of(const struct key *key, int operand)
{
    return operand == RESULT && key->wide ? CUDA_R_32F : arithmetic[key->precision].type;
}

static int bytes_of(cudaDataType_t type) { return type == CUDA_R_16BF ? 2 : 4; }

static const char *key_text(const struct key *key, char *buf, size_t size)
{
    snprintf(buf, size, "%s %dx%dx%d in %s", pp_kernel_table[key->kernel].name, key->m, key->n, key->k,
             pp_precision_names[key->precision]);
    return buf;
}

static pp_status check(cublasStatus_t status, const struct key *key, const char *doing)
{
    if (status == CUBLAS_STATUS_SUCCESS) return PP_OK;
    char text[96];
    const pp_status ours = status == CUBLAS_STATUS_ALLOC_FAILED ? PP_NOMEM
                           : status == CUBLAS_STATUS_NOT_SUPPORTED || status == CUBLAS_STATUS_ARCH_MISMATCH
                               ? PP_UNSUPPORTED
                               : PP_IO;
    return pp_fail(ours, "cuBLAS cannot %s%s%s: %s (%s)", doing, key ? " " : "",
                   key ? key_text(key, text, sizeof text) : "", cublasLtGetStatusString(status),
                   cublasLtGetStatusName(status));
}

pp_status pp_cuda_gemm_open(int sms, struct pp_cuda_gemm **out)
{
    PP_TRY(PP_NEW(out, 1));
    struct pp_cuda_gemm *gemm = *out;
    gemm->sms = sms;
    const size_t version = cublasLtGetVersion();
    snprintf(gemm->text, sizeof gemm->text, "cuBLAS %zu.%zu", version / 10000, version / 100 % 100);
    pp_status status = check(cublasLtCreate(&gemm->handle), NULL, "start on this device");
    if (status == PP_OK) {
        const cudaError_t error = cudaMalloc(&gemm->workspace, PP_CUDA_GEMM_WORKSPACE_BYTES);
        if (error != cudaSuccess)
            status = pp_fail(error == cudaErrorMemoryAllocation ? PP_NOMEM : PP_IO,
                             "no %d MiB of device memory for the workspace of products: %s",
                             PP_CUDA_GEMM_WORKSPACE_BYTES >> 20, cudaGetErrorString(error));
    }
    if (status == PP_OK) return PP_OK;
    pp_cuda_gemm_close(gemm);
    *out = NULL;
    return status;
}

static void plan_free(struct plan *plan)
{
    for (int i = 0; i < OPERANDS; i++)
        if (plan->layout[i]) cublasLtMatrixLayoutDestroy(plan->layout[i]);
    if (plan->product) cublasLtMatmulDescDestroy(plan->product);
}

void pp_cuda_gemm_close(struct pp_cuda_gemm *gemm)
{
    if (!gemm) return;
    for (int i = 0; i < gemm->nplans; i++) plan_free(&gemm->plans[i]);
    free(gemm->plans);
    cudaFree(gemm->workspace);
    if (gemm->handle) cublasLtDestroy(gemm->handle);
    free(gemm);
}

const char *pp_cuda_gemm_describe(const struct pp_cuda_gemm *gemm) { return gemm->text; }

/* Descriptors of the product and its matrices. */
static pp_status describe(const struct pp_cuda_gemm *gemm, struct plan *plan)
{
    static const char doing[] = "describe";
    static const cublasLtMatmulDescAttributes_t transpose[] = {CUBLASLT_MATMUL_DESC_TRANSA,
                                                               CUBLASLT_MATMUL_DESC_TRANSB};
    const struct key *key = &plan->key;
    const struct operation *operation = operation_of(key->kernel);
    const int32_t sms = gemm->sms;
    PP_TRY(check(cublasLtMatmulDescCreate(&plan->product, arithmetic[key->precision].compute, CUDA_R_32F), key, doing));
    for (int i = 0; i < 2; i++) {
        const int32_t op = (int32_t)operation->transpose[i];
        PP_TRY(check(cublasLtMatmulDescSetAttribute(plan->product, transpose[i], &op, sizeof op), key, doing));
    }
    PP_TRY(check(cublasLtMatmulDescSetAttribute(plan->product, CUBLASLT_MATMUL_DESC_SM_COUNT_TARGET, &sms, sizeof sms),
                 key, doing));
    for (int i = 0; i < OPERANDS; i++) {
        const int rows = size_of(key, operation->shape[i].rows), columns = size_of(key, operation->shape[i].columns);
        PP_TRY(check(
            cublasLtMatrixLayoutCreate(&plan->layout[i], type_of(key, i), (uint64_t)rows, (uint64_t)columns, rows), key,
            doing));
    }
    return PP_OK;
}

static pp_status set_preferences(cublasLtMatmulPreference_t preference, const struct key *key)
{
    /* Other schemes round parts of a sum to the type of C. */
    const uint32_t reductions = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    const uint64_t workspace = PP_CUDA_GEMM_WORKSPACE_BYTES;
    const uint32_t first = (uint32_t)key->alignment[FIRST], second = (uint32_t)key->alignment[SECOND],
                   result = (uint32_t)key->alignment[RESULT];
    const struct {
        cublasLtMatmulPreferenceAttributes_t attribute;
        const void *value;
        size_t bytes;
    } settings[] = {
        {CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace, sizeof workspace},
        {CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &reductions, sizeof reductions},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, &first, sizeof first},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, &second, sizeof second},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, &result, sizeof result},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, &result, sizeof result},
    };
    for (size_t i = 0; i < sizeof settings / sizeof settings[0]; i++)
        PP_TRY(check(cublasLtMatmulPreferenceSetAttribute(preference, settings[i].attribute, settings[i].value,
                                                          settings[i].bytes),
                     key, "set the preferences of"));
    return PP_OK;
}

/* The first algorithm that the heuristic names, whatever else it names: the choice does not depend on timing. */
static pp_status choose(const struct pp_cuda_gemm *gemm, cublasLtMatmulPreference_t preference, struct plan *plan)
{
    cublasLtMatmulHeuristicResult_t results[CANDIDATES];
    char text[96];
    int count = 0;
    PP_TRY(set_preferences(preference, &plan->key));
    const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(
        gemm->handle, plan->product, plan->layout[FIRST], plan->layout[SECOND], plan->layout[RESULT],
        plan->layout[RESULT], preference, CANDIDATES, results, &count);
    if (status != CUBLAS_STATUS_NOT_SUPPORTED) PP_TRY(check(status, &plan->key, "choose an algorithm for"));
    for (int i = 0; i < count && status == CUBLAS_STATUS_SUCCESS; i++)
        if (results[i].state == CUBLAS_STATUS_SUCCESS && results[i].workspaceSize <= PP_CUDA_GEMM_WORKSPACE_BYTES) {
            plan->algorithm = results[i].algo;
            plan->workspace_bytes = results[i].workspaceSize;
            return PP_OK;
        }
    return pp_fail(PP_UNSUPPORTED, "%s has no algorithm for %s on this device: use another --precision", gemm->text,
                   key_text(&plan->key, text, sizeof text));
}

static pp_status plan_fill(const struct pp_cuda_gemm *gemm, struct plan *plan)
{
    cublasLtMatmulPreference_t preference = NULL;
    PP_TRY(describe(gemm, plan));
    PP_TRY(check(cublasLtMatmulPreferenceCreate(&preference), &plan->key, "choose an algorithm for"));
    const pp_status status = choose(gemm, preference, plan);
    cublasLtMatmulPreferenceDestroy(preference);
    return status;
}

static pp_status make_room(struct pp_cuda_gemm *gemm)
{
    if (gemm->nplans < gemm->room) return PP_OK;
    const int room = gemm->room ? 2 * gemm->room : 32;
    struct plan *plans;
    PP_TRY(PP_NEW(&plans, room));
    if (gemm->nplans) memcpy(plans, gemm->plans, sizeof *plans * (size_t)gemm->nplans);
    free(gemm->plans);
    gemm->plans = plans;
    gemm->room = room;
    return PP_OK;
}

static struct plan *plan_find(const struct pp_cuda_gemm *gemm, const struct key *key)
{
    for (int i = 0; i < gemm->nplans; i++)
        if (!memcmp(&gemm->plans[i].key, key, sizeof *key)) return &gemm->plans[i];
    return NULL;
}

static pp_status plan_make(struct pp_cuda_gemm *gemm, const struct key *key, struct plan **out)
{
    PP_TRY(make_room(gemm));
    struct plan *plan = &gemm->plans[gemm->nplans];
    *plan = (struct plan){.key = *key};
    const pp_status status = plan_fill(gemm, plan);
    if (status != PP_OK) {
        plan_free(plan);
        return status;
    }
    gemm->nplans++;
    *out = plan;
    return PP_OK;
}

/* where: of the operands in pp_call's order, addresses or offsets, with whatever is added to them. */
static struct key key_of(const struct pp_call *call, const uint64_t *where)
{
    struct key key = {.kernel = call->kernel,
                      .m = call->n[0],
                      .n = call->n[1],
                      .k = call->n[2],
                      .precision = call->precision,
                      .wide = call->precision == PP_BF16 && call->n[4]};
    const struct operation *operation = operation_of(call->kernel);
    for (int i = 0; i < OPERANDS; i++) {
        const uint64_t pitch = (uint64_t)size_of(&key, operation->shape[i].rows) * (uint64_t)bytes_of(type_of(&key, i));
        const uint64_t bits = where[operand_of[i]] | pitch | MOST_ALIGNMENT;
        key.alignment[i] = (int)(bits & -bits);
    }
    return key;
}

static pp_status multiply(const struct pp_cuda_gemm *gemm, const struct plan *plan, void *const *p, float beta,
                          cudaStream_t stream)
{
    const float alpha = 1;
    void *c = p[operand_of[RESULT]];
    return check(cublasLtMatmul(gemm->handle, plan->product, &alpha, p[operand_of[FIRST]], plan->layout[FIRST],
                                p[operand_of[SECOND]], plan->layout[SECOND], &beta, c, plan->layout[RESULT], c,
                                plan->layout[RESULT], &plan->algorithm, gemm->workspace, plan->workspace_bytes, stream),
                 &plan->key, "run");
}

/* Runs it on zeros; all operands share one piece of memory, for nobody reads the result. */
static pp_status load(const struct pp_cuda_gemm *gemm, const struct plan *plan, cudaStream_t stream)
{
    const struct operation *operation = operation_of(plan->key.kernel);
    size_t most = 0;
    for (int i = 0; i < OPERANDS; i++) {
        const size_t bytes = (size_t)size_of(&plan->key, operation->shape[i].rows) *
                             (size_t)size_of(&plan->key, operation->shape[i].columns) *
                             (size_t)bytes_of(type_of(&plan->key, i));
        most = bytes > most ? bytes : most;
    }
    void *memory;
    if (cudaMalloc(&memory, most) != cudaSuccess) {
        cudaGetLastError(); /* else the next launch would report it */
        return PP_OK;
    }
    void *const p[OPERANDS] = {memory, memory, memory};
    cudaError_t error = cudaMemsetAsync(memory, 0, most, stream);
    pp_status status = error == cudaSuccess ? multiply(gemm, plan, p, 0, stream) : PP_OK;
    if (error == cudaSuccess) error = cudaStreamSynchronize(stream);
    cudaFree(memory);
    if (status == PP_OK && error != cudaSuccess)
        status = pp_fail(PP_IO, "the first product on the device failed: %s", cudaGetErrorString(error));
    return status;
}

pp_status pp_cuda_gemm_prepare(struct pp_cuda_gemm *gemm, const struct pp_call *call, cudaStream_t stream)
{
    if (!operation_of(call->kernel)) return PP_OK;
    uint64_t where[OPERANDS];
    for (int i = 0; i < OPERANDS; i++) where[i] = (uint64_t)call->ref[i].offset | (uint64_t)call->ref[i].row_bytes;
    const struct key key = key_of(call, where);
    struct plan *plan;
    if (plan_find(gemm, &key)) return PP_OK;
    PP_TRY(plan_make(gemm, &key, &plan));
    return load(gemm, plan, stream);
}

pp_status pp_cuda_gemm_run(const struct pp_cuda_call *c)
{
    uint64_t where[OPERANDS];
    for (int i = 0; i < OPERANDS; i++) where[i] = (uint64_t)(uintptr_t)c->p[i];
    const struct key key = key_of(c->call, where);
    struct plan *plan = plan_find(c->gemm, &key);
    if (!plan) PP_TRY(plan_make(c->gemm, &key, &plan));
    const int mode = c->call->n[3];
    const bool add = mode == PP_GEMM_ADD || (mode == PP_GEMM_BY_FRAME && c->frame->accumulate);
    return multiply(c->gemm, plan, c->p, add ? 1 : 0, c->stream);
}

static cudaError_t launch(const struct pp_cuda_call *c)
{
    return pp_cuda_gemm_run(c) == PP_OK ? cudaSuccess : cudaErrorUnknown;
}

cudaError_t pp_cuda_gemm_nt(const struct pp_cuda_call *c) { return launch(c); }
cudaError_t pp_cuda_gemm_nn(const struct pp_cuda_call *c) { return launch(c); }
cudaError_t pp_cuda_gemm_tn(const struct pp_cuda_call *c) { return launch(c); }
