/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>

#include "core/plan/plan_checking.h"

static bool has_key(const struct pp_plan *plan, const struct pp_pool *pool)
{
    const int64_t channels = 2 * (int64_t)plan->ranks * plan->ranks;
    if (pool->kind == PP_POOL_ACT) return pool->key >= 0;
    const bool moves = pool->kind == PP_POOL_RECV || pool->kind == PP_POOL_SEND;
    return moves ? pool->key >= 0 && pool->key < channels : pool->key == 0;
}

static pp_status check_pool(const struct pp_plan *plan, int i)
{
    const struct pp_pool *pool = &plan->pools[i];
    if (pool->kind < 0 || pool->kind >= PP_POOL_KINDS || pool->rank < 0 || pool->rank >= plan->ranks ||
        !has_key(plan, pool))
        return pp_fail(PP_INPUT, "the plan is wrong: pool %d is of kind %d, key %d, on rank %d of %d", i, pool->kind,
                       pool->key, pool->rank, plan->ranks);
    if (pool->first < 0 || pool->slots < 0 || pool->first > plan->nslots - pool->slots)
        return pp_fail(PP_INPUT, "the plan is wrong: pool %d has %d slots from %d on, and there are %d", i, pool->slots,
                       pool->first, plan->nslots);
    return PP_OK;
}

/* pools: [ranks] number of pools for activations. */
static pp_status check_act_pools(const struct pp_plan *plan, const int *pools)
{
    for (int s = 0; s < plan->stages; s++)
        for (int part = 0; part < PP_ACT_PARTS; part++) {
            const int pool = plan->act_pool[s][part];
            if (pool < (part == PP_ACT_LAYERS ? 0 : -1) || pool >= pools[plan->stage_rank[s]])
                return pp_fail(PP_INPUT,
                               "the plan is wrong: stage %d has activations in pool %d of rank %d, which has %d", s,
                               pool, plan->stage_rank[s], pools[plan->stage_rank[s]]);
        }
    return PP_OK;
}

pp_status pp_pools_check(const struct pp_plan *plan)
{
    int *pools;
    pp_status status;
    PP_TRY(PP_NEW(&pools, plan->ranks));
    for (int i = 0; i < plan->npools; i++) {
        PP_TRY_DONE(check_pool(plan, i));
        pools[plan->pools[i].rank] += plan->pools[i].kind == PP_POOL_ACT;
    }
    status = check_act_pools(plan, pools);
done:
    free(pools);
    return status;
}
