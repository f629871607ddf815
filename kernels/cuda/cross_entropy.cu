/* SPDX-License-Identifier: Apache-2.0
 *
 * Softmax and cross-entropy, with a thread block for each token: a first pass over the token's logits makes their
 * maximum and the sum of exponentials, a second pass their gradient. Up to HELD_WORDS words stay in registers, all are
 * on their way from memory at the same time, and there is one pass. Which thread adds what depends on the vocabulary
 * alone, so rows with padding give the same bits as rows without. Where the workers of a tensor-parallel rank have a
 * part of the vocabulary each, the two passes are two kernels, and the workers exchange their maxima and sums between
 * them.
 *
 * Measured on an H200, 28782 words, gradient in bf16: 60 us for 700 tokens, 16 for 105; in two passes 62 and 18.
 */
#include <algorithm>

#include "kernels/cuda/gpu.cuh"

enum { THREADS = 1024, BLOCKS = 2 /* a multiprocessor shall have room for so many blocks */ };

/* Of one pass: quads that a thread holds, and words of a row. */
enum { HELD = 8, HELD_BATCH = 4, HELD_WORDS = HELD * THREADS * PP_QUAD };

/* So many tokens' losses fit into the scratch. */
static const int64_t loss_rows = PP_CUDA_SCRATCH_BYTES / sizeof(double);

template <typename D> struct entropy {
    const float *logits; /* [T, columns] */
    const float *bias;   /* [vocab], or NULL */
    const int32_t *target;
    D *dlogits;   /* [T, columns]; NULL: no gradient */
    double *loss; /* [T]; NULL: no loss */
    int vocab, columns;
    float scale;
    /* Where several workers share the vocabulary: */
    float *parts;           /* [tensor, all tokens, PP_ENTROPY_PART], at the first token of this launch */
    int64_t apart;          /* floats from one worker's part to the next one's */
    int tensor, rank, word; /* number of workers; this worker's number; its first word */
};

/* Columns j .. j+3 of logits or bias, zeros beyond the vocabulary's end. */
template <bool aligned, typename D> static __device__ pp_quad words_at(const entropy<D> &e, const float *row, int j)
{
    if (aligned && j + PP_QUAD <= e.vocab) return pp_load<true>(row + j, PP_QUAD);
    return pp_load<false>(row + j, e.vocab - j);
}
template <bool aligned, typename D> static __device__ pp_quad bias_at(const entropy<D> &e, int j)
{
    return e.bias ? words_at<aligned>(e, e.bias, j) : pp_quad{};
}

/* Logits with bias of columns j .. j+3; -infinity beyond the vocabulary's end. */
template <typename D> static __device__ pp_quad add_bias(const entropy<D> &e, int j, pp_quad s, pp_quad bias)
{
#pragma unroll
    for (int k = 0; k < PP_QUAD; k++) s.v[k] = j + k < e.vocab ? s.v[k] + bias.v[k] : -INFINITY;
    return s;
}
template <bool aligned, typename D> static __device__ pp_quad scores_at(const entropy<D> &e, const float *row, int j)
{
    return add_bias(e, j, words_at<aligned>(e, row, j), bias_at<aligned>(e, j));
}

/* *most: the row's greatest score; *sum: the sum of exp(score - *most) over the row. All threads get both. */
template <bool aligned, typename D>
static __device__ void softmax_sums(const entropy<D> &e, const float *row, float *shared, float *most, float *sum)
{
    float top = -INFINITY, mine = 0;
    for (int j = PP_QUAD * (int)threadIdx.x; j < e.vocab; j += PP_QUAD * (int)blockDim.x) {
        const pp_quad s = scores_at<aligned>(e, row, j);
        float higher = top;
#pragma unroll
        for (int k = 0; k < PP_QUAD; k++) higher = fmaxf(higher, s.v[k]);
        const float base = higher == -INFINITY ? 0 : higher; /* if all scores so far are -infinity, they add 0 */
        mine *= expf(top - base);
        top = higher;
#pragma unroll
        for (int k = 0; k < PP_QUAD; k++) mine += expf(s.v[k] - base);
    }
    *most = pp_block_max(top, shared);
    *sum = pp_block_sum(mine * expf(top - *most), shared);
}

/* Writes the gradient of the token's logits. target: the wanted word, counted from the worker's first word; it is no
 * column of the row if another worker has it. */
