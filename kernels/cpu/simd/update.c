/* SPDX-License-Identifier: Apache-2.0
 *
 * Sums over gradients, the optimizer step and other passes over memory.
 */
#include "kernels/cpu/simd/kernels.h"

void PP_SIMD(pp_cpu_copy)(const struct pp_cpu_call *c)
{
    const struct pp_copy_memory *at = &c->at.copy;
    if (at->to && at->from)
        memcpy(at->to, at->from, sizeof(float) * (size_t)c->call->matrix.rows * (size_t)c->call->matrix.width);
}

/* out += the sum of `rows` rows */
static void add_rows(float *out, const float *in, int rows, int width)
{
    for (int j = 0; j < width; j += VL) {
        vf sum = {0};
        for (int i = 0; i < rows; i++) sum += vf_load(in + (int64_t)i * width + j, width - j);
        vf_store(out + j, width - j, vf_load(out + j, width - j) + sum);
    }
}

enum { COLSUM_ROWS = 8 }; /* rows summed at a time: sequential streams that the processor can prefetch */

void PP_SIMD(pp_cpu_colsum)(const struct pp_cpu_call *c)
{
    const int rows = c->call->matrix.rows, width = c->call->matrix.width;
    float *out = c->at.colsum.grad;
    const float *in = c->at.colsum.in;
    if (!c->call->adds) memset(out, 0, sizeof *out * (size_t)width);
    for (int i = 0; i < rows; i += COLSUM_ROWS)
        add_rows(out, in + (int64_t)i * width, rows - i < COLSUM_ROWS ? rows - i : COLSUM_ROWS, width);
}

void PP_SIMD(pp_cpu_take)(const struct pp_cpu_call *c)
{
    const int64_t n = (int64_t)c->call->matrix.rows * c->call->matrix.width;
    float *grad = c->at.take.grad;
    const float *in = c->at.take.in;
    if (!c->call->adds && in)
        memcpy(grad, in, sizeof *grad * (size_t)n);
    else if (!c->call->adds)
        memset(grad, 0, sizeof *grad * (size_t)n);
    else if (in)
        PP_SIMD(pp_cpu_add)(grad, grad, in, n);
}

/* Both halves of v as doubles, squared, added up. */
static vd add_squares(vd sum, vf v)
{
    vf_half low, high;
    memcpy(&low, &v, sizeof low);
    memcpy(&high, (const char *)&v + sizeof low, sizeof high);
    const vd a = __builtin_convertvector(low, vd), b = __builtin_convertvector(high, vd);
    return sum + a * a + b * b;
}

enum { STREAMS = 4 }; /* read at a time: memory answers several sooner than one after the other */

void PP_SIMD(pp_cpu_sumsq)(const struct pp_cpu_call *c)
{
    const int64_t n = (int64_t)c->call->sumsq.rows * c->call->sumsq.width, part = n / STREAMS / VL * VL;
    const float *g = c->at.sumsq.gradient;
    double *const out = &c->frame->sums[pp_sum_index(c->call, c->frame)];
    vd sum[STREAMS] = {{0}};
    if (pp_counts_elsewhere(c->call->sumsq.once, c->frame)) {
        *out = 0;
        return;
    }
    for (int64_t i = 0; i < part; i += VL)
        for (int s = 0; s < STREAMS; s++) sum[s] = add_squares(sum[s], vf_load_whole(g + s * part + i));
    for (int64_t i = STREAMS * part; i < n; i += VL) sum[0] = add_squares(sum[0], vf_load(g + i, n - i));
    double total = 0;
    for (int s = 1; s < STREAMS; s++) sum[0] += sum[s];
    for (int i = 0; i < VL / 2; i++) total += sum[0][i];
    *out = total;
}

