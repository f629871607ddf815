/* SPDX-License-Identifier: Apache-2.0
 *
 * Experts: who gets which token, and the way of the tokens there and back. Programs run route before the others, also
 * where ppprof times them; calls that run alone find any numbers in the place of what it writes, and what is no index
 * there is like a choice without a place.
 */
#include <float.h>
#include <math.h>

#include "kernels/cpu/simd/kernels.h"
#include "kernels/expert_order.h"

/* The element `index` of a row of n; NULL: it has none such. */
static inline const float *row_at(const float *rows, int32_t index, int n, int width)
{
    return index >= 0 && index < n ? rows + (int64_t)index * width : NULL;
}

static void softmax(float *row, int n)
{
    vf most = vf_all(-INFINITY), sum = {0};
    for (int j = 0; j < n; j += VL) most = vf_max(most, vf_first(vf_load(row + j, n - j), n - j, -INFINITY));
    const float greatest = vf_max_lane(most);
    for (int j = 0; j < n; j += VL) {
        const vf e = vf_exp(vf_load(row + j, n - j) - greatest);
        vf_store(row + j, n - j, e);
        sum += vf_first(e, n - j, 0);
    }
    const float scale = 1 / vf_sum(sum);
    for (int j = 0; j < n; j += VL) vf_store(row + j, n - j, vf_load(row + j, n - j) * scale);
}

static void sigmoid(float *row, int n)
{
    for (int j = 0; j < n; j += VL) vf_store(row + j, n - j, vf_logistic(vf_load(row + j, n - j)).value);
}

/* How a router makes probabilities and gates. */
struct rules {
    int experts, chosen;
    bool of_all, logistic;
    float scale;
    int groups, picked; /* groups of experts that a token chooses from, of all groups; groups 0: it chooses from all */
    bool by_best;       /* a group's score is that of its best expert alone */
};

static struct rules rules_of(const struct pp_call *call, int experts, int chosen, int rules)
{
    return (struct rules){.experts = experts,
                          .chosen = chosen,
                          .of_all = rules & PP_ROUTE_OF_ALL,
                          .logistic = rules & PP_ROUTE_SIGMOID,
                          .scale = call->routing.gate_scale,
                          .groups = call->routing.groups,
                          .picked = call->routing.picked,
                          .by_best = rules & PP_ROUTE_GROUP_BY_BEST};
}

/* By which a token chooses experts; what is no number is the least number. bias: [experts], or NULL. */
static void make_scores(const struct rules *r, const float *probabilities, const float *bias, float *scores)
{
    for (int e = 0; e < r->experts; e++) {
        const float score = bias ? probabilities[e] + bias[e] : probabilities[e];
        scores[e] = score > -FLT_MAX ? score : -FLT_MAX;
    }
}

/* Of a group of n experts: the highest score, or the sum of the two highest. */
static float group_score(const struct rules *r, const float *scores, int n)
{
    float best = -INFINITY, second = -INFINITY;
    for (int e = 0; e < n; e++)
        if (scores[e] > best) {
            second = best;
            best = scores[e];
        } else if (scores[e] > second) {
            second = scores[e];
        }
    return r->by_best ? best : best + second;
}

/* Writes the numbers of the `chosen` highest of n scores, in order: each finds its place from behind among those so
 * far. Scores of -INFINITY count for nothing; there are enough of the others. */
static void choose(const float *scores, int n, int chosen, int32_t *choices)
{
    int found = 0;
    for (int e = 0; e < n; e++) {
        int i = found;
        if (scores[e] == -INFINITY) continue;
        for (; i > 0 && scores[e] > scores[choices[i - 1]]; i--)
            if (i < chosen) choices[i] = choices[i - 1];
        if (i < chosen) choices[i] = e;
        if (found < chosen) found++;
    }
}

/* Takes the scores of experts away that are not in the best groups. */
static void leave_groups(const struct rules *r, float *scores)
{
    const int size = r->experts / r->groups;
    float of_group[PP_EXPERTS_MAX];
    int32_t best[PP_EXPERTS_MAX];
    bool stays[PP_EXPERTS_MAX] = {false};
    for (int g = 0; g < r->groups; g++) of_group[g] = fmaxf(group_score(r, scores + g * size, size), -FLT_MAX);
    choose(of_group, r->groups, r->picked, best);
    for (int i = 0; i < r->picked; i++) stays[best[i]] = true;
    for (int e = 0; e < r->experts; e++)
        if (!stays[e / size]) scores[e] = -INFINITY;
}

