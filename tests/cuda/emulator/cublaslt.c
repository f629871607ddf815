/* SPDX-License-Identifier: Apache-2.0
 *
 * cublasLt's handles and descriptors.
 */
#include "cublaslt.h"

#include <stdlib.h>
#include <string.h>

cublasStatus_t pp_emu_cublas_enter(const char *function)
{
    const cudaError_t error = pp_emu_enter(function);
    if (error == cudaSuccess) return CUBLAS_STATUS_SUCCESS;
    if (!pp_emu_settings()->driver || !pp_emu_settings()->devices) return CUBLAS_STATUS_NOT_INITIALIZED;
    return (int)error <= CUBLAS_STATUS_LICENSE_ERROR ? (cublasStatus_t)error : CUBLAS_STATUS_EXECUTION_FAILED;
}

static const struct {
    cublasStatus_t status;
    const char *name, *text;
} statuses[] = {
#define S(status, text)                                                                                                \
    {                                                                                                                  \
        status, #status, text                                                                                          \
    }
    S(CUBLAS_STATUS_SUCCESS, "success"),
    S(CUBLAS_STATUS_NOT_INITIALIZED, "the library was not initialized"),
    S(CUBLAS_STATUS_ALLOC_FAILED, "resource allocation failed"),
    S(CUBLAS_STATUS_INVALID_VALUE, "an unsupported value or parameter was passed to the function"),
    S(CUBLAS_STATUS_ARCH_MISMATCH, "the function requires a feature absent from the device architecture"),
    S(CUBLAS_STATUS_EXECUTION_FAILED, "the GPU program failed to execute"),
    S(CUBLAS_STATUS_INTERNAL_ERROR, "an internal operation failed"),
    S(CUBLAS_STATUS_NOT_SUPPORTED, "the functionality requested is not supported"),
#undef S
};

const char *cublasLtGetStatusName(cublasStatus_t status)
{
    for (size_t i = 0; i < sizeof(statuses) / sizeof(*statuses); i++) {
        if (statuses[i].status == status) return statuses[i].name;
    }
    return "CUBLAS_STATUS_UNKNOWN";
}

const char *cublasLtGetStatusString(cublasStatus_t status)
{
    for (size_t i = 0; i < sizeof(statuses) / sizeof(*statuses); i++) {
        if (statuses[i].status == status) return statuses[i].text;
    }
    return "unknown";
}

size_t cublasLtGetVersion(void) { return 130100; }

cublasStatus_t cublasLtCreate(cublasLtHandle_t *out)
{
    const cublasStatus_t status = pp_emu_cublas_enter(__func__);
    if (status != CUBLAS_STATUS_SUCCESS) return status;
    *out = malloc(sizeof(**out));
    if (!*out) return CUBLAS_STATUS_ALLOC_FAILED;
    (*out)->device = pp_emu_current();
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle)
{
    free(handle);
    return CUBLAS_STATUS_SUCCESS;
}

/* ---- descriptors ---- */

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *out, cublasComputeType_t compute, cudaDataType_t scale)
{
    struct product *p = calloc(1, sizeof(cublasLtMatmulDescOpaque_t));
    if (!p) return CUBLAS_STATUS_ALLOC_FAILED;
    if (scale != CUDA_R_32F || (compute != CUBLAS_COMPUTE_32F && compute != CUBLAS_COMPUTE_32F_FAST_TF32)) {
        free(p);
        return CUBLAS_STATUS_NOT_SUPPORTED;
    }
    *p = (struct product){.compute = compute, .transpose = {CUBLAS_OP_N, CUBLAS_OP_N}};
    *out = (cublasLtMatmulDesc_t)p;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t desc)
{
    free(desc);
    return CUBLAS_STATUS_SUCCESS;
}

/* One attribute of a descriptor: where it goes, and how long it is. */
struct attribute {
    int id;
    size_t offset, bytes;
};

