/* SPDX-License-Identifier: Apache-2.0
 *
 * Placement: which workers share a device and a host, and how long transfers and collectives take over the network
 * between hosts. docs/TIMES.md has the formulas.
 */
#ifndef PP_SIM_PLACEMENT_H
#define PP_SIM_PLACEMENT_H

#include "core/job/job.h"
#include "core/plan/cost.h"
#include "core/plan/group.h"
#include "sim/machine.h"

/* Successive workers share a device, and successive devices are in one host. The order of workers is that of their
 * numbers (core/plan/workers.h), or, with replicas_first, rank by rank, all replicas of a rank one after the other. */
struct pp_placement {
    const struct pp_plan *plan;     /* borrowed; NULL: only pp_placement_sum_ns() and pp_placement_join_ns() work */
    int sharers;                    /* workers of a device */
    int devices;                    /* devices of a host; 0: one host has all */
    bool replicas_first;            /* --host-order replicas */
    double taken;                   /* pp_cost.taken */
    struct pp_network_cost network; /* of one device */
    /* What an all to all takes besides, as a GPU copies the pieces for itself before it sends the others: so long, and
     * so long for each byte of these pieces. 0: nothing, or nothing is known of the memory. */
    double own_ns, own_ns_per_byte;
    struct pp_ring *rings; /* those that were found, see pp_placement_remember(); NULL: none is kept */
};

/* A placement without a plan, with a device for each worker; and that of a job. machine NULL: one host has all. */
struct pp_placement pp_placement_on(const struct pp_machine *machine);
struct pp_placement pp_placement_of(const struct pp_job *job, const struct pp_machine *machine);

/* From now on the slowest rings of each rank are found once, by going through all its workers, and not for each class
 * of its tasks. Release with pp_placement_forget(); copies must not be used after it. PP_NOMEM. */
pp_status pp_placement_remember(struct pp_placement *p) PP_MUST_CHECK;
void pp_placement_forget(struct pp_placement *p);

/* Writes to buf a line for the user if some of the rank's workers that lie next to each other (of tensor ranks, of all
 * members, of all context ranks) are on two hosts although they have room on one; else "". */
void pp_hosts_remark(const struct pp_job *job, const struct pp_machine *machine, char *buf, size_t size);

/* Are there workers on several hosts? */
bool pp_placement_several(const struct pp_placement *p);

/* Sets cost->network, and between_hosts of all classes of transfers. cost->link must be set. If only some workers of
 * the two ranks of a transfer are on one host, the slower of link and network counts. */
void pp_placement_set_transfers(const struct pp_placement *p, struct pp_cost *cost);

/* A group of workers that form a ring for a collective. */
struct pp_ring {
    int members; /* workers */
    int hosts;   /* on so many hosts */
    int fewest;  /* the least number of devices on one of these hosts */
    int least;   /* the least number of workers */
};

/* The ring of a group. */
struct pp_ring pp_placement_ring(const struct pp_placement *p, const struct pp_group *group);

/* Of an all-reduce within a host; one round has half the latency. */
struct pp_sum_link {
    double latency_ns, ns_per_byte;
};
static inline struct pp_sum_link pp_machine_sum_link(const struct pp_machine *m)
{
    return (struct pp_sum_link){.latency_ns = m->reduce_latency_ns, .ns_per_byte = 1 / m->reduce_bytes_per_ns};
}

/* Time of a ring collective; the slowest link counts. rounds: how often the bytes go around: 2 for an all-reduce, 1 for
 * a reduce-scatter or an all-gather. */
int64_t pp_placement_sum_ns(const struct pp_placement *p, const struct pp_ring *ring, int rounds, int64_t bytes,
                            struct pp_sum_link link);

/* Time of a collective inside a task. An all to all is no ring: each worker copies its own part of the bytes, and then
 * sends every other one its part, over its link to workers of its host, and at the same time over the network port of
 * its device, which sharers of the device divide among them, to the others. In a shift each worker sends all of its
 * bytes to the next one alone, and of those of a host only the last one sends them over the network, if the ring spans
 * hosts: then the slower of link and port counts. */
int64_t pp_placement_join_ns(const struct pp_placement *p, const struct pp_ring *ring, const struct pp_join_work *join,
                             struct pp_sum_link link);

/* Time of a task of a class of collectives (pp_combines()), in the slowest of its groups. With ZeRO, REDUCE_GRAD is a
 * reduce-scatter and GATHER_PARAM an all-gather; the others are all-reduces. Collectives of several parameter sets run
 * one after the other. */
int64_t pp_placement_combine_ns(const struct pp_placement *p, const struct pp_job *job, const struct pp_class *cls,
                                struct pp_sum_link link);

/* Do collectives inside tasks take the same time on both ranks? */
bool pp_placement_joins_alike(const struct pp_placement *p, int rank, int other);

/* Sets class->sums_ns, the time of the collectives inside a task of class `cls`, and replaces the former one in
 * class->ns and class->loaded_ns. beside: times of the task's kernels, of which only the proportions count; collectives
 * that may run beside kernels (pp_join_call.beside) then take only the time that the kernels do not hide. NULL: nothing
 * runs beside. Fails as beside->ns() does. */
pp_status pp_placement_set_sums(const struct pp_placement *p, const struct pp_job *job, int cls,
                                struct pp_sum_link link, const struct pp_call_times *beside,
                                struct pp_class_cost *class) PP_MUST_CHECK;

/* Latency of the slowest hop in the exchange for the global norm, if latency_ns is that within a host. */
int64_t pp_placement_hop_ns(const struct pp_placement *p, int64_t latency_ns);

#endif
