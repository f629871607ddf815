/* SPDX-License-Identifier: Apache-2.0
 *
 * Embedding with positions, and the gradients of both. For the gradient of the words' vectors the tokens are sorted by
 * word, so that one block adds all rows of a word, in the order of the tokens. For the gradient of learned positions
 * each place has a block. So there are no atomic additions, and sums are made in the same order as on the cpu.
 *
 * Where the words' gradient is not added to, all of it is cleared first, also where no token has the word. Measured on
 * an H200, 28782 words of 4096 columns in bf16: 8.5 us for 70 tokens where it is added to, and 122 us for 700 tokens
 * where it is not. Clearing writes 472 MB, which takes 113 us at the 4.16 TB/s of a copy.
 */
#include <algorithm>

#include "kernels/cuda/gpu.cuh"

enum { THREADS = 256 };

/* Makes table [seq, d]: in column 2k the sine and in column 2k + 1 the cosine of t * exp(-ln(10000) * 2k / d), where t
 * is the token's place in the whole row. In double, and by sincospi, whose argument is in half turns and so needs no
 * reduction of large angles. Grid: (tokens of a row, pairs of columns / THREADS). */
static __global__ void __launch_bounds__(THREADS) positions(float *table, pp_row_places places, int d)
{
    const int k = (int)(blockIdx.y * THREADS + threadIdx.x), t = (int)blockIdx.x;
    if (2 * k >= d) return;
    const double ln_10000 = 9.2103403719761836, pi = 3.14159265358979323846;
    double s, c;
    sincospi(pp_place_of(places, t) * (exp(-ln_10000 * 2 * k / d) / pi), &s, &c);
    float *at = table + (int64_t)t * d + 2 * k;
    at[0] = (float)s;
    if (2 * k + 1 < d) at[1] = (float)c;
}

template <typename T> struct embedding {
    T *out;
    const int32_t *token;
    const float *weight, *table; /* [words, d]; [places, d] of positions, NULL: nothing is added */
    int word, words;             /* the worker has so many words, from number `word` on */
    int seq, d;
    pp_row_places places; /* which rows of the table a row's tokens have */
    float scale;
    uint32_t vector;
    pp_dropout drop;
};

/* out [tokens, d] = drop(weight of the token's word * scale + position). Grid: (tokens, quads of a row / threads). */
template <typename T, bool aligned> static __global__ void __launch_bounds__(THREADS) embed(embedding<T> e)
{
    const int64_t j = PP_QUAD * ((int64_t)blockIdx.y * blockDim.x + threadIdx.x), left = e.d - j;
    if (left <= 0) return;
    T *out = e.out + (int64_t)blockIdx.x * e.d + j;
    const int word = e.token[blockIdx.x] - e.word;
    if (word < 0 || word >= e.words) return pp_store<aligned>(out, left, {}); /* another worker has it */
    pp_quad q = pp_load<aligned>(e.weight + (int64_t)word * e.d + j, left);
    pp_quad position = {};
    if (e.table) {
        const int place = pp_place_of(e.places, (int)(blockIdx.x % e.seq));
        position = pp_load<aligned>(e.table + (int64_t)place * e.d + j, left);
    }
#pragma unroll
    for (int k = 0; k < PP_QUAD; k++) q.v[k] = q.v[k] * e.scale + position.v[k];
    q = pp_drop(e.drop, e.vector + blockIdx.x, (uint32_t)(j / PP_QUAD), q);
    pp_store<aligned>(out, left, q);
}

template <typename T> static cudaError_t run_embed(const struct pp_cuda_call *c)
{
    const struct pp_embed_memory *at = &c->at.embed;
    const struct pp_embed_dims *n = &c->call->embed;
    const int seq = n->seq, d = n->d;
    const float *learned = static_cast<const float *>(at->positions);
    float *made = static_cast<float *>(at->scratch);
    embedding<T> e;
    e.out = static_cast<T *>(at->out);
    e.token = static_cast<const int32_t *>(at->tokens);
    e.weight = static_cast<const float *>(at->weight);
    const pp_row_places places = pp_row_places_of(seq, c->frame), rows = {seq, 0, 0};
    e.table = n->positions == PP_POSITIONS_LEARNED ? learned : made;
    e.places = n->positions == PP_POSITIONS_LEARNED ? places : rows;
    e.words = n->vocab;
    e.word = c->frame->tensor_rank * e.words;
    e.seq = seq;
    e.d = d;
    e.scale = c->call->scale;
    e.vector = pp_first_vector(c, seq);
    e.drop = pp_dropout_of(c, seq);
    if (made) PP_LAUNCH(positions, dim3(seq, pp_div_up(d, 2 * THREADS)), THREADS, 0, c->stream, made, places, d);
    const bool aligned = d % PP_QUAD == 0 && pp_aligned(e.out) && pp_aligned(e.weight) && pp_aligned(e.table);
    const auto kernel = aligned ? embed<T, true> : embed<T, false>;
    const int quads = pp_div_up(d, PP_QUAD), threads = pp_block_threads(quads, THREADS);
    PP_LAUNCH(kernel, dim3(n->rows * seq, pp_div_up(quads, threads)), threads, 0, c->stream, e);
    return cudaGetLastError();
}

