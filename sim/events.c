/* SPDX-License-Identifier: Apache-2.0
 *
 * Simulation with changing rates: time advances from event to event.
 *
 * A task goes through the phases of its lane's route (events.h). Since a lane runs its tasks in order, the numbers of
 * tasks that it has sent and done tell for each task of each step whether it is sent or done. A lane whose next task
 * has to wait for another lane is put on the list of that lane.
 *
 * Hosts that issue tasks are lanes, too, behind those of the plan. Their work is a delay. A task that a host has begun
 * to issue counts as sent.
 */
#include <math.h>
#include <stdlib.h>

#include "core/job/given_times.h"
#include "sim/events.h"

/* Notes that the lane's next task may be able to start. */
static void look_at(struct pp_sim_events *e, int32_t lane) { e->ready[e->nready++] = lane; }

/* Has lane `other` sent (or done) `need` tasks? If not, lane `waiter` is put on its list, to be looked at when it has.
 */
static bool reached(struct pp_sim_events *e, int32_t waiter, int32_t other, int64_t need, bool sent)
{
    struct pp_sim_lane *lane = &e->lanes[other], *w = &e->lanes[waiter];
    if ((sent ? lane->sent : lane->done) >= need) return true;
    w->need = need;
    w->need_sent = sent;
    w->next = lane->waiting;
    lane->waiting = waiter;
    return false;
}

/* Has `task` of `step` been sent (or done)? If not, `waiter` is put on the list of its lane. */
static bool happened(struct pp_sim_events *e, int32_t waiter, int32_t task, int step, bool sent)
{
    int32_t lane = e->sim->plan->tasks[task].lane;
    return reached(e, waiter, lane, (int64_t)step * e->lanes[lane].length + e->position[task] + 1, sent);
}