template <bool aligned, typename D>
static __device__ void write_gradient(const entropy<D> &e, int target, float most, float sum)
{
    const int64_t at = (int64_t)blockIdx.x * e.columns;
    const float factor = e.scale / sum;
    for (int j = PP_QUAD * (int)threadIdx.x; j < e.columns; j += PP_QUAD * (int)blockDim.x) {
        const pp_quad s = scores_at<aligned>(e, e.logits + at, j);
        pp_quad q;
#pragma unroll
        for (int k = 0; k < PP_QUAD; k++) q.v[k] = expf(s.v[k] - most) * factor - (j + k == target ? e.scale : 0);
        pp_store<aligned>(e.dlogits + at + j, e.columns - j, q);
    }
}

/* The token's loss, by one thread. */
template <typename D>
static __device__ void write_loss(const entropy<D> &e, const float *row, int target, float most, float sum)
{
    if (threadIdx.x || !e.loss) return;
    const float wanted = row[target] + (e.bias ? e.bias[target] : 0);
    e.loss[blockIdx.x] = log((double)sum) + (double)most - (double)wanted;
}

/* The thread's quads of a row's scores, columns j, j + step, ... */
template <bool aligned, typename D>
static __device__ void take_scores(const entropy<D> &e, const float *row, int j, int step, pp_quad (&s)[HELD])
{
#pragma unroll
    for (int i = 0; i < HELD; i++) s[i] = words_at<aligned>(e, row, j + i * step);
#pragma unroll
    for (int first = 0; first < HELD; first += HELD_BATCH) {
        pp_quad bias[HELD_BATCH];
#pragma unroll
        for (int i = 0; i < HELD_BATCH; i++) bias[i] = bias_at<aligned>(e, j + (first + i) * step);
#pragma unroll
        for (int i = 0; i < HELD_BATCH; i++) s[first + i] = add_bias(e, j + (first + i) * step, s[first + i], bias[i]);
    }
}

/* In one pass: no more than HELD_WORDS words. */
template <bool aligned, typename D>
static __global__ void __launch_bounds__(THREADS, 1) cross_entropy_held(entropy<D> e)
{
    PP_SHARED_ONE(pp_by_warp<float>, shared);
    const float *row = e.logits + (int64_t)blockIdx.x * e.columns;
    const int target = e.target[blockIdx.x], start = PP_QUAD * (int)threadIdx.x, step = PP_QUAD * (int)blockDim.x;
    pp_quad s[HELD];
    float top = -INFINITY, sum = 0;
    take_scores<aligned>(e, row, start, step, s);
#pragma unroll
    for (int i = 0; i < HELD * PP_QUAD; i++) top = fmaxf(top, s[i / PP_QUAD].v[i % PP_QUAD]);
    const float most = pp_block_max(top, shared);
#pragma unroll
    for (int i = 0; i < HELD * PP_QUAD; i++) {
        float &score = s[i / PP_QUAD].v[i % PP_QUAD];
        score = expf(score - most);
        sum += score;
    }
    sum = pp_block_sum(sum, shared);
    write_loss(e, row, target, most, sum);
    if (!e.dlogits) return;
    __syncthreads(); /* the gradient may replace the logits, of which the loss has read one */
    D *to = e.dlogits + (int64_t)blockIdx.x * e.columns;
    const float factor = e.scale / sum;
#pragma unroll
    for (int i = 0; i < HELD; i++) {
        const int j = start + i * step;
        if (j >= e.columns) return;
#pragma unroll
        for (int k = 0; k < PP_QUAD; k++) s[i].v[k] = s[i].v[k] * factor - (j + k == target ? e.scale : 0);
        pp_store<aligned>(to + j, e.columns - j, s[i]);
    }
    for (int j = start + HELD * step; j < e.columns; j += step) pp_store<aligned>(to + j, e.columns - j, pp_quad{});
}

template <bool aligned, typename D>
static __global__ void __launch_bounds__(THREADS, BLOCKS) cross_entropy(entropy<D> e)
{
    PP_SHARED_ONE(pp_by_warp<float>, shared);
    const float *row = e.logits + (int64_t)blockIdx.x * e.columns;
    const int target = e.target[blockIdx.x];
    float most, sum;
    softmax_sums<aligned>(e, row, shared, &most, &sum);
    write_loss(e, row, target, most, sum);
    if (!e.dlogits) return;
    __syncthreads(); /* the gradient may replace the logits, of which the loss has read one */
    write_gradient<aligned>(e, target, most, sum);
}

