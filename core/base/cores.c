/* SPDX-License-Identifier: Apache-2.0 */
#include "core/base/cores.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#if PP_HAVE_HWLOC
#include <hwloc.h>
#endif

#include "core/base/affinity.h"

struct cores {
    int *cpu_of; /* [n] one hardware thread of each; NULL: none is known */
    int n;
};

/* Those of this process, found once. */
static pthread_once_t once = PTHREAD_ONCE_INIT;
static struct cores own;

#if PP_HAVE_HWLOC
/* Adds the first of the core's hardware threads that is usable. */
static void add_core(hwloc_obj_t core, const cpu_set_t *usable, size_t bytes, struct cores *out)
{
    unsigned cpu;
    hwloc_bitmap_foreach_begin(cpu, core->cpuset)
    {
        if (CPU_ISSET_S(cpu, bytes, usable)) {
            out->cpu_of[out->n++] = (int)cpu;
            return;
        }
    }
    hwloc_bitmap_foreach_end();
}

static void find_physical(const cpu_set_t *usable, size_t bytes, int most, struct cores *out)
{
    hwloc_topology_t topology;
    if (hwloc_topology_init(&topology) != 0) return;
    if (hwloc_topology_load(topology) == 0) {
        int n = hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_CORE);
        for (int i = 0; i < n && out->n < most; i++)
            add_core(hwloc_get_obj_by_type(topology, HWLOC_OBJ_CORE, (unsigned)i), usable, bytes, out);
    }
    hwloc_topology_destroy(topology);
}
#else
static void find_physical(const cpu_set_t *usable, size_t bytes, int most, struct cores *out)
{
    (void)usable;
    (void)bytes;
    (void)most;
    (void)out;
}
#endif

static void find(const cpu_set_t *usable, size_t bytes, struct cores *out)
{
    const int threads = CPU_COUNT_S(bytes, usable);
    if (threads > 0) out->cpu_of = malloc((size_t)threads * sizeof *out->cpu_of);
    if (!out->cpu_of) return;
    find_physical(usable, bytes, threads, out);
    const bool physical = out->n > 0;
    for (size_t cpu = 0; !physical && out->n < threads; cpu++)
        if (CPU_ISSET_S(cpu, bytes, usable)) out->cpu_of[out->n++] = (int)cpu;
}

static void find_own(void)
{
    size_t bytes;
    cpu_set_t *usable = pp_affinity(&bytes);
    if (usable) find(usable, bytes, &own);
    free(usable);
}

int pp_cores_count(void)
{
    pthread_once(&once, find_own);
    return own.n > 0 ? own.n : 1;
}

int pp_cores_in(const cpu_set_t *usable, size_t bytes)
{
    struct cores cores = {0};
    find(usable, bytes, &cores);
    free(cores.cpu_of);
    return cores.n > 0 ? cores.n : 1;
}

void pp_cores_pin(int n)
{
    const int cores = pp_cores_count();
    if (own.n > 0) pp_affinity_tie(own.cpu_of[n % cores]); /* else it is not known which there are */
}
