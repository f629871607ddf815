/* SPDX-License-Identifier: Apache-2.0
 *
 * What collectives of gradients and parameters work on, and the rounding of gradients around their sums.
 */
#include <stdlib.h>

#include "exec/worker_inside.h"

static struct pp_group members_of(const struct pp_worker *w, bool share, enum pp_param_set set)
{
    return share ? pp_share_group(w->job->train, w->me) : pp_replica_group(w->job->train, w->me, set);
}

/* Sets what the collectives of a class work on for one set of parameters; leaves zeros where they have none of it.
 * `whole`: all gradients are summed at once. These are the ones of a tied embedding, those of which replicas have no
 * shares, and with shards the worker's own share, which is all that it keeps. */
static pp_status open_set(const struct pp_worker *w, const struct pp_plan *plan, const struct pp_class *cls,
                          enum pp_param_set set, struct pp_combined *out)
{
    const struct pp_model *model = w->job->model;
    const bool tied = cls->kind == PP_REDUCE_TIED, share = cls->kind == PP_REDUCE_SHARE;
    const bool whole = tied || !(plan->zero || plan->shard_params) || (plan->shards && share);
    const bool there = tied || pp_summed_bytes(model, cls, set) > 0;
    if (!there || !pp_combines_set(plan, cls->kind, set)) return PP_OK;
    out->of[set].there = true;
    out->of[set].rounds = !tied && pp_sent_bytes(model, cls, set) > 0;
    if (whole && !tied) out->of[set].gradients = share ? pp_part_share(model, cls) : pp_part_sum(model, cls, set);
    if (whole) return PP_OK;
    PP_TRY(pp_shares_create(w->job, cls, set, w->me, &out->of[set].shares));
    if (!out->of[set].rounds) return PP_OK;
    return pp_shares_create_sent(out->of[set].shares, members_of(w, share, set).n, &out->of[set].sent);
}

pp_status pp_worker_open_combined(const struct pp_worker *w, struct pp_track *track)
{
    const struct pp_plan *plan = track->walk->plan;
    PP_TRY(PP_NEW(&track->combined, plan->nclasses));
    for (int c = 0; c < plan->nclasses; c++)
        for (int set = 0; set < PP_PARAM_SETS && pp_combines_on(plan, &plan->classes[c], w->rank); set++)
            PP_TRY(open_set(w, plan, &plan->classes[c], set, &track->combined[c]));
    return PP_OK;
}

void pp_worker_close_combined(struct pp_track *track)
{
    for (int c = 0; track->combined && c < track->walk->plan->nclasses; c++)
        for (int set = 0; set < PP_PARAM_SETS; set++) {
            free(track->combined[c].of[set].shares);
            free(track->combined[c].of[set].sent);
        }
    free(track->combined);
}

/* The gradient of the embedding or of its copy (`tensor`), or this worker's share of it, which the two ranks sum. */
static char *tied_gradient(const struct pp_worker *w, int tensor, int64_t *bytes)
{
    const struct pp_extent extent =
        pp_tied_gradient(w->job->model, tensor, pp_worker_share(w->job->train, w->me, PP_DENSE));
    *bytes = extent.bytes;
    return w->arena + w->job->layout->grad_offset[w->job->model->tensors[tensor].stage] + extent.offset;
}

static struct pp_combining combine_tied(const struct pp_worker *w)
{
    struct pp_combining c = {.tied = true};
    if (pp_worker_has(w, w->job->train->stages - 1)) c.copy = tied_gradient(w, pp_tied_copy(w->job->model), &c.bytes);
    if (pp_worker_has(w, 0)) c.memory = tied_gradient(w, 0, &c.bytes);
    if (c.memory) return c;
    c.memory = c.copy;
    c.copy = NULL;
    return c;
}

static const struct pp_task *task_of(const struct pp_worker *w, int i)
{
    return &w->step.phase->plan->tasks[w->reductions[i]];
}

static struct pp_combining combine(const struct pp_worker *w, const struct pp_task *task, enum pp_param_set set)
{
    const struct pp_combined *combined = &w->track->combined[task->cls];
    struct pp_combining c = {
        .set = set, .share = task->kind == PP_REDUCE_SHARE, .shares = combined->of[set].shares, .memory = w->arena};
    if (task->kind == PP_REDUCE_TIED) return combine_tied(w);
    if (c.shares) {
        const int32_t slot = task->in >= 0 ? task->in : task->out;
        if (slot >= 0) c.memory = pp_worker_slot(w, slot);
        return c;
    }
    c.memory += w->job->layout->grad_offset[task->stage] + combined->of[set].gradients.offset;
    c.bytes = combined->of[set].gradients.bytes;
    return c;
}

bool pp_worker_combines(const struct pp_worker *w, int i, enum pp_param_set set)
{
    return w->track->combined[task_of(w, i)->cls].of[set].there;
}

struct pp_combining pp_worker_combining(const struct pp_worker *w, int i, enum pp_param_set set)
{
    const struct pp_layout *layout = w->job->layout;
    const struct pp_task *task = task_of(w, i);
    struct pp_combining c = combine(w, task, set);
    if (!w->track->combined[task->cls].of[set].rounds) return c;
    c.floats = c.memory;
    c.float_shares = c.shares;
    c.memory = w->arena + (c.share ? layout->sent_share_offset : layout->sent_offset)[w->rank];
    c.shares = w->track->combined[task->cls].of[set].sent;
    c.bytes /= 2;
    return c;
}

static float *float_at(const struct pp_combining *c, int64_t offset) { return (float *)(void *)(c->floats + offset); }

static uint16_t *sent_at(const struct pp_combining *c, int64_t offset)
{
    return (uint16_t *)(void *)(c->memory + offset);
}

pp_status pp_worker_narrow(struct pp_worker *w, const struct pp_combining *c)
{
    const int members = members_of(w, c->share, c->set).n;
    if (!c->shares) return w->ops->narrow(w, c->share, sent_at(c, 0), float_at(c, 0), c->bytes / 2);
    for (int t = 0; t < c->shares->n; t++) {
        const struct pp_share_tensor *to = &c->shares->tensors[t];
        PP_TRY(w->ops->narrow(w, c->share, sent_at(c, to->offset), float_at(c, c->float_shares->tensors[t].offset),
                              members * to->part_bytes / 2));
    }
    return PP_OK;
}

pp_status pp_worker_widen(struct pp_worker *w, const struct pp_combining *c)
{
    const struct pp_group group = members_of(w, c->share, c->set);
    if (!c->shares) return w->ops->widen(w, c->share, float_at(c, 0), sent_at(c, 0), c->bytes / 2);
    const bool own = c->shares->use == PP_SHARES_SCATTER;
    const int first = own ? pp_group_member(&group, w->me) : 0, n = own ? 1 : group.n;
    for (int t = 0; t < c->shares->n; t++) {
        const struct pp_share_tensor *from = &c->shares->tensors[t], *to = &c->float_shares->tensors[t];
        PP_TRY(w->ops->widen(w, c->share, float_at(c, to->offset + first * to->part_bytes),
                             sent_at(c, from->offset + first * from->part_bytes), n * from->part_bytes / 2));
    }
    return PP_OK;
}
