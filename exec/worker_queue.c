/* SPDX-License-Identifier: Apache-2.0
 *
 * A step on a queue device: what is put into the queues, and waiting for its end.
 */
#include "exec/worker_queue.h"

enum { CHECK_EVERY = 64 /* looks of a waiting worker, from one check of its carriers to the next */ };

pp_status pp_worker_queue_load(struct pp_worker *w, void *to, const void *from, int64_t bytes)
{
    return PP_OPS(w, copy, w->queue->compute, to, from, bytes);
}

static pp_status record(struct pp_worker *w, struct pp_mark *mark)
{
    return PP_OPS(w, record, w->queue->compute, mark);
}

static pp_status hold_for(struct pp_worker *w, struct pp_mark *mark)
{
    return PP_OPS(w, wait, w->queue->compute, mark);
}

static struct pp_parcel parcel_of(const struct pp_worker *w, const struct pp_parcel_marks *marks, void *memory,
                                  int64_t bytes)
{
    return (struct pp_parcel){.memory = memory,
                              .bytes = bytes,
                              .begun = w->step.traced ? marks->timed_begun : NULL,
                              .done = w->step.traced ? marks->timed_done : marks->done};
}

/* --- tasks --- */

/* Holds the compute queue back until the output slot has been read: by the send number `after`, if it is not known to
 * be done. */
static pp_status hold_for_slot(struct pp_worker *w, int lane)
{
    const struct pp_flow *flow = &w->track->send[lane];
    const struct pp_channel_end *end = &w->track->walk->send[lane];
    int64_t earlier = flow->base + end->after[flow->posted - flow->base];
    return earlier < flow->retired ? PP_OK : hold_for(w, flow->transfers[earlier % end->n].parcel.done);
}

static pp_status hold_for_inputs(struct pp_worker *w, const struct pp_stop *stop)
{
    if (stop->recv_lane >= 0)
        PP_TRY(hold_for(w, w->track->recv[stop->recv_lane].transfers[stop->recv_index].parcel.done));
    if (stop->reductions > 0) PP_TRY(hold_for(w, w->queue->gradients[stop->reductions - 1].parcel.done));
    return stop->send_lane >= 0 ? hold_for_slot(w, stop->send_lane) : PP_OK;
}

static pp_status issue(struct pp_worker *w, const struct pp_stop *stop, const struct pp_frame *frame)
{
    const struct pp_phase *phase = w->step.phase;
    const struct pp_stop_marks *marks = &w->track->marks[w->position];
    PP_TRY(hold_for_inputs(w, stop));
    if (w->step.traced) PP_TRY(record(w, marks->timed_begin));
    PP_TRY(PP_OPS(w, run, &phase->programs[phase->plan->tasks[stop->task].cls], frame));
    if (w->step.traced) PP_TRY(record(w, marks->timed_end));
    return marks->passed ? record(w, marks->passed) : PP_OK;
}

pp_status pp_worker_queue_lead(struct pp_worker *w, bool *is_short)
{
    return PP_OPS(w, reached, w->queue->lead[w->queue->leads % PP_LEADS], is_short);
}

/* Everything that the device waits for there was issued before, so it gets there whatever this thread does. */
static pp_status bound_lead(struct pp_worker *w)
{
    struct pp_worker_queue *q = w->queue;
    if (q->calls < PP_LEAD_CALLS) return PP_OK;
    PP_TRY(pp_worker_follow(w));
    PP_TRY(record(w, q->lead[q->leads++ % PP_LEADS]));
    q->calls = 0;
    return PP_OK;
}

pp_status pp_worker_queue_run(struct pp_worker *w, const struct pp_stop *stop, const struct pp_frame *frame)
{
    char name[64];
    PP_TRY(bound_lead(w));
    w->queue->calls += w->step.phase->programs[w->step.phase->plan->tasks[stop->task].cls].ncalls;
    w->queue->ops->push_range(pp_task_text(&w->step.phase->plan->tasks[stop->task], name, sizeof name));
    pp_status status = issue(w, stop, frame);
    w->queue->ops->pop_range();
    return status;
}

