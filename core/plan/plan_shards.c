/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks of plans with ZeRO 2 or 3: the gradients of each part of a backward are summed (REDUCE_GRAD) and added to the
 * own share (ADD_GRAD), once for each microbatch, before NORM and STEP; and with ZeRO 3 computations read parameters
 * that were gathered for them.
 */
#include <stdlib.h>
#include <string.h>

#include "core/plan/plan_checking.h"

/* What a parameter or gradient slot holds; all -1: nothing. */
struct held {
    int32_t stage, part; /* part: counted from the stage's first layers on */
    int32_t last;        /* the last task that used it */
};

struct shards {
    const struct pp_plan *plan;
    uint8_t *pool;     /* [nslots] enum pp_pool_kind */
    struct held *held; /* [nslots] */
    int32_t *parts;    /* [stages] number of parts */
    int32_t *before;   /* [stages] parts of all earlier stages */
    int32_t *taken;    /* [parts of all stages] number of ADD_GRADs so far */
    int32_t *last;     /* [parts of all stages] the last ADD_GRAD, or REDUCE_SHARE */
};

/* The part of a task, counted from the stage's first layers on. */
static int32_t part_of(const struct shards *c, const struct pp_task *t)
{
    const int part = c->plan->classes[t->cls].part;
    return pp_goes_back(t->kind) ? c->parts[t->stage] - 1 - part : part;
}

/* All tasks of a stage that are done in parts have the same number of parts, and parts are in range. Sets c->parts. */
static pp_status count_parts(struct shards *c)
{
    const struct pp_plan *plan = c->plan;
    const bool params = plan->shard_params;
    const bool is_cut[PP_KINDS] = {[PP_F] = params,         [PP_R] = params,         [PP_B] = true,
                                   [PP_REDUCE_GRAD] = true, [PP_ADD_GRAD] = true,    [PP_GATHER_PARAM] = params,
                                   [PP_PUT_PARAM] = params, [PP_REDUCE_SHARE] = true};
    for (int i = 0; i < plan->nclasses; i++) {
        const struct pp_class *cls = &plan->classes[i];
        const int32_t parts = cls->parts > 1 ? cls->parts : 1;
        if (!is_cut[cls->kind]) continue;
        if (c->parts[cls->stage] == 0) c->parts[cls->stage] = parts;
        if (parts != c->parts[cls->stage] || cls->part < 0 || cls->part >= parts)
            return pp_fail(PP_INPUT, "the plan is wrong: a cost class is of part %d of %d of stage %d, which has %d",
                           cls->part, parts, cls->stage, c->parts[cls->stage]);
    }
    return PP_OK;
}

static pp_status begin(struct shards *c)
{
    const struct pp_plan *plan = c->plan;
    int64_t parts = 0;
    PP_TRY(PP_NEW(&c->pool, plan->nslots));
    PP_TRY(PP_NEW(&c->held, plan->nslots));
    PP_TRY(PP_NEW(&c->parts, plan->stages));
    PP_TRY(PP_NEW(&c->before, plan->stages));
    memset(c->held, 0xff, (size_t)plan->nslots * sizeof *c->held);
    for (int i = 0; i < plan->npools; i++)
        memset(c->pool + plan->pools[i].first, plan->pools[i].kind, (size_t)plan->pools[i].slots);
    PP_TRY(count_parts(c));
    for (int s = 0; s < plan->stages; s++) {
        c->before[s] = (int32_t)parts;
        parts += c->parts[s];
    }
    PP_TRY(PP_NEW(&c->last, parts));
    return PP_NEW(&c->taken, parts);
}

/* The content of `slot`; NULL if there is no slot, or if it is not in a pool of this kind. */
static struct held *held_in(const struct shards *c, int32_t slot, int pool)
{
    return slot >= 0 && c->pool[slot] == pool ? &c->held[slot] : NULL;
}

static bool holds(const struct held *held, const struct shards *c, const struct pp_task *t)
{
    return held->stage == t->stage && held->part == part_of(c, t);
}

static pp_status check_parameters(struct shards *c, int32_t id)
{
    const struct pp_task *t = &c->plan->tasks[id];
    struct held *held = held_in(c, pp_task_param(c->plan, t), PP_POOL_PARAM);
    if (!held) return pp_plan_bad(c->plan, id, "it has no slot for parameters");
    if (t->kind == PP_PUT_PARAM) { /* readers of its former content are earlier on the same lane */
        *held = (struct held){t->stage, part_of(c, t), id};
        return PP_OK;
    }
    const int before = held->last < 0 ? -1 : c->plan->tasks[held->last].kind;
    if (t->kind == PP_GATHER_PARAM) {
        if (before != PP_PUT_PARAM || t->dep[0] != held->last || !holds(held, c, t))
            return pp_plan_bad(c->plan, id, "it gathers parameters of which the rank has not put its own");
        held->last = id;
        return PP_OK;
    }
    if (before == PP_GATHER_PARAM && t->dep[2] == held->last && holds(held, c, t)) return PP_OK;
    return pp_plan_bad(c->plan, id, "it does not wait for its parameters");
}

