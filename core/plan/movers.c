/* SPDX-License-Identifier: Apache-2.0 */
#include "core/plan/movers.h"

#include <stddef.h>
#include <string.h>

#include "core/plan/cost.h"

enum { THREADS, PROCESSES };

const struct pp_mover pp_movers[] = {
#define PP_MOVER(name, moves, joins, needs, host_wait)                                                                 \
    {#name, moves, joins == PROCESSES, #needs, host_wait, #name " p2p", #name " allreduce", #name " process"},
#define PP_TRANSPORT(name, joins, needs) PP_MOVER(name, PP_OF_HOSTS, joins, needs, 0)
#define PP_CARRIER(name, joins, needs, host_wait) PP_MOVER(name, PP_OF_DEVICES, joins, needs, host_wait)
#include "core/plan/movers.def"
};

const int pp_nmovers = sizeof pp_movers / sizeof *pp_movers;

const char pp_mover_names[] = "auto"
#define NAME_THREADS(name)
#define NAME_PROCESSES(name) "|" #name
#define PP_TRANSPORT(name, joins, needs) "|" #name
#define PP_CARRIER(name, joins, needs, host_wait) NAME_##joins(name)
#include "core/plan/movers.def"
    ;

const struct pp_mover *pp_mover_find(const char *name, int moves)
{
    for (int i = 0; name && i < pp_nmovers; i++)
        if (pp_movers[i].moves == moves && strcmp(pp_movers[i].name, name) == 0) return &pp_movers[i];
    return NULL;
}