/* --- transfers --- */

pp_status pp_worker_queue_send(struct pp_worker *w, struct pp_flow *flow, struct pp_transfer *transfer, void *memory,
                               int64_t bytes)
{
    transfer->parcel = parcel_of(w, &transfer->marks, memory, bytes);
    transfer->parcel.begun = NULL; /* this end is ready when the data is written */
    transfer->ready = w->track->marks[w->position].timed_end;
    transfer->turn = w->queue->turn;
    return flow->route->carrier->send(flow->route->channel, &transfer->parcel, w->track->marks[w->position].passed);
}

pp_status pp_worker_queue_recv(struct pp_worker *w, struct pp_flow *flow, struct pp_transfer *transfer, int32_t after,
                               void *memory, int64_t bytes)
{
    transfer->parcel = parcel_of(w, &transfer->marks, memory, bytes);
    transfer->ready = transfer->marks.timed_begun;
    transfer->turn = w->queue->turn;
    return flow->route->carrier->recv(flow->route->channel, &transfer->parcel,
                                      after < 0 ? NULL : w->track->marks[after].passed);
}

pp_status pp_worker_queue_poll(struct pp_worker *w, struct pp_flow *flow, const struct pp_channel_end *end)
{
    (void)w;
    for (; flow->done < flow->posted; flow->done++) {
        struct pp_parcel *parcel = &flow->transfers[flow->done % end->n].parcel;
        PP_TRY(flow->route->carrier->poll(flow->route->channel, parcel));
        if (!parcel->issued) break;
    }
    return PP_OK;
}

pp_status pp_worker_queue_retire(struct pp_worker *w, struct pp_flow *flow, const struct pp_channel_end *end, int side)
{
    for (; flow->retired < flow->done; flow->retired++) {
        struct pp_transfer *transfer = &flow->transfers[flow->retired % end->n];
        bool reached;
        PP_TRY(PP_OPS(w, reached, transfer->parcel.done, &reached));
        if (!reached) break;
        if (transfer->traced) PP_TRY(pp_worker_trace_transfer(w, transfer, side));
    }
    return PP_OK;
}

/* --- sums --- */

static pp_status start_sum(const struct pp_sum_route *route, struct pp_summing *summing)
{
    return route->carrier->sum_start(route->sum, &summing->parcel, summing->after);
}

static pp_status prepare_sum(struct pp_worker *w, struct pp_summing *summing, void *memory, int64_t bytes)
{
    summing->parcel = parcel_of(w, &summing->marks, memory, bytes);
    return record(w, summing->after);
}

/* The mark is recorded where the reduction stands in the list; the sum may have to wait for the one before it. */
pp_status pp_worker_queue_ask_reduction(struct pp_worker *w)
{
    int number = w->reductions_asked - 1;
    int stage = w->step.phase->plan->tasks[w->reductions[number]].stage;
    return prepare_sum(w, &w->queue->gradients[number], w->arena + w->job->layout->grad_offset[stage],
                       w->job->model->stages[stage].param_bytes);
}

static pp_status advance_reductions(struct pp_worker *w)
{
    const struct pp_sum_route *route = &w->queue->routes.gradient;
    while (w->reductions_done < w->reductions_asked) {
        struct pp_summing *summing = &w->queue->gradients[w->reductions_done];
        if (w->reductions_begun == w->reductions_done) {
            w->reductions_begun++;
            PP_TRY(start_sum(route, summing));
        }
        PP_TRY(route->carrier->sum_poll(route->sum, &summing->parcel));
        if (!summing->parcel.issued) break;
        w->reductions_done++;
    }
    return PP_OK;
}

static pp_status end_norm(struct pp_worker *w)
{
    struct pp_worker_queue *q = w->queue;
    PP_TRY(PP_OPS(w, clip_factor, q->compute, w->sums, w->job->model->ntensors, w->job->config->clip, q->clip_factor));
    if (w->step.traced) PP_TRY(record(w, w->track->marks[q->norm_stop].timed_end));
    w->norm.open = false;
    w->norm_ready = true;
    w->frame.clip = q->clip_factor;
    return PP_OK;
}

