/* SPDX-License-Identifier: Apache-2.0
 *
 * Which experts tokens choose, and which of them find places, against the definition in double precision; its gradient
 * against finite differences.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/unit/expert_case.h"

static const struct rules all_rules[] = {{0, 1},
                                         {PP_ROUTE_OF_ALL, 1},
                                         {0, 2.5f},
                                         {PP_ROUTE_OF_ALL, 16},
                                         {PP_ROUTE_SIGMOID, 1},
                                         {PP_ROUTE_SIGMOID, 2.5f},
                                         {PP_ROUTE_SIGMOID | PP_ROUTE_OF_ALL, 0.5f},
                                         {0, 1, .biased = true},
                                         {PP_ROUTE_SIGMOID, 2.5f, .biased = true}};
#define FOR_EACH_RULES(r)                                                                                              \
    for (const struct rules *r = all_rules; r < all_rules + sizeof all_rules / sizeof all_rules[0]; r++)

static bool is_sigmoid(const struct rules *rules) { return rules->bits & PP_ROUTE_SIGMOID; }

static void probabilities_of(const struct shape *s, const struct rules *rules, const double *logits, double *p)
{
    double sum = 0;
    for (int e = 0; e < s->experts; e++) sum += p[e] = is_sigmoid(rules) ? 1 / (1 + exp(-logits[e])) : exp(logits[e]);
    for (int e = 0; e < s->experts && !is_sigmoid(rules); e++) p[e] /= sum;
}

/* Of the choice of probability p, if those of the token's choices add up to sum. */
static double gate_of(const struct rules *rules, double p, double sum)
{
    return rules->scale * (rules->bits & PP_ROUTE_OF_ALL ? p : p / sum);
}

/* What the experts of a token are chosen by, of probabilities as the kernel has made them: the sum is a float. */
static float score_of(const struct rules *rules, const float *p, int expert)
{
    return rules->biased ? p[expert] + bias_of_expert(expert) : p[expert];
}

/* How good a group of experts is. */
static float group_score(const struct shape *s, const struct rules *rules, const float *p, int group)
{
    const int size = s->experts / rules->groups, first = group * size;
    int best = first, second = -1;
    for (int e = first; e < first + size; e++)
        if (score_of(rules, p, e) > score_of(rules, p, best)) best = e;
    for (int e = first; e < first + size; e++)
        if (e != best && (second < 0 || score_of(rules, p, e) > score_of(rules, p, second))) second = e;
    return score_of(rules, p, best) + (rules->bits & PP_ROUTE_GROUP_BY_BEST ? 0 : score_of(rules, p, second));
}

/* Is the group among those that the token chooses from? */
static bool picks(const struct shape *s, const struct rules *rules, const float *p, int group)
{
    const float own = group_score(s, rules, p, group);
    int before = 0;
    for (int g = 0; g < rules->groups; g++) {
        const float score = group_score(s, rules, p, g);
        before += score > own || (score == own && g < group);
    }
    return before < rules->picked;
}

/* How many experts stand before this one. */
static int position_of(const struct shape *s, const struct rules *rules, const float *p, int expert)
{
    const float own = score_of(rules, p, expert);
    int before = 0;
    for (int e = 0; e < s->experts; e++) {
        if (rules->groups && !picks(s, rules, p, e * rules->groups / s->experts)) continue;
        const float score = score_of(rules, p, e);
        before += score > own || (score == own && e < expert);
    }
    return before;
}

static void check_choices(const struct shape *s, const struct rules *rules, const float *logits, const struct routed *r)
{
    for (int t = 0; t < tokens_of(s); t++) {
        double *row = malloc(sizeof *row * (size_t)s->experts), sum = 0;
        assert_non_null(row);
        for (int e = 0; e < s->experts; e++) row[e] = logits[t * s->experts + e];
        probabilities_of(s, rules, row, row);
        assert_near(r->probabilities + t * s->experts, row, s->experts, 1e-6);
        const int32_t *choices = r->choices + t * s->chosen;
        for (int i = 0; i < s->chosen; i++) {
            assert_in_range(choices[i], 0, s->experts - 1);
            if (rules->groups)
                assert_true(
                    picks(s, rules, r->probabilities + t * s->experts, choices[i] * rules->groups / s->experts));
            assert_int_equal(position_of(s, rules, r->probabilities + t * s->experts, choices[i]), i);
            sum += row[choices[i]];
        }
        for (int i = 0; i < s->chosen; i++) {
            const double gate = gate_of(rules, row[choices[i]], sum);
            assert_near(r->gates + t * s->chosen + i, &gate, 1, 1e-6 * fmax(1, rules->scale));
        }
        free(row);
    }
}

