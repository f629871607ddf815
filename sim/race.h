/* SPDX-License-Identifier: Apache-2.0
 *
 * A sweep of which only the best rows are wanted (--top): most configurations need not be simulated. Of each one a
 * value is computed that a simulation is not below (pp_predict_least()); then the most promising ones are predicted,
 * some at a time, until every other one is behind as many as are wanted. Which ones are predicted depends on nothing
 * but the configurations, and not on the number of threads.
 */
#ifndef PP_SIM_RACE_H
#define PP_SIM_RACE_H

#include "sim/predict_points.h"

/* Is a race possible? It is if rows are ranked and only some are shown (--top with --workers), and no prediction is
 * kept; but with --jitter and for blocks there are no bounds. */
bool pp_race_suits(const struct pp_points_call *call, const struct pp_config *config);

/* As pp_predict_points(), but the points of a number of workers on a target race against each other: take() gets the
 * outcomes of those that are impossible, in their order (but not where only its programs would say so of one that can
 * never fit), and then of all that can be among the first `top` of pp_rank(), and of some others, in another order.
 * schedules: those of the points. */
pp_status pp_race(const struct pp_points_call *call, const struct pp_schedules *schedules, int top) PP_MUST_CHECK;

#endif
