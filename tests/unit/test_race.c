/* SPDX-License-Identifier: Apache-2.0
 *
 * Races against sweeps in which every configuration is predicted: the same rows must be shown.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "kernels/model.h"
#include "schedules/schedule.h"
#include "sim/listed.h"
#include "sim/race.h"
#include "sim/ranking.h"
#include "sim/targets.h"
#include "sim/throughput.h"

/* Cuts of several kinds, of ranks with one stage and with several; with and without a price, a profile of the machine
 * and a limit of memory: all fits, some does, nothing does. */
#define CUT "--split", "time"
#define SWEEP "--schedule", "1f1b,interleaved,zbv,gpipe", "--virtual", "1,2", "--checkpoint", "never,always"
#define SMALL "--preset", "gpt-small", "--layers", "6", "--global-rows", "8", "--micro-batch-size", "1,2"
#define LARGE "--preset", "llama-3-70b", "--machine", "h100", "--workers", "64", "--global-rows", "128"
#define PARTS                                                                                                          \
    "--precision", "bf16", "--micro-batch-size", "1", "--zero", "1", "--overlap-grad-reduce",                          \
        "--overlap-param-gather", "--tensor", "4", "--sequence-parallel", "--overlap-tensor-sums", "4"
static const char *const sweeps[][32] = {
    {SMALL, SWEEP, CUT, "--machine", "h100", "--workers", "2,4", "--precision", "bf16"},
    {SMALL, SWEEP, CUT, "--machine", "h100,a100", "--workers", "4", "--price", "2,1", "--zero", "0,1", "--clip", "0"},
    {SMALL, SWEEP, "--machine", "h100", "--workers", "4,8", "--tensor", "1,2", "--memory", "2100M"},
    {SMALL, SWEEP, CUT, "--machine", "h100", "--workers", "2,4,8", "--memory", "1400M"},
    {SMALL, SWEEP, CUT, "--machine", "h100", "--workers", "2,4", "--memory", "100M"},
    {SMALL, SWEEP, CUT, "--machine", "epyc-zen4", "--workers", "2,4", "--tokens", "64"},
    {SMALL, SWEEP, "--machine", "h100", "--workers", "4", "--gpus", "2", "--grad-reduce-in-bf16"},
    {"--preset", "gpt-small", "--layers", "11", "--global-rows", "8", "--micro-batch-size", "1,2,4", SWEEP, CUT,
     "--machine", "h100", "--workers", "4", "--stages", "4", "--precision", "bf16"},
    {"--preset", "small", "--layers", "4", "--global-rows", "40", "--chunks", "1,2,4,8", SWEEP, "--machine",
     "epyc-zen4", "--workers", "1,2"},
    {"--preset", "tutorial", "--global-rows", "20", "--chunks", "2,5", SWEEP, "--machine", "h200", "--workers", "2,4"},
    /* The best fits by another cut than the first, and those that fit by the first and come last are too slow. */
    {LARGE, PARTS, CUT, "--schedule", "interleaved", "--virtual", "5", "--checkpoint", "never,activation"},
};
enum { SWEEPS = sizeof sweeps / sizeof *sweeps };

struct fixture {
    struct pp_config config;
    struct pp_target *targets;
    int ntargets;
    struct pp_way *ways;
    int nways;
    struct pp_listed listed;
    pthread_mutex_t lock;
};

static void must(pp_status status)
{
    if (status != PP_OK) fail_msg("%s", pp_message());
}

static void setup(const char *const *options, struct fixture *f)
{
    char *argv[40] = {"ppsim"};
    int n = 1;
    for (int i = 0; options[i]; i++) argv[n++] = (char *)options[i];
    *f = (struct fixture){0};
    pthread_mutex_init(&f->lock, NULL);
    must(pp_config_parse(PP_PPSIM, n, argv, &f->config, NULL));
    must(pp_ways_prepare(&f->config));
    must(pp_ways(&f->config, &pp_schedules, &f->ways, &f->nways));
    const struct pp_predictor common = {
        .config = &f->config, .schedules = &pp_schedules, .ops = &pp_model_ops, .db_lock = &f->lock};
    must(pp_targets_find(&common, &f->targets, &f->ntargets));
    must(pp_listed_create(f->targets, f->ntargets, f->ways, f->nways, &f->listed));
}

static void teardown(struct fixture *f)
{
    pp_listed_free(&f->listed);
    pp_ways_free(f->ways, f->nways);
    pp_targets_free(f->targets, f->ntargets);
    pthread_mutex_destroy(&f->lock);
}

struct taken {
    const struct fixture *f;
    bool bounds;         /* check the bounds of each point */
    struct pp_row *rows; /* of the points */
    int64_t impossible, predicted, nrows;
    int64_t too_large, never; /* of those whose bounds were checked; known before to be too large */
};

