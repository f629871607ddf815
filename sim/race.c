/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/race.h"

#include <math.h>
#include <stdlib.h>

#include "core/base/log.h"
#include "sim/ranking.h"

enum { ROUNDS = 32 }; /* points are predicted at a time: as many as are wanted, and of a group one in so many */

struct racer {
    int64_t point; /* its index in the list */
    int group;
    struct pp_least least;
};

/* The points of a number of workers on a target. */
struct group {
    int64_t next, end; /* of its racers: the first one that was not looked at; behind the last one */
    int64_t each;      /* number of points of a round */
    double *best;      /* [nbest] the least values, rising; of rows that fit and that nothing removes */
    int nbest;
};

struct entrant {
    int64_t point;
    enum pp_asked asked;
    struct group *group;
};

struct race {
    const struct pp_points_call *call;
    const struct pp_schedules *schedules;
    int top;
    int threads;
    struct racer *racers; /* [nracers] all that are possible, those of a group in the order in which they start */
    int64_t nracers;
    struct group *groups;
    int ngroups;
    struct entrant *round; /* [nround] those of a round, in the order of their points */
    int64_t nround;
};

bool pp_race_suits(const struct pp_points_call *call, const struct pp_config *config)
{
    return config->top > 0 && config->top < call->npoints && config->workers.n > 0 && config->jitter == 0 &&
           !config->times && !call->keep;
}

/* Are they of the same number of workers on the same target? Such points stand together in the list. */
static bool same_group(const struct pp_listed_point *a, const struct pp_listed_point *b)
{
    return a->predictor == b->predictor && a->way->workers == b->way->workers;
}

/* Takes what is known of a point before it is simulated. */
static pp_status take_least(void *context, int64_t i, struct pp_outcome *outcome)
{
    struct race *r = context;
    const struct pp_listed_point *points = r->call->points;
    pp_progress("looking at %lld of %lld", (long long)i + 1, (long long)r->call->npoints);
    if (i == 0 || !same_group(&points[i], &points[i - 1])) r->ngroups++;
    if (outcome->status != PP_OK) return r->call->take(r->call->context, i, outcome);
    if (r->call->look_at) r->call->look_at(r->call->context, i, &outcome->least);
    r->racers[r->nracers++] = (struct racer){i, r->ngroups - 1, outcome->least};
    return PP_OK;
}

/* First those that fit by their first cut: they will. Of these, first those that have the least bounds. Last those that
 * no cut makes fit, whose bounds are INFINITY. */
static int by_promise(const void *a, const void *b)
{
    const struct racer *x = a, *y = b;
    if (x->group != y->group) return x->group - y->group;
    if (x->least.first_fits != y->least.first_fits) return y->least.first_fits - x->least.first_fits;
    if (x->least.first != y->least.first) return x->least.first < y->least.first ? -1 : 1;
    return x->point < y->point ? -1 : 1;
}

static pp_status look_at_all(struct race *r)
{
    const int64_t n = r->call->npoints;
    struct pp_listed_point *asked;
    PP_TRY(PP_NEW(&asked, n));
    for (int64_t i = 0; i < n; i++) {
        asked[i] = r->call->points[i];
        asked[i].asked = PP_ASK_LEAST;
    }
    const struct pp_points_call call = {.points = asked, .npoints = n, .take = take_least, .context = r};
    pp_status status = pp_predict_points(&call, r->threads);
    free(asked);
    return status;
}

static pp_status make_groups(struct race *r)
{
    qsort(r->racers, (size_t)r->nracers, sizeof *r->racers, by_promise);
    PP_TRY(PP_NEW(&r->groups, r->ngroups));
    for (int64_t i = 0, g = 0; g < r->ngroups; g++) {
        r->groups[g].next = i;
        while (i < r->nracers && r->racers[i].group == g) i++;
        r->groups[g].end = i;
        const int64_t n = i - r->groups[g].next;
        r->groups[g].each = r->top + n / ROUNDS;
        PP_TRY(PP_NEW(&r->groups[g].best, n < r->top ? n : r->top));
    }
    return PP_OK;
}

