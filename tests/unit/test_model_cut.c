/* SPDX-License-Identifier: Apache-2.0
 *
 * Layers cut into stages.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "core/shape/split.h"
#include "kernels/model.h"

static const struct pp_shape small = {200, 2,    200,   2,    28782, PP_MASK_CAUSAL, PP_ATTENTION_MATH,
                                      0.2, true, false, false};

static void check_cut(int layers, int stages, const char *split, const double *times, const char *expected)
{
    struct pp_shape shape = small;
    shape.layers = layers;
    int cut[32];
    char text[128] = "";
    if (pp_model_cut(&shape, &(struct pp_cut){stages, split, times, NULL}, cut) != PP_OK) fail_msg("%s", pp_message());
    for (int i = 0; i < stages; i++) sprintf(text + strlen(text), i ? ",%d" : "%d", cut[i]);
    assert_string_equal(text, expected);
}

static void test_cuts(void **state)
{
    (void)state;
    const double even[] = {1, 1, 1, 1, 1, 1, 1, 1}, heavy_decoder[] = {0, 1, 1, 1, 1, 1, 1, 4};
    check_cut(8, 2, "uniform", NULL, "4,4");
    check_cut(8, 3, NULL, NULL, "3,2,3");
    check_cut(7, 7, NULL, NULL, "1,1,1,1,1,1,1");
    check_cut(5, 2, "1,4", NULL, "1,4");
    check_cut(5, 2, "0,5", NULL, "0,5");
    check_cut(5, 2, "5,0", NULL, "5,0");
    check_cut(2, 4, "0,1,1,0", NULL, "0,1,1,0");
    check_cut(6, 2, "parameters", NULL, "3,3");
    check_cut(6, 2, "time", even, "3,3");
    check_cut(6, 2, "time", heavy_decoder, "5,1");
    check_cut(6, 3, "time", heavy_decoder, "3,3,0");
    check_cut(6, 8, "time", heavy_decoder, "0,1,1,1,1,1,1,0");
}

/* As many layers as there may be, and a cut that is known. */
static void test_large_cuts(void **state)
{
    (void)state;
    enum { LAYERS = 65536, STAGES = 128 };
    static double times[LAYERS + 2];
    static int cut[STAGES];
    struct pp_shape shape = small;
    shape.layers = LAYERS;
    for (int i = 1; i <= LAYERS; i++) times[i] = 3;
    const struct pp_cut by_time = {STAGES, "time", times, NULL};
    assert_int_equal(pp_model_cut(&shape, &by_time, cut), PP_OK);
    for (int i = 0; i < STAGES; i++) assert_int_equal(cut[i], LAYERS / STAGES);
    times[5] = HUGE_VAL;
    assert_int_equal(pp_model_cut(&shape, &by_time, cut), PP_INPUT);
}

enum { RANKS = 3, MOST_STAGES = 6 };

static double most_of_a_rank(const struct pp_cut *cut, const int *layers, const double *cost, int all)
{
    double sums[RANKS] = {0}, most = 0;
    int layer = 0;
    sums[cut->stage_rank[0]] += cost[0];
    sums[cut->stage_rank[cut->stages - 1]] += cost[all + 1];
    for (int s = 0; s < cut->stages; s++)
        for (int i = 0; i < layers[s]; i++) sums[cut->stage_rank[s]] += cost[++layer];
    for (int r = 0; r < RANKS; r++) most = fmax(most, sums[r]);
    return most;
}

/* The least of all cuts of `left` layers into the stages from s on. */
static double least_most(const struct pp_cut *cut, int *layers, int s, int left, const double *cost, int all)
{
    const bool end = pp_split_ends(cut->split) && (s == 0 || s == cut->stages - 1);
    double least = HUGE_VAL;
    if (s == cut->stages) return left ? HUGE_VAL : most_of_a_rank(cut, layers, cost, all);
    for (layers[s] = end ? 0 : 1; layers[s] <= left; layers[s]++)
        least = fmin(least, least_most(cut, layers, s + 1, left - layers[s], cost, all));
    return least;
}

