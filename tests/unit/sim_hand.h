/* SPDX-License-Identifier: Apache-2.0
 *
 * Small plans made by hand, for the tests of the simulator.
 */
#ifndef PP_TESTS_SIM_HAND_H
#define PP_TESTS_SIM_HAND_H

#include "tests/unit/sim_case.h"

enum { MOST = 16 };

/* A plan in the making: lanes are the ranks, then a channel from rank 0 to rank 1, then a reduction lane of rank 0. */
struct hand {
    struct sim_case c;
    int ranks;
};

static inline struct hand begin(int ranks, int cores, int workers)
{
    struct hand h = {.ranks = ranks};
    struct pp_plan *plan;
    struct pp_cost *cost;
    assert_int_equal(PP_NEW(&plan, 1), PP_OK);
    *plan = (struct pp_plan){.ranks = ranks,
                             .virtual_stages = 1,
                             .stages = ranks,
                             .microbatches = 1,
                             .replicas = workers / ranks,
                             .members = 1,
                             .expert_parallel = 1,
                             .shard_group = workers / ranks,
                             .context = 1,
                             .nlanes = ranks + 2};
    assert_int_equal(PP_NEW(&plan->tasks, MOST), PP_OK);
    assert_int_equal(PP_NEW(&plan->classes, MOST), PP_OK);
    assert_int_equal(PP_NEW(&plan->lanes, plan->nlanes), PP_OK);
    assert_int_equal(PP_NEW(&plan->rows, 1), PP_OK);
    assert_int_equal(PP_NEW(&plan->stage_rank, ranks), PP_OK);
    for (int r = 0; r < ranks; r++) {
        plan->lanes[r] = (struct pp_lane){PP_LANE_COMPUTE, r, r, -1};
        plan->stage_rank[r] = r;
    }
    plan->lanes[ranks] = (struct pp_lane){PP_LANE_CHANNEL, 0, ranks > 1, PP_XFER_F};
    plan->lanes[ranks + 1] = (struct pp_lane){PP_LANE_REDUCE, 0, 0, -1};
    assert_int_equal(PP_NEW(&cost, 1), PP_OK);
    assert_int_equal(PP_NEW(&cost->classes, MOST), PP_OK);
    cost->cores = cores;
    cost->workers = workers;
    h.c.plan = plan;
    h.c.cost = cost;
    return h;
}

static inline int add(struct hand *h, int kind, int lane, int dep, int64_t ns, int64_t loaded_ns)
{
    struct pp_plan *plan = h->c.plan;
    int id = (int)plan->ntasks++;
    assert_true(id < MOST);
    plan->nclasses = h->c.cost->nclasses = id + 1;
    plan->classes[id] = (struct pp_class){kind, lane < h->ranks ? lane : 0, 1};
    h->c.cost->classes[id] = (struct pp_class_cost){.ns = ns, .loaded_ns = loaded_ns, .bytes = ns};
    plan->tasks[id] = (struct pp_task){.kind = (uint8_t)kind,
                                       .count = 1,
                                       .stage = lane < h->ranks ? lane : 0,
                                       .lane = lane,
                                       .cls = id,
                                       .dep = {dep, -1, -1},
                                       .act = -1,
                                       .ckpt = -1,
                                       .in = -1,
                                       .out = -1};
    return id;
}

/* bytes: at 1 ns each. */
static inline int send(struct hand *h, int dep, int64_t bytes)
{
    h->c.cost->link.ns_per_byte = 1;
    return add(h, PP_XFER_F, h->ranks, dep, bytes, bytes);
}

/* Every step begins when all of the last is over, so that the reported step shows the plan alone. */
static inline void run(struct hand *h, bool events)
{
    struct pp_plan *plan = h->c.plan;
    assert_int_equal(PP_NEW(&plan->wraps, MOST * MOST), PP_OK);
    for (int from = 0; from < plan->ntasks; from++)
        for (int to = 0; to < plan->ntasks; to++) plan->wraps[plan->nwraps++] = (struct pp_wrap){from, to};
    simulate(&h->c, events);
}

static inline int64_t end_of(const struct hand *h, int task)
{
    for (int64_t i = 0; i < h->c.result.trace.nevents; i++) {
        const struct pp_event *e = &h->c.result.trace.events[i];
        if (e->task == task && e->side != PP_SIDE_SEND) return e->end_ns;
    }
    fail_msg("task %d has no event", task);
    return -1;
}

static inline void finish(struct hand *h) { release_case(&h->c); }

#endif
