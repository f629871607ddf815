/* SPDX-License-Identifier: Apache-2.0
 *
 * Cuts of small rows, against all cuts that there are.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "core/plan/cut.h"
#include "dice.h"

enum { MOST_ITEMS = 12, MOST_STAGES = 6 };

/* All cuts of a row into stages, one after the other. Items are the layers and both ends. */
struct trial {
    const double *cost;
    int items, stages, microbatches; /* 0 microbatches: only the largest stage counts */
    int most_first;                  /* items of the first stage */
    int counts[MOST_STAGES];
    double least; /* of cut.h's formula, divided by M */
};

static double weigh(const struct trial *t, const int *counts)
{
    double before = 0, most = 0;
    for (int s = 0, i = 0; s < t->stages; s++) {
        double cost = 0;
        for (int end = i + counts[s]; i < end; i++) cost += t->cost[i];
        most = fmax(most, cost + (t->microbatches > 0 ? before / t->microbatches : 0));
        before += cost;
    }
    return most;
}

static void try_all(struct trial *t, int stage, int left)
{
    if (stage == t->stages - 1) {
        t->counts[stage] = left;
        t->least = fmin(t->least, weigh(t, t->counts));
        return;
    }
    for (int n = 1; n <= left - (t->stages - 1 - stage) && (stage > 0 || n <= t->most_first); n++) {
        t->counts[stage] = n;
        try_all(t, stage + 1, left - n);
    }
}

/* Whole numbers and powers of two for M, so that all sums are exact. Writes the items of each stage to out. */
static void check(const double *cost, int items, int stages, struct pp_cut_way way, int most_first, int *out)
{
    const struct pp_cut_row row = {items - 2, cost};
    const bool early = way.even == PP_EVEN_EARLY || way.even == PP_EVEN_LEAN;
    struct trial t = {.cost = cost,
                      .items = items,
                      .stages = stages,
                      .microbatches = early ? way.microbatches : 0,
                      .most_first = most_first,
                      .least = INFINITY};
    assert_int_equal(pp_cut_balanced(&row, way, stages, out), PP_OK);
    out[0]++;
    out[stages - 1]++;
    try_all(&t, 0, items);
    if (weigh(&t, out) != t.least)
        fail_msg("%d items, %d stages, even %d, M %d: %g, not %g", items, stages, way.even, way.microbatches,
                 weigh(&t, out), t.least);
    assert_true(out[0] <= most_first);
}

static void balanced_cuts_are_the_best_of_all(void **state)
{
    (void)state;
    uint64_t dice = 1;
    for (int round = 0; round < 400; round++) {
        double cost[MOST_ITEMS];
        const int items = 2 + round % (MOST_ITEMS - 1), stages = 1 + round / 7 % MOST_STAGES, m = 1 << round % 6;
        int base[MOST_STAGES], out[MOST_STAGES];
        if (stages > items) continue;
        for (int i = 0; i < items; i++) /* equal layers leave most choices */
            cost[i] = round % 2 ? 8 : random_below(&dice, 8);
        cost[0] = round % 3;
        check(cost, items, stages, (struct pp_cut_way){PP_EVEN_RANKS, m}, items, base);
        check(cost, items, stages, (struct pp_cut_way){PP_EVEN_STAGES, m}, items, out);
        assert_memory_equal(base, out, (size_t)stages * sizeof *base);
        check(cost, items, stages, (struct pp_cut_way){PP_EVEN_EARLY, m}, items, out);
        check(cost, items, stages, (struct pp_cut_way){PP_EVEN_LEAN, m}, base[0], out);
    }
}

/* Whole layers beside a decoder of one and a third: one rank has one more, but which? */
static void the_rank_with_more_is_an_early_one(void **state)
{
    (void)state;
    double cost[34];
    for (int i = 0; i < 34; i++) cost[i] = 3;
    cost[0] = 0;
    cost[33] = 4;
    static const struct {
        enum pp_even even;
        int layers[8];
    } cuts[] = {{PP_EVEN_RANKS, {4, 4, 4, 4, 4, 4, 5, 3}},
                {PP_EVEN_EARLY, {5, 4, 4, 4, 4, 4, 4, 3}},
                {PP_EVEN_LEAN, {4, 5, 4, 4, 4, 4, 4, 3}}};
    for (int i = 0; i < 3; i++) {
        int out[8];
        const struct pp_cut_row row = {32, cost};
        assert_int_equal(pp_cut_balanced(&row, (struct pp_cut_way){cuts[i].even, 64}, 8, out), PP_OK);
        assert_memory_equal(out, cuts[i].layers, sizeof out);
    }
}

/* The same in a loop of two stages for each rank, in the second round. */
static void so_it_is_with_several_stages(void **state)
{
    (void)state;
    enum { LOOP = 16 };
    double cost[34];
    int loop[LOOP], out[LOOP];
    for (int i = 0; i < 34; i++) cost[i] = 3;
    cost[0] = 1;
    cost[33] = 4;
    for (int s = 0; s < LOOP; s++) loop[s] = s % 8;
    const struct pp_cut_row row = {32, cost};
    static const int more[] = {[PP_EVEN_RANKS] = 14, [PP_EVEN_EARLY] = 9, [PP_EVEN_LEAN] = 9};
    for (int even = PP_EVEN_RANKS; even <= PP_EVEN_LEAN; even++) {
        const struct pp_cut_ranks_call call = {loop, true, {even, 16}};
        assert_int_equal(pp_cut_ranks(&row, &call, LOOP, out), PP_OK);
        for (int s = 0; s < LOOP; s++) assert_int_equal(out[s], s == more[even] ? 3 : s == LOOP - 1 ? 1 : 2);
    }
}

static int calls, fails_at; /* of calloc */

void *__real_calloc(size_t n, size_t size);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_calloc(size_t n, size_t size) { return ++calls == fails_at ? NULL : __real_calloc(n, size); }

/* PP_EVEN_LEAN cuts twice: the second time, what the first one has freed is not freed again. */
static void every_allocation_may_fail(void **state)
{
    (void)state;
    static const double cost[] = {0.5, 1, 1, 1, 1, 1, 1, 1, 1, 2};
    const struct pp_cut_row row = {8, cost};
    int out[3], failed = 0;
    pp_status status;
    do {
        calls = 0;
        fails_at = failed + 1;
        status = pp_cut_balanced(&row, (struct pp_cut_way){PP_EVEN_LEAN, 4}, 3, out);
        failed += status == PP_NOMEM;
    } while (status == PP_NOMEM);
    fails_at = 0;
    assert_int_equal(status, PP_OK);
    assert_int_equal(failed, 7); /* a row, and three for each time */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(balanced_cuts_are_the_best_of_all), cmocka_unit_test(the_rank_with_more_is_an_early_one),
        cmocka_unit_test(so_it_is_with_several_stages), cmocka_unit_test(every_allocation_may_fail)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
