/* SPDX-License-Identifier: Apache-2.0 */
#include "core/base/stats.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

pp_status pp_times_add(struct pp_times *times, int64_t ns)
{
    PP_TRY(PP_GROW(&times->ns, times->n + 1, &times->room));
    times->ns[times->n++] = ns;
    return PP_OK;
}

pp_status pp_times_merge(struct pp_times *times, const struct pp_times *from)
{
    for (int i = 0; i < from->n; i++) PP_TRY(pp_times_add(times, from->ns[i]));
    return PP_OK;
}

void pp_times_free(struct pp_times *times)
{
    free(times->ns);
    *times = (struct pp_times){0};
}

static int by_value(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static double taken_of(const struct pp_core_time *time)
{
    return time->ns > 0 ? 1 - (double)time->cpu_ns / (double)time->ns : 0;
}

static int by_taken(const void *a, const void *b)
{
    const double x = taken_of(a), y = taken_of(b);
    return (x > y) - (x < y);
}

struct pp_core_time pp_core_time_median(struct pp_core_time *times, int n)
{
    if (n == 0) return (struct pp_core_time){0};
    qsort(times, (size_t)n, sizeof *times, by_taken);
    return times[(n - 1) / 2];
}

static const double taken_most = 0.05; /* ten times that of an idle machine, and about the error of predictions */

bool pp_taken_remark(double taken, const char *program, char *buf, size_t size)
{
    buf[0] = '\0';
    if (!(taken > taken_most)) return false;
    taken = taken < 0.99 ? taken : 0.99;
    snprintf(buf, size,
             "other programs had the cores for %.0f %% of the time of the measured tasks, whose times are "
             "therefore %.0f %% too long; run %s again when less else runs",
             100 * taken, 100 * (1 / (1 - taken) - 1), program);
    return true;
}

/* The nearest-rank quantile: the smallest sample such that at least the part `q` of all samples is not larger. */
static int64_t at(const struct pp_times *sorted, double q)
{
    int i = (int)ceil(q * sorted->n) - 1;
    return sorted->ns[i < 0 ? 0 : i];
}

/* See pp_quantiles.mean_ns. */
static int64_t winsorised_mean(const struct pp_times *sorted)
{
    int n = sorted->n, cut = n / 20 + 1;
    double sum = 0;
    if (2 * cut >= n) cut = (n - 1) / 2;
    for (int i = 0; i < n; i++) sum += (double)sorted->ns[i < cut ? cut : i >= n - cut ? n - cut - 1 : i];
    return llround(sum / n);
}

struct pp_quantiles pp_times_quantiles(struct pp_times *times)
{
    if (times->n == 0) return (struct pp_quantiles){0};
    qsort(times->ns, (size_t)times->n, sizeof *times->ns, by_value);
    int64_t low = times->ns[(times->n - 1) / 2], high = times->ns[times->n / 2];
    return (struct pp_quantiles){
        .count = times->n,
        .median_ns = low + (high - low) / 2,
        .p5_ns = at(times, 0.05),
        .p95_ns = at(times, 0.95),
        .min_ns = times->ns[0],
        .mean_ns = winsorised_mean(times),
    };
}
