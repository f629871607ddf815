/* SPDX-License-Identifier: Apache-2.0
 *
 * How the search (zb_search.h) makes one order, from its first task to the last: in rounds, without rounds, or
 * handcrafted. An order that has become worse than the best one so far ends early.
 */
#ifndef PP_SCHEDULES_ZB_WALK_H
#define PP_SCHEDULES_ZB_WALK_H

#include "schedules/zb_search.h"

/* Choices that the rounds leave open ("knobs"), as bits: PP_ZB_WAYS combinations. */
enum {
    PP_ZB_EARLY_BACKWARD = 1,  /* warm-up: no forward that would end after the first gradient has come */
    PP_ZB_BACKWARDS_FIRST = 2, /* leave a forward out that would delay the next I, if leaving it out costs nothing */
    PP_ZB_FILL_ALL = 4,        /* run a W in a gap that is too short for it, also if waiting would cost nothing */
    PP_ZB_WAYS = 8
};

/* A rank in the order so far. */
struct pp_zb_rank {
    int forwards, inputs, weights; /* numbers of F, I and W */
    int64_t memory;                /* in use */
    int64_t start, end;            /* start of the first task, end of the last one */
    int64_t cost;                  /* the least span (or makespan, see pp_zb_problem.span) that is still possible: with
                                    * all its work and the waits so far */
    int extra;                     /* forwards of the warm-up after the first one */
};

/* What a rank would do next. */
struct pp_zb_choice {
    int64_t start; /* when */
    int place;     /* index of its kind among the preferences; 3: nothing can be done yet */
};

/* How good an order is: lower is better, `second` decides if `first` is equal. */
struct pp_zb_figure {
    int64_t first, second;
};

/* An order that grows. All arrays belong to the caller. */
struct pp_zb_walk {
    const struct pp_zb_problem *p;
    struct pp_stage_costs costs; /* those of the problem, scaled so that no sum of times overflows */
    struct pp_zb_rank *ranks;    /* [ranks] */
    int64_t *forward_end;        /* [ranks][microbatches] end of F */
    int64_t *input_end;          /* [ranks][microbatches] end of I */
    struct pp_zb_choice *next;   /* [ranks] */
    uint8_t *kinds;              /* [ranks][3 * microbatches] the order */
    int knobs, lead;             /* see pp_zb_by_time() */
    int decisive;                /* knobs that made a difference so far; the others would not have changed the order */
    int64_t worst;               /* the largest cost of a rank: the figure cannot become better than that */
    int64_t limit;               /* the order is given up when `worst` is above it */
};

/* Makes an order in rounds. lead: how many forwards a rank may be ahead of the next rank, in quarters; 0: any number.
 */
void pp_zb_by_time(struct pp_zb_walk *w, int knobs, int lead);
/* Makes an order without rounds: the next task is always the one that can start first; of those that can start at the
 * same time, the one whose kind stands first in kinds[]. With memory for fewer than P microbatches this is better than
 * rounds, in which all ranks have equally many forwards. It looks at every rank for every task. */
void pp_zb_by_preference(struct pp_zb_walk *w, const uint8_t kinds[3]);
/* Makes a handcrafted order (zero_bubble.h): ZB-H1 with lead 1, ZB-H2 with lead 2, and so on. False if memory is short.
 */
bool pp_zb_by_hand(struct pp_zb_walk *w, int lead);

/* Appends the Ws that are left, and computes the figure of the order. False if it was given up. */
bool pp_zb_end(struct pp_zb_walk *w, struct pp_zb_figure *out);

#endif
