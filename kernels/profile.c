/* SPDX-License-Identifier: Apache-2.0
 *
 * The session: rounds over the configurations, teams of ranks under each load, and what the samples say in the end.
 */
#include "kernels/profile.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/clock.h"
#include "core/base/log.h"
#include "core/model/queue.h"
#include "kernels/profile_team.h"

enum { REFERENCES = 50 };

const char *const pp_profile_whens[PP_PROFILE_WHENS] = {"before", "during", "after"};

/* State of the session. A timing is one shape under one load in one round. */
struct session {
    struct pp_profile *profile;
    int64_t start_ns;
    int timings, done;
};

/* One configuration in one round. */
struct visit {
    struct session *session;
    struct pp_job *job;
    int *shape; /* [nclasses] shape of each class, -1 where nothing is computed */
    bool *open; /* [nshapes * PP_PROFILE_LOADS] still to be measured in this round */
};

static void show_progress(const struct session *s)
{
    double elapsed = (double)(pp_now_ns() - s->start_ns) / 1e9;
    if (s->done == 0) return pp_progress("profiling: %d timings to make", s->timings);
    pp_progress("profiling: %d of %d timings, about %.0f s left", s->done, s->timings,
                elapsed * (s->timings - s->done) / s->done);
}

static bool *is_open(const struct visit *v, int cls, int load)
{
    return &v->open[v->shape[cls] * PP_PROFILE_LOADS + load];
}

/* Is the class that of a step's first backward, which is measured among others of its shape that add? */
static bool leads(const struct visit *v, int cls, int load)
{
    const struct pp_plan *plan = v->job->train;
    const struct pp_class *first = &plan->classes[cls];
    for (int c = 0; c < plan->nclasses && !first->adds; c++) {
        const struct pp_class *other = &plan->classes[c];
        if (other->adds && other->kind == first->kind && other->stage == first->stage && other->rows == first->rows &&
            other->part == first->part && other->parts == first->parts && *is_open(v, c, load))
            return true;
    }
    return false;
}

/* Marks what the rank computes and the round still misses under this load; returns how many classes want time. */
static int want(const struct visit *v, int rank, int load, struct pp_tally *tally)
{
    const struct pp_plan *plan = v->job->train;
    int wanted = 0;
    for (int c = 0; c < plan->nclasses; c++) {
        bool mine = v->shape[c] >= 0 && plan->stage_rank[plan->classes[c].stage] == rank;
        tally[c].wanted = mine && *is_open(v, c, load);
        wanted += tally[c].wanted && !leads(v, c, load);
    }
    return wanted;
}

static pp_status keep(const struct visit *v, const struct pp_team_member *member, int load)
{
    for (int c = 0; c < v->job->train->nclasses; c++) {
        const struct pp_tally *tally = &member->tally[c];
        if (v->shape[c] < 0) continue;
        struct pp_profile_shape *shape = &v->session->profile->shapes[v->shape[c]];
        struct pp_profile_cell *cell = &shape->cell[load];
        PP_TRY(pp_times_merge(&cell->task, &tally->task));
        PP_TRY(pp_times_merge(&cell->host, &tally->host));
        PP_TRY(pp_times_merge(&cell->cpu, &tally->cpu));
        for (int i = 0; i < shape->ncalls && tally->call; i++) PP_TRY(pp_times_merge(&cell->call[i], &tally->call[i]));
    }
    return PP_OK;
}

static void release(const struct visit *v, struct pp_team_member *members, int n)
{
    for (int i = 0; i < n; i++) {
        for (int c = 0; c < v->job->train->nclasses && members[i].tally; c++) {
            struct pp_tally *tally = &members[i].tally[c];
            for (int k = 0; tally->call && k < v->job->phase[PP_TRAIN].programs[c].ncalls; k++)
                pp_times_free(&tally->call[k]);
            free(tally->call);
            pp_times_free(&tally->task);
            pp_times_free(&tally->host);
            pp_times_free(&tally->cpu);
        }
        free(members[i].tally);
    }
    free(members);
}

/* Ranks first, first + 1, ... (counted around): in turns under load 1, else at once; load: index in the profile's
 * loads. */
static pp_status visit_ranks(const struct visit *v, int first, int n, int load)
{
    struct pp_profile *profile = v->session->profile;
    double seconds = profile->setup.config->seconds / profile->setup.config->rounds;
    struct pp_team_member *members;
    PP_TRY(PP_NEW(&members, n));
    int wanted = 0;
    int64_t all_ns = 0;
    bool in_turns = profile->loads[load] == 1;
    pp_status status = PP_OK;
    for (int i = 0; i < n && status == PP_OK; i++) {
        members[i].rank = (first + i) % v->job->train->ranks;
        status = PP_NEW(&members[i].tally, v->job->train->nclasses);
        if (status != PP_OK) break;
        int mine = want(v, members[i].rank, load, members[i].tally);
        members[i].budget_ns = (int64_t)(seconds * 1e9 * mine);
        all_ns += members[i].budget_ns;
        wanted += mine;
    }
    for (int i = 0; i < n && in_turns; i++) members[i].budget_ns = all_ns;
    if (status == PP_OK && wanted > 0) {
        int64_t reference_ns;
        show_progress(v->session);
        status = pp_team_run(&profile->setup, v->job, members, n, in_turns, &reference_ns);
        bool measured = status == PP_OK || status == PP_INTERRUPTED;
        for (int i = 0; i < n && measured; i++)
            if (keep(v, &members[i], load) != PP_OK) status = PP_NOMEM;
        if (status == PP_OK) status = pp_times_add(&profile->reference[PP_PROFILE_DURING], reference_ns);
    }
    release(v, members, n);
    return status;
}

