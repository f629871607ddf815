/* SPDX-License-Identifier: Apache-2.0
 *
 * cublasLt's products: float32, bfloat16 and FP8, summed in float32, one element after another. tf32 reads the first 10
 * bits of the factors. Of fast sums of FP8 products 13 bits are kept in the end. What it checks is what the real one
 * would refuse, or what would make it crash.
 */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cublaslt.h"
#include "cublaslt_number.h"
#include "tf32.h"

enum {
    A,
    B,
    C,
    D,
    MATRICES,
    FACTORS = C,
    WIDEST_LOAD = 16,
    WORKSPACE_BYTES = 1 << 14,
    MAGIC = 0x7e57a160,
    FP8_CAPABILITY = 89
};

/* In cublasLtMatmulAlgo_t: what it was chosen for. */
struct algorithm {
    uint32_t magic, shape; /* a hash */
    uint64_t workspace;
    uint16_t alignment[MATRICES];
    uint32_t parts; /* of a sum, added up by themselves */
};

/* What the heuristic offers, the best first. Each gives other bits. */
static const struct {
    uint64_t workspace;
    uint32_t parts;
} offers[] = {{WORKSPACE_BYTES, 1}, {0, 2}, {WORKSPACE_BYTES, 3}, {0, 5}};

struct multiplication {
    struct pp_emu_op op;
    struct product product;
    struct layout layout[MATRICES];
    const void *p[MATRICES];
    void *to, *workspace;
    size_t workspace_bytes;
    uint32_t parts;
    float alpha, beta;
};

static size_t element_bytes(const struct layout *l) { return pp_emu_number_bytes(l->type); }

/* Bytes of one matrix, from its first element to its last. */
static size_t matrix_bytes(const struct layout *l)
{
    const uint64_t lines = l->order == CUBLASLT_ORDER_ROW ? l->rows : l->columns;
    const uint64_t length = l->order == CUBLASLT_ORDER_ROW ? l->columns : l->rows;
    return lines && length ? ((lines - 1) * (uint64_t)l->ld + length) * element_bytes(l) : 0;
}

static size_t stride_bytes(const struct layout *l) { return (uint64_t)l->stride * element_bytes(l); }

/* Of all its matrices. */
static size_t extent(const struct layout *l) { return (size_t)(l->batches - 1) * stride_bytes(l) + matrix_bytes(l); }

static uint64_t place(const struct layout *l, uint64_t row, uint64_t column)
{
    return l->order == CUBLASLT_ORDER_ROW ? row * (uint64_t)l->ld + column : column * (uint64_t)l->ld + row;
}

static float get(const struct layout *l, const void *p, uint64_t row, uint64_t column)
{
    return pp_emu_get_number(l->type, p, place(l, row, column));
}

/* op(matrix) as float, rows or columns one behind the other: out[outer][inner]. */
static float *unpack(const struct multiplication *x, int which, bool columns_first)
{
    const struct layout *l = &x->layout[which];
    const bool transposed = x->product.transpose[which] != CUBLAS_OP_N;
    const uint64_t rows = transposed ? l->columns : l->rows, columns = transposed ? l->rows : l->columns;
    const bool rounds = x->product.compute == CUBLAS_COMPUTE_32F_FAST_TF32;
    float *out = malloc((rows * columns + 1) * sizeof(*out));
    if (!out) abort();
    for (uint64_t r = 0; r < rows; r++) {
        for (uint64_t c = 0; c < columns; c++) {
            const float f = transposed ? get(l, x->p[which], c, r) : get(l, x->p[which], r, c);
            out[columns_first ? c * rows + r : r * columns + c] = rounds ? pp_emu_tf32(f) : f;
        }
    }
    return out;
}

static bool has_fp8(const struct multiplication *x)
{
    return pp_emu_is_fp8(x->layout[A].type) || pp_emu_is_fp8(x->layout[B].type);
}

