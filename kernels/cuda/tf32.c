/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/cuda/tf32.h"

#define X(rows, columns_beside, rows_beside, stages, worth) {rows, columns_beside, rows_beside, stages, worth},
const struct pp_tf32_tiles pp_tf32_tiles[PP_TF32_TILES] = {PP_TF32_TILE_LIST(X)};
#undef X

/* Where cuBLAS was found to be slower, on an H200; tests/bench/tf32_times.c lets both take turns. most_rows: of more
 * rows its tiles fit as well as ours. least_terms: of fewer, turning takes what is won. least_numbers: of C, for a
 * small part of a GPU as well. least_share: of pp_tf32_choose(); below it cuBLAS, which may divide sums among blocks,
 * was as fast or faster. But where its tiles fit much worse (129 to 175 rows of 12288 columns are two waves of its
 * tiles of 128 rows, or a half full one of 256, and one wave of ours), LEAST_SHARE is enough. */
static const struct limits {
    int kernel, most_rows, least_terms, least_numbers;
    double least_share;
} limits[] = {{PP_KERNEL_GEMM_NT, 2048, 128, 1 << 16, 0.65},
              {PP_KERNEL_GEMM_NN, 2048, 128, 1 << 16, 0.55},
              {PP_KERNEL_GEMM_TN, INT32_MAX, 256, 1 << 17, 0.40}};

#define LEAST_SHARE 0.5
#define MUCH_MORE 1.15
enum { STEP = 256 }; /* rows of the largest tile */

static int round_up(int n, int by) { return (n + by - 1) / by * by; }

/* Tiles that a product has; *share: as in pp_tf32_choose(). */
static int64_t count_tiles(const struct pp_tf32_tiles *t, int m, int n, int sms, double *share)
{
    const int together = t->columns_beside * t->rows_beside, at_once = sms / together * together;
    const int64_t tiles = (int64_t)round_up((m + t->rows - 1) / t->rows, t->rows_beside) *
                          round_up((n + PP_TF32_COLUMNS - 1) / PP_TF32_COLUMNS, t->columns_beside);
    const int64_t waves = (tiles + at_once - 1) / at_once;
    *share = (double)m * n / ((double)waves * sms * t->rows * PP_TF32_COLUMNS) * t->worth / 100;
    return tiles;
}

int pp_tf32_choose(int m, int n, int sms, double *share)
{
    double most = 0, useful;
    int64_t fewest = 0;
    int best = 0;
    for (int i = 0; i < PP_TF32_TILES; i++) {
        const int64_t tiles = count_tiles(&pp_tf32_tiles[i], m, n, sms, &useful);
        if (useful < most || (useful == most && tiles >= fewest)) continue;
        most = useful, fewest = tiles, best = i;
    }
    if (share) *share = most;
    return best;
}

/* The share that cuBLAS's tiles have. */
static double share_of_others(int m, int n, int sms)
{
    static const struct pp_tf32_tiles others[] = {{128, 1, 1, 0, 90}, {256, 1, 1, 0, 100}};
    double share[2];
    for (int i = 0; i < 2; i++) (void)count_tiles(&others[i], m, n, sms, &share[i]);
    return share[0] > share[1] ? share[0] : share[1];
}

/* Is it of those that our kernels know? */
static const struct limits *limits_of(const struct pp_call *call)
{
    const struct pp_gemm_dims *n = &call->gemm;
    if (call->precision != PP_TF32 || !pp_kernel_is_product(call->kernel) || PP_TIMES(n) != 1) return NULL;
    for (const struct limits *l = limits; l < limits + sizeof limits / sizeof limits[0]; l++)
        if (l->kernel == call->kernel && n->m <= l->most_rows && n->k >= l->least_terms &&
            (int64_t)n->m * n->n >= l->least_numbers)
            return l;
    return NULL;
}

struct pp_tf32_sides pp_tf32_sides_of(const struct pp_call *call)
{
    const int m = call->gemm.m, n = call->gemm.n;
    const bool across = call->kernel == PP_KERNEL_GEMM_TN && n < m;
    return (struct pp_tf32_sides){across ? n : m, across ? m : n, across};
}

