/* SPDX-License-Identifier: Apache-2.0
 *
 * Finds the fastest algorithm for each product that cuBLAS computes. All algorithms that the heuristic offers run once
 * in each round, one after another, each time on another set of operands: so none finds in the cache what the one
 * before has left there.
 */
#include <stdlib.h>
#include <string.h>

#include "core/calls/fp8.h"
#include "kernels/cuda/device.h"
#include "kernels/cuda/gemm_plan.h"
#include "kernels/cuda/tf32.h"

enum {
    CANDIDATES = 16,
    ROUNDS = 11,
    BLOCK_BYTES = 1 << 20,  /* random numbers, repeated until operands are full */
    SAMPLE_BYTES = 1 << 20, /* of a result, which are compared with those of a second run */
    ALIGNMENT = 256,
    GATE_CYCLES = 1000000, /* before a round the stream waits so long, about 0.5 ms, while the host queues the round */
    WORTH_PERCENT = 98     /* an algorithm must take less than this share of the first one's time to replace it */
};

/* Device memory with `sets` sets of operands, one behind another, and behind them the scale of all factors in FP8.
 * offset: of an operand in its set. turn: counts the runs, which use one set after another. */
struct pool {
    char *memory;
    int64_t offset[PP_GEMM_OPERANDS], set_bytes;
    int64_t sets, turn;
};

struct trial {
    struct pp_device *device;
    struct pp_gemm_plan plan;
    struct pool pool;
    float beta;
    int n; /* of candidates that take part */
    cublasLtMatmulHeuristicResult_t candidate[CANDIDATES];
    int64_t ns[CANDIDATES][ROUNDS];
    int64_t median_ns[CANDIDATES];
};

/* ---- operands ---- */

static int64_t aligned(int64_t bytes) { return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT; }

/* Allocates enough sets, about twice the size of the L2 cache, so that a set has left the cache when its turn comes
 * again; one set where there is no memory for more. */
static pp_status open_pool(const struct pp_gemm_key *key, struct pool *pool)
{
    struct cudaDeviceProp gpu;
    int device = 0;
    PP_CUDA(cudaGetDevice(&device), "choosing algorithms");
    PP_CUDA(cudaGetDeviceProperties(&gpu, device), "asking for the GPU's properties");
    for (int i = 0; i < PP_GEMM_OPERANDS; i++) {
        pool->offset[i] = pool->set_bytes;
        pool->set_bytes += aligned(pp_gemm_operand_bytes(key, i));
    }
    pool->sets = 2 + 2 * (int64_t)gpu.l2CacheSize / pool->set_bytes;
    void *memory = NULL;
    cudaError_t error = cudaMalloc(&memory, (size_t)(pool->sets * pool->set_bytes) + sizeof(float));
    if (error == cudaErrorMemoryAllocation) {
        (void)cudaGetLastError();
        pool->sets = 1;
        error = cudaMalloc(&memory, (size_t)pool->set_bytes + sizeof(float));
    }
    if (error == cudaSuccess) pool->memory = memory;
    return pp_cuda_check(error, "taking memory to choose algorithms");
}

/* Bytes of a number of a product's factors. */
static int factor_bytes(const struct pp_gemm_key *key)
{
    return key->kernel == PP_KERNEL_GEMM_FP8 ? 1 : key->precision == PP_BF16 ? 2 : 4;
}

/* Fills the block with numbers in (-1, 1) of so many bytes each: FP8, bfloat16 or float32. Zeros would let the GPU run
 * faster than it does on real data. FP8: E4M3; the same codes, read as E5M2 or, several together, as a number of a
 * result, are finite numbers as well. */
static void fill_block(char *block, int bytes)
{
    uint32_t x = 1;
    for (int i = 0; i < BLOCK_BYTES; i += bytes) {
        x = x * 1664525u + 1013904223u;
        const float value = (float)(x >> 8) * 0x1p-23f - 1;
        if (bytes == 1)
            block[i] = (char)pp_fp8(value, false);
        else
            memcpy(block + i, (const char *)&value + 4 - bytes, (size_t)bytes); /* a bfloat16 is a float's upper half */
    }
}

static char *scale_of(const struct pool *pool) { return pool->memory + pool->sets * pool->set_bytes; }