/* Each expert by itself: its choices in their order, and which of them it has places for. */
static void check_places(const struct shape *s, int rank, const struct routed *r)
{
    int32_t *holds = case_ints(places_of(s));
    memset(holds, -1, sizeof *holds * (size_t)places_of(s));
    for (int e = 0; e < s->experts; e++) {
        int taken = 0;
        const int local = e - rank * local_of(s);
        for (int order = 0; order < choices_of(s); order++) {
            const int at = order % tokens_of(s) * s->chosen + order / tokens_of(s);
            if (r->choices[at] != e) continue;
            const bool here = local >= 0 && local < local_of(s) && taken < s->capacity;
            if (here) holds[local * s->capacity + taken] = at;
            assert_int_equal(r->places[at], here ? local * s->capacity + taken : -1);
            taken++;
        }
        assert_true(r->counts[e] == (float)taken);
    }
    assert_memory_equal(r->holds, holds, sizeof *holds * (size_t)places_of(s));
    free(holds);
}

static void test_route(void **state)
{
    (void)state;
    FOR_EACH_ISA(isa)
    FOR_EACH_SHAPE(s)
    FOR_EACH_RULES(rules)
    for (int rank = 0; rank < s->tensor; rank++) {
        float *logits = make_logits(s);
        struct routed r = route_by(isa, s, *rules, rank, logits);
        check_choices(s, rules, logits, &r);
        check_places(s, rank, &r);
        free_routed(&r);
        free(logits);
    }
}

/* Experts in the order of their places: those of a piece together, worker by worker. */
static void list_experts(int local, int workers, int pieces, int *list)
{
    const int own = local / workers, each = own / pieces;
    for (int p = 0; p < pieces; p++)
        for (int w = 0; w < workers; w++)
            for (int i = 0; i < each; i++) *list++ = w * own + p * each + i;
}

/* Places in pieces are those of whole parts, in another order of the experts. */
static void check_pieces(const struct shape *s, int rank, const struct routed *whole, const struct routed *pieces,
                         const int *list)
{
    for (int n = 0; n < local_of(s); n++)
        for (int i = 0; i < s->capacity; i++)
            assert_int_equal(pieces->holds[n * s->capacity + i], whole->holds[list[n] * s->capacity + i]);
    for (int at = 0; at < choices_of(s); at++) {
        const int place = pieces->places[at];
        assert_int_equal(place < 0, whole->places[at] < 0);
        if (place < 0) continue;
        assert_int_equal(list[place / s->capacity], pieces->choices[at] - rank * local_of(s));
        assert_int_equal(place % s->capacity, whole->places[at] % s->capacity);
    }
    assert_memory_equal(pieces->counts, whole->counts, sizeof *whole->counts * (size_t)s->experts);
}

static void test_pieces(void **state)
{
    (void)state;
    int checked = 0, list[130];
    FOR_EACH_ISA(isa)
    FOR_EACH_SHAPE(s)
    for (int workers = 2; workers <= 5; workers++)
        for (int pieces = 2; pieces <= 8; pieces++) {
            if (local_of(s) % (workers * pieces)) continue;
            float *logits = make_logits(s);
            struct routed whole = route(isa, s, s->tensor - 1, logits);
            struct routed cut =
                route_by(isa, s, (struct rules){0, 1, .workers = workers, .pieces = pieces}, s->tensor - 1, logits);
            list_experts(local_of(s), workers, pieces, list);
            check_pieces(s, s->tensor - 1, &whole, &cut, list);
            free_routed(&whole);
            free_routed(&cut);
            free(logits);
            checked++;
        }
    assert_true(checked >= 8);
}

