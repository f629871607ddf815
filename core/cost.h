/* SPDX-License-Identifier: Apache-2.0
 *
 * The cost: what each task of a plan should take. One entry per cost class of the plan, links per channel, and the
 * sharing domain. Times are integer nanoseconds, sizes integer bytes. Written by sim/cost_*.c from a profile, a named
 * machine, or --times.
 */
#ifndef PP_CORE_COST_H
#define PP_CORE_COST_H

#include <stdbool.h>
#include <stdint.h>

#include "core/plan.h"

/* Where a figure comes from, the most certain first; the output names it. */
enum pp_cost_source {
    PP_COST_TIMES,        /* given */
    PP_COST_PROFILE,      /* measured as a whole */
    PP_COST_KERNELS,      /* sum of kernels that were measured in other tasks */
    PP_COST_INTERPOLATED, /* between two measured numbers of rows */
    PP_COST_MACHINE,      /* computed */
    PP_COST_SOURCES
};
extern const char *const pp_cost_source_names[PP_COST_SOURCES];

struct pp_class_cost {
    int64_t ns;         /* alone in its sharing domain */
    int64_t loaded_ns;  /* with every core of the domain busy with another worker; = ns where there is no domain */
    int64_t host_ns;    /* queue devices: what issuing the task takes the host; see pp_cost.host_issues */
    int64_t bytes;      /* transfers, reductions: payload */
    int64_t sums_ns;    /* computations: the part of ns, and of loaded_ns, that sums over the workers of a rank take */
    int32_t source;     /* enum pp_cost_source */
    bool between_hosts; /* transfers: pp_cost.network carries them; alike for all of a channel, whose messages keep
                         * their order */
};

/* Queue devices: when may a worker's host thread issue what waits for a transfer or a collective? */
enum pp_host_wait {
    PP_HOST_AHEAD,  /* at once: the queues see to it (nccl) */
    PP_HOST_MEETS,  /* when all its ends have been issued (inproc) */
    PP_HOST_FOLLOWS /* when the data has arrived (staged) */
};

/* LogGP of one kind of link: a message of n bytes is `latency_ns + n * ns_per_byte` under way; each end spends
 * overhead. */
struct pp_link_cost {
    int64_t latency_ns;
    int64_t send_overhead_ns, recv_overhead_ns;
    double ns_per_byte;
    bool receiver_copies; /* the receiver's core moves the bytes, at poll points (host memory); else a copy engine */
    bool posts_in_order;  /* a receive is posted at its place in the list (dep[2]); else as soon as its slot is free */
    int32_t host_wait;    /* enum pp_host_wait; see pp_cost.host_issues */
};

/* The way of one worker's data from host to host. */
struct pp_network_cost {
    int64_t latency_ns;
    double ns_per_byte;
};

struct pp_cost {
    int nclasses;
    struct pp_class_cost *classes;  /* parallel to plan->classes */
    struct pp_link_cost link;       /* all channels */
    struct pp_network_cost network; /* instead of link.latency_ns and link.ns_per_byte, of classes between_hosts */
    int64_t launch_ns;              /* host time between two tasks of a worker (issue, clock, slot bookkeeping) */
    /* Queue devices (GPUs): each worker has a host thread that issues its tasks in the order of their ids, ahead of
     * the device, in host_ns each. The device sees what was issued issue_latency_ns later: a computation starts no
     * earlier than its issue began, and ends no earlier than it was issued; a transfer or collective starts when
     * all its ends were issued. The host begins a step when the device has ended the one before. That ppexec's
     * hosts are some hundred calls ahead at most (exec/worker_queue.h) delays no device, and is left out. false:
     * the device computes in the worker's own thread. */
    bool host_issues;
    int64_t issue_latency_ns;
    int64_t step_overhead_ns; /* host time per step and worker outside tasks (batch, bookkeeping) */
    /* Sharing domain: `cores` cores carry all `workers` workers of the machine. cores = 0: every worker has its own.
     * A task progresses at 1/ns while it is alone, at 1/loaded_ns when min(workers, cores) are active, linearly
     * between, and at cores/active of that when more are active than there are cores. */
    int cores, workers;
    int members; /* of these so many successive ones are a rank, and do the same at the same time; 0: 1 */
    /* Instead, where cores is 0: so many successive workers share a device (a GPU), each with its own part of it. A
     * task progresses at 1/ns while the others rest, at 1/loaded_ns while all are active, linearly between. */
    int sharers;
    /* While a rank sums or gathers, what it computes beside that loses this part of its speed, from 0 to below 1: a
     * GPU's collectives are kernels, too. */
    double taken;
    /* Each computation takes up to this part of its time longer or shorter (pp_jitter_ns), on each replica by itself;
     * 0: all take their time. With several replicas only where nothing shares a core or a device, nothing is
     * taken, and no host issues. */
    double jitter;
    uint64_t seed; /* of the jitter */
    int source;    /* the worst of the classes': enum pp_cost_source */
};

/* Of a class of transfers. All transfers of a class go from one rank to one other, so a class knows its link. */
static inline int64_t pp_cost_latency_ns(const struct pp_cost *cost, int cls)
{
    return cost->classes[cls].between_hosts ? cost->network.latency_ns : cost->link.latency_ns;
}

static inline double pp_cost_ns_per_byte(const struct pp_cost *cost, int cls)
{
    return cost->classes[cls].between_hosts ? cost->network.ns_per_byte : cost->link.ns_per_byte;
}

/* An empty one for the plan. source: enum pp_cost_source. */
pp_status pp_cost_create(const struct pp_plan *plan, int source, struct pp_cost **out) PP_MUST_CHECK;
void pp_cost_free(struct pp_cost *cost); /* NULL is fine */

#endif
