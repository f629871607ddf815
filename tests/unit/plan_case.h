/* SPDX-License-Identifier: Apache-2.0
 *
 * Plans of whole training steps, for the tests of plans and of the simulator.
 */
#ifndef PP_TESTS_PLAN_CASE_H
#define PP_TESTS_PLAN_CASE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/plan/plan.h"
#include "schedules/builder.h"

/* A step of one replica with norm and optimizer. */
static inline struct pp_plan_spec spec_of(const char *schedule, int p, int v, int m)
{
    return (struct pp_plan_spec){.schedule = schedule,
                                 .ranks = p,
                                 .virtual_stages = v,
                                 .microbatches = m,
                                 .replicas = 1,
                                 .recv_buffers = 2,
                                 .training = true,
                                 .optimizer = true,
                                 .clip = true};
}

/* Not checked. */
static inline struct pp_plan *build(const struct pp_plan_spec *spec)
{
    struct pp_plan *plan = NULL;
    if (pp_plan_build(spec, &plan) != PP_OK)
        fail_msg("%s P%d V%d M%d: %s", spec->schedule, spec->ranks, spec->virtual_stages, spec->microbatches,
                 pp_message());
    return plan;
}

#endif
