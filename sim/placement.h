/* SPDX-License-Identifier: Apache-2.0
 *
 * Which workers share a host, and what the network between hosts makes of transfers and collectives. Formulas:
 * docs/TIMES.md.
 */
#ifndef PP_SIM_PLACEMENT_H
#define PP_SIM_PLACEMENT_H

#include "core/cost.h"
#include "core/group.h"
#include "core/job.h"
#include "sim/machine.h"

/* So many successive workers share a device, and so many successive devices are in a host. Workers follow each other as
 * core/workers.h numbers them, or, replicas_first, rank after rank, of each all replicas. */
struct pp_placement {
    const struct pp_plan *plan;     /* borrowed; NULL: none, where only sums are asked for */
    int sharers, devices;           /* devices 0: one host holds all */
    bool replicas_first;
    double taken;                   /* by a sum from the kernels beside it (core/cost.h) */
    struct pp_network_cost network; /* of one device */
};

/* machine NULL: one host holds all. */
struct pp_placement pp_placement_on(const struct pp_machine *machine); /* no plan; a device for each worker */
struct pp_placement pp_placement_of(const struct pp_job *job, const struct pp_machine *machine);

/* Do the workers take several hosts? */
bool pp_placement_several(const struct pp_placement *p);

/* Sets cost->network and which classes it carries; cost->link is there. Where only some workers of the two ranks of a
 * transfer are on one host, the slower way counts. */
void pp_placement_set_transfers(const struct pp_placement *p, struct pp_cost *cost);

/* Workers who make sums among each other, of all groups alike the one that the network slows down most: so many, on so
 * many hosts, with so many devices at least on each. */
struct pp_ring {
    int members, hosts, fewest;
};

/* Of a group's workers. */
struct pp_ring pp_placement_ring(const struct pp_placement *p, const struct pp_group *group);

/* Such a sum: by latency and time of a byte within a host, and one ring whose slowest link counts. It goes around twice
 * (rounds 2); reduce-scatter or all-gather (1), each once, with half of latency and bytes. */
int64_t pp_placement_sum_ns(const struct pp_placement *p, const struct pp_ring *ring, int rounds, int64_t bytes,
                            double latency_ns, double ns_per_byte);

/* What workers do together inside a task: a sum, or all to all, of whose bytes each keeps its part
 * and sends the others theirs: to those of its host by its link, and to the rest by its own port to the network, at
 * once. */
int64_t pp_placement_join_ns(const struct pp_placement *p, const struct pp_ring *ring, const struct pp_join_work *join,
                             double latency_ns, double ns_per_byte);

/* What combines: the sum over the replicas of the gradients of a rank's stage; where each replica has a share, one of
 * its two rounds: reduce-scatter, or all-gather of the parameters; the sum of a share over groups; that of tied
 * gradients. Those of several sets come one after the other. */
int64_t pp_placement_combine_ns(const struct pp_placement *p, const struct pp_job *job, const struct pp_class *cls,
                                double latency_ns, double ns_per_byte);

/* Sets what the sums inside a task of the class take (pp_class_cost.sums_ns), and adds that to its times, in place of
 * what was there. beside: how long its kernels take, of which only the proportions count; those that may run beside
 * kernels (pp_join_call.beside) take what these do not hide. NULL: nothing runs beside. Fails as `beside` does. */
pp_status pp_placement_set_sums(const struct pp_placement *p, const struct pp_job *job, int cls, double latency_ns,
                                double ns_per_byte, const struct pp_call_times *beside,
                                struct pp_class_cost *class) PP_MUST_CHECK;

/* What the slowest hop of the global norm's exchange is under way, if one within a host is so long. */
int64_t pp_placement_hop_ns(const struct pp_placement *p, int64_t latency_ns);

#endif
