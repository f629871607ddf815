/* SPDX-License-Identifier: Apache-2.0
 *
 * Layers dealt out to the stages of ranks that have several.
 */
#include <float.h>
#include <stdlib.h>

#include "core/plan/cut.h"

/* Where ranks have several stages: each layer goes to the rank that has least so far, and there to the stage that has
 * least. So ranks have as much as each other, and so have the stages of one round through the ranks. All stages have a
 * layer from the beginning, but for the ends, which need none; first all layers count as a mean one. Of equal ones
 * the last takes it where ranks follow each other in a loop and the ends weigh something, else the first: so simulated
 * steps of large models are mostly shorter. (With PP_EVEN_EARLY the first rank takes it, in its last stage.) Then
 * layers that are not equal are weighed one by one. */
struct evening {
    const int *stage_rank;
    const double *cost; /* [layers + 2] */
    double *stage_cost, *rank_cost;
    double stage_squares, rank_squares; /* sums of squares of these */
    int *begin;                         /* [stages + 1] first layer of each stage */
    int stages, ranks;
    bool ends;                  /* the first and the last stage may have no layers */
    bool last_rank, last_stage; /* of equal ones */
};

static int fewest(const struct evening *e, int stage)
{
    return e->ends && (stage == 0 || stage == e->stages - 1) ? 0 : 1;
}

/* Of ranks. */
static int cheapest_rank(const struct evening *e)
{
    int best = 0;
    for (int r = 1; r < e->ranks; r++)
        if (e->rank_cost[r] < e->rank_cost[best] || (e->last_rank && e->rank_cost[r] <= e->rank_cost[best])) best = r;
    return best;
}

/* Of the stages of a rank. */
static int cheapest_stage(const struct evening *e, int rank)
{
    int best = -1;
    for (int s = 0; s < e->stages; s++) {
        if (e->stage_rank[s] != rank) continue;
        if (best < 0 || e->stage_cost[s] < e->stage_cost[best] ||
            (e->last_stage && e->stage_cost[s] <= e->stage_cost[best]))
            best = s;
    }
    return best;
}

static double squared(double x) { return x * x; }

static void add_cost(struct evening *e, int stage, double cost)
{
    double *of_stage = &e->stage_cost[stage], *of_rank = &e->rank_cost[e->stage_rank[stage]];
    e->stage_squares += squared(*of_stage + cost) - squared(*of_stage);
    e->rank_squares += squared(*of_rank + cost) - squared(*of_rank);
    *of_stage += cost;
    *of_rank += cost;
}

/* Deals out as many layers as there are, of mean cost. */
static void deal(struct evening *e, int layers, int *out)
{
    double mean = 0;
    int left = layers;
    for (int l = 1; l <= layers; l++) mean += e->cost[l] / layers;
    add_cost(e, 0, e->cost[0]);
    add_cost(e, e->stages - 1, e->cost[layers + 1]);
    for (int s = 0; s < e->stages; s++) {
        out[s] = fewest(e, s);
        left -= out[s];
        add_cost(e, s, out[s] * mean);
    }
    for (; left > 0; left--) {
        const int to = cheapest_stage(e, cheapest_rank(e));
        out[to]++;
        add_cost(e, to, mean);
    }
}

/* By more than rounding. */
static int compare(double a, double b) { return a < b * (1 - 1e-9) ? -1 : b < a * (1 - 1e-9); }

/* How even it is: sums of squares, of what ranks have and of what stages have; less is better, of ranks first. */
struct load {
    double ranks, stages;
};

static struct load load_of(const struct evening *e) { return (struct load){e->rank_squares, e->stage_squares}; }

static bool is_less(const struct load *a, const struct load *b)
{
    const int ranks = compare(a->ranks, b->ranks);
    return ranks ? ranks < 0 : compare(a->stages, b->stages) < 0;
}

