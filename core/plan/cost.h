/* SPDX-License-Identifier: Apache-2.0
 *
 * The cost: how long each task of a plan should take. It has one entry per cost class of the plan (struct pp_class),
 * the links between workers, and which workers slow each other down. Times are integer nanoseconds, sizes integer
 * bytes. Written by sim/cost_*.c from a profile, a named machine, or --times.
 */
#ifndef PP_CORE_PLAN_COST_H
#define PP_CORE_PLAN_COST_H

#include <stdbool.h>
#include <stdint.h>

#include "core/plan/plan.h"

/* Where a figure comes from, the most certain source first. The output names it. */
enum pp_cost_source {
    PP_COST_TIMES,        /* --times */
    PP_COST_PROFILE,      /* the task was measured as a whole */
    PP_COST_KERNELS,      /* made of other tasks: of their kernels, or of a stage's other kind of backward */
    PP_COST_INTERPOLATED, /* between measurements with fewer and with more rows */
    PP_COST_SCALED,       /* from a data sheet, by how much longer than by it a relative took that was measured */
    PP_COST_MACHINE,      /* computed from a data sheet */
    PP_COST_SOURCES
};
extern const char *const pp_cost_source_names[PP_COST_SOURCES];

struct pp_class_cost {
    int64_t ns;         /* duration if all other workers of the sharing domain (see struct pp_cost) are idle */
    int64_t loaded_ns;  /* duration if every core of the domain is busy with another worker; = ns without a domain */
    int64_t host_ns;    /* queue devices: host time to issue the task; see pp_cost.host_issues */
    int64_t bytes;      /* transfers and collectives: payload */
    int64_t sums_ns;    /* computations: time of the collectives inside the task, a part of both ns and loaded_ns */
    int32_t source;     /* enum pp_cost_source */
    bool between_hosts; /* transfers: they go over pp_cost.network. All transfers of a channel have the same value, so
                         * that none can overtake another */
};

/* Queue devices: if a task waits for a transfer or a collective, when may the worker's host thread issue the task? */
enum pp_host_wait {
    PP_HOST_AHEAD,  /* at once: the device's queues wait (nccl) */
    PP_HOST_MEETS,  /* when all ends of the transfer or collective have been issued (inproc) */
    PP_HOST_FOLLOWS /* when the data has arrived (staged) */
};

/* A link between two workers of a host, by the LogGP model: a message of n bytes is under way for
 * latency_ns + n * ns_per_byte, and each end spends its overhead besides. */
struct pp_link_cost {
    int64_t latency_ns;
    int64_t send_overhead_ns, recv_overhead_ns;
    double ns_per_byte;
    bool receiver_copies; /* the receiver's core copies the bytes, at its poll points (host memory); else an engine */
    bool posts_in_order;  /* a receive is posted at its place in the issue list, after dep[2] (core/plan/plan.h); else
                           * as soon as its slot is free */
    int32_t host_wait;    /* enum pp_host_wait; see pp_cost.host_issues */
};

/* The network between hosts, for the data of one worker. */
struct pp_network_cost {
    int64_t latency_ns;
    double ns_per_byte;
};

struct pp_cost {
    int nclasses;
    struct pp_class_cost *classes;  /* parallel to plan->classes */
    struct pp_link_cost link;       /* of all channels */
    struct pp_network_cost network; /* replaces latency and ns_per_byte of `link` in classes that are between_hosts */
    int64_t launch_ns;              /* host time between two tasks of a worker (issue, clock, slot bookkeeping) */
    /* true: queue devices (GPUs). Each worker has a host thread, which issues the worker's tasks in the order of their
     * ids, ahead of the device, and takes host_ns for each. The device sees what was issued issue_latency_ns later:
     *   - a computation starts no earlier than its issue began, and ends no earlier than its issue ended;
     *   - a transfer or collective starts when all its ends have been issued;
     *   - the host begins a step when the device has ended the step before.
     * Hosts of ppexec run at most some hundred calls ahead (exec/worker_queue.h). This delays no device, so it is not
     * modelled.
     * false: the device computes in the worker's own thread. */
    bool host_issues;
    int64_t issue_latency_ns;
    int64_t step_overhead_ns; /* host time per step and worker outside tasks (batch, bookkeeping) */
    /* Sharing domain: all `workers` workers of the machine run on `cores` cores and slow each other down. cores = 0:
     * every worker has a core of its own. A task progresses at the rate 1/ns while it is the only active one, at
     * 1/loaded_ns while min(workers, cores) workers are active, and linearly between the two; if more workers are
     * active than there are cores, at 1/loaded_ns * cores/active. */
    int cores, workers;
    int members; /* so many successive workers are one rank and do the same at the same time; 0 means 1 */
    /* Sharing domain of devices, if cores is 0: `sharers` successive workers share a device (a GPU), each with a part
     * of its own. A task takes ns while the others are idle, loaded_ns while all are active, and each of them adds the
     * same part of the difference: so it was on an H200 (docs/results/h200-findings.md). */
    int sharers;
    /* While a collective on gradients or parameters runs on a rank, computations of the rank lose this part of their
     * speed, 0 <= taken < 1: collectives of a GPU are kernels, too. */
    double taken;
    /* Each computation takes up to this part of its time longer or shorter (pp_jitter_ns()), independently on each
     * replica; 0: no jitter. Several replicas can have jitter only if no core or device is shared, taken is 0 and
     * host_issues is false. */
    double jitter;
    uint64_t seed; /* of the jitter */
    int source;    /* enum pp_cost_source: the least certain of all classes */
};

/* Latency and time per byte of a class of transfers. All transfers of a class go from the same rank to the same rank,
 * so a class has one link. */
static inline int64_t pp_cost_latency_ns(const struct pp_cost *cost, int cls)
{
    return cost->classes[cls].between_hosts ? cost->network.latency_ns : cost->link.latency_ns;
}

static inline double pp_cost_ns_per_byte(const struct pp_cost *cost, int cls)
{
    return cost->classes[cls].between_hosts ? cost->network.ns_per_byte : cost->link.ns_per_byte;
}

/* A zeroed cost with room for the classes of the plan. source: enum pp_cost_source. */
pp_status pp_cost_create(const struct pp_plan *plan, int source, struct pp_cost **out) PP_MUST_CHECK;
void pp_cost_free(struct pp_cost *cost); /* NULL is fine */

#endif