void PP_SIMD(pp_cpu_sgd)(const struct pp_cpu_call *c)
{
    const int64_t n = (int64_t)c->call->step.rows * c->call->step.width;
    float *w = c->at.step.w;
    const float *g = c->at.step.g;
    const float rate = c->frame->learning_rate * c->frame->clip_factor;
    for (int64_t i = 0; i < n; i += VL) vf_store(w + i, n - i, vf_load(w + i, n - i) - vf_load(g + i, n - i) * rate);
}

struct adamw_lanes {
    vf weight, mean, square;
};

static struct adamw_lanes adamw_step(const struct pp_adamw *a, struct adamw_lanes x, vf gradient)
{
    x.mean += a->mean_gain * (gradient - x.mean);
    x.square = x.square * a->square_keep + a->square_gain * gradient * gradient;
    x.weight = x.weight * a->keep - a->rate * x.mean / (vf_sqrt(x.square) / a->square_root + a->epsilon);
    return x;
}

/* Moments of `type`, which `load` and `store` read and write as float. */
#define ADAMW(c, type, load, store)                                                                                    \
    do {                                                                                                               \
        const struct pp_step_memory *at = &(c)->at.step;                                                               \
        const int64_t n = (int64_t)(c)->call->step.rows * (c)->call->step.width;                                       \
        float *w = at->w;                                                                                              \
        const float *g = at->g;                                                                                        \
        type *m = at->m, *v = at->v;                                                                                   \
        for (int64_t i = 0; i < n; i += VL) {                                                                          \
            const int64_t left = n - i;                                                                                \
            struct adamw_lanes x = {vf_load(w + i, left), load(m + i, left), load(v + i, left)};                       \
            x = adamw_step(&(c)->frame->adamw, x, vf_load(g + i, left) * (c)->frame->clip_factor);                     \
            store(m + i, left, x.mean);                                                                                \
            store(v + i, left, x.square);                                                                              \
            vf_store(w + i, left, x.weight);                                                                           \
        }                                                                                                              \
    } while (0)

void PP_SIMD(pp_cpu_adamw)(const struct pp_cpu_call *c) { ADAMW(c, float, vf_load, vf_store); }
void PP_SIMD(pp_cpu_adamw_bf16)(const struct pp_cpu_call *c) { ADAMW(c, uint16_t, vf_load_bf16, vf_store_bf16); }

/* Loads, and products of whole numbers, are compared exactly. */
void PP_SIMD(pp_cpu_balance)(const struct pp_cpu_call *c)
{
    const struct pp_balance_dims *n = &c->call->balance;
    const double all = (double)c->frame->tokens * n->chosen;
    float *bias = c->at.balance.bias;
    const float *loads = c->at.balance.loads;
    for (int64_t i = 0; i < (int64_t)n->rows * n->width; i++) {
        const double load = (double)loads[i] * n->experts;
        bias[i] += c->call->scale * (float)((load < all) - (load > all));
    }
}

void PP_SIMD(pp_cpu_add)(float *to, const float *a, const float *b, int64_t n)
{
    for (int64_t i = 0; i < n; i += VL) vf_store(to + i, n - i, vf_load(a + i, n - i) + vf_load(b + i, n - i));
}

float PP_SIMD(pp_cpu_spin)(void)
{
    enum { TURNS = 200000 };
    /* Enough to hide the latency of a multiply-add; no array, which sanitizers would look at in every turn. */
    vf a = vf_all(0), b = vf_all(1), c = vf_all(2), d = vf_all(3), e = vf_all(4), f = vf_all(5), g = vf_all(6),
       h = vf_all(7);
    for (int turn = 0; turn < TURNS; turn++) {
        a = a * 0.5f + 1.0f, b = b * 0.5f + 1.0f, c = c * 0.5f + 1.0f, d = d * 0.5f + 1.0f;
        e = e * 0.5f + 1.0f, f = f * 0.5f + 1.0f, g = g * 0.5f + 1.0f, h = h * 0.5f + 1.0f;
    }
    return vf_sum(a + b + c + d + e + f + g + h);
}
