/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/placement.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "core/plan/longest.h"
#include "core/shape/pieces.h"
#include "sim/costs.h"

struct pp_placement pp_placement_on(const struct pp_machine *machine)
{
    struct pp_placement p = {.sharers = 1};
    if (!machine) return p;
    if (machine->cores == 0) {
        p.taken = machine->reduce_takes;
        p.own_ns = machine->call_overhead_ns;
        p.own_ns_per_byte = 2 / machine->bytes_per_ns; /* read and written */
    }
    if (machine->host_devices == 0) return p;
    p.devices = machine->host_devices;
    p.network = (struct pp_network_cost){llround(machine->network_latency_ns), 1 / machine->network_bytes_per_ns};
    return p;
}

struct pp_placement pp_placement_of(const struct pp_job *job, const struct pp_machine *machine)
{
    struct pp_placement p = pp_placement_on(machine);
    p.plan = job->train;
    p.sharers = pp_cost_sharers(job);
    p.replicas_first = job->config->host_order != 0;
    return p;
}

/* The worker's position in the order in which hosts are filled. */
static int place_of(const struct pp_placement *p, int worker)
{
    if (!p->replicas_first) return worker;
    const int each = pp_plan_neighbours(p->plan), groups = p->plan->replicas / p->plan->context;
    const int rank = pp_worker_rank(p->plan, worker), group = pp_worker_replica(p->plan, worker) / p->plan->context;
    return (rank * groups + group) * each + worker % each;
}

static int device_of(const struct pp_placement *p, int worker) { return place_of(p, worker) / p->sharers; }

static int host_of(const struct pp_placement *p, int worker)
{
    return p->devices > 0 ? device_of(p, worker) / p->devices : 0;
}

bool pp_placement_several(const struct pp_placement *p) { return host_of(p, pp_plan_workers(p->plan) - 1) > 0; }

void pp_hosts_remark(const struct pp_job *job, const struct pp_machine *machine, char *buf, size_t size)
{
    const struct pp_placement p = pp_placement_of(job, machine);
    const int host = p.devices * p.sharers, context = pp_plan_neighbours(p.plan), members = p.plan->members;
    const int tensor = pp_plan_tensor(p.plan), most = context <= host ? context : members <= host ? members : tensor;
    buf[0] = '\0';
    if (!pp_placement_several(&p) || most > host || host % most == 0) return;
    snprintf(
        buf, size,
        "groups of %d %s do not divide the %d workers of a host of machine %s: some are in two hosts, and wait for "
        "the network",
        most,
        most == tensor    ? "tensor ranks"
        : most == members ? "tensor and expert ranks"
                          : "tensor, expert and context ranks",
        host, machine->name);
}

/* Number of workers of rank `source` whose message to rank `target` leaves the host. A worker sends to the worker with
 * the same replica and member number. */
static int apart(const struct pp_placement *p, int source, int target)
{
    const struct pp_plan *plan = p->plan;
    int n = 0;
    for (int replica = 0; replica < plan->replicas; replica++)
        for (int t = 0; t < plan->members; t++)
            n += host_of(p, pp_worker_at(plan, replica, source, t)) !=
                 host_of(p, pp_worker_at(plan, replica, target, t));
    return n;
}

/* Is the network slower than the link, for the largest message? The answer holds for all messages: else one could
 * overtake another in its channel. */
static bool is_slower(const struct pp_placement *p, const struct pp_cost *cost)
{
    int64_t most = 0;
    for (int c = 0; c < cost->nclasses; c++)
        if (pp_is_transfer(p->plan->classes[c].kind) && cost->classes[c].bytes > most) most = cost->classes[c].bytes;
    return (double)(p->network.latency_ns - cost->link.latency_ns) +
               (double)most * (p->network.ns_per_byte - cost->link.ns_per_byte) >
           0;
}

void pp_placement_set_transfers(const struct pp_placement *p, struct pp_cost *cost)
{
    const struct pp_plan *plan = p->plan;
    const bool several = pp_placement_several(p), slower = several && is_slower(p, cost);
    cost->network = p->network;
    for (int c = 0; c < cost->nclasses; c++) {
        const struct pp_class *cls = &plan->classes[c];
        cost->classes[c].between_hosts = false;
        if (!several || !pp_is_transfer(cls->kind)) continue;
        const int n =
            apart(p, plan->stage_rank[cls->stage], plan->stage_rank[pp_transfer_target(cls->kind, cls->stage)]);
        cost->classes[c].between_hosts = n == plan->replicas * plan->members || (n > 0 && slower);
    }
}

