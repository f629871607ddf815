/* SPDX-License-Identifier: Apache-2.0
 *
 * Statistics of durations. On a shared machine a few samples are much too long, so there are quantiles, which these do
 * not move. To add up times of many tasks there is a robust mean: the total is the sum of the means, and since
 * durations are skewed, the sum of the medians would be too small.
 */
#ifndef PP_CORE_BASE_STATS_H
#define PP_CORE_BASE_STATS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/status.h"

/* A growing list of durations. All zeros: empty. */
struct pp_times {
    int64_t *ns;
    int n;
    int64_t room;
};

struct pp_quantiles {
    int64_t count, median_ns, p5_ns, p95_ns, min_ns; /* all 0 where count is 0 */
    /* The winsorised mean: of n samples the smallest n / 20 + 1, rounded down, and as many of the largest are replaced
     * by the nearest sample that remains. */
    int64_t mean_ns;
};

pp_status pp_times_add(struct pp_times *times, int64_t ns) PP_MUST_CHECK;
/* Appends all of `from`. */
pp_status pp_times_merge(struct pp_times *times, const struct pp_times *from) PP_MUST_CHECK;
void pp_times_free(struct pp_times *times);

/* The quantiles by the nearest-rank method; the median of an even count is the mean of the middle two. Sorts the list.
 */
struct pp_quantiles pp_times_quantiles(struct pp_times *times);

/* How long something took, and for how long of that the thread had a core. */
struct pp_core_time {
    int64_t ns, cpu_ns;
};
static inline void pp_core_time_add(struct pp_core_time *time, int64_t ns, int64_t cpu_ns)
{
    time->ns += ns;
    time->cpu_ns += cpu_ns;
}
/* Of n such, the one that others took the median part of, the lower of the middle two; sorts the list. n = 0: zeros. */
struct pp_core_time pp_core_time_median(struct pp_core_time *times, int n);

/* taken: the part (0 to 1) of the time of a profile's tasks, or of a run's, in which its workers had no core, because
 * others used it. If it is so large that the times are not to be trusted, writes a remark to buf, a sentence without
 * its end, and returns true; else writes "" and returns false (docs/METRICS.md). program: "ppprof", or "ppexec". */
bool pp_taken_remark(double taken, const char *program, char *buf, size_t size);

#endif
