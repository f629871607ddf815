/* SPDX-License-Identifier: Apache-2.0
 *
 * Where are the TF32 kernels of kernels/cuda/tf32.h faster than cuBLAS? `ninja tf32_times`, then
 * `tests/bench/bin/tf32_times`, lets both take turns with products of a table, on the first GPU, of compute capability
 * 9.0. The limits in tf32.c are of such figures. Operands lie in several places, which are used one after another, so
 * that none is in the cache when its turn comes again; and the GPU rests between turns, so that it keeps its clock.
 */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <cuda_runtime_api.h>

#include "kernels/cuda/gemm.h"
#include "kernels/cuda/tf32.h"

#define PP_CUDA_KERNELS(file) cudaError_t pp_cuda_prepare_##file(void);
#include "kernels/cuda/kernels.def"
#undef PP_CUDA_KERNELS

enum { TURNS = 5, REST_NS = 4000000, TURN_US = 1500, MOST_RUNS = 64, OPERANDS = 3 };
enum way { CUBLAS, OURS, WAYS };
static const char *const names[WAYS] = {[CUBLAS] = "cuBLAS", [OURS] = "ours"};

static const struct {
    int kernel, m, n, k;
    bool adds;
} products[] = {
    /* a batch of the tutorial, of tutorial-12, and their microbatches */
    {PP_KERNEL_GEMM_NT, 700, 4096, 4096, false},
    {PP_KERNEL_GEMM_NT, 700, 12288, 4096, false},
    {PP_KERNEL_GEMM_NT, 700, 28800, 4096, false},
    {PP_KERNEL_GEMM_NN, 700, 4096, 4096, false},
    {PP_KERNEL_GEMM_NN, 700, 4096, 12288, false},
    {PP_KERNEL_GEMM_TN, 4096, 4096, 700, false},
    {PP_KERNEL_GEMM_TN, 12288, 4096, 700, false},
    {PP_KERNEL_GEMM_NT, 500, 4096, 4096, false},
    {PP_KERNEL_GEMM_NT, 500, 12288, 4096, false},
    {PP_KERNEL_GEMM_NN, 500, 4096, 4096, false},
    {PP_KERNEL_GEMM_NN, 500, 4096, 12288, false},
    {PP_KERNEL_GEMM_TN, 4096, 4096, 500, false},
    {PP_KERNEL_GEMM_NT, 350, 4096, 4096, false},
    {PP_KERNEL_GEMM_NT, 350, 12288, 4096, false},
    {PP_KERNEL_GEMM_NN, 350, 4096, 4096, false},
    {PP_KERNEL_GEMM_TN, 4096, 4096, 350, true},
    {PP_KERNEL_GEMM_NT, 175, 4096, 4096, false},
    {PP_KERNEL_GEMM_NT, 175, 12288, 4096, false},
    {PP_KERNEL_GEMM_NN, 175, 4096, 4096, false},
    {PP_KERNEL_GEMM_TN, 4096, 4096, 175, true},
    {PP_KERNEL_GEMM_NT, 140, 4096, 4096, false},
    {PP_KERNEL_GEMM_NT, 140, 12288, 4096, false},
    {PP_KERNEL_GEMM_NT, 105, 12288, 4096, false},
    {PP_KERNEL_GEMM_NN, 105, 4096, 4096, false},
    /* of GPT-like models */
    {PP_KERNEL_GEMM_NT, 1024, 4096, 4096, false},
    {PP_KERNEL_GEMM_NN, 1024, 4096, 4096, false},
    {PP_KERNEL_GEMM_NT, 2048, 4096, 4096, false},
    {PP_KERNEL_GEMM_NN, 2048, 4096, 4096, false},
    {PP_KERNEL_GEMM_NT, 4096, 4096, 4096, false},
    {PP_KERNEL_GEMM_NN, 4096, 4096, 4096, false},
    {PP_KERNEL_GEMM_TN, 1024, 1024, 4096, true},
    {PP_KERNEL_GEMM_TN, 4096, 1024, 4096, true},
    {PP_KERNEL_GEMM_TN, 16384, 4096, 2048, true},
};

