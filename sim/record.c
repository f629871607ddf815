/* SPDX-License-Identifier: Apache-2.0
 *
 * Writes the times of a step as trace events, as the executor would.
 */
#include <stdlib.h>
#include <string.h>

#include "core/plan/workers.h"
#include "sim/simulating.h"

struct recording {
    const struct pp_sim *sim;
    struct pp_trace *trace;
    int64_t origin;    /* start of the step's first compute task: time 0 of the trace */
    int64_t *ready_at; /* [ranks] when the rank was free for its next task */
};

/* Adds an event of a rank of the first replica. The members of a rank do the same; the event is that of the first one.
 */
static pp_status add(struct recording *r, int rank, int32_t task, int side, int64_t posted, int64_t start, int64_t end)
{
    struct pp_event event = {.worker = pp_worker_at(r->sim->plan, 0, rank, 0),
                             .task = task,
                             .side = side,
                             .posted_ns = posted - r->origin,
                             .start_ns = start - r->origin,
                             .end_ns = end - r->origin};
    return pp_trace_add(r->trace, &event);
}

/* Adds the events of both ends. The sender posts when the data is there; the receiver when a slot is free (and, if
 * posts are in order, when the task before it in the receiver's list has run). The start of a transfer is always the
 * later post; so if it waited for its channel, or for a reader of the step before, the receiver is said to have posted
 * that late. */
static pp_status add_transfer(struct recording *r, const struct pp_lane *lane, int32_t task)
{
    const struct pp_sim *s = r->sim;
    const struct pp_task *t = &s->plan->tasks[task];
    int64_t start = pp_sim_start(s, task), receive = s->at.lane_ready[lane->dst];
    int64_t send = t->dep[0] >= 0 ? s->at.end[t->dep[0]] : start;
    if (t->dep[1] >= 0) receive = s->at.end[t->dep[1]];
    if (pp_sim_dep_holds(s, t, 2)) receive = pp_sim_later(receive, s->at.end[t->dep[2]]);
    if (pp_sim_later(send, receive) != start) receive = start;
    PP_TRY(add(r, lane->src, task, PP_SIDE_SEND, send, start, pp_sim_sent(s, task)));
    return add(r, lane->dst, task, PP_SIDE_RECV, receive, start, s->at.end[task]);
}

static pp_status add_task(struct recording *r, int32_t task)
{
    const struct pp_sim *s = r->sim;
    const struct pp_task *t = &s->plan->tasks[task];
    const struct pp_lane *lane = &s->plan->lanes[t->lane];
    int64_t start = pp_sim_start(s, task), end = s->at.end[task];
    int64_t posted;
    switch (lane->kind) {
    case PP_LANE_COMPUTE:
        posted = r->ready_at[t->lane];
        r->ready_at[t->lane] = end + s->cost->launch_ns;
        return add(r, lane->src, task, PP_SIDE_RUN, posted, start, end);
    case PP_LANE_CHANNEL:
        return add_transfer(r, lane, task);
    default:
        for (int i = 0; i < pp_lane_ranks(s->plan, lane); i++)
            PP_TRY(add(r, pp_lane_rank(lane, i), task, PP_SIDE_RUN, start, start, end));
        return PP_OK;
    }
}

static int64_t first_start(const struct pp_sim *s)
{
    int64_t first = INT64_MAX;
    for (int32_t id = 0; id < s->plan->ntasks; id++) {
        if (s->plan->tasks[id].lane >= s->plan->ranks) continue;
        int64_t start = pp_sim_start(s, id);
        if (start < first) first = start;
    }
    return first;
}

pp_status pp_sim_record(const struct pp_sim *s, struct pp_trace *trace)
{
    struct recording r = {.sim = s, .trace = trace, .origin = first_start(s)};
    PP_TRY(pp_trace_reserve(trace, 2 * s->plan->ntasks + s->plan->ranks));
    PP_TRY(PP_NEW(&r.ready_at, s->plan->ranks));
    memcpy(r.ready_at, s->at.lane_ready, (size_t)s->plan->ranks * sizeof *r.ready_at);
    pp_status status = PP_OK;
    for (int32_t id = 0; id < s->plan->ntasks && status == PP_OK; id++) status = add_task(&r, id);
    free(r.ready_at);
    return status;
}
