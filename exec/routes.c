/* SPDX-License-Identifier: Apache-2.0 */
#include "exec/routes.h"

#include <stdlib.h>

#include "core/base/log.h"
#include "core/job/process.h"

static int64_t largest_transfer(const struct pp_job *job)
{
    int64_t most = 0;
    for (int p = 0; p < PP_PHASES; p++) {
        const struct pp_phase *phase = &job->phase[p];
        for (int m = 0; phase->plan && m < phase->plan->microbatches; m++) {
            int64_t bytes = pp_hidden_bytes(&job->model->shape, phase->plan->rows[m], phase->seq);
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

static pp_status open_route(const struct pp_port *port, const struct pp_job *job, const struct pp_lane *lane, int src,
                            int dst, struct pp_routes *routes)
{
    const int kind = pp_message_of(lane->transfer);
    if ((src != port->me && dst != port->me) || pp_routes_find(routes, src, dst, kind)) return PP_OK;
    const int train = transfers_on(job->train, lane), eval = transfers_on(job->eval, lane);
    struct pp_route *route = &routes->routes[routes->n++];
    *route = (struct pp_route){.src = src, .dst = dst, .kind = kind};
    PP_TRY(choose(port->world, is_local(port->world, src) && is_local(port->world, dst), &route->carrier));
    struct pp_channel_spec spec = {.port = *port,
                                   .src = src,
                                   .dst = dst,
                                   .kind = kind,
                                   .most_bytes = largest_transfer(job),
                                   .most_parcels = train > eval ? train : eval};
    return pp_prefix(route->carrier->open(&spec, &route->channel), "channel from worker %d to %d", src, dst);
}

/* A carrier's first exchange keeps a GPU busy until the other end is in it too, and meanwhile the driver may hold up
 * any call of the process that allocates, frees or loads, for another GPU as well. So where a process has several
 * workers, nobody makes such calls but those who open what is open to be opened. Entered by all workers. */
static pp_status meet(const struct pp_port *port)
{
    const struct pp_world *world = port->world;
    const bool needed = world->count > 1 && world->carrier && world->carrier->posts_in_order;
    return needed ? pp_barrier(port->world, port->me) : PP_OK;
}

/* Are the two workers in different processes? All processes have equally many workers, so each can tell it of any two,
 * also of those of other processes. */
static bool crosses(const struct pp_world *world, int src, int dst) { return src / world->count != dst / world->count; }

/* Opens the channels of a lane in one replica: from each member of one rank to the same member of the other, which
 * holds the same part. Each worker opens those of which it is an end, and meets the others for all that cross
 * processes. */
static pp_status open_lane(const struct pp_port *port, const struct pp_job *job, int replica,
                           const struct pp_lane *lane, struct pp_routes *routes)
{
    for (int t = 0; t < job->train->members; t++) {
        const int src = pp_worker_at(job->train, replica, lane->src, t);
        const int dst = pp_worker_at(job->train, replica, lane->dst, t);
        PP_TRY(open_route(port, job, lane, src, dst, routes));
        if (crosses(port->world, src, dst)) PP_TRY(meet(port));
    }
    return PP_OK;
}

static pp_status open_lanes(const struct pp_port *port, const struct pp_job *job, const struct pp_plan *plan,
                            struct pp_routes *routes)
{
    for (int replica = 0; plan && replica < job->train->replicas; replica++)
        for (int l = 0; l < plan->nlanes; l++)
            if (plan->lanes[l].kind == PP_LANE_CHANNEL) PP_TRY(open_lane(port, job, replica, &plan->lanes[l], routes));
    return PP_OK;
}

/* Are there workers of several processes in the group? */
static bool is_between(const struct pp_world *world, struct pp_group group)
{
    bool between = false;
    for (int i = 1; i < group.n; i++) between = between || crosses(world, group.first, pp_group_worker(&group, i));
    return between;
}

static pp_status open_sum(const struct pp_sum_spec *spec, struct pp_sum_route *out)
{
    if (spec->group.n < 2) return PP_OK;
    PP_TRY(choose(spec->port.world, !is_between(spec->port.world, spec->group), &out->carrier));
    return out->carrier->sum_open(spec, &out->sum);
}

/* Channels of a worker to other processes, whose carrier is a communicator for each. (The evaluation has no others.) */
static int crossing_lanes(const struct pp_world *world, const struct pp_job *job, int worker)
{
    const struct pp_plan *plan = job->train;
    const int replica = pp_worker_replica(plan, worker), member = pp_worker_member(plan, worker);
    int n = 0;
    for (int l = 0; l < plan->nlanes; l++) {
        const struct pp_lane *lane = &plan->lanes[l];
        const int src = pp_worker_at(plan, replica, lane->src, member);
        const int dst = pp_worker_at(plan, replica, lane->dst, member);
        n += lane->kind == PP_LANE_CHANNEL && (src == worker || dst == worker) && crosses(world, src, dst);
    }
    return n;
}

/* Has the worker company in the group, and do its tasks join numbers of this type there? */
static bool joins(const struct pp_job *job, int worker, enum pp_join_group group, int type)
{
    return pp_join_members(job->train, worker, group).n > 1 &&
           pp_rank_joins(job, pp_worker_rank(job->train, worker), group, type);
}

/* The sums inside tasks, numbered: all types of the first group, then those of the second, ... */
enum { ALL_JOINED = PP_JOIN_GROUPS * PP_SUM_TYPES };
#define JOINED(routes, i) (&(routes)->joined[(i) / PP_SUM_TYPES][(i) % PP_SUM_TYPES])

/* Sums of a worker with workers of other processes, whose carrier is a communicator for each. */
static int crossing_sums(const struct pp_world *world, const struct pp_job *job, int worker)
{
    const struct pp_plan *plan = job->train;
    const int replica = pp_worker_replica(plan, worker), member = pp_worker_member(plan, worker);
    int n = is_between(world, pp_share_group(plan, worker));
    for (int set = 0; set < PP_PARAM_SETS && pp_combines_set(plan, PP_REDUCE_GRAD, set); set++)
        n += is_between(world, pp_replica_group(plan, worker, (enum pp_param_set)set));
    n += plan->clip && is_between(world, pp_norm_group(plan, worker));
    if (pp_ties_ranks(plan, pp_worker_rank(plan, worker))) n += is_between(world, pp_tied_group(plan, replica, member));
    for (int i = 0; i < ALL_JOINED; i++) {
        const enum pp_join_group group = (enum pp_join_group)(i / PP_SUM_TYPES);
        n += joins(job, worker, group, i % PP_SUM_TYPES) && is_between(world, pp_join_members(plan, worker, group));
    }
    return n;
}

int pp_routes_crossing(const struct pp_world *world, const struct pp_job *job, int worker)
{
    return crossing_lanes(world, job, worker) + crossing_sums(world, job, worker);
}

/* Streams of a GPU beyond its hardware queues share one, and wait for each other: behind a receive that waits for its
 * sender, work that the sender needs may wait, too. */
static void warn_of_queues(const struct pp_port *port, const struct pp_job *job)
{
    enum { QUEUES = 32, OF_A_LINE = 3 /* ours, and two of NCCL's */, OWN = 3 /* compute, host, launches' order */ };
    const struct pp_world *world = port->world;
    const int rounding = (pp_plan_sharers(job->train, PP_DENSE) > 1) + (pp_plan_shard_groups(job->train) > 1);
    const int own = OWN + (job->model->shape.bf16_sums ? rounding : 0); /* with a queue to round */
    int most = 0, worker = 0;
    if (port->me != 0 || !world->carrier || !world->carrier->posts_in_order) return;
    for (int i = 0; i < world->workers; i++) {
        const int lines = pp_routes_crossing(world, job, i);
        if (lines <= most) continue;
        most = lines;
        worker = i;
    }
    if (OF_A_LINE * most + own > QUEUES)
        pp_warn("worker %d has %d streams with --transport %s, and a GPU %d hardware queues: some will wait for "
                "others; if the run hangs, use --transport staged",
                worker, OF_A_LINE * most + own, world->carrier->name, QUEUES);
}

static struct pp_group dense_group(const struct pp_plan *plan, int worker)
{
    return pp_replica_group(plan, worker, PP_DENSE);
}

static struct pp_group expert_group(const struct pp_plan *plan, int worker)
{
    return pp_replica_group(plan, worker, PP_EXPERTS);
}

typedef struct pp_group group_fn(const struct pp_plan *plan, int worker);

/* Opens the sum of this worker's group. All workers go through all groups of this kind together, in the order of the
 * groups' first workers, and meet after each one. */
static pp_status open_sums_of(const struct pp_port *port, const struct pp_plan *plan, group_fn *group_of,
                              const struct pp_sum_spec *spec, struct pp_sum_route *out)
{
    for (int worker = 0; worker < pp_plan_workers(plan) && spec->group.n > 1; worker++) {
        if (group_of(plan, worker).first != worker) continue;
        if (spec->group.first == worker && spec->most_elements > 0) PP_TRY(open_sum(spec, out));
        PP_TRY(meet(port));
    }
    return PP_OK;
}

static pp_status open_gradient_sums(const struct pp_port *port, const struct pp_job *job, struct pp_routes *out)
{
    const struct pp_plan *plan = job->train;
    const int rank = pp_worker_rank(plan, port->me);
    const int type = job->model->shape.bf16_sums ? PP_SUM_BF16 : PP_SUM_FLOAT;
    group_fn *const groups[PP_PARAM_SETS] = {dense_group, expert_group};
    const struct pp_sum_spec share = {.port = *port,
                                      .group = pp_share_group(plan, port->me),
                                      .most_elements = pp_most_share_bytes(job, rank) / (int64_t)sizeof(float),
                                      .type = type,
                                      .sums = true,
                                      .shares = !plan->shards};
    for (int set = 0; set < PP_PARAM_SETS && pp_combines_set(plan, PP_REDUCE_GRAD, set); set++) {
        const struct pp_sum_spec all = {.port = *port,
                                        .group = groups[set](plan, port->me),
                                        .most_elements =
                                            pp_most_gradient_bytes(job, rank, set) / (int64_t)sizeof(float),
                                        .type = type,
                                        .sums = !plan->zero,
                                        .shares = plan->zero};
        PP_TRY(open_sums_of(port, plan, groups[set], &all, &out->gradient[set]));
    }
    return open_sums_of(port, plan, pp_share_group, &share, &out->share);
}

/* Opens the sum of the gradients of the two copies of the embedding. All workers go through replicas and members
 * together, and meet after each. */
static pp_status open_tied_sums(const struct pp_port *port, const struct pp_job *job, struct pp_routes *out)
{
    const struct pp_plan *plan = job->train;
    for (int i = 0; i < plan->replicas * plan->members; i++) {
        const struct pp_sum_spec spec = {.port = *port,
                                         .group = pp_tied_group(plan, i / plan->members, i % plan->members),
                                         .most_elements =
                                             pp_tied_gradient(job->model, 0, 0).bytes / (int64_t)sizeof(float),
                                         .type = PP_SUM_FLOAT,
                                         .sums = true};
        const bool mine = pp_worker_replica(plan, port->me) == i / plan->members &&
                          pp_worker_member(plan, port->me) == i % plan->members;
        if (mine && pp_ties_ranks(plan, pp_worker_rank(plan, port->me))) PP_TRY(open_sum(&spec, &out->tied));
        PP_TRY(meet(port));
    }
    return PP_OK;
}

/* Opens the sum of squares for the norm: over the workers of a replica, or with shares over those of a shard group. */
static pp_status open_norm_sums(const struct pp_port *port, const struct pp_job *job, struct pp_routes *out)
{
    const struct pp_plan *plan = job->train;
    const struct pp_sum_spec spec = {.port = *port,
                                     .group = pp_norm_group(plan, port->me),
                                     .most_elements = (int64_t)job->model->ntensors * pp_shape_sums(&job->model->shape),
                                     .type = PP_SUM_DOUBLE,
                                     .sums = true};
    return open_sums_of(port, plan, pp_norm_group, &spec, &out->norm);
}

static struct pp_sum_spec join_spec(const struct pp_port *port, const struct pp_job *job, enum pp_join_group group,
                                    int type)
{
    const struct pp_most_joined most = pp_job_most_joined(job, group);
    return (struct pp_sum_spec){.port = *port,
                                .most_elements = most.bytes / pp_sum_bytes(type),
                                .type = type,
                                .sums = most.pieces == 0, /* groups either sum or exchange */
                                .shares = most.pieces == 0 && pp_shape_parts_tokens(&job->model->shape),
                                .pieces = most.pieces,
                                .exchanged_bytes = most.exchanged_bytes};
}

/* Opens the sums inside tasks of one kind of group. All workers go through the groups together, in the order of their
 * first workers, and for each through the types of numbers. */
static pp_status open_joined_in(const struct pp_port *port, const struct pp_job *job, enum pp_join_group group,
                                struct pp_routes *out)
{
    const struct pp_plan *plan = job->train;
    const struct pp_group mine = pp_join_members(plan, port->me, group);
    for (int i = 0; i < pp_plan_workers(plan) * PP_SUM_TYPES; i++) {
        const int worker = i / PP_SUM_TYPES, type = i % PP_SUM_TYPES;
        if (pp_join_members(plan, worker, group).first != worker || !joins(job, worker, group, type)) continue;
        if (mine.first == worker) {
            struct pp_sum_spec spec = join_spec(port, job, group, type);
            spec.group = mine;
            PP_TRY(open_sum(&spec, &out->joined[group][type]));
        }
        PP_TRY(meet(port));
    }
    return PP_OK;
}

/* Opens the sums inside tasks, one kind of group after the other. */
static pp_status open_joined_sums(const struct pp_port *port, const struct pp_job *job, struct pp_routes *out)
{
    for (int group = 0; group < PP_JOIN_GROUPS; group++)
        PP_TRY(open_joined_in(port, job, (enum pp_join_group)group, out));
    return PP_OK;
}

pp_status pp_routes_open(const struct pp_port *port, const struct pp_job *job, struct pp_routes *out)
{
    const struct pp_plan *train = job->train;
    PP_TRY(PP_NEW(&out->routes, train->nlanes + (job->eval ? job->eval->nlanes : 0)));
    warn_of_queues(port, job);
    PP_TRY(meet(port));
    PP_TRY(open_lanes(port, job, train, out));
    PP_TRY(open_lanes(port, job, job->eval, out));
    PP_TRY(pp_prefix(open_gradient_sums(port, job, out), "sum of gradients"));
    if (train->tied) PP_TRY(pp_prefix(open_tied_sums(port, job, out), "sum of tied gradients"));
    if (train->clip) PP_TRY(pp_prefix(open_norm_sums(port, job, out), "sum of squares"));
    return pp_prefix(open_joined_sums(port, job, out), "sum over the workers of a rank");
}

static void close_sum(const struct pp_sum_route *route)
{
    if (route->carrier) route->carrier->sum_close(route->sum);
}

void pp_routes_close(struct pp_routes *routes)
{
    for (int i = 0; i < routes->n; i++)
        if (routes->routes[i].carrier) routes->routes[i].carrier->close(routes->routes[i].channel);
    for (int set = 0; set < PP_PARAM_SETS; set++) close_sum(&routes->gradient[set]);
    close_sum(&routes->share);
    close_sum(&routes->tied);
    close_sum(&routes->norm);
    for (int i = 0; i < ALL_JOINED; i++) close_sum(JOINED(routes, i));
    free(routes->routes);
    *routes = (struct pp_routes){0};
}

static pp_status check_sum(const struct pp_sum_route *route)
{
    return route->sum && route->carrier->sum_check ? route->carrier->sum_check(route->sum) : PP_OK;
}

pp_status pp_routes_check(const struct pp_routes *routes)
{
    for (int i = 0; i < routes->n; i++) {
        const struct pp_route *route = &routes->routes[i];
        if (route->carrier->check) PP_TRY(route->carrier->check(route->channel));
    }
    for (int i = 0; i < ALL_JOINED; i++) PP_TRY(check_sum(JOINED(routes, i)));
    for (int set = 0; set < PP_PARAM_SETS; set++) PP_TRY(check_sum(&routes->gradient[set]));
    PP_TRY(check_sum(&routes->share));
    PP_TRY(check_sum(&routes->tied));
    return check_sum(&routes->norm);
}

static void abort_sum(const struct pp_sum_route *route)
{
    if (route->sum && route->carrier->sum_abort) route->carrier->sum_abort(route->sum);
}

void pp_routes_abort(const struct pp_routes *routes)
{
    for (int i = 0; i < routes->n; i++) {
        const struct pp_route *route = &routes->routes[i];
        if (route->channel && route->carrier->abort) route->carrier->abort(route->channel);
    }
    for (int set = 0; set < PP_PARAM_SETS; set++) abort_sum(&routes->gradient[set]);
    abort_sum(&routes->share);
    abort_sum(&routes->tied);
    abort_sum(&routes->norm);
    for (int i = 0; i < ALL_JOINED; i++) abort_sum(JOINED(routes, i));
}

const struct pp_route *pp_routes_find(const struct pp_routes *routes, int src, int dst, int kind)
{
    for (int i = 0; i < routes->n; i++) {
        const struct pp_route *route = &routes->routes[i];
        if (route->src == src && route->dst == dst && route->kind == kind) return route;
    }
    return NULL;
}