static struct {
    cudaStream_t stream;
    cudaEvent_t begin, end;
    struct pp_cuda_gemm *gemm; /* cuBLAS's */
    int sms;
    int64_t cache_bytes;
    void *scratch;
} gpu;

static void must(cudaError_t error, const char *doing)
{
    if (error == cudaSuccess) return;
    fprintf(stderr, "tf32_times: %s: %s\n", doing, cudaGetErrorString(error));
    exit(1);
}

static void must_ok(pp_status status)
{
    if (status == PP_OK) return;
    fprintf(stderr, "tf32_times: %s\n", pp_message());
    exit(1);
}

static void open_gpu(void)
{
    struct cudaDeviceProp properties;
    must(cudaSetDevice(0), "taking the first GPU");
    must(cudaGetDeviceProperties(&properties, 0), "asking for its properties");
    if (properties.major != 9 || properties.minor != 0) {
        fprintf(stderr, "tf32_times: %s is not of compute capability 9.0\n", properties.name);
        exit(1);
    }
    gpu.sms = properties.multiProcessorCount;
    gpu.cache_bytes = properties.l2CacheSize;
    must(cudaStreamCreateWithFlags(&gpu.stream, cudaStreamNonBlocking), "making a stream");
    must(cudaEventCreateWithFlags(&gpu.begin, cudaEventDefault), "making an event");
    must(cudaEventCreateWithFlags(&gpu.end, cudaEventDefault), "making an event");
    must(cudaMalloc(&gpu.scratch, PP_CUDA_MOST_SCRATCH_BYTES), "taking memory");
    must(pp_cuda_prepare_turn(), "loading kernels");
    must(pp_cuda_prepare_tf32(), "loading kernels");
    must_ok(pp_cuda_gemm_open(&(struct pp_cuda_gemm_spec){0}, &gpu.gemm));
    printf("%s, %d SMs, %s\n", properties.name, gpu.sms, pp_cuda_gemm_describe(gpu.gemm));
}

/* Sets of operands, one behind the other. */
struct pool {
    char *memory;
    int64_t bytes[OPERANDS], set_bytes; /* of C, A and B */
    int sets, next;
};

static struct pool open_pool(const struct pp_call *call)
{
    const struct pp_gemm_dims *n = &call->gemm;
    struct pool pool = {.bytes = {(int64_t)n->m * n->n * 4, (int64_t)n->m * n->k * 4, (int64_t)n->n * n->k * 4}};
    for (int i = 0; i < OPERANDS; i++) pool.set_bytes += pool.bytes[i] = (pool.bytes[i] + 255) / 256 * 256;
    pool.sets = (int)(2 + 2 * gpu.cache_bytes / pool.set_bytes);
    must(cudaMalloc((void **)&pool.memory, (size_t)(pool.sets * pool.set_bytes)), "taking memory");
    float *numbers = malloc((size_t)pool.set_bytes);
    if (!numbers) must(cudaErrorMemoryAllocation, "taking memory here");
    for (int64_t i = 0; i < pool.set_bytes / 4; i++)
        numbers[i] = (float)((uint32_t)i * 2654435761u >> 8) * 0x1p-23f - 1;
    for (int i = 0; i < pool.sets; i++)
        must(cudaMemcpy(pool.memory + i * pool.set_bytes, numbers, (size_t)pool.set_bytes, cudaMemcpyHostToDevice),
             "copying");
    free(numbers);
    return pool;
}

