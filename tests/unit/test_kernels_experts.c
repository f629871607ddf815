/* SPDX-License-Identifier: Apache-2.0
 *
 * The way of tokens to experts and back against the definition in double precision; gradients also against finite
 * differences; and with memory that holds no indices, as it may where calls are timed alone.
 */
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/unit/expert_case.h"

/* n ints of which many are indices below `below`, and the others anything. */
static int32_t *make_garbage(int n, int below, uint32_t salt)
{
    const int32_t ends[] = {-1, INT_MIN, INT_MAX, below, below - 1, 0, -below};
    int32_t *out = case_ints(n);
    for (int i = 0; i < n; i++) {
        salt = salt * 1664525u + 1013904223u;
        const uint32_t draw = salt >> 8;
        out[i] = draw % 3 == 0   ? ends[draw / 3 % 7]
                 : draw % 3 == 1 ? (int32_t)(salt * 2654435761u)
                                 : (int32_t)(draw % (uint32_t)below);
    }
    return out;
}

static double dot(const float *a, const float *b, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += (double)a[i] * b[i];
    return sum;
}

static void check_dispatch(const struct pp_cpu_isa *isa, const struct shape *s, const int32_t *holds)
{
    const int width = s->width;
    float *to = case_floats((int64_t)places_of(s) * width, 1), *from = case_floats((int64_t)tokens_of(s) * width, 2);
    float *none = calloc((size_t)width, sizeof *none);
    assert_non_null(none);
    const struct pp_call call = {.places = {places_of(s), width, tokens_of(s), s->chosen}};
    struct pp_frame frame = case_frame();
    case_run(isa, PP_KERNEL_DISPATCH, &call, 1, 0, &frame, (void *[PP_CALL_REFS]){to, from, (void *)holds});
    for (int i = 0; i < places_of(s); i++) {
        const bool full = holds[i] >= 0 && holds[i] < choices_of(s);
        assert_same(to + (int64_t)i * width, full ? from + (int64_t)(holds[i] / s->chosen) * width : none, width);
    }
    case_free(to, from, none, NULL);
}

static void check_combine(const struct pp_cpu_isa *isa, const struct shape *s, const int32_t *places, int mode,
                          int rank)
{
    const int width = s->width;
    const int64_t n = (int64_t)tokens_of(s) * width;
    float *to = case_floats(n, 1), *before = case_copy(to, n), *from = case_floats((int64_t)places_of(s) * width, 2);
    const struct pp_call call = {.combine = {tokens_of(s), width, places_of(s), s->chosen, mode}};
    struct pp_frame frame = case_frame();
    const bool adds = mode == PP_GEMM_ADD || (mode == PP_GEMM_ADD_ONCE && rank == 0);
    case_run(isa, PP_KERNEL_COMBINE, &call, 2, rank, &frame, (void *[PP_CALL_REFS]){to, from, (void *)places});
    for (int64_t i = 0; i < n; i++) {
        double sum = adds ? before[i] : 0;
        for (int j = 0; j < s->chosen; j++) {
            const int32_t place = places[i / width * s->chosen + j];
            if (place >= 0 && place < places_of(s)) sum += from[(int64_t)place * width + i % width];
        }
        assert_near(to + i, &sum, 1, 2e-6);
    }
    case_free(to, before, from, NULL);
}

/* <dispatch(x), y> = <x, combine(y)>: each is the gradient of the other. */
static void check_adjoint(const struct pp_cpu_isa *isa, const struct shape *s, const struct routed *r)
{
    const int64_t at_places = (int64_t)places_of(s) * s->width, at_tokens = (int64_t)tokens_of(s) * s->width;
    float *x = case_floats(at_tokens, 1), *y = case_floats(at_places, 2);
    float *there = case_floats(at_places, 3), *back = case_floats(at_tokens, 4);
    struct pp_frame frame = case_frame();
    const struct pp_call away = {.places = {places_of(s), s->width, tokens_of(s), s->chosen}};
    const struct pp_call home = {.combine = {tokens_of(s), s->width, places_of(s), s->chosen, PP_GEMM_WRITE}};
    case_run(isa, PP_KERNEL_DISPATCH, &away, 1, 0, &frame, (void *[PP_CALL_REFS]){there, x, r->holds});
    case_run(isa, PP_KERNEL_COMBINE, &home, 1, 0, &frame, (void *[PP_CALL_REFS]){back, y, r->places});
    assert_true(fabs(dot(there, y, at_places) - dot(x, back, at_tokens)) <= 1e-6 * (double)at_places);
    case_free(x, y, there, back, NULL);
}

