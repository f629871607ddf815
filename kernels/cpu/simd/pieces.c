/* SPDX-License-Identifier: Apache-2.0
 *
 * Between tokens' rows of all heads and pieces of some heads of all tokens, or keys and values alone: around attention,
 * where workers have parts of the tokens.
 */
#include "kernels/cpu/simd/kernels.h"

/* Columns that are next to each other in a token's row and in a piece's: where, and how many. */
struct run {
    int64_t row, piece;
    int n;
};

/* Of a token's queries (0), keys (1) or values (2) those of a piece. */
static struct run run_of(const int32_t *n, int i, int piece)
{
    const int width = n[1] / n[3], shared = n[2] / n[3];
    if (i == 0) return (struct run){(int64_t)piece * width, 0, width};
    return (struct run){n[1] + (int64_t)(i - 1) * n[2] + (int64_t)piece * shared, width + (int64_t)(i - 1) * shared,
                        shared};
}

static void copy(float *to, const float *from, const float *bias, int n)
{
    for (int j = 0; j < n; j += VL) vf_store(to + j, n - j, vf_load(from + j, n - j) + vf_load_any(bias, j, n - j));
}

void PP_SIMD(pp_cpu_to_pieces)(const struct pp_cpu_call *c)
{
    const int32_t *n = c->call->n;
    const int64_t width = n[1] + 2 * (int64_t)n[2], part = width / n[3];
    const float *bias = c->p[2];
    for (int piece = 0; piece < n[3]; piece++)
        for (int i = 0; i < 3; i++) {
            const struct run r = run_of(n, i, piece);
            const float *from = (const float *)c->p[1] + r.row;
            float *to = (float *)c->p[0] + (int64_t)piece * n[0] * part + r.piece;
            for (int64_t t = 0; t < n[0]; t++, to += part, from += width)
                copy(to, from, bias ? bias + r.row : NULL, r.n);
        }
}

void PP_SIMD(pp_cpu_from_pieces)(const struct pp_cpu_call *c)
{
    const int32_t *n = c->call->n;
    const int64_t width = n[1] + 2 * (int64_t)n[2], part = width / n[3];
    for (int piece = 0; piece < n[3]; piece++)
        for (int i = 0; i < 3; i++) {
            const struct run r = run_of(n, i, piece);
            const float *from = (const float *)c->p[1] + (int64_t)piece * n[0] * part + r.piece;
            float *to = (float *)c->p[0] + r.row;
            for (int64_t t = 0; t < n[0]; t++, to += width, from += part) copy(to, from, NULL, r.n);
        }
}

void PP_SIMD(pp_cpu_copy_keys)(const struct pp_cpu_call *c)
{
    const int32_t *n = c->call->n;
    const int width = n[1] + 2 * n[2];
    const float *bias = c->p[2];
    for (int64_t t = 0; t < n[0]; t++) {
        float *token = (float *)c->p[1] + t * width;
        if (bias) copy(token, token, bias, width);
        copy((float *)c->p[0] + t * 2 * n[2], token + n[1], NULL, 2 * n[2]);
    }
}

void PP_SIMD(pp_cpu_sum_keys)(const struct pp_cpu_call *c)
{
    const int32_t *n = c->call->n;
    const int shared = 2 * n[2], width = n[1] + shared;
    const int64_t part = (int64_t)n[0] * shared;
    for (int64_t t = 0; t < n[0]; t++)
        for (int j = 0; j < shared; j += VL) {
            const float *from = (const float *)c->p[1] + t * shared + j;
            vf sum = vf_load(from, shared - j);
            for (int i = 1; i < n[3]; i++) sum += vf_load(from + i * part, shared - j);
            vf_store((float *)c->p[0] + t * width + n[1] + j, shared - j, sum);
        }
}
