/* SPDX-License-Identifier: Apache-2.0
 *
 * The critical path: from the task that ends last, back to the task that it waited for longest, and so on. Ids decrease
 * on the way, so finding the previous tasks of lanes takes one pass over the tasks in all.
 */
#include <stdlib.h>

#include "sim/simulating.h"

/* Why a task started when it did: the last of the things that it waited for. */
struct cause {
    int32_t task; /* -1: nothing in this step */
    int64_t release_ns;
    bool host; /* it was the host, which issued the task last */
};

static void consider(struct cause *cause, int32_t task, int64_t release_ns)
{
    if (cause->task < 0 || release_ns > cause->release_ns) *cause = (struct cause){task, release_ns, false};
}

/* Takes the task's host as the cause, unless something else let the task start later. */
static void consider_host(const struct pp_sim *s, struct cause *cause, int32_t task)
{
    if (!s->at.issued) return;
    int64_t release_ns = s->plan->tasks[task].lane < s->plan->ranks ? s->at.begun[task] : s->at.issued[task];
    if (cause->task >= 0 && release_ns < cause->release_ns) return;
    *cause = (struct cause){-1, release_ns, true};
}

/* Finds the previous task on a lane, for tasks with smaller and smaller ids. The ids from the smallest one looked at up
 * to the last one asked for are kept in a list for each lane, so no task is looked at twice. */
struct neighbours {
    const struct pp_plan *plan;
    int32_t lowest, top;      /* ids lowest .. top - 1 are in the lists */
    int32_t *newest, *oldest; /* [nlanes] highest and lowest id in the lane's list; -1 = it is empty */
    int32_t *below, capacity; /* below[i & (capacity - 1)]: the next lower id in the list of id i. A power of two */
};

static pp_status begin_neighbours(struct neighbours *n, const struct pp_plan *plan, int32_t top)
{
    *n = (struct neighbours){.plan = plan, .lowest = top, .top = top};
    PP_TRY(PP_NEW(&n->newest, plan->nlanes));
    PP_TRY(PP_NEW(&n->oldest, plan->nlanes));
    for (int i = 0; i < plan->nlanes; i++) n->newest[i] = n->oldest[i] = -1;
    return PP_OK;
}

static void end_neighbours(struct neighbours *n)
{
    free(n->newest);
    free(n->oldest);
    free(n->below);
}

static pp_status widen(struct neighbours *n)
{
    int32_t capacity = n->capacity ? 2 * n->capacity : 1024, *larger;
    PP_TRY(PP_NEW(&larger, capacity));
    for (int32_t id = n->lowest; id < n->top; id++) larger[id & (capacity - 1)] = n->below[id & (n->capacity - 1)];
    free(n->below);
    n->below = larger;
    n->capacity = capacity;
    return PP_OK;
}

/* Puts the next lower id into the list of its lane. */
static pp_status look_lower(struct neighbours *n)
{
    if (n->top - n->lowest == n->capacity) PP_TRY(widen(n));
    int32_t id = --n->lowest, lane = n->plan->tasks[id].lane;
    n->below[id & (n->capacity - 1)] = -1;
    if (n->newest[lane] < 0)
        n->newest[lane] = id;
    else
        n->below[n->oldest[lane] & (n->capacity - 1)] = id;
    n->oldest[lane] = id;
    return PP_OK;
}

/* The task before `task` on its lane; -1 if there is none. */
static pp_status lane_neighbour(struct neighbours *n, int32_t task, int32_t *out)
{
    int32_t lane = n->plan->tasks[task].lane;
    while (n->top > task && n->top > n->lowest) {
        int32_t id = --n->top;
        n->newest[n->plan->tasks[id].lane] = n->below[id & (n->capacity - 1)];
    }
    if (n->lowest > task) n->lowest = n->top = task;
    while (n->newest[lane] < 0 && n->lowest > 0) PP_TRY(look_lower(n));
    *out = n->newest[lane];
    return PP_OK;
}

/* When the lane was free again after `task`. */
static int64_t lane_free(const struct pp_sim *s, int32_t task)
{
    const struct pp_task *t = &s->plan->tasks[task];
    if (t->lane < s->plan->ranks) return s->at.end[task] + s->cost->launch_ns;
    return pp_sim_sent(s, task);
}

/* A host was the cause of the start of `task`. Goes back along the hosts to the transfer or collective that a host
 * waited for, and returns it; -1: to the beginning of the step. *since_ns: the time from which on only hosts were the
 * reason. */