static void test_dispatch_and_combine(void **state)
{
    (void)state;
    FOR_EACH_ISA(isa)
    FOR_EACH_SHAPE(s)
    for (int rank = 0; rank<s->tensor; rank += s->tensor> 1 ? s->tensor - 1 : 1) {
        float *logits = make_logits(s);
        struct routed r = route(isa, s, rank, logits);
        check_dispatch(isa, s, r.holds);
        check_combine(isa, s, r.places, PP_GEMM_WRITE, rank);
        check_combine(isa, s, r.places, PP_GEMM_ADD, rank);
        check_combine(isa, s, r.places, PP_GEMM_ADD_ONCE, rank);
        check_adjoint(isa, s, &r);
        free_routed(&r);
        free(logits);
    }
}

/* Rows of places that hold nothing stay. */
static void check_weigh(const struct pp_cpu_isa *isa, const struct shape *s, const int32_t *holds, const float *gates)
{
    const int64_t n = (int64_t)places_of(s) * s->width;
    float *u = case_floats(n, 1), *before = case_copy(u, n);
    const struct pp_call call = {.places = {places_of(s), s->width, tokens_of(s), s->chosen}};
    struct pp_frame frame = case_frame();
    case_run(isa, PP_KERNEL_WEIGH, &call, 1, 0, &frame, (void *[PP_CALL_REFS]){u, (void *)gates, (void *)holds});
    for (int64_t i = 0; i < n; i++) {
        const int32_t choice = holds[i / s->width];
        const bool full = choice >= 0 && choice < choices_of(s);
        const double expected = full ? (double)before[i] * gates[choice] : before[i];
        assert_near(u + i, &expected, 1, full ? 1e-7 : 0);
    }
    case_free(u, before, NULL);
}

/* Of the weighed rows: the sum of slope w + w w / 2. */
static double row_loss(const float *slope, const float *v, double gate, int width)
{
    double sum = 0;
    for (int j = 0; j < width; j++) sum += slope[j] * (v[j] * gate) + v[j] * gate * (v[j] * gate) / 2;
    return sum;
}

struct weighed {
    float *slope, *v, *u, *du, *dgates;
};

static void check_weighed(const struct pp_cpu_isa *isa, const struct shape *s, const struct routed *r,
                          const struct weighed *w)
{
    const double step = 1e-3;
    for (int k = 0; k < choices_of(s); k++) {
        const int64_t at = (int64_t)r->places[k] * s->width;
        const double gate = r->gates[k];
        double slope = 0;
        if (at >= 0 && gate != 0)
            slope = (row_loss(w->slope + at, w->v + at, gate + step, s->width) -
                     row_loss(w->slope + at, w->v + at, gate - step, s->width)) /
                    (2 * step);
        if (!(fabs(w->dgates[k] - slope) <= 4e-6 * s->width))
            fail_msg("%s: choice %d: %.9g, not %.9g", isa->name, k, w->dgates[k], slope);
        for (int j = 0; at >= 0 && j < s->width; j++) {
            const double at_v = gate * (w->slope[at + j] + w->v[at + j] * gate);
            assert_near(w->du + at + j, &at_v, 1, 1e-6);
        }
    }
}

