/* SPDX-License-Identifier: Apache-2.0 */
#include "core/job/checkpoint_use.h"

#include <stdio.h>
#include <stdlib.h>

/* Counts the slots that the plan would need without recomputation. */
struct count {
    const struct pp_plan *plan;
    struct pp_pool *pools; /* [plan->npools] those of the plan; slots: the most that were in use at once */
    int *live;             /* [plan->npools] slots in use now */
    int *pool_of;          /* [stages] its activation pool */
    uint8_t *held;         /* [stages][slots of a stage] is the slot in use? */
};

/* Sets the activation and checkpoint pools to no slots; all other pools stay as they are. */
static void begin(struct count *c)
{
    const struct pp_plan *plan = c->plan;
    for (int p = 0; p < plan->npools; p++) {
        const struct pp_pool *pool = &plan->pools[p];
        c->pools[p] = *pool;
        if (pool->kind == PP_POOL_ACT || pool->kind == PP_POOL_CKPT) c->pools[p].slots = 0;
        for (int s = 0; pool->kind == PP_POOL_ACT && s < plan->stages; s++)
            if (plan->stage_rank[s] == pool->rank && plan->act_group[s] == pool->key) c->pool_of[s] = p;
    }
}

/* Without recomputation the first F of a slot takes it, and B or W frees it. The tasks of a pool run in the order of
 * their ids. */
static void count_slots(struct count *c)
{
    const struct pp_plan *plan = c->plan;
    const int k = plan->slot_microbatches, slots = (plan->microbatches + k - 1) / k;
    for (int64_t t = 0; t < plan->ntasks; t++) {
        const struct pp_task *task = &plan->tasks[t];
        if (task->kind != PP_F && task->kind != PP_B && task->kind != PP_W) continue;
        const int p = c->pool_of[task->stage];
        uint8_t *held = &c->held[(int64_t)task->stage * slots + task->microbatch / k];
        c->live[p] += (task->kind == PP_F) - *held;
        *held = task->kind == PP_F;
        if (c->live[p] > c->pools[p].slots) c->pools[p].slots = c->live[p];
    }
}

static int64_t fullest(const struct pp_layout *layout)
{
    int64_t most = 0;
    for (int r = 0; r < layout->ranks; r++)
        if (layout->arena_bytes[r] > most) most = layout->arena_bytes[r];
    return most;
}

/* Lays out the job's phases with the plan `train` in place of the training plan, and returns the arena. Programs are
 * made again, because those of recomputation need other scratch memory. made[]: these phases; the caller frees them,
 * also after a failure. */
static pp_status lay_out_phases(const struct pp_job *job, const struct pp_plan *train, struct pp_phase made[PP_PHASES],
                                int64_t *bytes)
{
    struct pp_phase used[PP_PHASES];
    struct pp_layout *layout;
    int n = 0;
    for (int i = 0; i < PP_PHASES; i++) {
        const struct pp_phase *phase = &job->phase[i];
        if (!phase->plan) continue;
        const bool trains = phase->plan == job->train;
        if (trains) PP_TRY(pp_phase_create(job->model, job->model_ops, train, phase->seq, &made[i]));
        used[n++] = trains ? made[i] : *phase;
    }
    PP_TRY(pp_layout_create(job->model, job->model_ops, used, n, &layout));
    *bytes = fullest(layout);
    pp_layout_free(layout);
    return PP_OK;
}

/* The arena of the job if its training plan had these pools and no checkpoints. */
static pp_status lay_out(const struct pp_job *job, struct pp_pool *pools, int64_t *bytes)
{
    struct pp_plan never = *job->train;
    struct pp_phase made[PP_PHASES] = {0};
    never.checkpoint = PP_CHECKPOINT_NEVER;
    never.pools = pools;
    never.nslots = 0;
    for (int p = 0; p < never.npools; p++) {
        pools[p].first = never.nslots;
        never.nslots += pools[p].slots;
    }
    const pp_status status = lay_out_phases(job, &never, made, bytes);
    for (int i = 0; i < PP_PHASES; i++) pp_phase_free(&made[i]);
    return status;
}

pp_status pp_checkpoint_use(const struct pp_job *job, struct pp_checkpoint_use *out)
{
    const struct pp_plan *plan = job->train;
    struct count c = {.plan = plan};
    pp_status status;
    PP_TRY_DONE(PP_NEW(&c.pools, plan->npools));
    PP_TRY_DONE(PP_NEW(&c.live, plan->npools));
    PP_TRY_DONE(PP_NEW(&c.pool_of, plan->stages));
    PP_TRY_DONE(PP_NEW(&c.held, (int64_t)plan->stages * plan->microbatches));
    begin(&c);
    count_slots(&c);
    out->bytes = fullest(job->layout);
    status = lay_out(job, c.pools, &out->never_bytes);
done:
    free(c.pools);
    free(c.live);
    free(c.pool_of);
    free(c.held);
    return status;
}

pp_status pp_checkpoint_remark(const struct pp_job *job, char *buf, size_t size)
{
    struct pp_checkpoint_use use;
    const struct pp_plan *plan = job->train;
    char mode[PP_CHECKPOINT_TEXT];
    buf[0] = '\0';
    if (!job->layout || plan->checkpoint == PP_CHECKPOINT_NEVER) return PP_OK;
    pp_status status = pp_checkpoint_use(job, &use);
    if (status == PP_USAGE) return PP_OK; /* without checkpoints it is too large for any layout: they are needed */
    if (status != PP_OK || use.bytes < use.never_bytes) return status;
    snprintf(buf, size,
             "%s, %d stage%s, %d chunk%s: --checkpoint %s saves no memory: the fullest rank needs no more with never%s",
             plan->schedule, plan->ranks, pp_plural(plan->ranks), job->point.chunks, pp_plural(job->point.chunks),
             pp_checkpoint_text(plan->checkpoint, mode),
             plan->split_backward && !pp_checkpoint_in_slots(plan->checkpoint)
                 ? ", for what R makes again is kept until W"
                 : "");
    return PP_OK;
}
