/* SPDX-License-Identifier: Apache-2.0 */
#include "exec/worker_queue.h"

pp_status pp_worker_queue_narrow(struct pp_worker *w, bool share, uint16_t *to, const float *from, int64_t n)
{
    return PP_OPS(w, narrow, w->queue->rounding[share].queue, to, from, n);
}

pp_status pp_worker_queue_widen(struct pp_worker *w, bool share, float *to, const uint16_t *from, int64_t n)
{
    return PP_OPS(w, widen, w->queue->rounding[share].queue, to, from, n);
}

pp_status pp_worker_queue_start_rounded(struct pp_worker *w, const struct pp_combining *c,
                                        const struct pp_sum_route *route, struct pp_summing *summing,
                                        struct pp_mark *after)
{
    const struct pp_rounding *rounding = &w->queue->rounding[c->share];
    struct pp_parcel *parcel = &summing->parcel;
    PP_TRY(PP_OPS(w, wait, rounding->queue, after));
    if (parcel->begun) PP_TRY(PP_OPS(w, record, rounding->queue, parcel->begun));
    PP_TRY(pp_worker_narrow(w, c));
    PP_TRY(PP_OPS(w, record, rounding->queue, rounding->rounded));
    parcel->begun = NULL;
    parcel->done = rounding->summed;
    return route->carrier->sum_start(route->sum, parcel, rounding->rounded);
}

pp_status pp_worker_queue_end_rounded(struct pp_worker *w, const struct pp_combining *c, struct pp_summing *summing)
{
    const struct pp_rounding *rounding = &w->queue->rounding[c->share];
    PP_TRY(PP_OPS(w, wait, rounding->queue, rounding->summed));
    PP_TRY(pp_worker_widen(w, c));
    summing->parcel.done = w->step.traced ? summing->marks.timed_done : summing->marks.done;
    return PP_OPS(w, record, rounding->queue, summing->parcel.done);
}
