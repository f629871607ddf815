/* SPDX-License-Identifier: Apache-2.0
 *
 * 1F1B with up to twice as many forwards ahead (the early warm-up of DAPPLE, Fan et al. 2021), so that the hops to the
 * next rank and back are over when a gradient is needed. Rank r runs up to e more forwards ahead than the P-1-r of
 * 1F1B, but at most 2 (P-1-r). Rank 0 then holds P + e microbatches: this is N of 1f1b-eager:N, from P (which is 1F1B)
 * to 2P-1. With 2P-1, all hops together add 2 (P-1) hop times to the step, if two hops take no longer than F + I + W. A
 * few more than P are mostly enough.
 *
 *   P = 3, M = 4, N = 5:
 *   rank 0  F0 F1 F2 F3       B0    B1    B2    B3
 *   rank 1     F0 F1 F2    B0 F3 B1    B2    B3
 *   rank 2        F0 B0 F1 B1 F2 B2 F3 B3
 */
#include "schedules/one_f_one_b.h"

static pp_status check(const struct pp_schedule_shape *shape)
{
    if (shape->number == 0 || shape->number >= shape->ranks) return PP_OK;
    return pp_fail(PP_USAGE, "schedule 1f1b-eager on %d ranks holds at least %d microbatches: 1f1b-eager:%d is too few",
                   shape->ranks, shape->ranks, shape->number);
}

static pp_status order(const struct pp_schedule_shape *shape, int rank, struct pp_order *out)
{
    const int after = shape->ranks - 1 - rank, more = shape->number ? shape->number - shape->ranks : after;
    return pp_order_one_f_one_b(shape, rank, after + (more < after ? more : after), out);
}

const struct pp_schedule pp_schedule_one_f_one_b_eager = {
    .name = "1f1b-eager",
    .summary = "1F1B with more forwards ahead, which hide hops; 1f1b-eager:N holds N microbatches (2P-1)",
    .number = PP_NUMBER_HELD,
    .check = check,
    .order = order};
