/* SPDX-License-Identifier: Apache-2.0
 *
 * Problems for the search behind zb-auto, and an evaluation of orders that shares nothing with it.
 */
#ifndef PP_TESTS_ZB_CASE_H
#define PP_TESTS_ZB_CASE_H

#include <string.h>

#include "schedules/zb_search.h"
#include "tests/unit/sim_case.h"

enum { MOST_RANKS = 32, MOST_MICROBATCHES = 256 };

struct found {
    int64_t makespan, span, peak[MOST_RANKS]; /* peak memory */
};

/* A problem with arrays of its own. Memory until told otherwise: each microbatch counts 1. */
struct problem {
    struct pp_zb_problem p;
    struct pp_stage_costs costs;
    int64_t forward[MOST_RANKS], input[MOST_RANKS], weight[MOST_RANKS];
    int64_t held[MOST_RANKS], held_weight[MOST_RANKS], cap[MOST_RANKS];
};

static inline void uniform(struct problem *t, int ranks, int microbatches, int64_t f, int64_t i, int64_t w, int64_t hop,
                           int64_t cap)
{
    t->p = (struct pp_zb_problem){.ranks = ranks,
                                  .microbatches = microbatches,
                                  .costs = &t->costs,
                                  .held = t->held,
                                  .held_weight = t->held_weight,
                                  .cap = t->cap};
    for (int r = 0; r < ranks; r++) {
        t->forward[r] = f;
        t->input[r] = i;
        t->weight[r] = w;
        t->held[r] = t->held_weight[r] = 1;
        t->cap[r] = cap;
    }
    t->costs = (struct pp_stage_costs){t->forward, t->input, t->weight, hop};
}

/* A rank on its way through its order. */
struct rank {
    int64_t at, start, end, memory, forward_end[MOST_MICROBATCHES], input_end[MOST_MICROBATCHES];
    int done[PP_KINDS];
};

static inline int64_t most(int64_t a, int64_t b) { return a > b ? a : b; }

/* When the input of the next task of this kind is there; -1: not yet. */
static inline int64_t arrival(const struct problem *t, const struct rank *ranks, int r, int kind)
{
    const int *done = ranks[r].done, m = done[kind];
    const int other = kind == PP_F ? r - 1 : r + 1; /* whose result it needs */
    if (kind == PP_I && done[PP_F] <= m) return -1;
    if (kind == PP_W) return done[PP_I] <= m ? -1 : 0;
    if (other < 0 || other == t->p.ranks) return 0;
    if (ranks[other].done[kind] <= m) return -1;
    return (kind == PP_F ? ranks[other].forward_end[m] : ranks[other].input_end[m]) + t->costs.hop;
}

/* One more of rank r, if its input is there. */
static inline bool step(const struct problem *t, struct rank *ranks, int r, int kind, struct found *out)
{
    const int64_t *const takes[PP_KINDS] = {[PP_F] = t->forward, [PP_I] = t->input, [PP_W] = t->weight};
    const int64_t adds[PP_KINDS] = {
        [PP_F] = t->held[r], [PP_I] = t->held_weight[r] - t->held[r], [PP_W] = -t->held_weight[r]};
    struct rank *rank = &ranks[r];
    if (kind >= PP_KINDS || !takes[kind]) return false;
    const int64_t there = arrival(t, ranks, r, kind), start = most(rank->end, there);
    if (there < 0) return false;
    if (rank->at++ == 0) rank->start = start;
    rank->end = start + takes[kind][r];
    if (kind == PP_F) rank->forward_end[rank->done[kind]] = rank->end;
    if (kind == PP_I) rank->input_end[rank->done[kind]] = rank->end;
    rank->memory += adds[kind];
    out->peak[r] = most(out->peak[r], rank->memory);
    rank->done[kind]++;
    return true;
}

/* False if the order is none: something is missing, doubled, or waits for ever. */
static inline bool evaluate(const struct problem *t, const uint8_t *kinds, struct found *out)
{
    static struct rank ranks[MOST_RANKS];
    const int64_t length = 3 * (int64_t)t->p.microbatches;
    bool moved = true;
    memset(ranks, 0, sizeof ranks);
    *out = (struct found){0};
    while (moved) {
        moved = false;
        for (int r = 0; r < t->p.ranks; r++)
            while (ranks[r].at < length && step(t, ranks, r, kinds[r * length + ranks[r].at], out)) moved = true;
    }
    for (int r = 0; r < t->p.ranks; r++) {
        for (int k = 0; k < PP_KINDS; k++)
            if (ranks[r].done[k] != (k == PP_F || k == PP_I || k == PP_W ? t->p.microbatches : 0)) return false;
        out->makespan = most(out->makespan, ranks[r].end);
        out->span = most(out->span, ranks[r].end - ranks[r].start);
    }
    return true;
}

/* Searches, and checks what must always hold. */
static inline struct found search(const struct problem *t, uint8_t *kinds)
{
    struct found found;
    if (pp_zb_search(&t->p, kinds) != PP_OK) fail_msg("%s", pp_message());
    assert_true(evaluate(t, kinds, &found));
    for (int r = 0; r < t->p.ranks; r++) assert_true(found.peak[r] <= t->cap[r]);
    return found;
}

#endif
