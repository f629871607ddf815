/* SPDX-License-Identifier: Apache-2.0
 *
 * The critical path: from the task that ends last, back to whatever it waited for longest, and so on. Ids only fall
 * on the way, so finding lane neighbours by walking down the ids costs one pass in all.
 */
#include <stdlib.h>

#include "sim/simulating.h"

/* What let a task start: the latest of all that it waited for. */
struct cause {
    int32_t task; /* -1: nothing in this step */
    int64_t release_ns;
    bool host; /* the last to let it start was its host */
};

static void consider(struct cause *cause, int32_t task, int64_t release_ns)
{
    if (cause->task < 0 || release_ns > cause->release_ns) *cause = (struct cause){task, release_ns, false};
}

/* The host, if no other let the task start later than it did. */
static void consider_host(const struct sim *s, struct cause *cause, int32_t task)
{
    if (!s->issued) return;
    int64_t release_ns = s->plan->tasks[task].lane < s->plan->ranks ? s->begun[task] : s->issued[task];
    if (cause->task >= 0 && release_ns < cause->release_ns) return;
    *cause = (struct cause){-1, release_ns, true};
}

/* The task before `task` on its lane; -1 if there is none. */
static int32_t lane_neighbour(const struct pp_plan *plan, int32_t task)
{
    int32_t lane = plan->tasks[task].lane;
    while (--task >= 0 && plan->tasks[task].lane != lane) {
    }
    return task;
}

/* When the lane was free again after `task`. */
static int64_t lane_free(const struct sim *s, int32_t task)
{
    const struct pp_task *t = &s->plan->tasks[task];
    if (t->lane < s->plan->ranks) return s->end[task] + s->cost->launch_ns;
    return pp_sim_sent(s, task);
}

/* Back along the hosts, from the moment at which one let `task` start: to the transfer or collective that it waited
 * for, or to the beginning of its step (-1). *since_ns: from when on only hosts were the reason. */
static int32_t host_cause(const struct sim *s, int32_t task, int64_t *since_ns)
{
    const struct pp_plan *plan = s->plan;
    const struct pp_sim_times times = {.end = s->end, .sent = s->sent, .issued = s->issued};
    int rank = pp_sim_host(plan, &plan->tasks[task], 0);
    for (; task >= 0; task--) {
        int64_t until_ns;
        if (plan->tasks[task].lane != rank) continue;
        int32_t other = pp_sim_host_cause(s, &times, task, &until_ns);
        if (other < 0 || until_ns != s->begun[task]) continue;
        if (s->cost->link.host_wait == PP_HOST_FOLLOWS) {
            *since_ns = until_ns - s->cost->issue_latency_ns;
            return other;
        }
        task = other;
        rank = pp_sim_host(plan, &plan->tasks[task], 0);
    }
    *since_ns = s->host_ready[rank] - s->cost->issue_latency_ns;
    return -1;
}

static struct cause cause_of(const struct sim *s, int32_t task)
{
    const struct pp_plan *plan = s->plan;
    const struct pp_task *t = &plan->tasks[task];
    struct cause cause = {.task = -1};
    int32_t before = lane_neighbour(plan, task);
    if (before >= 0) consider(&cause, before, lane_free(s, before));
    if (t->flags & PP_TASK_DEP_RANGE) {
        for (int32_t d = t->dep[0]; d <= t->dep[1]; d++) consider(&cause, d, s->end[d]);
    }
    for (int i = 0; i < 3 && !(t->flags & PP_TASK_DEP_RANGE); i++) {
        if (!pp_sim_dep_holds(s, t, i)) continue;
        bool slot = i == 1 && pp_sim_waits_for_slot(plan, t, t->dep[i]);
        consider(&cause, t->dep[i], slot ? pp_sim_sent(s, t->dep[i]) : s->end[t->dep[i]]);
    }
    consider_host(s, &cause, task);
    return cause;
}

static int32_t last_to_end(const struct sim *s)
{
    int32_t last = -1;
    for (int r = 0; r < s->plan->ranks; r++) {
        int32_t task = s->last_task[r];
        if (task >= 0 && (last < 0 || s->end[task] > s->end[last])) last = task;
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
    if (path->n == *capacity) {
        *capacity = *capacity ? 2 * *capacity : 256;
        int32_t *larger = realloc(path->tasks, (size_t)*capacity * sizeof *larger);
        if (!larger) return pp_fail(PP_NOMEM, "cannot allocate a critical path of %lld tasks", (long long)*capacity);
        path->tasks = larger;
    }
    path->tasks[path->n++] = task;
    return PP_OK;
}

pp_status pp_sim_find_path(const struct sim *s, struct pp_sim_path *path)
{
    int64_t capacity = 0, reached = 0, finish = 0;
    *path = (struct pp_sim_path){0};
    int32_t task = last_to_end(s);
    if (task >= 0) reached = finish = s->end[task];
    while (task >= 0) {
        /* A task counts for the time until its successor could start: a transfer may go on after it has emptied a
         * slot. */
        int64_t start = pp_sim_start(s, task), until = s->end[task] < reached ? s->end[task] : reached;
        PP_TRY(append(path, &capacity, task));
        path->kind_ns[s->plan->tasks[task].kind] += until - start;
        path->waiting_ns += reached - until;
        reached = start;
        struct cause cause = cause_of(s, task);
        /* What did not wait for anything in this step waited for the step before. */
        bool here = cause.release_ns == start;
        if (cause.host && here) {
            cause.task = host_cause(s, task, &reached);
            path->host_ns += start - reached;
        }
        task = here ? cause.task : -1;
    }
    reverse(path->tasks, path->n);
    path->length_ns = finish - reached;
    return PP_OK;
}
