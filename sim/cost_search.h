/* SPDX-License-Identifier: Apache-2.0
 *
 * A search in a profile, between cost_profile.c (links, overheads) and cost_tasks.c (computations).
 */
#ifndef PP_SIM_COST_SEARCH_H
#define PP_SIM_COST_SEARCH_H

#include "sim/costs.h"

static const double pp_longest_ns = 1e15; /* 11 days: what is longer was not measured */

/* What is looked for: tasks of one device, alone and with `load` workers busy. */
struct pp_search {
    struct pp_db *db;
    const struct pp_job *job; /* what is wanted */
    const char *device;
    bool gpu;
    int threads, load, sharers;
    double task_host_ns; /* gpu: what a task takes the host besides issuing its calls */
    char context[PP_CONTEXT_SIZE];
};

/* The classes of computations. `cost` comes filled in for the machine; what the profile knows replaces it. */
pp_status pp_search_computations(const struct pp_search *search, struct pp_cost *cost,
                                 struct pp_cost_origin *origin) PP_MUST_CHECK;

#endif
