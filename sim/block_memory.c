/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/block_memory.h"

#include <math.h>
#include <stdlib.h>

bool pp_block_memory_known(const struct pp_job *job)
{
    const struct pp_blocks *blocks = job->times.blocks;
    return blocks && blocks->sized && job->train->checkpoint == PP_CHECKPOINT_NEVER;
}

static int64_t bytes(double mib) { return (int64_t)fmin(mib * 0x1p20, 0x1p62); }

/* What a rank keeps after the task, if it keeps so much before. */
static double after(const struct pp_job *job, const struct pp_task *task, double kept)
{
    const bool ends = task->kind == PP_B || task->kind == PP_W; /* a backward is whole, or ends with its W */
    if (task->kind != PP_F && !ends) return kept;
    const double kept_mib = task->count * job->times.stages[task->stage].kept_mib;
    return ends ? kept - kept_mib : kept + kept_mib;
}

static double most_kept(const struct pp_job *job, int rank)
{
    const struct pp_plan *plan = job->train;
    double kept = 0, most = 0;
    for (int64_t i = plan->issue_start[rank]; i < plan->issue_start[rank + 1]; i++) {
        kept = after(job, &plan->tasks[pp_issue_task(plan->issue[i])], kept);
        if (kept > most) most = kept;
    }
    return most;
}

pp_status pp_block_memory_find(const struct pp_job *job, struct pp_block_memory *out)
{
    const struct pp_plan *plan = job->train;
    *out = (struct pp_block_memory){0};
    PP_TRY(PP_NEW(&out->state, plan->ranks));
    PP_TRY(PP_NEW(&out->kept, plan->ranks));
    for (int rank = 0; rank < plan->ranks; rank++) {
        double state = 0;
        for (int s = 0; s < plan->stages; s++)
            if (plan->stage_rank[s] == rank) state += job->times.stages[s].state_mib;
        out->state[rank] = bytes(state);
        out->kept[rank] = bytes(most_kept(job, rank));
    }
    return PP_OK;
}

void pp_block_memory_free(struct pp_block_memory *memory)
{
    free(memory->state);
    free(memory->kept);
}