/* Each row has as many different choices as it should, whatever the logits. */
static void check_distinct(const struct shape *s, const struct routed *r)
{
    for (int t = 0; t < tokens_of(s); t++)
        for (int i = 0; i < s->chosen; i++) {
            const int32_t *choices = r->choices + t * s->chosen;
            assert_in_range(choices[i], 0, s->experts - 1);
            for (int before = 0; before < i; before++) assert_int_not_equal(choices[before], choices[i]);
        }
}

/* Tokens choose from some groups of experts. */
static void test_groups(void **state)
{
    (void)state;
    static const struct rules grouped[] = {{0, 1, false, 2, 1},
                                           {PP_ROUTE_SIGMOID, 2.5f, true, 4, 2},
                                           {PP_ROUTE_SIGMOID | PP_ROUTE_GROUP_BY_BEST, 1, true, 8, 3},
                                           {PP_ROUTE_OF_ALL | PP_ROUTE_GROUP_BY_BEST, 16, false, 4, 1},
                                           {PP_ROUTE_SIGMOID, 1, true, 65, 33}};
    int checked = 0;
    FOR_EACH_ISA(isa)
    FOR_EACH_SHAPE(s)
    for (size_t i = 0; i < sizeof grouped / sizeof *grouped; i++) {
        const struct rules *rules = &grouped[i];
        const int size = s->experts / rules->groups;
        if (s->experts % rules->groups || size < 2 || size * rules->picked < s->chosen) continue;
        float *logits = make_logits(s);
        struct routed r = route_by(isa, s, *rules, 0, logits);
        check_choices(s, rules, logits, &r);
        check_places(s, 0, &r);
        free_routed(&r);
        for (int j = 0; j < tokens_of(s) * s->experts; j += 3) logits[j] = NAN;
        r = route_by(isa, s, *rules, 0, logits);
        check_distinct(s, &r);
        free_routed(&r);
        free(logits);
        checked++;
    }
    assert_true(checked >= 10);
}

static void test_logits_that_are_no_numbers(void **state)
{
    (void)state;
    const float strange[] = {NAN, INFINITY, -INFINITY, -NAN, 3e38f, -3e38f};
    FOR_EACH_ISA(isa)
    FOR_EACH_SHAPE(s)
    for (int i = 0; i < 6; i++)
        for (int every = 1; every <= 5; every += 2) {
            float *logits = make_logits(s);
            for (int j = 0; j < tokens_of(s) * s->experts; j += every) logits[j] = strange[i];
            for (int k = 0; k <= PP_ROUTE_SIGMOID; k += PP_ROUTE_SIGMOID) {
                struct routed r = route_by(isa, s, (struct rules){k, 1}, 0, logits);
                check_distinct(s, &r);
                check_places(s, 0, &r);
                free_routed(&r);
            }
            free(logits);
        }
}

/* Probabilities that float32 has no numbers for: the likeliest is not among them, and the gates add up to 1. */
static void test_far_logits(void **state)
{
    (void)state;
    FOR_EACH_ISA(isa)
    FOR_EACH_SHAPE(s)
    {
        float *logits = make_logits(s);
        for (int i = 0; i < tokens_of(s) * s->experts; i++) logits[i] *= 1000;
        struct routed r = route(isa, s, 0, logits);
        check_distinct(s, &r);
        for (int t = 0; t < tokens_of(s); t++) {
            double sum = 0;
            const float *row = logits + t * s->experts;
            for (int e = 0; e < s->experts; e++) assert_true(row[r.choices[t * s->chosen]] >= row[e]);
            for (int i = 0; i < s->chosen; i++) sum += r.gates[t * s->chosen + i];
            assert_true(fabs(sum - 1) < 1e-6);
        }
        free_routed(&r);
        free(logits);
    }
}

/* Logistic functions that are all 0, or as good as: the first experts are as likely as others, and gates are small
 * numbers. */
static void test_logistic_functions_of_far_logits(void **state)
{
    (void)state;
    FOR_EACH_ISA(isa)
    FOR_EACH_SHAPE(s)
    {
        float *logits = make_logits(s);
        for (int i = 0; i < tokens_of(s) * s->experts; i++) logits[i] = -2000;
        struct routed r = route_by(isa, s, (struct rules){PP_ROUTE_SIGMOID, 1}, 0, logits);
        for (int i = 0; i < choices_of(s); i++) {
            assert_int_equal(r.choices[i], i % s->chosen);
            assert_true(r.gates[i] >= 0 && r.gates[i] < 1e-6f);
        }
        free_routed(&r);
        free(logits);
    }
}