/* Moves the border before a stage by one layer, back (-1) or on (1). */
static void move_border(struct evening *e, int stage, int by)
{
    const double cost = e->cost[1 + (by < 0 ? e->begin[stage] - 1 : e->begin[stage])];
    e->begin[stage] += by;
    add_cost(e, stage, -by * cost);
    add_cost(e, stage - 1, by * cost);
}

/* Gives one layer of a stage to the stage that is best for it, among those behind it (way = 1) or before it (-1). All
 * between them give one on, too. Does nothing if no stage is better. */
static bool give(struct evening *e, int stage, int way)
{
    const int first = way > 0 ? stage + 1 : stage;
    struct load best = load_of(e);
    int end = first, border = first;
    if (e->begin[stage + 1] - e->begin[stage] == fewest(e, stage)) return false;
    for (; border > 0 && border < e->stages; border += way) {
        move_border(e, border, -way);
        const struct load load = load_of(e);
        if (!is_less(&load, &best)) continue;
        best = load;
        end = border + way;
    }
    while (border != end) move_border(e, border -= way, way);
    return end != first;
}

/* Layers that differ have been dealt out as mean ones: moves single layers on as long as that makes it more even. */
static void weigh_each(struct evening *e, int layers, int *out)
{
    enum { MOST_STAGES = 256, ROUNDS = 50 }; /* each round tries all pairs of stages */
    bool better = e->stages <= MOST_STAGES;
    for (int s = 0; s < e->stages; s++) e->begin[s + 1] = e->begin[s] + out[s];
    for (int s = 0; s < e->stages; s++) e->stage_cost[s] = 0;
    for (int s = 0; s < e->stages; s++) e->rank_cost[e->stage_rank[s]] = 0;
    e->stage_squares = e->rank_squares = 0;
    add_cost(e, 0, e->cost[0]);
    add_cost(e, e->stages - 1, e->cost[layers + 1]);
    for (int s = 0; s < e->stages; s++)
        for (int l = e->begin[s]; l < e->begin[s + 1]; l++) add_cost(e, s, e->cost[1 + l]);
    for (int round = 0; round < ROUNDS && better; round++) {
        better = false;
        for (int s = 0; s < e->stages; s++) better = give(e, s, 1) || give(e, s, -1) || better;
    }
    for (int s = 0; s < e->stages; s++) out[s] = e->begin[s + 1] - e->begin[s];
}

static bool are_equal(const double *cost, int layers)
{
    int l = 2;
    while (l <= layers && cost[l] == cost[1]) l++;
    return l > layers;
}

pp_status pp_cut_ranks(const struct pp_cut_row *row, const struct pp_cut_ranks_call *call, int stages, int *out)
{
    struct evening e = {.stage_rank = call->stage_rank, .cost = row->cost, .stages = stages, .ends = call->ends};
    pp_status status;
    for (int s = 0; s < e.stages; s++)
        if (e.stage_rank[s] >= e.ranks) e.ranks = e.stage_rank[s] + 1;
    e.last_stage = e.ends && e.stage_rank[e.stages - 1] == e.ranks - 1; /* ends that need no layers weigh something */
    e.last_rank = e.last_stage && call->way.even == PP_EVEN_RANKS;
    PP_TRY_DONE(PP_NEW(&e.stage_cost, e.stages));
    PP_TRY_DONE(PP_NEW(&e.rank_cost, e.ranks));
    PP_TRY_DONE(PP_NEW(&e.begin, e.stages + 1));
    for (int r = 0; r < e.ranks; r++) e.rank_cost[r] = DBL_MAX; /* without a stage it takes none */
    for (int s = 0; s < e.stages; s++) e.rank_cost[e.stage_rank[s]] = 0;
    deal(&e, row->layers, out);
    if (!are_equal(row->cost, row->layers)) weigh_each(&e, row->layers, out);
done:
    free(e.stage_cost);
    free(e.rank_cost);
    free(e.begin);
    return status;
}
