/* SPDX-License-Identifier: Apache-2.0
 *
 * Lanes of the simulation from event to event: which way their tasks go, and in which order they come.
 */
#include <stdlib.h>

#include "sim/events.h"

static const struct phase compute_route[] = {{ON_SOURCE, CLASS_TIME, SENT | DONE}, {NOWHERE, LAUNCH, FREE | LAST}};
static const struct phase queue_route[] = {
    {ON_SOURCE, CLASS_TIME, 0}, {NOWHERE, REST_OF_ISSUE, SENT | DONE}, {NOWHERE, LAUNCH, FREE | LAST}};
static const struct phase host_route[] = {{NOWHERE, UNTIL_VISIBLE, SENT}, {NOWHERE, ISSUE, DONE | FREE | LAST}};
static const struct phase engine_route[] = {{ON_SOURCE, SEND_OVERHEAD, 0},
                                            {NOWHERE, WIRE, SENT | FREE},
                                            {NOWHERE, LATENCY, 0},
                                            {ON_TARGET, RECV_OVERHEAD, DONE | LAST}};
static const struct phase copy_route[] = {{ON_SOURCE, SEND_OVERHEAD, 0},
                                          {NOWHERE, LATENCY, 0},
                                          {ON_TARGET, WIRE_AND_RECV_OVERHEAD, SENT | DONE | FREE | LAST}};
static const struct phase core_route[] = {{ON_SOURCE, CLASS_TIME, SENT | DONE | FREE | LAST}};
static const struct phase device_route[] = {{NOWHERE, CLASS_TIME, SENT | DONE | FREE | LAST}};

static const struct phase *route_of(const struct sim *s, const struct pp_lane *lane)
{
    switch (lane->kind) {
    case PP_LANE_COMPUTE:
        return s->cost->host_issues ? queue_route : compute_route;
    case PP_LANE_CHANNEL:
        return s->cost->link.receiver_copies ? copy_route : engine_route;
    default:
        return pp_sim_reduces_on_core(s, lane) ? core_route : device_route;
    }
}

/* Ids that the host of the rank issues, in their order; out NULL: only counts them. */
static int32_t list_host(const struct pp_plan *plan, int rank, int32_t *out)
{
    int32_t n = 0;
    for (int32_t id = 0; id < plan->ntasks; id++)
        for (int i = 0; i < pp_sim_hosts(plan, &plan->tasks[id]); i++) {
            if (pp_sim_host(plan, &plan->tasks[id], i) != rank) continue;
            if (out) out[n] = id;
            n++;
        }
    return n;
}

/* Routes, and where each lane's tasks stand in order[]; returns how many there are in all. */
static int32_t set_lanes(struct events *e)
{
    const struct pp_plan *plan = e->sim->plan;
    int32_t first = 0;
    for (int l = 0; l < plan->nlanes + e->nhosts; l++) {
        struct lane *lane = &e->lanes[l];
        bool host = l >= plan->nlanes;
        lane->route = host ? host_route : route_of(e->sim, &plan->lanes[l]);
        if (host) lane->length = list_host(plan, l - plan->nlanes, NULL);
        lane->first = first;
        lane->waiting = lane->next = -1;
        first += lane->length;
    }
    return first;
}

pp_status pp_sim_make_lanes(struct events *e)
{
    const struct pp_plan *plan = e->sim->plan;
    e->nhosts = e->sim->cost->host_issues ? plan->ranks : 0;
    PP_TRY(PP_NEW(&e->lanes, plan->nlanes + e->nhosts));
    PP_TRY(PP_NEW(&e->position, plan->ntasks));
    PP_TRY(PP_NEW(&e->ready, plan->nlanes + e->nhosts));
    for (int32_t id = 0; id < plan->ntasks; id++) e->position[id] = e->lanes[plan->tasks[id].lane].length++;
    PP_TRY(PP_NEW(&e->order, set_lanes(e)));
    for (int32_t id = 0; id < plan->ntasks; id++) e->order[e->lanes[plan->tasks[id].lane].first + e->position[id]] = id;
    for (int h = 0; h < e->nhosts; h++) list_host(plan, h, &e->order[e->lanes[plan->nlanes + h].first]);
    return PP_OK;
}
