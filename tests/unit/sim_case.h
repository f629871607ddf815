/* SPDX-License-Identifier: Apache-2.0
 *
 * A plan of a registered schedule with durations in ms, for the tests of the simulator.
 */
#ifndef PP_TESTS_SIM_CASE_H
#define PP_TESTS_SIM_CASE_H

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/plan/cost.h"
#include "core/plan/plan.h"
#include "schedules/builder.h"
#include "sim/costs.h"
#include "sim/engine.h"
#include "tests/unit/dice.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { SCARCE = 5 }; /* random plans: one of so many */
#else
enum { SCARCE = 1 };
#endif

struct sim_case {
    struct pp_plan *plan;
    struct pp_cost *cost;
    struct pp_sim_result result;
};

static inline struct pp_plan *build_plan(const struct pp_plan_spec *spec)
{
    struct pp_plan *plan = NULL;
    if (pp_plan_build(spec, &plan) != PP_OK || pp_plan_check(plan) != PP_OK) fail_msg("%s", pp_message());
    return plan;
}

/* Every simulated step is held against what is known without a simulation. */
static inline void check_least(const struct sim_case *c)
{
    int64_t least_ns;
    if (pp_sim_least(c->plan, c->cost, &least_ns) != PP_OK) fail_msg("%s", pp_message());
    if (least_ns > c->result.batch_ns)
        fail_msg("%s: a step takes %lld ns, and not at least %lld", c->plan->schedule, (long long)c->result.batch_ns,
                 (long long)least_ns);
}

static inline void simulate(struct sim_case *c, bool events)
{
    const struct pp_sim_options options = {.trace = true, .events = events};
    pp_sim_result_free(&c->result);
    if (pp_sim_run(c->plan, c->cost, &options, &c->result) != PP_OK) fail_msg("%s", pp_message());
    if (c->cost->jitter == 0) check_least(c);
}

/* As --times does: one replica, no optimizer, nothing is limited. */
static inline struct sim_case times_case(const char *schedule, int p, int v, int m, struct pp_given_times times)
{
    struct pp_plan_spec spec = {
        .schedule = schedule, .ranks = p, .virtual_stages = v, .microbatches = m, .replicas = 1, .training = true};
    struct sim_case c = {.plan = build_plan(&spec)};
    if (pp_cost_from_times(c.plan, &times, &c.cost) != PP_OK) fail_msg("%s", pp_message());
    simulate(&c, false);
    return c;
}

static inline void release_case(struct sim_case *c)
{
    pp_sim_result_free(&c->result);
    pp_cost_free(c->cost);
    pp_plan_free(c->plan);
}

static inline double in_ms(int64_t ns) { return (double)ns / 1e6; }

static inline void expect_near(double got, double expected, double tolerance, const char *what)
{
    if (!(fabs(got - expected) <= tolerance)) fail_msg("%s: %.9g, expected %.9g", what, got, expected);
}

#endif
