/* SPDX-License-Identifier: Apache-2.0 */
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "core/base/clock.h"
#include "exec/place.h"
#include "exec/worker_inside.h"

/* --- opening and closing --- */

static pp_status open_flows(const struct pp_channel_end *ends, int n, struct pp_flow **out)
{
    PP_TRY(PP_NEW(out, n));
    for (int i = 0; i < n; i++) PP_TRY(PP_NEW(&(*out)[i].transfers, ends[i].n));
    return PP_OK;
}

/* Looked up once: a class that was not measured is searched for among all. */
static pp_status open_waits(const struct pp_worker *w, const struct pp_plan *plan, int64_t **out)
{
    if (!w->backend->waits) return PP_OK;
    PP_TRY(PP_NEW(out, plan->nclasses));
    for (int c = 0; c < plan->nclasses; c++) {
        const struct pp_class *cls = &plan->classes[c];
        if (cls->stage < 0 || plan->stage_rank[cls->stage] == w->rank)
            PP_TRY(pp_given_class_ns(&w->job->times, plan, cls, &(*out)[c]));
    }
    return PP_OK;
}

/* Receives begin as at the end of a step: all posted, all done. */
static pp_status open_track(struct pp_worker *w, enum pp_track_id id, const struct pp_plan *plan, int table)
{
    struct pp_track *track = &w->tracks[id];
    if (!plan) return PP_OK;
    PP_TRY(pp_walk_create(plan, w->rank, &track->walk));
    PP_TRY(open_flows(track->walk->recv, track->walk->nrecv, &track->recv));
    PP_TRY(open_flows(track->walk->send, track->walk->nsend, &track->send));
    for (int i = 0; i < track->walk->nrecv; i++) track->recv[i].posted = track->recv[i].done = track->walk->recv[i].n;
    for (int i = 0; i < track->walk->nrecv; i++) track->recv[i].after = track->walk->recv[i].after;
    track->slot_offset = w->job->layout->slot_offset[table];
    return open_waits(w, plan, &track->waits_ns);
}

static pp_status open_reductions(struct pp_worker *w)
{
    for (int id = 0; id < PP_TRACKS; id++) {
        struct pp_track *track = &w->tracks[id];
        int n = 0;
        if (!track->walk) continue;
        for (int i = 0; i < track->walk->nstops; i++)
            n += pp_combines(track->walk->plan->tasks[track->walk->stops[i].task].kind);
        if (n > w->most_reductions) w->most_reductions = n;
        PP_TRY(pp_worker_open_combined(w, track));
    }
    return PP_NEW(&w->reductions, w->most_reductions);
}

static pp_status open_parts(struct pp_worker *w, int trace_steps)
{
    const struct pp_job *job = w->job;
    int most = job->eval && job->eval->microbatches > job->train->microbatches ? job->eval->microbatches
                                                                               : job->train->microbatches;
    const struct pp_world *world = w->world;
    const struct pp_device_spec device =
        pp_place_device(&world->processes, job->config, world->count, w->me - world->first);
    void *arena;
    PP_TRY(w->backend->open(&device, &w->device));
    PP_TRY(w->backend->alloc(w->device, job->layout->arena_bytes[w->rank], &arena));
    w->arena = arena;
    PP_TRY(open_track(w, PP_TRACK_TRAIN, job->train, job->phase_layout[PP_TRAIN]));
    PP_TRY(open_track(w, PP_TRACK_EVAL, job->eval, job->phase_layout[PP_EVAL]));
    PP_TRY(open_reductions(w));
    if (pp_plan_tensor(w->job->train) > 1) PP_TRY(pp_shares_create_plain(&w->parts));
    PP_TRY(w->ops->open(w, most, trace_steps > 0));
    const struct pp_walk *walk = w->tracks[PP_TRACK_TRAIN].walk;
    PP_TRY(PP_NEW(&w->traced, trace_steps));
    return pp_trace_reserve(&w->trace, trace_steps * (walk->nstops + pp_walk_transfers(walk)));
}

pp_status pp_worker_open(struct pp_world *world, const struct pp_job *job, const struct pp_backend *backend, int me,
                         int trace_steps, struct pp_worker **out)
{
    struct pp_worker *w;
    PP_TRY(PP_NEW(&w, 1));
    *out = w; /* the caller closes it, even half open: others may be copying from it */
    w->world = world;
    w->job = job;
    w->backend = backend;
    w->ops = backend->queue ? &pp_worker_queued : &pp_worker_direct;
    w->me = me;
    w->rank = pp_worker_rank(job->train, me);
    w->replica = pp_worker_replica(job->train, me);
    w->member = pp_worker_member(job->train, me);
    w->nsums = job->model->ntensors * pp_shape_sums(&job->model->shape);
    return pp_prefix(open_parts(w, trace_steps), "worker %d", me);
}