static int32_t host_cause(const struct pp_sim *s, int32_t task, int64_t *since_ns)
{
    const struct pp_plan *plan = s->plan;
    int rank = pp_sim_host(plan, &plan->tasks[task], 0);
    for (; task >= 0; task--) {
        int64_t until_ns;
        if (plan->tasks[task].lane != rank) continue;
        int32_t other = pp_sim_host_cause(s, &s->at, task, &until_ns);
        if (other < 0 || until_ns != s->at.begun[task]) continue;
        if (s->cost->link.host_wait == PP_HOST_FOLLOWS) {
            *since_ns = until_ns - s->cost->issue_latency_ns;
            return other;
        }
        task = other;
        rank = pp_sim_host(plan, &plan->tasks[task], 0);
    }
    *since_ns = s->at.host_ready[rank] - s->cost->issue_latency_ns;
    return -1;
}

/* Why the task started when it did. before: the previous task on its lane; -1: none. */
static struct cause cause_of(const struct pp_sim *s, int32_t task, int32_t before)
{
    const struct pp_plan *plan = s->plan;
    const struct pp_task *t = &plan->tasks[task];
    struct cause cause = {.task = -1};
    if (before >= 0) consider(&cause, before, lane_free(s, before));
    if (t->flags & PP_TASK_DEP_RANGE) {
        for (int32_t d = t->dep[0]; d <= t->dep[1]; d++) consider(&cause, d, s->at.end[d]);
    }
    for (int i = 0; i < 3 && !(t->flags & PP_TASK_DEP_RANGE); i++) {
        if (!pp_sim_dep_holds(s, t, i)) continue;
        bool slot = i == 1 && pp_sim_waits_for_slot(plan, t, t->dep[i]);
        consider(&cause, t->dep[i], slot ? pp_sim_sent(s, t->dep[i]) : s->at.end[t->dep[i]]);
    }
    consider_host(s, &cause, task);
    return cause;
}

static int32_t last_to_end(const struct pp_sim *s)
{
    int32_t last = -1;
    for (int r = 0; r < s->plan->ranks; r++) {
        int32_t task = s->last_task[r];
        if (task >= 0 && (last < 0 || s->at.end[task] > s->at.end[last])) last = task;
    }
    return last;
}

static void reverse(int32_t *tasks, int64_t n)
{
    for (int64_t i = 0; i < n / 2; i++) {
        int32_t keep = tasks[i];
        tasks[i] = tasks[n - 1 - i];
        tasks[n - 1 - i] = keep;
    }
}

static pp_status append(struct pp_sim_path *path, int64_t *capacity, int32_t task)
{
    PP_TRY(PP_GROW(&path->tasks, path->n + 1, capacity));
    path->tasks[path->n++] = task;
    return PP_OK;
}

/* Time of a host before the step's first computation belongs to no makespan, so the path does not go back beyond that.
 */
pp_status pp_sim_find_path(const struct pp_sim *s, int64_t makespan_ns, struct pp_sim_path *path)
{
    int64_t capacity = 0, reached = 0, finish = 0;
    struct neighbours neighbours;
    pp_status status;
    *path = (struct pp_sim_path){0};
    int32_t task = last_to_end(s), before;
    if (task >= 0) reached = finish = s->at.end[task];
    const int64_t first = finish - makespan_ns;
    PP_TRY_DONE(begin_neighbours(&neighbours, s->plan, task));
    while (task >= 0) {
        /* A task counts only until its successor could start: a transfer may go on after it has emptied a slot. */
        int64_t start = pp_sim_start(s, task), until = s->at.end[task] < reached ? s->at.end[task] : reached;
        PP_TRY_DONE(append(path, &capacity, task));
        path->kind_ns[s->plan->tasks[task].kind] += until - start;
        path->waiting_ns += reached - until;
        reached = start;
        PP_TRY_DONE(lane_neighbour(&neighbours, task, &before));
        struct cause cause = cause_of(s, task, before);
        /* If nothing in this step explains the start, the task waited for the step before. */
        bool here = cause.release_ns == start;
        if (cause.host && here) {
            cause.task = host_cause(s, task, &reached);
            if (cause.task < 0) reached = pp_sim_later(reached, start < first ? start : first);
            path->host_ns += start - reached;
        }
        task = here ? cause.task : -1;
    }
    reverse(path->tasks, path->n);
    path->length_ns = finish - reached;
done:
    end_neighbours(&neighbours);
    return status;
}
