/* SPDX-License-Identifier: Apache-2.0
 *
 * A search in a profile; shared by cost_profile.c (links, overheads) and, for computations, by cost_search.c,
 * cost_scaled.c and cost_tasks.c.
 */
#ifndef PP_SIM_COST_SEARCH_H
#define PP_SIM_COST_SEARCH_H

#include "sim/costs.h"
#include "sim/machine_calls.h"

enum { PP_SEARCH_SHARERS = 8 };

/* The numbers of rows of all measured tasks, ascending. */
struct pp_row_counts {
    bool known;
    int n, v[64];
};

/* What a search has found out, for each number of workers that share a device; [0]: more than PP_SEARCH_SHARERS. */
struct pp_search_memory {
    struct pp_row_counts rows[PP_SEARCH_SHARERS + 1];
    struct pp_machine_calls *sheet[PP_SEARCH_SHARERS + 1]; /* a worker's calls by the data sheet; NULL: not yet */
};

/* What to look for: times of the job's tasks on one device, measured with one busy worker and with `load` of them. */
struct pp_search {
    struct pp_db *db;
    const struct pp_job *job;
    const char *device;
    bool gpu;            /* it is a queue device */
    int threads;         /* of BLAS, for each worker */
    int load;            /* busy workers for pp_class_cost.loaded_ns */
    int sharers;         /* workers that share a device; 1: none do */
    double task_host_ns; /* gpu: host time of a task besides issuing its calls */
    const struct pp_machine *machine;
    struct pp_search_memory *memory; /* only inside pp_search_computations() */
    char context[PP_CONTEXT_SIZE];   /* pp_job_context() */
};

/* Times of which setting count. Borrows from the search. */
static inline struct pp_db_setting pp_search_setting(const struct pp_search *search)
{
    return (struct pp_db_setting){search->device, search->threads, search->context};
}

/* A class of computations of the job, and its program. */
struct pp_wanted {
    const struct pp_class *class;
    const struct pp_program *program;
};

/* The program of a class like those of the job's plan. */
pp_status pp_search_program(const struct pp_search *search, const struct pp_class *class,
                            struct pp_program *out) PP_MUST_CHECK;
/* Its time by the data sheet, alone or (load above 1) beside all other workers; without collectives. */
double pp_search_sheet_ns(const struct pp_search *search, const struct pp_program *program, int load);

/* The numbers of rows that were measured in the search's share of a device; *out lasts as long as the memory. */
pp_status pp_search_rows(const struct pp_search *search, const struct pp_row_counts **out) PP_MUST_CHECK;
/* The data sheet of a worker with the search's share, for pp_search_sheet_ns(). */
pp_status pp_search_begin_sheet(const struct pp_search *search) PP_MUST_CHECK;

/* The time under this load: measured, else made of other tasks: that of the stage's other kind of backward in
 * proportion, or a sum of kernels; *source says which. *ns = 0: none. */
pp_status pp_search_exact(const struct pp_search *search, const struct pp_wanted *wanted, int load, int64_t *ns,
                          int *source) PP_MUST_CHECK;
/* The same, or else interpolated. */
pp_status pp_search_measured(const struct pp_search *search, const struct pp_wanted *wanted, int load, int64_t *ns,
                             int *source) PP_MUST_CHECK;
/* The time under this load by the data sheet, times how much longer than by the data sheet the nearest measured
 * relative of the task takes; *ns = 0 if none is known (cost_scaled.c). */
pp_status pp_search_scaled(const struct pp_search *search, const struct pp_wanted *wanted, int load,
                           int64_t *ns) PP_MUST_CHECK;

/* Sets the times of all classes of computations that the profile knows. `cost` must be filled in by the machine; what
 * the profile does not know stays as it is. Counts the sources in *origin. */
pp_status pp_search_computations(const struct pp_search *search, struct pp_cost *cost,
                                 struct pp_cost_origin *origin) PP_MUST_CHECK;

#endif
