/* SPDX-License-Identifier: Apache-2.0 */
#include "exec/place.h"

#include <sched.h>

/* A lone worker, or one with BLAS threads of its own, gains nothing from being tied. Processes may each be given cores by their launcher; where they share
 * all of them, each takes its part. */
void pp_place_worker(const struct pp_world *world, int me, int threads)
{
    cpu_set_t usable, one;
    if (threads > 1 || world->crowded || sched_getaffinity(0, sizeof usable, &usable)) return;
    int cores = CPU_COUNT(&usable), all = world->count * world->processes.on_host;
    bool shared = all <= cores;
    if (all == 1 || (!shared && world->count > cores)) return;
    int wanted = me - world->first + (shared ? world->processes.host_index * world->count : 0);
    for (size_t core = 0; core < CPU_SETSIZE; core++) {
        if (!CPU_ISSET(core, &usable) || wanted-- > 0) continue;
        CPU_ZERO(&one);
        CPU_SET(core, &one);
        sched_setaffinity(0, sizeof one, &one); /* a refusal costs speed only */
        return;
    }
}
