/* SPDX-License-Identifier: Apache-2.0
 *
 * Sums of a step on a queue device: of gradients and parameters, one reduction after another, each of them the
 * collectives of one set after another; and of the norm.
 */
#include "exec/worker_queue.h"

/* The collectives of a set end in their order, and in a reduction that of the experts behind the other one. So it is
 * enough to wait for the last collective of reduction n - 1 and, if that has none of the experts, for the last one of
 * these that an earlier reduction has. */
pp_status pp_worker_queue_hold_for_reductions(struct pp_worker *w, int n)
{
    int experts = n - 1;
    if (n == 0) return PP_OK;
    PP_TRY(pp_queued_hold_for(w, pp_worker_last_summing(w, n - 1)->parcel.done));
    while (experts >= 0 && w->queue->sets > 1 && !pp_worker_combines(w, experts, PP_EXPERTS)) experts--;
    return experts < 0 || experts == n - 1
               ? PP_OK
               : pp_queued_hold_for(w, pp_worker_summing(w, experts, PP_EXPERTS)->parcel.done);
}

static pp_status prepare_sum(struct pp_worker *w, struct pp_summing *summing, void *memory, int64_t bytes)
{
    summing->parcel = pp_queued_parcel(w, &summing->marks, memory, bytes);
    return pp_queued_record(w, summing->after);
}

/* The mark is recorded where the reduction stands in the list; the sum may have to wait for the one before it. */
pp_status pp_worker_queue_ask_reduction(struct pp_worker *w)
{
    const int number = w->reductions_asked - 1;
    for (int set = 0; set < PP_PARAM_SETS; set++) {
        if (!pp_worker_combines(w, number, set)) continue;
        const struct pp_combining c = pp_worker_combining(w, number, set);
        struct pp_summing *summing = pp_worker_summing(w, number, set);
        PP_TRY(prepare_sum(w, summing, c.memory, c.bytes));
        summing->parcel.shares = c.shares;
    }
    return PP_OK;
}

/* Sums the gradients of both copies of the embedding, where this rank has both: that needs no other queue. */
static pp_status sum_here(struct pp_worker *w, const struct pp_combining *c, struct pp_parcel *parcel)
{
    const void *const both[] = {c->memory, c->copy};
    if (parcel->begun) PP_TRY(pp_queued_record(w, parcel->begun));
    PP_TRY(PP_OPS(w, sum, w->queue->compute, c->memory, both, 2, c->bytes / (int64_t)sizeof(float), PP_SUM_FLOAT));
    PP_TRY(PP_OPS(w, copy, w->queue->compute, c->copy, c->memory, c->bytes));
    parcel->issued = true;
    return pp_queued_record(w, parcel->done);
}

/* The gradients have been summed over the replicas in a queue of their own: what comes now waits for that. */
static pp_status start_tied(struct pp_worker *w, const struct pp_combining *c, struct pp_summing *summing)
{
    PP_TRY(pp_worker_queue_hold_for_reductions(w, w->reductions_done));
    if (c->copy) return sum_here(w, c, &summing->parcel);
    PP_TRY(pp_queued_record(w, summing->after));
    return pp_queued_start_sum(&w->queue->routes.tied, summing, summing->after);
}

static const struct pp_sum_route *route_of(const struct pp_routes *routes, const struct pp_combining *c)
{
    if (c->tied) return &routes->tied;
    return c->share ? &routes->share : &routes->gradient[c->set];
}

/* A share is summed over groups behind the sum that has made it, in another queue; with shards behind ADD_GRAD. So are
 * gradients of the second set behind those of the first. */
static struct pp_mark *after_of(const struct pp_worker *w, const struct pp_combining *c,
                                const struct pp_summing *summing)
{
    const bool behind = c->share && c->shares;
    if (c->set == PP_EXPERTS) return pp_worker_summing(w, w->reductions_done, PP_DENSE)->parcel.done;
    return behind ? pp_worker_last_summing(w, w->reductions_done - 1)->parcel.done : summing->after;
}

