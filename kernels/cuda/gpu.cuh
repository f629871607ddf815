/* SPDX-License-Identifier: Apache-2.0
 *
 * What the CUDA kernels share: element types, rows as quads, reductions in a fixed order, random numbers, and dropout.
 *
 * A quad is four successive columns of a row, 4k .. 4k+3: one call of the random generator makes the numbers of all
 * four. Kernels compute in float, whatever type numbers have in memory. Blocks consist of whole warps and have at most
 * 1024 threads.
 *
 * Tests compile the kernels for the host; they define PP_LAUNCH, PP_SHARED and PP_SHARED_ONE before they include this.
 */
#ifndef PP_KERNELS_CUDA_GPU_CUH
#define PP_KERNELS_CUDA_GPU_CUH

#include <cuda_bf16.h>
#include <stdint.h>

#include "kernels/cuda/launch.h"

/* Launches a kernel; `kernel` may be a pointer to one. */
#ifndef PP_LAUNCH
#define PP_LAUNCH(kernel, grid, block, shared_bytes, stream, ...)                                                      \
    kernel<<<(grid), (block), (shared_bytes), (stream)>>>(__VA_ARGS__)
#endif

/* Declares `type *name`: the block's dynamic shared memory, of the size that the launch gave (shared_bytes). At most
 * once in a kernel. */
#ifndef PP_SHARED
#define PP_SHARED(type, name)                                                                                          \
    extern __shared__ __align__(16) unsigned char pp_shared_bytes[];                                                   \
    type *const name = reinterpret_cast<type *>(pp_shared_bytes)
#endif

/* Declares `type name`: a variable in static shared memory, which all threads of the block share. */
#ifndef PP_SHARED_ONE
#define PP_SHARED_ONE(type, name) __shared__ type name
#endif

/* function<T>(c) for the element type of the call's activations. */
#define PP_BY_PRECISION(function, c) ((c)->call->precision == PP_BF16 ? function<__nv_bfloat16>(c) : function<float>(c))

enum { PP_WARP = 32, PP_BLOCK_WARPS = 32, PP_QUAD = 4 };

/* An array with a place for each warp of a block. */
template <typename T> using pp_by_warp = T[PP_BLOCK_WARPS];

/* Declares pp_cuda_prepare_NAME() for each file of kernels; pp_cuda_prepare() calls them all. */
#define PP_CUDA_KERNELS(file) extern "C" cudaError_t pp_cuda_prepare_##file(void);
#include "kernels/cuda/kernels.def"
#undef PP_CUDA_KERNELS

/* Loads kernels: with lazy loading (CUDA_MODULE_LOADING=LAZY) CUDA would load a kernel at its first launch, and
 * cudaFuncGetAttributes does it now. */
static inline cudaError_t pp_load_kernels(const void *const *kernels, int n)
{
    cudaError_t error = cudaSuccess;
    struct cudaFuncAttributes ignored;
    for (int i = 0; i < n && error == cudaSuccess; i++) error = cudaFuncGetAttributes(&ignored, kernels[i]);
    return error;
}

static __host__ __device__ constexpr int pp_div_up(int64_t n, int by) { return (int)((n + by - 1) / by); }

/* How many threads a block needs for `items` of work, one item each: a multiple of a warp's threads, `most` at most. */
static inline int pp_block_threads(int64_t items, int most)
{
    const int64_t threads = (items + PP_WARP - 1) / PP_WARP * PP_WARP;
    return (int)(threads < most ? threads : most);
}

/* ---- elements ---- */

static __device__ inline float pp_to_float(float x) { return x; }
static __device__ inline float pp_to_float(__nv_bfloat16 x) { return __bfloat162float(x); }

template <typename T> static __device__ inline T pp_from_float(float x);
template <> __device__ inline float pp_from_float<float>(float x) { return x; }
template <> __device__ inline __nv_bfloat16 pp_from_float<__nv_bfloat16>(float x) { return __float2bfloat16_rn(x); }

struct pp_quad {
    float v[PP_QUAD];
};

/* A quad as it lies in memory, so aligned that one instruction reads or writes all of it. */
template <typename T> struct alignas(PP_QUAD * sizeof(T)) pp_pack {
    T v[PP_QUAD];
};

/* Is p aligned as a pp_pack<T>? NULL is. For quads of all rows of a matrix the caller must also ask whether width %
 * PP_QUAD == 0. */
template <typename T> static inline bool pp_aligned(const T *p) { return (uintptr_t)p % sizeof(pp_pack<T>) == 0; }

/* The quad at p. `left` columns exist from p on; columns beyond them read as 0. aligned: all four exist, and
 * pp_aligned(p). */
