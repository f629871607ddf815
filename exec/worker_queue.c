/* SPDX-License-Identifier: Apache-2.0
 *
 * A step on a queue device: what is put into the queues, and waiting for its end.
 */
#include "exec/worker_queue.h"

enum { CHECK_EVERY = 64 /* looks of a waiting worker, from one check of its carriers to the next */ };

static pp_status load(struct pp_worker *w, void *to, const void *from, int64_t bytes)
{
    return PP_OPS(w, copy, w->queue->compute, to, from, bytes);
}

/* --- tasks --- */

/* Holds the compute queue back until the output slot has been read: by the send number `after`, if it is not known to
 * be done. */
static pp_status hold_for_slot(struct pp_worker *w, int lane)
{
    const struct pp_flow *flow = &w->track->send[lane];
    const struct pp_channel_end *end = &w->track->walk->send[lane];
    int64_t earlier = flow->base + end->after[flow->posted - flow->base];
    return earlier < flow->retired ? PP_OK : pp_queued_hold_for(w, flow->transfers[earlier % end->n].parcel.done);
}

static pp_status hold_for_inputs(struct pp_worker *w, const struct pp_stop *stop)
{
    if (stop->recv_lane >= 0)
        PP_TRY(pp_queued_hold_for(w, w->track->recv[stop->recv_lane].transfers[stop->recv_index].parcel.done));
    PP_TRY(pp_worker_queue_hold_for_reductions(w, stop->reductions));
    return stop->send_lane >= 0 ? hold_for_slot(w, stop->send_lane) : PP_OK;
}

static pp_status issue(struct pp_worker *w, const struct pp_stop *stop, const struct pp_frame *frame)
{
    const struct pp_phase *phase = w->step.phase;
    const struct pp_stop_marks *marks = &w->track->marks[w->position];
    PP_TRY(hold_for_inputs(w, stop));
    if (w->step.traced) PP_TRY(pp_queued_record(w, marks->timed_begin));
    PP_TRY(PP_OPS(w, run, &phase->programs[phase->plan->tasks[stop->task].cls], frame));
    if (w->step.traced) PP_TRY(pp_queued_record(w, marks->timed_end));
    return marks->passed ? pp_queued_record(w, marks->passed) : PP_OK;
}

/* Has the device come to the mark? One whose peer has died may never do. */
static bool has_reached(struct pp_worker *w, const void *mark)
{
    bool reached = false;
    const pp_status status = PP_OPS(w, reached, *(struct pp_mark *const *)mark, &reached);
    if (status != PP_OK) w->status = status;
    return reached;
}

/* Everything that the device waits for there was issued before, so it gets there whatever this thread does. */
static pp_status bound_lead(struct pp_worker *w)
{
    struct pp_worker_queue *q = w->queue;
    if (q->launches < PP_LEAD_LAUNCHES) return PP_OK;
    PP_TRY(pp_worker_wait(w, has_reached, &q->lead[q->leads % PP_LEADS]));
    PP_TRY(pp_queued_record(w, q->lead[q->leads++ % PP_LEADS]));
    q->launches = 0;
    return PP_OK;
}

static bool is_joined(struct pp_worker *w, const void *arg)
{
    const struct pp_join_call *call = arg;
    const struct pp_sum_route *route = &w->queue->routes.joined[call->group][call->type];
    struct pp_parcel *parcel = &w->queue->joined[call->group].parcel;
    const pp_status status = route->carrier->sum_poll(route->sum, parcel);
    if (status != PP_OK) w->status = status;
    return status == PP_OK && parcel->issued;
}

/* The mark that tells the end of a collective inside a task: one of those that run beside products has its own. */
static struct pp_mark *mark_of(struct pp_worker *w, const struct pp_join_call *call)
{
    return call->beside ? w->queue->beside[call->beside - 1] : w->queue->joined[call->group].marks.done;
}

/* Once it is issued, nobody needs the parcel or its marks: all queues that wait for these have been told so, but for
 * the compute queue, where it runs beside that. Not all that a carrier queues for it is in the compute queue, so it
 * counts for more; and of an exchange each piece does, which NCCL sends by itself. */
static pp_status join(struct pp_worker *w, const struct pp_join_call *call)
{
    const int members = pp_join_members(w->job->train, w->me, call->group).n;
    const bool exchanges = pp_join_exchanges(call->op);
    const struct pp_sum_route *route = &w->queue->routes.joined[call->group][call->type];
    struct pp_summing *summing = &w->queue->joined[call->group];
    if (exchanges) summing->pieces = pp_pieces_of(call, members);
    w->queue->launches += PP_JOIN_LAUNCHES * members * (exchanges ? summing->pieces.each : 1);
    PP_TRY(bound_lead(w));
    summing->parcel = (struct pp_parcel){.memory = call->memory,
                                         .shares = pp_worker_join_parts(w, call),
                                         .pieces = exchanges ? &summing->pieces : NULL,
                                         .bytes = call->elements * pp_sum_bytes(call->type),
                                         .done = mark_of(w, call)};
    PP_TRY(pp_queued_record(w, summing->after));
    PP_TRY(pp_queued_start_sum(route, summing, summing->after));
    if (!summing->parcel.issued) PP_TRY(pp_worker_wait(w, is_joined, call));
    return call->beside ? PP_OK : pp_queued_hold_for(w, summing->parcel.done);
}

void pp_worker_queue_join(void *worker, const struct pp_join_call *call)
{
    struct pp_worker *w = worker;
    if (w->status == PP_OK)
        w->status = call->op == PP_JOIN_AWAIT ? pp_queued_hold_for(w, mark_of(w, call)) : join(w, call);
    w->join.failed = w->status != PP_OK;
}

