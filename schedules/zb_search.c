/* SPDX-License-Identifier: Apache-2.0 */
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/log.h"
#include "schedules/zb_walk.h"

enum {
    MOST_LEAD = 4,        /* of handcrafted orders */
    MOST_LOOKS = 1 << 28, /* most steps for an order without rounds */
    LARGE = 1 << 18       /* ranks x microbatches from which on a terminal shows the progress */
};

/* For orders without rounds: which kind a rank prefers if it has a choice. */
static const uint8_t preferences[][3] = {{PP_I, PP_F, PP_W}, {PP_I, PP_W, PP_F}, {PP_F, PP_W, PP_I}};

/* For orders in rounds: forwards that a rank may be ahead of the next, in quarters; 0: any number. Small leads are for
 * short memory. */
static const int leads[] = {0, 1, 2, 3, 4, 6, 8, 12, 16};

enum {
    LEADS = sizeof leads / sizeof *leads,
    PREFERENCES = sizeof preferences / sizeof *preferences,
    ALL = LEADS * PP_ZB_WAYS + PREFERENCES + MOST_LEAD
};

/* The best order so far. */
struct best {
    struct pp_zb_figure figure;
    int turn; /* number of the order, 0 to ALL - 1; of equally good orders the smaller number wins */
    uint8_t *kinds;
    int tried; /* orders so far */
};

static bool better(struct pp_zb_figure a, struct pp_zb_figure b)
{
    return a.first != b.first ? a.first < b.first : a.second < b.second;
}

static int64_t cells(const struct pp_zb_walk *w) { return (int64_t)w->p->ranks * w->p->microbatches; }

/* Keeps the order if it is the best so far. */
static void finish(struct pp_zb_walk *w, int turn, struct best *best)
{
    struct pp_zb_figure figure;
    best->tried++;
    if (cells(w) >= LARGE) pp_progress("zb-auto: order %d of up to %d", best->tried, ALL);
    if (!pp_zb_end(w, &figure)) return;
    if (better(best->figure, figure) || (!better(figure, best->figure) && best->turn < turn)) return;
    best->figure = figure;
    best->turn = turn;
    w->limit = figure.first;
    memcpy(best->kinds, w->kinds, 3 * (size_t)cells(w));
}

/* Tries all knobs with one lead. If they differ from earlier knobs only in bits that made no difference there, the
 * order would be the same, and is left out. */
static void try_lead(struct pp_zb_walk *w, int lead, int turn, struct best *best)
{
    int decisive[PP_ZB_WAYS];
    for (int k = 0; k < PP_ZB_WAYS; k++) {
        int same = 0;
        while (same < k && (k ^ same) & decisive[same]) same++;
        if (same == k) {
            pp_zb_by_time(w, k, lead);
            decisive[k] = w->decisive;
            finish(w, turn + k, best);
        } else {
            decisive[k] = decisive[same];
        }
    }
}

/* Handcrafted orders come first: they are good, so that worse orders are given up early. */
static void try_all(struct pp_zb_walk *w, uint8_t *kinds)
{
    struct best best = {{INT64_MAX, INT64_MAX}, INT_MAX, kinds, 0};
    w->limit = INT64_MAX;
    for (int lead = 1; lead <= MOST_LEAD; lead++)
        if (pp_zb_by_hand(w, lead)) finish(w, LEADS * PP_ZB_WAYS + PREFERENCES + lead - 1, &best);
    for (int i = 0; i < LEADS; i++) try_lead(w, leads[i], PP_ZB_WAYS * i, &best);
    for (int i = 0; i < PREFERENCES; i++) {
        if (3 * (double)w->p->microbatches * w->p->ranks * w->p->ranks > MOST_LOOKS) break;
        pp_zb_by_preference(w, preferences[i]);
        finish(w, LEADS * PP_ZB_WAYS + i, &best);
    }
    if (cells(w) >= LARGE) pp_progress(NULL);
}

static pp_status check_memory(const struct pp_zb_problem *p)
{
    for (int j = 0; j < p->ranks; j++)
        if (p->cap[j] < p->held[j] || p->cap[j] < p->held_weight[j])
            return pp_fail(PP_USAGE, "rank %d has no memory for a single microbatch", j);
    return PP_OK;
}

/* Halves all times until no sum can overflow: all tasks one after the other, with two hops for each rank and
 * microbatch. */
static void scale_times(const struct pp_zb_problem *p, int64_t *times, struct pp_stage_costs *out)
{
    const int n = p->ranks;
    double all = (double)p->costs->hop * 2 * n;
    for (int j = 0; j < n; j++)
        all += (double)p->costs->forward[j] + (double)p->costs->input[j] + (double)p->costs->weight[j];
    int shift = 0;
    for (all *= p->microbatches; all > 0x1p61; all /= 2) shift++;
    for (int j = 0; j < n; j++) {
        times[j] = p->costs->forward[j] >> shift;
        times[n + j] = p->costs->input[j] >> shift;
        times[2 * n + j] = p->costs->weight[j] >> shift;
    }
    *out = (struct pp_stage_costs){
        .forward = times, .input = times + n, .weight = times + 2 * n, .hop = p->costs->hop >> shift};
}

pp_status pp_zb_search(const struct pp_zb_problem *problem, uint8_t *kinds)
{
    struct pp_zb_walk w = {.p = problem};
    int64_t *times = NULL;
    pp_status status;
    PP_TRY_DONE(check_memory(problem));
    PP_TRY_DONE(PP_NEW(&times, 3 * problem->ranks));
    PP_TRY_DONE(PP_NEW(&w.ranks, problem->ranks));
    PP_TRY_DONE(PP_NEW(&w.next, problem->ranks));
    PP_TRY_DONE(PP_NEW(&w.forward_end, cells(&w)));
    PP_TRY_DONE(PP_NEW(&w.input_end, cells(&w)));
    PP_TRY_DONE(PP_NEW(&w.kinds, 3 * cells(&w)));
    scale_times(problem, times, &w.costs);
    try_all(&w, kinds);
done:
    free(times);
    free(w.ranks);
    free(w.next);
    free(w.forward_end);
    free(w.input_end);
    free(w.kinds);
    return status;
}
