/* SPDX-License-Identifier: Apache-2.0
 *
 * Cuts a row of layers into stages, so that stages or ranks have as much as each other. The row has an end before its
 * first layer and one behind its last, such as embedding and decoder, which stay with the first and the last stage. All
 * functions write to out[stages] how many layers each stage gets, without the ends; an end alone may be a stage (out is
 * then 0), unless it says otherwise.
 */
#ifndef PP_CORE_PLAN_CUT_H
#define PP_CORE_PLAN_CUT_H

#include <stdbool.h>

#include "core/base/status.h"

struct pp_cut_row {
    int layers;
    const double *cost; /* [layers + 2] of the first end, the layers, the last end; >= 0, and squares are finite */
};

/* How even a cut is. Of whole layers some rank mostly has one more than others, and it matters which: a rank waits at
 * the beginning and the end of a step for those before it, so with M microbatches a step takes about
 *   max over ranks r of  M cost_r + sum of the costs of the ranks before r
 * of which the second part grows with r (the bounds of sim/bound.h, without hops). But an early rank has more
 * microbatches in memory, and other things may hide where it lies. */
enum pp_even {
    PP_EVEN_RANKS,  /* ranks have as much as each other; where that leaves a choice, late ranks have more */
    PP_EVEN_EARLY,  /* a step takes as little as possible by the formula above */
    PP_EVEN_LEAN,   /* the same, but the first rank has no more layers than by PP_EVEN_RANKS */
    PP_EVEN_STAGES, /* where ranks have several stages, these have as much as each other, not the ranks */
    PP_EVENS
};
struct pp_cut_way {
    enum pp_even even;
    int microbatches; /* M; for PP_EVEN_EARLY and PP_EVEN_LEAN */
};

/* By number: stage i starts at layer round(i * layers / stages). Every stage has a layer if there are enough. */
void pp_cut_uniform(int layers, int stages, int *out);

/* Stages of which the largest cost, or what the formula above says, is least; of several such cuts one with a small sum
 * of squares, so that the other stages are even, too. There must be 1 <= stages <= layers + 2. */
pp_status pp_cut_balanced(const struct pp_cut_row *row, struct pp_cut_way way, int stages, int *out) PP_MUST_CHECK;

struct pp_cut_ranks_call {
    const int *stage_rank; /* [stages] */
    bool ends;             /* an end alone may be a stage; false: every stage has a layer, and there must be enough */
    struct pp_cut_way way; /* PP_EVEN_EARLY (and _LEAN): where stages go through the ranks in a loop, of equal ranks the
                            * first has more, in its last stage */
};
/* Where ranks have several stages: what a rank has in all of its stages is about as even as whole layers allow. */
pp_status pp_cut_ranks(const struct pp_cut_row *row, const struct pp_cut_ranks_call *call, int stages,
                       int *out) PP_MUST_CHECK;

/* A list that the user gives. */
struct pp_cut_list {
    const char *words; /* that --split takes beside a list: "uniform, time" */
    const char *item;  /* "layer" */
    int items;         /* so many must be in the list, all stages together */
    bool ends;         /* the first and the last stage may have none */
};
/* Reads "3,5". PP_USAGE if it does not have a number for each stage, or too many or too few items. */
pp_status pp_cut_list(const struct pp_cut_list *list, const char *split, int stages, int *out) PP_MUST_CHECK;

#endif
