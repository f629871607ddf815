/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/predict.h"

#include <math.h>
#include <stdlib.h>
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

/* The cuts of a point, and the config by which they are made (pp_split_begin()). */
struct cuts {
    const struct pp_predictor *p;
    const struct pp_point *point;
    struct pp_config config;
    double *layer_ns; /* memory of the config's; NULL: it has none of its own */
};

/* Begins the job of a cut. *out = NULL if it would be cut as `unlike` is (NULL: there is none). PP_USAGE if the cut is
 * not possible. */
static pp_status begin_cut(struct cuts *c, int cut, const struct pp_job *unlike, struct pp_job **out)
{
    pp_split_choose(c->p, c->point, cut, &c->config);
    const pp_status status = pp_job_begin(&c->config, c->point, c->p->schedules, c->p->ops, out);
    if (status != PP_OK || !unlike || !pp_same_cut((*out)->model, unlike->model)) return status;
    pp_job_free(*out);
    *out = NULL;
    return PP_OK;
}

/* Ends what was done with a job that was begun, which needed the config of the cuts. */
static pp_status end_cut(const struct cuts *c, pp_status status, struct pp_job *job, struct pp_job **out)
{
    job->config = c->p->config;
    if (status == PP_OK)
        *out = job;
    else
        pp_job_free(job);
    return status;
}

static pp_status complete(const struct cuts *c, struct pp_job *job)
{
    return pp_job_complete(job, c->p->schedules, evaluates(c->p->config), NULL);
}

/* May jobs of which only the cost and the arenas are asked have their calls once (pp_job.once)? Measured times are
 * looked up by whole programs. */
static bool asks_once(const struct pp_predictor *p) { return !p->db; }

/* The whole job of one of pp_split_cuts(), as begin_cut(). Jobs of given times have no model, and are never alike. */
static pp_status make_job(struct cuts *c, int cut, const struct pp_job *unlike, struct pp_job **out)
{
    const struct pp_predictor *p = c->p;
    struct pp_job *job;
    *out = NULL;
    if (pp_predict_only_times(p->config)) return pp_given_job(p, c->point, pp_split_way(c->point, cut), out);
    PP_TRY(begin_cut(c, cut, unlike, &job));
    if (!job) return PP_OK;
    return end_cut(c, complete(c, job), job, out);
}

