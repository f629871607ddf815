/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>

#include "core/plan/plan_checking.h"

static bool is_rank(const struct pp_plan *plan, int rank) { return rank >= 0 && rank < plan->ranks; }

/* Each stage is on a rank that exists, and each rank has a stage. */
static pp_status check_stages(const struct pp_plan *plan)
{
    bool *used;
    PP_TRY(PP_NEW(&used, plan->ranks));
    pp_status status = PP_OK;
    for (int s = 0; s < plan->stages && status == PP_OK; s++) {
        const int rank = plan->stage_rank[s];
        if (is_rank(plan, rank))
            used[rank] = true;
        else
            status = pp_fail(PP_INPUT, "the plan is wrong: stage %d lives on rank %d of %d", s, rank, plan->ranks);
    }
    for (int r = 0; r < plan->ranks && status == PP_OK; r++)
        if (!used[r]) status = pp_fail(PP_INPUT, "the plan is wrong: rank %d has no stage", r);
    free(used);
    return status;
}

/* Compute lanes come first, one for each rank; all other lanes have ranks that exist. */
static pp_status check_lanes(const struct pp_plan *plan)
{
    for (int i = 0; i < plan->nlanes; i++) {
        const struct pp_lane *lane = &plan->lanes[i];
        const bool own = i < plan->ranks, norm = lane->kind == PP_LANE_NORM;
        const bool joins = norm || (is_rank(plan, lane->src) && is_rank(plan, lane->dst));
        const bool computes = lane->kind == PP_LANE_COMPUTE && lane->src == i && lane->dst == i;
        if (own ? !computes : !joins || lane->kind == PP_LANE_COMPUTE)
            return pp_fail(PP_INPUT, "the plan is wrong: lane %d, from rank %d to rank %d, is not at its place", i,
                           lane->src, lane->dst);
    }
    return PP_OK;
}

pp_status pp_ranks_check(const struct pp_plan *plan)
{
    if (plan->ranks < 1 || plan->stages < 1 || plan->microbatches < 1 || plan->nlanes < plan->ranks)
        return pp_fail(PP_INPUT, "the plan is wrong: %d ranks, %d stages, %d microbatches, %d lanes", plan->ranks,
                       plan->stages, plan->microbatches, plan->nlanes);
    PP_TRY(check_stages(plan));
    PP_TRY(check_lanes(plan));
    for (int r = 0; r < plan->ranks; r++)
        if (plan->issue_start[r] < 0 || plan->issue_start[r] > plan->issue_start[r + 1])
            return pp_fail(PP_INPUT, "the plan is wrong: the issue list of rank %d begins behind its end", r);
    return PP_OK;
}
