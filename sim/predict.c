/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/predict.h"

#include <math.h>
#include <string.h>

#include "core/options/devices.h"
#include "sim/given_job.h"
#include "sim/split.h"

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

/* cut: of pp_split_cuts(). unlike: *out = NULL if the job would be cut as this one is; NULL: there is none. Given times
 * have no model, and are never said to be alike. */
static pp_status make_job(const struct pp_predictor *p, const struct pp_point *point, int cut,
                          const struct pp_job *unlike, struct pp_job **out)
{
    struct pp_config config;
    struct pp_job *job = NULL;
    *out = NULL;
    if (pp_predict_only_times(p->config)) return pp_given_job(p, point, pp_split_way(point, cut), out);
    PP_TRY(pp_split_point(p, point, cut, &config));
    pp_status status = pp_job_begin(&config, point, p->schedules, p->ops, &job);
    const bool alike = status == PP_OK && unlike && pp_same_cut(job->model, unlike->model);
    if (status == PP_OK && !alike) status = pp_job_complete(job, p->schedules, evaluates(p->config), NULL);
    pp_split_point_free(p, &config);
    if (status != PP_OK || alike) {
        pp_job_free(job);
        return status;
    }
    job->config = p->config; /* `config` is local; p->config outlives the job */
    *out = job;
    return PP_OK;
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
    PP_TRY(pp_cost_from_profile(out->job, p->db, &p->machine, &out->cost, &out->origin));
    return find_process(p, out);
}

/* --device delay: given times from a profile. */
static pp_status find_waits(const struct pp_predictor *p, struct pp_prediction *out)
{
    PP_TRY(pp_waits_from_profile(out->job, p->db, p->waits, &out->origin));
    PP_TRY(pp_cost_from_times(out->job->train, &out->job->times, &out->cost));
    out->cost->source = pp_cost_worst_source(&out->origin);
    return PP_OK;
}

static pp_status find_cost(const struct pp_predictor *p, struct pp_prediction *out)
{
    if (p->waits) return find_waits(p, out);
    if (p->config->times) return pp_cost_from_times(out->job->train, &out->job->times, &out->cost);
    if (p->db) PP_TRY(find_measured(p, out));
    return out->cost ? PP_OK : pp_cost_from_machine(out->job, &p->machine, &out->cost);
}

static pp_status finish(const struct pp_predictor *p, bool trace, struct pp_prediction *out)
{
    const struct pp_sim_options options = {.trace = trace};
    PP_TRY(find_cost(p, out));
    out->job->sharers = out->cost->sharers;
    return pp_sim_run(out->job->train, out->cost, &options, &out->result);
}

static bool fits(const struct pp_predictor *p, const struct pp_job *job, int sharers)
{
    const int64_t limit = pp_predict_memory(p);
    if (!job->layout) return true; /* given times */
    return limit == 0 || pp_device_bytes(job, sharers, PP_ALL_BYTES) <= limit;
}

/* Another cut of the same point: takes the place of *best, made by *best_cut, if it is better. One that is not possible
 * is none. */
static pp_status try_cut(const struct pp_predictor *p, const struct pp_point *point, int cut, bool trace,
                         struct pp_prediction *best, int *best_cut)
{
    struct pp_prediction other = {0};
    const int sharers = best->cost->sharers;
    pp_status status = make_job(p, point, cut, best->job, &other.job);
    if (status != PP_OK) return status == PP_USAGE ? PP_OK : status;
    if (!other.job) return PP_OK; /* it is the best one's cut */
    const bool best_fits = fits(p, best->job, sharers), other_fits = fits(p, other.job, sharers);
    const bool may_win = other_fits || !best_fits;
    if (may_win) status = finish(p, trace, &other);
    if (status == PP_OK && may_win && (other_fits > best_fits || other.result.batch_ns < best->result.batch_ns)) {
        const struct pp_prediction slower = *best;
        *best = other;
        *best_cut = cut;
        other = slower;
    }
    pp_prediction_free(&other);
    return status;
}

pp_status pp_predict(const struct pp_predictor *p, const struct pp_point *point, bool trace, struct pp_prediction *out)
{
    *out = (struct pp_prediction){0};
    pp_status status;
    int best = 0;
    PP_TRY_DONE(make_job(p, point, 0, NULL, &out->job));
    PP_TRY_DONE(finish(p, trace, out));
    for (int cut = 1; cut < pp_split_cuts(p, point); cut++)
        if (!pp_split_is_spare(point, cut, best)) PP_TRY_DONE(try_cut(p, point, cut, trace, out, &best));
done:
    if (status != PP_OK) pp_prediction_free(out);
    return status;
}

pp_status pp_predict_job(const struct pp_predictor *p, const struct pp_point *point, struct pp_job **out)
{
    struct pp_prediction prediction;
    if (pp_split_cuts(p, point) == 1) return make_job(p, point, 0, NULL, out);
    *out = NULL;
    PP_TRY(pp_predict(p, point, false, &prediction));
    *out = prediction.job;
    prediction.job = NULL;
    pp_prediction_free(&prediction);
    return PP_OK;
}

void pp_prediction_free(struct pp_prediction *prediction)
{
    pp_job_free(prediction->job);
    pp_cost_free(prediction->cost);
    pp_sim_result_free(&prediction->result);
    *prediction = (struct pp_prediction){0};
}
