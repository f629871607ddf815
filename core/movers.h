/* SPDX-License-Identifier: Apache-2.0
 *
 * What moves data between workers, as data: what options, profiles, the simulator and the executor know of transports
 * and carriers (exec/transport.h, exec/carrier.h) by name. The rows: core/movers.def.
 */
#ifndef PP_CORE_MOVERS_H
#define PP_CORE_MOVERS_H

#include <stdbool.h>

enum pp_memory { PP_OF_HOSTS, PP_OF_DEVICES };

struct pp_mover {
    const char *name;     /* of --transport */
    int moves;            /* enum pp_memory: a transport, a carrier */
    bool joins_processes; /* else threads of one process */
    const char *needs;    /* this build has it only with -DPP_WITH_...=ON; "NOTHING": always */
    int host_wait;        /* carriers: enum pp_host_wait */
    /* Links in profiles; `process`: memory of a process, of transports. */
    const char *p2p, *allreduce, *process;
};

/* In the order in which `auto` prefers them, whether this build has them or not. */
extern const struct pp_mover pp_movers[];
extern const int pp_nmovers;

/* The row of that name for that memory; NULL if there is none, as for "auto" and NULL. */
const struct pp_mover *pp_mover_find(const char *name, int moves);

/* Choices of --transport: "auto|inproc|...". Carriers between threads are not chosen. */
extern const char pp_mover_names[];

/* For lists made of the rows: the rest where `have` is 1, nothing where it is 0. */
#define PP_WHERE(have, ...) PP_WHERE_(have, __VA_ARGS__)
#define PP_WHERE_(have, ...) PP_WHERE_##have(__VA_ARGS__)
#define PP_WHERE_0(...)
#define PP_WHERE_1(...) __VA_ARGS__

#endif
