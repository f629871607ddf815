/* SPDX-License-Identifier: Apache-2.0
 *
 * Changing rates: time goes from event to event.
 *
 * A task goes through the phases of its route: work on the core of one of its ranks, or a delay. At the end of a
 * phase it may be sent (its send slot is free), done, or free its lane. Lanes run in order, so counting what a lane
 * has sent and done tells for every task of every step whether it is. A lane whose next task has to wait is noted at
 * the lane that it waits for.
 */
#include <stdlib.h>

#include "sim/cores.h"
#include "sim/simulating.h"

enum place { ON_SOURCE, ON_TARGET, NOWHERE };
enum amount { CLASS_TIME, LAUNCH, SEND_OVERHEAD, WIRE, LATENCY, WIRE_AND_RECV_OVERHEAD, RECV_OVERHEAD };
enum mark { SENT = 1, DONE = 2, FREE = 4, LAST = 8 };

struct phase {
    uint8_t place, amount, marks;
};

static const struct phase compute_route[] = {{ON_SOURCE, CLASS_TIME, SENT | DONE}, {NOWHERE, LAUNCH, FREE | LAST}};
static const struct phase engine_route[] = {{ON_SOURCE, SEND_OVERHEAD, 0},
                                            {NOWHERE, WIRE, SENT | FREE},
                                            {NOWHERE, LATENCY, 0},
                                            {ON_TARGET, RECV_OVERHEAD, DONE | LAST}};
static const struct phase copy_route[] = {{ON_SOURCE, SEND_OVERHEAD, 0},
                                          {NOWHERE, LATENCY, 0},
                                          {ON_TARGET, WIRE_AND_RECV_OVERHEAD, SENT | DONE | FREE | LAST}};
static const struct phase core_route[] = {{ON_SOURCE, CLASS_TIME, SENT | DONE | FREE | LAST}};
static const struct phase device_route[] = {{NOWHERE, CLASS_TIME, SENT | DONE | FREE | LAST}};

struct lane {
    const struct phase *route;
    int32_t first, length;       /* its tasks: order[first] .. */
    int64_t started, sent, done; /* tasks, counted over all steps */
    bool busy;
    int64_t free_since_ns;
    int64_t need;          /* what it waits for: so many of another lane's tasks, */
    bool need_sent;        /* sent or done */
    int32_t waiting, next; /* first lane that waits for this one; next that waits for the same. -1 = none */
};

struct step_times {
    int64_t *start, *end, *sent, *lane_ready;
    int64_t left; /* tasks not yet done */
};

struct events {
    struct sim *sim;
    struct cores cores;
    struct lane *lanes;
    int32_t *order;         /* [ntasks] ids lane by lane */
    int32_t *position;      /* [ntasks] in its lane */
    int32_t *ready, nready; /* lanes to look at */
    struct step_times times[PP_SIM_STEPS];
};

static const struct phase *route_of(const struct sim *s, const struct pp_lane *lane)
{
    switch (lane->kind) {
    case PP_LANE_COMPUTE:
        return compute_route;
    case PP_LANE_CHANNEL:
        return s->cost->link.receiver_copies ? copy_route : engine_route;
    default:
        return pp_sim_reduces_on_core(s, lane) ? core_route : device_route;
    }
}

static pp_status make_lanes(struct events *e)
{
    const struct pp_plan *plan = e->sim->plan;
    PP_TRY(PP_NEW(&e->lanes, plan->nlanes));
    PP_TRY(PP_NEW(&e->order, plan->ntasks));
    PP_TRY(PP_NEW(&e->position, plan->ntasks));
    PP_TRY(PP_NEW(&e->ready, plan->nlanes));
    for (int32_t id = 0; id < plan->ntasks; id++) e->position[id] = e->lanes[plan->tasks[id].lane].length++;
    int32_t first = 0;
    for (int l = 0; l < plan->nlanes; l++) {
        struct lane *lane = &e->lanes[l];
        lane->route = route_of(e->sim, &plan->lanes[l]);
        lane->first = first;
        lane->waiting = lane->next = -1;
        first += lane->length;
    }
    for (int32_t id = 0; id < plan->ntasks; id++) e->order[e->lanes[plan->tasks[id].lane].first + e->position[id]] = id;
    return PP_OK;
}

static void free_times(struct step_times *t)
{
    free(t->start);
    free(t->end);
    free(t->sent);
    free(t->lane_ready);
    *t = (struct step_times){0};
}

static pp_status make_times(struct step_times *t, const struct pp_plan *plan)
{
    if (t->start) return PP_OK;
    t->left = plan->ntasks;
    PP_TRY(PP_NEW(&t->start, plan->ntasks));
    PP_TRY(PP_NEW(&t->end, plan->ntasks));
    PP_TRY(PP_NEW(&t->sent, plan->ntasks));
    return PP_NEW(&t->lane_ready, plan->nlanes);
}

static void look_at(struct events *e, int32_t lane) { e->ready[e->nready++] = lane; }

/* Has `task` of `step` happened (been sent, or done)? If not, lane `waiter` is noted to be looked at when it has. */
static bool happened(struct events *e, int32_t waiter, int32_t task, int step, bool sent)
{
    int32_t other = e->sim->plan->tasks[task].lane;
    struct lane *lane = &e->lanes[other], *w = &e->lanes[waiter];
    int64_t need = (int64_t)step * lane->length + e->position[task] + 1;
    if ((sent ? lane->sent : lane->done) >= need) return true;
    w->need = need;
    w->need_sent = sent;
    w->next = lane->waiting;
    lane->waiting = waiter;
    return false;
}

