/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/placement.h"

#include <math.h>

#include "sim/costs.h"

struct pp_placement pp_placement_of(const struct pp_job *job, const struct pp_machine *machine)
{
    struct pp_placement p = {.plan = job->train, .sharers = pp_cost_sharers(job)};
    if (!machine || machine->host_devices == 0) return p;
    p.devices = machine->host_devices;
    p.network = (struct pp_network_cost){llround(machine->network_latency_ns), 1 / machine->network_bytes_per_ns};
    return p;
}

static int device_of(const struct pp_placement *p, int worker) { return worker / p->sharers; }

static int host_of(const struct pp_placement *p, int worker)
{
    return p->devices > 0 ? device_of(p, worker) / p->devices : 0;
}

bool pp_placement_several(const struct pp_placement *p)
{
    return host_of(p, p->plan->ranks * p->plan->replicas - 1) > 0;
}

/* Replicas in which the two ranks are on two hosts. */
static int apart(const struct pp_placement *p, int source, int target)
{
    int n = 0;
    for (int first = 0; first < p->plan->ranks * p->plan->replicas; first += p->plan->ranks)
        n += host_of(p, first + source) != host_of(p, first + target);
    return n;
}

/* Is the network slower than the link? Asked once, of the largest message: were the answer another for each, one could
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
        cost->classes[c].between_hosts = n == plan->replicas || (n > 0 && slower);
    }
}

/* Hosts on which a rank is in some replica, and the fewest of its devices on one of them. */
struct ring {
    int hosts, fewest;
};

static struct ring ring_of(const struct pp_placement *p, int rank)
{
    struct ring ring = {0, 0};
    int host = -1, device = -1, here = 0;
    for (int replica = 0; replica < p->plan->replicas; replica++) {
        const int worker = replica * p->plan->ranks + rank;
        if (host_of(p, worker) != host) {
            if (ring.hosts > 0 && (ring.fewest == 0 || here < ring.fewest)) ring.fewest = here;
            host = host_of(p, worker);
            ring.hosts++;
            here = 0;
        }
        here += device_of(p, worker) != device;
        device = device_of(p, worker);
    }
    if (ring.fewest == 0 || here < ring.fewest) ring.fewest = here;
    return ring;
}

int64_t pp_placement_reduce_ns(const struct pp_placement *p, int rank, int64_t bytes, double latency_ns,
                               double ns_per_byte)
{
    const struct ring ring = ring_of(p, rank);
    const int replicas = p->plan->replicas;
    const double rounds = p->plan->zero ? 1 : 2;
    latency_ns *= rounds / 2;
    if (ring.hosts > 1) {
        latency_ns += rounds * (ring.hosts - 1) * (double)p->network.latency_ns;
        ns_per_byte = fmax(ns_per_byte, p->network.ns_per_byte / ring.fewest);
    }
    const double ns = latency_ns + (double)bytes * rounds * (replicas - 1) / replicas * ns_per_byte;
    return llround(fmin(ns, 1e18)); /* the engine refuses what is that long */
}

static int64_t longer(int64_t a, int64_t b) { return a > b ? a : b; }

int64_t pp_placement_hop_ns(const struct pp_placement *p, int64_t latency_ns)
{
    if (p->plan->zero && pp_placement_several(p)) return longer(p->network.latency_ns, latency_ns);
    for (int first = 0; first < p->plan->ranks * p->plan->replicas; first += p->plan->ranks)
        if (host_of(p, first) != host_of(p, first + p->plan->ranks - 1))
            return longer(p->network.latency_ns, latency_ns);
    return latency_ns;
}
