/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/process.h"

#include <math.h>

#include "core/job/process.h"
#include "core/plan/movers.h"
#include "sim/costs.h"

static const double most_bytes = 1e12; /* the largest figure of a profile; sums over all workers do not overflow */

pp_status pp_process_cost_find(struct pp_db *db, const struct pp_job *job, const char *transport,
                               struct pp_process_cost *out)
{
    const struct pp_mover *mover = pp_mover_find(transport, PP_OF_HOSTS);
    bool found = mover != NULL;
    const bool alone = found && mover->joins_processes;
    const int processes = alone ? pp_plan_workers(job->train) : 1;
    const struct {
        const char *parameter;
        double *value;
    } wanted[] = {{"base_bytes", &out->base}, {"worker_bytes", &out->worker}, {"first_bytes", &out->first}};
    *out = (struct pp_process_cost){.alone = alone};
    for (int i = 0; i < (alone ? 3 : 2) && found; i++) {
        PP_TRY(
            pp_db_find_link(db, job->config, processes, mover->process, wanted[i].parameter, wanted[i].value, &found));
        if (found)
            PP_TRY(pp_check_figure(*wanted[i].value, 0, most_bytes, "%s of \"%s\" is", wanted[i].parameter,
                                   mover->process));
    }
    out->known = found;
    if (found) out->joined = pp_process_joined_bytes(job);
    return PP_OK;
}

int64_t pp_process_bytes(const struct pp_job *job, const struct pp_process_cost *cost, int64_t data_bytes, int worker)
{
    const int all = pp_plan_workers(job->train), count = cost->alone ? 1 : all;
    if (!cost->known || !job->layout || worker % count) return 0;
    const double measured = cost->base + count * cost->worker + (worker == 0 ? cost->first : 0);
    int64_t bytes = llround(measured) + data_bytes + pp_process_table_bytes(job, worker == 0);
    for (int i = worker; i < worker + count; i++) bytes += pp_process_worker_bytes(job, cost->joined, i);
    return bytes;
}

int64_t pp_process_most_bytes(const struct pp_job *job, const struct pp_process_cost *cost, int64_t data_bytes)
{
    int64_t most = 0;
    for (int i = 0; i < pp_plan_workers(job->train); i++) {
        const int64_t bytes = pp_process_bytes(job, cost, data_bytes, i);
        if (bytes > most) most = bytes;
    }
    return most;
}
