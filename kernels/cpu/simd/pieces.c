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
static struct run run_of(const struct pp_pieces_dims *n, int i, int piece)
{
    const int of[] = {n->width, n->shared, PP_PIECE_VALUES(n)}, mine = of[i] / n->parts;
    int64_t before = 0;
    for (int k = 0; k < i; k++) before += of[k];
    return (struct run){before + (int64_t)piece * mine, before / n->parts, mine};
}

static void copy(float *to, const float *from, const float *bias, int n)
{
    for (int j = 0; j < n; j += VL) vf_store(to + j, n - j, vf_load(from + j, n - j) + vf_load_any(bias, j, n - j));
}

void PP_SIMD(pp_cpu_to_pieces)(const struct pp_cpu_call *c)
{
    const struct pp_pieces_dims *n = &c->call->pieces;
    const int64_t width = PP_PIECE_ROW(n), part = width / n->parts;
    const float *bias = c->at.pieces.bias;
    for (int piece = 0; piece < n->parts; piece++)
        for (int i = 0; i < 3; i++) {
            const struct run r = run_of(n, i, piece);
            const float *from = (const float *)c->at.pieces.from + r.row;
            float *to = (float *)c->at.pieces.to + (int64_t)piece * n->tokens * part + r.piece;
            for (int64_t t = 0; t < n->tokens; t++, to += part, from += width)
                copy(to, from, bias ? bias + r.row : NULL, r.n);
        }
}

void PP_SIMD(pp_cpu_from_pieces)(const struct pp_cpu_call *c)
{
    const struct pp_pieces_dims *n = &c->call->pieces;
    const int64_t width = PP_PIECE_ROW(n), part = width / n->parts;
    for (int piece = 0; piece < n->parts; piece++)
        for (int i = 0; i < 3; i++) {
            const struct run r = run_of(n, i, piece);
            const float *from = (const float *)c->at.pieces.from + (int64_t)piece * n->tokens * part + r.piece;
            float *to = (float *)c->at.pieces.to + r.row;
            for (int64_t t = 0; t < n->tokens; t++, to += width, from += part) copy(to, from, NULL, r.n);
        }
}

void PP_SIMD(pp_cpu_copy_keys)(const struct pp_cpu_call *c)
{
    const struct pp_pieces_dims *n = &c->call->pieces;
    const int keys = PP_PIECE_KEYS(n), width = n->width + keys;
    const float *bias = c->at.copy_keys.bias;
    for (int64_t t = 0; t < n->tokens; t++) {
        float *token = (float *)c->at.copy_keys.qkv + t * width;
        if (bias) copy(token, token, bias, width);
        copy((float *)c->at.copy_keys.to + t * keys, token + n->width, NULL, keys);
    }
}

void PP_SIMD(pp_cpu_sum_keys)(const struct pp_cpu_call *c)
{
    const struct pp_pieces_dims *n = &c->call->pieces;
    const int shared = PP_PIECE_KEYS(n), width = n->width + shared;
    const int64_t part = (int64_t)n->tokens * shared;
    for (int64_t t = 0; t < n->tokens; t++)
        for (int j = 0; j < shared; j += VL) {
            const float *from = (const float *)c->at.sum_keys.from + t * shared + j;
            vf sum = vf_load(from, shared - j);
            for (int i = 1; i < n->parts; i++) sum += vf_load(from + i * part, shared - j);
            vf_store((float *)c->at.sum_keys.qkv + t * width + n->width + j, shared - j, sum);
        }
}
