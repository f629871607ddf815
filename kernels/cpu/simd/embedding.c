/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>

#include "kernels/cpu/simd/kernels.h"
#include "kernels/cpu/simd/random.h"

/* table [seq, d]: sine in even columns, cosine in odd ones, of t * exp(-ln(10000) * 2k/d), t from `first` on. Each pair
 * of columns turns by a fixed angle from one position to the next; in double the rounding errors of the turns stay far
 * below float's. */
static void positions(float *table, int first, int seq, int d)
{
    for (int k = 0; k < d / 2; k++) {
        const double angle = exp(-log(10000) * 2 * k / d), turn_sin = sin(angle), turn_cos = cos(angle);
        double s = sin(first * angle), c = cos(first * angle);
        for (int t = 0; t < seq; t++) {
            table[(int64_t)t * d + 2 * k] = (float)s;
            table[(int64_t)t * d + 2 * k + 1] = (float)c;
            const double next = s * turn_cos + c * turn_sin;
            c = c * turn_cos - s * turn_sin;
            s = next;
        }
    }
}

/* out = drop(weight * scale + position), one token; row: its number in the whole batch of all replicas. position: NULL,
 * or [d]. */
static void embed_token(const struct pp_simd_dropout *drop, bool dropping, uint32_t row, float *out,
                        const float *weight, const float *position, float scale, int d)
{
    uint32_t random[PP_RANDOM_TILE + PP_RANDOM_ROUND];
    for (int j0 = 0; j0 < d; j0 += PP_RANDOM_TILE) {
        const int n = d - j0 < PP_RANDOM_TILE ? d - j0 : PP_RANDOM_TILE;
        if (dropping) pp_simd_random_rows(drop, row, 1, j0 / 4, (n + 3) / 4, random);
        for (int j = 0; j < n; j += VL) {
            vf v = vf_load(weight + j0 + j, n - j) * scale;
            if (position) v += vf_load(position + j0 + j, n - j);
            vf_store(out + j0 + j, n - j, dropping ? pp_simd_drop_lanes(drop, random + j, v) : v);
        }
    }
}

/* Where a row's token t that the worker has stands in it. */
static int place_of(const struct pp_row_places *p, int t) { return t + (t < p->run ? p->before : p->behind); }

/* The worker's row of a word; -1: another worker of the rank has it. */
static int64_t word_of(const struct pp_cpu_call *c, int32_t token)
{
    const int32_t words = c->call->embed.vocab, word = token - c->frame->tensor_rank * words;
    return word >= 0 && word < words ? word : -1;
}

void PP_SIMD(pp_cpu_embed)(const struct pp_cpu_call *c)
{
    const struct pp_embed_dims *n = &c->call->embed;
    const int seq = n->seq, d = n->d;
    const int64_t tokens = (int64_t)n->rows * seq;
    float *out = c->at.embed.out;
    const int32_t *token = c->at.embed.tokens;
    const float *weight = c->at.embed.weight;
    float *made = c->at.embed.scratch;
    const float *learned = c->at.embed.positions;
    const struct pp_row_places places = pp_row_places_of(seq, c->frame);
    struct pp_simd_dropout drop;
    const bool dropping = pp_simd_dropout_of(c, seq, &drop);
    if (made) positions(made, places.before, places.run, d);
    if (made) positions(made + (int64_t)places.run * d, place_of(&places, places.run), seq - places.run, d);
    for (int64_t t = 0; t < tokens; t++) {
        const int64_t word = word_of(c, token[t]);
        const int at = (int)(t % seq);
        const float *position = made      ? made + (int64_t)at * d
                                : learned ? learned + place_of(&places, at) * (int64_t)d
                                          : NULL;
        if (word < 0)
            memset(out + t * d, 0, sizeof *out * (size_t)d);
        else
            embed_token(&drop, dropping, (uint32_t)(c->frame->first_row * seq + t), out + t * d, weight + word * d,
                        position, c->call->scale, d);
    }
}

/* weight's row += the token's gradient through dropout and scale */
static void embed_token_grad(const struct pp_simd_dropout *drop, bool dropping, uint32_t row, float *weight,
                             const float *dy, float scale, int d)
{
    uint32_t random[PP_RANDOM_TILE + PP_RANDOM_ROUND];
    for (int j0 = 0; j0 < d; j0 += PP_RANDOM_TILE) {
        const int n = d - j0 < PP_RANDOM_TILE ? d - j0 : PP_RANDOM_TILE;
        if (dropping) pp_simd_random_rows(drop, row, 1, j0 / 4, (n + 3) / 4, random);
        for (int j = 0; j < n; j += VL) {
            vf v = vf_load(dy + j0 + j, n - j);
            if (dropping) v = pp_simd_drop_lanes(drop, random + j, v);
            vf_store(weight + j0 + j, n - j, vf_load(weight + j0 + j, n - j) + v * scale);
        }
    }
}

/* Tokens are added in their order, so the sums do not depend on anything else. */
void PP_SIMD(pp_cpu_embed_grad)(const struct pp_cpu_call *c)
{
    const struct pp_embed_dims *n = &c->call->embed;
    const int seq = n->seq, d = n->d;
    const int64_t tokens = (int64_t)n->rows * seq;
    float *weight = c->at.embed_grad.weight_grad;
    const int32_t *token = c->at.embed_grad.tokens;
    const float *dy = c->at.embed_grad.dy;
    struct pp_simd_dropout drop;
    const bool dropping = pp_simd_dropout_of(c, seq, &drop);
    if (!c->call->adds) memset(weight, 0, sizeof *weight * (size_t)n->vocab * (size_t)d);
    for (int64_t t = 0; t < tokens; t++) {
        const int64_t word = word_of(c, token[t]);
        if (word >= 0)
            embed_token_grad(&drop, dropping, (uint32_t)(c->frame->first_row * seq + t), weight + word * d, dy + t * d,
                             c->call->scale, d);
    }
}

/* A place's gradient stays in the caches while its rows are added, in their order. */
void PP_SIMD(pp_cpu_positions_grad)(const struct pp_cpu_call *c)
{
    const struct pp_positions_dims *n = &c->call->positions;
    const int rows = n->rows, seq = n->seq, d = n->d, places = n->places;
    const struct pp_row_places at = pp_row_places_of(seq, c->frame);
    float *grad = c->at.positions_grad.positions_grad;
    const float *dy = c->at.positions_grad.dy;
    struct pp_simd_dropout drop;
    const bool dropping = pp_simd_dropout_of(c, seq, &drop);
    if (!c->call->adds) memset(grad, 0, sizeof *grad * (size_t)places * (size_t)d);
    for (int t = 0; t < seq; t++)
        for (int64_t row = 0; row < rows; row++) {
            const int64_t token = row * seq + t;
            embed_token_grad(&drop, dropping, (uint32_t)(c->frame->first_row * seq + token),
                             grad + (int64_t)place_of(&at, t) * d, dy + token * d, 1, d);
        }
}
