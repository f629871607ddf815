/* SPDX-License-Identifier: Apache-2.0
 *
 * The end of a residual block, fused: bias, dropout, residual and layer normalisation in one pass over the row. Where
 * the normalisation comes first, it is alone (plain), or that of the next block; the last residual is alone. That by
 * the root mean square (rms) is the same with a mean of 0 and no beta.
 */
#include <math.h>

#include "kernels/cpu/simd/kernels.h"
#include "kernels/cpu/simd/random.h"

/* r = x + drop(z + bias), which may lie where z or x does; returns the sum of r */
static float residual_row(const struct pp_simd_dropout *drop, bool dropping, uint32_t row, float *r, const float *z,
                          const float *x, const float *bias, int d)
{
    uint32_t random[PP_RANDOM_TILE + PP_RANDOM_ROUND];
    vf sum = {0};
    for (int j0 = 0; j0 < d; j0 += PP_RANDOM_TILE) {
        const int n = d - j0 < PP_RANDOM_TILE ? d - j0 : PP_RANDOM_TILE;
        if (dropping) pp_simd_random_rows(drop, row, 1, j0 / 4, (n + 3) / 4, random);
        for (int j = 0; j < n; j += VL) {
            vf v = vf_load(z + j0 + j, n - j) + vf_load_any(bias, j0 + j, n - j);
            if (dropping) v = pp_simd_drop_lanes(drop, random + j, v);
            v += vf_load(x + j0 + j, n - j);
            vf_store(r + j0 + j, n - j, v);
            sum += vf_first(v, n - j, 0);
        }
    }
    return vf_sum(sum);
}

static float sum_row(const float *r, int d)
{
    vf sum = {0};
    for (int j = 0; j < d; j += VL) sum += vf_load(r + j, d - j);
    return vf_sum(sum);
}

static float squares_row(const float *r, float mean, int d)
{
    vf sum = {0};
    for (int j = 0; j < d; j += VL) {
        vf v = vf_first(vf_load(r + j, d - j) - mean, d - j, 0);
        sum += v * v;
    }
    return vf_sum(sum);
}

static inline void norm(const struct pp_cpu_call *c, bool rms)
{
    const struct pp_norm_memory *at = &c->at.norm;
    const int d = c->call->norm.d;
    const bool plain = c->call->norm.plain;
    const struct pp_tokens tokens = pp_call_tokens(c->call, c->frame);
    float *z = at->z, *rstd = at->rstd;
    const float *x = at->x, *bias = at->bias, *gamma = at->gamma, *beta = at->beta;
    struct pp_simd_dropout drop;
    const bool dropping = pp_simd_dropout_of_tokens(c, &tokens, &drop);
    for (int64_t t = 0; t < tokens.n; t++, z += d, x += d) {
        float *y = at->y ? (float *)at->y + t * d : NULL, *sum = at->sum ? (float *)at->sum + t * d : z;
        const uint32_t row = (uint32_t)(tokens.first + t);
        const float *r = plain ? x : sum;
        const float all = !plain ? residual_row(&drop, dropping, row, sum, z, x, bias, d) : rms ? 0 : sum_row(r, d);
        const float mean = rms ? 0 : all / (float)d;
        const float scale = 1 / sqrtf(squares_row(r, mean, d) / (float)d + c->call->eps);
        rstd[t] = scale;
        for (int j = 0; j < d; j += VL) {
            vf v = (vf_load(r + j, d - j) - mean) * scale;
            vf_store(z + j, d - j, v);
            if (y) vf_store(y + j, d - j, v * vf_load(gamma + j, d - j) + vf_load_any(beta, j, d - j));
        }
    }
}

void PP_SIMD(pp_cpu_layernorm)(const struct pp_cpu_call *c) { norm(c, false); }
void PP_SIMD(pp_cpu_rmsnorm)(const struct pp_cpu_call *c) { norm(c, true); }

void PP_SIMD(pp_cpu_residual)(const struct pp_cpu_call *c)
{
    const struct pp_residual_memory *at = &c->at.residual;
    const int d = c->call->norm.d;
    const struct pp_tokens tokens = pp_call_tokens(c->call, c->frame);
    float *y = at->y;
    const float *z = at->z, *x = at->x;
    struct pp_simd_dropout drop;
    const bool dropping = pp_simd_dropout_of_tokens(c, &tokens, &drop);
    for (int64_t t = 0; y && t < tokens.n; t++, y += d, z += d, x += d)
        residual_row(&drop, dropping, (uint32_t)(tokens.first + t), y, z, x, at->bias, d);
}

/* Operands of one row of the gradient. */
struct grad_row {
    float *dr, *xhat;              /* xhat becomes dz, unless the norm is plain */
    const float *dy, *gamma, *add; /* add: may be NULL */
    float *dgamma, *dbeta;         /* added to; dbeta: NULL where the mean is 0 */
};

