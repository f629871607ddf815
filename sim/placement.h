/* SPDX-License-Identifier: Apache-2.0
 *
 * Which workers share a host, and what the network between hosts makes of transfers and collectives. Formulas:
 * docs/METRICS.md.
 */
#ifndef PP_SIM_PLACEMENT_H
#define PP_SIM_PLACEMENT_H

#include "core/cost.h"
#include "core/job.h"
#include "sim/machine.h"

/* Workers are numbered replica * ranks + rank, as ppexec does. So many successive ones share a device, and so many
 * successive devices are in a host. */
struct pp_placement {
    const struct pp_plan *plan;     /* borrowed */
    int sharers, devices;           /* devices 0: one host holds all */
    struct pp_network_cost network; /* of one device */
};

/* machine NULL: one host holds all. */
struct pp_placement pp_placement_of(const struct pp_job *job, const struct pp_machine *machine);

/* Do the workers take several hosts? */
bool pp_placement_several(const struct pp_placement *p);

/* Sets cost->network and which classes it carries; cost->link is there. Where only some replicas have the two ranks of
 * a transfer on one host, the slower way counts. */
void pp_placement_set_transfers(const struct pp_placement *p, struct pp_cost *cost);

/* Sum over the replicas of the gradients of a rank's stage: by latency and time of a byte within a host, and one ring
 * whose slowest link counts. Where each replica has a share, one of the two rounds of such a sum: reduce-scatter, or
 * all-gather of the parameters; each takes half of its latency and bytes. */
int64_t pp_placement_reduce_ns(const struct pp_placement *p, int rank, int64_t bytes, double latency_ns,
                               double ns_per_byte);

/* What the slowest hop of the global norm's exchange is under way, if one within a host is so long. */
int64_t pp_placement_hop_ns(const struct pp_placement *p, int64_t latency_ns);

#endif