static void take_least(int *least, int n)
{
    if (*least == 0 || n < *least) *least = n;
}

struct pp_ring pp_placement_ring(const struct pp_placement *p, const struct pp_group *group)
{
    struct pp_ring ring = {.members = group->n};
    int host = -1, device = -1, devices = 0, workers = 0; /* of the host */
    for (int i = 0; i <= group->n; i++) {
        const int worker = i < group->n ? pp_group_worker(group, i) : -1, next = worker < 0 ? -1 : host_of(p, worker);
        if (next != host && host >= 0) {
            take_least(&ring.fewest, devices);
            take_least(&ring.least, workers);
        }
        if (worker < 0) break;
        if (next != host) ring.hosts++, devices = workers = 0;
        host = next;
        workers++;
        devices += device_of(p, worker) != device;
        device = device_of(p, worker);
    }
    return ring;
}

static struct pp_ring slower_ring(struct pp_ring a, struct pp_ring b)
{
    if (a.hosts != b.hosts) return a.hosts > b.hosts ? a : b;
    return a.fewest <= b.fewest ? a : b;
}

static struct pp_ring slower_of(const struct pp_placement *p, struct pp_ring ring, struct pp_group group)
{
    return slower_ring(ring, pp_placement_ring(p, &group));
}

/* Kinds of groups of a rank's workers: enum pp_join_group, those of enum pp_param_set behind it, then this one. */
enum { OF_SETS = PP_JOIN_GROUPS, OF_SHARES = OF_SETS + PP_PARAM_SETS, KINDS };

static struct pp_group group_of(const struct pp_plan *plan, int worker, int kind)
{
    if (kind < OF_SETS) return pp_join_members(plan, worker, (enum pp_join_group)kind);
    return kind == OF_SHARES ? pp_share_group(plan, worker)
                             : pp_replica_group(plan, worker, (enum pp_param_set)(kind - OF_SETS));
}

static struct pp_ring find_slowest(const struct pp_placement *p, int rank, int kind)
{
    const struct pp_plan *plan = p->plan;
    struct pp_ring slowest = {0};
    for (int replica = 0; replica < plan->replicas; replica++)
        for (int k = 0; k < plan->members; k++) {
            const int worker = pp_worker_at(plan, replica, rank, k);
            const struct pp_group group = group_of(plan, worker, kind);
            if (group.first == worker) slowest = slower_of(p, slowest, group);
        }
    return slowest;
}

pp_status pp_placement_remember(struct pp_placement *p) { return PP_NEW(&p->rings, (int64_t)p->plan->ranks * KINDS); }

void pp_placement_forget(struct pp_placement *p)
{
    free(p->rings);
    p->rings = NULL;
}

/* The slowest ring of the rank's groups of a kind. */
static struct pp_ring slowest_of(const struct pp_placement *p, int rank, int kind)
{
    struct pp_ring *known = p->rings ? &p->rings[rank * KINDS + kind] : NULL;
    if (known && known->members > 0) return *known;
    const struct pp_ring ring = find_slowest(p, rank, kind);
    if (known) *known = ring;
    return ring;
}

static struct pp_ring ring_of_tied(const struct pp_placement *p)
{
    struct pp_ring slowest = {0};
    for (int replica = 0; replica < p->plan->replicas; replica++)
        for (int k = 0; k < p->plan->members; k++) slowest = slower_of(p, slowest, pp_tied_group(p->plan, replica, k));
    return slowest;
}

int64_t pp_placement_sum_ns(const struct pp_placement *p, const struct pp_ring *ring, int rounds, int64_t bytes,
                            struct pp_sum_link link)
{
    link.latency_ns *= (double)rounds / 2;
    if (ring->hosts > 1) {
        link.latency_ns += (double)rounds * (ring->hosts - 1) * (double)p->network.latency_ns;
        link.ns_per_byte = fmax(link.ns_per_byte, p->network.ns_per_byte / ring->fewest);
    }
    const double ns = link.latency_ns + (double)bytes * rounds * (ring->members - 1) / ring->members * link.ns_per_byte;
    return llround(fmin(ns, PP_BEYOND_NS));
}