/* Adds to the gradients of gamma and beta; returns the means of g = dy * gamma and of g * xhat. */
static void grad_means(const struct grad_row *row, int d, float *mean_g, float *mean_gx)
{
    vf sum_g = {0}, sum_gx = {0};
    for (int j = 0; j < d; j += VL) {
        const vf dy = vf_load(row->dy + j, d - j), xhat = vf_load(row->xhat + j, d - j);
        const vf g = dy * vf_load(row->gamma + j, d - j); /* zero in lanes past the end */
        vf_store(row->dgamma + j, d - j, vf_load(row->dgamma + j, d - j) + dy * xhat);
        if (row->dbeta) vf_store(row->dbeta + j, d - j, vf_load(row->dbeta + j, d - j) + dy);
        sum_g += g;
        sum_gx += g * xhat;
    }
    *mean_g = row->dbeta ? vf_sum(sum_g) / (float)d : 0;
    *mean_gx = vf_sum(sum_gx) / (float)d;
}

/* drop: NULL for a plain norm */
static void grad_row(const struct pp_simd_dropout *drop, bool dropping, uint32_t number, const struct grad_row *row,
                     float rstd, int d)
{
    uint32_t random[PP_RANDOM_TILE + PP_RANDOM_ROUND];
    float mean_g, mean_gx;
    grad_means(row, d, &mean_g, &mean_gx);
    for (int j0 = 0; j0 < d; j0 += PP_RANDOM_TILE) {
        const int n = d - j0 < PP_RANDOM_TILE ? d - j0 : PP_RANDOM_TILE;
        if (dropping) pp_simd_random_rows(drop, number, 1, j0 / 4, (n + 3) / 4, random);
        for (int j = 0; j < n; j += VL) {
            const int at = j0 + j, left = n - j;
            vf g = vf_load(row->dy + at, left) * vf_load(row->gamma + at, left);
            vf v = (g - mean_g - vf_load(row->xhat + at, left) * mean_gx) * rstd;
            if (row->add) v += vf_load(row->add + at, left);
            vf_store(row->dr + at, left, v);
            if (drop) vf_store(row->xhat + at, left, dropping ? pp_simd_drop_lanes(drop, random + j, v) : v);
        }
    }
}

static void norm_grad(const struct pp_cpu_call *c)
{
    const struct pp_norm_grad_memory *at = &c->at.norm_grad;
    const int d = c->call->norm.d;
    const bool plain = c->call->norm.plain;
    const struct pp_tokens tokens = pp_call_tokens(c->call, c->frame);
    const float *rstd = at->rstd;
    struct grad_row row = {at->dr, at->xhat, at->dy, at->gamma, at->add, at->gamma_grad, at->beta_grad};
    struct pp_simd_dropout drop;
    const bool dropping = pp_simd_dropout_of_tokens(c, &tokens, &drop) && !plain;
    if (!c->call->adds) {
        memset(row.dgamma, 0, sizeof(float) * (size_t)d);
        if (row.dbeta) memset(row.dbeta, 0, sizeof(float) * (size_t)d);
    }
    for (int64_t t = 0; t < tokens.n; t++, row.dr += d, row.xhat += d, row.dy += d) {
        grad_row(plain ? NULL : &drop, dropping, (uint32_t)(tokens.first + t), &row, rstd[t], d);
        if (row.add) row.add += d;
    }
}

void PP_SIMD(pp_cpu_layernorm_grad)(const struct pp_cpu_call *c) { norm_grad(c); }
void PP_SIMD(pp_cpu_rmsnorm_grad)(const struct pp_cpu_call *c) { norm_grad(c); }

static void residual_grad_row(const struct pp_simd_dropout *drop, uint32_t row, float *dz, const float *dy, int d)
{
    uint32_t random[PP_RANDOM_TILE + PP_RANDOM_ROUND];
    for (int j0 = 0; j0 < d; j0 += PP_RANDOM_TILE) {
        const int n = d - j0 < PP_RANDOM_TILE ? d - j0 : PP_RANDOM_TILE;
        pp_simd_random_rows(drop, row, 1, j0 / 4, (n + 3) / 4, random);
        for (int j = 0; j < n; j += VL)
            vf_store(dz + j0 + j, n - j, pp_simd_drop_lanes(drop, random + j, vf_load(dy + j0 + j, n - j)));
    }
}

void PP_SIMD(pp_cpu_residual_grad)(const struct pp_cpu_call *c)
{
    const int d = c->call->norm.d;
    const struct pp_tokens tokens = pp_call_tokens(c->call, c->frame);
    float *dz = c->at.residual_grad.dz;
    const float *dy = c->at.residual_grad.dy;
    struct pp_simd_dropout drop;
    if (!pp_simd_dropout_of_tokens(c, &tokens, &drop)) {
        memcpy(dz, dy, sizeof(float) * (size_t)(tokens.n * d));
        return;
    }
    for (int64_t t = 0; t < tokens.n; t++)
        residual_grad_row(&drop, (uint32_t)(tokens.first + t), dz + t * d, dy + t * d, d);
}
