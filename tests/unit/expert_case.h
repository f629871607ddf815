/* SPDX-License-Identifier: Apache-2.0
 *
 * For tests of the kernels of experts: shapes, and who gets which token in them.
 */
#ifndef PP_TESTS_EXPERT_CASE_H
#define PP_TESTS_EXPERT_CASE_H

#include "tests/unit/kernel_case.h"

/* tensor: workers, of whom each has experts / tensor of them. */
struct shape {
    int rows, seq, experts, chosen, capacity, tensor, width;
};

static const struct shape shapes[] = {{1, 1, 1, 1, 1, 1, 1},     {2, 3, 1, 1, 6, 1, 5},    {2, 3, 4, 4, 6, 2, 7},
                                      {3, 5, 5, 2, 1, 1, 16},    {2, 7, 8, 2, 4, 4, 33},   {1, 9, 17, 3, 2, 1, 3},
                                      {4, 6, 16, 1, 2, 8, 64},   {2, 25, 64, 8, 7, 2, 20}, {1, 40, 130, 64, 5, 1, 9},
                                      {5, 4, 128, 6, 20, 16, 2}, {2, 13, 3, 2, 26, 3, 100}};
#define FOR_EACH_SHAPE(s) for (const struct shape *s = shapes; s < shapes + sizeof shapes / sizeof shapes[0]; s++)

static inline int tokens_of(const struct shape *s) { return s->rows * s->seq; }
static inline int choices_of(const struct shape *s) { return s->rows * s->seq * s->chosen; }
static inline int local_of(const struct shape *s) { return s->experts / s->tensor; }
static inline int places_of(const struct shape *s) { return local_of(s) * s->capacity; }

static inline int32_t *case_ints(int n)
{
    int32_t *out = malloc(sizeof *out * (size_t)n);
    assert_non_null(out);
    memset(out, 0x77, sizeof *out * (size_t)n);
    return out;
}

/* What route wrote: [tokens,experts], [tokens,chosen], [tokens,chosen], [tokens,chosen], [places], [experts]. */
struct routed {
    float *probabilities;
    int32_t *choices;
    float *gates;
    int32_t *places, *holds;
    float *counts;
};

/* How probabilities and gates are made: enum pp_route_rules, and what gates are multiplied by; biased: experts are
 * chosen with bias_of_expert(). */
struct rules {
    int bits;
    float scale;
    bool biased;
    int groups, picked;  /* 0: none */
    int workers, pieces; /* expert ranks, and pieces of each; 0: none */
};

/* Whole eighths, so that many scores are equal. */
static inline float bias_of_expert(int expert) { return (float)(expert * 7 % 5 - 2) / 8; }

static inline struct routed route_by(const struct pp_cpu_isa *isa, const struct shape *s, struct rules rules, int rank,
                                     const float *logits)
{
    const int choices = choices_of(s);
    struct routed r = {.probabilities = case_copy(logits, (int64_t)tokens_of(s) * s->experts),
                       .choices = case_ints(choices),
                       .gates = case_floats(choices, 9),
                       .places = case_ints(choices),
                       .holds = case_ints(places_of(s)),
                       .counts = case_floats(s->experts, 8)};
    float *bias = case_floats(s->experts, 7);
    for (int e = 0; e < s->experts; e++) bias[e] = bias_of_expert(e);
    void *operands[PP_CALL_REFS] = {r.probabilities,           r.choices, r.gates, r.places, r.holds, r.counts,
                                    rules.biased ? bias : NULL};
    struct pp_frame frame = case_frame();
    const struct pp_call call = {
        .route = {s->rows, s->seq, s->experts, s->chosen, s->capacity, local_of(s), rules.bits, rules.workers,
                  rules.pieces},
        .routing = {.gate_scale = rules.scale, .groups = rules.groups, .picked = rules.picked}};
    case_run(isa, PP_KERNEL_ROUTE, &call, s->tensor, rank, &frame, operands);
    free(bias);
    return r;
}

static inline struct routed route(const struct pp_cpu_isa *isa, const struct shape *s, int rank, const float *logits)
{
    return route_by(isa, s, (struct rules){0, 1}, rank, logits);
}

static inline void free_routed(struct routed *r)
{
    case_free(r->probabilities, r->choices, r->gates, r->places, r->holds, r->counts, NULL);
}

/* Of few different values, so that many are equal. */
static inline float *make_logits(const struct shape *s)
{
    const int n = tokens_of(s) * s->experts;
    float *logits = case_floats(n, 1);
    for (int i = 0; i < n; i++) logits[i] = roundf(logits[i] * 16) / 4;
    return logits;
}

#endif
