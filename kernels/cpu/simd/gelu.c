/* SPDX-License-Identifier: Apache-2.0
 *
 * GELU and dropout behind it, gelu(a) = a f(a): exact, f the normal distribution's Phi(a) = (1 + erf(a / sqrt(2))) / 2;
 * or by tanh, f(a) = (1 + tanh(z)) / 2 with z = sqrt(2 / pi) (a + 0.044715 a^3).
 */
#include "kernels/cpu/simd/kernels.h"
#include "kernels/cpu/simd/random.h"

/* f(a), and its derivative. */
struct factor {
    vf value, slope;
};

/* Phi(a), and the density phi(a) = exp(-a^2 / 2) / sqrt(2 pi). The tail 1 - Phi(t), t = |a|, is exp(-t^2 / 2) r(t), and
 * r a polynomial of w = 1 / (1 + 0.21 t) without a constant term: fitted to erfc() for t to 13, from where on the tail
 * is as good as 0, to 1.1e-8 of r. */
static inline struct factor of_normal(vf a)
{
    static const float terms[] = {0.287365521f, -0.338234999f, 0.358810608f,  -0.100685149f,
                                  0.127899575f, 0.0683680797f, 0.0851934898f, 0.0837035606f};
    const vf t = (vf)((vu)a & INT32_MAX), w = 1 / (1 + 0.21f * t), e = vf_exp(-0.5f * t * t);
    vf sum = vf_all(-0.0724207067f);
    for (int i = 0; i < 8; i++) sum = sum * w + terms[i];
    const vf tail = e * sum * w;
    return (struct factor){vf_select((vi)(a > 0), 1 - tail, tail), e * 0.398942280f};
}

/* (1 + tanh(z)) / 2 = 1 / (1 + exp(-2 z)), of exp(-2 |z|), so that neither end loses digits: to 3e-7 (2 + 2 |z|) of f.
 * From |a| = 10 on, where 2 |z| is 87.3, f is as good as 0 or 1, and a^3 would become too large; what is left of f and
 * of its slope there, 1e-38 to 1e-36, shows where a is 1e33 or more. */
static inline struct factor of_tanh(vf a)
{
    const float linear = 1.59576912f, cubic = 0.0713548163f; /* 2 sqrt(2 / pi), and 0.044715 of that */
    const vf t = vf_max(vf_all(-10), -(vf)((vu)a & INT32_MAX)), square = t * t;
    const vf e = vf_exp(t * (linear + cubic * square)), w = 1 / (1 + e), small = e * w;
    return (struct factor){vf_select((vi)(a > 0), w, small), small * w * (linear + 3 * cubic * square)};
}

static inline struct factor factor(bool by_tanh, vf a) { return by_tanh ? of_tanh(a) : of_normal(a); }

/* a += bias, u = drop(gelu(a)) of one row */
static void gelu_row(const struct pp_simd_dropout *drop, bool dropping, uint32_t row, float *u, float *a,
                     const float *bias, int width, bool by_tanh)
{
    uint32_t random[PP_RANDOM_TILE + PP_RANDOM_ROUND];
    for (int j0 = 0; j0 < width; j0 += PP_RANDOM_TILE) {
        const int n = width - j0 < PP_RANDOM_TILE ? width - j0 : PP_RANDOM_TILE;
        if (dropping) pp_simd_random_rows(drop, row, 1, j0 / 4, (n + 3) / 4, random);
        for (int j = 0; j < n; j += VL) {
            const vf v = vf_load(a + j0 + j, n - j) + vf_load_any(bias, j0 + j, n - j);
            const vf g = v * factor(by_tanh, v).value;
            if (bias) vf_store(a + j0 + j, n - j, v);
            vf_store(u + j0 + j, n - j, dropping ? pp_simd_drop_lanes(drop, random + j, g) : g);
        }
    }
}

void PP_SIMD(pp_cpu_gelu)(const struct pp_cpu_call *c)
{
    const struct pp_activation_dims *n = &c->call->activation;
    const int seq = n->seq, width = n->width;
    const int64_t tokens = (int64_t)n->rows * seq;
    float *u = c->at.gelu.u, *a = c->at.gelu.a;
    struct pp_simd_dropout drop;
    const bool dropping = pp_simd_dropout_of_part(c, &drop);
    for (int64_t t = 0; t < tokens; t++, u += width, a += width)
        gelu_row(&drop, dropping, (uint32_t)(c->frame->first_row * seq + t), u, a, c->at.gelu.bias, width, n->tanh);
}

/* du = drop'(du) * gelu'(a) of one row, gelu'(a) = f(a) + a f'(a) */
static void gelu_grad_row(const struct pp_simd_dropout *drop, bool dropping, uint32_t row, float *du, const float *a,
                          int width, bool by_tanh)
{
    uint32_t random[PP_RANDOM_TILE + PP_RANDOM_ROUND];
    for (int j0 = 0; j0 < width; j0 += PP_RANDOM_TILE) {
        const int n = width - j0 < PP_RANDOM_TILE ? width - j0 : PP_RANDOM_TILE;
        if (dropping) pp_simd_random_rows(drop, row, 1, j0 / 4, (n + 3) / 4, random);
        for (int j = 0; j < n; j += VL) {
            const vf v = vf_load(a + j0 + j, n - j), d = vf_load(du + j0 + j, n - j);
            const struct factor f = factor(by_tanh, v);
            vf_store(du + j0 + j, n - j,
                     (dropping ? pp_simd_drop_lanes(drop, random + j, d) : d) * (f.value + v * f.slope));
        }
    }
}

/* Whether u was dropped is drawn again: that gelu(a) is 0 does not tell. */
void PP_SIMD(pp_cpu_gelu_grad)(const struct pp_cpu_call *c)
{
    const struct pp_activation_dims *n = &c->call->activation;
    const int seq = n->seq, width = n->width;
    const int64_t tokens = (int64_t)n->rows * seq;
    float *du = c->at.gelu_grad.du;
    const float *a = c->at.gelu_grad.a;
    struct pp_simd_dropout drop;
    const bool dropping = pp_simd_dropout_of_part(c, &drop);
    for (int64_t t = 0; t < tokens; t++, du += width, a += width)
        gelu_grad_row(&drop, dropping, (uint32_t)(c->frame->first_row * seq + t), du, a, width, n->tanh);
}
