/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>

#include "kernels/cpu/simd/kernels.h"

static float row_max(const float *logits, const float *bias, int n)
{
    vf most = vf_all(-INFINITY);
    for (int j = 0; j < n; j += VL)
        most = vf_max(most, vf_first(vf_load(logits + j, n - j) + vf_load_any(bias, j, n - j), n - j, -INFINITY));
    return vf_max_lane(most);
}

/* Sum of exp(logit + bias - most); the terms go to `out`, unless it is NULL. */
static float row_exp(float *out, const float *logits, const float *bias, float most, int n)
{
    vf sum = {0};
    for (int j = 0; j < n; j += VL) {
        vf e = vf_exp(vf_load(logits + j, n - j) + vf_load_any(bias, j, n - j) - most);
        if (out) vf_store(out + j, n - j, e);
        sum += vf_first(e, n - j, 0);
    }
    return vf_sum(sum);
}

static void row_scale(float *row, float scale, int n)
{
    for (int j = 0; j < n; j += VL) vf_store(row + j, n - j, vf_load(row + j, n - j) * scale);
}

void PP_SIMD(pp_cpu_cross_entropy)(const struct pp_cpu_call *c)
{
    const int64_t tokens = (int64_t)c->call->n[0] * c->call->n[1];
    const int vocab = c->call->n[2], columns = c->call->n[4];
    const float *logits = c->p[0], *bias = c->p[1];
    const int32_t *target = c->p[2];
    float *gradient = c->call->n[3] ? c->p[3] : NULL; /* may be the logits */
    const float scale = c->frame->loss_scale;
    double loss = 0;
    for (int64_t t = 0; t < tokens; t++, logits += columns) {
        const float wanted = logits[target[t]] + (bias ? bias[target[t]] : 0), most = row_max(logits, bias, vocab);
        const float sum = row_exp(gradient, logits, bias, most, vocab);
        loss += log((double)sum) + (double)most - (double)wanted;
        if (!gradient) continue;
        row_scale(gradient, scale / sum, vocab);
        gradient[target[t]] -= scale;
        memset(gradient + vocab, 0, sizeof *gradient * (size_t)(columns - vocab));
        gradient += columns;
    }
    if (c->frame->loss) *c->frame->loss = loss;
}
