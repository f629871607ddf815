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

/* Softmax over a row becomes the loss's gradient. columns: behind those of words, 0. */
static void finish_gradient(float *gradient, float factor, float scale, int64_t target, int vocab, int columns)
{
    row_scale(gradient, factor, vocab);
    if (target >= 0 && target < vocab) gradient[target] -= scale;
    memset(gradient + vocab, 0, sizeof *gradient * (size_t)(columns - vocab));
}

void PP_SIMD(pp_cpu_cross_entropy)(const struct pp_cpu_call *c)
{
    const struct pp_loss_memory *at = &c->at.loss;
    const struct pp_loss_dims *n = &c->call->loss;
    const int64_t tokens = (int64_t)n->rows * n->seq;
    const int vocab = n->vocab, columns = n->columns;
    const float *logits = at->logits, *bias = at->bias;
    const int32_t *target = at->targets;
    float *gradient = n->gradient ? at->dlogits : NULL; /* may be the logits */
    const float scale = c->frame->loss_scale;
    double loss = 0;
    for (int64_t t = 0; t < tokens; t++, logits += columns) {
        const float wanted = logits[target[t]] + (bias ? bias[target[t]] : 0), most = row_max(logits, bias, vocab);
        const float sum = row_exp(gradient, logits, bias, most, vocab);
        loss += log((double)sum) + (double)most - (double)wanted;
        if (!gradient) continue;
        finish_gradient(gradient, scale / sum, scale, target[t], vocab, columns);
        gradient += columns;
    }
    if (c->frame->loss) *c->frame->loss = loss;
}

/* Words of a worker that shares the vocabulary: from `first` on, as many as there are. */
struct words {
    int first, n;
};

static struct words words_of(const struct pp_cpu_call *c)
{
    const struct pp_loss_dims *n = &c->call->loss;
    const int first = c->frame->tensor_rank * n->vocab, left = n->whole - first;
    return (struct words){first, left < n->vocab ? left : n->vocab};
}

void PP_SIMD(pp_cpu_cross_entropy_part)(const struct pp_cpu_call *c)
{
    const struct pp_loss_memory *at = &c->at.loss;
    const struct pp_loss_dims *n = &c->call->loss;
    const int64_t tokens = (int64_t)n->rows * n->seq;
    const struct words words = words_of(c);
    const float *logits = at->logits, *bias = at->bias;
    const int32_t *target = at->targets;
    float *parts = at->parts, *part = parts + c->frame->tensor_rank * tokens * PP_ENTROPY_PART;
    memset(parts, 0, sizeof *parts * PP_ENTROPY_PART * (size_t)(tokens * pp_frame_tensor(c->frame)));
    for (int64_t t = 0; t < tokens; t++, logits += n->columns, part += PP_ENTROPY_PART) {
        const int word = target[t] - words.first;
        part[0] = row_max(logits, bias, words.n);
        part[1] = row_exp(NULL, logits, bias, part[0], words.n);
        if (word >= 0 && word < words.n) part[2] = logits[word] + (bias ? bias[word] : 0);
    }
}

/* What all workers' parts of a row make. */
static void join_parts(const float *part, int64_t stride, int tensor, float whole[PP_ENTROPY_PART])
{
    whole[0] = -INFINITY;
    whole[1] = whole[2] = 0;
    for (int i = 0; i < tensor; i++) whole[0] = fmaxf(whole[0], part[i * stride]);
    for (int i = 0; i < tensor; i++, part += stride) {
        whole[1] += part[1] * expf(part[0] - whole[0]);
        whole[2] += part[2];
    }
}

void PP_SIMD(pp_cpu_cross_entropy_join)(const struct pp_cpu_call *c)
{
    const struct pp_loss_memory *at = &c->at.loss;
    const struct pp_loss_dims *n = &c->call->loss;
    const int64_t tokens = (int64_t)n->rows * n->seq;
    const int columns = n->columns;
    const struct words words = words_of(c);
    const float *logits = at->logits, *bias = at->bias, *part = at->parts;
    const int32_t *target = at->targets;
    float *gradient = n->gradient ? at->dlogits : NULL; /* may be the logits */
    const float scale = c->frame->loss_scale;
    double loss = 0;
    for (int64_t t = 0; t < tokens; t++, logits += columns, part += PP_ENTROPY_PART) {
        float whole[PP_ENTROPY_PART];
        join_parts(part, tokens * PP_ENTROPY_PART, pp_frame_tensor(c->frame), whole);
        loss += log((double)whole[1]) + (double)whole[0] - (double)whole[2];
        if (!gradient) continue;
        row_exp(gradient, logits, bias, whole[0], words.n);
        finish_gradient(gradient, scale / whole[1], scale, (int64_t)target[t] - words.first, words.n, columns);
        gradient += columns;
    }
    if (c->frame->loss) *c->frame->loss = loss;
}
