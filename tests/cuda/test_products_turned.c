/* SPDX-License-Identifier: Apache-2.0
 *
 * Gradients of weights in TF32 of which a factor is turned (kernels/cuda/turned.h), on the emulated cublasLt: against
 * sums in double, in one part and in several; which products are computed so, and how they are divided.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdlib.h>

#include "kernels/cuda/gemm_plan.h"
#include "kernels/cuda/turned.h"

/* The smallest product that gains, but for its rows, which no part divides. */
enum { M = PP_TURNED_LEAST_M + 20, N = PP_TURNED_LEAST_N, K = PP_TURNED_LEAST_K };

static struct pp_call call_of(int m, int n, int k)
{
    return (struct pp_call){
        .kernel = PP_KERNEL_GEMM_TN, .gemm = {m, n, k, PP_GEMM_GRADIENT, true, 1}, .precision = PP_TF32};
}

/* ---- numbers ---- */

static float *host[PP_GEMM_OPERANDS], *memory[PP_GEMM_OPERANDS]; /* C, A, B, here and on the device */
static float *results, *scratch;
static const int64_t sizes[PP_GEMM_OPERANDS] = {(int64_t)M * N, (int64_t)K *M, (int64_t)K *N};
static cudaStream_t stream;
static struct pp_cuda_gemm *gemm;

static int open_all(void **state)
{
    uint32_t x = 1;
    (void)state;
    assert_int_equal(cudaSetDevice(0), 0);
    assert_int_equal(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), 0);
    assert_int_equal(pp_cuda_gemm_open(&(struct pp_cuda_gemm_spec){.turns = true}, &gemm), PP_OK);
    assert_int_equal(cudaMalloc((void **)&scratch, (size_t)sizes[1] * sizeof(float)), 0);
    results = malloc((size_t)sizes[0] * sizeof(float));
    assert_non_null(results);
    for (int i = 0; i < PP_GEMM_OPERANDS; i++) {
        const size_t bytes = (size_t)sizes[i] * sizeof(float);
        host[i] = malloc(bytes);
        assert_non_null(host[i]);
        assert_int_equal(cudaMalloc((void **)&memory[i], bytes), 0);
        for (int64_t at = 0; at < sizes[i]; at++) {
            x = x * 1664525u + 1013904223u;
            host[i][at] = (float)(x >> 8) * 0x1p-23f - 1;
        }
        assert_int_equal(cudaMemcpy(memory[i], host[i], bytes, cudaMemcpyHostToDevice), 0);
    }
    return 0;
}

static int close_all(void **state)
{
    (void)state;
    for (int i = 0; i < PP_GEMM_OPERANDS; i++) free(host[i]), cudaFree(memory[i]);
    free(results);
    cudaFree(scratch);
    pp_cuda_gemm_close(gemm);
    return 0;
}

/* All rows are looked at, and some columns of each. */
static void check(bool adds)
{
    for (int i = 0; i < M; i++)
        for (int j = i % 64; j < N; j += 64) {
            double exact = adds ? host[0][(int64_t)i * N + j] : 0;
            for (int k = 0; k < K; k++) exact += (double)host[1][(int64_t)k * M + i] * host[2][(int64_t)k * N + j];
            assert_true(fabs(results[(int64_t)i * N + j] - exact) <= 2e-3 * (fabs(exact) + sqrt(K)));
        }
}

static void run(int64_t scratch_bytes, bool adds)
{
    struct pp_call call = call_of(M, N, K);
    const struct pp_frame frame = {0};
    const struct pp_cuda_call c = {.call = &call,
                                   .frame = &frame,
                                   .p = {memory[0], memory[1], memory[2]},
                                   .scratch = scratch,
                                   .scratch_bytes = scratch_bytes,
                                   .stream = stream,
                                   .gemm = gemm};
    const size_t bytes = (size_t)sizes[0] * sizeof(float);
    call.adds = adds;
    assert_int_equal(cudaMemcpy(memory[0], host[0], bytes, cudaMemcpyHostToDevice), 0);
    assert_int_equal(pp_cuda_gemm_tn(&c), cudaSuccess);
    assert_int_equal(cudaStreamSynchronize(stream), 0);
    assert_int_equal(cudaMemcpy(results, memory[0], bytes, cudaMemcpyDeviceToHost), 0);
    check(adds);
}

