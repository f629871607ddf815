/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/profile_stamp.h"

#include <sys/resource.h>

#include "core/base/clock.h"

struct pp_stamp pp_stamp_now(void)
{
    struct rusage usage; /* its times are as old as the system's last tick */
    getrusage(RUSAGE_THREAD, &usage);
    return (struct pp_stamp){.cpu_ns = pp_cpu_ns(), .preemptions = usage.ru_nivcsw, .wall_ns = pp_now_ns()};
}

struct pp_stamp pp_stamp_since(const struct pp_stamp *before)
{
    const struct pp_stamp now = pp_stamp_now();
    return (struct pp_stamp){.wall_ns = now.wall_ns - before->wall_ns,
                             .cpu_ns = now.cpu_ns - before->cpu_ns,
                             .preemptions = now.preemptions - before->preemptions};
}

bool pp_stamp_disturbed(const struct pp_stamp *taken)
{
    return taken->preemptions != 0 && taken->wall_ns - taken->cpu_ns > taken->wall_ns / 50 + 20000;
}