template <bool aligned, typename T> static __device__ inline pp_quad pp_load(const T *p, int64_t left)
{
    pp_quad q;
    if (aligned) {
        const pp_pack<T> pack = *reinterpret_cast<const pp_pack<T> *>(p);
#pragma unroll
        for (int i = 0; i < PP_QUAD; i++) q.v[i] = pp_to_float(pack.v[i]);
    } else {
#pragma unroll
        for (int i = 0; i < PP_QUAD; i++) q.v[i] = i < left ? pp_to_float(p[i]) : 0;
    }
    return q;
}

/* The quad of columns j .. j+3 of a row at p. p may be NULL, for an operand that is not there: it reads as 0. */
template <bool aligned, typename T> static __device__ inline pp_quad pp_load_any(const T *p, int64_t j, int64_t left)
{
    return p ? pp_load<aligned>(p + j, left) : pp_quad{};
}

template <bool aligned, typename T> static __device__ inline void pp_store(T *p, int64_t left, pp_quad q)
{
    if (aligned) {
        pp_pack<T> pack;
#pragma unroll
        for (int i = 0; i < PP_QUAD; i++) pack.v[i] = pp_from_float<T>(q.v[i]);
        *reinterpret_cast<pp_pack<T> *>(p) = pack;
    } else {
#pragma unroll
        for (int i = 0; i < PP_QUAD; i++)
            if (i < left) p[i] = pp_from_float<T>(q.v[i]);
    }
}

/* Asks for what lies at p in global memory, so that it is in the GPU's cache when it is read. */
static __device__ inline void pp_prefetch(const void *p)
{
#ifdef __CUDA_ARCH__
    asm volatile("prefetch.global.L2 [%0];" ::"l"(__cvta_generic_to_global(p)));
#else
    (void)p;
#endif
}

/* ---- reductions: numbers are combined in a fixed order, and all threads get the result ---- */

/* Two sums that are made together. */
struct pp_pair {
    float a, b;
    __device__ pp_pair &operator+=(const pp_pair &other)
    {
        a += other.a;
        b += other.b;
        return *this;
    }
};

template <typename V> static __device__ inline V pp_of_lane(V v, int step)
{
    return __shfl_xor_sync(0xffffffffu, v, step);
}
template <> __device__ inline pp_pair pp_of_lane<pp_pair>(pp_pair v, int step)
{
    return {pp_of_lane(v.a, step), pp_of_lane(v.b, step)};
}

template <typename V> static __device__ inline V pp_warp_sum(V v)
{
#pragma unroll
    for (int step = PP_WARP / 2; step; step /= 2) v += pp_of_lane(v, step);
    return v;
}

static __device__ inline float pp_warp_max(float v)
{
#pragma unroll
    for (int step = PP_WARP / 2; step; step /= 2) v = fmaxf(v, __shfl_xor_sync(0xffffffffu, v, step));
    return v;
}

/* The sum over all threads of a one-dimensional block; all of them must call it. shared: [PP_BLOCK_WARPS] in shared
 * memory. The caller may use `shared` for the next sum without a barrier in between. */
template <typename V> static __device__ inline V pp_block_sum(V v, V *shared)
{
    const int warps = (int)blockDim.x / PP_WARP;
    v = pp_warp_sum(v);
    if (warps == 1) return v;
    __syncthreads();
    if (threadIdx.x % PP_WARP == 0) shared[threadIdx.x / PP_WARP] = v;
    __syncthreads();
    v = shared[0];
    for (int i = 1; i < warps; i++) v += shared[i];
    return v;
}

static __device__ inline float pp_block_max(float v, float *shared)
{
    const int warps = (int)blockDim.x / PP_WARP;
    v = pp_warp_max(v);
    if (warps == 1) return v;
    __syncthreads();
    if (threadIdx.x % PP_WARP == 0) shared[threadIdx.x / PP_WARP] = v;
    __syncthreads();
    v = shared[0];
    for (int i = 1; i < warps; i++) v = fmaxf(v, shared[i]);
    return v;
}

/* ---- random numbers ---- */

/* Philox4x32-10 (Salmon et al., "Parallel Random Numbers: As Easy as 1, 2, 3", SC'11). */
static __device__ inline uint4 pp_philox(uint4 counter, uint32_t key0, uint32_t key1)
{
    uint32_t x0 = counter.x, x1 = counter.y, x2 = counter.z, x3 = counter.w;
#pragma unroll
    for (int round = 0; round < 10; round++) {
        const uint64_t a = (uint64_t)x0 * 0xD2511F53u, b = (uint64_t)x2 * 0xCD9E8D57u;
        x0 = (uint32_t)(b >> 32) ^ x1 ^ key0;
        x2 = (uint32_t)(a >> 32) ^ x3 ^ key1;
        x1 = (uint32_t)b;
        x3 = (uint32_t)a;
        key0 += 0x9E3779B9u;
        key1 += 0xBB67AE85u;
    }
    return make_uint4(x0, x1, x2, x3);
}

