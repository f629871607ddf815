/* SPDX-License-Identifier: Apache-2.0
 *
 * Latent attention: the norms of latent vectors, and how queries, keys and values of all heads are put together and
 * taken apart, token by token.
 */
#include "kernels/cpu/simd/kernels.h"
#include "kernels/cpu/simd/rms.h"

void PP_SIMD(pp_cpu_latent_norm)(const struct pp_cpu_call *c)
{
    const struct pp_latent_dims *n = &c->call->latent;
    const float *x = c->at.latent_norm.x, *gamma = c->at.latent_norm.gamma;
    float *y = c->at.latent_norm.y, *kept = c->at.latent_norm.rstd;
    for (int64_t t = 0; t < (int64_t)n->rows * n->seq; t++, x += n->rank + n->shared, y += n->rank) {
        kept[t] = pp_simd_rms_scale(x, n->rank, c->call->eps);
        pp_simd_rms_norm(y, x, kept[t], gamma, n->rank);
    }
}

static void copy(float *to, const float *from, int n) { memcpy(to, from, sizeof *to * (size_t)n); }

void PP_SIMD(pp_cpu_latent_norm_grad)(const struct pp_cpu_call *c)
{
    const struct pp_latent_dims *n = &c->call->latent;
    const struct pp_latent_norm_grad_memory *at = &c->at.latent_norm_grad;
    const float *rstd = at->rstd, *dy = at->dy, *dshared = at->dshared;
    float *x = at->x, *dgamma = at->gamma_grad;
    if (!c->call->adds) memset(dgamma, 0, sizeof *dgamma * (size_t)n->rank);
    for (int64_t t = 0; t < (int64_t)n->rows * n->seq; t++, x += n->rank + n->shared, dy += n->rank) {
        pp_simd_rms_grad(x, dy, x, rstd[t], at->gamma, dgamma, n->rank);
        if (n->shared) copy(x + n->rank, dshared + t * n->shared, n->shared);
    }
}

void PP_SIMD(pp_cpu_join_heads)(const struct pp_cpu_call *c)
{
    const struct pp_heads_dims *n = &c->call->heads;
    const int queries = PP_JOINED_QUERIES(n), both = PP_JOINED_KV(n), columns = PP_JOINED_COLUMNS(n);
    const float *q = c->at.join_heads.q, *kv = c->at.join_heads.kv, *x = c->at.join_heads.x;
    float *qkv = c->at.join_heads.qkv;
    for (int64_t t = 0; t < (int64_t)n->rows * n->seq; t++, q += queries, kv += both, qkv += PP_JOINED_QKV(n)) {
        float *key = qkv + queries, *value = key + queries;
        const float *own = kv, *shared = x + t * (n->rank + n->shared) + n->rank;
        copy(qkv, q, queries);
        for (int h = 0; h < n->heads; h++, key += columns, value += n->values, own += n->still + n->values) {
            copy(key, own, n->still);
            copy(key + n->still, shared, n->shared);
            copy(value, own + n->still, n->values);
        }
    }
}

/* sum += x of n columns. */
static void add(float *sum, const float *x, int n)
{
    for (int j = 0; j < n; j += VL) vf_store(sum + j, n - j, vf_load(sum + j, n - j) + vf_load(x + j, n - j));
}

void PP_SIMD(pp_cpu_split_heads)(const struct pp_cpu_call *c)
{
    const struct pp_heads_dims *n = &c->call->heads;
    const int queries = PP_JOINED_QUERIES(n), both = PP_JOINED_KV(n), columns = PP_JOINED_COLUMNS(n);
    const float *dqkv = c->at.split_heads.dqkv;
    float *dq = c->at.split_heads.dq, *dkv = c->at.split_heads.dkv, *dshared = c->at.split_heads.dshared;
    for (int64_t t = 0; t < (int64_t)n->rows * n->seq; t++, dq += queries, dkv += both, dshared += n->shared) {
        const float *row = dqkv + t * PP_JOINED_QKV(n), *key = row + queries, *value = key + queries;
        float *own = dkv;
        copy(dq, row, queries);
        copy(dshared, key + n->still, n->shared);
        for (int h = 0; h < n->heads; h++, key += columns, value += n->values, own += n->still + n->values) {
            copy(own, key, n->still);
            if (h) add(dshared, key + n->still, n->shared);
            copy(own + n->still, value, n->values);
        }
    }
}