/* Writes what the worker knows of its words: maximum, sum, and the wanted word's score if it has that word; zeros in
 * the places of other workers, for parts are added up over the workers. */
template <bool aligned> static __global__ void __launch_bounds__(THREADS, BLOCKS) cross_entropy_part(entropy<float> e)
{
    PP_SHARED_ONE(pp_by_warp<float>, shared);
    const float *row = e.logits + (int64_t)blockIdx.x * e.columns;
    const int target = e.target[blockIdx.x] - e.word;
    float *parts = e.parts + (int64_t)blockIdx.x * PP_ENTROPY_PART;
    float most, sum;
    softmax_sums<aligned>(e, row, shared, &most, &sum);
    for (int i = (int)threadIdx.x; i < e.tensor; i += (int)blockDim.x) {
        const bool own = i == e.rank, wanted = own && target >= 0 && target < e.vocab;
        float *part = parts + i * e.apart;
        part[0] = own ? most : 0;
        part[1] = own ? sum : 0;
        part[2] = wanted ? row[target] + (e.bias ? e.bias[target] : 0) : 0;
    }
}

/* Combines all workers' parts of the token: the greatest score, the sum of exponentials, the wanted word's score. */
template <typename D> static __device__ void join_parts(const entropy<D> &e, float *most, float *sum, float *wanted)
{
    const float *const first = e.parts + (int64_t)blockIdx.x * PP_ENTROPY_PART;
    *most = -INFINITY;
    *sum = *wanted = 0;
    for (int i = 0; i < e.tensor; i++) *most = fmaxf(*most, first[i * e.apart]);
    for (int i = 0; i < e.tensor; i++) {
        const float *part = first + i * e.apart;
        *sum += part[1] * expf(part[0] - *most);
        *wanted += part[2];
    }
}

template <bool aligned, typename D>
static __global__ void __launch_bounds__(THREADS, BLOCKS) cross_entropy_join(entropy<D> e)
{
    float most, sum, wanted;
    join_parts(e, &most, &sum, &wanted);
    if (threadIdx.x == 0 && e.loss) e.loss[blockIdx.x] = log((double)sum) + (double)most - (double)wanted;
    const int target = e.target[blockIdx.x] - e.word;
    if (e.dlogits) write_gradient<aligned>(e, target < e.vocab ? target : -1, most, sum); /* not in the padding */
}

/* *total = the sum of loss[0 .. n-1], or *total += it if `add`. One block; the order of the sum depends on n alone. */
static __global__ void __launch_bounds__(THREADS) add_losses(const double *loss, int n, double *total, bool add)
{
    PP_SHARED_ONE(pp_by_warp<double>, shared);
    double sum = 0;
    for (int i = threadIdx.x; i < n; i += THREADS) sum += loss[i];
    sum = pp_block_sum(sum, shared);
    if (threadIdx.x == 0) *total = add ? *total + sum : sum;
}

template <typename D> using entropy_kernel = void (*)(entropy<D>);
/* [aligned] */
template <typename D>
static const entropy_kernel<D> whole_kernels[] = {cross_entropy<false, D>, cross_entropy<true, D>};
template <typename D>
static const entropy_kernel<D> held_kernels[] = {cross_entropy_held<false, D>, cross_entropy_held<true, D>};
template <typename D>
static const entropy_kernel<D> join_kernels[] = {cross_entropy_join<false, D>, cross_entropy_join<true, D>};
static const entropy_kernel<float> part_kernels[] = {cross_entropy_part<false>, cross_entropy_part<true>};

/* Sets what depends on the worker's part of the vocabulary. first: the launch's first token. */
template <typename D> static void set_words(const struct pp_cuda_call *c, int first, entropy<D> *e)
{
    const struct pp_loss_dims *n = &c->call->loss;
    const bool shares = c->call->kernel != PP_KERNEL_CROSS_ENTROPY;
    e->tensor = pp_frame_tensor(c->frame);
    e->rank = c->frame->tensor_rank;
    e->word = shares ? e->rank * n->vocab : 0;
    e->vocab = shares ? std::min(n->vocab, n->whole - e->word) : n->vocab;
    e->apart = (int64_t)n->rows * n->seq * PP_ENTROPY_PART;
    e->parts = shares ? static_cast<float *>(c->at.loss.parts) + (int64_t)first * PP_ENTROPY_PART : NULL;
}

