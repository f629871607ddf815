/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/predict.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/devices.h"
#include "sim/split.h"

/* --times names a file of blocks: deals them out. */
static pp_status cut_blocks(const struct pp_predictor *p, struct pp_job *job)
{
    const struct pp_point *point = &job->point;
    const int stages = point->stages * point->virtual_stages;
    int *stage_rank;
    if (!job->times.blocks) return PP_OK;
    PP_TRY(PP_NEW(&stage_rank, stages));
    pp_status status = p->schedules->place(point->schedule, point->stages, point->virtual_stages, stage_rank);
    if (status == PP_OK) status = pp_given_times_cut(&job->times, p->config, stages, stage_rank);
    free(stage_rank);
    return status;
}

/* With --times alone: builds the plan without a model. It has one microbatch of one row for each chunk, one replica,
 * any number of stages, and no optimizer unless blocks say how long that takes. */
static pp_status build_given(const struct pp_predictor *p, struct pp_job *job)
{
    const struct pp_config *config = p->config;
    const struct pp_point *point = &job->point;
    struct pp_plan_spec spec = {.schedule = point->schedule,
                                .ranks = point->stages,
                                .virtual_stages = point->virtual_stages,
                                .microbatches = point->chunks,
                                .replicas = 1,
                                .checkpoint = point->checkpoint,
                                .recv_buffers = pp_config_recv_buffers(config, point->chunks, 0),
                                .training = true,
                                .optimizer = job->times.blocks && job->times.blocks->stepped};
    PP_TRY(cut_blocks(p, job));
    PP_TRY(pp_job_build_train(job, p->schedules, &spec));
    return pp_plan_check(job->train);
}

static pp_status create_given(const struct pp_predictor *p, const struct pp_point *point, struct pp_job **out)
{
    struct pp_job *job;
    PP_TRY(PP_NEW(&job, 1));
    job->config = p->config;
    job->model_ops = p->ops;
    job->point = *point;
    pp_status status = pp_config_check_values(p->config, point->checkpoint, point->zero);
    if (status == PP_OK) status = pp_given_times_of(p->config, &job->times);
    if (status == PP_OK) status = build_given(p, job);
    if (status != PP_OK)
        pp_job_free(job);
    else
        *out = job;
    return status;
}

/* Would a run evaluate, and so need memory for that? Constant sequences have no validation data. */
static bool evaluates(const struct pp_config *config)
{
    return !config->no_eval && !(config->data && strcmp(config->data, "constant") == 0);
}

int64_t pp_predict_memory(const struct pp_predictor *p)
{
    if (p->config->memory > 0 || !pp_config_machine(p->config)) return p->config->memory;
    return (int64_t)fmin(p->machine.usable_bytes, 0x1p62);
}

int64_t pp_device_bytes(const struct pp_job *job, int sharers, unsigned kinds)
{
    int64_t most = 0, sum = 0;
    for (int w = 0; w < pp_plan_workers(job->train); w++) {
        const int64_t *bytes = job->layout->bytes[pp_worker_rank(job->train, w)];
        if (sharers <= 1 || w % sharers == 0) sum = 0;
        for (int kind = 0; kind < PP_BYTES_KINDS; kind++) sum += kinds >> kind & 1 ? bytes[kind] : 0;
        if (sum > most) most = sum;
    }
    return most;
}

bool pp_predict_only_times(const struct pp_config *config)
{
    return config->times && !pp_device_kind(config->device)->waits;
}

pp_status pp_predict_job(const struct pp_predictor *p, const struct pp_point *point, struct pp_job **out)
{
    struct pp_config config;
    *out = NULL;
    if (pp_predict_only_times(p->config)) return create_given(p, point, out);
    PP_TRY(pp_split_point(p, point, &config));
    pp_status status = pp_job_create(&config, point, p->schedules, p->ops, evaluates(p->config), NULL, out);
    pp_split_point_free(p, &config);
    if (status == PP_OK) (*out)->config = p->config; /* `config` is local; p->config outlives the job */
    return status;
}

/* Finds the measured memory of processes, for --transport, else for the mover whose links were used, else for threads.
 * Not for queue devices, which have memory of their own. */
static pp_status find_process(const struct pp_predictor *p, struct pp_prediction *out)
{
    const char *asked = p->config->transport, *taken = out->origin.transport;
    const char *transport = asked && strcmp(asked, "auto") != 0 ? asked : taken ? taken : "inproc";
    if (pp_device_kind(p->config->device)->queue) return PP_OK;
    return pp_process_cost_find(p->db, out->job, transport, &out->process);
}

static pp_status find_measured(const struct pp_predictor *p, struct pp_prediction *out)
{
    if (p->db_lock) pthread_mutex_lock(p->db_lock);
    pp_status status = pp_cost_from_profile(out->job, p->db, &p->machine, &out->cost, &out->origin);
    if (status == PP_OK) status = find_process(p, out);
    if (p->db_lock) pthread_mutex_unlock(p->db_lock);
    return status;
}

/* --device delay: given times from a profile. */
static pp_status find_waits(const struct pp_predictor *p, struct pp_prediction *out)
{
    if (p->db_lock) pthread_mutex_lock(p->db_lock);
    pp_status status = pp_waits_from_profile(out->job, p->db, p->waits, &out->origin);
    if (p->db_lock) pthread_mutex_unlock(p->db_lock);
    if (status == PP_OK) status = pp_cost_from_times(out->job->train, &out->job->times, &out->cost);
    if (status == PP_OK) out->cost->source = pp_cost_worst_source(&out->origin);
    return status;
}

static pp_status find_cost(const struct pp_predictor *p, struct pp_prediction *out)
{
    if (p->waits) return find_waits(p, out);
    if (p->config->times) return pp_cost_from_times(out->job->train, &out->job->times, &out->cost);
    if (p->db) PP_TRY(find_measured(p, out));
    return out->cost ? PP_OK : pp_cost_from_machine(out->job, &p->machine, &out->cost);
}

pp_status pp_predict(const struct pp_predictor *p, const struct pp_point *point, bool trace, struct pp_prediction *out)
{
    const struct pp_sim_options options = {.trace = trace};
    *out = (struct pp_prediction){0};
    pp_status status;
    PP_TRY_DONE(pp_predict_job(p, point, &out->job));
    PP_TRY_DONE(find_cost(p, out));
    PP_TRY_DONE(pp_sim_run(out->job->train, out->cost, &options, &out->result));
done:
    if (status != PP_OK) pp_prediction_free(out);
    return status;
}

void pp_prediction_free(struct pp_prediction *prediction)
{
    pp_job_free(prediction->job);
    pp_cost_free(prediction->cost);
    pp_sim_result_free(&prediction->result);
    *prediction = (struct pp_prediction){0};
}