/* Of those cuts that can be asked for alone none that fits has a smaller value than the one that was taken. */
static void check_cuts(const struct pp_outcome *outcome, const struct pp_listed_point *at)
{
    static const char *const splits[] = {"uniform", "parameters"};
    for (size_t i = 0; i < sizeof splits / sizeof *splits; i++) {
        struct pp_predictor p = outcome->predictor;
        struct pp_config config = *p.config;
        struct pp_prediction prediction;
        config.split = splits[i];
        p.config = &config;
        if (pp_predict_fitting(&p, at->point, &prediction) != PP_OK || !prediction.job) continue;
        assert_false(outcome->row.too_large);
        assert_true(pp_prediction_value(&p, &prediction) >= outcome->row.value);
        pp_prediction_free(&prediction);
    }
}

/* No prediction has a smaller value than was known before, or fits where that was known to be impossible. */
static void check_bounds(struct taken *t, const struct pp_outcome *outcome, const struct pp_listed_point *at)
{
    struct pp_least least;
    if (pp_config_splits_by_time(&outcome->config)) check_cuts(outcome, at);
    must(pp_predict_least(&outcome->predictor, at->point, &least));
    t->too_large += outcome->row.too_large;
    if (isinf(least.any)) {
        assert_true(outcome->row.too_large);
        t->never++;
        return;
    }
    assert_true(least.any > 0 && least.any <= outcome->row.value);
    if (!pp_config_splits_by_time(&outcome->config)) assert_true(least.first <= outcome->row.value);
    if (least.first_fits) assert_false(outcome->row.too_large);
}

static pp_status take(void *context, int64_t i, struct pp_outcome *outcome)
{
    struct taken *t = context;
    const struct pp_listed *listed = &t->f->listed;
    if (outcome->status == PP_USAGE) return t->impossible++, PP_OK;
    if (outcome->status != PP_OK) fail_msg("%s", outcome->message);
    assert_null(t->rows[i].json); /* nothing is predicted twice */
    if (t->bounds) check_bounds(t, outcome, &listed->points[i]);
    must(pp_row_set_target(&outcome->row, (int)(i / listed->each), "x"));
    t->rows[i] = outcome->row;
    outcome->row = (struct pp_row){0};
    t->predicted++;
    return PP_OK;
}

/* Leaves the rows that ppsim shows. */
static pp_status told(void *context, const struct pp_point *point, const char *why)
{
    (void)context, (void)point, (void)why;
    return PP_OK;
}

static void rank(const struct pp_config *config, struct taken *t)
{
    const struct fixture *f = t->f;
    struct pp_row *of_way = t->rows;
    for (int w = 0; w < f->ntargets * f->nways; w++) {
        const struct pp_way *way = &f->ways[w % f->nways];
        must(pp_rank_remove_no_better(way, of_way, &pp_schedules, told, NULL));
        of_way += way->npoints;
    }
    for (int64_t i = 0; i < f->listed.npoints; i++) {
        const struct pp_row row = t->rows[i];
        t->rows[i] = (struct pp_row){0};
        if (row.json) t->rows[t->nrows++] = row;
    }
    if (t->nrows > 0) must(pp_rank(t->rows, &t->nrows, config));
}

static struct taken sweep(const struct fixture *f, int top, bool race)
{
    struct taken t = {.f = f, .bounds = !race && top == 1};
    struct pp_config config = f->config;
    config.top = top;
    const struct pp_points_call call = {
        .points = f->listed.points, .npoints = f->listed.npoints, .take = take, .context = &t};
    must(PP_NEW(&t.rows, f->listed.npoints));
    assert_true(pp_race_suits(&call, &config));
    must(race ? pp_race(&call, &pp_schedules, top) : pp_predict_points(&call, 1));
    rank(&config, &t);
    return t;
}

static void drop(struct taken *t)
{
    for (int64_t i = 0; i < t->nrows; i++) pp_row_free(&t->rows[i]);
    free(t->rows);
}

static void test_same_rows(void **state)
{
    (void)state;
    int64_t all = 0, raced = 0, too_large = 0, never = 0;
    for (int s = 0; s < SWEEPS; s++) {
        struct fixture f;
        setup(sweeps[s], &f);
        for (int top = 1; top <= 4; top += 3) {
            struct taken whole = sweep(&f, top, false), race = sweep(&f, top, true);
            assert_int_equal(race.nrows, whole.nrows);
            assert_true(race.nrows > 0);
            for (int64_t i = 0; i < race.nrows; i++)
                if (!json_equal(race.rows[i].json, whole.rows[i].json))
                    fail_msg("sweep %d, top %d: row %d differs", s, top, (int)i);
            assert_int_equal(race.impossible, whole.impossible);
            all += whole.predicted;
            raced += race.predicted;
            too_large += whole.too_large;
            never += whole.never;
            drop(&whole);
            drop(&race);
        }
        teardown(&f);
    }
    print_message("%lld of %lld configurations were predicted\n", (long long)raced, (long long)all);
    assert_true(raced < all / 2);
    print_message("%lld of %lld that do not fit were known before\n", (long long)never, (long long)too_large);
    assert_true(never > too_large / 4 && never < too_large);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_same_rows)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
