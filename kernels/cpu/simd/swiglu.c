/* SPDX-License-Identifier: Apache-2.0
 *
 * SwiGLU, silu(g) h of the two halves of a row, with silu(g) = g s(g) and s(g) = 1 / (1 + exp(-g)), and dropout behind
 * it. And that s alone: sigmoid.
 */
#include "kernels/cpu/simd/kernels.h"
#include "kernels/cpu/simd/random.h"

void PP_SIMD(pp_cpu_sigmoid)(const struct pp_cpu_call *c)
{
    const int n = c->call->sigmoid.tokens;
    float *x = c->at.sigmoid.x;
    for (int i = 0; i < n; i += VL) vf_store(x + i, n - i, vf_logistic(vf_load(x + i, n - i)).value);
}

void PP_SIMD(pp_cpu_sigmoid_grad)(const struct pp_cpu_call *c)
{
    const int n = c->call->sigmoid.tokens;
    float *dx = c->at.sigmoid_grad.dx;
    const float *dy = c->at.sigmoid_grad.dy, *y = c->at.sigmoid_grad.y;
    for (int i = 0; i < n; i += VL) {
        const vf v = vf_load(y + i, n - i);
        vf_store(dx + i, n - i, vf_load(dy + i, n - i) * v * (1 - v));
    }
}

/* a += bias, u = drop(silu(g) h) of one row; bias: may be NULL */
static void swiglu_row(const struct pp_simd_dropout *drop, bool dropping, uint32_t row, float *u, float *a,
                       const float *bias, int width)
{
    uint32_t random[PP_RANDOM_TILE + PP_RANDOM_ROUND];
    for (int j0 = 0; j0 < width; j0 += PP_RANDOM_TILE) {
        const int n = width - j0 < PP_RANDOM_TILE ? width - j0 : PP_RANDOM_TILE;
        if (dropping) pp_simd_random_rows(drop, row, 1, j0 / 4, (n + 3) / 4, random);
        for (int j = 0; j < n; j += VL) {
            const int at = j0 + j, left = n - j;
            const vf g = vf_load(a + at, left) + vf_load_any(bias, at, left);
            const vf h = vf_load(a + width + at, left) + vf_load_any(bias, width + at, left);
            const vf v = g * vf_logistic(g).value * h;
            if (bias) {
                vf_store(a + at, left, g);
                vf_store(a + width + at, left, h);
            }
            vf_store(u + at, left, dropping ? pp_simd_drop_lanes(drop, random + j, v) : v);
        }
    }
}

void PP_SIMD(pp_cpu_swiglu)(const struct pp_cpu_call *c)
{
    const struct pp_activation_dims *n = &c->call->activation;
    const int seq = n->seq, width = n->width;
    const int64_t tokens = (int64_t)n->rows * seq;
    float *u = c->at.swiglu.u, *a = c->at.swiglu.a;
    struct pp_simd_dropout drop;
    const bool dropping = pp_simd_dropout_of_part(c, &drop);
    for (int64_t t = 0; t < tokens; t++, u += width, a += 2 * (int64_t)width)
        swiglu_row(&drop, dropping, (uint32_t)(c->frame->first_row * seq + t), u, a, c->at.swiglu.bias, width);
}

/* Of one row: with v = drop'(du), g becomes v h silu'(g) and h becomes v silu(g); silu'(g) = s(g) + g s'(g). */
static void swiglu_grad_row(const struct pp_simd_dropout *drop, bool dropping, uint32_t row, float *a, const float *du,
                            int width)
{
    uint32_t random[PP_RANDOM_TILE + PP_RANDOM_ROUND];
    for (int j0 = 0; j0 < width; j0 += PP_RANDOM_TILE) {
        const int n = width - j0 < PP_RANDOM_TILE ? width - j0 : PP_RANDOM_TILE;
        if (dropping) pp_simd_random_rows(drop, row, 1, j0 / 4, (n + 3) / 4, random);
        for (int j = 0; j < n; j += VL) {
            const int at = j0 + j, left = n - j;
            const vf g = vf_load(a + at, left), h = vf_load(a + width + at, left), d = vf_load(du + at, left);
            const vf v = dropping ? pp_simd_drop_lanes(drop, random + j, d) : d;
            const struct vf_logistic s = vf_logistic(g);
            vf_store(a + at, left, v * h * (s.value + g * s.slope));
            vf_store(a + width + at, left, v * g * s.value);
        }
    }
}

void PP_SIMD(pp_cpu_swiglu_grad)(const struct pp_cpu_call *c)
{
    const struct pp_activation_dims *n = &c->call->activation;
    const int seq = n->seq, width = n->width;
    const int64_t tokens = (int64_t)n->rows * seq;
    float *a = c->at.swiglu_grad.a;
    const float *du = c->at.swiglu_grad.du;
    struct pp_simd_dropout drop;
    const bool dropping = pp_simd_dropout_of_part(c, &drop);
    for (int64_t t = 0; t < tokens; t++, a += 2 * (int64_t)width, du += width)
        swiglu_grad_row(&drop, dropping, (uint32_t)(c->frame->first_row * seq + t), a, du, width);
}
