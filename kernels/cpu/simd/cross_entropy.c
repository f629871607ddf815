/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>

#include "kernels/cpu/simd/kernels.h"

static float row_max(const float *logits, const float *bias, int n)
{
    vf most = vf_all(-INFINITY);
    for (int j = 0; j < n; j += VL)
        most = vf_max(most, vf_first(vf_load(logits + j, n - j) + vf_load(bias + j, n - j), n - j, -INFINITY));
    return vf_max_lane(most);
}

/* Sum of exp(logit + bias - most); keep: the terms replace the logits. */
static float row_exp(float *logits, const float *bias, float most, int n, bool keep)
{
    vf sum = {0};
    for (int j = 0; j < n; j += VL) {
        vf e = vf_exp(vf_load(logits + j, n - j) + vf_load(bias + j, n - j) - most);
        if (keep) vf_store(logits + j, n - j, e);
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
    const int vocab = c->call->n[2];
    const bool gradient = c->call->n[3];
    float *row = c->p[0];
    const float *bias = c->p[1];
    const int32_t *target = c->p[2];
    const float scale = c->frame->loss_scale;
    double loss = 0;
    for (int64_t t = 0; t < tokens; t++, row += vocab) {
        const float wanted = row[target[t]] + bias[target[t]], most = row_max(row, bias, vocab);
        const float sum = row_exp(row, bias, most, vocab, gradient);
        loss += log((double)sum) + (double)most - (double)wanted;
        if (!gradient) continue;
        row_scale(row, scale / sum, vocab);
        row[target[t]] -= scale;
    }
    if (c->frame->loss) *c->frame->loss = loss;
}