static void write_column(const struct multiplication *x, uint64_t j, const float *sum)
{
    const struct layout *d = &x->layout[D];
    for (uint64_t i = 0; i < d->rows; i++) {
        const bool fast = x->product.fast && has_fp8(x);
        float v = x->alpha * (fast ? pp_emu_cut_number(sum[i], PP_EMU_FAST_BITS) : sum[i]);
        if (x->beta != 0) v += x->beta * get(&x->layout[C], x->p[C], i, j);
        pp_emu_set_number(d->type, x->to, place(d, i, j), v);
    }
}

static void multiply_one(const struct multiplication *x)
{
    const struct layout *d = &x->layout[D];
    const bool transposed = x->product.transpose[A] != CUBLAS_OP_N;
    const uint64_t m = d->rows, n = d->columns, k = transposed ? x->layout[A].rows : x->layout[A].columns;
    float *a = unpack(x, A, true), *b = unpack(x, B, true), *sum = malloc((2 * m + 1) * sizeof(*sum)), *part = sum + m;
    if (!sum) abort();
    for (uint64_t j = 0; j < n; j++) {
        memset(sum, 0, m * sizeof(*sum));
        for (uint64_t p = 0; p < x->parts; p++) {
            memset(part, 0, m * sizeof(*part));
            for (uint64_t t = k * p / x->parts; t < k * (p + 1) / x->parts; t++) {
                const float f = b[j * k + t];
                for (uint64_t i = 0; i < m; i++) part[i] += a[t * m + i] * f;
            }
            for (uint64_t i = 0; i < m; i++) sum[i] += part[i];
        }
        write_column(x, j, sum);
    }
    free(a);
    free(b);
    free(sum);
}

/* The scales are read now, as operands are. */
static void multiply(const struct multiplication *x)
{
    struct multiplication one = *x;
    for (int i = 0; i < FACTORS; i++) one.alpha *= x->product.scale[i] ? *x->product.scale[i] : 1;
    for (int batch = 0; batch < x->layout[D].batches; batch++) {
        const size_t b = (size_t)batch;
        for (int i = 0; i < MATRICES; i++) one.p[i] = (const char *)x->p[i] + b * stride_bytes(&x->layout[i]);
        one.to = (char *)x->to + b * stride_bytes(&x->layout[D]);
        multiply_one(&one);
    }
}

static void run_multiplication(struct pp_emu_op *op, cudaStream_t stream, bool dead)
{
    struct multiplication *x = (struct multiplication *)op;
    (void)stream;
    if (!dead && x->workspace) memset(x->workspace, 0xff, x->workspace_bytes); /* other streams must not use it now */
    if (!dead) multiply(x);
    const int64_t late = x->parts == offers[0].parts ? pp_emu_settings()->first_offer_us : 0;
    if (!dead && late) nanosleep(&(struct timespec){.tv_sec = late / 1000000, .tv_nsec = late % 1000000 * 1000}, NULL);
    free(x);
}

static uint32_t shape_hash(const struct multiplication *x)
{
    uint64_t h = 0xcbf29ce484222325u;
    const uint64_t words[] = {(uint64_t)x->product.compute, (uint64_t)x->product.transpose[A],
                              (uint64_t)x->product.transpose[B], (uint64_t)x->product.fast};
    for (size_t i = 0; i < sizeof(words) / sizeof(*words); i++) h = (h ^ words[i]) * 0x100000001b3u;
    for (int i = 0; i < MATRICES; i++) {
        const struct layout *l = &x->layout[i];
        const uint64_t sizes[] = {(uint64_t)l->type,    (uint64_t)l->order, l->rows, l->columns, (uint64_t)l->ld,
                                  (uint64_t)l->batches, (uint64_t)l->stride};
        for (size_t s = 0; s < sizeof(sizes) / sizeof(*sizes); s++) h = (h ^ sizes[s]) * 0x100000001b3u;
    }
    return (uint32_t)(h ^ h >> 32);
}

static bool layout_fits(const struct layout *l)
{
    const uint64_t line = l->order == CUBLASLT_ORDER_ROW ? l->columns : l->rows;
    return l->rows && l->columns && l->ld >= (int64_t)line && element_bytes(l) > 0 &&
           (l->order == CUBLASLT_ORDER_ROW || l->order == CUBLASLT_ORDER_COL);
}

