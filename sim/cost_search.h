/* SPDX-License-Identifier: Apache-2.0
 *
 * A search in a profile; shared by cost_profile.c (links, overheads) and cost_tasks.c (computations).
 */
#ifndef PP_SIM_COST_SEARCH_H
#define PP_SIM_COST_SEARCH_H

#include "sim/costs.h"
#include "sim/machine_calls.h"

static const double pp_longest_ns = 1e15; /* 11 days: a longer time cannot have been measured */

/* What to look for: times of the job's tasks on one device, measured with one busy worker and with `load` of them. */
struct pp_search {
    struct pp_db *db;
    const struct pp_job *job;
    const char *device;
    bool gpu;                      /* it is a queue device */
    int threads;                   /* of BLAS, for each worker */
    int load;                      /* busy workers for pp_class_cost.loaded_ns */
    int sharers;                   /* workers that share a device; 1: none do */
    double task_host_ns;           /* gpu: host time of a task besides issuing its calls */
    const struct pp_machine *machine;
    struct pp_machine_calls *sheet; /* a worker's calls by its data sheet; only inside pp_search_computations() */
    char context[PP_CONTEXT_SIZE]; /* pp_job_context() */
};

/* Sets the times of all classes of computations that the profile knows. `cost` must be filled in by the machine; what
 * the profile does not know stays as it is. Counts the sources in *origin. */
pp_status pp_search_computations(const struct pp_search *search, struct pp_cost *cost,
                                 struct pp_cost_origin *origin) PP_MUST_CHECK;

#endif
