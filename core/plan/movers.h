/* SPDX-License-Identifier: Apache-2.0
 *
 * Movers: transports, which move host memory between workers (exec/transport.h), and carriers, which move device memory
 * (exec/carrier.h). Here is what options, profiles, the simulator and the executor know about a mover from its name.
 * core/plan/movers.def has the rows.
 */
#ifndef PP_CORE_PLAN_MOVERS_H
#define PP_CORE_PLAN_MOVERS_H

#include <stdbool.h>

enum pp_memory { PP_OF_HOSTS, PP_OF_DEVICES };

struct pp_mover {
    const char *name;     /* as in --transport */
    int moves;            /* enum pp_memory: PP_OF_HOSTS for a transport, PP_OF_DEVICES for a carrier */
    bool joins_processes; /* it joins processes; false: threads of one process */
    const char *needs;    /* X: a build has the mover only with -DPP_WITH_X=ON; "NOTHING": every build has it */
    int host_wait;        /* carriers: enum pp_host_wait (core/plan/cost.h) */
    /* Names of "links" in profiles: of its transfers and its sums, and for transports of the memory that a process
     * takes with it. */
    const char *p2p, *allreduce, *process;
};

/* All movers, in the order in which `auto` prefers them, whether this build has them or not. */
extern const struct pp_mover pp_movers[];
extern const int pp_nmovers;

/* The row with this name and memory (enum pp_memory); NULL if there is none, as for the names "auto" and NULL. */
const struct pp_mover *pp_mover_find(const char *name, int moves);

/* The choices of --transport: "auto|inproc|...". */
extern const char pp_mover_names[];

/* PP_WHERE(have, ...) expands to the other arguments if `have` is 1, and to nothing if it is 0: for tables made from
 * core/plan/movers.def that list only movers which this build has. */
#define PP_WHERE(have, ...) PP_WHERE_(have, __VA_ARGS__)
#define PP_WHERE_(have, ...) PP_WHERE_##have(__VA_ARGS__)
#define PP_WHERE_0(...)
#define PP_WHERE_1(...) __VA_ARGS__

#endif
