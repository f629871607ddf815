/* SPDX-License-Identifier: Apache-2.0
 *
 * cublasLt stores matrices column by column, we row by row. So the memory of our C [m,n] is, for cublasLt, the
 * transposed matrix C' [n,m], and our C = op(A) op(B) is its C' = op(B)' op(A)'. Therefore our B is its first factor,
 * and a matrix that our product transposes is one that cublasLt does not transpose, and the other way round.
 */
#include "kernels/cuda/gemm_plan.h"

#include <stdio.h>

#include "kernels/cuda/tf32.h"

/* MOST_ALIGNMENT: no algorithm asks for more bytes, since a thread loads 16 at most. ODD_ALIGNMENT: of bfloat16 at an
 * odd index, which a library may refuse. OFFERS: so many algorithms the heuristic is asked for, of which one that runs
 * is taken. */
enum { MOST_ALIGNMENT = 16, ODD_ALIGNMENT = 2, OFFERS = 8 };

/* Each operation as cublasLt sees it. rows: of a matrix in cublasLt's sense, which is also its leading dimension. */
enum size { SIZE_M, SIZE_N, SIZE_K };
struct operation {
    int kernel;
    cublasOperation_t transpose[2]; /* first, second */
    struct {
        enum size rows, columns;
    } shape[PP_GEMM_OPERANDS];
};

static const struct operation operations[] = {
    {PP_KERNEL_GEMM_NT, {CUBLAS_OP_T, CUBLAS_OP_N}, {{SIZE_K, SIZE_N}, {SIZE_K, SIZE_M}, {SIZE_N, SIZE_M}}},
    {PP_KERNEL_GEMM_FP8, {CUBLAS_OP_T, CUBLAS_OP_N}, {{SIZE_K, SIZE_N}, {SIZE_K, SIZE_M}, {SIZE_N, SIZE_M}}},
    {PP_KERNEL_GEMM_NN, {CUBLAS_OP_N, CUBLAS_OP_N}, {{SIZE_N, SIZE_K}, {SIZE_K, SIZE_M}, {SIZE_N, SIZE_M}}},
    {PP_KERNEL_GEMM_TN, {CUBLAS_OP_N, CUBLAS_OP_T}, {{SIZE_N, SIZE_K}, {SIZE_M, SIZE_K}, {SIZE_N, SIZE_M}}},
};

const int pp_gemm_operand_of[PP_GEMM_ADDRESSES] = {[PP_GEMM_FIRST] = PP_OPERAND(gemm, b),
                                                   [PP_GEMM_SECOND] = PP_OPERAND(gemm, a),
                                                   [PP_GEMM_RESULT] = PP_OPERAND(gemm, c),
                                                   [PP_GEMM_FIRST_SCALE] = PP_OPERAND(gemm_fp8, scale_b),
                                                   [PP_GEMM_SECOND_SCALE] = PP_OPERAND(gemm_fp8, scale_a)};

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

static bool is_fp8(const struct pp_gemm_key *key) { return key->kernel == PP_KERNEL_GEMM_FP8; }

static int size_of(const struct pp_gemm_key *key, enum size size)
{
    const int sizes[] = {[SIZE_M] = key->m, [SIZE_N] = key->n, [SIZE_K] = key->k};
    return sizes[size];
}

static cudaDataType_t type_of(const struct pp_gemm_key *key, int operand)
{
    const bool factor = operand != PP_GEMM_RESULT;
    if (factor && is_fp8(key)) return operand == PP_GEMM_SECOND && key->gradient ? CUDA_R_8F_E5M2 : CUDA_R_8F_E4M3;
    return !factor && key->wide ? CUDA_R_32F : arithmetic[key->precision].type;
}

static int bytes_of(cudaDataType_t type)
{
    const bool fp8 = type == CUDA_R_8F_E4M3 || type == CUDA_R_8F_E5M2;
    return fp8 ? 1 : type == CUDA_R_16BF ? 2 : 4;
}

static const char *key_text(const struct pp_gemm_key *key, char *buf, size_t size)
{
    char times[24] = "";
    if (key->times > 1) snprintf(times, sizeof times, " times%d", key->times);
    snprintf(buf, size, "%s %dx%dx%d%s%s in %s", pp_kernel_table[key->kernel].name, key->m, key->n, key->k, times,
             key->gradient ? " e5m2" : "", pp_precision_names[is_fp8(key) ? PP_FP8 : key->precision]);
    return buf;
}

pp_status pp_gemm_check(cublasStatus_t status, const struct pp_gemm_key *key, const char *doing)
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