static pp_status run(struct pp_worker *w, const struct pp_stop *stop, struct pp_frame *frame, int64_t posted_ns)
{
    char name[64];
    (void)posted_ns; /* of marks, worker_trace.c makes the times */
    PP_TRY(bound_lead(w));
    w->queue->launches += PP_OPS(w, launches, &w->step.phase->programs[w->step.phase->plan->tasks[stop->task].cls]);
    w->queue->ops->push_range(pp_task_text(&w->step.phase->plan->tasks[stop->task], name, sizeof name));
    pp_status status = issue(w, stop, frame);
    w->queue->ops->pop_range();
    return status;
}

/* --- transfers --- */

static pp_status send(struct pp_worker *w, int lane, struct pp_transfer *transfer, void *memory, int64_t bytes)
{
    const struct pp_route *route = w->track->send[lane].route;
    transfer->parcel = pp_queued_parcel(w, &transfer->marks, memory, bytes);
    transfer->parcel.begun = NULL; /* this end is ready when the data is written */
    transfer->ready = w->track->marks[w->position].timed_end;
    transfer->turn = w->queue->turn;
    return route->carrier->send(route->channel, &transfer->parcel, w->track->marks[w->position].passed);
}

static pp_status recv(struct pp_worker *w, int lane, struct pp_transfer *transfer, void *memory, int64_t bytes)
{
    const struct pp_flow *flow = &w->track->recv[lane];
    const int32_t after = flow->after[transfer - flow->transfers];
    transfer->parcel = pp_queued_parcel(w, &transfer->marks, memory, bytes);
    transfer->ready = transfer->marks.timed_begun;
    transfer->turn = w->queue->turn;
    return flow->route->carrier->recv(flow->route->channel, &transfer->parcel,
                                      after < 0 ? NULL : w->track->marks[after].passed);
}

/* Counts what the device has done, and records its times. */
static pp_status retire(struct pp_worker *w, struct pp_flow *flow, const struct pp_channel_end *end, int side)
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

/* Asking the device costs time: sends are looked at where there is nothing else to do, or no place for another. */
static bool must_retire(const struct pp_worker *w, const struct pp_flow *flow, const struct pp_channel_end *end)
{
    return w->position >= w->track->walk->nstops || pp_flow_is_full(flow, end);
}

/* Counts what has been issued. */
static pp_status poll(struct pp_worker *w, struct pp_flow *flow, const struct pp_channel_end *end, int side)
{
    for (; flow->done < flow->posted; flow->done++) {
        struct pp_parcel *parcel = &flow->transfers[flow->done % end->n].parcel;
        PP_TRY(flow->route->carrier->poll(flow->route->channel, parcel));
        if (!parcel->issued) break;
    }
    return side == PP_SIDE_SEND && must_retire(w, flow, end) ? retire(w, flow, end, side) : PP_OK;
}

/* --- the ends of a step --- */

/* Nothing is under way in the compute queue. Sums of what is not this worker's count as zero until the sum over the
 * workers. */
static pp_status begin(struct pp_worker *w)
{
    struct pp_worker_queue *q = w->queue;
    if (w->step.traced) PP_TRY(pp_worker_trace_begin(w));
    if (!w->step.phase->plan->training || !q->routes.norm.sum) return PP_OK;
    return PP_OPS(w, copy, q->compute, w->sums, q->zeros, w->nsums * (int64_t)sizeof *w->sums);
}

static pp_status check(struct pp_worker *w)
{
    return ++w->queue->checks % CHECK_EVERY ? PP_OK : pp_routes_check(&w->queue->routes);
}

static pp_status retire_receives(struct pp_worker *w)
{
    const struct pp_walk *walk = w->track->walk;
    for (int i = 0; i < walk->nrecv; i++) PP_TRY(retire(w, &w->track->recv[i], &walk->recv[i], PP_SIDE_RECV));
    return PP_OK;
}

static pp_status end(struct pp_worker *w, const double **losses)
{
    const struct pp_plan *plan = w->step.phase->plan;
    PP_TRY(pp_worker_queue_hold_for_reductions(w, w->reductions_done));
    if (pp_worker_has(w, plan->stages - 1))
        PP_TRY(PP_OPS(w, copy, w->queue->compute, w->queue->host_losses, w->losses,
                      plan->microbatches * (int64_t)sizeof *w->losses));
    PP_TRY(pp_queued_record(w, w->queue->ended));
    PP_TRY(pp_worker_wait(w, has_reached, &w->queue->ended));
    PP_TRY(retire_receives(w));
    *losses = w->queue->host_losses;
    return w->step.traced ? pp_worker_trace_stops(w) : PP_OK;
}

static void abandon(struct pp_worker *w)
{
    if (!w->queue) return;
    struct pp_port port = {.world = w->world, .backend = w->backend, .device = w->device, .me = w->me};
    pp_routes_abort(&w->queue->routes);
    if (w->queue->ended) pp_port_rest(&port, w->queue->compute, w->queue->ended);
}

const struct pp_worker_ops pp_worker_queued = {
    .open = pp_worker_queue_open,
    .disconnect = pp_worker_queue_disconnect,
    .close = pp_worker_queue_close,
    .abandon = abandon,
    .check = check,
    .begin = begin,
    .load = load,
    .run = run,
    .end = end,
    .send = send,
    .recv = recv,
    .poll = poll,
    .ask_reduction = pp_worker_queue_ask_reduction,
    .narrow = pp_worker_queue_narrow,
    .widen = pp_worker_queue_widen,
    .ask_norm = pp_worker_queue_ask_norm,
    .advance_sums = pp_worker_queue_advance_sums,
};