static void close_track(struct pp_track *track)
{
    if (!track->walk) return;
    pp_worker_close_combined(track);
    for (int i = 0; track->recv && i < track->walk->nrecv; i++) free(track->recv[i].transfers);
    for (int i = 0; track->send && i < track->walk->nsend; i++) free(track->send[i].transfers);
    free(track->recv);
    free(track->send);
    free(track->waits_ns);
    pp_walk_free(track->walk);
}

void pp_worker_disconnect(struct pp_worker *w)
{
    if (w && w->ops->disconnect) w->ops->disconnect(w);
}

void pp_worker_close(struct pp_worker *w)
{
    if (!w || atomic_load(&w->world->devices_held)) return;
    w->ops->close(w);
    for (int i = 0; i < PP_TRACKS; i++) close_track(&w->tracks[i]);
    free(w->parts);
    free(w->reductions);
    free(w->traced);
    pp_trace_clear(&w->trace);
    if (w->arena) w->backend->release(w->device, w->arena, w->job->layout->arena_bytes[w->rank]);
    if (w->device) w->backend->close(w->device);
    free(w);
}

/* --- a step --- */

static int32_t *tokens_of(const struct pp_worker *w)
{
    return (int32_t *)(void *)(w->arena + w->job->layout->data_offset[w->rank]);
}

bool pp_worker_has(const struct pp_worker *w, int stage) { return w->job->train->stage_rank[stage] == w->rank; }

/* The first stage reads the inputs, the last one the targets. */
static pp_status load_batch(struct pp_worker *w)
{
    const struct pp_step *step = &w->step;
    const int seq = pp_own_tokens(&w->job->model->shape, step->phase->seq);
    int64_t bytes = (int64_t)step->batches->rows * seq * (int64_t)sizeof(int32_t);
    int32_t *targets = w->inputs + w->job->layout->data_elements;
    bool first = pp_worker_has(w, 0), last = pp_worker_has(w, step->phase->plan->stages - 1);
    pp_batches_get(step->batches, step->batch, first ? w->inputs : NULL, last ? targets : NULL);
    if (first) PP_TRY(w->ops->load(w, tokens_of(w), w->inputs, bytes));
    return last ? w->ops->load(w, tokens_of(w) + w->job->layout->data_elements, targets, bytes) : PP_OK;
}

const struct pp_shares *pp_worker_join_parts(struct pp_worker *w, const struct pp_join_call *call)
{
    const int64_t bytes = call->elements * pp_sum_bytes(call->type);
    if (call->op == PP_JOIN_ALL_REDUCE || pp_join_exchanges(call->op)) return NULL;
    pp_shares_set_plain(w->parts, call->op == PP_JOIN_REDUCE_SCATTER ? PP_SHARES_SCATTER : PP_SHARES_GATHER,
                        bytes / pp_plan_tensor(w->job->train));
    return w->parts;
}

static struct pp_arena arena_of(const struct pp_worker *w)
{
    return (struct pp_arena){w->arena, w->rank, w->track->slot_offset};
}

void *pp_worker_slot(const struct pp_worker *w, int32_t slot)
{
    const struct pp_arena arena = arena_of(w);
    return pp_arena_slot(&arena, slot);
}

/* For NORM and STEP: which share, and where its sums are. */
static void set_share(const struct pp_worker *w, int stage, struct pp_frame *frame)
{
    const struct pp_model *model = w->job->model;
    frame->sums = w->sums + (int64_t)model->stages[stage].first_tensor * pp_shape_sums(&model->shape) +
                  (int64_t)pp_worker_tensor_rank(w->job->train, w->me) * pp_shape_rank_sums(&model->shape);
    if (!model->shape.zero) return;
    frame->act_row = pp_worker_share(w->job->train, w->me, PP_EXPERTS);
    frame->sums += pp_worker_share(w->job->train, w->me, PP_DENSE);
}

static void set_frame(struct pp_worker *w, const struct pp_task *task, struct pp_frame *frame)
{
    const struct pp_arena arena = arena_of(w);
    *frame = w->frame;
    set_share(w, task->stage, frame);
    pp_frame_place(w->job, w->step.phase, &arena, task, frame);
    if (task->microbatch >= 0) frame->loss = &w->losses[task->microbatch];
}

/* A device that waits instead of computing. */
static void set_wait(const struct pp_worker *w, const struct pp_stop *stop, bool waited, struct pp_wait *wait)
{
    const struct pp_given_times *times = &w->job->times;
    int64_t ns = w->track->waits_ns[w->step.phase->plan->tasks[stop->task].cls];
    wait->duration_ns = pp_jitter_ns(ns, times->jitter, times->seed, w->step.number, stop->task, w->me);
    wait->hop_ns = stop->recv_lane >= 0 ? pp_given_hop_ns(times) : -1;
    wait->posted_ns = stop->recv_lane >= 0 ? pp_worker_posted_ns(w, stop->recv_lane, stop->recv_index) : 0;
    wait->clock_offset_ns = w->world->processes.clock_offset_ns;
    wait->waited = waited;
}