/* Index of the task among those of its i-th host, which is lane `host`. Few tasks have more hosts than two. */
static int32_t host_position(const struct pp_sim_events *e, int32_t host, int32_t task, int i)
{
    const int32_t *order = e->order + e->lanes[host].first;
    int32_t low = 0, high = e->lanes[host].length - 1;
    if (i < PP_SIM_KNOWN_HOSTS) return e->host_position[(int64_t)PP_SIM_KNOWN_HOSTS * task + i];
    while (low < high) {
        int32_t middle = low + (high - low) / 2;
        if (order[middle] < task)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Have all hosts that issue the task begun to issue it (or issued it)? If not, `waiter` is put on the list of one. */
static bool all_issued(struct pp_sim_events *e, int32_t waiter, int32_t task, int step, bool begun)
{
    const struct pp_plan *plan = e->sim->plan;
    const struct pp_task *t = &plan->tasks[task];
    for (int i = 0; i < pp_sim_hosts(plan, t); i++) {
        const int32_t host = plan->nlanes + pp_sim_host(plan, t, i);
        const int64_t before = (int64_t)step * e->lanes[host].length + host_position(e, host, task, i);
        if (!reached(e, waiter, host, before + 1, begun)) return false;
    }
    return true;
}

/* Takes lanes off the list of `lane` whose wait is over, and notes them. */
static void wake(struct pp_sim_events *e, struct pp_sim_lane *lane)
{
    int32_t *link = &lane->waiting;
    while (*link >= 0) {
        int32_t id = *link;
        struct pp_sim_lane *w = &e->lanes[id];
        if ((w->need_sent ? lane->sent : lane->done) < w->need) {
            link = &w->next;
            continue;
        }
        *link = w->next;
        look_at(e, id);
    }
}

/* Index of the first wrap into `task` or into a later task. */
static int first_wrap(const struct pp_sim *s, int32_t task)
{
    int low = 0, high = s->plan->nwraps;
    while (low < high) {
        int middle = low + (high - low) / 2;
        if (s->wraps[middle].to < task)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* May the host issue the task? It waits for the end of the step before, and, depending on pp_link_cost.host_wait, for
 * the transfers and collectives that a computation waits for. */
static bool may_issue(struct pp_sim_events *e, int32_t host, int32_t id, int step)
{
    const struct pp_sim *s = e->sim;
    const struct pp_task *t = &s->plan->tasks[id];
    int wait = s->cost->link.host_wait, rank = host - s->plan->nlanes;
    const struct pp_sim_lane *device = &e->lanes[rank];
    if (!reached(e, host, rank, (int64_t)step * device->length, false)) return false;
    if (t->lane >= s->plan->ranks || wait == PP_HOST_AHEAD) return true;
    bool range = t->flags & PP_TASK_DEP_RANGE;
    for (int32_t i = 0; i < (range ? t->dep[1] - t->dep[0] + 1 : 3); i++) {
        int32_t d = range ? t->dep[0] + i : t->dep[i];
        if (d < 0 || s->plan->tasks[d].lane < s->plan->ranks) continue;
        bool slot = !range && i == 1 && pp_sim_waits_for_slot(s->plan, t, d);
        bool there = wait == PP_HOST_MEETS ? all_issued(e, host, d, step, false) : happened(e, host, d, step, slot);
        if (!there) return false;
    }
    return true;
}

static bool may_start(struct pp_sim_events *e, int32_t lane, int32_t id, int step)
{
    const struct pp_sim *s = e->sim;
    const struct pp_task *t = &s->plan->tasks[id];
    if (e->nhosts > 0 && !all_issued(e, lane, id, step, lane < s->plan->ranks)) return false;
    if (t->flags & PP_TASK_DEP_RANGE) {
        for (int32_t d = t->dep[0]; d <= t->dep[1]; d++)
            if (!happened(e, lane, d, step, false)) return false;
    } else {
        for (int i = 0; i < 3; i++) {
            if (!pp_sim_dep_holds(s, t, i)) continue;
            bool slot = i == 1 && pp_sim_waits_for_slot(s->plan, t, t->dep[i]);
            if (!happened(e, lane, t->dep[i], step, slot)) return false;
        }
    }
    if (step == 0) return true;
    for (int w = first_wrap(s, id); w < s->plan->nwraps && s->wraps[w].to == id; w++) {
        bool slot = pp_sim_waits_for_slot(s->plan, t, s->wraps[w].from);
        if (!happened(e, lane, s->wraps[w].from, step - 1, slot)) return false;
    }
    return true;
}

/* When the device can see the first task that the rank's host issues in a step: the host begins when the device has
 * ended the step before. */
static int64_t host_begins(const struct pp_sim_events *e, int rank, int step)
{
    const struct pp_cost *cost = e->sim->cost;
    const struct pp_sim_lane *device = &e->lanes[rank];
    if (step == 0) return cost->issue_latency_ns;
    if (device->length == 0) return e->cores.now_ns;
    return device->done_ns + cost->launch_ns + cost->step_overhead_ns + cost->issue_latency_ns;
}

/* The time from now until the device can see what the host issues next. */
static int64_t until_visible(const struct pp_sim_events *e, const struct pp_sim_work *work)
{
    const struct pp_sim *s = e->sim;
    const struct pp_sim_lane *host = &e->lanes[work->lane];
    int64_t until = e->cores.now_ns, waited;
    if ((host->started - 1) % host->length == 0)
        until = pp_sim_later(until, host_begins(e, work->lane - s->plan->nlanes, work->step));
    bool computes = s->plan->tasks[work->task].lane < s->plan->ranks;
    if (computes && pp_sim_host_cause(s, &e->times[work->step].at, work->task, &waited) >= 0)
        until = pp_sim_later(until, waited);
    return until - e->cores.now_ns;
}

static int64_t amount_of(const struct pp_sim_events *e, const struct pp_sim_work *work, int amount)
{
    const struct pp_sim *s = e->sim;
    const struct pp_link_cost *link = &s->cost->link;
    const struct pp_task *t = &s->plan->tasks[work->task];
    const int64_t latency = pp_cost_latency_ns(s->cost, t->cls);
    int64_t wire = s->duration[t->cls] - latency - link->send_overhead_ns - link->recv_overhead_ns;
    switch (amount) {
    case PP_SIM_CLASS_TIME: /* with jitter: only one replica is simulated, and its ranks are the workers */
        if (t->lane >= s->plan->ranks) return s->duration[t->cls];
        return pp_jitter_ns(s->duration[t->cls], s->cost->jitter, s->cost->seed, work->step, work->task, t->lane);
    case PP_SIM_REST_OF_ISSUE:
        return pp_sim_later(0, e->times[work->step].at.issued[work->task] - e->cores.now_ns);
    case PP_SIM_LAUNCH:
        return s->cost->launch_ns + (work->task == s->last_task[t->lane] ? s->cost->step_overhead_ns : 0);
    case PP_SIM_SEND_OVERHEAD:
        return link->send_overhead_ns;
    case PP_SIM_WIRE:
        return wire;
    case PP_SIM_LATENCY:
        return latency;
    case PP_SIM_RECV_OVERHEAD:
        return link->recv_overhead_ns;
    case PP_SIM_UNTIL_VISIBLE:
        return until_visible(e, work);
    case PP_SIM_ISSUE:
        return s->cost->classes[t->cls].host_ns;
    default:
        return wire + link->recv_overhead_ns;
    }
}

static void step_done(struct pp_sim_events *e, struct pp_sim_step *t)
{
    struct pp_sim *s = e->sim;
    pp_sim_free_times(&s->at);
    s->at = t->at;
    t->at = (struct pp_sim_times){0};
    pp_sim_step_finished(s);
}

static void mark_host(struct pp_sim_events *e, const struct pp_sim_work *work, unsigned marks)
{
    struct pp_sim_lane *lane = &e->lanes[work->lane];
    int64_t now = e->cores.now_ns;
    if (marks & PP_SIM_SENT) { /* now it is known when the task will have been issued */
        struct pp_sim_times *at = &e->times[work->step].at;
        int64_t *issued = &at->issued[work->task];
        lane->sent++;
        at->begun[work->task] = now;
        int64_t done_ns = now + e->sim->cost->classes[e->sim->plan->tasks[work->task].cls].host_ns;
        *issued = pp_sim_later(*issued, done_ns);
        at->host_done[work->lane - e->sim->plan->nlanes] = done_ns;
    }
    if (marks & PP_SIM_DONE) {
        lane->done++;
        lane->busy = false;
        look_at(e, work->lane);
    }
    wake(e, lane);
}

static void mark(struct pp_sim_events *e, const struct pp_sim_work *work, unsigned marks)
{
    struct pp_sim_lane *lane = &e->lanes[work->lane];
    struct pp_sim_step *t = &e->times[work->step];
    int64_t now = e->cores.now_ns;
    if (work->lane >= e->sim->plan->nlanes) return mark_host(e, work, marks);
    if (marks & PP_SIM_SENT) {
        lane->sent++;
        t->at.sent[work->task] = now;
    }
    if (marks & PP_SIM_FREE) {
        lane->busy = false;
        lane->free_since_ns = now;
        look_at(e, work->lane);
    }
    if (marks & PP_SIM_DONE) {
        lane->done++;
        lane->done_ns = now;
        t->at.end[work->task] = now;
    }
    if (marks & (PP_SIM_SENT | PP_SIM_DONE)) wake(e, lane);
    if (!(marks & PP_SIM_DONE)) return;
    pp_progress_tasks("simulating a step", t->done, e->sim->plan->ntasks);
    if (++t->done == e->sim->plan->ntasks) step_done(e, t);
}

/* If the phase is that of a collective which slows down what its ranks compute: it begins (more = 1) or ends (-1). */
static void collect(struct pp_sim_events *e, const struct pp_sim_work *work, const struct pp_sim_phase *phase, int more)
{
    const struct pp_sim *s = e->sim;
    if (work->lane >= s->plan->nlanes || phase->amount != PP_SIM_CLASS_TIME || !pp_sim_takes(s, work->lane)) return;
    for (int i = 0; i < pp_lane_ranks(s->plan, &s->plan->lanes[work->lane]); i++)
        pp_cores_collect(&e->cores, pp_lane_rank(&s->plan->lanes[work->lane], i), more);
}

/* The part of a computation's time that the collectives inside it take. */
static double idle_part(const struct pp_class_cost *cost)
{
    return cost->sums_ns > 0 && cost->ns > 0 ? fmin((double)cost->sums_ns / (double)cost->ns, 1) : 0;
}

/* Starts the phase work.phase of a task. Phases that take no time end at once, and the next one is started. */
static pp_status proceed(struct pp_sim_events *e, struct pp_sim_work work)
{
    const struct pp_sim *s = e->sim;
    const struct pp_sim_phase *route = e->lanes[work.lane].route;
    bool host = work.lane >= s->plan->nlanes;
    for (;; work.phase++) {
        const struct pp_sim_phase *phase = &route[work.phase];
        int64_t ns = amount_of(e, &work, phase->amount), loaded_ns = ns;
        if (ns > 0) {
            const struct pp_lane *lane = host ? NULL : &s->plan->lanes[work.lane];
            int core = phase->place == PP_SIM_NOWHERE ? -1 : phase->place == PP_SIM_ON_SOURCE ? lane->src : lane->dst;
            const struct pp_class_cost *cost = &s->cost->classes[s->plan->tasks[work.task].cls];
            const bool computes = core >= 0 && lane->kind == PP_LANE_COMPUTE;
            if (computes) loaded_ns = cost->loaded_ns;
            collect(e, &work, phase, 1);
            return pp_cores_start(&e->cores, work, core, ns, loaded_ns, computes ? idle_part(cost) : 0);
        }
        mark(e, &work, phase->marks);
        if (phase->marks & PP_SIM_LAST) return PP_OK;
    }
}

/* Starts the next task of the lane, if it may start. */
static pp_status try_start(struct pp_sim_events *e, int32_t l)
{
    struct pp_sim_lane *lane = &e->lanes[l];
    if (lane->busy || lane->length == 0 || lane->started / lane->length == PP_SIM_STEPS) return PP_OK;
    int step = (int)(lane->started / lane->length), nlanes = e->sim->plan->nlanes;
    int32_t id = e->order[lane->first + lane->started % lane->length];
    if (!(l < nlanes ? may_start(e, l, id, step) : may_issue(e, l, id, step))) return PP_OK;
    struct pp_sim_step *t = &e->times[step];
    PP_TRY(pp_sim_make_times(&t->at, e->sim));
    bool first = lane->started % lane->length == 0;
    if (l >= nlanes) {
        if (first) t->at.host_ready[l - nlanes] = pp_sim_later(e->cores.now_ns, host_begins(e, l - nlanes, step));
    } else {
        if (first) t->at.lane_ready[l] = lane->free_since_ns;
        t->at.start[id] = e->cores.now_ns;
    }
    lane->busy = true;
    lane->started++;
    return proceed(e, (struct pp_sim_work){.task = id, .step = step, .lane = l});
}

static pp_status simulate(struct pp_sim_events *e)
{
    struct pp_sim *s = e->sim;
    struct pp_sim_work work;
    for (int32_t l = s->plan->nlanes + e->nhosts - 1; l >= 0; l--) look_at(e, l);
    for (;;) {
        while (e->nready > 0 && !s->steady) PP_TRY(try_start(e, e->ready[--e->nready]));
        if (s->steady || s->steps == PP_SIM_STEPS) return PP_OK;
        if (!pp_cores_next(&e->cores, &work))
            return pp_fail(PP_INTERNAL, "the simulation of schedule %s stands still in step %d", s->plan->schedule,
                           s->steps);
        const struct pp_sim_phase *phase = &e->lanes[work.lane].route[work.phase++];
        collect(e, &work, phase, -1);
        mark(e, &work, phase->marks);
        if (!(phase->marks & PP_SIM_LAST)) PP_TRY(proceed(e, work));
    }
}

pp_status pp_sim_events(struct pp_sim *s)
{
    struct pp_sim_events e = {.sim = s};
    pp_status status;
    PP_TRY_DONE(pp_sim_make_lanes(&e));
    PP_TRY_DONE(pp_cores_init(&e.cores, s->cost, s->plan->ranks));
    status = simulate(&e);
done:
    for (int i = 0; i < PP_SIM_STEPS; i++) pp_sim_free_times(&e.times[i].at);
    pp_cores_release(&e.cores);
    free(e.lanes);
    free(e.order);
    free(e.position);
    free(e.host_position);
    free(e.ready);
    return status;
}
