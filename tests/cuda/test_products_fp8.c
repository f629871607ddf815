/* SPDX-License-Identifier: Apache-2.0
 *
 * FP8 products of the backend `cuda` on the emulated cublasLt: against sums in double, with scales that change from
 * product to product; what has no such product; and lines of --algorithms for them.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/calls/bf16.h"
#include "core/calls/fp8.h"
#include "kernels/cuda/gemm_plan.h"

enum { M = 32, N = 48, K = 80, TIMES = 3, PRODUCTS = 4, APART = 4 /* numbers from scale to scale: 16 bytes */ };

/* Relative errors: of bfloat16, and of sums in float32, added exactly or fast. */
static const double NARROW = 8e-3, EXACT = 1e-6, FAST = 2e-4;

static cudaStream_t stream;
static struct pp_cuda_gemm *gemm;

static int open_products(void **state)
{
    (void)state;
    return cudaSetDevice(0) || cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) ||
           pp_cuda_gemm_open(&(struct pp_cuda_gemm_spec){.sms = 32}, &gemm) != PP_OK;
}

static int close_products(void **state)
{
    (void)state;
    pp_cuda_gemm_close(gemm);
    return (int)cudaStreamDestroy(stream);
}

static void *device_memory(size_t bytes)
{
    void *memory;
    assert_int_equal(cudaMalloc(&memory, bytes), cudaSuccess);
    return memory;
}

static struct pp_call call_of(int mode, bool wide, int times, bool gradient)
{
    return (struct pp_call){
        .kernel = PP_KERNEL_GEMM_FP8, .gemm = {M, N, K, mode, wide, times, gradient}, .precision = PP_BF16};
}

/* ---- numbers ---- */

/* The factors of all products, A and B, on both sides. */
struct factors {
    uint8_t a[TIMES * M * K], b[TIMES * N * K];
    void *device[2];
};

static void fill(uint8_t *codes, int n, bool gradient, uint32_t x)
{
    for (int i = 0; i < n; i++) {
        x = x * 1664525u + 1013904223u;
        codes[i] = pp_fp8((float)(x >> 8) * 0x1p-21f - 4, gradient);
    }
}

static void make_factors(struct factors *f, bool gradient)
{
    fill(f->a, sizeof f->a, gradient, 1);
    fill(f->b, sizeof f->b, false, 2);
    f->device[0] = device_memory(sizeof f->a);
    f->device[1] = device_memory(sizeof f->b);
    assert_int_equal(cudaMemcpy(f->device[0], f->a, sizeof f->a, cudaMemcpyHostToDevice), cudaSuccess);
    assert_int_equal(cudaMemcpy(f->device[1], f->b, sizeof f->b, cudaMemcpyHostToDevice), cudaSuccess);
}

static void free_factors(const struct factors *f)
{
    cudaFree(f->device[0]);
    cudaFree(f->device[1]);
}

static double sum_of(const struct factors *f, bool gradient, int matrix, int i, int j)
{
    const uint8_t *a = f->a + (matrix * M + i) * K, *b = f->b + (matrix * N + j) * K;
    double sum = 0;
    for (int k = 0; k < K; k++) sum += (double)pp_fp8_float(a[k], gradient) * pp_fp8_float(b[k], false);
    return sum;
}

static float number_of(const void *c, bool wide, int i)
{
    return wide ? ((const float *)c)[i] : pp_bf16_float(((const uint16_t *)c)[i]);
}

/* One call: C was 0, and is written once or, where the mode adds, twice. Sums are fast but for gradients. */
static void check_call(const struct pp_call *call)
{
    static struct factors f;
    static char got[TIMES * M * N * sizeof(float)];
    static const float scales[2][APART] = {{0.25f}, {-3}};
    const struct pp_gemm_dims *n = &call->gemm;
    const bool adds = n->mode == PP_GEMM_ADD, wide = n->wide;
    const struct pp_frame frame = {0};
    make_factors(&f, n->gradient);
    char *c = device_memory(sizeof got);
    float *scale = device_memory(sizeof scales);
    assert_int_equal(cudaMemset(c, 0, sizeof got), cudaSuccess);
    assert_int_equal(cudaMemcpy(scale, scales, sizeof scales, cudaMemcpyHostToDevice), cudaSuccess);
    const struct pp_cuda_call cuda = {.call = call,
                                      .frame = &frame,
                                      .p = {c, f.device[0], f.device[1], scale, scale + APART},
                                      .stream = stream,
                                      .gemm = gemm};
    for (int i = 0; i < 2; i++) assert_int_equal(pp_cuda_gemm_fp8(&cuda), cudaSuccess);
    assert_int_equal(cudaStreamSynchronize(stream), cudaSuccess);
    assert_int_equal(cudaMemcpy(got, c, sizeof got, cudaMemcpyDeviceToHost), cudaSuccess);
    double farthest = 0;
    for (int i = 0; i < (n->times ? n->times : 1) * M * N; i++) {
        const double expected = (adds ? 2 : 1) * -0.75 * sum_of(&f, n->gradient, i / (M * N), i / N % M, i % N);
        const double error = fabs(number_of(got, wide, i) - expected) / (fabs(expected) + 4);
        assert_true(isfinite(error)); /* fmax() passes over what is no number */
        farthest = fmax(farthest, error);
    }
    if (!wide)
        assert_true(farthest <= NARROW);
    else
        assert_true(n->gradient ? farthest <= EXACT : farthest > EXACT && farthest <= FAST);
    cudaFree(c);
    cudaFree(scale);
    free_factors(&f);
}

