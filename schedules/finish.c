/* SPDX-License-Identifier: Apache-2.0
 *
 * The last pass of the builder: turns slot numbers of pools into slot ids of the plan, and writes pools, edges into the
 * next step, issue lists, peaks and the hash.
 */
#include <stdlib.h>
#include <string.h>

#include "core/plan/plan_hash.h"
#include "schedules/building.h"

/* Adds a pool to the plan, behind the others, unless it is empty. */
static void add_pool(struct pp_plan *plan, struct pp_builder_pool *pool)
{
    pool->first = plan->nslots;
    if (pool->made == 0) return;
    plan->pools[plan->npools++] = (struct pp_pool){pool->kind, pool->rank, pool->key, plan->nslots, pool->made};
    plan->nslots += pool->made;
}

static pp_status make_pools(struct pp_builder *b)
{
    struct pp_plan *plan = b->plan;
    PP_TRY(PP_NEW(&plan->pools, plan->stages * PP_ACT_PARTS + 4 * plan->ranks + 2 * b->nchannels));
    for (int r = 0; r < plan->ranks; r++) {
        for (int g = 0; g < b->ranks[r].nact; g++) add_pool(plan, &b->ranks[r].act[g].pool);
        add_pool(plan, &b->ranks[r].ckpt.pool);
        add_pool(plan, &b->ranks[r].local.pool);
        add_pool(plan, &b->ranks[r].param);
        add_pool(plan, &b->ranks[r].grad);
    }
    for (int c = 0; c < b->nchannels; c++) {
        add_pool(plan, &b->channels[c].recv.pool);
        add_pool(plan, &b->channels[c].send.pool);
    }
    return PP_OK;
}

/* The slots of F, R, B, I or W. */
static void renumber_compute(struct pp_builder *b, struct pp_task *task)
{
    struct pp_plan *plan = b->plan;
    struct pp_builder_rank *rank = &b->ranks[task->lane];
    if (task->ckpt >= 0) task->ckpt += rank->ckpt.pool.first;
    if (task->in >= 0) {
        int lane = plan->tasks[task->dep[0]].lane;
        bool channel = plan->lanes[lane].kind == PP_LANE_CHANNEL;
        task->in += channel ? b->channels[lane - plan->ranks].recv.pool.first : rank->local.pool.first;
    }
    if (task->out >= 0) {
        int32_t c = b->channel_of[2 * task->stage + pp_is_backward(task->kind)];
        task->out += c >= 0 ? b->channels[c].send.pool.first : rank->local.pool.first;
    }
}

static void renumber(struct pp_builder *b, struct pp_task *task)
{
    const struct pp_plan *plan = b->plan;
    const int rank = task->stage < 0 ? -1 : plan->stage_rank[task->stage];
    if (task->kind == PP_PUT_PARAM || task->kind == PP_GATHER_PARAM) {
        if (task->out >= 0) task->out += b->ranks[rank].param.first;
    } else if (task->kind == PP_ADD_GRAD || task->kind == PP_REDUCE_GRAD) {
        if (task->in >= 0) task->in += b->ranks[rank].grad.first;
    } else if (task->lane < plan->ranks) {
        renumber_compute(b, task);
    } else if (plan->lanes[task->lane].kind == PP_LANE_CHANNEL && task->out >= 0) {
        struct pp_builder_channel *c = &b->channels[task->lane - plan->ranks];
        task->in += c->send.pool.first;
        task->out += c->recv.pool.first;
    }
}

static void add_wraps(struct pp_plan *plan, const struct pp_slots *slots)
{
    for (int32_t i = 0; i < slots->pool.made; i++)
        plan->wraps[plan->nwraps++] = (struct pp_wrap){slots->users[i].last, slots->users[i].first};
}

/* ZeRO 1 and 2: edges for parameters. If GATHER_PARAM ends a step, the first task of a rank waits for the rank's last
 * GATHER_PARAM of the step before. If it begins a step (gathers_first), the first GATHER_PARAM of a stage waits for the
 * stage's STEP. (ZeRO 3 needs no edge: PUT_PARAM and STEP are on the same lane.) */
