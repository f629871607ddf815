/* SPDX-License-Identifier: Apache-2.0 */
#include "core/plan.h"

#include <stdio.h>
#include <stdlib.h>

const struct pp_kind_info pp_kinds[PP_KINDS] = {
#define X(id, name, computes, meaning) [PP_##id] = {name, meaning, computes},
    PP_KIND_LIST(X)
#undef X
};

const char *const pp_checkpoint_names[] = {"never", "except_last", "always"};
const char *const pp_pool_names[PP_POOL_KINDS] = {"activations", "checkpoints", "receive", "send", "local"};

const char *pp_task_text(const struct pp_task *task, char *buf, size_t size)
{
    const char *kind = pp_kinds[task->kind].name;
    if (task->stage < 0)
        snprintf(buf, size, "%s", kind);
    else if (task->microbatch < 0)
        snprintf(buf, size, "%s s%d", kind, task->stage);
    else if (task->count > 1)
        snprintf(buf, size, "%s s%d m%d-%d", kind, task->stage, task->microbatch, task->microbatch + task->count - 1);
    else
        snprintf(buf, size, "%s s%d m%d", kind, task->stage, task->microbatch);
    return buf;
}

int pp_plan_slot_rows(const struct pp_plan *plan, int m)
{
    const int k = plan->slot_microbatches, first = m - m % k;
    int rows = 0, most = 0;
    if (m >= 0) {
        for (int i = first; i < first + k && i < plan->microbatches; i++) rows += plan->rows[i];
        return rows;
    }
    for (int i = 0; i < plan->microbatches; i += k) {
        rows = pp_plan_slot_rows(plan, i);
        if (rows > most) most = rows;
    }
    return most;
}

/* One step of a 64-bit multiply-xorshift hash; a word at a time keeps plans of millions of tasks cheap. */
static uint64_t mix(uint64_t hash, uint64_t word)
{
    hash = (hash ^ word) * 0x9e3779b97f4a7c15u;
    return hash ^ hash >> 29;
}

static uint64_t pair(int32_t a, int32_t b) { return (uint64_t)(uint32_t)a << 32 | (uint32_t)b; }

static uint64_t mix_task(uint64_t hash, const struct pp_task *t)
{
    hash = mix(hash, (uint64_t)t->kind << 24 | (uint64_t)t->flags << 16 | t->count);
    hash = mix(hash, pair(t->stage, t->microbatch));
    hash = mix(hash, pair(t->lane, t->dep[0]));
    hash = mix(hash, pair(t->dep[1], t->dep[2]));
    hash = mix(hash, pair(t->act, t->ckpt));
    return mix(hash, pair(t->in, t->out));
}

uint64_t pp_plan_hash(const struct pp_plan *plan)
{
    uint64_t hash = mix(0, pair(plan->ranks, plan->virtual_stages));
    hash = mix(hash, pair(plan->microbatches, plan->replicas));
    for (int m = 0; m < plan->microbatches; m++) hash = mix(hash, (uint64_t)plan->rows[m]);
    for (int s = 0; s < plan->stages; s++) hash = mix(hash, pair(plan->stage_rank[s], plan->act_group[s]));
    for (int i = 0; i < plan->nlanes; i++) {
        const struct pp_lane *lane = &plan->lanes[i];
        hash = mix(mix(hash, pair(lane->kind, lane->transfer)), pair(lane->src, lane->dst));
    }
    for (int i = 0; i < plan->npools; i++) {
        const struct pp_pool *pool = &plan->pools[i];
        hash = mix(mix(hash, pair(pool->kind, pool->rank)), pair(pool->key, pool->slots));
    }
    for (int i = 0; i < plan->nwraps; i++) hash = mix(hash, pair(plan->wraps[i].from, plan->wraps[i].to));
    for (int64_t i = 0; i < plan->ntasks; i++) hash = mix_task(hash, &plan->tasks[i]);
    for (int64_t i = 0; i < plan->issue_start[plan->ranks]; i++) hash = mix(hash, (uint64_t)plan->issue[i]);
    return mix(hash, (uint64_t)plan->ntasks);
}

void pp_plan_free(struct pp_plan *plan)
{
    if (!plan) return;
    free(plan->rows);
    free(plan->first_row);
    free(plan->stage_rank);
    free(plan->act_group);
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
    for (int left = rows; left > 0; left -= piece) rows_out[n++] = left < piece ? left : piece;
    return n;
}
