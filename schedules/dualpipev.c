/* SPDX-License-Identifier: Apache-2.0
 *
 * DualPipeV (DeepSeek-AI 2025, github.com/deepseek-ai/DualPipe; order of torch.distributed.pipelining
 * ScheduleDualPipeV): the V of zbv, with backwards that are split only where that fills a gap. DualPipeV has pairs of F
 * of one stage and B of the other, which DeepSeek's and PyTorch's programs can overlap. Here they run one after the
 * other, F first, as by default in PyTorch. If a stage has some split backwards, all of its backwards are split here
 * (orders.h): so also in these pairs the gradient of the input leaves before the gradient of the weights is computed.
 * Every rank holds at most 2P + 1 pairs of stage and microbatch.
 */
#include "schedules/v_shape.h"

static pp_status check(const struct pp_schedule_shape *shape)
{
    if (shape->training && shape->microbatches < shape->stages)
        return pp_fail(PP_USAGE, "schedule dualpipev with %d rank%s needs at least %d microbatches, not %d",
                       shape->ranks, pp_plural(shape->ranks), shape->stages, shape->microbatches);
    return PP_OK;
}

enum half { A, B }; /* the rank's stage on the way down the V, and its stage on the way back */

struct walk {
    const struct pp_schedule_shape *shape;
    struct pp_order *out;
    int stage[2];
    int forwards[2], backwards[2]; /* numbers of F and of B or I so far */
    int64_t pending;               /* index in `out`: the oldest I without a W is not before it */
};

/* An evaluation may have fewer microbatches than the schedule needs: forwards of others are left out. */
static pp_status forward(struct walk *w, enum half half)
{
    const int microbatch = w->forwards[half]++;
    if (microbatch >= w->shape->microbatches) return PP_OK;
    return pp_order_add(w->out, PP_F, w->stage[half], microbatch);
}

static pp_status backward(struct walk *w, enum half half, enum pp_kind kind)
{
    if (!w->shape->training) return PP_OK;
    return pp_order_add(w->out, kind, w->stage[half], w->backwards[half]++);
}

static pp_status pair(struct walk *w, enum half forwards, enum half backwards)
{
    PP_TRY(forward(w, forwards));
    return backward(w, backwards, PP_B);
}

/* Appends the W of the oldest I that has none yet. */
static pp_status weight(struct walk *w)
{
    if (!w->shape->training) return PP_OK;
    while (w->out->ops[w->pending].kind != PP_I) w->pending++;
    const struct pp_op op = w->out->ops[w->pending++];
    return pp_order_add(w->out, PP_W, op.stage, op.microbatch);
}

static pp_status fill(struct walk *w, int p, int rank)
{
    for (int i = 0; i < 2 * (p - rank - 1); i++) PP_TRY(forward(w, A));
    for (int i = 0; i < rank + 1; i++) {
        PP_TRY(forward(w, A));
        PP_TRY(forward(w, B));
    }
    for (int i = 0; i < p - rank - 1; i++) {
        PP_TRY(backward(w, B, PP_I));
        PP_TRY(weight(w));
        PP_TRY(forward(w, B));
    }
    return PP_OK;
}

static pp_status drain(struct walk *w, int p, int rank)
{
    for (int i = 0; i < p - rank - 1; i++) {
        PP_TRY(backward(w, B, PP_B));
        PP_TRY(pair(w, B, A));
    }
    for (int i = 0; i < 2 * (rank + 1); i++) PP_TRY(backward(w, i % 2 ? A : B, i < rank + 1 ? PP_B : PP_I));
    for (int i = 0; i < p - rank - 1; i++) {
        PP_TRY(weight(w));
        PP_TRY(backward(w, A, PP_I));
    }
    for (int i = 0; i < rank + 1; i++) PP_TRY(weight(w));
    return PP_OK;
}

static pp_status order(const struct pp_schedule_shape *shape, int rank, struct pp_order *out)
{
    struct walk w = {.shape = shape, .out = out, .stage = {rank, shape->stages - 1 - rank}};
    const int most = shape->microbatches > shape->stages ? shape->microbatches : shape->stages;
    PP_TRY(fill(&w, shape->ranks, rank));
    for (int i = 0; i < most - shape->stages + rank + 1; i++) {
        PP_TRY(pair(&w, A, B));
        PP_TRY(pair(&w, B, A));
    }
    return drain(&w, shape->ranks, rank);
}

const struct pp_schedule pp_schedule_dualpipev = {.name = "dualpipev",
                                                  .summary = "a V of two stages per rank, forwards beside backwards",
                                                  .virtual_stages = PP_TWO_STAGES,
                                                  .check = check,
                                                  .order = order,
                                                  .stage_rank = pp_v_stage_rank};
