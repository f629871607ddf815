/* SPDX-License-Identifier: Apache-2.0 */
#include "exec/walk.h"

#include <stdlib.h>

/* What is known of a task of this rank while the walk is made. */
struct mark {
    int32_t task;
    int32_t stop;  /* its number among the stops; -1 = it is none */
    int32_t end;   /* transfers: index into recv[] or send[] */
    int32_t index; /* transfers: number on their channel. What combines: those of this rank up to it */
};

struct making {
    struct pp_walk *walk;
    struct mark *marks; /* [n] of all tasks in the rank's list, by id; those of the other ranks are many more */
    int64_t n;
    int32_t *end_of_lane; /* [nlanes] index into recv[] or send[] */
};

static int by_task(const void *a, const void *b)
{
    const struct mark *x = a, *y = b;
    return (x->task > y->task) - (x->task < y->task);
}

static pp_status make_marks(struct making *m)
{
    const struct pp_plan *plan = m->walk->plan;
    const int32_t *list = plan->issue + plan->issue_start[m->walk->rank];
    m->n = plan->issue_start[m->walk->rank + 1] - plan->issue_start[m->walk->rank];
    PP_TRY(PP_NEW(&m->marks, m->n));
    for (int64_t i = 0; i < m->n; i++) m->marks[i] = (struct mark){pp_issue_task(list[i]), -1, -1, -1};
    qsort(m->marks, (size_t)m->n, sizeof *m->marks, by_task);
    return PP_OK;
}

/* NULL: it is not of this rank, or none. */
static struct mark *mark_of(const struct making *m, int32_t task)
{
    const struct mark key = {.task = task};
    return bsearch(&key, m->marks, (size_t)m->n, sizeof *m->marks, by_task);
}

static bool is_transfer(const struct pp_plan *plan, int32_t task)
{
    return plan->lanes[plan->tasks[task].lane].kind == PP_LANE_CHANNEL;
}

static pp_status make_end(const struct pp_lane *lane, int rank, int n, struct pp_channel_end *end)
{
    end->peer = lane->src == rank ? lane->dst : lane->src;
    end->transfer = lane->transfer;
    if (lane->dst == rank) PP_TRY(PP_NEW(&end->place, n));
    PP_TRY(PP_NEW(&end->tasks, n));
    return PP_NEW(&end->after, n);
}

/* Room for the ends of this rank's channels. */
static pp_status make_ends(struct making *m)
{
    struct pp_walk *walk = m->walk;
    const struct pp_plan *plan = walk->plan;
    int *counts;
    PP_TRY(PP_NEW(&counts, plan->nlanes));
    for (int64_t i = 0; i < m->n; i++) counts[plan->tasks[m->marks[i].task].lane]++;
    pp_status status = PP_NEW(&walk->recv, plan->nlanes);
    if (status == PP_OK) status = PP_NEW(&walk->send, plan->nlanes);
    for (int l = 0; l < plan->nlanes && status == PP_OK; l++) {
        const struct pp_lane *lane = &plan->lanes[l];
        if (lane->kind != PP_LANE_CHANNEL || (lane->src != walk->rank && lane->dst != walk->rank)) continue;
        bool sends = lane->src == walk->rank;
        m->end_of_lane[l] = sends ? walk->nsend++ : walk->nrecv++;
        status = make_end(lane, walk->rank, counts[l],
                          sends ? &walk->send[m->end_of_lane[l]] : &walk->recv[m->end_of_lane[l]]);
    }
    free(counts);
    return status;
}

static void add_transfer(struct making *m, int32_t task, bool receives)
{
    int32_t which = m->end_of_lane[m->walk->plan->tasks[task].lane];
    struct pp_channel_end *end = receives ? &m->walk->recv[which] : &m->walk->send[which];
    struct mark *mark = mark_of(m, task);
    mark->end = which;
    mark->index = end->n;
    end->tasks[end->n++] = task;
}