/* As many matrices of each; no result may lie where another does. */
static bool batches_fit(const struct multiplication *x)
{
    const struct layout *l = x->layout;
    for (int i = 0; i < MATRICES; i++)
        if (l[i].batches != l[D].batches || l[i].batches < 1 || l[i].stride < 0) return false;
    return l[D].batches == 1 || stride_bytes(&l[D]) >= matrix_bytes(&l[D]);
}

/* The one kind of FP8 product that cuBLAS documents, from compute capability 8.9 on: A' B of E4M3 and E4M3, or of E4M3
 * and E5M2, with columns of whole 16 bytes. */
static bool fp8_fits(const struct multiplication *x)
{
    const struct layout *l = x->layout;
    bool fits = l[A].type != l[B].type || l[A].type == CUDA_R_8F_E4M3;
    for (int i = 0; i < MATRICES; i++)
        fits = fits && pp_emu_is_fp8(l[i].type) == (i < FACTORS) && l[i].order == CUBLASLT_ORDER_COL &&
               l[i].rows * element_bytes(&l[i]) % WIDEST_LOAD == 0 &&
               (uint64_t)l[i].ld * element_bytes(&l[i]) % WIDEST_LOAD == 0;
    fits = fits && pp_emu_settings()->capability >= FP8_CAPABILITY;
    return fits && l[C].type == l[D].type && x->product.transpose[A] == CUBLAS_OP_T &&
           x->product.transpose[B] == CUBLAS_OP_N && x->product.compute == CUBLAS_COMPUTE_32F;
}

static bool types_fit(const struct multiplication *x)
{
    const struct layout *l = x->layout;
    const bool tf32 = x->product.compute == CUBLAS_COMPUTE_32F_FAST_TF32;
    if (has_fp8(x)) return fp8_fits(x);
    if (x->product.scale[A] || x->product.scale[B]) return false;
    return l[A].type == l[B].type && l[C].type == l[D].type && (l[A].type == CUDA_R_16BF || l[D].type == CUDA_R_32F) &&
           (!tf32 || l[A].type == CUDA_R_32F);
}

static cublasStatus_t check_shapes(const struct multiplication *x)
{
    const struct layout *l = x->layout;
    for (int i = 0; i < MATRICES; i++) {
        if (!layout_fits(&l[i])) return CUBLAS_STATUS_INVALID_VALUE;
    }
    uint64_t rows[2], columns[2];
    for (int i = A; i <= B; i++) {
        const bool transposed = x->product.transpose[i] != CUBLAS_OP_N;
        rows[i] = transposed ? l[i].columns : l[i].rows;
        columns[i] = transposed ? l[i].rows : l[i].columns;
    }
    if (columns[A] != rows[B] || l[D].rows != rows[A] || l[D].columns != columns[B] || l[C].rows != rows[A] ||
        l[C].columns != columns[B])
        return CUBLAS_STATUS_INVALID_VALUE;
    if (!batches_fit(x)) return CUBLAS_STATUS_INVALID_VALUE;
    return types_fit(x) ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
}

static void describe(struct multiplication *x, cublasLtMatmulDesc_t desc, const cublasLtMatrixLayout_t *layouts)
{
    memset(x, 0, sizeof(*x));
    memcpy(&x->product, desc, sizeof(x->product));
    for (int i = 0; i < MATRICES; i++) memcpy(&x->layout[i], layouts[i], sizeof(x->layout[i]));
}

