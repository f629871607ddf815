/* SPDX-License-Identifier: Apache-2.0 */
#include "core/base/cores.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#if PP_HAVE_HWLOC
#include <hwloc.h>
#endif

#include "core/base/affinity.h"

/* cpu_of[ncores]: one hardware thread of each usable core, found once; NULL: none is known. */
static pthread_once_t once = PTHREAD_ONCE_INIT;
static int *cpu_of, ncores;

#if PP_HAVE_HWLOC
/* Adds the first of the core's hardware threads that this process may use. */
static void add_core(hwloc_obj_t core, const cpu_set_t *usable, size_t bytes)
{
    unsigned cpu;
    hwloc_bitmap_foreach_begin(cpu, core->cpuset)
    {
        if (CPU_ISSET_S(cpu, bytes, usable)) {
            cpu_of[ncores++] = (int)cpu;
            return;
        }
    }
    hwloc_bitmap_foreach_end();
}

static void find_physical(const cpu_set_t *usable, size_t bytes, int most)
{
    hwloc_topology_t topology;
    if (hwloc_topology_init(&topology) != 0) return;
    if (hwloc_topology_load(topology) == 0) {
        int n = hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_CORE);
        for (int i = 0; i < n && ncores < most; i++)
            add_core(hwloc_get_obj_by_type(topology, HWLOC_OBJ_CORE, (unsigned)i), usable, bytes);
    }
    hwloc_topology_destroy(topology);
}
#else
static void find_physical(const cpu_set_t *usable, size_t bytes, int most)
{
    (void)usable;
    (void)bytes;
    (void)most;
}
#endif

static void find(void)
{
    size_t bytes;
    cpu_set_t *usable = pp_affinity(&bytes);
    const int threads = usable ? CPU_COUNT_S(bytes, usable) : 0;
    if (threads > 0) cpu_of = malloc((size_t)threads * sizeof *cpu_of);
    if (cpu_of) find_physical(usable, bytes, threads);
    const bool physical = ncores > 0;
    for (size_t cpu = 0; cpu_of && !physical && ncores < threads; cpu++)
        if (CPU_ISSET_S(cpu, bytes, usable)) cpu_of[ncores++] = (int)cpu;
    free(usable);
}

int pp_cores_count(void)
{
    pthread_once(&once, find);
    return ncores > 0 ? ncores : 1;
}

void pp_cores_pin(int n)
{
    const int cores = pp_cores_count();
    if (ncores > 0) pp_affinity_tie(cpu_of[n % cores]); /* else it is not known which there are */
}
