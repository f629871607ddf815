/* SPDX-License-Identifier: Apache-2.0
 *
 * Rotary positions: rotates queries and keys in place, after adding in_proj's bias, and rotates their gradients back.
 * One pass over memory: a thread block has a token, computes its sines and cosines once and uses them for all heads.
 */
#include <math.h>

#include "kernels/cuda/gpu.cuh"
#include "kernels/rotation.h"

enum { THREADS = 256, PIECE = 512 /* shared memory has the angles of so many pairs of columns at a time */ };
using angles = float[PIECE];

template <typename T> struct rotation {
    T *qkv;
    const float *bias; /* [width]; NULL: nothing is added */
    int seq, dh, half; /* half of the columns of a head that are rotated: the two of a pair lie so far apart */
    int still;         /* columns of a head before these, which stay as they are */
    int heads, width;  /* heads that are rotated (queries, then keys); columns of a token in qkv */
    pp_rotation rates;
    float direction; /* 1: forward; -1: backward, by the negative angle */
    float magnitude; /* times sines and cosines */
    pp_row_places places;
};

/* Makes sines and cosines of the token's angles for `n` pairs of columns from pair `first` on. The angle is computed in
 * double, in half turns, and reduced to [-1, 1]: so large positions lose no accuracy, and float is enough for the rest.
 */
template <typename T>
static __device__ inline void make_angles(const rotation<T> &r, int first, int n, float *sines, float *cosines)
{
    const double pi = 3.14159265358979323846, token = (double)pp_place_of(r.places, (int)(blockIdx.x % r.seq));
    for (int k = (int)threadIdx.x; k < n; k += (int)blockDim.x) {
        const double turns = token * (pp_rotation_rate(&r.rates, first + k) / pi);
        float s, c;
        sincospif((float)(turns - 2 * rint(turns / 2)), &s, &c);
        sines[k] = s * r.direction * r.magnitude;
        cosines[k] = c * r.magnitude;
    }
}

template <bool whole, typename T> static __device__ inline pp_quad biased(const rotation<T> &r, int column, int left)
{
    pp_quad q = pp_load<whole>(r.qkv + (int64_t)blockIdx.x * r.width + column, left);
    if (!r.bias) return q;
    const pp_quad bias = pp_load<whole>(r.bias + column, left);
#pragma unroll
    for (int i = 0; i < PP_QUAD; i++) q.v[i] += bias.v[i];
    return q;
}

/* Rotates four pairs of columns, or `left` if there are fewer: column + i with column + half + i. sines, cosines: of
 * these pairs. */
template <bool whole, typename T>
static __device__ inline void rotate(const rotation<T> &r, int column, int left, const float *sines,
                                     const float *cosines)
{
    const pp_quad x = biased<whole>(r, column, left), y = biased<whole>(r, column + r.half, left);
    pp_quad to_x = {}, to_y = {};
#pragma unroll
    for (int i = 0; i < PP_QUAD; i++) {
        const float s = whole || i < left ? sines[i] : 0, c = whole || i < left ? cosines[i] : 0;
        to_x.v[i] = x.v[i] * c - y.v[i] * s;
        to_y.v[i] = y.v[i] * c + x.v[i] * s;
    }
    T *at = r.qkv + (int64_t)blockIdx.x * r.width + column;
    pp_store<whole>(at, left, to_x);
    pp_store<whole>(at + r.half, left, to_y);
}

/* Adds the bias to columns begin .. end - 1, which are not rotated. */
template <bool whole, typename T> static __device__ inline void add_bias(const rotation<T> &r, int begin, int end)
{
    for (int j = begin + (int)threadIdx.x * PP_QUAD; j < end; j += (int)blockDim.x * PP_QUAD)
        pp_store<whole>(r.qkv + (int64_t)blockIdx.x * r.width + j, end - j, biased<whole>(r, j, end - j));
}

