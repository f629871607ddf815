/* SPDX-License-Identifier: Apache-2.0 */
#include "core/plan/plan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/text.h"
#include "core/plan/plan_hash.h"
#include "core/plan/plan_spec.h"

const struct pp_kind_info pp_kinds[PP_KINDS] = {
#define X(id, name, computes, meaning) [PP_##id] = {name, computes},
    PP_KIND_LIST(X)
#undef X
};

int pp_kind_named(const char *name)
{
    int kind = 0;
    while (kind < PP_KINDS && (!name || strcmp(pp_kinds[kind].name, name) != 0)) kind++;
    return kind;
}

const char *pp_checkpoint_text(int checkpoint, char buf[PP_CHECKPOINT_TEXT])
{
    static const char *const names[PP_CHECKPOINTS] = {"never", "except_last", "always", "layers", "activation"};
    const int some = pp_checkpoint_some(checkpoint);
    if (some)
        snprintf(buf, PP_CHECKPOINT_TEXT, "layers:%d", some);
    else
        snprintf(buf, PP_CHECKPOINT_TEXT, "%s", names[checkpoint]);
    return buf;
}

const char *pp_task_text(const struct pp_task *task, char *buf, size_t size)
{
    const char *kind = pp_kinds[task->kind].name;
    if (task->stage < 0)
        snprintf(buf, size, "%s", kind);
    else if (task->microbatch < 0)
        snprintf(buf, size, "%s s%d", kind, task->stage);
    else if (task->count > 1)
        snprintf(buf, size, "%s s%d m%d-%lld", kind, task->stage, task->microbatch,
                 (long long)task->microbatch + task->count - 1);
    else
        snprintf(buf, size, "%s s%d m%d", kind, task->stage, task->microbatch);
    return buf;
}

int32_t pp_task_param(const struct pp_plan *plan, const struct pp_task *t)
{
    const bool computes = t->kind == PP_F || t->kind == PP_R || t->kind == PP_B;
    if (computes) return plan->shard_params && t->dep[2] >= 0 ? plan->tasks[t->dep[2]].out : -1;
    return t->kind == PP_PUT_PARAM || t->kind == PP_GATHER_PARAM ? t->out : -1;
}

bool pp_task_adds(const struct pp_plan *plan, const struct pp_task *t)
{
    const bool apart = plan->shards && t->kind == PP_B; /* it has a slot of its own */
    return pp_makes_gradients(t->kind) && !apart && !(t->flags & PP_TASK_FIRST);
}

int32_t pp_task_grad(const struct pp_plan *plan, const struct pp_task *t)
{
    if (t->kind == PP_REDUCE_GRAD || t->kind == PP_ADD_GRAD) return t->in;
    for (int i = 0; i < plan->npools && plan->shards && t->kind == PP_B; i++) {
        const struct pp_pool *pool = &plan->pools[i];
        const int32_t slot = pool->first + ((t->flags & PP_TASK_SECOND) != 0);
        if (pool->kind == PP_POOL_GRAD && pool->rank == t->lane) return slot < plan->nslots ? slot : -1;
    }
    return -1;
}

const char *pp_plan_rows_text(const struct pp_plan *plan, char *buf, size_t size)
{
    struct pp_text text = pp_text_in(buf, size);
    for (int m = 0, same; m < plan->microbatches && text.used + 16 < size; m += same) {
        for (same = 1; m + same < plan->microbatches && plan->rows[m + same] == plan->rows[m];) same++;
        pp_text_add(&text, "%s%dx%d", m ? " " : "", same, plan->rows[m]);
    }
    return buf;
}

int pp_plan_slot_rows(const struct pp_plan *plan, int m)
{
    const int first = pp_slot_first(plan, m), end = first + plan->slot_microbatches;
    int rows = 0;
    for (int i = first; i < end && i < plan->microbatches; i++) rows += plan->rows[i];
    return rows;
}

