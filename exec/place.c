/* SPDX-License-Identifier: Apache-2.0 */
#include "exec/place.h"

#include <sched.h>
#include <unistd.h>

void pp_place_process(const struct pp_processes *processes, int threads)
{
    cpu_set_t set;
    if (!processes->launched || sched_getaffinity(0, sizeof set, &set) || threads <= CPU_COUNT(&set)) return;
    long cores = sysconf(_SC_NPROCESSORS_CONF);
    for (long core = 0; core < cores && core < CPU_SETSIZE; core++) CPU_SET((size_t)core, &set);
    sched_setaffinity(0, sizeof set, &set); /* a refusal costs speed only */
}

/* Which of the usable cores; -1 = the system decides. A lone worker, or one with BLAS threads of its own, gains nothing
 * from being tied. Processes may each be given cores by their launcher; where they share all of them, each takes its
 * part. */
static int choose(const struct pp_world *world, int me, int threads, int cores)
{
    int all = world->count * world->processes.on_host, mine = me - world->first;
    if (threads > 1 || world->crowded || all == 1) return -1;
    if (all <= cores) return world->processes.host_index * world->count + mine;
    return world->count <= cores ? mine : -1;
}

void pp_place_worker(const struct pp_world *world, int me, int threads)
{
    cpu_set_t usable, one;
    if (sched_getaffinity(0, sizeof usable, &usable)) return;
    int wanted = choose(world, me, threads, CPU_COUNT(&usable));
    for (size_t core = 0; core < CPU_SETSIZE && wanted >= 0; core++) {
        if (!CPU_ISSET(core, &usable) || wanted-- > 0) continue;
        CPU_ZERO(&one);
        CPU_SET(core, &one);
        sched_setaffinity(0, sizeof one, &one); /* a refusal costs speed only */
    }
}