static pp_status check_gradients(struct shards *c, int32_t id)
{
    const struct pp_task *t = &c->plan->tasks[id];
    struct held *held = held_in(c, pp_task_grad(c->plan, t), PP_POOL_GRAD);
    if (!held) return pp_plan_bad(c->plan, id, "it has no slot for gradients");
    const int before = held->last < 0 ? -1 : c->plan->tasks[held->last].kind;
    if (t->kind == PP_B) {
        if (before >= 0 && before != PP_ADD_GRAD)
            return pp_plan_bad(c->plan, id, "it writes over gradients that nobody has taken");
        *held = (struct held){t->stage, part_of(c, t), id};
        return PP_OK;
    }
    const bool waits = t->dep[0] == held->last && holds(held, c, t);
    if (!waits || before != (t->kind == PP_REDUCE_GRAD ? PP_B : PP_REDUCE_GRAD))
        return pp_plan_bad(c->plan, id,
                           t->kind == PP_REDUCE_GRAD ? "it sums gradients before they are made"
                                                     : "it takes gradients before they are summed");
    held->last = id;
    if (t->kind == PP_REDUCE_GRAD) return PP_OK;
    c->last[c->before[t->stage] + held->part] = id;
    const bool first = c->taken[c->before[t->stage] + held->part]++ == 0;
    if (first == ((t->flags & PP_TASK_FIRST) != 0)) return PP_OK;
    return pp_plan_bad(c->plan, id,
                       first ? "it adds to gradients that nothing has written" : "it overwrites earlier gradients");
}

/* REDUCE_SHARE comes after the ADD_GRADs of all microbatches. */
static pp_status check_share(struct shards *c, int32_t id)
{
    const struct pp_task *t = &c->plan->tasks[id];
    const int32_t part = c->before[t->stage] + part_of(c, t);
    if (c->taken[part] != c->plan->microbatches || t->dep[0] != c->last[part] || pp_plan_shard_groups(c->plan) == 1)
        return pp_plan_bad(c->plan, id, "it sums shares of gradients that are not summed");
    c->last[part] = id;
    return PP_OK;
}

/* NORM and STEP come after the ADD_GRADs of all microbatches, and with several shard groups after the REDUCE_SHAREs. */
static pp_status check_taken(const struct shards *c, int32_t id)
{
    const struct pp_plan *plan = c->plan;
    const int stage = plan->tasks[id].stage, last = pp_plan_shard_groups(plan) > 1 ? PP_REDUCE_SHARE : PP_ADD_GRAD;
    for (int32_t i = c->before[stage]; i < c->before[stage] + c->parts[stage]; i++)
        if (c->taken[i] != plan->microbatches || plan->tasks[c->last[i]].kind != last)
            return pp_plan_bad(plan, id, "it does not wait for all of its stage's gradients");
    return PP_OK;
}

static pp_status check_task(struct shards *c, int32_t id)
{
    switch (c->plan->tasks[id].kind) {
    case PP_I:
    case PP_W:
        return pp_plan_bad(c->plan, id, "it cuts a backward, which has its parameters and gradients once");
    case PP_B:
        PP_TRY(check_gradients(c, id));
        return c->plan->shard_params ? check_parameters(c, id) : PP_OK;
    case PP_F:
    case PP_R:
    case PP_PUT_PARAM:
    case PP_GATHER_PARAM:
        return c->plan->shard_params ? check_parameters(c, id) : PP_OK;
    case PP_REDUCE_GRAD:
    case PP_ADD_GRAD:
        return check_gradients(c, id);
    case PP_REDUCE_SHARE:
        return check_share(c, id);
    case PP_NORM:
    case PP_STEP:
        return check_taken(c, id);
    default:
        return PP_OK;
    }
}

pp_status pp_shards_check(const struct pp_plan *plan)
{
    struct shards c = {.plan = plan};
    pp_status status;
    PP_TRY_DONE(begin(&c));
    for (int32_t id = 0; id < plan->ntasks; id++) PP_TRY_DONE(check_task(&c, id));
done:
    free(c.pool);
    free(c.held);
    free(c.parts);
    free(c.before);
    free(c.taken);
    free(c.last);
    return status;
}