int pp_plan_most_slot_rows(const struct pp_plan *plan)
{
    int most = 0;
    for (int m = 0; m < plan->microbatches; m += plan->slot_microbatches) {
        const int rows = pp_plan_slot_rows(plan, m);
        if (rows > most) most = rows;
    }
    return most;
}

uint64_t pp_plan_hash_begin(const struct pp_plan *plan)
{
    uint64_t hash = pp_hash_pair(0, plan->ranks, plan->virtual_stages);
    hash = pp_hash_pair(hash, plan->microbatches, plan->replicas);
    if (plan->members > 1) hash = pp_hash_word(hash, (uint64_t)plan->members);
    if (plan->expert_parallel > 1) hash = pp_hash_word(hash, UINT64_C(1) << 32 | (uint64_t)plan->expert_parallel);
    if (plan->context > 1) hash = pp_hash_word(hash, UINT64_C(2) << 32 | (uint64_t)plan->context);
    if (plan->shard_group < plan->replicas) hash = pp_hash_word(hash, UINT64_C(3) << 32 | (uint64_t)plan->shard_group);
    if (pp_checkpoint_in_slots(plan->checkpoint)) /* it changes no task, see pp_checkpoint_in_slots() */
        hash = pp_hash_pair(hash, -1, plan->checkpoint);
    for (int m = 0; m < plan->microbatches; m++) hash = pp_hash_word(hash, (uint64_t)plan->rows[m]);
    for (int s = 0; s < plan->stages; s++) {
        const int *pool = plan->act_pool[s];
        hash = pp_hash_pair(hash, plan->stage_rank[s], pool[PP_ACT_LAYERS]);
        hash = pp_plan_hash_further(hash, pool[PP_ACT_MORE], pool[PP_ACT_ENDS]);
    }
    for (int i = 0; i < plan->nlanes; i++) {
        const struct pp_lane *lane = &plan->lanes[i];
        hash = pp_hash_pair(pp_hash_pair(hash, lane->kind, lane->transfer), lane->src, lane->dst);
    }
    for (int i = 0; i < plan->npools; i++) {
        const struct pp_pool *pool = &plan->pools[i];
        hash = pp_hash_pair(pp_hash_pair(hash, pool->kind, pool->rank), pool->key, pool->slots);
    }
    for (int i = 0; i < plan->nwraps; i++) hash = pp_hash_pair(hash, plan->wraps[i].from, plan->wraps[i].to);
    for (int i = 0; i < plan->nclasses; i++)
        if (plan->classes[i].parts > 1) hash = pp_hash_pair(hash, plan->classes[i].part, plan->classes[i].parts);
    if (plan->rounds_weights) hash = pp_hash_word(hash, UINT64_C(4) << 32);
    return hash;
}

uint64_t pp_plan_hash_end(const struct pp_plan *plan, uint64_t hash)
{
    for (int64_t i = 0; i < plan->issue_start[plan->ranks]; i++) hash = pp_hash_word(hash, (uint64_t)plan->issue[i]);
    return pp_hash_word(hash, (uint64_t)plan->ntasks);
}

uint64_t pp_plan_hash(const struct pp_plan *plan)
{
    uint64_t hash = pp_plan_hash_begin(plan);
    for (int64_t i = 0; i < plan->ntasks; i++) hash = pp_plan_hash_task(plan, hash, &plan->tasks[i]);
    return pp_plan_hash_end(plan, hash);
}

void pp_plan_free(struct pp_plan *plan)
{
    if (!plan) return;
    free(plan->rows);
    free(plan->first_row);
    free(plan->stage_rank);
    free(plan->act_pool);
    free(plan->acts);
    free(plan->tasks);
    free(plan->lanes);
    free(plan->classes);
    free(plan->pools);
    free(plan->wraps);
    free(plan->issue_start);
    free(plan->issue);
    free(plan->peak_microbatches);
    free(plan);
}

int pp_chunk_rows(int rows, int chunks, int *rows_out)
{
    int piece = (rows + chunks - 1) / chunks, n = 0;
    for (int left = rows; left > 0; left -= piece, n++)
        if (rows_out) rows_out[n] = left < piece ? left : piece;
    return n;
}