static void add_stop(struct making *m, int32_t task, int *reductions)
{
    const struct pp_task *t = &m->walk->plan->tasks[task];
    struct pp_stop stop = {.task = task, .recv_lane = -1, .recv_index = -1, .send_lane = -1};
    struct mark *mark = mark_of(m, task);
    const struct mark *input = t->flags & PP_TASK_DEP_RANGE ? NULL : mark_of(m, t->dep[0]);
    const struct mark *parameters = pp_kinds[t->kind].computes ? mark_of(m, t->dep[2]) : NULL;
    if (pp_combines(t->kind)) mark->index = ++*reductions;
    if (parameters) stop.reductions = parameters->index;
    if (input) {
        const struct pp_task *before = &m->walk->plan->tasks[input->task];
        if (is_transfer(m->walk->plan, input->task)) stop.recv_lane = input->end, stop.recv_index = input->index;
        if (pp_combines(before->kind)) stop.reductions = input->index;
        stop.after_norm = before->kind == PP_NORM_ALL;
    }
    mark->stop = m->walk->nstops;
    m->walk->stops[m->walk->nstops++] = stop;
}

static int32_t stop_of(const struct making *m, int32_t task)
{
    const struct mark *mark = mark_of(m, task);
    return mark ? mark->stop : -1;
}

static void receive_after(const struct making *m, struct pp_channel_end *end)
{
    for (int i = 0; i < end->n; i++) {
        const struct pp_task *task = &m->walk->plan->tasks[end->tasks[i]];
        end->after[i] = stop_of(m, task->dep[1]);
        end->place[i] = stop_of(m, task->dep[2]);
    }
}

/* The send before number i that used its slot, in this step or else the one before; there are no more slots than
 * transfers. */
static void send_after(const struct making *m, int which)
{
    struct pp_channel_end *end = &m->walk->send[which];
    const struct pp_task *tasks = m->walk->plan->tasks;
    for (int i = 0; i < end->n; i++) {
        int before = i - 1;
        while (tasks[end->tasks[(before + end->n) % end->n]].in != tasks[end->tasks[i]].in) before--;
        end->after[i] = before;
        m->walk->stops[stop_of(m, tasks[end->tasks[i]].dep[0])].send_lane = which;
    }
}

static pp_status follow(struct making *m)
{
    struct pp_walk *walk = m->walk;
    const struct pp_plan *plan = walk->plan;
    int reductions = 0;
    PP_TRY(make_marks(m));
    PP_TRY(PP_NEW(&walk->stops, m->n));
    PP_TRY(make_ends(m));
    for (int64_t e = plan->issue_start[walk->rank]; e < plan->issue_start[walk->rank + 1]; e++) {
        int32_t task = pp_issue_task(plan->issue[e]);
        if (is_transfer(plan, task))
            add_transfer(m, task, pp_issue_is_recv(plan->issue[e]));
        else
            add_stop(m, task, &reductions);
    }
    for (int i = 0; i < walk->nrecv; i++) receive_after(m, &walk->recv[i]);
    for (int i = 0; i < walk->nsend; i++) send_after(m, i);
    return PP_OK;
}

pp_status pp_walk_create(const struct pp_plan *plan, int rank, struct pp_walk **out)
{
    struct making m = {0};
    pp_status status;
    *out = NULL;
    PP_TRY(PP_NEW(&m.walk, 1));
    m.walk->plan = plan;
    m.walk->rank = rank;
    PP_TRY_DONE(PP_NEW(&m.end_of_lane, plan->nlanes));
    PP_TRY_DONE(follow(&m));
done:
    free(m.marks);
    free(m.end_of_lane);
    if (status == PP_OK)
        *out = m.walk;
    else
        pp_walk_free(m.walk);
    return status;
}

static void free_ends(struct pp_channel_end *ends, int n)
{
    for (int i = 0; i < n; i++) {
        free(ends[i].tasks);
        free(ends[i].after);
        free(ends[i].place);
    }
    free(ends);
}

void pp_walk_free(struct pp_walk *walk)
{
    if (!walk) return;
    free_ends(walk->recv, walk->nrecv);
    free_ends(walk->send, walk->nsend);
    free(walk->stops);
    free(walk);
}

int64_t pp_walk_transfers(const struct pp_walk *walk)
{
    int64_t n = 0;
    for (int i = 0; i < walk->nrecv; i++) n += walk->recv[i].n;
    for (int i = 0; i < walk->nsend; i++) n += walk->send[i].n;
    return n;
}
