/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>

#include "exec/worker_queue.h"

#include "core/shape/pieces.h"

static pp_status make_timed(struct pp_worker *w, struct pp_mark **out)
{
    return w->queue->traces ? PP_OPS(w, mark_create, true, out) : PP_OK;
}

static pp_status make_parcel_marks(struct pp_worker *w, struct pp_parcel_marks *marks)
{
    PP_TRY(PP_OPS(w, mark_create, false, &marks->done));
    PP_TRY(make_timed(w, &marks->timed_begun));
    return make_timed(w, &marks->timed_done);
}

static void destroy_mark(struct pp_worker *w, struct pp_mark *mark)
{
    if (mark) PP_OPS(w, mark_destroy, mark);
}

static void destroy_parcel_marks(struct pp_worker *w, const struct pp_parcel_marks *marks)
{
    destroy_mark(w, marks->done);
    destroy_mark(w, marks->timed_begun);
    destroy_mark(w, marks->timed_done);
}

/* --- tracks --- */

static pp_status make_flow(struct pp_worker *w, const struct pp_channel_end *end, bool receives, struct pp_flow *flow)
{
    const int peer = pp_worker_at(w->job->train, w->replica, end->peer, w->member), src = receives ? peer : w->me;
    flow->route = pp_routes_find(&w->queue->routes, src, receives ? w->me : peer, pp_message_of(end->transfer));
    flow->after = flow->route->carrier->posts_in_order ? end->place : end->after;
    for (int i = 0; i < end->n; i++) PP_TRY(make_parcel_marks(w, &flow->transfers[i].marks));
    return PP_OK;
}

/* Marks of the stops that something waits for: sends, and receives into a slot that the stop empties. */
static pp_status make_passed(struct pp_worker *w, struct pp_track *track)
{
    const struct pp_walk *walk = track->walk;
    for (int i = 0; i < walk->nstops; i++)
        if (walk->stops[i].send_lane >= 0) PP_TRY(PP_OPS(w, mark_create, false, &track->marks[i].passed));
    for (int r = 0; r < walk->nrecv; r++)
        for (int i = 0; i < walk->recv[r].n; i++) {
            int32_t after = track->recv[r].after[i];
            if (after < 0 || track->marks[after].passed) continue;
            PP_TRY(PP_OPS(w, mark_create, false, &track->marks[after].passed));
        }
    return PP_OK;
}

static pp_status make_track(struct pp_worker *w, struct pp_track *track, bool traced)
{
    const struct pp_walk *walk = track->walk;
    if (!walk) return PP_OK;
    PP_TRY(PP_NEW(&track->marks, walk->nstops));
    for (int i = 0; i < walk->nrecv; i++) PP_TRY(make_flow(w, &walk->recv[i], true, &track->recv[i]));
    for (int i = 0; i < walk->nsend; i++) PP_TRY(make_flow(w, &walk->send[i], false, &track->send[i]));
    PP_TRY(make_passed(w, track));
    for (int i = 0; i < walk->nstops && traced; i++) {
        PP_TRY(make_timed(w, &track->marks[i].timed_begin));
        PP_TRY(make_timed(w, &track->marks[i].timed_end));
    }
    return PP_OK;
}

static void destroy_flows(struct pp_worker *w, struct pp_flow *flows, const struct pp_channel_end *ends, int n)
{
    for (int i = 0; flows && i < n; i++)
        for (int k = 0; flows[i].transfers && k < ends[i].n; k++) destroy_parcel_marks(w, &flows[i].transfers[k].marks);
}

static void destroy_track(struct pp_worker *w, struct pp_track *track)
{
    if (!track->walk) return;
    destroy_flows(w, track->recv, track->walk->recv, track->walk->nrecv);
    destroy_flows(w, track->send, track->walk->send, track->walk->nsend);
    for (int i = 0; track->marks && i < track->walk->nstops; i++) {
        destroy_mark(w, track->marks[i].passed);
        destroy_mark(w, track->marks[i].timed_begin);
        destroy_mark(w, track->marks[i].timed_end);
    }
    free(track->marks);
    track->marks = NULL;
}

/* --- sums, losses, inputs --- */

static pp_status make_summing(struct pp_worker *w, struct pp_summing *summing)
{
    PP_TRY(make_parcel_marks(w, &summing->marks));
    return PP_OPS(w, mark_create, false, &summing->after);
}

static pp_status make_rounding(struct pp_worker *w)
{
    const struct pp_layout *layout = w->job->layout;
    const int64_t at[] = {layout->sent_offset[w->rank], layout->sent_share_offset[w->rank]};
    for (int i = 0; i < 2; i++) {
        struct pp_rounding *rounding = &w->queue->rounding[i];
        if (at[i] < 0) continue;
        PP_TRY(w->queue->ops->queue_create(w->device, &rounding->queue));
        PP_TRY(PP_OPS(w, mark_create, false, &rounding->rounded));
        PP_TRY(PP_OPS(w, mark_create, false, &rounding->summed));
    }
    return PP_OK;
}

static pp_status make_sums(struct pp_worker *w)
{
    struct pp_worker_queue *q = w->queue;
    PP_TRY(make_rounding(w));
    q->sets = w->job->train->expert_parallel > 1 ? PP_PARAM_SETS : 1;
    PP_TRY(PP_NEW(&q->gradients, w->most_reductions * q->sets));
    for (int i = 0; i < w->most_reductions * q->sets; i++) PP_TRY(make_summing(w, &q->gradients[i]));
    return q->routes.norm.sum ? make_summing(w, &q->norm) : PP_OK;
}

