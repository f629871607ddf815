/* SPDX-License-Identifier: Apache-2.0
 *
 * CLOCK_MONOTONIC in ns, the same for all processes of one machine; and for how long the calling thread had a core.
 */
#ifndef PP_CORE_BASE_CLOCK_H
#define PP_CORE_BASE_CLOCK_H

#include <stdint.h>
#include <time.h>

static inline int64_t pp_now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static inline int64_t pp_cpu_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

#endif