static cublasStatus_t set(const char *function, const struct attribute *table, size_t n, void *to, int id,
                          const void *value, size_t bytes)
{
    for (size_t i = 0; i < n; i++) {
        if (table[i].id != id) continue;
        if (table[i].bytes != bytes) return CUBLAS_STATUS_INVALID_VALUE;
        memcpy((char *)to + table[i].offset, value, bytes);
        return CUBLAS_STATUS_SUCCESS;
    }
    pp_emu_complain("%s: attribute %d is not emulated", function, id);
    return CUBLAS_STATUS_INVALID_VALUE;
}

#define ATTRIBUTE(id, type, member)                                                                                    \
    {                                                                                                                  \
        id, offsetof(struct type, member), sizeof(((struct type *)NULL)->member)                                       \
    }
#define SET(table, to) set(__func__, table, sizeof(table) / sizeof(*table), to, (int)attribute, value, bytes)

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t desc, cublasLtMatmulDescAttributes_t attribute,
                                              const void *value, size_t bytes)
{
    static const struct attribute table[] = {ATTRIBUTE(CUBLASLT_MATMUL_DESC_TRANSA, product, transpose[0]),
                                             ATTRIBUTE(CUBLASLT_MATMUL_DESC_TRANSB, product, transpose[1]),
                                             ATTRIBUTE(CUBLASLT_MATMUL_DESC_SM_COUNT_TARGET, product, sms),
                                             ATTRIBUTE(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, product, scale[0]),
                                             ATTRIBUTE(CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, product, scale[1]),
                                             ATTRIBUTE(CUBLASLT_MATMUL_DESC_FAST_ACCUM, product, fast)};
    return SET(table, desc);
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *out, cudaDataType type, uint64_t rows,
                                          uint64_t columns, int64_t ld)
{
    struct layout *l = calloc(1, sizeof(cublasLtMatrixLayoutOpaque_t));
    if (!l) return CUBLAS_STATUS_ALLOC_FAILED;
    *l = (struct layout){
        .type = type, .order = CUBLASLT_ORDER_COL, .rows = rows, .columns = columns, .ld = ld, .batches = 1};
    *out = (cublasLtMatrixLayout_t)l;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout)
{
    free(layout);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t layout,
                                                cublasLtMatrixLayoutAttribute_t attribute, const void *value,
                                                size_t bytes)
{
    static const struct attribute table[] = {ATTRIBUTE(CUBLASLT_MATRIX_LAYOUT_TYPE, layout, type),
                                             ATTRIBUTE(CUBLASLT_MATRIX_LAYOUT_ORDER, layout, order),
                                             ATTRIBUTE(CUBLASLT_MATRIX_LAYOUT_ROWS, layout, rows),
                                             ATTRIBUTE(CUBLASLT_MATRIX_LAYOUT_COLS, layout, columns),
                                             ATTRIBUTE(CUBLASLT_MATRIX_LAYOUT_LD, layout, ld),
                                             ATTRIBUTE(CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, layout, batches),
                                             ATTRIBUTE(CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, layout, stride)};
    return SET(table, layout);
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *out)
{
    struct preference *p = calloc(1, sizeof(cublasLtMatmulPreferenceOpaque_t));
    if (!p) return CUBLAS_STATUS_ALLOC_FAILED;
    *p = (struct preference){.reductions = CUBLASLT_REDUCTION_SCHEME_MASK, .alignment = {256, 256, 256, 256}};
    *out = (cublasLtMatmulPreference_t)p;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference)
{
    free(preference);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t attribute, const void *value,
                                                    size_t bytes)
{
    static const struct attribute table[] = {
        ATTRIBUTE(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, preference, workspace),
        ATTRIBUTE(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, preference, reductions),
        ATTRIBUTE(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, preference, alignment[0]),
        ATTRIBUTE(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, preference, alignment[1]),
        ATTRIBUTE(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, preference, alignment[2]),
        ATTRIBUTE(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, preference, alignment[3])};
    return SET(table, preference);
}