/* Their times are in those of their tasks: no timed marks. */
static pp_status make_join(struct pp_worker *w)
{
    struct pp_worker_queue *q = w->queue;
    for (int group = 0; group < PP_JOIN_GROUPS; group++) {
        if (pp_join_members(w->job->train, w->me, (enum pp_join_group)group).n == 1) continue;
        PP_TRY(PP_OPS(w, mark_create, false, &q->joined[group].marks.done));
        PP_TRY(PP_OPS(w, mark_create, false, &q->joined[group].after));
        w->join = (struct pp_join){.run = pp_worker_queue_join, .arg = w};
    }
    const int most = pp_shape_most_beside(&w->job->model->shape);
    if (most == 0) return PP_OK;
    PP_TRY(PP_NEW(&q->beside, most));
    for (; q->nbeside < most; q->nbeside++) PP_TRY(PP_OPS(w, mark_create, false, &q->beside[q->nbeside]));
    return PP_OK;
}

static void destroy_summing(struct pp_worker *w, const struct pp_summing *summing)
{
    destroy_parcel_marks(w, &summing->marks);
    destroy_mark(w, summing->after);
}

static void destroy_rounding(struct pp_worker *w, const struct pp_rounding *rounding)
{
    if (rounding->queue) PP_OPS(w, queue_destroy, rounding->queue);
    destroy_mark(w, rounding->rounded);
    destroy_mark(w, rounding->summed);
}

static pp_status make_block(struct pp_worker *w, int microbatches)
{
    struct pp_worker_queue *q = w->queue;
    q->block_bytes = (microbatches + 2 * (int64_t)w->nsums) * (int64_t)sizeof(double) + (int64_t)sizeof(float);
    PP_TRY(w->backend->alloc(w->device, q->block_bytes, &q->block));
    w->losses = q->block;
    w->sums = w->losses + microbatches;
    q->zeros = w->sums + w->nsums;
    q->clip_factor = (float *)(void *)(q->zeros + w->nsums);
    void *memory;
    PP_TRY(PP_OPS(w, host_alloc, microbatches * (int64_t)sizeof *q->host_losses, &memory));
    q->host_losses = memory;
    int64_t bytes = 2 * w->job->layout->data_elements * (int64_t)sizeof *w->inputs;
    PP_TRY(PP_OPS(w, host_alloc, bytes, &memory));
    w->inputs = memory;
    return PP_OK;
}

static pp_status make_marks(struct pp_worker *w)
{
    for (int i = 0; i < 2; i++) PP_TRY(make_timed(w, &w->queue->base[i].mark));
    for (int i = 0; i < PP_LEADS; i++) PP_TRY(PP_OPS(w, mark_create, false, &w->queue->lead[i]));
    return PP_OPS(w, mark_create, false, &w->queue->ended);
}

/* Lets the device choose how it will run the rank's programs. */
static pp_status prepare(struct pp_worker *w, const struct pp_phase *phase)
{
    for (int c = 0; phase->plan && c < phase->plan->nclasses; c++) {
        const struct pp_class *cls = &phase->plan->classes[c];
        if (pp_kinds[cls->kind].computes && phase->plan->stage_rank[cls->stage] == w->rank)
            PP_TRY(PP_OPS(w, prepare, &phase->programs[c]));
    }
    return PP_OK;
}

pp_status pp_worker_queue_open(struct pp_worker *w, int microbatches, bool traces)
{
    struct pp_worker_queue *q;
    struct pp_port port = {.world = w->world, .backend = w->backend, .device = w->device, .me = w->me};
    PP_TRY(PP_NEW(&q, 1));
    w->queue = q;
    q->ops = w->backend->queue;
    q->traces = traces;
    PP_TRY(q->ops->use(w->device));
    q->compute = q->ops->compute(w->device);
    for (int p = 0; p < PP_PHASES; p++) PP_TRY(prepare(w, &w->job->phase[p]));
    PP_TRY(pp_routes_open(&port, w->job, &q->routes));
    PP_TRY(make_block(w, microbatches));
    PP_TRY(make_track(w, &w->tracks[PP_TRACK_TRAIN], true));
    PP_TRY(make_track(w, &w->tracks[PP_TRACK_EVAL], false));
    PP_TRY(make_sums(w));
    PP_TRY(make_join(w));
    return make_marks(w);
}

void pp_worker_queue_disconnect(struct pp_worker *w)
{
    if (w->device) (void)w->backend->queue->use(w->device); /* what failed is closed all the same */
    if (w->queue) pp_routes_close(&w->queue->routes);
}

void pp_worker_queue_close(struct pp_worker *w)
{
    struct pp_worker_queue *q = w->queue;
    pp_worker_queue_disconnect(w);
    if (!q) return;
    for (int i = 0; i < PP_TRACKS; i++) destroy_track(w, &w->tracks[i]);
    for (int i = 0; q->gradients && i < w->most_reductions * q->sets; i++) destroy_summing(w, &q->gradients[i]);
    free(q->gradients);
    for (int i = 0; i < 2; i++) destroy_rounding(w, &q->rounding[i]);
    destroy_summing(w, &q->norm);
    for (int group = 0; group < PP_JOIN_GROUPS; group++) destroy_summing(w, &q->joined[group]);
    for (int i = 0; i < q->nbeside; i++) destroy_mark(w, q->beside[i]);
    free(q->beside);
    for (int i = 0; i < 2; i++) destroy_mark(w, q->base[i].mark);
    for (int i = 0; i < PP_LEADS; i++) destroy_mark(w, q->lead[i]);
    destroy_mark(w, q->ended);
    if (w->inputs) PP_OPS(w, host_release, w->inputs);
    if (q->host_losses) PP_OPS(w, host_release, q->host_losses);
    if (q->block) w->backend->release(w->device, q->block, q->block_bytes);
    free(q);
}