static void make_gates(const struct rules *r, const float *probabilities, const int32_t *choices, float *gates)
{
    float sum = r->logistic ? PP_ROUTE_TINY : 0;
    for (int i = 0; i < r->chosen; i++) sum += probabilities[choices[i]];
    if (r->of_all) sum = 1;
    for (int i = 0; i < r->chosen; i++) gates[i] = r->scale * (probabilities[choices[i]] / sum);
}

/* First choices first. */
static void give_places(const struct pp_cpu_call *c, const int32_t *choices, int32_t *places, int32_t *holds,
                        float *counts)
{
    const struct pp_route_dims *n = &c->call->route;
    const int experts = n->experts, chosen = n->chosen, capacity = n->capacity, local = n->local;
    const int64_t tokens = (int64_t)n->rows * n->seq;
    const int first = c->frame->tensor_rank * local;
    memset(counts, 0, sizeof *counts * (size_t)experts);
    memset(holds, -1, sizeof *holds * (size_t)capacity * (size_t)local);
    for (int i = 0; i < chosen; i++)
        for (int64_t t = 0; t < tokens; t++) {
            const int32_t expert = choices[t * chosen + i], taken = (int32_t)counts[expert]++; /* below 2^24: exact */
            const bool here = expert >= first && expert < first + local && taken < capacity;
            const int32_t place = here ? pp_expert_number(n, expert - first) * capacity + taken : -1;
            places[t * chosen + i] = place;
            if (here) holds[place] = (int32_t)(t * chosen + i);
        }
}

void PP_SIMD(pp_cpu_route)(const struct pp_cpu_call *c)
{
    const struct pp_route_memory *at = &c->at.route;
    const struct pp_route_dims *n = &c->call->route;
    const int experts = n->experts, chosen = n->chosen;
    const int64_t tokens = (int64_t)n->rows * n->seq;
    const struct rules rules = rules_of(c->call, experts, chosen, n->rules);
    float *probabilities = at->probabilities, *gates = at->gates, scores[PP_EXPERTS_MAX];
    int32_t *choices = at->choices;
    for (int64_t t = 0; t < tokens; t++) {
        float *const p = probabilities + t * experts;
        (rules.logistic ? sigmoid : softmax)(p, experts);
        make_scores(&rules, p, at->bias, scores);
        if (rules.groups) leave_groups(&rules, scores);
        choose(scores, experts, chosen, choices + t * chosen);
        make_gates(&rules, p, choices + t * chosen, gates + t * chosen);
    }
    give_places(c, choices, at->places, at->holds, at->counts);
}

/* Writes the gradient, at a token's probabilities p, of the loss that makes the router even, whose gradient at the
 * normalised probabilities is `even`. Those of a softmax are normalised. Logistic ones are divided by their sum s for
 * this loss, so the gradient at p is (even - (sum of even p) / s) / s. */
static void even_grad(const struct rules *r, float *dp, const float *p, const float *even)
{
    float sum = PP_ROUTE_TINY, weighed = 0;
    memcpy(dp, even, sizeof *dp * (size_t)r->experts);
    if (!r->logistic) return;
    for (int e = 0; e < r->experts; e++) {
        sum += p[e];
        weighed += even[e] * p[e];
    }
    for (int e = 0; e < r->experts; e++) dp[e] = (dp[e] - weighed / sum) / sum;
}

/* Adds the gradient of the gates at p. With gates g = scale p / s of the chosen ones, s their sum, it is
 * (scale dg - sum of dg g) / s; of_all: g = scale p. */
static void gates_grad(const struct rules *r, float *dp, const float *p, const int32_t *choices, const float *gates,
                       const float *dgates)
{
    float sum = r->logistic ? PP_ROUTE_TINY : 0, mean = 0;
    for (int i = 0; i < r->chosen; i++) mean += dgates[i] * gates[i];
    for (int i = 0; i < r->chosen; i++)
        if (row_at(p, choices[i], r->experts, 1)) sum += p[choices[i]];
    if (r->of_all) mean = 0, sum = 1;
    for (int i = 0; i < r->chosen; i++)
        if (row_at(p, choices[i], r->experts, 1)) dp[choices[i]] += (r->scale * dgates[i] - mean) / sum;
}

/* From the gradient at the probabilities to that at the logits, in place: p (dp - sum of dp p), or p (1 - p) dp. */
static void logits_grad(const struct rules *r, float *dp, const float *p)
{
    float weighed = 0;
    for (int e = 0; e < r->experts && !r->logistic; e++) weighed += dp[e] * p[e];
    for (int e = 0; e < r->experts; e++) dp[e] = r->logistic ? p[e] * (1 - p[e]) * dp[e] : p[e] * (dp[e] - weighed);
}