static pp_status run_compute(struct pp_worker *w, const struct pp_stop *stop)
{
    struct pp_frame frame;
    int64_t posted_ns = w->step.traced ? pp_now_ns() : 0, waits = w->waits;
    PP_TRY(pp_worker_await(w, stop));
    set_frame(w, &w->step.phase->plan->tasks[stop->task], &frame);
    if (w->backend->waits) set_wait(w, stop, w->waits > waits, &frame.wait);
    PP_TRY(w->ops->run(w, stop, &frame, posted_ns));
    PP_TRY(w->status); /* of a sum inside */
    return stop->send_lane >= 0 ? pp_worker_post_send(w, stop->send_lane) : PP_OK;
}

static pp_status ask_reduction(struct pp_worker *w, int32_t task)
{
    w->reductions[w->reductions_asked++] = task;
    PP_TRY(w->ops->ask_reduction(w));
    return pp_worker_advance(w);
}

static pp_status run_stop(struct pp_worker *w, const struct pp_stop *stop)
{
    int kind = w->step.phase->plan->tasks[stop->task].kind;
    if (pp_combines(kind)) return ask_reduction(w, stop->task);
    if (kind == PP_NORM_ALL) return w->ops->ask_norm(w, stop->task);
    return run_compute(w, stop);
}

static void begin_step(struct pp_worker *w, const struct pp_step *step)
{
    const struct pp_config *config = w->job->config;
    const struct pp_plan *plan = w->job->train;
    w->step = *step;
    w->track = &w->tracks[step->track];
    w->position = w->reductions_asked = w->reductions_begun = w->reductions_done = 0;
    w->norm_ready = false;
    if (step->track == PP_TRACK_TRAIN) w->whole = false;
    if (step->traced) w->ntraced++;
    for (int i = 0; i < w->track->walk->nrecv; i++)
        w->track->recv[i].posted = w->track->recv[i].done = w->track->recv[i].retired = 0;
    for (int i = 0; i < w->track->walk->nsend; i++) w->track->send[i].base = w->track->send[i].posted;
    w->frame = (struct pp_frame){.seed = config->seed,
                                 .step = (uint32_t)step->number,
                                 .first_row = (int64_t)pp_worker_data_rank(plan, w->me) * config->rows,
                                 .training = step->phase->plan->training,
                                 .loss_scale = (float)step->loss_scale,
                                 .tokens = step->tokens,
                                 .learning_rate = (float)fmin(step->learning_rate, FLT_MAX),
                                 .adamw = pp_adamw_at(&config->adamw, step->learning_rate, step->number),
                                 .clip_factor = 1,
                                 .tensor = pp_plan_tensor(plan),
                                 .tensor_rank = pp_worker_tensor_rank(plan, w->me),
                                 .expert_rank = pp_worker_expert_rank(plan, w->me),
                                 .context = plan->context,
                                 .context_rank = pp_worker_context_rank(plan, w->me),
                                 .halves = pp_shape_halves_rows(&w->job->model->shape),
                                 .join = w->join.run ? &w->join : NULL};
}

pp_status pp_worker_step(struct pp_worker *w, const struct pp_step *step, double *loss_sum)
{
    const double *losses;
    begin_step(w, step);
    PP_TRY(w->ops->begin(w));
    PP_TRY(load_batch(w));
    for (w->position = 0; w->position < w->track->walk->nstops; w->position++) {
        PP_TRY(run_stop(w, &w->track->walk->stops[w->position]));
        PP_TRY(w->status);
    }
    PP_TRY(pp_worker_settle(w));
    PP_TRY(w->ops->end(w, &losses));
    *loss_sum = 0;
    for (int m = 0; m < step->phase->plan->microbatches; m++) *loss_sum += losses[m];
    return PP_OK;
}

/* Runs only the tasks of a step that gather parameters; channels stay as they are at its end. */
pp_status pp_worker_gather(struct pp_worker *w)
{
    const struct pp_walk *walk = w->tracks[PP_TRACK_TRAIN].walk;
    const double *losses;
    if (!walk->plan->gathers_first || w->whole) return PP_OK;
    w->whole = true;
    w->step = (struct pp_step){.track = PP_TRACK_TRAIN, .phase = &w->job->phase[PP_TRAIN]};
    w->track = &w->tracks[PP_TRACK_TRAIN];
    w->position = walk->nstops;
    w->reductions_asked = w->reductions_begun = w->reductions_done = 0;
    for (int i = 0; i < walk->nstops; i++) {
        const int32_t task = walk->stops[i].task;
        if (walk->plan->tasks[task].kind == PP_GATHER_PARAM) PP_TRY(ask_reduction(w, task));
    }
    PP_TRY(pp_worker_settle(w));
    return w->ops->end(w, &losses);
}

pp_status pp_worker_abandon(struct pp_worker *w, pp_status why)
{
    struct pp_failure failure;
    (void)pp_keep(&failure, why);
    pp_world_stop(w->world, why);
    if (w->ops->abandon) w->ops->abandon(w);
    return pp_fail_again(&failure);
}