static void wake(struct events *e, struct lane *lane)
{
    int32_t *link = &lane->waiting;
    while (*link >= 0) {
        int32_t id = *link;
        struct lane *w = &e->lanes[id];
        if ((w->need_sent ? lane->sent : lane->done) < w->need) {
            link = &w->next;
            continue;
        }
        *link = w->next;
        look_at(e, id);
    }
}

/* First wrap edge into `task`, or the first after it. */
static int first_wrap(const struct sim *s, int32_t task)
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

static bool may_start(struct events *e, int32_t lane, int32_t id, int step)
{
    const struct sim *s = e->sim;
    const struct pp_task *t = &s->plan->tasks[id];
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

static int64_t amount_of(const struct sim *s, int32_t id, int amount)
{
    const struct pp_link_cost *link = &s->cost->link;
    const struct pp_task *t = &s->plan->tasks[id];
    int64_t wire = s->duration[t->cls] - link->latency_ns - link->send_overhead_ns - link->recv_overhead_ns;
    switch (amount) {
    case CLASS_TIME:
        return s->duration[t->cls];
    case LAUNCH:
        return s->cost->launch_ns + (id == s->last_task[t->lane] ? s->cost->step_overhead_ns : 0);
    case SEND_OVERHEAD:
        return link->send_overhead_ns;
    case WIRE:
        return wire;
    case LATENCY:
        return link->latency_ns;
    case RECV_OVERHEAD:
        return link->recv_overhead_ns;
    default:
        return wire + link->recv_overhead_ns;
    }
}

static void step_done(struct events *e, struct step_times *t)
{
    struct sim *s = e->sim;
    struct step_times last = {s->start, s->end, s->sent, s->lane_ready, 0};
    free_times(&last);
    s->start = t->start;
    s->end = t->end;
    s->sent = t->sent;
    s->lane_ready = t->lane_ready;
    *t = (struct step_times){0};
    pp_sim_step_finished(s);
}

static void mark(struct events *e, int32_t id, int step, unsigned marks)
{
    int32_t l = e->sim->plan->tasks[id].lane;
    struct lane *lane = &e->lanes[l];
    struct step_times *t = &e->times[step];
    if (marks & SENT) {
        lane->sent++;
        t->sent[id] = e->cores.now_ns;
    }
    if (marks & FREE) {
        lane->busy = false;
        lane->free_since_ns = e->cores.now_ns;
        look_at(e, l);
    }
    if (marks & DONE) {
        lane->done++;
        t->end[id] = e->cores.now_ns;
    }
    if (marks & (SENT | DONE)) wake(e, lane);
    if ((marks & DONE) && --t->left == 0) step_done(e, t);
}

/* Goes on with `phase`; what takes no time is done at once. */
static pp_status proceed(struct events *e, int32_t id, int step, int phase)
{
    const struct sim *s = e->sim;
    const struct pp_task *t = &s->plan->tasks[id];
    const struct phase *route = e->lanes[t->lane].route;
    for (;; phase++) {
        int64_t ns = amount_of(s, id, route[phase].amount), loaded_ns = ns;
        if (ns > 0) {
            const struct pp_lane *lane = &s->plan->lanes[t->lane];
            int core = route[phase].place == NOWHERE ? -1 : route[phase].place == ON_SOURCE ? lane->src : lane->dst;
            if (lane->kind == PP_LANE_COMPUTE) loaded_ns = s->cost->classes[t->cls].loaded_ns;
            return pp_cores_start(&e->cores, (struct work){id, step, phase}, core, ns, loaded_ns);
        }
        mark(e, id, step, route[phase].marks);
        if (route[phase].marks & LAST) return PP_OK;
    }
}

static pp_status try_start(struct events *e, int32_t l)
{
    struct lane *lane = &e->lanes[l];
    if (lane->busy || lane->length == 0 || lane->started / lane->length == PP_SIM_STEPS) return PP_OK;
    int step = (int)(lane->started / lane->length);
    int32_t id = e->order[lane->first + lane->started % lane->length];
    if (!may_start(e, l, id, step)) return PP_OK;
    struct step_times *t = &e->times[step];
    PP_TRY(make_times(t, e->sim->plan));
    if (lane->started % lane->length == 0) t->lane_ready[l] = lane->free_since_ns;
    t->start[id] = e->cores.now_ns;
    lane->busy = true;
    lane->started++;
    return proceed(e, id, step, 0);
}

static pp_status simulate(struct events *e)
{
    struct sim *s = e->sim;
    struct work work;
    for (int32_t l = s->plan->nlanes - 1; l >= 0; l--) look_at(e, l);
    for (;;) {
        while (e->nready > 0 && !s->steady) PP_TRY(try_start(e, e->ready[--e->nready]));
        if (s->steady || s->steps == PP_SIM_STEPS) return PP_OK;
        if (!pp_cores_next(&e->cores, &work))
            return pp_fail(PP_INTERNAL, "the simulation of schedule %s stands still in step %d", s->plan->schedule,
                           s->steps);
        const struct phase *phase = &e->lanes[s->plan->tasks[work.task].lane].route[work.phase];
        mark(e, work.task, work.step, phase->marks);
        if (!(phase->marks & LAST)) PP_TRY(proceed(e, work.task, work.step, work.phase + 1));
    }
}

pp_status pp_sim_events(struct sim *s)
{
    struct events e = {.sim = s};
    pp_status status;
    PP_TRY_DONE(make_lanes(&e));
    PP_TRY_DONE(pp_cores_init(&e.cores, s->cost, s->plan->ranks));
    status = simulate(&e);
done:
    for (int i = 0; i < PP_SIM_STEPS; i++) free_times(&e.times[i]);
    pp_cores_release(&e.cores);
    free(e.lanes);
    free(e.order);
    free(e.position);
    free(e.ready);
    return status;
}