static cublasStatus_t check_alignment(const struct multiplication *x, const struct preference *p)
{
    for (int m = 0; m < MATRICES; m++) {
        if (p->alignment[m] < pp_emu_settings()->valid_alignment) return CUBLAS_STATUS_INVALID_VALUE;
        if (p->alignment[m] < pp_emu_settings()->least_alignment) return CUBLAS_STATUS_NOT_SUPPORTED;
        if (has_fp8(x) && p->alignment[m] < WIDEST_LOAD) return CUBLAS_STATUS_NOT_SUPPORTED;
    }
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int most,
                                              cublasLtMatmulHeuristicResult_t *out, int *count)
{
    const struct preference *p = (const struct preference *)preference;
    struct multiplication x;
    *count = 0;
    cublasStatus_t status = pp_emu_cublas_enter(__func__);
    if (status != CUBLAS_STATUS_SUCCESS) return status;
    if (!handle || most < 1) return CUBLAS_STATUS_INVALID_VALUE;
    describe(&x, desc, (cublasLtMatrixLayout_t[]){a, b, c, d});
    status = check_shapes(&x);
    if (status != CUBLAS_STATUS_SUCCESS) return status;
    status = check_alignment(&x, p);
    if (status != CUBLAS_STATUS_SUCCESS) return status;
    for (size_t i = 0; i < sizeof(offers) / sizeof(*offers) && *count < most; i++) {
        struct algorithm algorithm = {
            .magic = MAGIC, .shape = shape_hash(&x), .workspace = offers[i].workspace, .parts = offers[i].parts};
        if (algorithm.workspace > p->workspace ||
            (algorithm.workspace && !(p->reductions & CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE)))
            continue;
        for (int m = 0; m < MATRICES; m++)
            algorithm.alignment[m] = (uint16_t)(p->alignment[m] < WIDEST_LOAD ? p->alignment[m] : WIDEST_LOAD);
        memset(&out[*count], 0, sizeof(*out));
        memcpy(&out[*count].algo, &algorithm, sizeof(algorithm));
        out[*count].workspaceSize = algorithm.workspace;
        out[(*count)++].state = CUBLAS_STATUS_SUCCESS;
    }
    return *count ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
}

static bool is_for(const struct algorithm *algorithm, const struct multiplication *x)
{
    return algorithm->magic == MAGIC && algorithm->parts && algorithm->shape == shape_hash(x);
}

cublasStatus_t cublasLtMatmulAlgoCheck(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, cublasLtMatrixLayout_t a,
                                       cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                       const cublasLtMatmulAlgo_t *algo, cublasLtMatmulHeuristicResult_t *out)
{
    struct multiplication x;
    struct algorithm algorithm;
    const cublasStatus_t status = pp_emu_cublas_enter(__func__);
    if (status != CUBLAS_STATUS_SUCCESS) return status;
    if (!handle || !algo || !out) return CUBLAS_STATUS_INVALID_VALUE;
    describe(&x, desc, (cublasLtMatrixLayout_t[]){a, b, c, d});
    memcpy(&algorithm, algo, sizeof(algorithm));
    if (check_shapes(&x) != CUBLAS_STATUS_SUCCESS || !is_for(&algorithm, &x)) return CUBLAS_STATUS_INVALID_VALUE;
    out->workspaceSize = algorithm.workspace;
    out->state = CUBLAS_STATUS_SUCCESS;
    return CUBLAS_STATUS_SUCCESS;
}

/* An algorithm that does not give the same bits again, as those with atomic sums do not. */
static uint32_t steps_aside(uint32_t parts)
{
    static atomic_uint calls;
    const bool last = parts == offers[sizeof(offers) / sizeof(*offers) - 1].parts;
    return last && pp_emu_settings()->unsteady ? atomic_fetch_add(&calls, 1) % 2 : 0;
}

