/* SPDX-License-Identifier: Apache-2.0 */
#include "core/base/cores.h"

#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <unistd.h>
#if PP_HAVE_HWLOC
#include <hwloc.h>
#endif

enum { MOST_CORES = CPU_SETSIZE };

/* cpu_of[ncores]: one hardware thread of each usable core, found once. */
static pthread_once_t once = PTHREAD_ONCE_INIT;
static int cpu_of[MOST_CORES], ncores;

#if PP_HAVE_HWLOC
/* Adds the first of the core's hardware threads that this process may use. */
static void add_core(hwloc_obj_t core, const cpu_set_t *usable)
{
    unsigned cpu;
    hwloc_bitmap_foreach_begin(cpu, core->cpuset)
    {
        if (cpu < CPU_SETSIZE && CPU_ISSET(cpu, usable)) {
            cpu_of[ncores++] = (int)cpu;
            return;
        }
    }
    hwloc_bitmap_foreach_end();
}

static void find_physical(const cpu_set_t *usable)
{
    hwloc_topology_t topology;
    if (hwloc_topology_init(&topology) != 0) return;
    if (hwloc_topology_load(topology) == 0) {
        int n = hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_CORE);
        for (int i = 0; i < n && ncores < MOST_CORES; i++)
            add_core(hwloc_get_obj_by_type(topology, HWLOC_OBJ_CORE, (unsigned)i), usable);
    }
    hwloc_topology_destroy(topology);
}
#else
static void find_physical(const cpu_set_t *usable) { (void)usable; }
#endif

static void find(void)
{
    cpu_set_t usable;
    if (sched_getaffinity(0, sizeof usable, &usable) != 0) CPU_ZERO(&usable);
    find_physical(&usable);
    bool physical = ncores > 0;
    for (int cpu = 0; cpu < CPU_SETSIZE && !physical; cpu++)
        if (CPU_ISSET(cpu, &usable)) cpu_of[ncores++] = cpu;
    if (ncores == 0) cpu_of[ncores++] = 0;
}

void pp_cores_widen(void)
{
    cpu_set_t all;
    CPU_ZERO(&all);
    long n = sysconf(_SC_NPROCESSORS_CONF);
    for (long cpu = 0; cpu < n && cpu < CPU_SETSIZE; cpu++) CPU_SET((size_t)cpu, &all);
    sched_setaffinity(0, sizeof all, &all); /* a refusal costs speed only */
}

int pp_cores_count(void)
{
    pthread_once(&once, find);
    return ncores;
}

void pp_cores_pin(int n)
{
    cpu_set_t one;
    int cores = pp_cores_count();
    CPU_ZERO(&one);
    CPU_SET((size_t)cpu_of[n % cores], &one);
    sched_setaffinity(0, sizeof one, &one);
}