void PP_SIMD(pp_cpu_route_grad)(const struct pp_cpu_call *c)
{
    const struct pp_route_grad_memory *at = &c->at.route_grad;
    const struct pp_route_grad_dims *n = &c->call->route_grad;
    const int experts = n->experts, chosen = n->chosen;
    const int64_t tokens = (int64_t)n->rows * n->seq;
    const struct rules rules = rules_of(c->call, experts, chosen, n->rules);
    const float *probabilities = at->probabilities, *gates = at->gates, *dgates = at->dgates;
    const int32_t *choices = at->choices;
    const float *counts = at->counts;
    float even[PP_EXPERTS_MAX], *dlogits = at->dlogits;
    const float scale = c->call->routing.aux * c->frame->loss_scale * (float)experts / (float)(tokens * chosen);
    for (int e = 0; e < experts; e++) even[e] = scale * counts[e];
    for (int64_t t = 0; t < tokens; t++) {
        const float *p = probabilities + t * experts;
        even_grad(&rules, dlogits + t * experts, p, even);
        gates_grad(&rules, dlogits + t * experts, p, choices + t * chosen, gates + t * chosen, dgates + t * chosen);
        logits_grad(&rules, dlogits + t * experts, p);
    }
}

void PP_SIMD(pp_cpu_dispatch)(const struct pp_cpu_call *c)
{
    const struct pp_places_dims *n = &c->call->places;
    const int places = n->places, width = n->width, tokens = n->tokens, chosen = n->chosen;
    float *to = c->at.dispatch.to;
    const int32_t *holds = c->at.dispatch.holds;
    for (int s = 0; s < places; s++, to += width) {
        const float *from = row_at(c->at.dispatch.from, holds[s] < 0 ? -1 : holds[s] / chosen, tokens, width);
        if (from)
            memcpy(to, from, sizeof *to * (size_t)width);
        else
            memset(to, 0, sizeof *to * (size_t)width);
    }
}

void PP_SIMD(pp_cpu_combine)(const struct pp_cpu_call *c)
{
    const struct pp_combine_dims *n = &c->call->combine;
    const int tokens = n->tokens, width = n->width, places = n->places, chosen = n->chosen;
    const bool adds = pp_gemm_adds(c->call, n->mode, c->frame);
    float *to = c->at.combine.to;
    const int32_t *at = c->at.combine.places;
    for (int t = 0; t < tokens; t++, to += width, at += chosen)
        for (int j = 0; j < width; j += VL) {
            vf sum = {0};
            for (int i = 0; i < chosen; i++) {
                const float *from = row_at(c->at.combine.from, at[i], places, width);
                if (from) sum += vf_load(from + j, width - j);
            }
            if (adds) sum += vf_load(to + j, width - j);
            vf_store(to + j, width - j, sum);
        }
}

void PP_SIMD(pp_cpu_weigh)(const struct pp_cpu_call *c)
{
    const struct pp_places_dims *n = &c->call->places;
    const int places = n->places, width = n->width, choices = n->tokens * n->chosen;
    float *u = c->at.weigh.u;
    const int32_t *holds = c->at.weigh.holds;
    for (int s = 0; s < places; s++, u += width) {
        const float *gate = row_at(c->at.weigh.gates, holds ? holds[s] : s, choices, 1);
        for (int j = 0; gate && j < width; j += VL) vf_store(u + j, width - j, vf_load(u + j, width - j) * *gate);
    }
}

/* du *= gate; returns the sum of du u before. */
static float weigh_grad_row(float *du, const float *u, float gate, int width)
{
    vf sum = {0};
    for (int j = 0; j < width; j += VL) {
        const vf d = vf_load(du + j, width - j);
        sum += d * vf_load(u + j, width - j);
        vf_store(du + j, width - j, d * gate);
    }
    return vf_sum(sum);
}

void PP_SIMD(pp_cpu_weigh_grad)(const struct pp_cpu_call *c)
{
    const struct pp_places_dims *n = &c->call->places;
    const int places = n->places, width = n->width, choices = n->tokens * n->chosen;
    float *du = c->at.weigh_grad.du, *dgates = c->at.weigh_grad.dgates;
    const float *u = c->at.weigh_grad.u, *gates = c->at.weigh_grad.gates;
    const int32_t *at = c->at.weigh_grad.places;
    for (int k = 0; k < choices; k++) {
        const float *row = row_at(u, at ? at[k] : k, places, width);
        const float dot = row ? weigh_grad_row(du + (row - u), row, gates[k], width) : 0;
        dgates[k] = gates[k] != 0 ? dot / gates[k] : 0;
    }
}