static void test_results(void **state)
{
    const struct pp_call call = call_of(M, N, K);
    (void)state;
    assert_int_equal(pp_cuda_gemm_prepare(gemm, &call, stream), PP_OK);
    assert_int_equal(gemm->nplans, 1); /* of one part, both keys are the same */
    run(pp_turned_bytes(&call), false);
    run(pp_turned_bytes(&call), true);
    assert_int_equal(gemm->nplans, 1);
    assert_int_equal(gemm->plans[0].key.kernel, PP_KERNEL_GEMM_NN);
    run((int64_t)sizeof(float) * K * 600, false); /* 512 rows, 512, and 20 */
    run((int64_t)sizeof(float) * K * 600, true);
    assert_int_equal(gemm->nplans, 3);
    run((int64_t)sizeof(float) * K * (PP_TURNED_STEP - 1), true); /* no room: as it lies */
    assert_int_equal(gemm->nplans, 4);
    assert_int_equal(gemm->plans[3].key.kernel, PP_KERNEL_GEMM_TN);
}

/* ---- which, and how ---- */

static void test_gains(void **state)
{
    (void)state;
    struct pp_call call = call_of(M, N, K);
    assert_true(pp_turned_gains(&call));
    call.precision = PP_FP32;
    assert_false(pp_turned_gains(&call));
    call.precision = PP_TF32, call.kernel = PP_KERNEL_GEMM_NN;
    assert_false(pp_turned_gains(&call));
    call.kernel = PP_KERNEL_GEMM_TN, call.gemm.times = 2;
    assert_false(pp_turned_gains(&call));
    const struct pp_call others[] = {call_of(M, N, K + 2), call_of(M, N, K - 4), call_of(M, N - 4, K),
                                     call_of(PP_TURNED_LEAST_M - 1, N, K), call_of(M, N, PP_TURNED_MOST_K + 4)};
    for (int i = 0; i < 5; i++) {
        assert_false(pp_turned_gains(&others[i]));
        assert_int_equal(pp_turned_bytes(&others[i]), 0);
    }
    const struct pp_call on_others = call_of(M, N, K);
    gemm->turns = false;
    assert_int_equal(pp_gemm_divide_offsets(gemm, &on_others).rows, 0);
    gemm->turns = true;
}

/* All rows are in some part, parts fit, and are as few as can be. */
static void test_parts(void **state)
{
    static const int m[] = {1024, 1025, 4096, 12288, 28800, 49152}, k[] = {512, 700, 8192, 16384};
    (void)state;
    for (int i = 0; i < 6; i++)
        for (int j = 0; j < 4; j++) {
            const struct pp_call call = call_of(m[i], N, k[j]);
            const int64_t bytes = pp_turned_bytes(&call), row = (int64_t)sizeof(float) * k[j],
                          whole = bytes / row / PP_TURNED_STEP * PP_TURNED_STEP;
            const struct pp_gemm_parts p = pp_gemm_divide_offsets(gemm, &call);
            assert_true(p.rows > 0 && p.rows * row <= bytes && bytes <= PP_CUDA_MOST_SCRATCH_BYTES);
            assert_int_equal(p.key.m, p.rows);
            assert_int_equal(p.key.alignment[PP_GEMM_SECOND], 16);
            assert_true(p.last.m > 0 && p.last.m <= p.rows);
            assert_int_equal((p.n - 1) * p.rows + p.last.m, m[i]);
            assert_true(p.n == 1 || p.n == (m[i] + whole - 1) / whole);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_results), cmocka_unit_test(test_gains),
                                       cmocka_unit_test(test_parts)};
    return cmocka_run_group_tests(tests, open_all, close_all);
}