bool pp_tf32_gains(const struct pp_call *call, int sms)
{
    const struct limits *known = limits_of(call);
    const struct pp_tf32_sides s = pp_tf32_sides_of(call);
    double share;
    if (!known || sms < 2) return false;
    (void)pp_tf32_choose(s.rows, s.columns, sms, &share);
    return share >= known->least_share ||
           (share >= LEAST_SHARE && share >= MUCH_MORE * share_of_others(s.rows, s.columns, sms));
}

int64_t pp_tf32_bytes(const struct pp_call *call)
{
    if (call->kernel != PP_KERNEL_GEMM_TN || !limits_of(call)) return 0;
    const int64_t row = (int64_t)sizeof(float) * pp_tf32_pitch(call->gemm.k), all = pp_tf32_sides_of(call).rows * row;
    if (all > PP_CUDA_MOST_SCRATCH_BYTES && STEP * row > PP_CUDA_MOST_SCRATCH_BYTES) return 0;
    return all < PP_CUDA_MOST_SCRATCH_BYTES ? all : PP_CUDA_MOST_SCRATCH_BYTES;
}

int pp_tf32_rows(const struct pp_call *call, int64_t scratch_bytes)
{
    const int m = pp_tf32_sides_of(call).rows;
    if (call->kernel != PP_KERNEL_GEMM_TN) return m;
    const int64_t fit = scratch_bytes / ((int64_t)sizeof(float) * pp_tf32_pitch(call->gemm.k)),
                  room = fit / STEP * STEP;
    if (room == 0 || fit >= m) return room == 0 && fit < m ? 0 : m;
    const int64_t parts = (m + room - 1) / room, steps = (m + STEP - 1) / STEP;
    return (int)((steps + parts - 1) / parts * STEP);
}

/* A gradient of weights, C = A' B. Of each part's rows the factor that has them is turned. */
static cudaError_t multiply_turned(const struct pp_cuda_call *c, int rows, bool adds)
{
    const struct pp_gemm_dims *n = &c->call->gemm;
    const struct pp_tf32_sides sides = pp_tf32_sides_of(c->call);
    const float *turned = sides.across ? c->at.gemm.b : c->at.gemm.a;
    struct pp_tf32_product p = {.a = c->scratch,
                                .b = sides.across ? c->at.gemm.a : c->at.gemm.b,
                                .n = sides.columns,
                                .k = n->k,
                                .pitch = pp_tf32_pitch(n->k),
                                .c_pitch = n->n,
                                .as_it_lies = true,
                                .adds = adds,
                                .across = sides.across,
                                .sms = c->sms};
    cudaError_t error = cudaSuccess;
    for (int first = 0; first < sides.rows && error == cudaSuccess; first += rows) {
        p.m = sides.rows - first < rows ? sides.rows - first : rows;
        p.c = (float *)c->at.gemm.c + (int64_t)first * (sides.across ? 1 : n->n);
        error = pp_cuda_turn(c->stream, c->scratch, turned + first, n->k, p.m, sides.rows, p.pitch);
        if (error == cudaSuccess) error = pp_cuda_tf32(c->stream, &p);
    }
    return error;
}

cudaError_t pp_tf32_multiply(const struct pp_cuda_call *c, int rows, bool adds)
{
    const struct pp_gemm_dims *n = &c->call->gemm;
    if (c->call->kernel == PP_KERNEL_GEMM_TN) return multiply_turned(c, rows, adds);
    return pp_cuda_tf32(c->stream, &(struct pp_tf32_product){.a = c->at.gemm.a,
                                                             .b = c->at.gemm.b,
                                                             .c = c->at.gemm.c,
                                                             .m = n->m,
                                                             .n = n->n,
                                                             .k = n->k,
                                                             .pitch = n->k,
                                                             .c_pitch = n->n,
                                                             .as_it_lies = c->call->kernel == PP_KERNEL_GEMM_NN,
                                                             .adds = adds,
                                                             .sms = c->sms});
}
