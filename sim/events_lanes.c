/* SPDX-License-Identifier: Apache-2.0
 *
 * The lanes of the simulation from event to event: the route and the order of their tasks.
 */
#include <stdlib.h>

#include "sim/events.h"

/* Routes, by kind of lane: computations of a CPU and of a queue device, hosts, transfers by a copy engine and by the
 * receiver's core, collectives on a core and on a device. */
static const struct pp_sim_phase compute_route[] = {{PP_SIM_ON_SOURCE, PP_SIM_CLASS_TIME, PP_SIM_SENT | PP_SIM_DONE},
                                                    {PP_SIM_NOWHERE, PP_SIM_LAUNCH, PP_SIM_FREE | PP_SIM_LAST}};
static const struct pp_sim_phase queue_route[] = {{PP_SIM_ON_SOURCE, PP_SIM_CLASS_TIME, 0},
                                                  {PP_SIM_NOWHERE, PP_SIM_REST_OF_ISSUE, PP_SIM_SENT | PP_SIM_DONE},
                                                  {PP_SIM_NOWHERE, PP_SIM_LAUNCH, PP_SIM_FREE | PP_SIM_LAST}};
static const struct pp_sim_phase host_route[] = {
    {PP_SIM_NOWHERE, PP_SIM_UNTIL_VISIBLE, PP_SIM_SENT},
    {PP_SIM_NOWHERE, PP_SIM_ISSUE, PP_SIM_DONE | PP_SIM_FREE | PP_SIM_LAST}};
static const struct pp_sim_phase engine_route[] = {{PP_SIM_ON_SOURCE, PP_SIM_SEND_OVERHEAD, 0},
                                                   {PP_SIM_NOWHERE, PP_SIM_WIRE, PP_SIM_SENT | PP_SIM_FREE},
                                                   {PP_SIM_NOWHERE, PP_SIM_LATENCY, 0},
                                                   {PP_SIM_ON_TARGET, PP_SIM_RECV_OVERHEAD, PP_SIM_DONE | PP_SIM_LAST}};
static const struct pp_sim_phase copy_route[] = {
    {PP_SIM_ON_SOURCE, PP_SIM_SEND_OVERHEAD, 0},
    {PP_SIM_NOWHERE, PP_SIM_LATENCY, 0},
    {PP_SIM_ON_TARGET, PP_SIM_WIRE_AND_RECV_OVERHEAD, PP_SIM_SENT | PP_SIM_DONE | PP_SIM_FREE | PP_SIM_LAST}};
static const struct pp_sim_phase core_route[] = {
    {PP_SIM_ON_SOURCE, PP_SIM_CLASS_TIME, PP_SIM_SENT | PP_SIM_DONE | PP_SIM_FREE | PP_SIM_LAST}};
static const struct pp_sim_phase device_route[] = {
    {PP_SIM_NOWHERE, PP_SIM_CLASS_TIME, PP_SIM_SENT | PP_SIM_DONE | PP_SIM_FREE | PP_SIM_LAST}};

static const struct pp_sim_phase *route_of(const struct pp_sim *s, const struct pp_lane *lane)
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

/* Counts the tasks that each host issues, in the length of its lane; notes which one of them each is. */
static void count_issued(struct pp_sim_events *e)
{
    const struct pp_plan *plan = e->sim->plan;
    for (int32_t id = 0; id < plan->ntasks && e->nhosts > 0; id++)
        for (int i = 0; i < pp_sim_hosts(plan, &plan->tasks[id]); i++) {
            struct pp_sim_lane *host = &e->lanes[plan->nlanes + pp_sim_host(plan, &plan->tasks[id], i)];
            if (i < PP_SIM_KNOWN_HOSTS) e->host_position[(int64_t)PP_SIM_KNOWN_HOSTS * id + i] = host->length;
            host->length++;
        }
}

/* Writes the ids of the tasks that each host issues, in order. */
static void list_issued(struct pp_sim_events *e)
{
    const struct pp_plan *plan = e->sim->plan;
    for (int h = 0; h < e->nhosts; h++) e->lanes[plan->nlanes + h].length = 0;
    for (int32_t id = 0; id < plan->ntasks && e->nhosts > 0; id++)
        for (int i = 0; i < pp_sim_hosts(plan, &plan->tasks[id]); i++) {
            struct pp_sim_lane *host = &e->lanes[plan->nlanes + pp_sim_host(plan, &plan->tasks[id], i)];
            e->order[host->first + host->length++] = id;
        }
}

/* Sets each lane's route, and the position of its tasks in order[]; returns the length of order[]. */
static int32_t set_lanes(struct pp_sim_events *e)
{
    const struct pp_plan *plan = e->sim->plan;
    int32_t first = 0;
    for (int l = 0; l < plan->nlanes + e->nhosts; l++) {
        struct pp_sim_lane *lane = &e->lanes[l];
        bool host = l >= plan->nlanes;
        lane->route = host ? host_route : route_of(e->sim, &plan->lanes[l]);
        lane->first = first;
        lane->waiting = lane->next = -1;
        first += lane->length;
    }
    return first;
}

pp_status pp_sim_make_lanes(struct pp_sim_events *e)
{
    const struct pp_plan *plan = e->sim->plan;
    e->nhosts = e->sim->cost->host_issues ? plan->ranks : 0;
    PP_TRY(PP_NEW(&e->lanes, plan->nlanes + e->nhosts));
    PP_TRY(PP_NEW(&e->position, plan->ntasks));
    PP_TRY(PP_NEW(&e->ready, plan->nlanes + e->nhosts));
    if (e->nhosts > 0) PP_TRY(PP_NEW(&e->host_position, (int64_t)PP_SIM_KNOWN_HOSTS * plan->ntasks));
    for (int32_t id = 0; id < plan->ntasks; id++) e->position[id] = e->lanes[plan->tasks[id].lane].length++;
    count_issued(e);
    PP_TRY(PP_NEW(&e->order, set_lanes(e)));
    for (int32_t id = 0; id < plan->ntasks; id++) e->order[e->lanes[plan->tasks[id].lane].first + e->position[id]] = id;
    list_issued(e);
    return PP_OK;
}