void pp_gemm_plan_free(struct pp_gemm_plan *plan)
{
    for (int i = 0; i < PP_GEMM_OPERANDS; i++)
        if (plan->layout[i]) cublasLtMatrixLayoutDestroy(plan->layout[i]);
    if (plan->product) cublasLtMatmulDescDestroy(plan->product);
}

/* Elements of one matrix of the operand. */
static int64_t elements_of(const struct pp_gemm_key *key, int operand)
{
    const struct operation *operation = operation_of(key->kernel);
    return (int64_t)size_of(key, operation->shape[operand].rows) * size_of(key, operation->shape[operand].columns);
}

/* Describes an operand of several matrices (key.times), which lie in memory one behind the other. */
static pp_status describe_times(const struct pp_gemm_plan *plan, int operand, const char *doing)
{
    const int32_t times = plan->key.times;
    const int64_t stride = elements_of(&plan->key, operand);
    PP_TRY(pp_gemm_check(cublasLtMatrixLayoutSetAttribute(plan->layout[operand], CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT,
                                                          &times, sizeof times),
                         &plan->key, doing));
    return pp_gemm_check(cublasLtMatrixLayoutSetAttribute(plan->layout[operand],
                                                          CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &stride,
                                                          sizeof stride),
                         &plan->key, doing);
}

/* Tensor cores add FP8 products in fewer bits than float32 has, unless they are told to add the parts of a sum in
 * float32 now and then, which takes longer. Products of gradients are told so, others are not, as in Transformer
 * Engine. */
static pp_status describe_sums(const struct pp_gemm_plan *plan, const char *doing)
{
    const int8_t fast = !plan->key.gradient;
    if (!is_fp8(&plan->key)) return PP_OK;
    return pp_gemm_check(
        cublasLtMatmulDescSetAttribute(plan->product, CUBLASLT_MATMUL_DESC_FAST_ACCUM, &fast, sizeof fast), &plan->key,
        doing);
}

pp_status pp_gemm_describe(const struct pp_cuda_gemm *gemm, struct pp_gemm_plan *plan)
{
    static const char doing[] = "describe";
    static const cublasLtMatmulDescAttributes_t transpose[] = {CUBLASLT_MATMUL_DESC_TRANSA,
                                                               CUBLASLT_MATMUL_DESC_TRANSB};
    const struct pp_gemm_key *key = &plan->key;
    const struct operation *operation = operation_of(key->kernel);
    const int32_t sms = gemm->sms;
    PP_TRY(pp_gemm_check(cublasLtMatmulDescCreate(&plan->product, arithmetic[key->precision].compute, CUDA_R_32F), key,
                         doing));
    for (int i = 0; i < 2; i++) {
        const int32_t op = (int32_t)operation->transpose[i];
        PP_TRY(pp_gemm_check(cublasLtMatmulDescSetAttribute(plan->product, transpose[i], &op, sizeof op), key, doing));
    }
    PP_TRY(pp_gemm_check(
        cublasLtMatmulDescSetAttribute(plan->product, CUBLASLT_MATMUL_DESC_SM_COUNT_TARGET, &sms, sizeof sms), key,
        doing));
    PP_TRY(describe_sums(plan, doing));
    for (int i = 0; i < PP_GEMM_OPERANDS; i++) {
        const int rows = size_of(key, operation->shape[i].rows), columns = size_of(key, operation->shape[i].columns);
        PP_TRY(pp_gemm_check(
            cublasLtMatrixLayoutCreate(&plan->layout[i], type_of(key, i), (uint64_t)rows, (uint64_t)columns, rows), key,
            doing));
        if (key->times > 1) PP_TRY(describe_times(plan, i, doing));
    }
    return PP_OK;
}

/* The questions that the heuristic is asked, in this order, until it offers something: for the worker's number of
 * multiprocessors; for all of the device; and, last, also for algorithms that split sums in parts which are rounded to
 * the type of C. */
static const struct question {
    bool whole_device;
    uint32_t reductions;
} questions[] = {
    {false, CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE},
    {true, CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE},
    {true, CUBLASLT_REDUCTION_SCHEME_MASK},
};
enum { QUESTIONS = sizeof questions / sizeof questions[0] };

static pp_status set_preferences(cublasLtMatmulPreference_t preference, const struct pp_gemm_key *key,
                                 uint32_t reductions)
{
    const uint64_t workspace = PP_CUDA_GEMM_WORKSPACE_BYTES;
    const uint32_t first = (uint32_t)key->alignment[PP_GEMM_FIRST], second = (uint32_t)key->alignment[PP_GEMM_SECOND],
                   result = (uint32_t)key->alignment[PP_GEMM_RESULT];
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
        PP_TRY(pp_gemm_check(cublasLtMatmulPreferenceSetAttribute(preference, settings[i].attribute, settings[i].value,
                                                                  settings[i].bytes),
                             key, "set the preferences of"));
    return PP_OK;
}