static int64_t all_to_all_ns(const struct pp_placement *p, const struct pp_ring *ring, int64_t bytes,
                             struct pp_sum_link link)
{
    const int here = ring->hosts > 1 ? ring->least : ring->members;
    const double part = (double)bytes / ring->members, port_ns_per_byte = p->sharers * p->network.ns_per_byte;
    double ns = link.latency_ns / 2 + part * (here - 1) * link.ns_per_byte;
    if (ring->hosts > 1)
        ns = fmax(ns, (double)p->network.latency_ns + part * (ring->members - here) * port_ns_per_byte);
    return llround(fmin(ns + p->own_ns + part * p->own_ns_per_byte, PP_BEYOND_NS));
}

static int64_t shift_ns(const struct pp_placement *p, const struct pp_ring *ring, int64_t bytes,
                        struct pp_sum_link link)
{
    const double port_ns_per_byte = p->sharers * p->network.ns_per_byte;
    double ns = link.latency_ns / 2 + (double)bytes * link.ns_per_byte;
    if (ring->hosts > 1) ns = fmax(ns, (double)p->network.latency_ns + (double)bytes * port_ns_per_byte);
    return llround(fmin(ns, PP_BEYOND_NS));
}

int64_t pp_placement_join_ns(const struct pp_placement *p, const struct pp_ring *ring, const struct pp_join_work *join,
                             struct pp_sum_link link)
{
    if (join->bytes == 0) return 0;
    if (join->op == PP_JOIN_SHIFT) return shift_ns(p, ring, join->bytes, link);
    return join->op == PP_JOIN_ALL_TO_ALL ? all_to_all_ns(p, ring, join->bytes, link)
                                          : pp_placement_sum_ns(p, ring, join->rounds, join->bytes, link);
}

int64_t pp_placement_combine_ns(const struct pp_placement *p, const struct pp_job *job, const struct pp_class *cls,
                                struct pp_sum_link link)
{
    const bool tied = cls->kind == PP_REDUCE_TIED, share = cls->kind == PP_REDUCE_SHARE;
    const int rank = p->plan->stage_rank[cls->stage], rounds = p->plan->zero && !tied && !share ? 1 : 2;
    int64_t ns = 0;
    for (int set = 0; set < PP_PARAM_SETS; set++) {
        const int64_t bytes = pp_cost_combined_bytes(job, cls, set);
        if (set != PP_DENSE && bytes == 0) continue;
        const struct pp_ring ring = tied ? ring_of_tied(p) : slowest_of(p, rank, share ? OF_SHARES : OF_SETS + set);
        ns += pp_placement_sum_ns(p, &ring, rounds, bytes, link);
    }
    return ns;
}

/* What the time of a join in a task of a rank depends on. */
struct joining {
    const struct pp_placement *placement;
    struct pp_ring rings[PP_JOIN_GROUPS];
    struct pp_sum_link link;
};

static struct joining joining_of(const struct pp_placement *p, int rank, struct pp_sum_link link)
{
    struct joining joining = {.placement = p, .link = link};
    for (int group = 0; group < PP_JOIN_GROUPS; group++) joining.rings[group] = slowest_of(p, rank, group);
    return joining;
}

bool pp_placement_joins_alike(const struct pp_placement *p, int rank, int other)
{
    bool alike = true;
    for (int group = 0; group < PP_JOIN_GROUPS && alike; group++) {
        const struct pp_ring a = slowest_of(p, rank, group), b = slowest_of(p, other, group);
        alike = a.members == b.members && a.hosts == b.hosts && a.fewest == b.fewest && a.least == b.least;
    }
    return alike;
}

static double join_ns(const struct joining *joining, const struct pp_join_work *join)
{
    return (double)pp_placement_join_ns(joining->placement, &joining->rings[join->group], join, joining->link);
}

/* A task while it runs: the time until which kernels are done, the time until which joins are done (they run one after
 * another), and the end of each numbered join. */
struct lanes {
    double kernels, joins, ends[PP_BESIDE_MAX];
};

/* Runs a join, or waits for one (PP_JOIN_AWAIT). */
static void pass_join(struct lanes *lanes, const struct pp_join_work *join, double ns)
{
    if (join->op == PP_JOIN_AWAIT) {
        lanes->kernels = fmax(lanes->kernels, lanes->ends[join->beside - 1]);
        return;
    }
    lanes->joins = fmax(lanes->joins, lanes->kernels) + ns;
    if (join->beside)
        lanes->ends[join->beside - 1] = lanes->joins;
    else
        lanes->kernels = lanes->joins;
}