/* ---- dropout: the random numbers of kernels/cpu/simd/random.h ---- */

struct pp_dropout {
    uint32_t key[2], step, site;
    uint32_t threshold;     /* an element is kept if its random number is not below this */
    float scale;            /* kept elements are multiplied by this: 1 / (1 - p) */
    uint32_t first;         /* quads of columns that other workers of the rank have before ours */
    pp_token_places places; /* where tokens stand in whole rows; seq 0: the call's rows are not tokens */
    bool on;                /* false: the call has no dropout */
};

/* The dropout of a call. seq: if the call's rows are tokens, the number of tokens in each row of the batch, else 0. */
static inline struct pp_dropout pp_dropout_of(const struct pp_cuda_call *c, int seq)
{
    const float p = c->call->p;
    const struct pp_frame *frame = c->frame;
    struct pp_dropout drop;
    drop.on = c->call->site && frame->training && p > 0;
    drop.key[0] = (uint32_t)frame->seed;
    drop.key[1] = (uint32_t)(frame->seed >> 32);
    drop.step = frame->step;
    drop.site = (uint32_t)c->call->site;
    drop.threshold = drop.on ? (uint32_t)((double)p * 4294967296.0) : 0;
    drop.scale = drop.on ? 1 / (1 - p) : 1;
    drop.first = 0;
    drop.places = pp_token_places_of(seq, frame);
    return drop;
}

/* The same for a call whose rows are the tokens that `tokens` describes. */
static inline struct pp_dropout pp_dropout_of_tokens(const struct pp_cuda_call *c, const struct pp_tokens *tokens)
{
    struct pp_dropout drop = pp_dropout_of(c, tokens->seq);
    drop.places = pp_places_of_tokens(tokens, c->frame);
    return drop;
}

/* The same for an activation function. Each worker of a tensor-parallel rank has a part of its columns; if there are
 * several workers, each part is whole quads. */
static inline struct pp_dropout pp_dropout_of_part(const struct pp_cuda_call *c)
{
    struct pp_dropout drop = pp_dropout_of(c, c->call->activation.seq);
    drop.first = (uint32_t)((int64_t)c->frame->tensor_rank * c->call->activation.width / PP_QUAD);
    return drop;
}

/* For calls over [rows * seq, width]: the number of the call's first row vector (token), counted over the batch. */
static inline uint32_t pp_first_vector(const struct pp_cuda_call *c, int seq)
{
    return (uint32_t)(c->frame->first_row * seq);
}

/* The random numbers of columns 4*quad .. 4*quad+3 of a row vector. */
static __device__ inline uint4 pp_random(const pp_dropout &drop, uint32_t vector, uint32_t quad)
{
    return pp_philox(make_uint4(quad, vector, drop.step, drop.site), drop.key[0], drop.key[1]);
}

/* The place in the whole row of the worker's token t of that row. */
static __host__ __device__ inline int pp_place_of(const pp_row_places &p, int t)
{
    return t + (t < p.run ? p.before : p.behind);
}

/* The number of the worker's token number `token`, counted over whole rows: also over tokens that other workers have.
 */
static __device__ inline uint32_t pp_token_place(const pp_token_places &p, uint32_t token)
{
    const uint32_t gaps = p.run ? (token - p.first) / p.run * p.gap : 0, t = token - p.begin + gaps;
    if (!p.others) return t + p.begin;
    const uint32_t row = t / p.seq;
    return t + row * p.others + p.before + (t - row * p.seq < p.half ? 0 : p.apart);
}

/* Applies dropout to a quad: scales the elements that are kept and sets the others to 0. quad: its number in the row.
 * Returns q as it is if the call has no dropout. */
static __device__ inline pp_quad pp_drop(const pp_dropout &drop, uint32_t vector, uint32_t quad, pp_quad q)
{
    if (!drop.on) return q;
    const uint4 random = pp_random(drop, pp_token_place(drop.places, vector), drop.first + quad);
    q.v[0] = random.x >= drop.threshold ? q.v[0] * drop.scale : 0;
    q.v[1] = random.y >= drop.threshold ? q.v[1] * drop.scale : 0;
    q.v[2] = random.z >= drop.threshold ? q.v[2] * drop.scale : 0;
    q.v[3] = random.w >= drop.threshold ? q.v[3] * drop.scale : 0;
    return q;
}

#endif
