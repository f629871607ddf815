/* SPDX-License-Identifier: Apache-2.0
 *
 * Products that kernels of our own compute in TF32 (kernels/cuda/tf32.h), here in the emulator's: against sums in
 * double, in one part and in several; which products are computed so, in which tiles, and how they are divided.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cuda/gemm_plan.h"
#include "kernels/cuda/tf32.h"

enum { SMS = 4, MOST = 1100 * 400 };

static struct pp_call call_of(int kernel, int m, int n, int k)
{
    const int mode = kernel == PP_KERNEL_GEMM_TN ? PP_GEMM_GRADIENT : PP_GEMM_WRITE;
    return (struct pp_call){.kernel = kernel, .gemm = {m, n, k, mode, true, 1}, .precision = PP_TF32};
}

/* ---- numbers ---- */

static float *host[PP_GEMM_OPERANDS], *memory[PP_GEMM_OPERANDS]; /* C, A, B, here and on the device */
static float *results, *scratch;
static cudaStream_t stream;
static struct pp_cuda_gemm *gemm;

static int open_all(void **state)
{
    uint32_t x = 1;
    const size_t bytes = MOST * sizeof(float);
    (void)state;
    assert_int_equal(cudaSetDevice(0), 0);
    assert_int_equal(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), 0);
    assert_int_equal(pp_cuda_gemm_open(&(struct pp_cuda_gemm_spec){.hopper_sms = SMS}, &gemm), PP_OK);
    assert_int_equal(cudaMalloc((void **)&scratch, 2 * bytes), 0);
    results = malloc(bytes);
    assert_non_null(results);
    for (int i = 0; i < PP_GEMM_OPERANDS; i++) {
        host[i] = malloc(bytes);
        assert_non_null(host[i]);
        assert_int_equal(cudaMalloc((void **)&memory[i], bytes), 0);
        for (int64_t at = 0; at < MOST; at++) {
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
static void check(const struct pp_call *call, bool adds)
{
    const struct pp_gemm_dims *n = &call->gemm;
    const bool across = call->kernel == PP_KERNEL_GEMM_TN, lies = call->kernel != PP_KERNEL_GEMM_NT;
    for (int i = 0; i < n->m; i++)
        for (int j = i % 32; j < n->n; j += 32) {
            double exact = adds ? host[0][i * n->n + j] : 0;
            for (int k = 0; k < n->k; k++)
                exact +=
                    (double)host[1][across ? k * n->m + i : i * n->k + k] * host[2][lies ? k * n->n + j : j * n->k + k];
            assert_true(fabs(results[i * n->n + j] - exact) <= 2e-3 * (fabs(exact) + sqrt(n->k)));
        }
}

static cudaError_t launch(const struct pp_cuda_call *c)
{
    switch (c->call->kernel) {
    case PP_KERNEL_GEMM_NT:
        return pp_cuda_gemm_nt(c);
    case PP_KERNEL_GEMM_NN:
        return pp_cuda_gemm_nn(c);
    default:
        return pp_cuda_gemm_tn(c);
    }
}

/* plans: of cuBLAS, that there are then. */
static void run(struct pp_call call, int64_t scratch_bytes, int plans)
{
    for (int adds = 0; adds < 2; adds++) {
        const struct pp_frame frame = {0};
        const struct pp_cuda_call c = {.call = &call,
                                       .frame = &frame,
                                       .p = {memory[0], memory[1], memory[2]},
                                       .sms = SMS,
                                       .scratch = scratch,
                                       .scratch_bytes = scratch_bytes,
                                       .stream = stream,
                                       .gemm = gemm};
        call.adds = adds;
        if (call.kernel != PP_KERNEL_GEMM_TN) call.gemm.mode = adds ? PP_GEMM_ADD : PP_GEMM_WRITE;
        assert_int_equal(cudaMemcpy(memory[0], host[0], MOST * sizeof(float), cudaMemcpyHostToDevice), 0);
        assert_int_equal(launch(&c), cudaSuccess);
        assert_int_equal(cudaStreamSynchronize(stream), 0);
        assert_int_equal(cudaMemcpy(results, memory[0], MOST * sizeof(float), cudaMemcpyDeviceToHost), 0);
        check(&call, adds);
        assert_int_equal(gemm->nplans, plans);
    }
}

static void test_results(void **state)
{
    enum { M = 600, N = 724, K = 300, PITCH = 320 };
    const struct pp_call turns_a = call_of(PP_KERNEL_GEMM_TN, M, N, K), turns_b = call_of(PP_KERNEL_GEMM_TN, N, M, K);
    const int64_t bytes = pp_tf32_bytes(&turns_a), parts = (int64_t)sizeof(float) * PITCH * 511; /* of 256, 256, 88 */
    (void)state;
    assert_int_equal(pp_cuda_gemm_prepare(gemm, &turns_a, stream), PP_OK);
    run(call_of(PP_KERNEL_GEMM_NT, 170, 500, 132), 0, 0);
    run(call_of(PP_KERNEL_GEMM_NN, 170, 500, 132), 0, 0);
    assert_int_equal(bytes, sizeof(float) * PITCH * M);
    assert_int_equal(pp_tf32_bytes(&turns_b), bytes);
    run(turns_a, bytes, 0);
    run(turns_b, bytes, 0);
    run(turns_a, parts, 0);
    run(turns_b, parts, 0);
    run(call_of(PP_KERNEL_GEMM_TN, M, N, 303), bytes, 0); /* rows that begin where none may */
    run(call_of(PP_KERNEL_GEMM_TN, N, M, 303), bytes, 0);
    run(turns_a, (int64_t)sizeof(float) * PITCH * 255, 1); /* no room: as it lies */
    run(call_of(PP_KERNEL_GEMM_NT, 170, 500, 134), 0, 2);  /* not aligned */
    run(call_of(PP_KERNEL_GEMM_NN, 170, 502, 132), 0, 3);
    run(call_of(PP_KERNEL_GEMM_TN, M - 2, N, K), bytes, 4);
}

/* ---- which, and how ---- */

/* What was measured on an H200 is decided so; 129 and 140 rows of 12288 columns follow from 175. */
static void test_gains(void **state)
{
    static const struct {
        int kernel, m, n, k;
        bool gains;
    } cases[] = {
        {PP_KERNEL_GEMM_NT, 700, 4096, 4096, true},   {PP_KERNEL_GEMM_NT, 500, 12288, 4096, true},
        {PP_KERNEL_GEMM_NT, 350, 4096, 4096, false},  {PP_KERNEL_GEMM_NT, 350, 12288, 4096, true},
        {PP_KERNEL_GEMM_NT, 140, 12288, 4096, true},  {PP_KERNEL_GEMM_NT, 129, 12288, 4096, true},
        {PP_KERNEL_GEMM_NT, 175, 12288, 4096, true},  {PP_KERNEL_GEMM_NT, 105, 12288, 4096, false},
        {PP_KERNEL_GEMM_NT, 4096, 4096, 4096, false}, {PP_KERNEL_GEMM_NT, 700, 4096, 64, false},
        {PP_KERNEL_GEMM_NN, 700, 4096, 4096, true},   {PP_KERNEL_GEMM_NN, 350, 4096, 4096, true},
        {PP_KERNEL_GEMM_NN, 175, 4096, 28800, false}, {PP_KERNEL_GEMM_NN, 105, 4096, 4096, false},
        {PP_KERNEL_GEMM_TN, 4096, 4096, 700, true},   {PP_KERNEL_GEMM_TN, 28800, 4096, 350, true},
        {PP_KERNEL_GEMM_TN, 4096, 4096, 175, false},  {PP_KERNEL_GEMM_TN, 1024, 1024, 4096, true},
        {PP_KERNEL_GEMM_TN, 800, 200, 700, false},    {PP_KERNEL_GEMM_FP8, 700, 4096, 4096, false},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct pp_call call = call_of(cases[i].kernel, cases[i].m, cases[i].n, cases[i].k);
        assert_int_equal(pp_tf32_gains(&call, 132), cases[i].gains);
        call.gemm.times = 2;
        assert_false(pp_tf32_gains(&call, 132));
        call.gemm.times = 1, call.precision = PP_FP32;
        assert_false(pp_tf32_gains(&call, 132));
        assert_int_equal(pp_tf32_bytes(&call), 0);
    }
}

static void check_tiles(int m, int n, int sms, int rows, int rows_beside)
{
    double share;
    const struct pp_tf32_tiles *t = &pp_tf32_tiles[pp_tf32_choose(m, n, sms, &share)];
    assert_int_equal(t->rows, rows);
    assert_int_equal(t->rows_beside, rows_beside);
    assert_true(share > 0 && share <= 1);
}

static void test_tiles(void **state)
{
    static const struct {
        int m, n, sms, rows, rows_beside;
    } cases[] = {{700, 4096, 132, 176, 2}, {500, 4096, 132, 128, 2},  {175, 12288, 132, 176, 1},
                 {350, 4096, 132, 128, 1}, {1024, 4096, 132, 256, 1}, {4096, 4096, 132, 256, 1},
                 {700, 4096, 32, 176, 2}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        check_tiles(cases[i].m, cases[i].n, cases[i].sms, cases[i].rows, cases[i].rows_beside);
}

/* The parity test's products of an H200 are ours, and have all tiles. */
static void test_parity_cases(void **state)
{
    enum { NT = PP_KERNEL_GEMM_NT, NN = PP_KERNEL_GEMM_NN, TN = PP_KERNEL_GEMM_TN };
    static const struct {
        int kernel, m, n, k, rows, rows_beside;
    } cases[] = {{NT, 340, 6276, 520, 176, 2},    {NN, 340, 6276, 520, 176, 2},  {NT, 500, 6404, 520, 256, 1},
                 {NN, 500, 6404, 520, 256, 1},    {NT, 250, 6532, 520, 128, 2},  {NN, 250, 6532, 520, 128, 2},
                 {NT, 170, 12292, 520, 176, 1},   {NN, 170, 12292, 520, 176, 1}, {NT, 120, 13316, 520, 128, 1},
                 {NN, 120, 13316, 520, 128, 1},   {NT, 900, 12420, 264, 256, 1}, {NN, 690, 16516, 264, 176, 2},
                 {TN, 1044, 2052, 519, 176, 2},   {TN, 2052, 1044, 519, 176, 2}, {TN, 1044, 2052, 16420, 128, 2},
                 {TN, 2052, 1044, 16420, 128, 2}, {TN, 8192, 1028, 2306, 176, 2}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const struct pp_call call = call_of(cases[i].kernel, cases[i].m, cases[i].n, cases[i].k);
        const struct pp_tf32_sides sides = pp_tf32_sides_of(&call);
        const int rows = pp_tf32_rows(&call, pp_tf32_bytes(&call));
        assert_true(pp_tf32_gains(&call, 132));
        check_tiles(rows, sides.columns, 132, cases[i].rows, cases[i].rows_beside);
        assert_int_equal(sides.across, cases[i].kernel == TN && cases[i].m > cases[i].n);
        assert_int_equal(rows < sides.rows, cases[i].k == 16420); /* in parts */
    }
}

/* Where a file names an algorithm of cuBLAS that is taken, and on other GPUs there are none but cuBLAS's. */
static void test_others(void **state)
{
    const struct pp_call call = call_of(PP_KERNEL_GEMM_NT, 170, 500, 132);
    struct pp_algorithm given = {.key = pp_gemm_key_of_offsets(&call)};
    struct pp_cuda_gemm other = *gemm;
    (void)state;
    assert_int_equal(pp_gemm_own_rows(gemm, &call, &given.key, 0), 170);
    other.hopper_sms = 0;
    assert_int_equal(pp_gemm_own_rows(&other, &call, &given.key, 0), 0);
    other.hopper_sms = SMS;
    other.algorithms.v = &given;
    other.algorithms.n = 1;
    assert_int_equal(pp_gemm_own_rows(&other, &call, &given.key, 0), 0);
}

/* All rows are in some part, parts fit, and are as few as can be. */
static void test_parts(void **state)
{
    enum { STEP = 256 };
    static const int m[] = {1024, 1025, 4096, 12288, 28800, 49152}, k[] = {512, 700, 8192, 16384};
    (void)state;
    for (int i = 0; i < 6; i++)
        for (int j = 0; j < 4; j++) {
            const struct pp_call call = call_of(PP_KERNEL_GEMM_TN, m[i], 49152, k[j]);
            const int64_t bytes = pp_tf32_bytes(&call), row = (int64_t)sizeof(float) * pp_tf32_pitch(k[j]),
                          whole = bytes / row / STEP * STEP;
            const int rows = pp_tf32_rows(&call, bytes), n = (m[i] + rows - 1) / rows;
            assert_true(rows > 0 && rows * row <= bytes && bytes <= PP_CUDA_MOST_SCRATCH_BYTES);
            assert_true(n == 1 || (rows % STEP == 0 && n == (m[i] + whole - 1) / whole));
        }
    const struct pp_call long_sums = call_of(PP_KERNEL_GEMM_TN, 1024, 2048, 1 << 17);
    assert_int_equal(pp_tf32_bytes(&long_sums), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_results), cmocka_unit_test(test_gains),
                                       cmocka_unit_test(test_tiles),   cmocka_unit_test(test_parity_cases),
                                       cmocka_unit_test(test_others),  cmocka_unit_test(test_parts)};
    return cmocka_run_group_tests(tests, open_all, close_all);
}
