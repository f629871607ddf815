/* SPDX-License-Identifier: Apache-2.0
 *
 * Softmax and cross-entropy, one block per token: maximum and sum in one pass over the logits, their gradient in a
 * second one. Which thread adds what depends on the vocabulary alone: padded rows give the same bits. Where the workers
 * of a rank share the vocabulary, each pass is a kernel of its own, and between them they tell each other.
 */
#include <algorithm>

#include "kernels/cuda/gpu.cuh"

enum { THREADS = 1024, BLOCKS = 2 /* of a multiprocessor at a time, at least */ };

/* Rows whose losses fit into the scratch. */
static const int64_t loss_rows = PP_CUDA_SCRATCH_BYTES / sizeof(double);

template <typename D> struct entropy {
    const float *logits; /* [T, columns] */
    const float *bias;   /* [vocab], or NULL */
    const int32_t *target;
    D *dlogits;   /* [T, columns]; NULL: no gradient */
    double *loss; /* [T]; NULL: no loss */
    int vocab, columns;
    float scale;
    /* Of several workers: */
    float *parts;           /* [tensor, all tokens, PP_ENTROPY_PART], from the call's first token on */
    int64_t apart;          /* from a worker's part to the next one's */
    int tensor, rank, word; /* word: the worker's first */
};

/* Logits with bias, columns j .. j+3 of a row; -inf from the vocabulary's end on. */
template <bool aligned, typename D> static __device__ pp_quad scores_at(const entropy<D> &e, const float *row, int j)
{
    const bool whole = j + PP_QUAD <= e.vocab;
    const int left = e.vocab - j;
    pp_quad s, bias;
    if (aligned && whole) {
        s = pp_load<true>(row + j, PP_QUAD);
        bias = pp_load_any<true>(e.bias, j, PP_QUAD);
    } else {
        s = pp_load<false>(row + j, left);
        bias = pp_load_any<false>(e.bias, j, left);
    }
#pragma unroll
    for (int k = 0; k < PP_QUAD; k++) s.v[k] = k < left ? s.v[k] + bias.v[k] : -INFINITY;
    return s;
}

/* The row's greatest score, and the sum of exp(score - most), in all threads. */
template <bool aligned, typename D>
static __device__ void softmax_sums(const entropy<D> &e, const float *row, float *shared, float *most, float *sum)
{
    float top = -INFINITY, mine = 0;
    for (int j = PP_QUAD * (int)threadIdx.x; j < e.vocab; j += PP_QUAD * (int)blockDim.x) {
        const pp_quad s = scores_at<aligned>(e, row, j);
        float higher = top;
#pragma unroll
        for (int k = 0; k < PP_QUAD; k++) higher = fmaxf(higher, s.v[k]);
        const float base = higher == -INFINITY ? 0 : higher; /* nothing but -inf so far adds 0 */
        mine *= expf(top - base);
        top = higher;
#pragma unroll
        for (int k = 0; k < PP_QUAD; k++) mine += expf(s.v[k] - base);
    }
    *most = pp_block_max(top, shared);
    *sum = pp_block_sum(mine * expf(top - *most), shared);
}

/* The token's gradient of the logits. target: its word, counted from the worker's first; another worker's is none of
 * these columns. */
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

template <bool aligned, typename D>
static __global__ void __launch_bounds__(THREADS, BLOCKS) cross_entropy(entropy<D> e)
{
    PP_SHARED_ONE(pp_by_warp<float>, shared);
    const float *row = e.logits + (int64_t)blockIdx.x * e.columns;
    const int target = e.target[blockIdx.x];
    float most, sum;
    softmax_sums<aligned>(e, row, shared, &most, &sum);
    if (threadIdx.x == 0 && e.loss) {
        const float wanted = row[target] + (e.bias ? e.bias[target] : 0);
        e.loss[blockIdx.x] = log((double)sum) + (double)most - (double)wanted;
    }
    if (!e.dlogits) return;
    __syncthreads(); /* the loss has read what may lie in the gradient's place */
    write_gradient<aligned>(e, target, most, sum);
}

/* What the worker tells of its words. */
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

/* What all workers' parts of the token make. */
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

/* One block: *total = sum of the losses, in a fixed order; add: to what is there. */
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
static const entropy_kernel<D> join_kernels[] = {cross_entropy_join<false, D>, cross_entropy_join<true, D>};
static const entropy_kernel<float> part_kernels[] = {cross_entropy_part<false>, cross_entropy_part<true>};

/* The call's words, and parts: of the tokens from `first` on. */
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

/* The tokens from `first` on, as many as have room for their losses. */
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
    /* rows of another size in the logits' place would be written before they are read */
    if (n->gradient && sizeof(D) != sizeof(float) && c->at.loss.dlogits == c->at.loss.logits)
        return cudaErrorInvalidValue;
    const int64_t tokens = (int64_t)n->rows * n->seq;
    cudaError_t error = cudaSuccess;
    for (int64_t first = 0; first < tokens && error == cudaSuccess; first += loss_rows)
        error = run_tokens<D>(c, kernels, (int)first, (int)std::min(tokens - first, loss_rows));
    return error;
}

template <typename D> static cudaError_t run_whole(const struct pp_cuda_call *c) { return run(c, whole_kernels<D>); }
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
    if (error == cudaSuccess) error = prepare(join_kernels<float>);
    return error == cudaSuccess ? prepare(join_kernels<__nv_bfloat16>) : error;
}