static cublasStatus_t check_algorithm(struct multiplication *x, const cublasLtMatmulAlgo_t *algo, void *workspace,
                                      size_t workspace_bytes)
{
    static const char *const names[] = {"A", "B", "C", "D"};
    struct algorithm algorithm;
    x->parts = 1;
    if (!algo) return CUBLAS_STATUS_SUCCESS;
    memcpy(&algorithm, algo, sizeof(algorithm));
    if (!is_for(&algorithm, x)) {
        pp_emu_complain("cublasLtMatmul: the algorithm was chosen for another product");
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    for (int i = 0; i < MATRICES; i++) {
        const uintptr_t bits = (uintptr_t)x->p[i] | (x->layout[i].batches > 1 ? stride_bytes(&x->layout[i]) : 0);
        if (!algorithm.alignment[i] || !(bits % algorithm.alignment[i])) continue;
        pp_emu_complain("cublasLtMatmul: %s is not aligned to the %d bytes promised", names[i], algorithm.alignment[i]);
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    if (algorithm.workspace > workspace_bytes) return CUBLAS_STATUS_INVALID_VALUE;
    x->parts = algorithm.parts + steps_aside(algorithm.parts);
    x->workspace = algorithm.workspace ? workspace : NULL;
    x->workspace_bytes = algorithm.workspace;
    if (workspace_bytes &&
        ((uintptr_t)workspace % 16 || !pp_emu_is_device(__func__, "workspace", workspace, workspace_bytes)))
        return CUBLAS_STATUS_INVALID_VALUE;
    return CUBLAS_STATUS_SUCCESS;
}

static bool scales_exist(const struct multiplication *x)
{
    bool exist = true;
    for (int i = 0; i < FACTORS; i++)
        exist = exist && (!x->product.scale[i] ||
                          pp_emu_is_device("cublasLtMatmul", "scale", x->product.scale[i], sizeof(float)));
    return exist;
}

static cublasStatus_t check_operands(const struct multiplication *x, cublasLtHandle_t handle, cudaStream_t stream)
{
    static const char *const names[] = {"A", "B", "C", "D"};
    if (!stream || stream->device != handle->device || pp_emu_current() != handle->device) {
        pp_emu_complain("cublasLtMatmul: handle, stream and thread are not of one device");
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    if (!scales_exist(x)) return CUBLAS_STATUS_INVALID_VALUE;
    if (((uintptr_t)x->product.scale[A] | (uintptr_t)x->product.scale[B]) % 16)
        return CUBLAS_STATUS_NOT_SUPPORTED; /* as cuBLAS 13.1 on an H200 */
    for (int i = 0; i < MATRICES; i++) {
        if (i == C && x->beta == 0) continue;
        if (!pp_emu_is_device("cublasLtMatmul", names[i], x->p[i], extent(&x->layout[i])))
            return CUBLAS_STATUS_INVALID_VALUE;
    }
    const struct layout *c = &x->layout[C], *d = &x->layout[D];
    const bool same = c->type == d->type && c->order == d->order && c->ld == d->ld && c->stride == d->stride;
    return x->p[C] != x->p[D] || same ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INVALID_VALUE;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, const void *alpha, const void *a,
                              cublasLtMatrixLayout_t a_layout, const void *b, cublasLtMatrixLayout_t b_layout,
                              const void *beta, const void *c, cublasLtMatrixLayout_t c_layout, void *d,
                              cublasLtMatrixLayout_t d_layout, const cublasLtMatmulAlgo_t *algo, void *workspace,
                              size_t workspace_bytes, cudaStream_t handle_of_stream)
{
    cublasStatus_t status = pp_emu_cublas_enter(__func__);
    if (status != CUBLAS_STATUS_SUCCESS) return status;
    const cudaStream_t stream = pp_emu_stream(handle_of_stream);
    struct multiplication *x = malloc(sizeof(*x));
    if (!x) return CUBLAS_STATUS_ALLOC_FAILED;
    describe(x, desc, (cublasLtMatrixLayout_t[]){a_layout, b_layout, c_layout, d_layout});
    memcpy(x->p, (const void *[]){a, b, c, d}, sizeof(x->p));
    x->to = d;
    x->alpha = *(const float *)alpha;
    x->beta = *(const float *)beta;
    x->op.run = run_multiplication;
    status = check_shapes(x);
    if (status == CUBLAS_STATUS_SUCCESS) status = check_operands(x, handle, stream);
    if (status == CUBLAS_STATUS_SUCCESS) status = check_algorithm(x, algo, workspace, workspace_bytes);
    if (status != CUBLAS_STATUS_SUCCESS) {
        free(x);
        return status;
    }
    pp_emu_count(PP_EMU_PRODUCTS, 1);
    pp_emu_enqueue(stream, &x->op);
    return CUBLAS_STATUS_SUCCESS;
}