/* A few gates are 0. */
static void check_weigh_grad(const struct pp_cpu_isa *isa, const struct shape *s, const struct routed *r)
{
    const int64_t n = (int64_t)places_of(s) * s->width;
    struct weighed w = {case_floats(n, 1), case_floats(n, 2), NULL, case_floats(n, 3), case_floats(choices_of(s), 4)};
    w.u = case_copy(w.v, n);
    for (int k = 0; k < choices_of(s); k += 7) r->gates[k] = 0;
    const struct pp_call call = {.places = {places_of(s), s->width, tokens_of(s), s->chosen}};
    struct pp_frame frame = case_frame();
    case_run(isa, PP_KERNEL_WEIGH, &call, 1, 0, &frame, (void *[PP_CALL_REFS]){w.u, r->gates, r->holds});
    for (int64_t i = 0; i < n; i++) w.du[i] = w.slope[i] + w.u[i];
    float *before = case_copy(w.du, n), *u = case_copy(w.u, n);
    void *operands[PP_CALL_REFS] = {w.du, w.dgates, w.u, r->gates, r->places};
    case_run(isa, PP_KERNEL_WEIGH_GRAD, &call, 1, 0, &frame, operands);
    check_weighed(isa, s, r, &w);
    assert_same(w.u, u, n);
    for (int i = 0; i < places_of(s); i++)
        if (r->holds[i] < 0) assert_same(w.du + (int64_t)i * s->width, before + (int64_t)i * s->width, s->width);
    case_free(w.slope, w.v, w.u, w.du, w.dgates, before, u, NULL);
}

static void test_weigh(void **state)
{
    (void)state;
    FOR_EACH_ISA(isa)
    FOR_EACH_SHAPE(s)
    for (int rank = 0; rank<s->tensor; rank += s->tensor> 1 ? s->tensor - 1 : 1) {
        float *logits = make_logits(s);
        struct routed r = route(isa, s, rank, logits);
        check_weigh(isa, s, r.holds, r.gates);
        check_weigh_grad(isa, s, &r);
        free_routed(&r);
        free(logits);
    }
}

/* What is no index is like a choice without a place, and places that hold nothing; gradients need only not crash. */
static void check_garbage(const struct pp_cpu_isa *isa, const struct shape *s, uint32_t salt)
{
    const int choices = choices_of(s), at_places = places_of(s) * s->width, logits = tokens_of(s) * s->experts;
    int32_t *holds = make_garbage(places_of(s), choices, salt), *places = make_garbage(choices, places_of(s), salt + 1);
    int32_t *chosen = make_garbage(choices, s->experts, salt + 2);
    float *counts = case_floats(s->experts, salt + 3);
    float *gates = case_floats(choices, 1), *dgates = case_floats(choices, 2), *u = case_floats(at_places, 3);
    float *du = case_floats(at_places, 4), *dlogits = case_floats(logits, 5), *probabilities = case_floats(logits, 6);
    struct pp_frame frame = case_frame();
    const struct pp_call weigh = {.places = {places_of(s), s->width, tokens_of(s), s->chosen}};
    const struct pp_call route = {.route_grad = {s->rows, s->seq, s->experts, s->chosen}, .routing = {1, 1}};
    check_dispatch(isa, s, holds);
    check_combine(isa, s, places, PP_GEMM_WRITE, 0);
    check_weigh(isa, s, holds, gates);
    case_run(isa, PP_KERNEL_WEIGH_GRAD, &weigh, 1, 0, &frame, (void *[PP_CALL_REFS]){du, dgates, u, gates, places});
    case_run(isa, PP_KERNEL_ROUTE_GRAD, &route, 1, 0, &frame,
             (void *[PP_CALL_REFS]){dlogits, dgates, probabilities, chosen, gates, counts});
    case_free(holds, places, chosen, counts, gates, dgates, u, du, dlogits, probabilities, NULL);
}

static void test_garbage(void **state)
{
    (void)state;
    FOR_EACH_ISA(isa)
    FOR_EACH_SHAPE(s)
    for (uint32_t salt = 1; salt < 50; salt += 7) check_garbage(isa, s, salt);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_dispatch_and_combine),
        cmocka_unit_test(test_weigh),
        cmocka_unit_test(test_garbage),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
