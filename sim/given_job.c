/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/given_job.h"

#include <stdlib.h>

/* --times names a file of blocks: deals them out. */
static pp_status cut_blocks(const struct pp_predictor *p, struct pp_cut_way way, struct pp_job *job)
{
    const struct pp_point *point = &job->point;
    int *stage_rank;
    if (!job->times.blocks) return PP_OK;
    PP_TRY(p->schedules->check(point->schedule, point->ranks, point->virtual_stages, point->chunks));
    const int stages = point->ranks * point->virtual_stages; /* so many a plan can hold */
    PP_TRY(PP_NEW(&stage_rank, stages));
    pp_status status = p->schedules->place(point->schedule, point->ranks, point->virtual_stages, stage_rank);
    if (status == PP_OK) status = pp_given_times_cut(&job->times, p->config, way, stages, stage_rank);
    free(stage_rank);
    return status;
}

/* The plan has one microbatch of one row for each chunk, one replica, any number of stages, and no optimizer unless
 * blocks say how long that takes. */
static pp_status build(const struct pp_predictor *p, struct pp_cut_way way, struct pp_job *job)
{
    const struct pp_config *config = p->config;
    const struct pp_point *point = &job->point;
    struct pp_plan_spec spec = {.schedule = point->schedule,
                                .ranks = point->ranks,
                                .virtual_stages = point->virtual_stages,
                                .microbatches = point->chunks,
                                .replicas = 1,
                                .checkpoint = point->checkpoint,
                                .recv_buffers = pp_config_recv_buffers(config, point->chunks, 0),
                                .batch_w = config->batch_w,
                                .training = true,
                                .optimizer = job->times.blocks && job->times.blocks->stepped};
    PP_TRY(cut_blocks(p, way, job));
    PP_TRY(pp_job_build_train(job, p->schedules, &spec));
    return pp_plan_check(job->train);
}

pp_status pp_given_job(const struct pp_predictor *p, const struct pp_point *point, struct pp_cut_way way,
                       struct pp_job **out)
{
    struct pp_job *job;
    *out = NULL;
    PP_TRY(PP_NEW(&job, 1));
    job->config = p->config;
    job->model_ops = p->ops;
    job->point = *point;
    pp_status status = pp_config_check_values(p->config, point->checkpoint, point->zero);
    if (status == PP_OK) status = pp_given_times_of(p->config, &job->times);
    if (status == PP_OK) status = build(p, way, job);
    if (status != PP_OK)
        pp_job_free(job);
    else
        *out = job;
    return status;
}
