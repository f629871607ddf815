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

/* By number: stage i starts at layer round(i * layers / stages). Every stage has a layer if there are enough. */
void pp_cut_uniform(int layers, int stages, int *out);

/* Stages of which the most costly costs as little as possible, and then the sum of squares is least. There must be
 * 1 <= stages <= layers + 2. */
pp_status pp_cut_balanced(const struct pp_cut_row *row, int stages, int *out) PP_MUST_CHECK;

/* Where ranks have several stages: what a rank has in all of its stages is about as even as whole layers allow.
 * stage_rank: [stages]. ends: an end alone may be a stage; false: every stage has a layer. There must be enough
 * layers for that. */
pp_status pp_cut_ranks(const struct pp_cut_row *row, const int *stage_rank, bool ends, int stages,
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
