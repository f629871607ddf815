/* SPDX-License-Identifier: Apache-2.0
 *
 * Products of the backend `cuda` on the emulated cublasLt: every operation, precision and mode against sums in double,
 * and what becomes of each thing that may fail. The emulator reads its orders once, so each case is a process.
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
#include <sys/wait.h>
#include <unistd.h>

#include "kernels/cuda/gemm_plan.h"

/* In a case's process: says why and ends it. */
#define EXPECT(condition)                                                                                              \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "%s:%d: %s (%s)\n", __FILE__, __LINE__, #condition, pp_message());                         \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

struct product {
    int kernel, m, n, k, mode, wide, precision;
    int shift; /* operands lie so many elements behind a well aligned place */
    int times;
};

static uint16_t to_bf16(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static float from_bf16(uint16_t x)
{
    const uint32_t bits = (uint32_t)x << 16;
    float out;
    memcpy(&out, &bits, sizeof out);
    return out;
}

/* A matrix on both sides; `half`: the device's is of bfloat16. */
struct operand {
    float *host;
    void *stored; /* as the device has it */
    char *memory, *device;
    int64_t n;
    bool half;
};

static size_t bytes_of(const struct operand *o) { return (size_t)o->n * (o->half ? 2 : 4); }

static struct operand operand_make(int64_t n, bool half, int shift, uint32_t salt)
{
    struct operand o = {.n = n, .half = half};
    const size_t place = (size_t)shift * (half ? 2 : 4);
    uint32_t x = salt * 2654435761u + 1;
    o.host = malloc(sizeof(float) * (size_t)n);
    o.stored = malloc(bytes_of(&o));
    EXPECT(o.host && o.stored && !cudaMalloc((void **)&o.memory, place + bytes_of(&o)));
    o.device = o.memory + place;
    for (int64_t i = 0; i < n; i++) {
        x = x * 1664525u + 1013904223u;
        const float value = (float)(x >> 8) * 0x1p-23f - 1;
        if (half) ((uint16_t *)o.stored)[i] = to_bf16(value);
        o.host[i] = half ? from_bf16(((uint16_t *)o.stored)[i]) : value;
    }
    EXPECT(!cudaMemcpy(o.device, half ? o.stored : o.host, bytes_of(&o), cudaMemcpyHostToDevice));
    return o;
}

/* What the device has now. */
static void operand_read(const struct operand *o, float *out)
{
    EXPECT(!cudaMemcpy(o->stored, o->device, bytes_of(o), cudaMemcpyDeviceToHost));
    for (int64_t i = 0; i < o->n; i++)
        out[i] = o->half ? from_bf16(((uint16_t *)o->stored)[i]) : ((float *)o->stored)[i];
}

static void operand_free(struct operand *o)
{
    free(o->host);
    free(o->stored);
    cudaFree(o->memory);
}

static double expected(const struct product *p, const float *a, const float *b, int i, int j)
{
    double sum = 0;
    for (int k = 0; k < p->k; k++)
        sum += (double)(p->kernel == PP_KERNEL_GEMM_TN ? a[k * p->m + i] : a[i * p->k + k]) *
               (p->kernel == PP_KERNEL_GEMM_NT ? b[j * p->k + k] : b[k * p->n + j]);
    return sum;
}

static struct pp_call call_of(const struct product *p)
{
    return (struct pp_call){
        .kernel = p->kernel, .gemm = {p->m, p->n, p->k, p->mode, p->wide, p->times}, .precision = p->precision};
}

static cudaError_t launch(const struct pp_cuda_call *c)
{
    return c->call->kernel == PP_KERNEL_GEMM_NT   ? pp_cuda_gemm_nt(c)
           : c->call->kernel == PP_KERNEL_GEMM_NN ? pp_cuda_gemm_nn(c)
                                                  : pp_cuda_gemm_tn(c);
}

static cudaStream_t stream;

enum { MOST_RESULTS = 35 * 100 };

/* One of the call's products. add: c's numbers were there. */
static void check_numbers(const struct product *p, const float *a, const float *b, const float *c, const float *got,
                          bool add)
{
    static const double tolerance[][2] = {[PP_FP32] = {1e-5, 1e-5}, [PP_TF32] = {2e-3, 2e-3}, [PP_BF16] = {4e-3, 1e-5}};
    for (int i = 0; i < p->m; i++)
        for (int j = 0; j < p->n; j++) {
            const int64_t at = (int64_t)i * p->n + j;
            const double exact = expected(p, a, b, i, j) + (add ? c[at] : 0), error = fabs(got[at] - exact);
            EXPECT(error <= tolerance[p->precision][p->wide] * (fabs(exact) + sqrt(p->k)));
        }
}

/* adds: of the call. Ends the process where the result is wrong. */
static void check_product(struct pp_cuda_gemm *gemm, const struct product *p, bool adds)
{
    const bool half = p->precision == PP_BF16;
    const int times = p->times ? p->times : 1, as = p->m * p->k, bs = p->n * p->k, cs = p->m * p->n;
    struct operand a = operand_make(times * as, half, p->shift, 1), b = operand_make(times * bs, half, p->shift, 2),
                   c = operand_make(times * cs, half && !p->wide, p->shift, 3);
    struct pp_call call = call_of(p);
    const struct pp_frame frame = {0};
    const struct pp_cuda_call cuda = {
        .call = &call, .frame = &frame, .p = {c.device, a.device, b.device}, .stream = stream, .gemm = gemm};
    const bool add = p->mode == PP_GEMM_ADD || (p->mode == PP_GEMM_GRADIENT && adds);
    call.adds = adds;
    EXPECT(launch(&cuda) == cudaSuccess);
    EXPECT(!cudaStreamSynchronize(stream));
    float got[MOST_RESULTS];
    EXPECT(c.n <= MOST_RESULTS);
    operand_read(&c, got);
    for (int i = 0; i < times; i++)
        check_numbers(p, a.host + i * as, b.host + i * bs, c.host + i * cs, got + i * cs, add);
    operand_free(&a);
    operand_free(&b);
    operand_free(&c);
}

static struct pp_cuda_gemm *open_products(void)
{
    struct pp_cuda_gemm *gemm;
    EXPECT(!cudaSetDevice(0));
    EXPECT(!cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    EXPECT(pp_cuda_gemm_open(&(struct pp_cuda_gemm_spec){.sms = 32}, &gemm) == PP_OK);
    EXPECT(!strcmp(pp_cuda_gemm_describe(gemm), "cuBLAS 13.1.0"));
    return gemm;
}

static const struct product one = {PP_KERNEL_GEMM_NT, 27, 36, 12, PP_GEMM_WRITE, 0, PP_FP32, 0, 0},
                            other = {PP_KERNEL_GEMM_NT, 27, 36, 24, PP_GEMM_WRITE, 0, PP_FP32, 0, 0},
                            many = {PP_KERNEL_GEMM_NT, 27, 36, 12, PP_GEMM_WRITE, 0, PP_FP32, 0, 8};

static void results(void)
{
    static const int shapes[][4] = {{27, 36, 12, 0}, {35, 100, 24, 0}, {7, 5, 9, 0}, {16, 64, 32, 1},
                                    {1, 1, 1, 0},    {14, 8, 20, 6},   {7, 5, 9, 3}};
    static const int kernels[] = {PP_KERNEL_GEMM_NT, PP_KERNEL_GEMM_NN, PP_KERNEL_GEMM_TN};
    struct pp_cuda_gemm *gemm = open_products();
    for (int shape = 0; shape < 7; shape++)
        for (int i = 0; i < 3 * 3 * 2 * 3 * 2 * 2; i++) { /* every combination of what follows */
            int rest = i;
            struct product p = {
                .m = shapes[shape][0], .n = shapes[shape][1], .k = shapes[shape][2], .times = shapes[shape][3]};
            p.kernel = kernels[rest % 3], rest /= 3;
            p.precision = rest % 3, rest /= 3;
            p.wide = rest % 2, rest /= 2;
            p.mode = rest % 3, rest /= 3;
            p.shift = rest % 2, rest /= 2;
            check_product(gemm, &p, rest);
        }
    const struct pp_call call = call_of(&many);
    EXPECT(pp_cuda_gemm_prepare(gemm, &call, stream) == PP_OK); /* has memory for all matrices */
    pp_cuda_gemm_close(gemm);
}

/* All questions to the heuristic but the first fail: a known shape asks none. */
static void one_plan_for_a_shape(void)
{
    struct pp_cuda_gemm *gemm = open_products();
    const struct pp_call call = call_of(&one), none = {.kernel = PP_KERNEL_RELU}, unknown = call_of(&other),
                         unknown_too = call_of(&many);
    EXPECT(pp_cuda_gemm_prepare(gemm, &none, stream) == PP_OK);
    EXPECT(pp_cuda_gemm_prepare(gemm, &call, stream) == PP_OK);
    EXPECT(pp_cuda_gemm_prepare(gemm, &call, stream) == PP_OK);
    check_product(gemm, &one, false);
    check_product(gemm, &one, false);
    EXPECT(pp_cuda_gemm_prepare(gemm, &unknown, stream) == PP_UNSUPPORTED);
    EXPECT(strstr(pp_message(), "gemm_nt 27x36x24 in fp32"));
    EXPECT(pp_cuda_gemm_prepare(gemm, &unknown_too, stream) == PP_UNSUPPORTED);
    EXPECT(strstr(pp_message(), "gemm_nt 27x36x12 times8 in fp32"));
    pp_cuda_gemm_close(gemm);
}

/* A line of a file for one product and one for eight, read again. */
static void lines_of_algorithms(void)
{
    static const char path[] = "algorithms";
    struct pp_algorithms written, read;
    const struct pp_call calls[] = {call_of(&one), call_of(&many)};
    struct pp_algorithm given[2];
    FILE *out = fopen(path, "w");
    EXPECT(out);
    pp_algorithms_begin(&written, "a GPU");
    pp_algorithms_write_head(&written, out);
    for (int i = 0; i < 2; i++) {
        given[i] = (struct pp_algorithm){.key = pp_gemm_key_of_offsets(&calls[i]), .sms = 32};
        memset(&given[i].algorithm, 0xa5 + i, sizeof given[i].algorithm);
        pp_algorithms_write(&given[i], "the best", out);
    }
    EXPECT(!fclose(out));
    pp_algorithms_begin(&read, "a GPU");
    EXPECT(pp_algorithms_read(&read, path) == PP_OK && read.n == 2);
    for (int i = 0; i < 2; i++) {
        const struct pp_algorithm *found = pp_algorithms_find(&read, &given[i].key, 32);
        EXPECT(found && !memcmp(&found->algorithm, &given[i].algorithm, sizeof found->algorithm));
    }
    pp_algorithms_free(&read);
    remove(path);
}

/* What comes of asking for an algorithm for `many`, one of whose matrices has another attribute. */
static pp_status ask_with(struct pp_cuda_gemm *gemm, int matrix, cublasLtMatrixLayoutAttribute_t attribute,
                          const void *value, size_t bytes)
{
    const struct pp_call call = call_of(&many);
    struct pp_gemm_plan plan = {.key = pp_gemm_key_of_offsets(&call)};
    EXPECT(pp_gemm_describe(gemm, &plan) == PP_OK);
    EXPECT(!cublasLtMatrixLayoutSetAttribute(plan.layout[matrix], attribute, value, bytes));
    const pp_status status = pp_gemm_choose(gemm, &plan);
    pp_gemm_plan_free(&plan);
    return status;
}

/* The emulated library takes as many matrices of each operand, and results beside each other, as the real one. */
static void many_that_do_not_fit(void)
{
    struct pp_cuda_gemm *gemm = open_products();
    const int32_t eight = 8, seven = 7;
    const int64_t near = 27 * 36 - 1, same = 0;
    EXPECT(ask_with(gemm, PP_GEMM_FIRST, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &eight, sizeof eight) == PP_OK);
    EXPECT(ask_with(gemm, PP_GEMM_FIRST, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &seven, sizeof seven) != PP_OK);
    EXPECT(ask_with(gemm, PP_GEMM_FIRST, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &same, sizeof same) == PP_OK);
    EXPECT(ask_with(gemm, PP_GEMM_RESULT, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &near, sizeof near) != PP_OK);
    pp_cuda_gemm_close(gemm);
}

/* A part of the device for which there is nothing has what the whole device would have. */
static void second_question(void)
{
    struct pp_cuda_gemm *gemm = open_products();
    check_product(gemm, &one, false);
    pp_cuda_gemm_close(gemm);
}

/* Both kernels of a product, the one that writes and the one that adds, are loaded before the first step. */
static void loads_both(void)
{
    struct pp_cuda_gemm *gemm = open_products();
    const struct pp_call call = call_of(&one);
    EXPECT(pp_cuda_gemm_prepare(gemm, &call, stream) != PP_OK);
    EXPECT(strstr(pp_message(), "cuBLAS cannot run gemm_nt 27x36x12 in fp32"));
    pp_cuda_gemm_close(gemm);
}

static void no_handle(void)
{
    struct pp_cuda_gemm *gemm;
    EXPECT(!cudaSetDevice(0));
    EXPECT(pp_cuda_gemm_open(&(struct pp_cuda_gemm_spec){0}, &gemm) != PP_OK);
    EXPECT(!gemm && strstr(pp_message(), "cuBLAS cannot start"));
}

static void no_workspace(void)
{
    struct pp_cuda_gemm *gemm;
    EXPECT(!cudaSetDevice(0));
    EXPECT(pp_cuda_gemm_open(&(struct pp_cuda_gemm_spec){0}, &gemm) == PP_NOMEM);
    EXPECT(!gemm && strstr(pp_message(), "64 MiB"));
}

/* A kernel that cannot be loaded beforehand is loaded later; nothing remembers the failure. */
static void no_memory_to_load(void)
{
    struct pp_cuda_gemm *gemm = open_products();
    const struct pp_call call = call_of(&one);
    EXPECT(pp_cuda_gemm_prepare(gemm, &call, stream) == PP_OK);
    EXPECT(cudaGetLastError() == cudaSuccess);
    check_product(gemm, &one, false);
    pp_cuda_gemm_close(gemm);
}

static void product_fails(void)
{
    struct pp_cuda_gemm *gemm = open_products();
    const struct pp_call call = call_of(&one);
    const struct pp_frame frame = {0};
    struct operand a = operand_make(27 * 36, false, 0, 1);
    const struct pp_cuda_call c = {
        .call = &call, .frame = &frame, .p = {a.device, a.device, a.device}, .stream = stream, .gemm = gemm};
    EXPECT(pp_cuda_gemm_nt(&c) == cudaErrorUnknown);
    EXPECT(strstr(pp_message(), "cuBLAS cannot run gemm_nt 27x36x12 in fp32"));
    operand_free(&a);
    pp_cuda_gemm_close(gemm);
}

/* Runs a case with the emulator's failures in a process of its own. */
static void in_process(void (*run)(void), const char *failures)
{
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        setenv("PP_EMULATE_FAIL", failures, 1);
        run();
        exit(0);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

static void test_results(void **state)
{
    (void)state;
    in_process(results, "");
}

static void test_plans(void **state)
{
    (void)state;
    /* 15: not supported. Each item counts the calls that no item before it made fail. */
    in_process(one_plan_for_a_shape, "cublasLtMatmulAlgoGetHeuristic:2=15,cublasLtMatmulAlgoGetHeuristic:2=15,"
                                     "cublasLtMatmulAlgoGetHeuristic:2=15,cublasLtMatmulAlgoGetHeuristic:2=15,"
                                     "cublasLtMatmulAlgoGetHeuristic:2=15,cublasLtMatmulAlgoGetHeuristic:2=15");
    in_process(second_question, "cublasLtMatmulAlgoGetHeuristic:1=15");
    in_process(second_question, "cublasLtMatmulAlgoGetHeuristic:1=15,cublasLtMatmulAlgoGetHeuristic:1=15");
    in_process(loads_both, "cublasLtMatmul:2");
    in_process(lines_of_algorithms, "");
    in_process(many_that_do_not_fit, "");
}

static void test_failures(void **state)
{
    (void)state;
    in_process(no_handle, "cublasLtCreate:1");
    in_process(no_workspace, "cudaMalloc:1");
    in_process(no_memory_to_load, "cudaMalloc:2");
    in_process(product_fails, "cublasLtMatmul:1");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_results), cmocka_unit_test(test_plans),
                                       cmocka_unit_test(test_failures)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
