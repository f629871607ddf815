/* SPDX-License-Identifier: Apache-2.0
 *
 * Interleaved 1F1B (Narayanan et al. 2021, Megatron-LM; order of torch.distributed.pipelining ScheduleInterleaved1F1B):
 * V stages per rank, stage v*P + r on rank r. Microbatches go in rounds of K = M / max(1, M div P); within a round a
 * rank runs K microbatches of its first stage, then K of its second, and so on; backwards in the opposite order of
 * stages.
 *
 *   P = 2, V = 2, M = 4 (stage, kind, microbatch):
 *   rank 0  0F0 0F1 2F0 2F1 0F2 2B0 0F3 2B1 2F2 0B0 2F3 0B1 2B2 2B3 0B2 0B3
 *   rank 1  1F0 1F1 3F0 3B0 3F1 3B1 1F2 1B0 1F3 1B1 3F2 3B2 3F3 3B3 1B2 1B3
 */
#include "schedules/interleaved.h"

#include <stdio.h>

static int rounds(int ranks, int microbatches) { return microbatches < ranks ? 1 : microbatches / ranks; }

static bool divides(int ranks, int microbatches) { return microbatches % rounds(ranks, microbatches) == 0; }

pp_status pp_interleaved_check(const struct pp_schedule_shape *shape)
{
    int p = shape->ranks, m = shape->microbatches;
    if (divides(p, m)) return PP_OK;
    int below = m - 1, above = m + 1;
    while (!divides(p, below)) below--;
    while (!divides(p, above)) above++;
    return pp_fail(PP_USAGE,
                   "interleaved schedules on %d ranks: %d microbatches are no multiple of their %d rounds; %d and %d "
                   "microbatches work",
                   p, m, rounds(p, m), below, above);
}

/* The k-th computation of a rank is on its v-th stage, forwards; backwards count the stages from the last. */
struct walk {
    int ranks, virtual_stages, per_round, rank;
};

static int stage_of(const struct walk *walk, int k, bool backward)
{
    int v = k / walk->per_round % walk->virtual_stages;
    if (backward) v = walk->virtual_stages - 1 - v;
    return v * walk->ranks + walk->rank;
}

static pp_status add(struct pp_order *out, const struct walk *walk, enum pp_kind kind, int k)
{
    int period = walk->per_round * walk->virtual_stages;
    int microbatch = k / period * walk->per_round + k % walk->per_round;
    return pp_order_add(out, kind, stage_of(walk, k, kind != PP_F), microbatch);
}

pp_status pp_interleaved_order(const struct pp_schedule_shape *shape, int rank, bool split, struct pp_order *out)
{
    int p = shape->ranks, v = shape->virtual_stages, m = shape->microbatches;
    struct walk walk = {.ranks = p, .virtual_stages = v, .per_round = m / rounds(p, m), .rank = rank};
    int total = m * v, ahead = (v - 1) * walk.per_round + (split ? 1 : 2) * (p - 1 - rank), weights = 0;
    if (ahead > total) ahead = total;
    for (int f = 0; f < ahead; f++) PP_TRY(add(out, &walk, PP_F, f));
    for (int b = 0; b < total; b++) {
        if (ahead + b < total) PP_TRY(add(out, &walk, PP_F, ahead + b));
        PP_TRY(add(out, &walk, split ? PP_I : PP_B, b));
        if (split && b >= rank) PP_TRY(add(out, &walk, PP_W, weights++));
    }
    while (split && weights < total) PP_TRY(add(out, &walk, PP_W, weights++));
    return PP_OK;
}

static pp_status order(const struct pp_schedule_shape *shape, int rank, struct pp_order *out)
{
    return pp_interleaved_order(shape, rank, false, out);
}

const struct pp_schedule pp_schedule_interleaved = {
    .name = "interleaved",
    .summary = "1F1B over V stages per rank; bubble 1/V of 1F1B's, more transfers",
    .virtual_stages = true,
    .check = pp_interleaved_check,
    .order = order};