/* Sums of squares, of what ranks have and of what stages have. */
struct squares {
    double ranks, stages;
};

static struct squares squares_of(const struct pp_cut *cut, const int *layers, const double *cost, int all)
{
    struct squares sum = {0};
    double ranks[RANKS] = {0};
    for (int s = 0, layer = 0; s < cut->stages; s++) {
        double own = s == 0 ? cost[0] : s == cut->stages - 1 ? cost[all + 1] : 0;
        for (int i = 0; i < layers[s]; i++) own += cost[++layer];
        ranks[cut->stage_rank[s]] += own;
        sum.stages += own * own;
    }
    for (int r = 0; r < RANKS; r++) sum.ranks += ranks[r] * ranks[r];
    return sum;
}

/* No layer less in one stage, and more in another, makes ranks more even, nor stages where ranks stay as they are. */
static void check_settled(const struct pp_cut *cut, const int *layers, const double *cost, int all)
{
    const struct squares now = squares_of(cut, layers, cost, all);
    for (int from = 0; from < cut->stages; from++)
        for (int to = 0; to < cut->stages; to++) {
            int other[MOST_STAGES];
            memcpy(other, layers, sizeof other);
            if (from == to || layers[from] <= 1) continue;
            other[from]--;
            other[to]++;
            const struct squares then = squares_of(cut, other, cost, all);
            assert_true(then.ranks > now.ranks * (1 - 1e-6));
            assert_true(then.ranks > now.ranks * (1 + 1e-6) || then.stages > now.stages * (1 - 1e-6));
        }
}

