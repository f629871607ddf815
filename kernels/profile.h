/* SPDX-License-Identifier: Apache-2.0
 *
 * The profile: how long the tasks of some configurations take on this machine.
 *
 * A task is timed where it will run: a worker has the arena of its rank and runs the compute tasks of the plan in the
 * plan's order, step after step, with its inputs always ready. So weights are read again for every microbatch, slots
 * are as cold as in training, and nothing is allocated. As many ranks as run at once in training, each on its own
 * core, take turns, one task each (load 1): each runs alone, and finds the cache that all share as the others have
 * left it, as a task at either end of a step does. Then they run at once (load min(workers, cores)): they share
 * caches and the memory bus. The optimizer step starts on all together, since in training it follows the global norm;
 * a worker that is early goes on with forward and backward tasks until then.
 *
 * Tasks with equal signatures in equal contexts (schedule and checkpoint mode: how cold the slots are) are one shape
 * and share their samples, whatever plan they ran in. A shape is measured in several rounds, spread over the session
 * (a disturbance then hits one of them) and over the plans that contain it. Samples during which the operating system
 * took the core away are dropped. Some tasks are timed kernel by kernel instead: what the sum of the kernels' medians
 * misses of the whole task is its residual.
 *
 * Queue devices (core/queue.h) time themselves: a task takes from its first kernel's start to its last kernel's end,
 * all of them queued before, and what queueing them takes the host is noted beside it. Where workers share a GPU, each
 * has its part of it: tasks are measured in that part, alone and with all sharers busy, and the context names it.
 */
#ifndef PP_KERNELS_PROFILE_H
#define PP_KERNELS_PROFILE_H

#include <stdbool.h>
#include <stdint.h>

#include "core/backend.h"
#include "core/db.h"
#include "core/job.h"
#include "core/model.h"
#include "core/program.h"
#include "core/stats.h"

/* What is measured and with what. Everything is borrowed. */
struct pp_profile_setup {
    const struct pp_config *config; /* lists of schedules, stages, ...; seconds: time for each shape under each load */
    const struct pp_schedules *schedules;
    const struct pp_model_ops *ops;
    const struct pp_backend *backend;
    int cores;                               /* how many workers may run at once; unused with queue devices */
    pp_status (*pin)(void *arg, int worker); /* called in each worker's thread; NULL: workers stay where they are */
    void *pin_arg;
    bool (*interrupted)(void); /* measuring ends early when it says so; NULL: never */
};

/* One kernel call of a shape's program, all calls of one name together. */
struct pp_profile_kernel {
    char name[PP_CALL_NAME];
    int calls; /* of this name in one task */
    struct pp_quantiles ns;
};

/* One shape under one load. */
struct pp_profile_cell {
    int load;
    struct pp_quantiles ns, host_ns; /* host_ns: to issue it; count 0 but for queue devices */
    int nkernels;
    struct pp_profile_kernel *kernels;
    int64_t cpu_ns;     /* mean, for how long of it the worker had a core; 0: not known (queue devices) */
    int64_t kernels_ns; /* sum over the calls of the kernels' medians; 0 if there are no kernel times */
    int64_t gap_ns;     /* mean of the task without the means of its kernels, for each call */
    struct pp_times task, host, cpu, *call; /* raw samples: of whole tasks; of each call [ncalls] */
};

enum { PP_PROFILE_LOADS = 8 }; /* different loads in one session, at most */
enum { PP_PROFILE_BEFORE, PP_PROFILE_DURING, PP_PROFILE_AFTER, PP_PROFILE_WHENS };

struct pp_profile_shape {
    char signature[PP_SIGNATURE_BYTES]; /* of the program */
    char context[PP_CONTEXT_SIZE];      /* of the job: pp_job_context */
    int kind;                           /* enum pp_kind */
    int ncalls;
    char (*call_names)[PP_CALL_NAME]; /* [ncalls] */
    double flops, bytes;
    struct pp_profile_cell cell[PP_PROFILE_LOADS]; /* parallel to the profile's loads; load 0: not needed */
};

struct pp_profile {
    struct pp_profile_setup setup;
    int npoints;
    struct pp_point *points;             /* those that are possible */
    int nloads, loads[PP_PROFILE_LOADS]; /* the first is 1; the others: workers busy at once in some configuration */
    int nshapes;
    struct pp_profile_shape *shapes; /* each once, in order of appearance */
    int64_t shapes_room;
    /* The reference kernel: before and after, alone; during, the mean over workers that ran it at the same moment. */
    struct pp_times reference[PP_PROFILE_WHENS];
    char device_text[128];
};

/* Makes an opened device the calling thread's. */
pp_status pp_profile_use(const struct pp_backend *backend, struct pp_device *device) PP_MUST_CHECK;
/* What the worker-th of `workers` threads of one process opens. */
struct pp_device_spec pp_profile_device(const struct pp_config *config, int worker, int workers);

/* Finds the shapes. A single impossible configuration is PP_USAGE; of several, the impossible are left out with a
 * line in the log. */
pp_status pp_profile_create(const struct pp_profile_setup *setup, struct pp_profile **out) PP_MUST_CHECK;
/* Measures. PP_INTERRUPTED leaves what there is. */
pp_status pp_profile_run(struct pp_profile *profile) PP_MUST_CHECK;
/* Writes samples of tasks, kernels and the reference kernel. */
pp_status pp_profile_store(struct pp_profile *profile, struct pp_db *db, int64_t run_id) PP_MUST_CHECK;
void pp_profile_free(struct pp_profile *profile); /* NULL is fine */

/* The shape with this signature and context, or -1. */
int pp_profile_find(const struct pp_profile *profile, const char *signature, const char *context);
/* Workers of a configuration that slow each other down: min(workers, cores), or those that share a GPU. */
int pp_profile_at_once(const struct pp_profile_setup *setup, const struct pp_plan *plan);
/* Position of that in loads[]. */
int pp_profile_load(const struct pp_profile *profile, const struct pp_plan *plan);
/* pp_job_context with the share of a GPU that the workers of the configuration have. */
void pp_profile_context(const struct pp_profile_setup *setup, const struct pp_job *job, char *buf, size_t size);
/* Largest change of the reference kernel between before, during and after, as a share of the first. NAN if not
 * measured. */
double pp_profile_drift(struct pp_profile *profile);
/* Part of the tasks' time, all means added, in which their workers had no core: others had it. NAN if not known. */
double pp_profile_taken(const struct pp_profile *profile);

#endif