static void test_results(void **state)
{
    (void)state;
    for (int i = 0; i < 16; i++) {
        const struct pp_call call = call_of(i & 1 ? PP_GEMM_ADD : PP_GEMM_WRITE, i & 2, i & 4 ? TIMES : 0, i & 8);
        check_call(&call);
        assert_int_equal(pp_cuda_gemm_prepare(gemm, &call, stream), PP_OK);
    }
    assert_int_equal(gemm->nplans, 8); /* type of C, times, type of A; not the mode */
}

/* Equal products that are queued one after another have a plan in common, and each its own scales: those that memory
 * holds when it runs. */
static void test_scales(void **state)
{
    (void)state;
    static struct factors f;
    static float got[PRODUCTS][M * N];
    const struct pp_call call = call_of(PP_GEMM_WRITE, true, 0, false);
    const struct pp_frame frame = {0};
    float *scale = device_memory((PRODUCTS + 1) * APART * sizeof *scale), *one = scale + PRODUCTS * APART, *values;
    char *c = device_memory(sizeof got);
    make_factors(&f, false);
    assert_int_equal(cudaMallocHost((void **)&values, (PRODUCTS + 1) * sizeof *values), cudaSuccess);
    values[PRODUCTS] = 1;
    assert_int_equal(cudaMemcpyAsync(one, values + PRODUCTS, sizeof *one, cudaMemcpyHostToDevice, stream), cudaSuccess);
    for (int i = 0; i < PRODUCTS; i++) {
        const struct pp_cuda_call cuda = {.call = &call,
                                          .frame = &frame,
                                          .p = {c + i * (int64_t)sizeof got[0], f.device[0], f.device[1],
                                                i % 2 ? one : scale + i * APART, i % 2 ? scale + i * APART : one},
                                          .stream = stream,
                                          .gemm = gemm};
        values[i] = (float)(i + 2);
        assert_int_equal(cudaMemcpyAsync(scale + i * APART, values + i, sizeof *scale, cudaMemcpyHostToDevice, stream),
                         cudaSuccess);
        assert_int_equal(pp_cuda_gemm_fp8(&cuda), cudaSuccess);
        assert_int_equal(cudaMemsetAsync(scale + i * APART, 0, sizeof *scale, stream), cudaSuccess);
    }
    assert_int_equal(cudaStreamSynchronize(stream), cudaSuccess);
    assert_int_equal(cudaMemcpy(got, c, sizeof got, cudaMemcpyDeviceToHost), cudaSuccess);
    for (int i = 0; i < PRODUCTS; i++) {
        const double expected = (i + 2) * sum_of(&f, false, 0, M - 1, N - 1);
        assert_true(fabs(got[i][M * N - 1] - expected) <= FAST * fabs(expected));
    }
    cudaFree(c);
    cudaFree(scale);
    cudaFreeHost(values);
    free_factors(&f);
}

/* ---- what there is not ---- */

static void expect_none(const struct pp_call *call, const char *words)
{
    assert_int_equal(pp_cuda_gemm_prepare(gemm, call, stream), PP_UNSUPPORTED);
    assert_non_null(strstr(pp_message(), words));
}

/* What comes of asking for an algorithm for the call, once `change` has been made to its plan. */
static pp_status changed(const struct pp_call *call, void (*change)(struct pp_gemm_plan *plan))
{
    struct pp_gemm_plan plan = {.key = pp_gemm_key_of_offsets(call)};
    assert_int_equal(pp_gemm_describe(gemm, &plan), PP_OK);
    change(&plan);
    const pp_status status = pp_gemm_choose(gemm, &plan);
    pp_gemm_plan_free(&plan);
    return status;
}