/* Where ranks have several stages, in a loop or a V, no cut has less on the rank with most. */
static void test_even_ranks(void **state)
{
    static const int loop[] = {0, 1, 2, 0, 1, 2}, v[] = {0, 1, 2, 2, 1, 0};
    (void)state;
    for (int turn = 0; turn < 200; turn++) {
        const int all = 6 + turn % 5, stages = MOST_STAGES;
        const double cost[16] = {turn / 5 % 7 * 0.4, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
        double times[16];
        int layers[MOST_STAGES], tried[MOST_STAGES], sum = 0;
        struct pp_shape shape = small;
        shape.layers = all;
        memcpy(times, cost, sizeof times);
        times[all + 1] = turn / 35 * 0.7;
        const struct pp_cut cut = {stages, turn % 4 ? "time" : "uniform", times, turn % 2 ? loop : v};
        if (turn % 4 == 0) times[0] = times[all + 1] = 0; /* as uniform sees them */
        if (pp_model_cut(&shape, &cut, layers) != PP_OK) fail_msg("%s", pp_message());
        for (int s = 0; s < stages; s++) sum += layers[s];
        assert_int_equal(sum, all);
        const double most = most_of_a_rank(&cut, layers, times, all);
        assert_true(most <= least_most(&cut, tried, 0, all, times, all) + 1e-9);
    }
    const int interleaved[] = {0, 1, 0, 1}, gap[] = {2, 2, 1, 1}; /* a file's first stages may leave out a rank */
    struct pp_shape shape = small;
    int layers[4];
    shape.layers = 6; /* not 1,2,1,2 */
    assert_int_equal(pp_model_cut(&shape, &(struct pp_cut){4, NULL, NULL, interleaved}, layers), PP_OK);
    assert_int_equal(layers[0] + layers[2], 3);
    assert_int_equal(pp_model_cut(&shape, &(struct pp_cut){4, "1,2,1,2", NULL, interleaved}, layers), PP_OK);
    assert_int_equal(layers[0] + layers[2], 2); /* a list is as it is */
    assert_int_equal(pp_model_cut(&shape, &(struct pp_cut){4, NULL, NULL, gap}, layers), PP_OK);
    assert_int_equal(layers[0] + layers[1], 3);
    const double endless[] = {0, 1, 1, HUGE_VAL, 1, 1, 1, 1};
    assert_int_equal(pp_model_cut(&shape, &(struct pp_cut){4, "time", endless, gap}, layers), PP_INPUT);
}

/* Layers of two kinds, such as those with experts and without, are weighed one by one: the rank with most has hardly
 * more than in the best cut, and mostly as much. */
static void test_even_ranks_of_two_kinds(void **state)
{
    static const int loop[] = {0, 1, 2, 0, 1, 2}, v[] = {0, 1, 2, 2, 1, 0};
    enum { TURNS = 300 };
    (void)state;
    double surplus = 0;
    int best = 0;
    for (int turn = 0; turn < TURNS; turn++) {
        const int all = 8 + turn % 5, every = 2 + turn % 3, dense = turn / 3 % 4;
        double times[16] = {turn % 10 * 0.1};
        int layers[MOST_STAGES], tried[MOST_STAGES];
        struct pp_shape shape = small;
        shape.layers = all;
        times[all + 1] = turn % 30 * 0.1;
        for (int l = 0; l < all; l++) times[1 + l] = l < dense || (l - dense) % every ? 1 + turn % 50 * 0.1 : 1;
        const struct pp_cut cut = {MOST_STAGES, "time", times, turn % 2 ? loop : v};
        if (pp_model_cut(&shape, &cut, layers) != PP_OK) fail_msg("%s", pp_message());
        check_settled(&cut, layers, times, all);
        const double more = most_of_a_rank(&cut, layers, times, all) / least_most(&cut, tried, 0, all, times, all) - 1;
        assert_true(more > -1e-9 && more < 0.26);
        surplus += more / TURNS;
        best += more < 1e-9;
    }
    if (!(surplus <= 0.02 && best >= 0.75 * TURNS)) fail_msg("%g more, %d best of %d", surplus, best, TURNS);
    /* Four heavy layers in front: as mean ones they would all be on the first rank. */
    const double front[] = {0, 9, 9, 9, 9, 1, 1, 1, 1, 1, 1, 1, 1, 0};
    static const int two[] = {0, 1, 0, 1};
    struct pp_shape shape = small;
    int layers[4];
    shape.layers = 12;
    assert_int_equal(pp_model_cut(&shape, &(struct pp_cut){4, "time", front, two}, layers), PP_OK);
    assert_true(most_of_a_rank(&(struct pp_cut){4, "time", front, two}, layers, front, 12) == 22);
}

static void check_refused(int layers, int stages, const char *split, const char *words)
{
    struct pp_shape shape = small;
    struct pp_model *model;
    shape.layers = layers;
    assert_int_equal(pp_model_create(&shape, stages, split, NULL, &model), PP_USAGE);
    assert_null(model);
    if (!strstr(pp_message(), words)) fail_msg("no \"%s\" in: %s", words, pp_message());
}

static void test_impossible_cuts(void **state)
{
    (void)state;
    check_refused(2, 3, "uniform", "--layers is 2");
    check_refused(2, 0, "uniform", "at least one");
    check_refused(4, 2, "time", "ppprof");
    check_refused(4, 2, "3", "2 stages");
    check_refused(4, 2, "1,1,2", "2 stages");
    check_refused(4, 2, "1,2", "add up to 3");
    check_refused(4, 2, "-1,5", "positive");
    check_refused(4, 3, "2,0,2", "positive");
    check_refused(4, 1, "0", "add up to 0");
    check_refused(4, 1, "0,4", "there is 1 stage");
    check_refused(4, 2, "0,4,", "2 stages");
    check_refused(2, 5, "0,1,1,0,0", "--layers is 2");
    check_refused(2, 5, "parameters", "--layers is 2");
    check_refused(4, 2, "evenly", "uniform");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cuts), cmocka_unit_test(test_large_cuts), cmocka_unit_test(test_even_ranks),
        cmocka_unit_test(test_even_ranks_of_two_kinds), cmocka_unit_test(test_impossible_cuts)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
