/* SPDX-License-Identifier: Apache-2.0
 *
 * The parts of a sweep: one for each of --context-parallel, of all combinations of the other lists. With --workers
 * there is one for each way to use so many devices: P ranks of T workers, each C times, and as many replicas as there
 * are devices for, which share the rows of a batch; for each of the numbers of devices that are listed.
 * They are the same for every machine (sim/targets.h).
 */
#ifndef PP_SIM_WAYS_H
#define PP_SIM_WAYS_H

#include <jansson.h>

#include "core/job.h"

struct pp_way {
    int workers;        /* of all replicas; 0: not asked */
    int replicas, rows; /* D, and rows of each replica */
    int context;        /* C */
    struct pp_point *points;
    int npoints;
    char impossible[224]; /* why there can be none of its points; "" = nothing is known against them */
};

/* Refuses what contradicts --workers and --global-rows (PP_USAGE), and makes the config that of the whole batch: one
 * replica with all rows. Does nothing where neither was given. */
pp_status pp_ways_prepare(struct pp_config *config) PP_MUST_CHECK;

/* Of a prepared config. In the order of --workers, --tensor, --context-parallel, and --stages or rising P. Release with
 * pp_ways_free(), after a failure too. */
pp_status pp_ways(const struct pp_config *config, const struct pp_schedules *schedules, struct pp_way **ways,
                  int *n) PP_MUST_CHECK;
void pp_ways_free(struct pp_way *ways, int n);

/* *out: the config that a way's points are of. It borrows all that `config` owns. */
void pp_way_config(const struct pp_config *config, const struct pp_way *way, struct pp_config *out);

/* Sorts rows of results (pp_row_create()): by ms/batch, with --price by what tokens cost; those that do not fit in
 * --memory go last. Equal ones keep their order. With --top only the first of each number of workers of each machine
 * ("for_machine") are left. */
pp_status pp_ways_order(json_t *rows, const struct pp_config *config) PP_MUST_CHECK;

#endif
