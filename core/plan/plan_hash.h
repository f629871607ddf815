/* SPDX-License-Identifier: Apache-2.0
 *
 * The steps of pp_plan_hash(). The builder calls them one by one, and so hashes each task while it finishes it, instead
 * of in another pass over all tasks.
 */
#ifndef PP_CORE_PLAN_PLAN_HASH_H
#define PP_CORE_PLAN_PLAN_HASH_H

#include "core/base/hash.h"
#include "core/plan/plan.h"

/* What most have not: -1, -1 changes nothing. */
static inline uint64_t pp_plan_hash_further(uint64_t hash, int32_t a, int32_t b)
{
    return a < 0 && b < 0 ? hash : pp_hash_pair(hash, a, b);
}

/* First: hashes everything but tasks and issue lists. */
uint64_t pp_plan_hash_begin(const struct pp_plan *plan);

/* Then, for each task in the order of ids. */
static inline uint64_t pp_plan_hash_task(const struct pp_plan *plan, uint64_t hash, const struct pp_task *t)
{
    static const int32_t none[PP_ACT_PARTS] = {-1, -1, -1};
    const int32_t *act = t->act < 0 ? none : plan->acts[t->act];
    hash = pp_hash_word(hash, (uint64_t)t->kind << 24 | (uint64_t)t->flags << 16 | t->count);
    hash = pp_hash_pair(hash, t->stage, t->microbatch);
    hash = pp_hash_pair(hash, t->lane, t->dep[0]);
    hash = pp_hash_pair(hash, t->dep[1], t->dep[2]);
    hash = pp_hash_pair(hash, act[PP_ACT_LAYERS], t->ckpt);
    hash = pp_plan_hash_further(hash, act[PP_ACT_MORE], act[PP_ACT_ENDS]);
    return pp_hash_pair(hash, t->in, t->out);
}

/* At the end: hashes the issue lists. */
uint64_t pp_plan_hash_end(const struct pp_plan *plan, uint64_t hash);

#endif