static const char choosing[] = "choose an algorithm for";

/* Does the status mean that there is no algorithm? For an odd address of bfloat16 a library may answer "invalid value"
 * in place of "not supported". */
static bool has_none(cublasStatus_t status, const struct pp_gemm_key *key)
{
    bool odd = false;
    for (int i = 0; i < PP_GEMM_OPERANDS; i++) odd = odd || key->alignment[i] <= ODD_ALIGNMENT;
    return status == CUBLAS_STATUS_NOT_SUPPORTED || (status == CUBLAS_STATUS_INVALID_VALUE && odd);
}

static pp_status ask_with(const struct pp_cuda_gemm *gemm, const struct pp_gemm_plan *plan,
                          cublasLtMatmulPreference_t preference, const struct question *question, int most,
                          cublasLtMatmulHeuristicResult_t *out, int *n)
{
    const int32_t sms = question->whole_device ? 0 : gemm->sms;
    int count = 0;
    *n = 0;
    PP_TRY(pp_gemm_check(
        cublasLtMatmulDescSetAttribute(plan->product, CUBLASLT_MATMUL_DESC_SM_COUNT_TARGET, &sms, sizeof sms),
        &plan->key, choosing));
    PP_TRY(set_preferences(preference, &plan->key, question->reductions));
    const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(
        gemm->handle, plan->product, plan->layout[PP_GEMM_FIRST], plan->layout[PP_GEMM_SECOND],
        plan->layout[PP_GEMM_RESULT], plan->layout[PP_GEMM_RESULT], preference, most, out, &count);
    if (has_none(status, &plan->key)) return PP_OK;
    PP_TRY(pp_gemm_check(status, &plan->key, choosing));
    for (int i = 0; i < count; i++)
        if (out[i].state == CUBLAS_STATUS_SUCCESS && out[i].workspaceSize <= PP_CUDA_GEMM_WORKSPACE_BYTES)
            out[(*n)++] = out[i];
    return PP_OK;
}

static pp_status ask(const struct pp_cuda_gemm *gemm, const struct pp_gemm_plan *plan, const struct question *question,
                     int most, cublasLtMatmulHeuristicResult_t *out, int *n)
{
    cublasLtMatmulPreference_t preference = NULL;
    PP_TRY(pp_gemm_check(cublasLtMatmulPreferenceCreate(&preference), &plan->key, choosing));
    const pp_status status = ask_with(gemm, plan, preference, question, most, out, n);
    cublasLtMatmulPreferenceDestroy(preference);
    return status;
}

pp_status pp_gemm_candidates(const struct pp_cuda_gemm *gemm, const struct pp_gemm_plan *plan, int most,
                             cublasLtMatmulHeuristicResult_t *out, int *n)
{
    return ask(gemm, plan, &questions[0], most, out, n);
}

/* Takes the file's algorithm. cublasLtMatmulAlgoCheck refuses one that is of another product or device: the error is
 * reported here, not in a step. */
static pp_status take(const struct pp_cuda_gemm *gemm, const struct pp_algorithm *given, struct pp_gemm_plan *plan)
{
    cublasLtMatmulHeuristicResult_t result = {0};
    char text[96];
    const cublasStatus_t status =
        cublasLtMatmulAlgoCheck(gemm->handle, plan->product, plan->layout[PP_GEMM_FIRST], plan->layout[PP_GEMM_SECOND],
                                plan->layout[PP_GEMM_RESULT], plan->layout[PP_GEMM_RESULT], &given->algorithm, &result);
    if (status != CUBLAS_STATUS_SUCCESS || result.state != CUBLAS_STATUS_SUCCESS ||
        result.workspaceSize > PP_CUDA_GEMM_WORKSPACE_BYTES)
        return pp_fail(PP_INPUT,
                       "--algorithms: %s, line %d: cuBLAS does not take this algorithm for %s: let ppprof "
                       "measure into another file",
                       gemm->algorithms.path, given->line, key_text(&plan->key, text, sizeof text));
    plan->algorithm = given->algorithm;
    plan->workspace_bytes = result.workspaceSize;
    return PP_OK;
}