static pp_status fill_pool(const struct pool *pool, int number_bytes, cudaStream_t stream)
{
    static const float scale = 1;
    static const char doing[] = "filling operands";
    const int64_t bytes = pool->sets * pool->set_bytes;
    int64_t filled = bytes < BLOCK_BYTES ? bytes : BLOCK_BYTES;
    char *block;
    PP_TRY(PP_NEW(&block, BLOCK_BYTES));
    fill_block(block, number_bytes);
    pp_status status =
        pp_cuda_check(cudaMemcpyAsync(scale_of(pool), &scale, sizeof scale, cudaMemcpyHostToDevice, stream), doing);
    if (status == PP_OK)
        status =
            pp_cuda_check(cudaMemcpyAsync(pool->memory, block, (size_t)filled, cudaMemcpyHostToDevice, stream), doing);
    for (; status == PP_OK && filled < bytes; filled *= 2) {
        const int64_t more = bytes - filled < filled ? bytes - filled : filled;
        status = pp_cuda_check(
            cudaMemcpyAsync(pool->memory + filled, pool->memory, (size_t)more, cudaMemcpyDeviceToDevice, stream),
            doing);
    }
    const cudaError_t ended = cudaStreamSynchronize(stream); /* it reads the block */
    free(block);
    return status == PP_OK ? pp_cuda_check(ended, doing) : status;
}

/* ---- rounds ---- */

/* Queues the product by candidate i, on set number set_index. */
static pp_status multiply(struct trial *t, int i, int64_t set_index, float beta)
{
    const struct pool *pool = &t->pool;
    char *set = pool->memory + set_index * pool->set_bytes;
    void *p[PP_GEMM_ADDRESSES];
    for (int k = 0; k < PP_GEMM_OPERANDS; k++) p[k] = set + pool->offset[k];
    p[PP_GEMM_FIRST_SCALE] = p[PP_GEMM_SECOND_SCALE] = scale_of(pool);
    t->plan.algorithm = t->candidate[i].algo;
    t->plan.workspace_bytes = t->candidate[i].workspaceSize;
    return pp_gemm_multiply(t->device->gemm, &t->plan, p, beta, t->device->compute.stream);
}

/* *good: candidate i runs, and gives the same bits when it runs again. sample: [2][SAMPLE_BYTES] */
static pp_status try_one(struct trial *t, int i, char *sample, bool *good)
{
    static const char doing[] = "trying algorithms";
    const cudaStream_t stream = t->device->compute.stream;
    const int64_t all = pp_gemm_operand_bytes(&t->plan.key, PP_GEMM_RESULT);
    const size_t bytes = all < SAMPLE_BYTES ? (size_t)all : SAMPLE_BYTES;
    *good = false;
    /* A refusal by cuBLAS is no error here. A failure of the GPU is reported by the next call. */
    if (multiply(t, i, 0, t->beta) != PP_OK) return PP_OK;
    for (int k = 0; k < 2; k++) {
        if (multiply(t, i, 0, 0) != PP_OK) return PP_OK;
        PP_CUDA(cudaMemcpyAsync(sample + k * SAMPLE_BYTES, t->pool.memory + t->pool.offset[PP_GEMM_RESULT], bytes,
                                cudaMemcpyDeviceToHost, stream),
                doing);
        PP_CUDA(cudaStreamSynchronize(stream), doing);
    }
    *good = !memcmp(sample, sample + SAMPLE_BYTES, bytes);
    return PP_OK;
}

/* Tries all candidates, which also loads their kernels, and keeps the good ones. */
static pp_status try_all(struct trial *t)
{
    int n = 0;
    char *sample;
    PP_TRY(PP_NEW(&sample, 2 * SAMPLE_BYTES));
    pp_status status = PP_OK;
    for (int i = 0; i < t->n && status == PP_OK; i++) {
        bool good;
        status = try_one(t, i, sample, &good);
        if (status == PP_OK && good) t->candidate[n++] = t->candidate[i];
    }
    t->n = n;
    free(sample);
    return status;
}

/* Runs all candidates once; each round begins with another one. The host queues the whole round while the stream waits
 * (GATE_CYCLES), so the time between two events is that of a product, without waiting for the host. */
