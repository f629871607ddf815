/* SPDX-License-Identifier: Apache-2.0
 *
 * Rotary positions (Su et al., "RoFormer: Enhanced Transformer with Rotary Position Embedding", 2021) of queries and
 * keys, in place, and their gradient: the rotation back.
 */
#include <math.h>

#include "kernels/cpu/simd/kernels.h"
#include "kernels/rotation.h"

enum { PIECE = 64 }; /* pairs of columns whose angles are there at a time */

/* Sine and cosine of PIECE pairs of columns for one token. From one token to the next each turns by a fixed angle; in
 * double the rounding errors of the turns stay far below float's. */
struct angles {
    double sin[PIECE], cos[PIECE], turn_sin[PIECE], turn_cos[PIECE];
    float s[PIECE], c[PIECE];
};

/* A call taken apart. */
struct rope {
    int rows, seq, dh, half; /* half of the columns of a head that are rotated: those of a pair lie so far apart */
    int still;               /* columns of a head before these, which stay as they are */
    int heads, width;        /* that are rotated, the first ones of a token; all of its columns */
    bool back;               /* turns the other way */
    struct pp_rotation rotation;
    struct pp_row_places places;
};

/* Those of the token at `place`; pairs first .. first + n - 1 of a head. */
static void begin(struct angles *a, const struct rope *r, int place, int first, int n)
{
    for (int k = 0; k < n; k++) {
        const double turn = pp_rotation_rate(&r->rotation, first + k) * (r->back ? -1 : 1);
        a->turn_sin[k] = sin(turn);
        a->turn_cos[k] = cos(turn);
        a->sin[k] = place ? sin(place * turn) : 0;
        a->cos[k] = cos(place * turn);
    }
}

static void next_token(struct angles *a, int n)
{
    for (int k = 0; k < n; k++) {
        const double s = a->sin[k] * a->turn_cos[k] + a->cos[k] * a->turn_sin[k];
        a->cos[k] = a->cos[k] * a->turn_cos[k] - a->sin[k] * a->turn_sin[k];
        a->sin[k] = s;
    }
}

/* What the rotation multiplies by. */
static void set_factors(struct angles *a, double magnitude, int n)
{
    for (int k = 0; k < n; k++) {
        a->s[k] = (float)(a->sin[k] * magnitude);
        a->c[k] = (float)(a->cos[k] * magnitude);
    }
}

static struct rope rope_of(const struct pp_cpu_call *c, bool back)
{
    const struct pp_rope_dims *n = &c->call->rope;
    return (struct rope){.rows = n->rows,
                         .seq = n->seq,
                         .dh = n->dh,
                         .half = PP_ROPE_COLUMNS(n) / 2,
                         .still = n->still,
                         .heads = n->heads + PP_KV_HEADS(n),
                         .width = PP_QKV_COLUMNS(n),
                         .back = back,
                         .rotation = pp_rotation_of(&c->call->turns, PP_ROPE_COLUMNS(n)),
                         .places = pp_query_places_of(n->seq, c->frame)};
}

/* n pairs of all heads of one token; x: the first of them. */
static void rotate_token(const struct rope *r, const struct angles *a, int n, float *x)
{
    for (int h = 0; h < r->heads; h++, x += r->dh)
        for (int k = 0; k < n; k += VL) {
            float *y = x + r->half;
            const vf u = vf_load(x + k, n - k), w = vf_load(y + k, n - k);
            const vf s = vf_load(a->s + k, n - k), c = vf_load(a->c + k, n - k);
            vf_store(x + k, n - k, u * c - w * s);
            vf_store(y + k, n - k, w * c + u * s);
        }
}

/* Tokens t .. end - 1 of each row, of which the first one stands at `place`; pairs first .. first + n - 1. */
static void rotate_run(const struct rope *r, int64_t t, int64_t end, int place, int first, int n, float *qkv)
{
    struct angles a;
    begin(&a, r, place, first, n);
    for (; t < end; t++) {
        set_factors(&a, r->rotation.magnitude, n);
        for (int64_t row = 0; row < r->rows; row++)
            rotate_token(r, &a, n, qkv + (row * r->seq + t) * r->width + r->still + first);
        next_token(&a, n);
    }
}

static void rotate(const struct rope *r, float *qkv)
{
    const struct pp_row_places *p = &r->places;
    for (int first = 0; first < r->half; first += PIECE) {
        const int n = r->half - first < PIECE ? r->half - first : PIECE;
        rotate_run(r, 0, p->run, p->before, first, n, qkv);
        if (p->run < r->seq) rotate_run(r, p->run, r->seq, p->run + p->behind, first, n, qkv);
    }
}

static void add_bias(const struct rope *r, float *qkv, const float *bias)
{
    const int width = r->width;
    for (int64_t t = 0; t < (int64_t)r->rows * r->seq; t++, qkv += width)
        for (int j = 0; j < width; j += VL)
            vf_store(qkv + j, width - j, vf_load(qkv + j, width - j) + vf_load(bias + j, width - j));
}

void PP_SIMD(pp_cpu_rope)(const struct pp_cpu_call *c)
{
    const struct pp_rope_memory *at = &c->at.rope;
    const struct rope r = rope_of(c, false);
    if (at->bias) add_bias(&r, at->qkv, at->bias);
    rotate(&r, at->qkv);
}

void PP_SIMD(pp_cpu_rope_grad)(const struct pp_cpu_call *c)
{
    const struct rope r = rope_of(c, true);
    rotate(&r, c->at.rope_grad.dqkv);
}
