/* SPDX-License-Identifier: Apache-2.0
 *
 * Times of a queue device. A traced step begins with a mark in the idle compute queue whose time on the host's clock is
 * known to within the time that recording and seeing it takes (some microseconds); all other marks are read after the
 * step, as distances from it. So events of one worker are exact to the resolution of its marks (about half a
 * microsecond), and those of different workers to within their uncertainties besides, which the run stores.
 *
 * An event's `posted` is when the device was free for the task: the end of the one before. Of a transfer, it is when
 * this end was ready: the data written, the slot free.
 */
#include "core/base/clock.h"
#include "exec/worker_queue.h"

enum {
    BASE_TRIES = 8,       /* another try if the thread was interrupted between recording and seeing */
    BASE_WIDTH_NS = 20000 /* good enough */
};

static pp_status try_base(struct pp_worker *w, struct pp_base *base, int64_t *width_ns)
{
    bool reached = false;
    int64_t start = pp_now_ns(), end = start;
    PP_TRY(PP_OPS(w, record, w->queue->compute, base->mark));
    while (!reached) {
        PP_TRY(PP_OPS(w, reached, base->mark, &reached));
        end = pp_now_ns();
        PP_TRY(pp_world_check(w->world));
    }
    base->ns = start + (end - start) / 2;
    *width_ns = end - start;
    return PP_OK;
}

pp_status pp_worker_trace_begin(struct pp_worker *w)
{
    struct pp_worker_queue *q = w->queue;
    int64_t width_ns = BASE_WIDTH_NS + 1;
    q->turn = !q->turn;
    for (int i = 0; i < BASE_TRIES && width_ns > BASE_WIDTH_NS; i++) PP_TRY(try_base(w, &q->base[q->turn], &width_ns));
    if (width_ns / 2 > w->uncertainty_ns) w->uncertainty_ns = width_ns / 2;
    return PP_OK;
}

/* On the host's clock. */
static pp_status time_of(struct pp_worker *w, int turn, struct pp_mark *mark, int64_t *ns)
{
    const struct pp_base *base = &w->queue->base[turn];
    PP_TRY(PP_OPS(w, elapsed, base->mark, mark, ns));
    *ns += base->ns;
    return PP_OK;
}

/* From one mark to another, both of the task: never less than nothing, whatever the clock's resolution. */
static pp_status times_of(struct pp_worker *w, int turn, struct pp_mark *begin, struct pp_mark *end,
                          struct pp_event *event)
{
    PP_TRY(time_of(w, turn, begin, &event->start_ns));
    PP_TRY(time_of(w, turn, end, &event->end_ns));
    if (event->end_ns < event->start_ns) event->end_ns = event->start_ns;
    event->posted_ns = event->start_ns;
    return PP_OK;
}

/* Notes when a transfer was ready, before the next step uses the mark that tells it. Those of earlier steps have been
 * noted. */
static pp_status note_ready(struct pp_worker *w, struct pp_transfer *transfer)
{
    if (!transfer->traced || transfer->step != w->step.number) return PP_OK;
    return time_of(w, transfer->turn, transfer->ready, &transfer->posted_ns);
}

pp_status pp_worker_trace_transfer(struct pp_worker *w, struct pp_transfer *transfer, int side)
{
    struct pp_event event = {.step = transfer->step, .task = transfer->task, .side = side};
    PP_TRY(note_ready(w, transfer));
    PP_TRY(time_of(w, transfer->turn, transfer->marks.timed_done, &event.end_ns));
    event.posted_ns = event.start_ns = transfer->posted_ns < event.end_ns ? transfer->posted_ns : event.end_ns;
    return pp_worker_record(w, &event);
}

/* Notes it of the sends that are still under way at the end of a step. */
static pp_status note_sends(struct pp_worker *w)
{
    for (int i = 0; i < w->track->walk->nsend; i++) {
        const struct pp_flow *flow = &w->track->send[i];
        for (int64_t k = flow->retired; k < flow->posted; k++)
            PP_TRY(note_ready(w, &flow->transfers[k % w->track->walk->send[i].n]));
    }
    return PP_OK;
}

pp_status pp_worker_trace_stops(struct pp_worker *w)
{
    const struct pp_worker_queue *q = w->queue;
    const struct pp_walk *walk = w->track->walk;
    int64_t free_ns = q->base[q->turn].ns;
    int reductions = 0;
    for (int i = 0; i < walk->nstops; i++) {
        const struct pp_stop_marks *marks = &w->track->marks[i];
        struct pp_event event = {.step = w->step.number, .task = walk->stops[i].task, .side = PP_SIDE_RUN};
        if (pp_combines(walk->plan->tasks[event.task].kind)) {
            const struct pp_summing *first = pp_worker_summing(w, reductions, PP_DENSE);
            const struct pp_summing *last = pp_worker_last_summing(w, reductions++);
            PP_TRY(times_of(w, q->turn, first->marks.timed_begun, last->marks.timed_done, &event));
        } else {
            PP_TRY(times_of(w, q->turn, marks->timed_begin, marks->timed_end, &event));
            if (pp_kinds[walk->plan->tasks[event.task].kind].computes && free_ns < event.start_ns)
                event.posted_ns = free_ns;
            free_ns = event.end_ns;
        }
        PP_TRY(pp_worker_record(w, &event));
    }
    return note_sends(w);
}
