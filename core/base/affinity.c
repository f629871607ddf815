/* SPDX-License-Identifier: Apache-2.0 */
#include "core/base/affinity.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

cpu_set_t *pp_affinity(size_t *bytes)
{
    enum { MOST = 1 << 20 };
    for (size_t cpus = CPU_SETSIZE; cpus <= MOST; cpus *= 2) {
        cpu_set_t *set = CPU_ALLOC(cpus);
        *bytes = CPU_ALLOC_SIZE(cpus);
        if (!set || sched_getaffinity(0, *bytes, set) == 0) return set;
        CPU_FREE(set);
        if (errno != EINVAL) break; /* else the system has more */
    }
    return NULL;
}

int pp_affinity_count(void)
{
    size_t bytes;
    cpu_set_t *usable = pp_affinity(&bytes);
    const int n = usable ? CPU_COUNT_S(bytes, usable) : 1;
    free(usable);
    return n;
}

/* Processors first .. end-1. */
static void set_range(size_t first, size_t end)
{
    const size_t bytes = CPU_ALLOC_SIZE(end);
    cpu_set_t *set = CPU_ALLOC(end);
    if (!set) return;
    CPU_ZERO_S(bytes, set);
    for (size_t cpu = first; cpu < end; cpu++) CPU_SET_S(cpu, bytes, set);
    (void)sched_setaffinity(0, bytes, set);
    CPU_FREE(set);
}

void pp_affinity_widen(void)
{
    const long n = sysconf(_SC_NPROCESSORS_CONF); /* their numbers may have gaps */
    set_range(0, n > CPU_SETSIZE ? (size_t)n : CPU_SETSIZE);
}

void pp_affinity_tie(int cpu) { set_range((size_t)cpu, (size_t)cpu + 1); }
