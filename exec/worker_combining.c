/* SPDX-License-Identifier: Apache-2.0
 *
 * What collectives of gradients and parameters work on, and the rounding of gradients around their sums.
 */
#include "exec/worker_inside.h"

static struct pp_group members_of(const struct pp_worker *w, bool share)
{
    return share ? pp_share_group(w->job->train, w->me) : pp_replica_group(w->job->train, w->me);
}

static pp_status open_class(const struct pp_worker *w, struct pp_track *track, int c)
{
    const struct pp_plan *plan = track->walk->plan;
    const struct pp_class *cls = &plan->classes[c];
    const bool whole = cls->kind == PP_REDUCE_TIED || (plan->shards && cls->kind == PP_REDUCE_SHARE);
    if (!pp_combines_on(plan, cls, w->rank) || whole) return PP_OK;
    PP_TRY(pp_shares_create(w->job, cls, pp_worker_share(w->job->train, w->me), &track->shares[c]));
    if (!pp_sent_bytes(w->job->model, cls)) return PP_OK;
    return pp_shares_create_sent(track->shares[c], members_of(w, cls->kind == PP_REDUCE_SHARE).n,
                                 &track->sent_shares[c]);
}

pp_status pp_worker_open_shares(const struct pp_worker *w, struct pp_track *track)
{
    const struct pp_plan *plan = track->walk->plan;
    PP_TRY(PP_NEW(&track->shares, plan->nclasses));
    PP_TRY(PP_NEW(&track->sent_shares, plan->nclasses));
    for (int c = 0; c < plan->nclasses && (plan->zero || plan->shards); c++) PP_TRY(open_class(w, track, c));
    return PP_OK;
}

/* Of a tensor: what this worker sums with the rank that has a copy. */
static char *tied_gradient(const struct pp_worker *w, int tensor, int64_t *bytes)
{
    const struct pp_extent extent = pp_tied_gradient(w->job->model, tensor, pp_worker_share(w->job->train, w->me));
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

/* A share of gradients: with shards it is all that the worker has of the part. */
static struct pp_combining combine_share(const struct pp_worker *w, const struct pp_class *cls,
                                         const struct pp_shares *shares)
{
    if (shares) return (struct pp_combining){.share = true, .memory = w->arena, .shares = shares};
    const struct pp_extent extent = pp_part_gradients(w->job->model, cls);
    const int parts = pp_shape_parts(&w->job->model->shape);
    return (struct pp_combining){.share = true,
                                 .memory = w->arena + w->job->layout->grad_offset[cls->stage] + extent.offset / parts,
                                 .bytes = extent.bytes / parts};
}

static struct pp_combining combine(const struct pp_worker *w, const struct pp_task *task)
{
    const struct pp_plan *plan = w->step.phase->plan;
    const struct pp_class *cls = &plan->classes[task->cls];
    const struct pp_shares *shares = w->track->shares[task->cls];
    if (task->kind == PP_REDUCE_TIED) return combine_tied(w);
    if (task->kind == PP_REDUCE_SHARE) return combine_share(w, cls, shares);
    if (plan->shards)
        return (struct pp_combining){.memory = pp_worker_slot(w, task->in >= 0 ? task->in : task->out),
                                     .shares = shares};
    if (shares) return (struct pp_combining){.memory = w->arena, .shares = shares};
    const struct pp_extent extent = pp_part_gradients(w->job->model, cls);
    char *gradients = w->arena + w->job->layout->grad_offset[cls->stage];
    return (struct pp_combining){.memory = gradients + extent.offset, .bytes = extent.bytes};
}

struct pp_combining pp_worker_combining(const struct pp_worker *w, int i)
{
    const struct pp_layout *layout = w->job->layout;
    const struct pp_plan *plan = w->step.phase->plan;
    const struct pp_task *task = &plan->tasks[w->reductions[i]];
    struct pp_combining c = combine(w, task);
    if (!pp_sent_bytes(w->job->model, &plan->classes[task->cls])) return c;
    c.floats = c.memory;
    c.float_shares = c.shares;
    c.memory = w->arena + (c.share ? layout->sent_share_offset : layout->sent_offset)[w->rank];
    c.shares = w->track->sent_shares[task->cls];
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
    const int members = members_of(w, c->share).n;
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
    const struct pp_group group = members_of(w, c->share);
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