/* Runs kernels that take `ns` alone; they are slower while joins run beside them. */
static void pass_kernels(struct lanes *lanes, double ns, double taken)
{
    const double beside = fmax(lanes->joins - lanes->kernels, 0), done = beside * (1 - taken);
    lanes->kernels += ns <= done ? ns / (1 - taken) : ns + beside * taken;
}

/* A call of a program, with the time that it takes as a join; as a kernel, once that is asked for. */
struct timed {
    struct pp_join_work join;
    double ns;
};

/* Returns whether any join may run beside kernels. */
static bool time_joins(const struct joining *joining, const struct pp_model_ops *ops, const struct pp_program *program,
                       struct timed *calls)
{
    bool beside = false;
    for (int i = 0; i < program->ncalls; i++) {
        calls[i].join = ops->call_join(&program->calls[i]);
        calls[i].ns = join_ns(joining, &calls[i].join);
        beside = beside || calls[i].join.beside;
    }
    return beside;
}

static pp_status time_kernels(const struct pp_program *program, const struct pp_call_times *times, struct timed *calls)
{
    for (int i = 0; i < program->ncalls; i++)
        if (calls[i].join.op == PP_JOIN_NONE) PP_TRY(times->ns(times->from, &program->calls[i], &calls[i].ns));
    return PP_OK;
}

/* The time of the program's joins, or of its kernels, if each takes what it takes alone. */
static double sum_of(const struct pp_program *program, const struct timed *calls, bool joins)
{
    double ns = 0;
    for (int i = 0; i < pp_program_length(program); i++) {
        const struct timed *call = &calls[pp_program_at(program, i)];
        if (joins == (call->join.op != PP_JOIN_NONE)) ns += call->ns;
    }
    return ns;
}

/* The time that joins add to a task whose kernels take `total` alone: the part that kernels do not hide. */
static double not_hidden_ns(const struct pp_program *program, const struct timed *calls, double total, double taken)
{
    struct lanes lanes = {0};
    const double sum = sum_of(program, calls, false), scale = sum > 0 ? total / sum : 0;
    for (int i = 0; i < pp_program_length(program); i++) {
        const struct timed *call = &calls[pp_program_at(program, i)];
        if (call->join.op != PP_JOIN_NONE)
            pass_join(&lanes, &call->join, call->ns);
        else
            pass_kernels(&lanes, call->ns * scale, taken);
    }
    return fmax(lanes.kernels - sum * scale, 0); /* rounding may make it negative */
}

pp_status pp_placement_set_sums(const struct pp_placement *p, const struct pp_job *job, int cls,
                                struct pp_sum_link link, const struct pp_call_times *beside,
                                struct pp_class_cost *class)
{
    const struct pp_program *program = &job->phase[PP_TRAIN].programs[cls];
    struct timed *calls;
    pp_status status = PP_OK;
    if (pp_plan_neighbours(p->plan) == 1 || program->ncalls == 0) return PP_OK;
    const struct joining joining = joining_of(p, p->plan->stage_rank[p->plan->classes[cls].stage], link);
    PP_TRY(PP_NEW(&calls, program->ncalls));
    const bool overlaps = time_joins(&joining, job->model_ops, program, calls) && beside;
    if (overlaps) PP_TRY_DONE(time_kernels(program, beside, calls));
    const double ns = overlaps ? not_hidden_ns(program, calls, (double)(class->ns - class->sums_ns), p->taken)
                               : sum_of(program, calls, true);
    const int64_t sums_ns = llround(fmin(ns, PP_BEYOND_NS));
    class->ns += sums_ns - class->sums_ns;
    class->loaded_ns += sums_ns - class->sums_ns;
    class->sums_ns = sums_ns;
done:
    free(calls);
    return status;
}

static int64_t longer(int64_t a, int64_t b) { return a > b ? a : b; }

int64_t pp_placement_hop_ns(const struct pp_placement *p, int64_t latency_ns)
{
    for (int w = 0; w < pp_plan_workers(p->plan); w++)
        if (host_of(p, w) != host_of(p, pp_norm_group(p->plan, w).first))
            return longer(p->network.latency_ns, latency_ns);
    return latency_ns;
}
