/* SPDX-License-Identifier: Apache-2.0
 *
 * Durations and what is said about them. Quantiles, for a machine that is shared disturbs a few samples by much; and
 * for sums a mean that those few do not move: what many tasks take together is the sum of their means, and durations
 * are skewed, so that the sum of their medians is less.
 */
#ifndef PP_CORE_STATS_H
#define PP_CORE_STATS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/status.h"

/* A list of durations that grows. Zeroed = empty. */
struct pp_times {
    int64_t *ns;
    int n;
    int64_t room;
};

struct pp_quantiles {
    int64_t count, median_ns, p5_ns, p95_ns, min_ns; /* all 0 where count is 0 */
    int64_t mean_ns; /* winsorised: a twentieth at either end, one at least, counts as the next inside */
};

pp_status pp_times_add(struct pp_times *times, int64_t ns) PP_MUST_CHECK;
/* Appends all of `from`. */
pp_status pp_times_merge(struct pp_times *times, const struct pp_times *from) PP_MUST_CHECK;
void pp_times_free(struct pp_times *times);

/* Nearest-rank quantiles (the median of an even count is the mean of the middle two). Sorts the list. */
struct pp_quantiles pp_times_quantiles(struct pp_times *times);

/* What is to be said of a profile whose workers had no core for the part `taken` (0 to 1) of the time of its tasks: a
 * sentence without its end; false and "" where it is so little that times are good (docs/METRICS.md). */
bool pp_taken_remark(double taken, char *buf, size_t size);

/* A figure with a name, of something with a name: a parameter of a link. Texts are borrowed. */
struct pp_figure {
    const char *of, *name;
    double value;
};

#endif
