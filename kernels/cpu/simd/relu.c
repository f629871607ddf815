/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/cpu/simd/kernels.h"
#include "kernels/cpu/simd/random.h"

static void relu_row(float *u, const float *bias, int n)
{
    for (int j = 0; j < n; j += VL)
        vf_store(u + j, n - j, vf_max(vf_all(0), vf_load(u + j, n - j) + vf_load_any(bias, j, n - j)));
}

static void relu_drop_row(const struct pp_simd_dropout *drop, uint32_t row, float *u, const float *bias, int width)
{
    uint32_t random[PP_RANDOM_TILE + PP_RANDOM_ROUND];
    for (int j0 = 0; j0 < width; j0 += PP_RANDOM_TILE) {
        const int n = width - j0 < PP_RANDOM_TILE ? width - j0 : PP_RANDOM_TILE;
        pp_simd_random_rows(drop, row, 1, j0 / 4, (n + 3) / 4, random);
        for (int j = 0; j < n; j += VL) {
            vf v = vf_max(vf_all(0), vf_load(u + j0 + j, n - j) + vf_load_any(bias, j0 + j, n - j));
            vf_store(u + j0 + j, n - j, pp_simd_drop_lanes(drop, random + j, v));
        }
    }
}

void PP_SIMD(pp_cpu_relu)(const struct pp_cpu_call *c)
{
    const struct pp_activation_dims *n = &c->call->activation;
    const int seq = n->seq, width = n->width;
    const int64_t tokens = (int64_t)n->rows * seq;
    float *u = c->at.relu.u;
    const float *bias = c->at.relu.bias;
    struct pp_simd_dropout drop;
    const bool dropping = pp_simd_dropout_of_part(c, &drop);
    for (int64_t t = 0; t < tokens; t++) {
        if (dropping)
            relu_drop_row(&drop, (uint32_t)(c->frame->first_row * seq + t), u + t * width, bias, width);
        else
            relu_row(u + t * width, bias, width);
    }
}

/* u > 0 exactly where neither the relu nor dropout cut it off. */
void PP_SIMD(pp_cpu_relu_grad)(const struct pp_cpu_call *c)
{
    const int64_t n = (int64_t)c->call->activation.rows * c->call->activation.seq * c->call->activation.width;
    float *du = c->at.relu_grad.du;
    const float *u = c->at.relu_grad.u;
    struct pp_simd_dropout drop;
    pp_simd_dropout_of(c, 0, &drop);
    for (int64_t i = 0; i < n; i += VL) {
        vi passed = (vi)(vf_load(u + i, n - i) > 0);
        vf_store(du + i, n - i, vf_keep(passed, vf_load(du + i, n - i) * drop.scale));
    }
}
