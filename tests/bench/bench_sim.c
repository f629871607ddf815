/* SPDX-License-Identifier: Apache-2.0
 *
 * Speed of the simulator on one large plan: 1F1B, 256 ranks, 2048 microbatches, a forward of 1 ms and a backward of 2
 * ms, hops of 10 us; 2.09 million tasks, a transfer counted once. Prints the best of several rounds for each part.
 * */
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>

#include "core/clock.h"
#include "schedules/builder.h"
#include "sim/costs.h"
#include "sim/engine.h"

enum { RANKS = 256, MICROBATCHES = 2048, ROUNDS = 5, PARTS = 4 };

/* Times of one round: build, check, simulate, all; figures of the last. */
static pp_status round_of(int64_t ns[PARTS], int64_t *tasks, struct pp_sim_result *result)
{
    const struct pp_plan_spec spec = {.schedule = "1f1b",
                                      .ranks = RANKS,
                                      .virtual_stages = 1,
                                      .microbatches = MICROBATCHES,
                                      .replicas = 1,
                                      .training = true};
    const struct pp_given_times times = {1, 1, 1, 0.01};
    const struct pp_sim_options options = {0};
    struct pp_plan *plan;
    struct pp_cost *cost;
    int64_t begin = pp_now_ns();
    PP_TRY(pp_plan_build(&spec, &plan));
    int64_t built = pp_now_ns();
    PP_TRY(pp_plan_check(plan));
    int64_t checked = pp_now_ns();
    PP_TRY(pp_cost_from_times(plan, &times, &cost));
    PP_TRY(pp_sim_run(plan, cost, &options, result));
    int64_t end = pp_now_ns();
    const int64_t round[PARTS] = {built - begin, checked - built, end - checked, end - begin};
    for (int i = 0; i < PARTS; i++)
        if (ns[i] == 0 || round[i] < ns[i]) ns[i] = round[i];
    *tasks = plan->ntasks;
    pp_cost_free(cost);
    pp_plan_free(plan);
    return PP_OK;
}

int main(void)
{
    static const char *const names[PARTS] = {"build", "check", "simulate", "all"};
    int64_t ns[PARTS] = {0}, tasks = 0, makespan = 0;
    int steps = 0;
    struct pp_sim_result result;
    struct rusage usage;
    for (int i = 0; i < ROUNDS; i++) {
        if (round_of(ns, &tasks, &result) != PP_OK) {
            fprintf(stderr, "bench_sim: %s\n", pp_message());
            return 1;
        }
        makespan = result.metrics.makespan_ns;
        steps = result.steps;
        pp_sim_result_free(&result);
    }
    printf("1f1b, %d ranks, %d microbatches: %lld tasks, makespan %.3f ms, %d steps simulated\n", RANKS, MICROBATCHES,
           (long long)tasks, (double)makespan / 1e6, steps);
    for (int i = 0; i < PARTS; i++)
        printf("%-9s %8.1f ms  %6.2f M tasks/s\n", names[i], (double)ns[i] / 1e6, (double)tasks * 1e3 / (double)ns[i]);
    getrusage(RUSAGE_SELF, &usage);
    printf("peak memory %.0f MiB, %.0f bytes a task\n", (double)usage.ru_maxrss / 1024,
           (double)usage.ru_maxrss * 1024 / (double)tasks);
    return 0;
}
