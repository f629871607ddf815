/* SPDX-License-Identifier: Apache-2.0
 *
 * What a worker has under way beside its computation, and waiting for it.
 */
#include "core/base/clock.h"
#include "exec/worker_inside.h"

static int64_t transfer_bytes(const struct pp_worker *w, const struct pp_task *task)
{
    const struct pp_phase *phase = w->step.phase;
    return pp_hidden_bytes(&w->job->model->shape, phase->plan->rows[task->microbatch], phase->seq);
}

static struct pp_transfer *open_transfer(struct pp_worker *w, struct pp_flow *flow, const struct pp_channel_end *end)
{
    struct pp_transfer *transfer = &flow->transfers[flow->posted % end->n];
    transfer->task = end->tasks[flow->posted % end->n];
    transfer->step = w->step.number;
    transfer->traced = w->step.traced;
    if (transfer->traced || w->backend->waits) transfer->posted_ns = pp_now_ns();
    flow->posted++;
    return transfer;
}

int64_t pp_worker_posted_ns(const struct pp_worker *w, int lane, int index)
{
    return w->track->recv[lane].transfers[index % w->track->walk->recv[lane].n].posted_ns;
}

pp_status pp_worker_post_send(struct pp_worker *w, int lane)
{
    const struct pp_channel_end *end = &w->track->walk->send[lane];
    struct pp_transfer *transfer = open_transfer(w, &w->track->send[lane], end);
    const struct pp_task *task = &w->track->walk->plan->tasks[transfer->task];
    return w->ops->send(w, lane, transfer, pp_worker_slot(w, task->in), transfer_bytes(w, task));
}

static pp_status post_receives(struct pp_worker *w, int lane)
{
    struct pp_flow *flow = &w->track->recv[lane];
    const struct pp_channel_end *end = &w->track->walk->recv[lane];
    while (flow->posted < end->n && flow->after[flow->posted] < w->position) {
        struct pp_transfer *transfer = open_transfer(w, flow, end);
        const struct pp_task *task = &w->track->walk->plan->tasks[transfer->task];
        PP_TRY(w->ops->recv(w, lane, transfer, pp_worker_slot(w, task->out), transfer_bytes(w, task)));
    }
    return PP_OK;
}

pp_status pp_worker_record(struct pp_worker *w, const struct pp_event *event)
{
    struct pp_event on_our_clock = *event;
    int64_t offset = w->world->processes.clock_offset_ns;
    on_our_clock.worker = w->me;
    on_our_clock.posted_ns += offset;
    on_our_clock.start_ns += offset;
    on_our_clock.end_ns += offset;
    return pp_trace_add(&w->trace, &on_our_clock);
}

pp_status pp_worker_advance(struct pp_worker *w)
{
    struct pp_track *track = w->track;
    for (int i = 0; i < track->walk->nrecv; i++) {
        PP_TRY(post_receives(w, i));
        PP_TRY(w->ops->poll(w, &track->recv[i], &track->walk->recv[i], PP_SIDE_RECV));
    }
    for (int i = 0; i < track->walk->nsend; i++)
        PP_TRY(w->ops->poll(w, &track->send[i], &track->walk->send[i], PP_SIDE_SEND));
    return w->ops->advance_sums(w);
}

void pp_worker_poll(void *worker)
{
    struct pp_worker *w = worker;
    if (w->status == PP_OK) w->status = pp_worker_advance(w);
}

/* Fails when the run has been stopped, or a peer has gone. */
static pp_status check(struct pp_worker *w)
{
    PP_TRY(pp_world_check(w->world));
    return w->ops->check ? w->ops->check(w) : PP_OK;
}

void pp_worker_sleep(void *worker, int64_t until_ns)
{
    struct pp_worker *w = worker;
    while (w->status == PP_OK && pp_now_ns() < until_ns) {
        unsigned seen = pp_bell_seen(w->world, w->me);
        w->status = pp_worker_advance(w);
        if (w->status == PP_OK) w->status = check(w);
        if (w->status == PP_OK) pp_world_sleep(w->world, w->me, seen, until_ns);
    }
}

static bool can_run(struct pp_worker *w, const void *arg)
{
    const struct pp_stop *stop = arg;
    const struct pp_track *track = w->track;
    if (stop->recv_lane >= 0 && track->recv[stop->recv_lane].done <= stop->recv_index) return false;
    if (w->reductions_done < stop->reductions || (stop->after_norm && !w->norm_ready)) return false;
    if (stop->send_lane < 0) return true;
    const struct pp_flow *flow = &track->send[stop->send_lane];
    const struct pp_channel_end *end = &track->walk->send[stop->send_lane];
    if (pp_flow_is_full(flow, end)) return false;
    return flow->done > flow->base + end->after[flow->posted - flow->base];
}

static bool is_settled(struct pp_worker *w, const void *arg)
{
    (void)arg;
    return w->reductions_done == w->reductions_asked && !w->norm.open;
}

static bool is_drained(struct pp_worker *w, const void *arg)
{
    (void)arg;
    for (int i = 0; i < w->track->walk->nsend; i++) {
        const struct pp_flow *flow = &w->track->send[i];
        if (flow->retired < flow->posted) return false;
    }
    return true;
}

/* What comes in restarts the clock of the wait. */
pp_status pp_worker_wait(struct pp_worker *w, pp_worker_condition *holds, const void *arg)
{
    unsigned seen_before = 0;
    PP_TRY(w->status);
    for (int64_t idle_since = 0;;) {
        unsigned seen = pp_bell_seen(w->world, w->me);
        if (seen != seen_before) idle_since = 0;
        seen_before = seen;
        PP_TRY(pp_worker_advance(w));
        if (holds(w, arg)) return PP_OK;
        PP_TRY(w->status);
        PP_TRY(check(w));
        w->waits++;
        pp_world_wait(w->world, w->me, seen, &idle_since);
    }
}

pp_status pp_worker_await(struct pp_worker *w, const struct pp_stop *stop) { return pp_worker_wait(w, can_run, stop); }

pp_status pp_worker_settle(struct pp_worker *w) { return pp_worker_wait(w, is_settled, NULL); }

pp_status pp_worker_drain(struct pp_worker *w, enum pp_track_id track)
{
    if (!w->tracks[track].walk) return PP_OK;
    w->track = &w->tracks[track];
    return pp_worker_wait(w, is_drained, NULL);
}
