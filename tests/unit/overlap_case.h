/* SPDX-License-Identifier: Apache-2.0
 *
 * Plans whose stages are summed and gathered in so many parts, for tests.
 */
#ifndef PP_TESTS_UNIT_OVERLAP_CASE_H
#define PP_TESTS_UNIT_OVERLAP_CASE_H

#include "tests/unit/sim_case.h"

enum { STAGES = 32 };

/* Stages differ in their parts; one has none. */
static const int some_parts[STAGES] = {3, 1, 2, 4, 2, 3, 1, 5, 2, 2, 3, 4, 1, 2, 3, 2,
                                       3, 1, 2, 4, 2, 3, 1, 5, 2, 2, 3, 4, 1, 2, 3, 2};

static inline struct pp_plan_spec spec_of(const char *schedule, int p, int v, int m)
{
    return (struct pp_plan_spec){.schedule = schedule,
                                 .ranks = p,
                                 .virtual_stages = v,
                                 .microbatches = m,
                                 .replicas = 2,
                                 .recv_buffers = 2,
                                 .training = true,
                                 .optimizer = true,
                                 .parts = some_parts};
}

/* The task of a stage's part of a kind, which is the only one of its class; or the last of the kind, if it is whole. */
static inline int32_t part_task(const struct pp_plan *plan, int kind, int stage, int part, int parts)
{
    int32_t found = -1;
    int n = 0;
    for (int32_t id = 0; id < plan->ntasks; id++) {
        const struct pp_task *t = &plan->tasks[id];
        const struct pp_class *cls = &plan->classes[t->cls];
        if (t->stage != stage || t->kind != kind) continue;
        assert_int_equal(cls->kind, kind);
        assert_int_equal(cls->stage, stage);
        if (parts > 1 && (cls->parts != parts || cls->part != part)) continue;
        if (kind == PP_F && parts == 1 && n > 0) break; /* of the forwards, the first */
        found = id;
        n++;
    }
    if (found < 0 || (parts > 1 && n != 1))
        fail_msg("%s of stage %d, part %d: %d", pp_kinds[kind].name, stage, part, n);
    return found;
}

#endif
