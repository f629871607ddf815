/* SPDX-License-Identifier: Apache-2.0
 *
 * Which shapes the asked configurations consist of.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/log.h"
#include "kernels/kernels.h"
#include "kernels/profile.h"

int pp_profile_find(const struct pp_profile *profile, const char *signature, const char *context)
{
    for (int i = 0; i < profile->nshapes; i++) {
        const struct pp_profile_shape *shape = &profile->shapes[i];
        if (strcmp(shape->signature, signature) == 0 && strcmp(shape->context, context) == 0) return i;
    }
    return -1;
}

static int sharers(const struct pp_profile_setup *setup, const struct pp_plan *plan)
{
    struct pp_device_spec spec = pp_profile_device(setup->config, 0, pp_plan_workers(plan));
    return setup->backend->sharers ? setup->backend->sharers(&spec) : 1;
}

int pp_profile_at_once(const struct pp_profile_setup *setup, const struct pp_plan *plan)
{
    int workers = pp_plan_workers(plan);
    if (setup->backend->queue) return sharers(setup, plan);
    return workers < setup->cores ? workers : setup->cores;
}

void pp_profile_context(const struct pp_profile_setup *setup, const struct pp_job *job, char *buf, size_t size)
{
    pp_job_context(job, setup->backend->queue ? sharers(setup, job->train) : 1, buf, size);
}

int pp_profile_load(const struct pp_profile *profile, const struct pp_plan *plan)
{
    int load = pp_profile_at_once(&profile->setup, plan), i = 0;
    while (i < profile->nloads && profile->loads[i] != load) i++;
    return i;
}

static pp_status add_load(struct pp_profile *profile, const struct pp_plan *plan)
{
    if (pp_profile_load(profile, plan) < profile->nloads) return PP_OK;
    if (profile->nloads == PP_PROFILE_LOADS)
        return pp_fail(PP_USAGE,
                       "the configurations keep more than %d different numbers of workers busy at once: "
                       "profile them in several runs (shorter lists for --stages)",
                       PP_PROFILE_LOADS);
    profile->loads[profile->nloads++] = pp_profile_at_once(&profile->setup, plan);
    return PP_OK;
}

static pp_status add_shape(struct pp_profile *profile, int kind, const struct pp_program *program, const char *context)
{
    if (pp_profile_find(profile, program->signature, context) >= 0) return PP_OK;
    PP_TRY(PP_GROW(&profile->shapes, profile->nshapes + 1, &profile->shapes_room));
    struct pp_profile_shape *shape = &profile->shapes[profile->nshapes++];
    *shape = (struct pp_profile_shape){.kind = kind, .ncalls = program->ncalls, .flops = program->flops};
    memcpy(shape->signature, program->signature, sizeof shape->signature);
    snprintf(shape->context, sizeof shape->context, "%s", context);
    PP_TRY(PP_NEW(&shape->call_names, program->ncalls));
    for (int i = 0; i < program->ncalls; i++) {
        shape->bytes += pp_call_bytes(&program->calls[i]);
        profile->setup.ops->call_name(&program->calls[i], shape->call_names[i], sizeof shape->call_names[i]);
    }
    return PP_OK;
}

/* The shape needs a timing under load index i. */
static pp_status add_cell(struct pp_profile *profile, struct pp_profile_shape *shape, int i)
{
    struct pp_profile_cell *cell = &shape->cell[i];
    if (cell->load > 0) return PP_OK;
    cell->load = profile->loads[i];
    return PP_NEW(&cell->call, shape->ncalls);
}

static pp_status add_job(struct pp_profile *profile, const struct pp_job *job)
{
    const struct pp_plan *plan = job->train;
    char context[PP_CONTEXT_SIZE];
    pp_profile_context(&profile->setup, job, context, sizeof context);
    PP_TRY(add_load(profile, plan));
    for (int c = 0; c < plan->nclasses; c++) {
        const struct pp_program *program = &job->phase[PP_TRAIN].programs[c];
        if (!pp_kinds[plan->classes[c].kind].computes) continue;
        PP_TRY(add_shape(profile, plan->classes[c].kind, program, context));
        struct pp_profile_shape *shape = &profile->shapes[pp_profile_find(profile, program->signature, context)];
        PP_TRY(add_cell(profile, shape, 0));
        PP_TRY(add_cell(profile, shape, pp_profile_load(profile, plan)));
    }
    return PP_OK;
}