static void set_type(struct pp_gemm_plan *plan, int matrix, cudaDataType_t type)
{
    const uint32_t value = type;
    assert_int_equal(
        cublasLtMatrixLayoutSetAttribute(plan->layout[matrix], CUBLASLT_MATRIX_LAYOUT_TYPE, &value, sizeof value),
        CUBLAS_STATUS_SUCCESS);
}

static void nothing(struct pp_gemm_plan *plan) { (void)plan; }
static void two_gradients(struct pp_gemm_plan *plan)
{
    set_type(plan, PP_GEMM_FIRST, CUDA_R_8F_E5M2);
    set_type(plan, PP_GEMM_SECOND, CUDA_R_8F_E5M2);
}
static void one_bf16(struct pp_gemm_plan *plan) { set_type(plan, PP_GEMM_FIRST, CUDA_R_16BF); }
static void scaled(struct pp_gemm_plan *plan)
{
    const void *scale = gemm->workspace;
    assert_int_equal(
        cublasLtMatmulDescSetAttribute(plan->product, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, &scale, sizeof scale),
        CUBLAS_STATUS_SUCCESS);
}
static void transposed(struct pp_gemm_plan *plan)
{
    const int32_t none = CUBLAS_OP_N;
    assert_int_equal(cublasLtMatmulDescSetAttribute(plan->product, CUBLASLT_MATMUL_DESC_TRANSA, &none, sizeof none),
                     CUBLAS_STATUS_SUCCESS);
}

/* The emulated library has the products that the real one documents, and no others. */
static void test_refusals(void **state)
{
    (void)state;
    struct pp_call call = call_of(PP_GEMM_WRITE, false, 0, true), plain = call;
    plain.kernel = PP_KERNEL_GEMM_NT;
    plain.gemm.gradient = 0;
    assert_int_equal(changed(&call, nothing), PP_OK);
    assert_int_equal(changed(&call, scaled), PP_OK);
    assert_int_equal(changed(&call, two_gradients), PP_UNSUPPORTED);
    assert_int_equal(changed(&call, one_bf16), PP_UNSUPPORTED);
    assert_int_equal(changed(&plain, nothing), PP_OK);
    assert_int_equal(changed(&plain, scaled), PP_UNSUPPORTED);
    call.at.gemm_fp8.a.offset = 8;
    expect_none(&call, "no algorithm for gemm_fp8 32x48x80 e5m2 in fp8 on this device");
    call.at.gemm_fp8.a.offset = 0;
    call.gemm.n = K; /* a square, so that sizes fit in either way */
    assert_int_equal(changed(&call, nothing), PP_OK);
    assert_int_equal(changed(&call, transposed), PP_UNSUPPORTED);
    call.gemm.n = N;
    call.gemm.gradient = 0;
    call.gemm.k = 24;
    expect_none(&call, "no algorithm for gemm_fp8 32x48x24 in fp8 on this device");
}

/* ---- lines of --algorithms ---- */

/* Each is found again by its own key. That of a gradient and that of an activation differ. */
static void test_lines(void **state)
{
    (void)state;
    static const char path[] = "algorithms_fp8";
    struct pp_algorithms written, read;
    struct pp_algorithm given[4];
    FILE *out = fopen(path, "w");
    assert_non_null(out);
    pp_algorithms_begin(&written, "a GPU");
    pp_algorithms_write_head(&written, out);
    for (int i = 0; i < 4; i++) {
        const struct pp_call call = call_of(PP_GEMM_WRITE, true, i & 1 ? TIMES : 0, i & 2);
        given[i] = (struct pp_algorithm){.key = pp_gemm_key_of_offsets(&call)};
        memset(&given[i].algorithm, 0xa0 + i, sizeof given[i].algorithm);
        pp_algorithms_write(&given[i], "the best", out);
    }
    assert_int_equal(fclose(out), 0);
    pp_algorithms_begin(&read, "a GPU");
    assert_int_equal(pp_algorithms_read(&read, path), PP_OK);
    assert_int_equal(read.n, 4);
    for (int i = 0; i < 4; i++) {
        const struct pp_algorithm *found = pp_algorithms_find(&read, &given[i].key, 0);
        assert_non_null(found);
        assert_memory_equal(&found->algorithm, &given[i].algorithm, sizeof found->algorithm);
    }
    pp_algorithms_free(&read);
    remove(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_results), cmocka_unit_test(test_scales),
                                       cmocka_unit_test(test_refusals), cmocka_unit_test(test_lines)};
    return cmocka_run_group_tests(tests, open_products, close_products);
}