/* How many ranks run their tasks beside each other, at once or in turns. A queue device is no core: what one worker
 * leaves there is the others' only where they share it, and then they have parts of it. */
static int together(const struct visit *v, int load)
{
    const struct pp_profile *profile = v->session->profile;
    if (profile->loads[load] > 1 || profile->setup.backend->queue) return profile->loads[load];
    int n = pp_profile_at_once(&profile->setup, v->job->train);
    return n < v->job->train->ranks ? n : v->job->train->ranks;
}

static pp_status visit_load(const struct visit *v, int load)
{
    const struct pp_plan *plan = v->job->train;
    int n = together(v, load);
    for (int rank = 0; rank < plan->ranks; rank += n) PP_TRY(visit_ranks(v, rank, n, load));
    for (int c = 0; c < plan->nclasses; c++) {
        if (v->shape[c] < 0 || !*is_open(v, c, load)) continue;
        *is_open(v, c, load) = false;
        v->session->done++;
    }
    return PP_OK;
}

/* All ranks, one task at a time; then all ranks in groups of as many as run at once. */
static pp_status visit_job(const struct visit *v)
{
    PP_TRY(visit_load(v, 0));
    int load = pp_profile_load(v->session->profile, v->job->train);
    return load > 0 ? visit_load(v, load) : PP_OK;
}

static pp_status visit_point(struct session *s, const struct pp_point *point, bool *open)
{
    const struct pp_profile_setup *setup = &s->profile->setup;
    struct visit v = {.session = s, .open = open};
    PP_TRY(pp_job_create(setup->config, point, setup->schedules, setup->ops, false, NULL, &v.job));
    char context[PP_CONTEXT_SIZE];
    pp_profile_context(setup, v.job, context, sizeof context);
    pp_status status = PP_NEW(&v.shape, v.job->train->nclasses);
    for (int c = 0; c < v.job->train->nclasses && status == PP_OK; c++) {
        bool computes = pp_kinds[v.job->train->classes[c].kind].computes;
        const char *signature = v.job->phase[PP_TRAIN].programs[c].signature;
        v.shape[c] = computes ? pp_profile_find(s->profile, signature, context) : -1;
    }
    if (status == PP_OK) status = visit_job(&v);
    free(v.shape);
    pp_job_free(v.job);
    return status;
}

/* Each shape once, in the first configuration that has it; every round begins with another configuration. */
static pp_status run_round(struct session *s, int round)
{
    const struct pp_profile *profile = s->profile;
    bool *open;
    PP_TRY(PP_NEW(&open, profile->nshapes * PP_PROFILE_LOADS));
    memset(open, true, (size_t)profile->nshapes * PP_PROFILE_LOADS * sizeof *open);
    pp_status status = PP_OK;
    for (int i = 0; i < profile->npoints && status == PP_OK; i++) {
        int point = (i + round * profile->npoints / profile->setup.config->rounds) % profile->npoints;
        status = visit_point(s, &profile->points[point], open);
    }
    free(open);
    return status;
}

struct pp_device_spec pp_profile_device(const struct pp_config *config, int worker, int workers)
{
    return (struct pp_device_spec){.worker = worker,
                                   .workers = workers,
                                   .on_host = 1,
                                   .threads = config->threads,
                                   .gpus = config->gpus,
                                   .precision = config->model.precision,
                                   .algorithms = config->algorithms};
}

pp_status pp_profile_use(const struct pp_backend *backend, struct pp_device *device)
{
    return backend->queue ? backend->queue->use(device) : PP_OK;
}

static pp_status take_references(struct pp_profile *profile, int when)
{
    const struct pp_profile_setup *setup = &profile->setup;
    struct pp_device *device;
    struct pp_device_spec spec = pp_profile_device(setup->config, 0, 1);
    PP_TRY(setup->backend->open(&spec, &device));
    pp_status status = pp_profile_use(setup->backend, device);
    for (int i = 0; i < REFERENCES && status == PP_OK; i++)
        setup->backend->reference_ns(device); /* until the clock has settled */
    for (int i = 0; i < REFERENCES && status == PP_OK; i++)
        status = pp_times_add(&profile->reference[when], setup->backend->reference_ns(device));
    setup->backend->close(device);
    return status;
}

