/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>

#include "core/plan/plan_checking.h"

/* rank: [nslots] the rank of each slot for activations, -1 for others. */
static bool is_right(const int32_t act[PP_ACT_PARTS], const int32_t *rank, int nslots)
{
    for (int part = 0; part < PP_ACT_PARTS; part++) {
        if (act[part] == -1 && part != PP_ACT_LAYERS) continue;
        if (act[part] < 0 || act[part] >= nslots || rank[act[part]] < 0) return false;
        if (rank[act[part]] != rank[act[PP_ACT_LAYERS]]) return false;
        for (int other = 0; other < part; other++)
            if (act[other] == act[part]) return false;
    }
    return true;
}

pp_status pp_acts_check(const struct pp_plan *plan)
{
    int32_t *rank;
    pp_status status = PP_OK;
    PP_TRY(PP_NEW(&rank, plan->nslots));
    for (int s = 0; s < plan->nslots; s++) rank[s] = -1;
    for (int p = 0; p < plan->npools; p++) {
        const struct pp_pool *pool = &plan->pools[p];
        for (int s = 0; s < pool->slots && pool->kind == PP_POOL_ACT; s++) rank[pool->first + s] = pool->rank;
    }
    for (int i = 0; i < plan->nacts && status == PP_OK; i++)
        if (!is_right(plan->acts[i], rank, plan->nslots))
            status = pp_fail(PP_INPUT, "the plan is wrong: activation slot %d has no slots for its parts", i);
    free(rank);
    return status;
}