pp_status pp_gemm_choose(const struct pp_cuda_gemm *gemm, struct pp_gemm_plan *plan)
{
    cublasLtMatmulHeuristicResult_t results[OFFERS];
    char text[96];
    int n = 0;
    const struct pp_algorithm *given = pp_algorithms_find(&gemm->algorithms, &plan->key, gemm->sms);
    if (given) return take(gemm, given, plan);
    for (int i = 0; i < QUESTIONS && n == 0; i++) PP_TRY(ask(gemm, plan, &questions[i], OFFERS, results, &n));
    if (n == 0)
        return pp_fail(PP_UNSUPPORTED, "%s has no algorithm for %s on this device: use another --precision", gemm->text,
                       key_text(&plan->key, text, sizeof text));
    plan->algorithm = results[0].algo;
    plan->workspace_bytes = results[0].workspaceSize;
    return PP_OK;
}

struct pp_gemm_key pp_gemm_key_of(const struct pp_call *call, const uint64_t *where)
{
    const struct pp_gemm_dims *n = &call->gemm;
    struct pp_gemm_key key = {.kernel = call->kernel,
                              .m = n->m,
                              .n = n->n,
                              .k = n->k,
                              .times = PP_TIMES(&call->gemm),
                              .precision = call->precision,
                              .wide = call->precision == PP_BF16 && n->wide,
                              .gradient = n->gradient};
    const struct operation *operation = operation_of(call->kernel);
    for (int i = 0; i < PP_GEMM_OPERANDS; i++) {
        /* Rows are as aligned as the first address and the length of a row, `pitch`, allow; the next matrix of several
         * begins behind whole rows, so the same holds for it. */
        const uint64_t pitch = (uint64_t)size_of(&key, operation->shape[i].rows) * (uint64_t)bytes_of(type_of(&key, i));
        const uint64_t bits = where[pp_gemm_operand_of[i]] | pitch | MOST_ALIGNMENT;
        key.alignment[i] = (int)(bits & -bits);
    }
    return key;
}

struct pp_gemm_key pp_gemm_key_of_offsets(const struct pp_call *call)
{
    uint64_t where[PP_GEMM_OPERANDS];
    for (int i = 0; i < PP_GEMM_OPERANDS; i++)
        where[i] = (uint64_t)call->ref[i].offset | (uint64_t)call->ref[i].row_bytes;
    return pp_gemm_key_of(call, where);
}

int pp_gemm_own_rows(const struct pp_cuda_gemm *gemm, const struct pp_call *call, const struct pp_gemm_key *key,
                     int64_t scratch_bytes)
{
    if (gemm->hopper_sms == 0 || pp_algorithms_find(&gemm->algorithms, key, gemm->sms)) return 0;
    for (int i = 0; i < PP_GEMM_OPERANDS; i++)
        if (key->alignment[i] < PP_TF32_ALIGNMENT) return 0;
    return pp_tf32_gains(call, gemm->hopper_sms) ? pp_tf32_rows(call, scratch_bytes) : 0;
}

int64_t pp_gemm_operand_bytes(const struct pp_gemm_key *key, int operand)
{
    return elements_of(key, operand) * key->times * bytes_of(type_of(key, operand));
}

/* Names the scales of this product. The plan is the worker's own, and cublasLtMatmul() keeps what it reads of it: the
 * next product may name others at once. */
static pp_status set_scales(const struct pp_gemm_plan *plan, void *const *p)
{
    static const cublasLtMatmulDescAttributes_t scales[] = {[PP_GEMM_FIRST] = CUBLASLT_MATMUL_DESC_A_SCALE_POINTER,
                                                            [PP_GEMM_SECOND] = CUBLASLT_MATMUL_DESC_B_SCALE_POINTER};
    for (int i = PP_GEMM_FIRST; i <= PP_GEMM_SECOND && is_fp8(&plan->key); i++) {
        const void *scale = p[PP_GEMM_FIRST_SCALE + i];
        PP_TRY(pp_gemm_check(cublasLtMatmulDescSetAttribute(plan->product, scales[i], &scale, sizeof scale), &plan->key,
                             "scale the factors of"));
    }
    return PP_OK;
}

pp_status pp_gemm_multiply(const struct pp_cuda_gemm *gemm, const struct pp_gemm_plan *plan, void *const *p, float beta,
                           cudaStream_t stream)
{
    const float alpha = 1;
    void *c = p[PP_GEMM_RESULT];
    PP_TRY(set_scales(plan, p));
    return pp_gemm_check(cublasLtMatmul(gemm->handle, plan->product, &alpha, p[PP_GEMM_FIRST],
                                        plan->layout[PP_GEMM_FIRST], p[PP_GEMM_SECOND], plan->layout[PP_GEMM_SECOND],
                                        &beta, c, plan->layout[PP_GEMM_RESULT], c, plan->layout[PP_GEMM_RESULT],
                                        &plan->algorithm, gemm->workspace, plan->workspace_bytes, stream),
                         &plan->key, "run");
}
