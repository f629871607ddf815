/* SPDX-License-Identifier: Apache-2.0 */
#include "schedules/v_block.h"

enum { PERIOD = 6, FASTEST = 2, HURRY = 4 }; /* slots from a microbatch to the next: steady, soonest, hurry */

struct walk {
    const struct pp_schedule_shape *shape;
    struct pp_order *out;
    int stage[2];
    int64_t steady[PP_V_PASSES], soonest[PP_V_PASSES]; /* slots of microbatch 0 (v_block.h) */
    int64_t last[PP_V_PASSES];                         /* slots `hurry` of the last microbatch; I1 and I0 only */
    int64_t slack;         /* slots by which the last few microbatches of `hurry` are closer together in all */
    int next[PP_V_PASSES]; /* the next microbatch of each pass */
    int weights[2];        /* the next microbatch of W, of each stage */
    int held;              /* pairs of stage and microbatch between F and W */
    int64_t clock;         /* the first slot that is not used yet */
};

static int half_of(int pass) { return pass == PP_V_F1 || pass == PP_V_I1; }

static int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }

static void place(struct walk *w, int rank, pp_v_block block)
{
    const int64_t p = w->shape->ranks, m = w->shape->microbatches;
    int64_t first[PP_V_PASSES]; /* the block of rank 0, which has the first and the last stage */
    block(w->shape->ranks, 0, first);
    block(w->shape->ranks, rank, w->steady);
    const int64_t way[PP_V_PASSES] = {rank, 2 * p - 1 - rank, 2 * p + rank, 4 * p - 1 - rank};
    const int64_t earlier = first[PP_V_I0] - 4 * p, turn = first[PP_V_F1] + 1;
    for (int i = 0; i < PP_V_PASSES; i++) {
        w->soonest[i] = way[i];
        w->steady[i] -= earlier;
        w->last[i] = turn + way[i] - 2 * p - earlier + PERIOD * (m - 1);
    }
    w->slack = p > 4 ? 2 : 4; /* found by trial: it gives the least spans */
}

static int64_t slot_of(const struct walk *w, int pass, int microbatch)
{
    int64_t slot = w->steady[pass] + PERIOD * (int64_t)microbatch;
    if (pass == PP_V_I1 || pass == PP_V_I0) {
        const int64_t before = w->shape->microbatches - 1 - microbatch;
        const int64_t hurry = w->last[pass] - larger(FASTEST * before, HURRY * before - w->slack);
        if (hurry <= slot + 1) slot = hurry;
    }
    return larger(slot, w->soonest[pass] + FASTEST * (int64_t)microbatch);
}

/* The pass with the smallest slot of those that are left, and its slot; PP_V_PASSES if none is left. The order in which
 * passes with equal slots are taken was found by trial, like `slack`. */
static int next_pass(const struct walk *w, int64_t *slot)
{
    static const int ties[] = {PP_V_I0, PP_V_I1, PP_V_F0, PP_V_F1};
    int pass = PP_V_PASSES;
    for (int i = 0; i < PP_V_PASSES; i++) {
        const int candidate = ties[i];
        if (w->next[candidate] == w->shape->microbatches) continue;
        const int64_t s = slot_of(w, candidate, w->next[candidate]);
        if (pass != PP_V_PASSES && s >= *slot) continue;
        pass = candidate;
        *slot = s;
    }
    return pass;
}

static bool weight_pending(const struct walk *w)
{
    return w->weights[1] < w->next[PP_V_I1] || w->weights[0] < w->next[PP_V_I0];
}

static pp_status add_weight(struct walk *w)
{
    const int half = w->weights[1] < w->next[PP_V_I1];
    w->clock++;
    w->held--;
    return pp_order_add(w->out, PP_W, w->stage[half], w->weights[half]++);
}

pp_status pp_order_v_block(const struct pp_schedule_shape *shape, int rank, pp_v_block block, int most,
                           struct pp_order *out)
{
    struct walk w = {.shape = shape, .out = out, .stage = {rank, shape->stages - 1 - rank}};
    int64_t slot = 0;
    place(&w, rank, block);
    for (int pass; (pass = next_pass(&w, &slot)) != PP_V_PASSES;) {
        const bool forward = pass == PP_V_F0 || pass == PP_V_F1;
        while (weight_pending(&w) && w.clock < slot) PP_TRY(add_weight(&w));
        while (forward && weight_pending(&w) && w.held >= most) PP_TRY(add_weight(&w));
        w.clock = larger(w.clock, slot) + 1;
        w.held += forward;
        PP_TRY(pp_order_add(out, forward ? PP_F : PP_I, w.stage[half_of(pass)], w.next[pass]++));
    }
    while (weight_pending(&w)) PP_TRY(add_weight(&w));
    return PP_OK;
}
