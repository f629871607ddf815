/* SPDX-License-Identifier: Apache-2.0
 *
 * One order of the search (zb_search.h), from its first task to the last: in rounds by the times, by what is preferred,
 * or handcrafted. An order that has become worse than what is known ends early.
 */
#ifndef PP_SCHEDULES_ZB_WALK_H
#define PP_SCHEDULES_ZB_WALK_H

#include "schedules/zb_search.h"

/* What the rounds leave open, as bits. */
enum {
    PP_ZB_EARLY_BACKWARD = 1,  /* warm-up: no forward that would end after the first gradient is there */
    PP_ZB_BACKWARDS_FIRST = 2, /* leave a forward out that would keep the next I waiting, if that costs nothing */
    PP_ZB_FILL_ALL = 4,        /* W also goes into gaps that are too short for it and cost nothing */
    PP_ZB_WAYS = 8
};

struct pp_zb_rank {
    int forwards, inputs, weights; /* done */
    int64_t memory, end;           /* in use; of the last task */
    int64_t start;                 /* of the first task */
    int64_t cost;                  /* what the goal counts of this rank, if it waits no more */
    int extra;                     /* forwards of the warm-up after the first */
};

/* What a rank would do next. */
struct pp_zb_choice {
    int64_t start;
    int place; /* among its preferences; 3: nothing can be done yet */
};

/* Lower is better, first before second. */
struct pp_zb_figure {
    int64_t first, second;
};

/* An order that grows. All arrays belong to the caller. */
struct pp_zb_walk {
    const struct pp_zb_problem *p;
    struct pp_stage_costs costs; /* with times that add up to what an integer holds */
    struct pp_zb_rank *ranks;
    int64_t *forward_end;      /* [ranks][microbatches] */
    int64_t *input_end;        /* [ranks][microbatches] of I */
    struct pp_zb_choice *next; /* [ranks] */
    uint8_t *kinds;            /* [ranks][3 * microbatches] */
    int knobs, lead;
    int decisive;  /* knobs that made a difference so far: with others the order would be the same */
    int64_t worst; /* cost of all ranks so far: an order that begins like this has no better figure */
    int64_t limit; /* where `worst` is above it the order is given up */
};

/* In rounds. lead: forwards that a rank may be ahead of the next, in quarters; 0: any number. */
void pp_zb_by_time(struct pp_zb_walk *w, int knobs, int lead);
/* No rank waits while it can do something; what starts first, is next, of equals the kind that stands first. With
 * memory for less than P microbatches that is better than rounds, in which all ranks have as many forwards. Looks at
 * every rank for every task. */
void pp_zb_by_preference(struct pp_zb_walk *w, const uint8_t kinds[3]);
/* ZB-H1 with a lead of 1, ZB-H2 with 2, and so on (zero_bubble.h). False where memory is short. */
bool pp_zb_by_hand(struct pp_zb_walk *w, int lead);

/* What is left of W, and the figure of the whole order. False where it was given up. */
bool pp_zb_end(struct pp_zb_walk *w, struct pp_zb_figure *out);

#endif