/* Launches the kernels for `tokens` tokens from `first` on, loss_rows at most. */
template <typename D>
static cudaError_t run_tokens(const struct pp_cuda_call *c, const entropy_kernel<D> *kernels, int first, int tokens)
{
    const struct pp_loss_memory *at = &c->at.loss;
    const struct pp_loss_dims *n = &c->call->loss;
    entropy<D> e;
    set_words(c, first, &e);
    e.columns = n->columns;
    e.logits = static_cast<const float *>(at->logits) + (int64_t)first * e.columns;
    e.bias = static_cast<const float *>(at->bias);
    e.target = static_cast<const int32_t *>(at->targets) + first;
    e.dlogits = n->gradient ? static_cast<D *>(at->dlogits) + (int64_t)first * e.columns : NULL;
    e.loss =
        c->frame->loss && c->call->kernel != PP_KERNEL_CROSS_ENTROPY_PART ? static_cast<double *>(c->scratch) : NULL;
    e.scale = c->frame->loss_scale;
    const bool aligned =
        e.columns % PP_QUAD == 0 && pp_aligned(e.logits) && pp_aligned(e.bias) && pp_aligned(e.dlogits);
    const entropy_kernel<D> kernel = kernels[aligned];
    const int threads = pp_block_threads(pp_div_up(n->vocab, PP_QUAD), THREADS);
    PP_LAUNCH(kernel, tokens, threads, 0, c->stream, e);
    if (e.loss) PP_LAUNCH(add_losses, 1, THREADS, 0, c->stream, e.loss, tokens, c->frame->loss, first > 0);
    return cudaGetLastError();
}

template <typename D> static cudaError_t run(const struct pp_cuda_call *c, const entropy_kernel<D> *kernels)
{
    const struct pp_loss_dims *n = &c->call->loss;
    /* Gradients of another size than logits cannot take their place: they would be written before all logits are read.
     */
    if (n->gradient && sizeof(D) != sizeof(float) && c->at.loss.dlogits == c->at.loss.logits)
        return cudaErrorInvalidValue;
    const int64_t tokens = (int64_t)n->rows * n->seq;
    cudaError_t error = cudaSuccess;
    for (int64_t first = 0; first < tokens && error == cudaSuccess; first += loss_rows)
        error = run_tokens<D>(c, kernels, (int)first, (int)std::min(tokens - first, loss_rows));
    return error;
}

template <typename D> static cudaError_t run_whole(const struct pp_cuda_call *c)
{
    return run(c, c->call->loss.vocab <= HELD_WORDS ? held_kernels<D> : whole_kernels<D>);
}
template <typename D> static cudaError_t run_join(const struct pp_cuda_call *c) { return run(c, join_kernels<D>); }

cudaError_t pp_cuda_cross_entropy(const struct pp_cuda_call *c) { return PP_BY_PRECISION(run_whole, c); }
cudaError_t pp_cuda_cross_entropy_part(const struct pp_cuda_call *c) { return run<float>(c, part_kernels); }
cudaError_t pp_cuda_cross_entropy_join(const struct pp_cuda_call *c) { return PP_BY_PRECISION(run_join, c); }

template <typename D> static cudaError_t prepare(const entropy_kernel<D> *kernels)
{
    const void *const both[] = {reinterpret_cast<const void *>(kernels[false]),
                                reinterpret_cast<const void *>(kernels[true])};
    return pp_load_kernels(both, sizeof both / sizeof both[0]);
}

cudaError_t pp_cuda_prepare_cross_entropy(void)
{
    const void *const kernels[] = {reinterpret_cast<const void *>(add_losses)};
    cudaError_t error = pp_load_kernels(kernels, sizeof kernels / sizeof kernels[0]);
    if (error == cudaSuccess) error = prepare(part_kernels);
    if (error == cudaSuccess) error = prepare(whole_kernels<float>);
    if (error == cudaSuccess) error = prepare(whole_kernels<__nv_bfloat16>);
    if (error == cudaSuccess) error = prepare(held_kernels<float>);
    if (error == cudaSuccess) error = prepare(held_kernels<__nv_bfloat16>);
    if (error == cudaSuccess) error = prepare(join_kernels<float>);
    return error == cudaSuccess ? prepare(join_kernels<__nv_bfloat16>) : error;
}