pp_status pp_worker_queue_ask_norm(struct pp_worker *w)
{
    struct pp_worker_queue *q = w->queue;
    q->norm_stop = w->position;
    if (w->step.traced) PP_TRY(record(w, w->track->marks[q->norm_stop].timed_begin));
    if (!q->routes.norm.sum) return end_norm(w);
    w->norm.open = true;
    PP_TRY(prepare_sum(w, &q->norm, w->sums, w->job->model->ntensors * (int64_t)sizeof *w->sums));
    return start_sum(&q->routes.norm, &q->norm);
}

static pp_status advance_norm(struct pp_worker *w)
{
    struct pp_worker_queue *q = w->queue;
    if (!w->norm.open) return PP_OK;
    PP_TRY(q->routes.norm.carrier->sum_poll(q->routes.norm.sum, &q->norm.parcel));
    if (!q->norm.parcel.issued) return PP_OK;
    PP_TRY(hold_for(w, q->norm.parcel.done));
    return end_norm(w);
}

pp_status pp_worker_queue_sums(struct pp_worker *w)
{
    PP_TRY(advance_reductions(w));
    return advance_norm(w);
}

/* --- the ends of a step --- */

/* Sums of the other ranks' tensors count as zero until the sum over the ranks. */
pp_status pp_worker_queue_begin(struct pp_worker *w)
{
    struct pp_worker_queue *q = w->queue;
    if (w->step.traced) PP_TRY(pp_worker_trace_begin(w));
    if (!w->step.phase->plan->training || !q->routes.norm.sum) return PP_OK;
    return PP_OPS(w, copy, q->compute, w->sums, q->zeros, w->job->model->ntensors * (int64_t)sizeof *w->sums);
}

pp_status pp_worker_check(struct pp_worker *w)
{
    PP_TRY(pp_world_check(w->world));
    if (!w->queue || ++w->queue->checks % CHECK_EVERY) return PP_OK;
    return pp_routes_check(&w->queue->routes);
}

/* Polls: a device whose peer has died may never come to an end. */
static pp_status await_end(struct pp_worker *w)
{
    for (int64_t idle_since = 0;;) {
        bool reached;
        unsigned seen = pp_bell_seen(w->world, w->me);
        PP_TRY(pp_worker_advance(w));
        PP_TRY(PP_OPS(w, reached, w->queue->ended, &reached));
        if (reached) return PP_OK;
        PP_TRY(pp_worker_check(w));
        pp_world_wait(w->world, w->me, seen, &idle_since);
    }
}

static pp_status retire_receives(struct pp_worker *w)
{
    const struct pp_walk *walk = w->track->walk;
    for (int i = 0; i < walk->nrecv; i++)
        PP_TRY(pp_worker_queue_retire(w, &w->track->recv[i], &walk->recv[i], PP_SIDE_RECV));
    return PP_OK;
}

pp_status pp_worker_queue_end(struct pp_worker *w)
{
    const struct pp_plan *plan = w->step.phase->plan;
    if (w->reductions_done > 0) PP_TRY(hold_for(w, w->queue->gradients[w->reductions_done - 1].parcel.done));
    if (pp_worker_has(w, plan->stages - 1))
        PP_TRY(PP_OPS(w, copy, w->queue->compute, w->queue->host_losses, w->losses,
                      plan->microbatches * (int64_t)sizeof *w->losses));
    PP_TRY(record(w, w->queue->ended));
    PP_TRY(await_end(w));
    PP_TRY(retire_receives(w));
    return w->step.traced ? pp_worker_trace_stops(w) : PP_OK;
}

void pp_worker_queue_abandon(struct pp_worker *w)
{
    struct pp_port port = {.world = w->world, .backend = w->backend, .device = w->device, .me = w->me};
    pp_routes_abort(&w->queue->routes);
    if (w->queue->ended) pp_port_rest(&port, w->queue->compute, w->queue->ended);
}