/* Of one token: what its gates are weighed by, and its part of the loss that makes the router even. */
static double token_loss(const struct shape *s, const struct rules *rules, const struct routed *r, int t,
                         const double *logits, const float *dgates, double aux_scale)
{
    double *p = malloc(sizeof *p * (size_t)s->experts), sum = 0, all = 0, loss = 0;
    assert_non_null(p);
    probabilities_of(s, rules, logits, p);
    for (int e = 0; e < s->experts; e++) all += p[e];
    for (int i = 0; i < s->chosen; i++) sum += p[r->choices[t * s->chosen + i]];
    for (int i = 0; i < s->chosen; i++) loss += dgates[i] * gate_of(rules, p[r->choices[t * s->chosen + i]], sum);
    for (int e = 0; e < s->experts; e++) {
        const double f = (double)r->counts[e] / choices_of(s), mean = p[e] / all / tokens_of(s);
        loss += aux_scale * s->experts * f * mean;
    }
    free(p);
    return loss;
}

static void check_route_grad(const struct pp_cpu_isa *isa, const struct shape *s, const struct rules *rules, float aux,
                             float gates_scale)
{
    const int experts = s->experts, n = tokens_of(s) * experts;
    float *logits = case_floats(n, 1), *dgates = case_floats(choices_of(s), 2), *dlogits = case_floats(n, 3);
    for (int i = 0; i < n; i++) logits[i] *= 3;
    for (int i = 0; i < choices_of(s); i++) dgates[i] *= gates_scale;
    struct routed r = route_by(isa, s, *rules, 0, logits);
    struct pp_frame frame = case_frame();
    frame.loss_scale = 0.03125f;
    const double aux_scale = (double)aux * 0.03125 * tokens_of(s), step = 1e-4;
    const struct pp_call call = {.route_grad = {s->rows, s->seq, experts, s->chosen, rules->bits},
                                 .routing = {rules->scale, aux}};
    void *operands[PP_CALL_REFS] = {dlogits, dgates, r.probabilities, r.choices, r.gates, r.counts};
    case_run(isa, PP_KERNEL_ROUTE_GRAD, &call, s->tensor, 0, &frame, operands);
    double *row = malloc(sizeof *row * (size_t)experts);
    assert_non_null(row);
    for (int i = 0; i < n; i++) {
        const int t = i / experts, e = i % experts;
        const float *weights = dgates + t * s->chosen;
        for (int j = 0; j < experts; j++) row[j] = logits[t * experts + j];
        row[e] = logits[i] + step;
        const double above = token_loss(s, rules, &r, t, row, weights, aux_scale);
        row[e] = logits[i] - step;
        const double slope = (above - token_loss(s, rules, &r, t, row, weights, aux_scale)) / (2 * step);
        if (!(fabs(dlogits[i] - slope) <= 1e-8 + 2e-6 * (double)(aux + gates_scale) * fmax(1, rules->scale)))
            fail_msg("%s: rules %d, scale %g: token %d, expert %d: %.9g, not %.9g", isa->name, rules->bits,
                     (double)rules->scale, t, e, dlogits[i], slope);
    }
    free_routed(&r);
    case_free(logits, dgates, dlogits, row, NULL);
}

static void test_route_grad(void **state)
{
    (void)state;
    FOR_EACH_ISA(isa)
    FOR_EACH_SHAPE(s)
    FOR_EACH_RULES(rules)
    {
        check_route_grad(isa, s, rules, 0, 1);
        check_route_grad(isa, s, rules, 1, 0);
        check_route_grad(isa, s, rules, 0.5f, 2);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_route),      cmocka_unit_test(test_groups),
        cmocka_unit_test(test_pieces),     cmocka_unit_test(test_logits_that_are_no_numbers),
        cmocka_unit_test(test_far_logits), cmocka_unit_test(test_logistic_functions_of_far_logits),
        cmocka_unit_test(test_route_grad),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
