/* SPDX-License-Identifier: Apache-2.0 */
#include "exec/routes.h"

#include <stdlib.h>

int64_t pp_transfer_bytes(const struct pp_job *job, int rows, int seq)
{
    const struct pp_shape *shape = &job->model->shape;
    return (int64_t)rows * seq * shape->d_model * pp_element_bytes(shape->precision);
}

static int64_t largest_transfer(const struct pp_job *job)
{
    int64_t most = 0;
    for (int p = 0; p < PP_PHASES; p++) {
        const struct pp_phase *phase = &job->phase[p];
        for (int m = 0; phase->plan && m < phase->plan->microbatches; m++) {
            int64_t bytes = pp_transfer_bytes(job, phase->plan->rows[m], phase->seq);
            if (bytes > most) most = bytes;
        }
    }
    return most;
}

static int transfers_on(const struct pp_plan *plan, const struct pp_lane *lane)
{
    int n = 0;
    for (int64_t i = 0; plan && i < plan->ntasks; i++) {
        const struct pp_lane *other = &plan->lanes[plan->tasks[i].lane];
        n += other->kind == PP_LANE_CHANNEL && other->src == lane->src && other->dst == lane->dst &&
             other->transfer == lane->transfer;
    }
    return n;
}

static bool is_local(const struct pp_world *world, int worker)
{
    return worker >= world->first && worker < world->first + world->count;
}

static pp_status choose(const struct pp_world *world, bool local, const struct pp_carrier **out)
{
    *out = local ? &pp_carrier_inproc : world->carrier;
    return *out ? PP_OK
                : pp_fail(PP_UNSUPPORTED, "nothing carries the memory of devices between processes: run all workers "
                                          "in one process, without mpirun");
}

static pp_status open_route(const struct pp_port *port, const struct pp_job *job, int replica,
                            const struct pp_lane *lane, struct pp_routes *routes)
{
    int base = replica * job->train->ranks, src = base + lane->src, dst = base + lane->dst;
    int kind = lane->transfer == PP_XFER_F ? PP_MESSAGE_FORWARD : PP_MESSAGE_BACKWARD;
    int train = transfers_on(job->train, lane), eval = transfers_on(job->eval, lane);
    if ((src != port->me && dst != port->me) || pp_routes_find(routes, src, dst, kind)) return PP_OK;
    struct pp_route *route = &routes->routes[routes->n++];
    *route = (struct pp_route){.src = src, .dst = dst, .kind = kind};
    PP_TRY(choose(port->world, is_local(port->world, src) && is_local(port->world, dst), &route->carrier));
    struct pp_channel_spec spec = {.port = *port,
                                   .src = src,
                                   .dst = dst,
                                   .kind = kind,
                                   .most_bytes = largest_transfer(job),
                                   .most_parcels = train > eval ? train : eval};
    return pp_context(route->carrier->open(&spec, &route->channel), "channel from worker %d to %d", src, dst);
}

static pp_status open_lanes(const struct pp_port *port, const struct pp_job *job, const struct pp_plan *plan,
                            struct pp_routes *routes)
{
    for (int replica = 0; plan && replica < job->train->replicas; replica++)
        for (int l = 0; l < plan->nlanes; l++)
            if (plan->lanes[l].kind == PP_LANE_CHANNEL) PP_TRY(open_route(port, job, replica, &plan->lanes[l], routes));
    return PP_OK;
}

static pp_status open_sum(const struct pp_port *port, struct pp_group group, int64_t elements, int type,
                          struct pp_sum_route *out)
{
    bool local = true;
    if (group.n < 2) return PP_OK;
    for (int i = 0; i < group.n; i++) local = local && is_local(port->world, pp_group_worker(&group, i));
    PP_TRY(choose(port->world, local, &out->carrier));
    struct pp_sum_spec spec = {.port = *port, .group = group, .most_elements = elements, .type = type};
    return out->carrier->sum_open(&spec, &out->sum);
}

/* Floats of the largest stage of a rank. */
static int64_t most_gradients(const struct pp_job *job, int rank)
{
    int64_t most = 0;
    for (int s = 0; s < job->train->stages; s++) {
        int64_t floats = job->model->stages[s].param_bytes / (int64_t)sizeof(float);
        if (job->train->stage_rank[s] == rank && floats > most) most = floats;
    }
    return most;
}

pp_status pp_routes_open(const struct pp_port *port, const struct pp_job *job, struct pp_routes *out)
{
    const struct pp_plan *train = job->train;
    int ranks = train->ranks, rank = port->me % ranks, replica = port->me / ranks;
    PP_TRY(PP_NEW(&out->routes, train->nlanes + (job->eval ? job->eval->nlanes : 0)));
    PP_TRY(open_lanes(port, job, train, out));
    PP_TRY(open_lanes(port, job, job->eval, out));
    PP_TRY(pp_context(open_sum(port, (struct pp_group){rank, ranks, train->replicas}, most_gradients(job, rank),
                               PP_SUM_FLOAT, &out->gradient),
                      "sum of gradients"));
    if (!train->clip) return PP_OK;
    return pp_context(
        open_sum(port, (struct pp_group){replica * ranks, 1, ranks}, job->model->ntensors, PP_SUM_DOUBLE, &out->norm),
        "sum of squares");
}

static void close_sum(const struct pp_sum_route *route)
{
    if (route->carrier) route->carrier->sum_close(route->sum);
}

void pp_routes_close(struct pp_routes *routes)
{
    for (int i = 0; i < routes->n; i++)
        if (routes->routes[i].carrier) routes->routes[i].carrier->close(routes->routes[i].channel);
    close_sum(&routes->gradient);
    close_sum(&routes->norm);
    free(routes->routes);
    *routes = (struct pp_routes){0};
}

static pp_status check_sum(const struct pp_sum_route *route)
{
    return route->sum ? route->carrier->sum_check(route->sum) : PP_OK;
}

pp_status pp_routes_check(const struct pp_routes *routes)
{
    for (int i = 0; i < routes->n; i++) PP_TRY(routes->routes[i].carrier->check(routes->routes[i].channel));
    PP_TRY(check_sum(&routes->gradient));
    return check_sum(&routes->norm);
}

static void abort_sum(const struct pp_sum_route *route)
{
    if (route->sum) route->carrier->sum_abort(route->sum);
}

void pp_routes_abort(const struct pp_routes *routes)
{
    for (int i = 0; i < routes->n; i++)
        if (routes->routes[i].channel) routes->routes[i].carrier->abort(routes->routes[i].channel);
    abort_sum(&routes->gradient);
    abort_sum(&routes->norm);
}

const struct pp_route *pp_routes_find(const struct pp_routes *routes, int src, int dst, int kind)
{
    for (int i = 0; i < routes->n; i++) {
        const struct pp_route *route = &routes->routes[i];
        if (route->src == src && route->dst == dst && route->kind == kind) return route;
    }
    return NULL;
}
