/* SPDX-License-Identifier: Apache-2.0
 *
 * What a worker has under way beside its computation, and waiting for it.
 */
#include <math.h>

#include "core/clock.h"
#include "exec/worker_queue.h"

static int worker_of(const struct pp_worker *w, int rank) { return w->replica * w->job->train->ranks + rank; }

static int64_t transfer_bytes(const struct pp_worker *w, const struct pp_task *task)
{
    const struct pp_phase *phase = w->step.phase;
    return pp_transfer_bytes(w->job, phase->plan->rows[task->microbatch], phase->seq);
}

static int message_kind(const struct pp_channel_end *end)
{
    return end->transfer == PP_XFER_F ? PP_MESSAGE_FORWARD : PP_MESSAGE_BACKWARD;
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
    void *memory = pp_worker_slot(w, task->in);
    int64_t bytes = transfer_bytes(w, task);
    if (w->queue) return pp_worker_queue_send(w, &w->track->send[lane], transfer, memory, bytes);
    return pp_send(w->world, w->me, worker_of(w, end->peer), message_kind(end), memory, bytes, &transfer->request);
}

static pp_status post_receives(struct pp_worker *w, struct pp_flow *flow, const struct pp_channel_end *end)
{
    while (flow->posted < end->n && flow->after[flow->posted] < w->position) {
        int32_t after = flow->after[flow->posted];
        struct pp_transfer *transfer = open_transfer(w, flow, end);
        const struct pp_task *task = &w->track->walk->plan->tasks[transfer->task];
        void *memory = pp_worker_slot(w, task->out);
        int64_t bytes = transfer_bytes(w, task);
        PP_TRY(w->queue ? pp_worker_queue_recv(w, flow, transfer, after, memory, bytes)
                        : pp_recv(w->world, worker_of(w, end->peer), w->me, message_kind(end), memory, bytes,
                                  &transfer->request));
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

/* Tests in order, the oldest first. */
static pp_status test_flow(struct pp_worker *w, struct pp_flow *flow, const struct pp_channel_end *end, int side)
{
    if (w->queue) return pp_worker_queue_poll(w, flow, end);
    while (flow->done < flow->posted) {
        struct pp_transfer *transfer = &flow->transfers[flow->done % end->n];
        PP_TRY(pp_test(w->world, &transfer->request));
        if (!transfer->request.done) break;
        flow->done++;
        if (!transfer->traced) continue;
        struct pp_event event = {.step = transfer->step,
                                 .task = transfer->task,
                                 .side = side,
                                 .posted_ns = transfer->posted_ns,
                                 .start_ns = transfer->posted_ns,
                                 .end_ns = pp_now_ns()};
        PP_TRY(pp_worker_record(w, &event));
    }
    return PP_OK;
}

static pp_status record_collective(struct pp_worker *w, int32_t task, int64_t posted_ns, int64_t start_ns)
{
    if (!w->step.traced) return PP_OK;
    struct pp_event event = {.step = w->step.number,
                             .task = task,
                             .side = PP_SIDE_RUN,
                             .posted_ns = posted_ns,
                             .start_ns = start_ns,
                             .end_ns = pp_now_ns()};
    return pp_worker_record(w, &event);
}

pp_status pp_worker_ask_reduction(struct pp_worker *w, int32_t task)
{
    w->reductions[w->reductions_asked] = task;
    w->reduction_posted_ns[w->reductions_asked++] = pp_now_ns();
    if (w->queue) PP_TRY(pp_worker_queue_ask_reduction(w));
    return pp_worker_advance(w);
}

/* One at a time, in the order of the plan. */
static pp_status advance_reductions(struct pp_worker *w)
{
    while (w->reductions_done < w->reductions_asked) {
        int32_t task = w->reductions[w->reductions_done];
        int stage = w->step.phase->plan->tasks[task].stage;
        if (w->reductions_begun == w->reductions_done) {
            w->reductions_begun++;
            w->reduction_start_ns = pp_now_ns();
            PP_TRY(pp_reduce_start(w->world, w->reduce,
                                   (float *)(void *)(w->arena + w->job->layout->grad_offset[stage]),
                                   w->job->model->stages[stage].param_bytes / (int64_t)sizeof(float)));
        }
        PP_TRY(pp_reduce_poll(w->world, w->reduce));
        if (!w->reduce->done) break;
        PP_TRY(record_collective(w, task, w->reduction_posted_ns[w->reductions_done], w->reduction_start_ns));
        w->reductions_done++;
    }
    return PP_OK;
}

/* A rank's block of the all-gather: the sums of its stages' tensors, stage after stage. Copies between it and
 * sums[]. */
static void copy_sums(struct pp_worker *w, int rank, double *block, bool into_block)
{
    const struct pp_plan *plan = w->job->train;
    for (int s = 0; s < plan->stages; s++) {
        const struct pp_stage *stage = &w->job->model->stages[s];
        if (plan->stage_rank[s] != rank) continue;
        for (int i = 0; i < stage->tensors; i++, block++) {
            double *sum = &w->sums[stage->first_tensor + i];
            if (into_block)
                *block = *sum;
            else
                *sum = *block;
        }
    }
}

pp_status pp_worker_ask_norm(struct pp_worker *w, int32_t task)
{
    if (w->queue) return pp_worker_queue_ask_norm(w);
    w->norm_task = task;
    w->norm_posted_ns = pp_now_ns();
    copy_sums(w, w->rank, (double *)(void *)w->norm.blocks, true);
    PP_TRY(pp_gather_start(w->world, &w->norm));
    return pp_worker_advance(w);
}

/* Added in model order, so that the factor has the same bits however the model is cut. */
static void set_clip_factor(struct pp_worker *w)
{
    double sum = 0;
    for (int r = 0; r < w->job->train->ranks; r++)
        if (r != w->rank) copy_sums(w, r, pp_gather_block(&w->norm, r), false);
    for (int i = 0; i < w->job->model->ntensors; i++) sum += w->sums[i];
    double factor = w->job->config->clip / (sqrt(sum) + 1e-6);
    w->frame.clip_factor = factor > 1 ? 1.0f : (float)factor; /* not a number stays that */
}

static pp_status advance_norm(struct pp_worker *w)
{
    if (!w->norm.open) return PP_OK;
    PP_TRY(pp_gather_poll(w->world, &w->norm));
    if (!w->norm.done) return PP_OK;
    w->norm.open = false;
    w->norm_ready = true;
    set_clip_factor(w);
    return record_collective(w, w->norm_task, w->norm_posted_ns, w->norm_posted_ns);
}

static bool is_full(const struct pp_flow *flow, const struct pp_channel_end *end)
{
    return flow->posted - flow->retired >= end->n;
}

/* Asking the device costs time: sends are looked at where there is nothing else to do, or no place for another. */
static bool must_retire(const struct pp_worker *w, const struct pp_flow *flow, const struct pp_channel_end *end)
{
    return w->queue && (w->position >= w->track->walk->nstops || is_full(flow, end));
}

pp_status pp_worker_advance(struct pp_worker *w)
{
    struct pp_track *track = w->track;
    for (int i = 0; i < track->walk->nrecv; i++) {
        PP_TRY(post_receives(w, &track->recv[i], &track->walk->recv[i]));
        PP_TRY(test_flow(w, &track->recv[i], &track->walk->recv[i], PP_SIDE_RECV));
    }
    for (int i = 0; i < track->walk->nsend; i++) {
        PP_TRY(test_flow(w, &track->send[i], &track->walk->send[i], PP_SIDE_SEND));
        if (must_retire(w, &track->send[i], &track->walk->send[i]))
            PP_TRY(pp_worker_queue_retire(w, &track->send[i], &track->walk->send[i], PP_SIDE_SEND));
    }
    if (w->queue) return pp_worker_queue_sums(w);
    PP_TRY(advance_reductions(w));
    return advance_norm(w);
}

void pp_worker_poll(void *worker)
{
    struct pp_worker *w = worker;
    if (w->status == PP_OK) w->status = pp_worker_advance(w);
}

void pp_worker_sleep(void *worker, int64_t until_ns)
{
    struct pp_worker *w = worker;
    while (w->status == PP_OK && pp_now_ns() < until_ns) {
        unsigned seen = pp_bell_seen(w->world, w->me);
        w->status = pp_worker_advance(w);
        if (w->status == PP_OK) w->status = pp_worker_check(w);
        if (w->status == PP_OK) pp_world_sleep(w->world, w->me, seen, until_ns);
    }
}

static bool can_run(const struct pp_worker *w, const struct pp_stop *stop)
{
    const struct pp_track *track = w->track;
    if (stop->recv_lane >= 0 && track->recv[stop->recv_lane].done <= stop->recv_index) return false;
    if (w->reductions_done < stop->reductions || (stop->after_norm && !w->norm_ready)) return false;
    if (stop->send_lane < 0) return true;
    const struct pp_flow *flow = &track->send[stop->send_lane];
    const struct pp_channel_end *end = &track->walk->send[stop->send_lane];
    if (w->queue && is_full(flow, end)) return false;
    return flow->done > flow->base + end->after[flow->posted - flow->base];
}

static bool is_settled(const struct pp_worker *w) { return w->reductions_done == w->reductions_asked && !w->norm.open; }

static bool is_drained(const struct pp_worker *w)
{
    for (int i = 0; i < w->track->walk->nsend; i++) {
        const struct pp_flow *flow = &w->track->send[i];
        if ((w->queue ? flow->retired : flow->done) < flow->posted) return false;
    }
    return true;
}

/* Polls until one of the conditions above holds. What comes in restarts the clock of the wait. */
#define WAIT_UNTIL(w, condition)                                                                                       \
    unsigned seen_before = 0;                                                                                          \
    for (int64_t idle_since = 0;;) {                                                                                   \
        unsigned seen = pp_bell_seen((w)->world, (w)->me);                                                             \
        if (seen != seen_before) idle_since = 0;                                                                       \
        seen_before = seen;                                                                                            \
        PP_TRY((w)->status);                                                                                           \
        PP_TRY(pp_worker_advance(w));                                                                                  \
        if (condition) return PP_OK;                                                                                   \
        PP_TRY(pp_worker_check(w));                                                                                    \
        (w)->waits++;                                                                                                  \
        pp_world_wait((w)->world, (w)->me, seen, &idle_since);                                                         \
    }

pp_status pp_worker_await(struct pp_worker *w, const struct pp_stop *stop) { WAIT_UNTIL(w, can_run(w, stop)); }

/* Not a failure that a condition could return: it is told at the next turn. */
static bool is_near(struct pp_worker *w)
{
    bool near = false;
    w->status = pp_worker_queue_lead(w, &near);
    return near;
}

pp_status pp_worker_follow(struct pp_worker *w) { WAIT_UNTIL(w, is_near(w)); }

pp_status pp_worker_settle(struct pp_worker *w) { WAIT_UNTIL(w, is_settled(w)); }

pp_status pp_worker_drain(struct pp_worker *w, enum pp_track_id track)
{
    if (!w->tracks[track].walk) return PP_OK;
    w->track = &w->tracks[track];
    WAIT_UNTIL(w, is_drained(w));
}