/* Starts the collective of the reduction that is under way, for the set w->reduction_set. */
static pp_status start_set(struct pp_worker *w)
{
    struct pp_summing *summing = pp_worker_summing(w, w->reductions_done, w->reduction_set);
    const struct pp_combining c = pp_worker_combining(w, w->reductions_done, w->reduction_set);
    if (c.tied) return start_tied(w, &c, summing);
    const struct pp_sum_route *route = route_of(&w->queue->routes, &c);
    struct pp_mark *after = after_of(w, &c, summing);
    return c.floats ? pp_worker_queue_start_rounded(w, &c, route, summing, after)
                    : pp_queued_start_sum(route, summing, after);
}

static pp_status advance_set(struct pp_worker *w, bool *issued)
{
    struct pp_summing *summing = pp_worker_summing(w, w->reductions_done, w->reduction_set);
    const struct pp_combining c = pp_worker_combining(w, w->reductions_done, w->reduction_set);
    const struct pp_sum_route *route = route_of(&w->queue->routes, &c);
    if (!summing->parcel.issued) PP_TRY(route->carrier->sum_poll(route->sum, &summing->parcel));
    *issued = summing->parcel.issued;
    return *issued && c.floats ? pp_worker_queue_end_rounded(w, &c, summing) : PP_OK;
}

/* One at a time, in the order of the plan. */
static pp_status advance_reductions(struct pp_worker *w)
{
    while (w->reductions_done < w->reductions_asked) {
        bool issued = true;
        if (w->reductions_begun == w->reductions_done) {
            w->reductions_begun++;
            w->reduction_set = PP_DENSE;
            PP_TRY(start_set(w));
        }
        PP_TRY(advance_set(w, &issued));
        if (!issued) break;
        if (w->reduction_set == PP_DENSE && pp_worker_combines(w, w->reductions_done, PP_EXPERTS)) {
            w->reduction_set = PP_EXPERTS;
            PP_TRY(start_set(w));
            continue;
        }
        w->reductions_done++;
    }
    return PP_OK;
}

static pp_status end_norm(struct pp_worker *w)
{
    struct pp_worker_queue *q = w->queue;
    PP_TRY(PP_OPS(w, clip_factor, q->compute, w->sums, w->nsums, w->job->config->clip, q->clip_factor));
    if (w->step.traced) PP_TRY(pp_queued_record(w, w->track->marks[q->norm_stop].timed_end));
    w->norm.open = false;
    w->norm_ready = true;
    w->frame.clip = q->clip_factor;
    return PP_OK;
}

pp_status pp_worker_queue_ask_norm(struct pp_worker *w, int32_t task)
{
    struct pp_worker_queue *q = w->queue;
    (void)task;
    q->norm_stop = w->position;
    if (w->step.traced) PP_TRY(pp_queued_record(w, w->track->marks[q->norm_stop].timed_begin));
    if (!q->routes.norm.sum) return end_norm(w);
    w->norm.open = true;
    PP_TRY(prepare_sum(w, &q->norm, w->sums, w->nsums * (int64_t)sizeof *w->sums));
    return pp_queued_start_sum(&q->routes.norm, &q->norm, q->norm.after);
}

static pp_status advance_norm(struct pp_worker *w)
{
    struct pp_worker_queue *q = w->queue;
    if (!w->norm.open) return PP_OK;
    PP_TRY(q->routes.norm.carrier->sum_poll(q->routes.norm.sum, &q->norm.parcel));
    if (!q->norm.parcel.issued) return PP_OK;
    PP_TRY(pp_queued_hold_for(w, q->norm.parcel.done));
    return end_norm(w);
}

pp_status pp_worker_queue_advance_sums(struct pp_worker *w)
{
    PP_TRY(advance_reductions(w));
    return advance_norm(w);
}
