/* SPDX-License-Identifier: Apache-2.0
 *
 * Automatic zero bubble (see zb_search.h): the order that takes least time of those that the search finds for the
 * times of the job's stages, if no rank may hold more than N microbatches between F and W (zb-auto:N; P by default).
 * Where all ranks wait for the global norm, that is the least makespan. Else each rank goes on with the next step, and
 * steps follow each other by the span of the rank that has the longest one.
 *
 * The limits of the paper's ZB-1p and ZB-2p are the memory of P and 2P microbatches, too, but in bytes, of which I
 * frees some. Here a microbatch keeps its whole slot until W.
 */
#include <stdlib.h>

#include "schedules/schedule.h"
#include "schedules/zb_search.h"

/* The memory of a microbatch counts 1. Without shape->costs all tasks take the time 1. The caller frees *arrays. */
static pp_status set_problem(const struct pp_schedule_shape *shape, int64_t **arrays, struct pp_stage_costs *costs,
                             struct pp_zb_problem *out)
{
    const int n = shape->ranks;
    PP_TRY(PP_NEW(arrays, 2 * n));
    int64_t *ones = *arrays, *cap = ones + n;
    for (int j = 0; j < n; j++) {
        ones[j] = 1;
        cap[j] = shape->number ? shape->number : n;
    }
    *costs = shape->costs ? *shape->costs : (struct pp_stage_costs){.forward = ones, .input = ones, .weight = ones};
    *out = (struct pp_zb_problem){.ranks = n,
                                  .microbatches = shape->microbatches,
                                  .costs = costs,
                                  .held = ones,
                                  .held_weight = ones,
                                  .cap = cap,
                                  .span = !shape->meets};
    return PP_OK;
}

static pp_status read_kinds(const struct pp_schedule_shape *shape, const uint8_t *kinds, struct pp_order *out)
{
    for (int r = 0; r < shape->ranks; r++) {
        int done[PP_KINDS] = {0};
        for (int i = 0; i < 3 * shape->microbatches; i++, kinds++)
            PP_TRY(pp_order_add(&out[r], (enum pp_kind) * kinds, r, done[*kinds]++));
    }
    return PP_OK;
}

static pp_status search(const struct pp_schedule_shape *shape, struct pp_order *out)
{
    struct pp_stage_costs costs;
    struct pp_zb_problem problem;
    int64_t *arrays = NULL;
    uint8_t *kinds = NULL;
    pp_status status;
    PP_TRY_DONE(set_problem(shape, &arrays, &costs, &problem));
    PP_TRY_DONE(PP_NEW(&kinds, 3 * (int64_t)shape->ranks * shape->microbatches));
    PP_TRY_DONE(pp_zb_search(&problem, kinds));
    status = read_kinds(shape, kinds, out);
done:
    free(arrays);
    free(kinds);
    return status;
}

static pp_status orders(const struct pp_schedule_shape *shape, struct pp_order *out)
{
    if (shape->training) return search(shape, out);
    for (int r = 0; r < shape->ranks; r++)
        for (int m = 0; m < shape->microbatches; m++) PP_TRY(pp_order_add(&out[r], PP_F, r, m));
    return PP_OK;
}

const struct pp_schedule pp_schedule_zb_auto = {
    .name = "zb-auto",
    .summary = "zero bubble, searched by the stages' times; zb-auto:N holds N microbatches (P)",
    .number = PP_NUMBER_HELD,
    .timed = true,
    .orders = orders};
