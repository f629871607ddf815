/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/predict.h"

#include <math.h>
#include <string.h>

#include "core/options/devices.h"
#include "sim/given_job.h"
#include "sim/split.h"
#include "sim/throughput.h"

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

/* The cost of a job, which then knows how many workers share a device. */
static pp_status add_cost(const struct pp_predictor *p, struct pp_prediction *out)
{
    PP_TRY(find_cost(p, out));
    out->job->sharers = out->cost->sharers;
    return PP_OK;
}

static bool fits(const struct pp_predictor *p, const struct pp_job *job, int sharers)
{
    const int64_t limit = pp_predict_memory(p);
    if (!job->layout) return true; /* given times */
    return limit == 0 || pp_device_bytes(job, sharers, PP_ALL_BYTES) <= limit;
}

struct trying {
    const struct pp_predictor *p;
    const struct pp_point *point;
    bool trace;
    bool only_fitting; /* a cut that does not fit is not simulated */
    int best_cut;      /* of *best; without a result, if that cut does not fit and only_fitting is set */
    struct pp_prediction *best;
};

static pp_status simulate(const struct trying *t, struct pp_prediction *out)
{
    const struct pp_sim_options options = {.trace = t->trace};
    return pp_sim_run(out->job->train, out->cost, &options, &out->result);
}

static pp_status try_first_cut(const struct trying *t)
{
    PP_TRY(make_job(t->p, t->point, 0, NULL, &t->best->job));
    PP_TRY(add_cost(t->p, t->best));
    return t->only_fitting && !fits(t->p, t->best->job, t->best->cost->sharers) ? PP_OK : simulate(t, t->best);
}

static pp_status predict_cut(const struct trying *t, struct pp_prediction *out)
{
    PP_TRY(add_cost(t->p, out));
    return simulate(t, out);
}

/* Another cut: takes the place of the best one if it is better. One that is not possible is none. */
static pp_status try_cut(struct trying *t, int cut)
{
    struct pp_prediction other = {0};
    const int sharers = t->best->cost->sharers;
    const bool best_fits = fits(t->p, t->best->job, sharers), spare = pp_split_is_spare(t->point, cut, t->best_cut);
    if (spare && best_fits) return PP_OK;
    pp_status status = make_job(t->p, t->point, cut, t->best->job, &other.job);
    if (status != PP_OK) return status == PP_USAGE ? PP_OK : status;
    if (!other.job) return PP_OK; /* it is the best one's cut */
    const bool other_fits = fits(t->p, other.job, sharers);
    const bool may_win = other_fits || !(best_fits || spare || t->only_fitting);
    if (may_win) status = predict_cut(t, &other);
    if (status == PP_OK && may_win && (other_fits > best_fits || other.result.batch_ns < t->best->result.batch_ns)) {
        const struct pp_prediction slower = *t->best;
        *t->best = other;
        t->best_cut = cut;
        other = slower;
    }
    pp_prediction_free(&other);
    return status;
}

static pp_status try_cuts(struct trying *t)
{
    pp_status status;
    *t->best = (struct pp_prediction){0};
    PP_TRY_DONE(try_first_cut(t));
    for (int cut = 1; cut < pp_split_cuts(t->p, t->point); cut++) PP_TRY_DONE(try_cut(t, cut));
done:
    if (status != PP_OK) pp_prediction_free(t->best);
    return status;
}

pp_status pp_predict(const struct pp_predictor *p, const struct pp_point *point, bool trace, struct pp_prediction *out)
{
    struct trying t = {.p = p, .point = point, .trace = trace, .best = out};
    return try_cuts(&t);
}

pp_status pp_predict_fitting(const struct pp_predictor *p, const struct pp_point *point, struct pp_prediction *out)
{
    struct trying t = {.p = p, .point = point, .only_fitting = true, .best = out};
    PP_TRY(try_cuts(&t));
    if (!fits(p, out->job, out->cost->sharers)) pp_prediction_free(out);
    return PP_OK;
}

/* Lowers *ns to what another cut than that of `first` takes at least, if it is possible. */
static pp_status lower_to_cut(const struct pp_predictor *p, const struct pp_point *point, int cut,
                              const struct pp_prediction *first, int64_t *ns)
{
    struct pp_prediction other = {0};
    int64_t least;
    pp_status status = make_job(p, point, cut, first->job, &other.job);
    if (status != PP_OK) return status == PP_USAGE ? PP_OK : status;
    if (!other.job) return PP_OK;
    PP_TRY_DONE(add_cost(p, &other));
    PP_TRY_DONE(pp_sim_least(other.job->train, other.cost, &least));
    if (least < *ns) *ns = least;
done:
    pp_prediction_free(&other);
    return status;
}

pp_status pp_predict_least(const struct pp_predictor *p, const struct pp_point *point, struct pp_least *out)
{
    struct pp_prediction first = {0};
    int64_t *ns = &first.result.batch_ns;
    pp_status status;
    PP_TRY_DONE(make_job(p, point, 0, NULL, &first.job));
    PP_TRY_DONE(add_cost(p, &first));
    PP_TRY_DONE(pp_sim_least(first.job->train, first.cost, ns));
    out->first = pp_prediction_value(p, &first);
    for (int cut = 1; cut < pp_split_cuts(p, point); cut++) PP_TRY_DONE(lower_to_cut(p, point, cut, &first, ns));
    out->any = pp_prediction_value(p, &first);
    out->measured = pp_cost_measured(&first.origin);
    out->first_fits = fits(p, first.job, first.cost->sharers);
done:
    pp_prediction_free(&first);
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
