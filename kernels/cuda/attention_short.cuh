/* SPDX-License-Identifier: Apache-2.0
 *
 * What a thread block of attention_short.cu has in shared memory: two matrices and the scores.
 */
#ifndef PP_KERNELS_CUDA_ATTENTION_SHORT_CUH
#define PP_KERNELS_CUDA_ATTENTION_SHORT_CUH

#include "kernels/cuda/attention.cuh"
#include "kernels/cuda/attention_tiles.h"

namespace pp_short
{

enum { MOST_SEQ = PP_SHORT_SEQ, THREADS = 256, BLOCKS_PER_SM = 2, TILE = 4, MOST_SPLITS = 4 /* of a sum over dh */ };
static_assert(MOST_SEQ == PP_WARP * PP_QUAD && (int)PP_SHORT_QUAD == (int)PP_QUAD, "a lane has a quad of a row");
enum { BATCH = 9 }; /* quads that a thread has on their way from memory at a time: all of 36 rows of 256 */

/* Matrices in shared memory, in floats. The quad between rows keeps lanes that read a column off each other's banks. */
struct room {
    int seq, columns; /* rounded up; columns of a key or value, whichever is wider */
    int pitch, score_pitch;
    int matrix, scores;
    int splits; /* scores come in so many parts, to be added */
};

static __host__ __device__ inline int whole_quads(int n) { return pp_div_up(n, PP_QUAD) * PP_QUAD; }

static __host__ __device__ inline room room_of(int seq, int widest)
{
    room r;
    r.seq = whole_quads(seq);
    r.columns = whole_quads(widest);
    r.pitch = r.columns + PP_QUAD;
    r.score_pitch = r.seq + PP_QUAD;
    r.matrix = r.seq * r.pitch;
    r.scores = r.seq * r.score_pitch;
    const int tiles = (r.seq / TILE) * (r.seq / TILE), fit = THREADS / tiles, most = r.columns / PP_QUAD;
    r.splits = fit < 1 ? 1 : fit < MOST_SPLITS ? fit : MOST_SPLITS;
    if (r.splits > most) r.splits = most;
    return r;
}

static __device__ inline pp_quad quad_at(const float *p) { return pp_load<true>(p, PP_QUAD); }

static __device__ inline void add_product(pp_quad &sum, float weight, pp_quad q)
{
#pragma unroll
    for (int i = 0; i < PP_QUAD; i++) sum.v[i] += weight * q.v[i];
}

} // namespace pp_short

#endif
