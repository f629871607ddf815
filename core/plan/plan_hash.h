/* SPDX-License-Identifier: Apache-2.0
 *
 * The steps of pp_plan_hash(). The builder calls them one by one, and so hashes each task while it finishes it, instead
 * of in another pass over all tasks.
 */
#ifndef PP_CORE_PLAN_PLAN_HASH_H
#define PP_CORE_PLAN_PLAN_HASH_H

#include "core/plan/plan.h"

/* One step of a 64-bit multiply-xorshift hash. It takes a word at a time, so that plans of millions of tasks stay
 * cheap. */
static inline uint64_t pp_plan_hash_word(uint64_t hash, uint64_t word)
{
    hash = (hash ^ word) * 0x9e3779b97f4a7c15u;
    return hash ^ hash >> 29;
}

static inline uint64_t pp_plan_hash_pair(uint64_t hash, int32_t a, int32_t b)
{
    return pp_plan_hash_word(hash, (uint64_t)(uint32_t)a << 32 | (uint32_t)b);
}

/* First: hashes everything but tasks and issue lists. */
uint64_t pp_plan_hash_begin(const struct pp_plan *plan);

/* Then, for each task in the order of ids. */
static inline uint64_t pp_plan_hash_task(uint64_t hash, const struct pp_task *t)
{
    hash = pp_plan_hash_word(hash, (uint64_t)t->kind << 24 | (uint64_t)t->flags << 16 | t->count);
    hash = pp_plan_hash_pair(hash, t->stage, t->microbatch);
    hash = pp_plan_hash_pair(hash, t->lane, t->dep[0]);
    hash = pp_plan_hash_pair(hash, t->dep[1], t->dep[2]);
    hash = pp_plan_hash_pair(hash, t->act, t->ckpt);
    return pp_plan_hash_pair(hash, t->in, t->out);
}

/* At the end: hashes the issue lists. */
uint64_t pp_plan_hash_end(const struct pp_plan *plan, uint64_t hash);

#endif