static void queue(const struct pp_call *call, struct pool *pool, enum way way)
{
    static const struct pp_frame frame = {0};
    char *set = pool->memory + pool->next * pool->set_bytes;
    struct pp_cuda_call c = {.call = call,
                             .frame = &frame,
                             .sms = gpu.sms,
                             .scratch = gpu.scratch,
                             .scratch_bytes = PP_CUDA_MOST_SCRATCH_BYTES,
                             .stream = gpu.stream,
                             .gemm = gpu.gemm};
    c.p[0] = set, c.p[1] = set + pool->bytes[0], c.p[2] = set + pool->bytes[0] + pool->bytes[1];
    pool->next = (pool->next + 1) % pool->sets;
    if (way == OURS)
        must(pp_tf32_multiply(&c, pp_tf32_rows(call, c.scratch_bytes), call->adds), "multiplying");
    else
        must_ok(pp_cuda_gemm_run(&c));
}

/* Mean microseconds of some runs, after one that nobody times. */
static double time_turn(const struct pp_call *call, struct pool *pool, enum way way, int runs)
{
    const struct timespec rest = {0, REST_NS};
    float ms;
    nanosleep(&rest, NULL);
    queue(call, pool, way);
    must(cudaEventRecord(gpu.begin, gpu.stream), "recording");
    for (int i = 0; i < runs; i++) queue(call, pool, way);
    must(cudaEventRecord(gpu.end, gpu.stream), "recording");
    must(cudaEventSynchronize(gpu.end), "waiting");
    must(cudaEventElapsedTime(&ms, gpu.begin, gpu.end), "timing");
    return 1e3 * ms / runs;
}

static int by_size(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void time_product(const struct pp_call *call)
{
    const struct pp_gemm_dims *n = &call->gemm;
    const struct pp_tf32_sides sides = pp_tf32_sides_of(call);
    struct pool pool = open_pool(call);
    double us[WAYS][TURNS], share;
    const double once = time_turn(call, &pool, CUBLAS, 1);
    const int runs = once * MOST_RUNS < TURN_US ? MOST_RUNS : 1 + (int)(TURN_US / once);
    for (int turn = 0; turn < TURNS; turn++)
        for (int way = 0; way < WAYS; way++) us[way][turn] = time_turn(call, &pool, (enum way)way, runs);
    for (int way = 0; way < WAYS; way++) qsort(us[way], TURNS, sizeof **us, by_size);
    must(cudaFree(pool.memory), "giving memory back");
    const struct pp_tf32_tiles *tiles = &pp_tf32_tiles[pp_tf32_choose(sides.rows, sides.columns, gpu.sms, &share)];
    const bool taken = pp_tf32_gains(call, gpu.sms);
    printf("%-8s %5d x %5d x %5d %-5s  %8.1f %8.1f  %5.2f  %3d rows %d x %d  %4.2f  %s\n",
           pp_kernel_table[call->kernel].name, n->m, n->n, n->k, call->adds ? "adds" : "", us[CUBLAS][TURNS / 2],
           us[OURS][TURNS / 2], us[OURS][TURNS / 2] / us[CUBLAS][TURNS / 2], tiles->rows, tiles->columns_beside,
           tiles->rows_beside, share, names[taken ? OURS : CUBLAS]);
}

int main(void)
{
    open_gpu();
    printf("%-8s %21s %-5s  %8s %8s  %5s  %-14s  %4s  %s\n", "product", "m x n x k", "", "cuBLAS us", "ours us",
           "ratio", "tiles", "share", "taken");
    for (size_t i = 0; i < sizeof products / sizeof products[0]; i++) {
        const int mode = products[i].kernel == PP_KERNEL_GEMM_TN ? PP_GEMM_GRADIENT : PP_GEMM_WRITE;
        const struct pp_call call = {.kernel = products[i].kernel,
                                     .gemm = {products[i].m, products[i].n, products[i].k, mode, true, 1},
                                     .adds = products[i].adds,
                                     .precision = PP_TF32};
        time_product(&call);
    }
    pp_cuda_gemm_close(gpu.gemm);
    return 0;
}
