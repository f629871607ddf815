/* SPDX-License-Identifier: Apache-2.0
 *
 * Activation slots, each made of a slot for every part (enum pp_act_part) that its stage has. Parts are taken and freed
 * each from its pool; every combination that comes about gets a number, which tasks have.
 */
#include <stdlib.h>
#include <string.h>

#include "schedules/building.h"

static struct pp_slots *pool_of(const struct pp_builder *b, int stage, int part)
{
    const int pool = b->plan->act_pool[stage][part];
    return pool < 0 ? NULL : &b->ranks[b->plan->stage_rank[stage]].act[pool];
}

/* Are these the parts of activation slot i? Equal numbers from different pools are not. */
static bool is_made_of(const struct pp_builder *b, int i, int stage, const int32_t parts[PP_ACT_PARTS])
{
    const int *theirs = b->plan->act_pool[b->acts.stage[i]], *ours = b->plan->act_pool[stage];
    return !memcmp(b->acts.parts[i], parts, sizeof *b->acts.parts) &&
           !memcmp(theirs, ours, PP_ACT_PARTS * sizeof *ours);
}

static pp_status add(struct pp_act_slots *acts, int stage, const int32_t parts[PP_ACT_PARTS], int32_t next)
{
    PP_TRY(PP_GROW(&acts->parts, acts->n + 1, &acts->parts_room));
    PP_TRY(PP_GROW(&acts->stage, acts->n + 1, &acts->stage_room));
    PP_TRY(PP_GROW(&acts->next, acts->n + 1, &acts->next_room));
    memcpy(acts->parts[acts->n], parts, sizeof *acts->parts);
    acts->stage[acts->n] = stage;
    acts->next[acts->n++] = next;
    return PP_OK;
}

pp_status pp_act_take(struct pp_builder *b, int stage, int32_t *act)
{
    int32_t parts[PP_ACT_PARTS];
    for (int i = 0; i < PP_ACT_PARTS; i++) {
        struct pp_slots *pool = pool_of(b, stage, i);
        parts[i] = -1;
        if (pool) PP_TRY(pp_slots_take(pool, &parts[i]));
    }
    int32_t *newest = &pool_of(b, stage, PP_ACT_LAYERS)->users[parts[PP_ACT_LAYERS]].first, i = *newest;
    while (i >= 0 && !is_made_of(b, i, stage, parts)) i = b->acts.next[i];
    if (i < 0) {
        PP_TRY(add(&b->acts, stage, parts, *newest));
        i = *newest = b->acts.n - 1;
    }
    *act = i;
    return PP_OK;
}

void pp_act_free(struct pp_builder *b, int stage, int32_t act)
{
    for (int i = 0; i < PP_ACT_PARTS; i++) {
        struct pp_slots *pool = pool_of(b, stage, i);
        if (pool) pp_slots_free(pool, b->acts.parts[act][i]);
    }
}

pp_status pp_act_finish(struct pp_builder *b)
{
    struct pp_plan *plan = b->plan;
    PP_TRY(PP_NEW(&plan->acts, b->acts.n));
    plan->nacts = b->acts.n;
    for (int i = 0; i < b->acts.n; i++)
        for (int part = 0; part < PP_ACT_PARTS; part++) {
            const struct pp_slots *pool = pool_of(b, b->acts.stage[i], part);
            plan->acts[i][part] = pool ? b->acts.parts[i][part] + pool->pool.first : -1;
        }
    return PP_OK;
}

void pp_act_release(struct pp_act_slots *acts)
{
    free(acts->parts);
    free(acts->stage);
    free(acts->next);
}