/* The kernel of all calls that are called as call i. */
static pp_status sum_up_kernel(const struct pp_profile_shape *shape, const struct pp_profile_cell *cell, int i,
                               struct pp_profile_kernel *kernel)
{
    struct pp_times all = {0};
    pp_status status = PP_OK;
    memcpy(kernel->name, shape->call_names[i], sizeof kernel->name);
    for (int j = i; j < shape->ncalls && status == PP_OK; j++) {
        if (strcmp(kernel->name, shape->call_names[j]) != 0) continue;
        status = pp_times_merge(&all, &cell->call[j]);
        kernel->calls++;
    }
    kernel->ns = pp_times_quantiles(&all);
    pp_times_free(&all);
    return status;
}

/* Calls of one name become one kernel. */
static pp_status sum_up_kernels(struct pp_profile_shape *shape, struct pp_profile_cell *cell)
{
    free(cell->kernels);
    cell->nkernels = 0;
    PP_TRY(PP_NEW(&cell->kernels, shape->ncalls));
    for (int i = 0; i < shape->ncalls; i++) {
        int k = 0;
        while (k < cell->nkernels && strcmp(cell->kernels[k].name, shape->call_names[i]) != 0) k++;
        if (k == cell->nkernels) PP_TRY(sum_up_kernel(shape, cell, i, &cell->kernels[cell->nkernels++]));
    }
    return PP_OK;
}

static pp_status sum_up(struct pp_profile_shape *shape, struct pp_profile_cell *cell)
{
    cell->ns = pp_times_quantiles(&cell->task);
    cell->host_ns = pp_times_quantiles(&cell->host);
    cell->cpu_ns = pp_times_quantiles(&cell->cpu).mean_ns;
    if (cell->load == 0 || shape->ncalls == 0 || cell->call[0].n == 0 || cell->task.n == 0) return PP_OK;
    PP_TRY(sum_up_kernels(shape, cell));
    int64_t means_ns = 0;
    cell->kernels_ns = 0;
    for (int i = 0; i < shape->ncalls; i++) cell->kernels_ns += pp_times_quantiles(&cell->call[i]).median_ns;
    for (int k = 0; k < cell->nkernels; k++) means_ns += cell->kernels[k].calls * cell->kernels[k].ns.mean_ns;
    cell->gap_ns = llround((double)(cell->ns.mean_ns - means_ns) / shape->ncalls);
    return PP_OK;
}

pp_status pp_profile_run(struct pp_profile *profile)
{
    struct session s = {.profile = profile, .start_ns = pp_now_ns()};
    const int rounds = profile->setup.config->rounds;
    for (int i = 0; i < profile->nshapes; i++)
        for (int load = 0; load < profile->nloads; load++)
            s.timings += rounds * (profile->shapes[i].cell[load].load > 0);
    PP_TRY(take_references(profile, PP_PROFILE_BEFORE));
    pp_status status = PP_OK;
    for (int round = 0; round < rounds && status == PP_OK; round++) status = run_round(&s, round);
    pp_progress(NULL);
    if (status != PP_OK && status != PP_INTERRUPTED) return status;
    PP_TRY(take_references(profile, PP_PROFILE_AFTER));
    for (int i = 0; i < profile->nshapes; i++)
        for (int load = 0; load < profile->nloads; load++)
            PP_TRY(sum_up(&profile->shapes[i], &profile->shapes[i].cell[load]));
    return status == PP_OK ? PP_OK : pp_fail(status, "profiling was interrupted; what was measured is kept");
}

double pp_profile_drift(struct pp_profile *profile)
{
    double first = (double)pp_times_quantiles(&profile->reference[PP_PROFILE_BEFORE]).median_ns, worst = 0;
    if (!(first > 0)) return NAN;
    for (int i = PP_PROFILE_DURING; i <= PP_PROFILE_AFTER; i++) {
        if (profile->reference[i].n == 0) continue;
        double change = (double)pp_times_quantiles(&profile->reference[i]).median_ns / first - 1;
        if (fabs(change) > fabs(worst)) worst = change;
    }
    return worst;
}

int pp_profile_shapes_timed(const struct pp_profile *profile)
{
    int n = 0;
    for (int i = 0; i < profile->nshapes; i++) {
        bool timed = false;
        for (int load = 0; load < profile->nloads; load++) timed |= profile->shapes[i].cell[load].ns.count > 0;
        n += timed;
    }
    return n;
}

double pp_profile_taken(const struct pp_profile *profile)
{
    double all = 0, had = 0;
    for (int i = 0; i < profile->nshapes; i++)
        for (int load = 0; load < profile->nloads; load++) {
            const struct pp_profile_cell *cell = &profile->shapes[i].cell[load];
            all += cell->cpu_ns > 0 ? (double)cell->ns.mean_ns : 0;
            had += (double)cell->cpu_ns;
        }
    if (all == 0) return NAN;
    return had < all ? 1 - had / all : 0;
}
