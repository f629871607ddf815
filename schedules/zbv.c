/* SPDX-License-Identifier: Apache-2.0
 *
 * ZB-V (Qi, Wan, Amar, Lin 2024, "Pipeline Parallelism with Controllable Memory"; order of torch.distributed.pipelining
 * ScheduleZBVZeroBubble): two stages per rank on a V (v_shape.h), and split backwards (zero_bubble.h). Every rank holds
 * at most P microbatches.
 */
#include "schedules/v_shape.h"

/* Appends F, I and W of a rank's two stages, each kind in the order of the microbatches. The rule of order() needs at
 * least 2P-1 microbatches; if there are fewer, it runs as for 2P-1, and operations of others are left out. */
struct walk {
    const struct pp_schedule_shape *shape;
    struct pp_order *out;
    int stage[2];
    int next[2][PP_KINDS];
};

static pp_status add(struct walk *w, int half, int kind)
{
    const int microbatch = w->next[half][kind]++;
    if (microbatch >= w->shape->microbatches) return PP_OK;
    return pp_order_add(w->out, (enum pp_kind)kind, w->stage[half], microbatch);
}

static pp_status add_all(struct walk *w, int half, const enum pp_kind *kinds, int n)
{
    for (int i = 0; i < n; i++) PP_TRY(add(w, half, kinds[i]));
    return PP_OK;
}

static pp_status order(const struct pp_schedule_shape *shape, int rank, struct pp_order *out)
{
    static const enum pp_kind all[] = {PP_F, PP_I, PP_W}, backward[] = {PP_I, PP_W};
    const int p = shape->ranks, m = shape->microbatches > 2 * p - 1 ? shape->microbatches : 2 * p - 1;
    struct walk w = {.shape = shape, .out = out, .stage = {rank, shape->stages - 1 - rank}};
    for (int i = 0; i < 2 * (p - rank) - 1; i++) PP_TRY(add(&w, 0, PP_F));
    for (int i = 0; i < rank; i++) {
        PP_TRY(add(&w, 1, PP_F));
        PP_TRY(add(&w, 0, PP_F));
    }
    for (int i = 0; i < p - rank; i++) PP_TRY(add_all(&w, 1, all, 3));
    while (w.next[1][PP_F] < m) {
        if (w.next[0][PP_F] < m) PP_TRY(add(&w, 0, PP_F));
        PP_TRY(add_all(&w, 0, backward, 2));
        PP_TRY(add_all(&w, 1, all, 3));
    }
    for (int i = 0; i < rank; i++) {
        PP_TRY(add(&w, 0, PP_I));
        PP_TRY(add(&w, 1, PP_I));
    }
    for (int i = 0; i < p - rank; i++) PP_TRY(add_all(&w, 0, backward, 2));
    while (w.next[1][PP_W] < m) PP_TRY(add(&w, 1, PP_W));
    while (w.next[0][PP_W] < m) PP_TRY(add(&w, 0, PP_W));
    return PP_OK;
}

const struct pp_schedule pp_schedule_zbv = {.name = "zbv",
                                            .torch_name = "ZBVZeroBubble",
                                            .summary = "zero bubble on a V of two stages per rank; memory for P",
                                            .virtual_stages = PP_TWO_STAGES,
                                            .order = order,
                                            .stage_rank = pp_v_stage_rank};