/* Rows with a larger value are not shown. */
static double limit(const struct race *r, const struct group *g)
{
    return g->nbest < r->top ? INFINITY : g->best[r->top - 1];
}

/* Adds the next points of a group to the round: some of those whose first cut fits; when none of these is left, those
 * that may still fit by another one; and if too few fit, all that are left. */
static void start_some(struct race *r, struct group *g)
{
    const struct racer *racers = r->racers;
    const double most = limit(r, g);
    const bool fits = g->next < g->end && racers[g->next].least.first_fits, all = !fits && isinf(most);
    int64_t room = all ? r->nracers : g->each;
    for (; g->next < g->end && room > 0 && racers[g->next].least.first_fits == fits; g->next++) {
        if (racers[g->next].least.any > most) continue;
        r->round[r->nround++] = (struct entrant){racers[g->next].point, fits || all ? PP_ASK_ALL : PP_ASK_FITTING, g};
        room--;
    }
}

static int by_point(const void *a, const void *b)
{
    const struct entrant *x = a, *y = b;
    return x->point < y->point ? -1 : 1;
}

static void note_value(const struct race *r, struct group *g, double value)
{
    if (value >= limit(r, g)) return;
    int i = g->nbest < r->top ? g->nbest++ : r->top - 1;
    for (; i > 0 && g->best[i - 1] > value; i--) g->best[i] = g->best[i - 1];
    g->best[i] = value;
}

/* Takes the outcome of an entrant. That without a row does not fit. */
static pp_status take_entrant(void *context, int64_t i, struct pp_outcome *outcome)
{
    struct race *r = context;
    const struct entrant *entrant = &r->round[i];
    const struct pp_row *row = &outcome->row;
    if (outcome->status == PP_OK && !row->json) return PP_OK;
    if (row->json && !row->too_large && !pp_rank_may_remove(r->call->points[entrant->point].point, r->schedules))
        note_value(r, entrant->group, row->value);
    return r->call->take(r->call->context, entrant->point, outcome);
}

static pp_status predict_round(struct race *r)
{
    struct pp_listed_point *points;
    qsort(r->round, (size_t)r->nround, sizeof *r->round, by_point);
    PP_TRY(PP_NEW(&points, r->nround));
    for (int64_t i = 0; i < r->nround; i++) {
        points[i] = r->call->points[r->round[i].point];
        points[i].asked = r->round[i].asked;
    }
    const struct pp_points_call call = {.points = points, .npoints = r->nround, .take = take_entrant, .context = r};
    const pp_status status = pp_predict_points(&call, r->threads);
    free(points);
    return status;
}

/* Also where a round had none: where those that came next in a group were too slow, others after them may not be. */
static bool some_left(const struct race *r)
{
    for (int g = 0; g < r->ngroups; g++)
        if (r->groups[g].next < r->groups[g].end) return true;
    return false;
}

static pp_status run(struct race *r)
{
    PP_TRY(PP_NEW(&r->racers, r->call->npoints));
    PP_TRY(PP_NEW(&r->round, r->call->npoints));
    PP_TRY(look_at_all(r));
    PP_TRY(make_groups(r));
    do {
        r->nround = 0;
        for (int g = 0; g < r->ngroups; g++) start_some(r, &r->groups[g]);
        if (r->nround > 0) PP_TRY(predict_round(r));
    } while (some_left(r));
    return PP_OK;
}

pp_status pp_race(const struct pp_points_call *call, const struct pp_schedules *schedules, int top)
{
    struct race r = {.call = call, .schedules = schedules, .top = top, .threads = pp_points_threads(call)};
    const pp_status status = run(&r);
    for (int g = 0; r.groups && g < r.ngroups; g++) free(r.groups[g].best);
    free(r.groups);
    free(r.racers);
    free(r.round);
    return status;
}