/* Adds the bias to what is not rotated: other columns of queries and keys, and the values. */
template <bool whole, typename T> static __device__ inline void pass_others(const rotation<T> &r)
{
    const int turned = r.still + 2 * r.half;
    for (int h = 0; h < r.heads && turned - r.still < r.dh; h++) {
        add_bias<whole>(r, h * r.dh, h * r.dh + r.still);
        add_bias<whole>(r, h * r.dh + turned, (h + 1) * r.dh);
    }
    add_bias<whole>(r, r.heads * r.dh, r.width);
}

/* Grid: tokens. whole: all quads are whole and aligned. */
template <typename T, bool whole> static __global__ void __launch_bounds__(THREADS) rope(rotation<T> r)
{
    PP_SHARED_ONE(angles, sines);
    PP_SHARED_ONE(angles, cosines);
    for (int first = 0; first < r.half; first += PIECE) {
        const int n = min(r.half - first, (int)PIECE), quads = pp_div_up(n, PP_QUAD);
        __syncthreads();
        make_angles(r, first, n, sines, cosines);
        __syncthreads();
        for (int t = (int)threadIdx.x; t < r.heads * quads; t += (int)blockDim.x) {
            const int k = t % quads * PP_QUAD;
            rotate<whole>(r, t / quads * r.dh + r.still + first + k, n - k, sines + k, cosines + k);
        }
    }
    if (r.bias) pass_others<whole>(r);
}

template <typename T> static cudaError_t run(const struct pp_cuda_call *c, void *qkv, const void *bias, float direction)
{
    const struct pp_rope_dims *n = &c->call->rope;
    rotation<T> r;
    r.qkv = static_cast<T *>(qkv);
    r.bias = static_cast<const float *>(bias);
    r.seq = n->seq;
    r.dh = n->dh;
    r.half = PP_ROPE_COLUMNS(n) / 2;
    r.still = n->still;
    r.heads = n->heads + PP_KV_HEADS(n);
    r.width = PP_QKV_COLUMNS(n);
    r.rates = pp_rotation_of(&c->call->turns, PP_ROPE_COLUMNS(n));
    r.direction = direction;
    r.magnitude = (float)r.rates.magnitude;
    r.places = pp_query_places_of(r.seq, c->frame);
    const bool whole = r.half % PP_QUAD == 0 && r.still % PP_QUAD == 0 && r.dh % PP_QUAD == 0 &&
                       r.width % PP_QUAD == 0 && pp_aligned(r.qkv) && pp_aligned(r.bias);
    const auto kernel = whole ? rope<T, true> : rope<T, false>;
    const int threads = pp_block_threads((int64_t)r.heads * pp_div_up(r.half, PP_QUAD), THREADS);
    PP_LAUNCH(kernel, n->rows * n->seq, threads, 0, c->stream, r);
    return cudaGetLastError();
}

template <typename T> static cudaError_t run_forward(const struct pp_cuda_call *c)
{
    return run<T>(c, c->at.rope.qkv, c->at.rope.bias, 1);
}
template <typename T> static cudaError_t run_backward(const struct pp_cuda_call *c)
{
    return run<T>(c, c->at.rope_grad.dqkv, NULL, -1);
}

cudaError_t pp_cuda_rope(const struct pp_cuda_call *c) { return PP_BY_PRECISION(run_forward, c); }
cudaError_t pp_cuda_rope_grad(const struct pp_cuda_call *c) { return PP_BY_PRECISION(run_backward, c); }

cudaError_t pp_cuda_prepare_rope(void)
{
    const void *const kernels[] = {reinterpret_cast<const void *>(rope<float, true>),
                                   reinterpret_cast<const void *>(rope<float, false>),
                                   reinterpret_cast<const void *>(rope<__nv_bfloat16, true>),
                                   reinterpret_cast<const void *>(rope<__nv_bfloat16, false>)};
    return pp_load_kernels(kernels, sizeof kernels / sizeof kernels[0]);
}
