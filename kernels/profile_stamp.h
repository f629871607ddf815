/* SPDX-License-Identifier: Apache-2.0
 *
 * What a run of a task costs the calling thread, where the thread computes.
 */
#ifndef PP_KERNELS_PROFILE_STAMP_H
#define PP_KERNELS_PROFILE_STAMP_H

#include <stdbool.h>
#include <stdint.h>

/* A moment, or what lies between two. */
struct pp_stamp {
    int64_t wall_ns, cpu_ns;
    long preemptions; /* of the thread, by the system */
};

struct pp_stamp pp_stamp_now(void);
struct pp_stamp pp_stamp_since(const struct pp_stamp *before);
/* Was the core taken away for more than 2 % of the time? */
bool pp_stamp_disturbed(const struct pp_stamp *taken);

#endif
