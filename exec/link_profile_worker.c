/* SPDX-License-Identifier: Apache-2.0 */
#include "exec/link_profile.h"

#include <math.h>
#include <stdlib.h>

#include "core/base/clock.h"
#include "exec/worker.h"

enum { WARM_UP = 20, STEPS = 400 };

static pp_status run_steps(struct pp_worker *worker, const struct pp_batches *batches, int64_t *step_ns)
{
    struct pp_step step = {.track = PP_TRACK_TRAIN, .phase = &worker->job->phase[PP_TRAIN], .batches = batches};
    struct pp_times times = {0};
    pp_status status = PP_OK;
    for (int i = 0; i < WARM_UP + STEPS && status == PP_OK; i++) {
        double loss;
        step.number = i;
        int64_t start = pp_now_ns();
        status = pp_worker_step(worker, &step, &loss);
        if (status == PP_OK && i >= WARM_UP) status = pp_times_add(&times, pp_now_ns() - start);
    }
    *step_ns = pp_times_quantiles(&times).median_ns;
    pp_times_free(&times);
    return status;
}

static pp_status measure_in(struct pp_world *world, const struct pp_link_setup *setup, const struct pp_job *job,
                            int64_t *step_ns, int *tasks)
{
    int rows = job->config->rows, seq = job->phase[PP_TRAIN].seq;
    struct pp_batches batches = {
        .rows = rows, .seq = seq, .stride = seq + 1, .length = seq + 1, .advance = seq, .count = 1};
    int32_t *words;
    struct pp_worker *worker = NULL;
    PP_TRY(PP_NEW(&words, (int64_t)rows * (seq + 1)));
    batches.words = words;
    pp_status status = pp_worker_open(world, job, setup->backend, 0, 0, &worker);
    if (status == PP_OK) {
        *tasks = worker->tracks[PP_TRACK_TRAIN].walk->nstops;
        status = run_steps(worker, &batches, step_ns);
    }
    pp_worker_close(worker);
    free(words);
    return status;
}

static pp_status measure(const struct pp_link_setup *setup, struct pp_job *job, int64_t *step_ns, int *tasks)
{
    struct pp_processes alone = {.count = 1, .on_host = 1, .hosts = 1};
    struct pp_world *world;
    for (int c = 0; c < job->train->nclasses; c++) job->phase[PP_TRAIN].programs[c].ncalls = 0;
    PP_TRY(pp_world_open(&pp_transport_inproc, &alone, 1, setup->config->threads, &world));
    world->polled = setup->backend->queue != NULL;
    pp_status status = measure_in(world, setup, job, step_ns, tasks);
    pp_world_close(world);
    return status;
}

pp_status pp_link_profile_worker(const struct pp_link_setup *setup, struct pp_job *few, struct pp_job *many,
                                 struct pp_link_profile *out)
{
    int64_t few_ns, many_ns;
    int few_tasks, many_tasks;
    PP_TRY(measure(setup, few, &few_ns, &few_tasks));
    PP_TRY(measure(setup, many, &many_ns, &many_tasks));
    double task = fmax(0, (double)(many_ns - few_ns) / (many_tasks - few_tasks));
    double step = fmax(0, (double)few_ns - task * few_tasks);
    PP_TRY(pp_link_profile_add(out, "worker", "task_overhead_ns", task));
    return pp_link_profile_add(out, "worker", "step_overhead_ns", step);
}
