/* SPDX-License-Identifier: Apache-2.0
 *
 * Which ways to use --workers are shown, and in which order.
 */
#ifndef PP_SIM_RANKING_H
#define PP_SIM_RANKING_H

#include "sim/row.h"
#include "sim/ways.h"

/* May pp_rank_remove_no_better() remove the row of a point? If its schedule is for several stages on each rank, and the
 * point has one. */
bool pp_rank_may_remove(const struct pp_point *point, const struct pp_schedules *schedules);

/* Removes rows of a way of --workers that say nothing new: of a schedule that is for several stages on each rank, with
 * one stage, if a schedule that is for one takes as little time and memory and is the same otherwise.
 * rows[way->npoints]: of each point, some of which may have none; those that are removed are released. `left_out` is
 * called before with their points. */
pp_status pp_rank_remove_no_better(const struct pp_way *way, struct pp_row *rows, const struct pp_schedules *schedules,
                                   pp_left_out_fn left_out, void *context) PP_MUST_CHECK;

/* Sorts rows[*n] by ms/batch, or with --price by the cost of a token; rows that do not fit into memory go last, and if
 * none fits, they are sorted by the memory that they need. Equal rows keep their order. With --top N only the first N
 * rows for each number of workers of each target are kept: sets *n, and releases the others. */
pp_status pp_rank(struct pp_row *rows, int64_t *n, const struct pp_config *config) PP_MUST_CHECK;

#endif