static pp_status run_round(struct trial *t, int round)
{
    static const char doing[] = "timing algorithms";
    const cudaStream_t stream = t->device->compute.stream;
    cudaEvent_t *times = t->device->times[0].event;
    PP_CUDA(pp_cuda_spin(stream, 1, GATE_CYCLES), doing);
    PP_CUDA(cudaEventRecord(times[0], stream), doing);
    for (int i = 0; i < t->n; i++) {
        PP_TRY(multiply(t, (i + round) % t->n, t->pool.turn++ % t->pool.sets, t->beta));
        PP_CUDA(cudaEventRecord(times[i + 1], stream), doing);
    }
    PP_TRY(pp_cuda_poll(times[t->n], NULL));
    for (int i = 0; i < t->n; i++) PP_TRY(pp_cuda_between(times[i], times[i + 1], &t->ns[(i + round) % t->n][round]));
    return PP_OK;
}

static int by_value(const void *a, const void *b)
{
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static int fastest(struct trial *t)
{
    int best = 0;
    for (int i = 0; i < t->n; i++) {
        qsort(t->ns[i], ROUNDS, sizeof t->ns[i][0], by_value);
        t->median_ns[i] = t->ns[i][ROUNDS / 2];
        if (t->median_ns[i] < t->median_ns[best]) best = i;
    }
    return 100 * t->median_ns[best] < WORTH_PERCENT * t->median_ns[0] ? best : 0;
}

static pp_status run_trial(struct trial *t, int *best)
{
    const cudaStream_t stream = t->device->compute.stream;
    PP_TRY(fill_pool(&t->pool, factor_bytes(&t->plan.key), stream));
    PP_TRY(pp_cuda_make_times(t->device, 0, CANDIDATES + 1));
    PP_TRY(try_all(t));
    for (int round = 0; round < ROUNDS && t->n > 0; round++) PP_TRY(run_round(t, round));
    *best = fastest(t);
    return PP_OK;
}

/* ---- a product ---- */

/* Writes the choice into the file and keeps it for this device. */
static pp_status keep(const struct trial *t, int best, FILE *out)
{
    struct pp_algorithms *known = &t->device->gemm->algorithms;
    const struct pp_algorithm algorithm = {
        .key = t->plan.key, .sms = t->device->gemm->sms, .algorithm = t->candidate[best].algo};
    char remark[120];
    snprintf(remark, sizeof remark, "number %d of %d, %.1f us; the first %.1f us", best + 1, t->n,
             (double)t->median_ns[best] / 1e3, (double)t->median_ns[0] / 1e3);
    pp_algorithms_write(&algorithm, remark, out);
    return pp_algorithms_add(known, &algorithm);
}

static pp_status try_product(struct trial *t, FILE *out, int *added)
{
    int best = 0;
    PP_TRY(pp_gemm_describe(t->device->gemm, &t->plan));
    PP_TRY(pp_gemm_candidates(t->device->gemm, &t->plan, CANDIDATES, t->candidate, &t->n));
    if (t->n == 0) return PP_OK;
    pp_status status = open_pool(&t->plan.key, &t->pool);
    if (status == PP_OK) status = run_trial(t, &best);
    (void)cudaFree(t->pool.memory);
    if (status != PP_OK || t->n == 0) return status;
    ++*added;
    return keep(t, best, out);
}

static pp_status tune_call(struct pp_device *device, const struct pp_call *call, FILE *out, int *added)
{
    const struct pp_gemm_key key = pp_gemm_key_of_offsets(call);
    struct trial *t;
    if (pp_algorithms_find(&device->gemm->algorithms, &key, device->gemm->sms) ||
        pp_gemm_own_rows(device->gemm, call, &key, pp_tf32_bytes(call)) > 0)
        return PP_OK;
    PP_TRY(PP_NEW(&t, 1));
    t->device = device;
    t->plan.key = key;
    t->beta =
        call->gemm.mode == PP_GEMM_WRITE ? 0 : 1; /* of several microbatches' gradients all but the first are added */
    const pp_status status = try_product(t, out, added);
    pp_gemm_plan_free(&t->plan);
    free(t);
    return status;
}

pp_status pp_cuda_tune(struct pp_device *device, const struct pp_program *program, FILE *out, int *added)
{
    if (ftell(out) == 0) pp_algorithms_write_head(&device->gemm->algorithms, out);
    for (int i = 0; i < program->ncalls; i++)
        if (pp_kernel_is_product(program->calls[i].kernel)) PP_TRY(tune_call(device, &program->calls[i], out, added));
    return PP_OK;
}