cudaError_t pp_cuda_embed(const struct pp_cuda_call *c) { return PP_BY_PRECISION(run_embed, c); }

struct sorted {
    int32_t word, token;
};
static_assert(PP_CUDA_SORT_TOKENS * sizeof(sorted) <= PP_CUDA_SCRATCH_BYTES, "the list lies in the scratch");

/* Sorts tokens by word, and tokens of the same word by their number: out [tokens]. A warp counts how many tokens come
 * before its token; that is the token's place. */
static __global__ void __launch_bounds__(THREADS) sort_tokens(const int32_t *word, int tokens, sorted *out)
{
    const int t = (int)(blockIdx.x * (THREADS / PP_WARP) + threadIdx.x / PP_WARP);
    if (t >= tokens) return;
    const int32_t mine = word[t];
    int before = 0;
    for (int s = threadIdx.x % PP_WARP; s < tokens; s += PP_WARP)
        before += word[s] < mine || (word[s] == mine && s < t) ? 1 : 0;
    before = pp_warp_sum(before);
    if (threadIdx.x % PP_WARP == 0) out[before] = {mine, t};
}

template <typename T> struct embedding_grad {
    float *grad;
    const sorted *token;
    int tokens;
    const T *dy;
    int word, words; /* the worker has so many words, from number `word` on */
    int d;
    float scale;
    uint32_t vector;
    pp_dropout drop;
};

/* grad [words, d] += scale * drop(dy) of each word's tokens. Grid: (places in the sorted list, quads of a row /
 * threads). The blocks at the first place of a word add the rows of all its tokens, if the worker has the word; the
 * others end at once. */
template <typename T, bool aligned> static __global__ void __launch_bounds__(THREADS) embed_grad(embedding_grad<T> e)
{
    const int place = (int)blockIdx.x;
    const int32_t word = e.token[place].word;
    if (place > 0 && e.token[place - 1].word == word) return;
    if (word < e.word || word - e.word >= e.words) return;
    const int64_t j = PP_QUAD * ((int64_t)blockIdx.y * blockDim.x + threadIdx.x), left = e.d - j;
    if (left <= 0) return;
    int end = place + 1;
    while (end < e.tokens && e.token[end].word == word) end++;
    float *grad = e.grad + (int64_t)(word - e.word) * e.d + j;
    pp_quad sum = pp_load<aligned>(grad, left);
#pragma unroll 4
    for (int i = place; i < end; i++) {
        const int t = e.token[i].token;
        const pp_quad q = pp_drop(e.drop, e.vector + (uint32_t)t, (uint32_t)(j / PP_QUAD),
                                  pp_load<aligned>(e.dy + (int64_t)t * e.d + j, left));
#pragma unroll
        for (int k = 0; k < PP_QUAD; k++) sum.v[k] += q.v[k] * e.scale;
    }
    pp_store<aligned>(grad, left, sum);
}

/* Adds the rows of tokens first .. first + e.tokens - 1. */
template <typename T>
static void add_tokens(const struct pp_cuda_call *c, embedding_grad<T> e, int64_t first, bool aligned)
{
    sorted *list = static_cast<sorted *>(c->scratch);
    const int quads = pp_div_up(e.d, PP_QUAD), threads = pp_block_threads(quads, THREADS);
    const auto kernel = aligned ? embed_grad<T, true> : embed_grad<T, false>;
    e.token = list;
    e.dy += first * e.d;
    e.vector += (uint32_t)first;
    PP_LAUNCH(sort_tokens, pp_div_up(e.tokens, THREADS / PP_WARP), THREADS, 0, c->stream,
              static_cast<const int32_t *>(c->at.embed_grad.tokens) + first, e.tokens, list);
    PP_LAUNCH(kernel, dim3(e.tokens, pp_div_up(quads, threads)), threads, 0, c->stream, e);
}

template <typename T> static cudaError_t run_embed_grad(const struct pp_cuda_call *c)
{
    const struct pp_embed_dims *n = &c->call->embed;
    const int seq = n->seq, d = n->d;
    const int64_t tokens = (int64_t)n->rows * seq;
    embedding_grad<T> e;
    e.grad = static_cast<float *>(c->at.embed_grad.weight_grad);
    e.token = NULL;
    e.dy = static_cast<const T *>(c->at.embed_grad.dy);
    e.words = n->vocab;
    e.word = c->frame->tensor_rank * e.words;
    e.d = d;
    e.scale = c->call->scale;
    e.vector = pp_first_vector(c, seq);
    e.drop = pp_dropout_of(c, seq);
    if (!c->call->adds) {
        const size_t bytes = sizeof(float) * (size_t)n->vocab * (size_t)d;
        const cudaError_t error = cudaMemsetAsync(e.grad, 0, bytes, c->stream);
        if (error != cudaSuccess) return error;
    }
    const bool aligned = d % PP_QUAD == 0 && pp_aligned(e.grad) && pp_aligned(e.dy);
    for (int64_t first = 0; first < tokens; first += PP_CUDA_SORT_TOKENS) {
        e.tokens = (int)std::min(tokens - first, (int64_t)PP_CUDA_SORT_TOKENS);
        add_tokens(c, e, first, aligned);
    }
    return cudaGetLastError();
}

