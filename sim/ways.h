/* SPDX-License-Identifier: Apache-2.0
 *
 * Ways: the parts of a sweep. Without --workers there is one for each combination of --context-parallel and
 * --expert-parallel, with the points of all combinations of the other lists. With --workers there is one for each way
 * to use each listed number of devices: P ranks of T C workers, in as many replicas as there are devices for; the
 * replicas share the rows of a batch, and each N of them the experts. Ways are the same for every machine
 * (sim/targets.h). The letters: core/plan/plan.h.
 */
#ifndef PP_SIM_WAYS_H
#define PP_SIM_WAYS_H

#include "core/job/job.h"

struct pp_way {
    int workers;  /* of all replicas; 0: --workers was not given */
    int replicas; /* D */
    int rows;     /* of each replica */
    int context;  /* C */
    int experts;  /* N */
    struct pp_point *points;
    int npoints;
    char impossible[224]; /* why none of its points is possible; "" = they may be possible */
};

/* With --workers and --global-rows: PP_USAGE for options that contradict them; sets the config to one replica with all
 * rows. Does nothing if neither was given. */
pp_status pp_ways_prepare(struct pp_config *config) PP_MUST_CHECK;

/* Makes the ways of a prepared config, in the order of --workers, --tensor, --context-parallel, --expert-parallel, and
 * --stages (by default rising P). Call pp_ways_free() also after a failure. */
pp_status pp_ways(const struct pp_config *config, const struct pp_schedules *schedules, struct pp_way **ways,
                  int *n) PP_MUST_CHECK;
void pp_ways_free(struct pp_way *ways, int n);

/* Is told of a point that is left out, and why. Its failure ends what calls it. */
typedef pp_status (*pp_left_out_fn)(void *context, const struct pp_point *point, const char *why);

/* Removes from a way of --workers what nobody would run: pipelines of one rank with several stages, if it also has some
 * with one stage that hold one microbatch at a time. `left_out` is called before with each of these points. */
pp_status pp_way_remove_pointless(struct pp_way *way, const struct pp_schedules *schedules, pp_left_out_fn left_out,
                                  void *context) PP_MUST_CHECK;

/* *out: the config for the points of a way. It borrows everything that `config` owns. */
void pp_way_config(const struct pp_config *config, const struct pp_way *way, struct pp_config *out);

#endif