/* The same for who only asks what it costs. */
static pp_status make_lean_job(struct cuts *c, int cut, const struct pp_job_lender *lender, struct pp_job **out)
{
    const struct pp_predictor *p = c->p;
    struct pp_job *job;
    if (pp_predict_only_times(p->config)) return make_job(c, cut, NULL, out);
    *out = NULL;
    PP_TRY(begin_cut(c, cut, lender->job, &job));
    if (!job) return PP_OK;
    job->once = asks_once(p);
    return end_cut(c, pp_job_train(job, p->schedules, lender), job, out);
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

int pp_predict_sharers(const struct pp_predictor *p, const struct pp_job *job)
{
    const bool gpus = p->machine.cores == 0 && !p->waits && !p->config->times; /* else --gpus means nothing */
    return gpus ? pp_cost_sharers(job) : 1;
}

/* Bytes of the device that needs most; 0 of given times. */
static int64_t bytes_of(const struct pp_job *job, int sharers)
{
    return job->layout ? pp_device_bytes(job, sharers, PP_ALL_BYTES) : 0;
}

static bool fits(const struct pp_predictor *p, const struct pp_job *job, int sharers)
{
    const int64_t limit = pp_predict_memory(p);
    return limit == 0 || bytes_of(job, sharers) <= limit;
}

struct trying {
    const struct pp_predictor *p;
    struct cuts cuts;
    bool trace;
    int sharers;
    int best_cut; /* of *best: of those that fit the quickest, else the one that needs least memory */
    bool best_fits;
    struct pp_prediction *best; /* only a job, if it does not fit */
};

/* Gives a job the rest of a prediction. */
static pp_status finish(const struct trying *t, struct pp_prediction *out)
{
    const struct pp_sim_options options = {.trace = t->trace};
    PP_TRY(add_cost(t->p, out));
    return pp_sim_run(out->job->train, out->cost, &options, &out->result);
}

/* A cut that does not fit is not simulated yet: a leaner one may take its place. */
static pp_status try_first_cut(struct trying *t)
{
    PP_TRY(make_job(&t->cuts, 0, NULL, &t->best->job));
    t->sharers = pp_predict_sharers(t->p, t->best->job);
    t->best_fits = fits(t->p, t->best->job, t->sharers);
    return t->best_fits ? finish(t, t->best) : PP_OK;
}

/* Sets *ns to what another cut than that of `known` takes at least; INT64_MAX: it is the same cut, or none is possible.
 */
static pp_status find_least(struct cuts *c, int cut, const struct pp_prediction *known, int64_t *ns)
{
    const struct pp_job_lender lender = {known->job, pp_cost_measured(&known->origin) ? NULL : known->cost};
    struct pp_prediction other = {0};
    *ns = INT64_MAX;
    pp_status status = make_lean_job(c, cut, &lender, &other.job);
    if (status != PP_OK) return status == PP_USAGE ? PP_OK : status;
    if (!other.job) return PP_OK;
    PP_TRY_DONE(add_cost(c->p, &other));
    PP_TRY_DONE(pp_sim_least(other.job->train, other.cost, ns));
done:
    pp_prediction_free(&other);
    return status;
}

/* May the cut be better than the best one, as far as is known without making and simulating all of it? */
static pp_status may_be_better(struct trying *t, int cut, bool *out)
{
    int64_t least;
    *out = !(t->best_fits && pp_split_is_spare(t->cuts.point, cut, t->best_cut));
    if (!*out || !t->best_fits || t->p->config->jitter > 0) return PP_OK; /* bounds are without jitter */
    PP_TRY(find_least(&t->cuts, cut, t->best, &least));
    *out = least < t->best->result.batch_ns;
    return PP_OK;
}

/* Is the other cut, which has a job alone, better than the best one? If it fits it gets the rest. */
static pp_status compare(const struct trying *t, struct pp_prediction *other, bool other_fits, bool *better)
{
    *better = !t->best_fits && bytes_of(other->job, t->sharers) < bytes_of(t->best->job, t->sharers);
    if (!other_fits) return PP_OK;
    PP_TRY(finish(t, other));
    *better = !t->best_fits || other->result.batch_ns < t->best->result.batch_ns;
    return PP_OK;
}

/* Another cut: takes the place of the best one if it is better. One that is not possible is none. */
static pp_status try_cut(struct trying *t, int cut)
{
    struct pp_prediction other = {0};
    bool better;
    PP_TRY(may_be_better(t, cut, &better));
    if (!better) return PP_OK;
    pp_status status = make_job(&t->cuts, cut, t->best->job, &other.job);
    if (status != PP_OK) return status == PP_USAGE ? PP_OK : status;
    if (!other.job) return PP_OK; /* it is the best one's cut */
    const bool other_fits = fits(t->p, other.job, t->sharers);
    better = false;
    if (other_fits || !t->best_fits) status = compare(t, &other, other_fits, &better);
    if (status == PP_OK && better) {
        const struct pp_prediction worse = *t->best;
        *t->best = other;
        t->best_cut = cut;
        t->best_fits = other_fits;
        other = worse;
    }
    pp_prediction_free(&other);
    return status;
}

static pp_status try_cuts(struct trying *t, const struct pp_point *point)
{
    pp_status status;
    t->cuts = (struct cuts){.p = t->p, .point = point};
    *t->best = (struct pp_prediction){0};
    PP_TRY(pp_split_begin(t->p, point, &t->cuts.config, &t->cuts.layer_ns));
    PP_TRY_DONE(try_first_cut(t));
    for (int cut = 1; cut < pp_split_cuts(t->p); cut++) PP_TRY_DONE(try_cut(t, cut));
done:
    free(t->cuts.layer_ns);
    if (status != PP_OK) pp_prediction_free(t->best);
    return status;
}

pp_status pp_predict(const struct pp_predictor *p, const struct pp_point *point, bool trace, struct pp_prediction *out)
{
    struct trying t = {.p = p, .trace = trace, .best = out};
    PP_TRY(try_cuts(&t, point));
    const pp_status status = t.best_fits ? PP_OK : finish(&t, out);
    if (status != PP_OK) pp_prediction_free(out);
    return status;
}

pp_status pp_predict_fitting(const struct pp_predictor *p, const struct pp_point *point, struct pp_prediction *out)
{
    struct trying t = {.p = p, .best = out};
    PP_TRY(try_cuts(&t, point));
    if (!t.best_fits) pp_prediction_free(out);
    return PP_OK;
}

/* Is what stages have, whatever the plan, more than all devices have room for? However the layers are cut, some rank
 * has at least the mean. job: one that was begun. (With a database it matters whether it has any times.) */
static bool never_fits(const struct pp_predictor *p, const struct pp_job *job)
{
    const int64_t limit = pp_predict_memory(p);
    int64_t all = 0;
    for (int s = 0; s < job->model->nstages; s++) {
        const struct pp_stage_bytes bytes = pp_stage_bytes_of(job->model, s);
        all += bytes.values + bytes.copies + bytes.gradients + bytes.state;
    }
    return limit > 0 && !p->db && all / job->point.ranks > limit;
}

/* Makes the job of the first cut, with all phases and the layout. *out = NULL: its plans are possible, but no cut fits
 * into memory. */
static pp_status make_first_job(struct cuts *c, struct pp_job **out)
{
    const struct pp_predictor *p = c->p;
    struct pp_job *job;
    if (pp_predict_only_times(p->config)) return make_job(c, 0, NULL, out);
    *out = NULL;
    PP_TRY(begin_cut(c, 0, NULL, &job));
    job->once = asks_once(p);
    if (!never_fits(p, job)) return end_cut(c, complete(c, job), job, out);
    const pp_status status = pp_job_plan(job, p->schedules, evaluates(p->config));
    pp_job_free(job);
    return status;
}

/* first: empty; the caller frees it. */
static pp_status find_leasts(struct cuts *c, struct pp_prediction *first, struct pp_least *out)
{
    int64_t *ns = &first->result.batch_ns, least, any;
    PP_TRY(make_first_job(c, &first->job));
    *out = (struct pp_least){.first = INFINITY, .any = INFINITY};
    if (!first->job) return PP_OK;
    PP_TRY(add_cost(c->p, first));
    PP_TRY(pp_sim_least(first->job->train, first->cost, ns));
    out->first = pp_prediction_value(c->p, first);
    out->measured = pp_cost_measured(&first->origin);
    out->all = pp_cost_measured_all(&first->origin);
    out->first_fits = fits(c->p, first->job, pp_predict_sharers(c->p, first->job));
    any = *ns;
    for (int cut = 1; cut < pp_split_cuts(c->p); cut++) {
        PP_TRY(find_least(c, cut, first, &least));
        if (least < any) any = least;
    }
    *ns = any;
    out->any = pp_prediction_value(c->p, first);
    return PP_OK;
}

pp_status pp_predict_least(const struct pp_predictor *p, const struct pp_point *point, struct pp_least *out)
{
    struct cuts cuts = {.p = p, .point = point};
    struct pp_prediction first = {0};
    PP_TRY(pp_split_begin(p, point, &cuts.config, &cuts.layer_ns));
    const pp_status status = find_leasts(&cuts, &first, out);
    free(cuts.layer_ns);
    pp_prediction_free(&first);
    return status;
}

pp_status pp_predict_job(const struct pp_predictor *p, const struct pp_point *point, struct pp_job **out)
{
    struct cuts cuts = {.p = p, .point = point, .config = *p->config};
    struct pp_prediction prediction;
    struct trying t = {.p = p, .best = &prediction};
    if (pp_split_cuts(p) == 1) return make_job(&cuts, 0, NULL, out);
    *out = NULL;
    PP_TRY(try_cuts(&t, point));
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