/* Of the ranks that are measured together, each with its arena. */
static int64_t most_team_bytes(const struct pp_profile *profile, const struct pp_job *job)
{
    const int ranks = job->train->ranks, n = pp_profile_at_once(&profile->setup, job->train);
    int64_t most = 0;
    for (int first = 0; first < ranks; first += n) {
        int64_t bytes = 0;
        for (int i = 0; i < n; i++) bytes += job->layout->arena_bytes[(first + i) % ranks];
        if (bytes > most) most = bytes;
    }
    return most;
}

/* Else that would be known after minutes of measuring links. Of queue devices all that are measured together share one.
 */
static pp_status check_memory(const struct pp_profile *profile, const struct pp_job *job)
{
    const struct pp_backend *backend = profile->setup.backend;
    const double gib = 1 << 30;
    const struct pp_device_spec spec = pp_profile_device(profile->setup.config, 0, pp_plan_workers(job->train));
    if (profile->setup.rests || !backend->available_bytes) return PP_OK;
    const int64_t available = backend->available_bytes(&spec), needed = most_team_bytes(profile, job);
    if (available < 0 || needed <= available) return PP_OK;
    const int n = pp_profile_at_once(&profile->setup, job->train);
    return pp_fail(
        profile->npoints > 1 ? PP_USAGE : PP_NOMEM, /* of several, one that is too large is left out */
        "profiling needs the memory of %d worker%s at once, %.2f GiB, and the %s has %.2f GiB left: use more stages, "
        "more chunks, fewer rows or a smaller model",
        n, pp_plural(n), (double)needed / gib, backend->queue ? "GPU" : "machine", (double)available / gib);
}

static pp_status add_point(struct pp_profile *profile, const struct pp_point *point)
{
    const struct pp_profile_setup *setup = &profile->setup;
    struct pp_job *job;
    PP_TRY(pp_job_create(setup->config, point, setup->schedules, setup->ops, false, NULL, &job));
    pp_status status = check_memory(profile, job);
    if (status == PP_OK) status = add_job(profile, job);
    pp_job_free(job);
    return status;
}

static pp_status add_points(struct pp_profile *profile)
{
    int n = profile->npoints, possible = 0;
    char text[PP_POINT_TEXT];
    for (int i = 0; i < n; i++) {
        pp_status status = add_point(profile, &profile->points[i]);
        if (status == PP_OK) profile->points[possible++] = profile->points[i];
        if (status == PP_USAGE && n > 1)
            pp_warn("left out %s: %s", pp_point_text(&profile->points[i], text), pp_message());
        if (status != PP_OK && (status != PP_USAGE || n == 1)) return status;
    }
    profile->npoints = possible;
    if (possible == 0) return pp_fail(PP_USAGE, "none of the %d configurations is possible: %s", n, pp_message());
    return PP_OK;
}

pp_status pp_profile_create(const struct pp_profile_setup *setup, struct pp_profile **out)
{
    struct pp_profile *profile;
    PP_TRY(PP_NEW(&profile, 1));
    profile->setup = *setup;
    profile->loads[profile->nloads++] = 1;
    pp_status status = pp_points(setup->config, setup->schedules, &profile->points, &profile->npoints);
    if (status == PP_OK) status = add_points(profile);
    if (status != PP_OK) {
        pp_profile_free(profile);
        profile = NULL;
    }
    *out = profile;
    return status;
}

static void free_cell(struct pp_profile_cell *cell, int ncalls)
{
    for (int i = 0; i < ncalls && cell->call; i++) pp_times_free(&cell->call[i]);
    free(cell->call);
    pp_times_free(&cell->task);
    pp_times_free(&cell->host);
    pp_times_free(&cell->cpu);
    free(cell->kernels);
}

void pp_profile_free(struct pp_profile *profile)
{
    if (!profile) return;
    for (int i = 0; i < profile->nshapes; i++) {
        struct pp_profile_shape *shape = &profile->shapes[i];
        for (int load = 0; load < PP_PROFILE_LOADS; load++) free_cell(&shape->cell[load], shape->ncalls);
        free(shape->call_names);
    }
    for (int i = 0; i < PP_PROFILE_WHENS; i++) pp_times_free(&profile->reference[i]);
    free(profile->shapes);
    free(profile->points);
    free(profile);
}