cudaError_t pp_cuda_embed_grad(const struct pp_cuda_call *c) { return PP_BY_PRECISION(run_embed_grad, c); }

template <typename T> struct position_grad {
    float *grad;
    const T *dy;
    int rows, seq, d;
    pp_row_places at;
    bool adds;
    uint32_t vector;
    pp_dropout drop;
};

/* The number of the worker's token that stands at this place of a row; `seq` or more if the worker has none there. */
static __device__ inline int token_at(const pp_row_places &p, int seq, int place)
{
    const int first = place - p.before, second = place - p.behind;
    if (first >= 0 && first < p.run) return first;
    return second >= p.run ? second : seq;
}

/* The gradient of learned positions, grad [places, d]: the sum of drop(dy) over all rows of the batch, in their order.
 * If it adds to what is there, grid: (tokens of a row, quads of a row / threads). Else grid: (places, ...), and places
 * without a token of the worker become 0. */
template <typename T, bool aligned> static __global__ void __launch_bounds__(THREADS) positions_grad(position_grad<T> p)
{
    const int block = (int)blockIdx.x, t = p.adds ? block : token_at(p.at, p.seq, block),
              place = p.adds ? pp_place_of(p.at, block) : block;
    const int64_t j = PP_QUAD * ((int64_t)blockIdx.y * blockDim.x + threadIdx.x), left = p.d - j;
    if (left <= 0) return;
    float *grad = p.grad + (int64_t)place * p.d + j;
    pp_quad sum = {};
    if (p.adds) sum = pp_load<aligned>(grad, left);
#pragma unroll 4
    for (int row = 0; row < p.rows && t < p.seq; row++) {
        const int64_t token = (int64_t)row * p.seq + t;
        const pp_quad q = pp_drop(p.drop, p.vector + (uint32_t)token, (uint32_t)(j / PP_QUAD),
                                  pp_load<aligned>(p.dy + token * p.d + j, left));
#pragma unroll
        for (int k = 0; k < PP_QUAD; k++) sum.v[k] += q.v[k];
    }
    pp_store<aligned>(grad, left, sum);
}

template <typename T> static cudaError_t run_positions_grad(const struct pp_cuda_call *c)
{
    const struct pp_positions_dims *n = &c->call->positions;
    const int seq = n->seq, d = n->d;
    position_grad<T> p;
    p.grad = static_cast<float *>(c->at.positions_grad.positions_grad);
    p.dy = static_cast<const T *>(c->at.positions_grad.dy);
    p.rows = n->rows;
    p.seq = seq;
    p.d = d;
    p.adds = c->call->adds;
    p.at = pp_row_places_of(seq, c->frame);
    p.vector = pp_first_vector(c, seq);
    p.drop = pp_dropout_of(c, seq);
    const bool aligned = d % PP_QUAD == 0 && pp_aligned(p.grad) && pp_aligned(p.dy);
    const auto kernel = aligned ? positions_grad<T, true> : positions_grad<T, false>;
    const int quads = pp_div_up(d, PP_QUAD), threads = pp_block_threads(quads, THREADS);
    PP_LAUNCH(kernel, dim3(p.adds ? seq : n->places, pp_div_up(quads, threads)), threads, 0, c->stream, p);
    return cudaGetLastError();
}

cudaError_t pp_cuda_positions_grad(const struct pp_cuda_call *c) { return PP_BY_PRECISION(run_positions_grad, c); }

cudaError_t pp_cuda_prepare_embedding(void)
{
    const void *const kernels[] = {reinterpret_cast<const void *>(positions),
                                   reinterpret_cast<const void *>(sort_tokens),
                                   reinterpret_cast<const void *>(embed<float, true>),
                                   reinterpret_cast<const void *>(embed<float, false>),
                                   reinterpret_cast<const void *>(embed<__nv_bfloat16, true>),
                                   reinterpret_cast<const void *>(embed<__nv_bfloat16, false>),
                                   reinterpret_cast<const void *>(embed_grad<float, true>),
                                   reinterpret_cast<const void *>(embed_grad<float, false>),
                                   reinterpret_cast<const void *>(embed_grad<__nv_bfloat16, true>),
                                   reinterpret_cast<const void *>(embed_grad<__nv_bfloat16, false>),
                                   reinterpret_cast<const void *>(positions_grad<float, true>),
                                   reinterpret_cast<const void *>(positions_grad<float, false>),
                                   reinterpret_cast<const void *>(positions_grad<__nv_bfloat16, true>),
                                   reinterpret_cast<const void *>(positions_grad<__nv_bfloat16, false>)};
    return pp_load_kernels(kernels, sizeof kernels / sizeof kernels[0]);
}