static void add_gathers(struct pp_builder *b)
{
    struct pp_plan *plan = b->plan;
    for (int s = 0; plan->gathers_first && s < plan->stages; s++)
        plan->wraps[plan->nwraps++] = (struct pp_wrap){b->step_task[s], b->gather_task[s]};
    for (int r = 0; plan->zero && !plan->gathers_first && !plan->shard_params && r < plan->ranks; r++) {
        int32_t id = 0;
        while (plan->tasks[id].lane != r) id++;
        plan->wraps[plan->nwraps++] = (struct pp_wrap){b->ranks[r].last_gather, id};
    }
}

/* Edges into the next step: the first writer of a slot waits for its last reader in the step before. Slots that only
 * one lane uses need none. */
static pp_status make_wraps(struct pp_builder *b)
{
    struct pp_plan *plan = b->plan;
    int n = plan->zero ? plan->stages : 0;
    for (int c = 0; c < b->nchannels; c++) n += b->channels[c].recv.pool.made + b->channels[c].send.pool.made;
    PP_TRY(PP_NEW(&plan->wraps, n));
    for (int c = 0; c < b->nchannels; c++) {
        add_wraps(plan, &b->channels[c].recv);
        add_wraps(plan, &b->channels[c].send);
    }
    add_gathers(b);
    return PP_OK;
}

/* The end of a rank's issue list. Entries are written a cache line at a time: the lists of many ranks lie at such
 * distances that writing to them in turn would use only a few sets of the caches. */
struct list_end {
    int64_t next;           /* index in plan->issue for entries[0] */
    int32_t n, entries[16]; /* entries that were not written yet */
};

static void write_entries(struct pp_plan *plan, struct list_end *end)
{
    if (end->n) memcpy(plan->issue + end->next, end->entries, (size_t)end->n * sizeof *end->entries);
    end->next += end->n;
    end->n = 0;
}

static void enter(struct pp_plan *plan, struct list_end *end, int32_t entry)
{
    end->entries[end->n++] = entry;
    if (end->n == sizeof end->entries / sizeof *end->entries) write_entries(plan, end);
}

/* Enters a task in the list of every rank that takes part in it. */
static void issue(struct pp_plan *plan, int32_t id, struct list_end *ends)
{
    const struct pp_lane *lane = &plan->lanes[plan->tasks[id].lane];
    const int ranks = pp_lane_ranks(plan, lane);
    for (int i = 0; i < ranks; i++) enter(plan, &ends[pp_lane_rank(lane, i)], pp_issue_entry(lane, id, i));
}

/* One pass over the tasks: slot ids, issue lists, hash. Both ends of a transfer were created at the same moment, so
 * every issue list has the order of ids. */
static pp_status finish_tasks(struct pp_builder *b)
{
    struct pp_plan *plan = b->plan;
    struct list_end *ends;
    PP_TRY(PP_NEW(&plan->issue_start, plan->ranks + 1));
    for (int r = 0; r < plan->ranks; r++) plan->issue_start[r + 1] = plan->issue_start[r] + b->ranks[r].nissue;
    PP_TRY(PP_NEW_LARGE(&plan->issue, plan->issue_start[plan->ranks]));
    PP_TRY(PP_NEW(&ends, plan->ranks));
    for (int r = 0; r < plan->ranks; r++) ends[r].next = plan->issue_start[r];
    uint64_t hash = pp_plan_hash_begin(plan);
    for (int32_t id = 0; id < plan->ntasks; id++) {
        renumber(b, &plan->tasks[id]);
        issue(plan, id, ends);
        pp_progress_tasks("building the plan: numbering slots", id, plan->ntasks);
        hash = pp_plan_hash_task(plan, hash, &plan->tasks[id]);
    }
    for (int r = 0; r < plan->ranks; r++) write_entries(plan, &ends[r]);
    plan->hash = pp_plan_hash_end(plan, hash);
    free(ends);
    return PP_OK;
}

pp_status pp_builder_finish(struct pp_builder *b)
{
    struct pp_plan *plan = b->plan;
    PP_TRY(make_pools(b));
    PP_TRY(pp_act_finish(b));
    PP_TRY(make_wraps(b));
    PP_TRY(finish_tasks(b));
    PP_TRY(PP_NEW(&plan->peak_microbatches, plan->ranks));
    for (int r = 0; r < plan->ranks; r++) plan->peak_microbatches[r] = (double)b->ranks[r].peak / plan->virtual_stages;
    return PP_OK;
}
