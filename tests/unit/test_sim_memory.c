/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory of a large prediction: at most 64 bytes a task at the peak of a process that builds a plan of 8.4 million
 * tasks, checks it and simulates it, less what a process takes that does nothing. Ranks take memory too, each as much
 * as few tasks, however many there are.
 */
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/unit/sim_case.h"

enum { RANKS = 512, MICROBATCHES = 4096, MOST_BYTES_OF_TASK = 64 };
enum { MANY_RANKS = 4096, FEW_MICROBATCHES = 4, MOST_BYTES_OF_RANK = 16384 };

/* Sanitizers keep memory of their own beside each byte. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
static const bool sanitized = true;
#else
static const bool sanitized = false;
#endif

static const struct pp_plan_spec many_tasks = {.schedule = "1f1b",
                                               .ranks = RANKS,
                                               .virtual_stages = 1,
                                               .microbatches = MICROBATCHES,
                                               .replicas = 1,
                                               .training = true};

static int predict(const struct pp_plan_spec *spec)
{
    const struct pp_given_times times = {1, 1, 1, 0.01};
    const struct pp_sim_options options = {0};
    struct pp_plan *plan;
    struct pp_cost *cost;
    struct pp_sim_result result;
    if (pp_plan_build(spec, &plan) != PP_OK || pp_plan_check(plan) != PP_OK) return 1;
    if (pp_cost_from_times(plan, &times, &cost) != PP_OK) return 1;
    return pp_sim_run(plan, cost, &options, &result) != PP_OK;
}

/* Most bytes that a process had in memory that did it, or nothing. */
static double peak_bytes(const struct pp_plan_spec *spec)
{
    struct rusage usage;
    int status;
    pid_t process = fork();
    if (process == 0) _exit(spec ? predict(spec) : 0);
    assert_int_equal(wait4(process, &status, 0, &usage), process);
    assert_int_equal(status, 0);
    return (double)usage.ru_maxrss * 1024;
}

static void test_bytes_of_a_task(void **state)
{
    (void)state;
    const double tasks = 2.0 * RANKS * MICROBATCHES + 2.0 * (RANKS - 1) * MICROBATCHES;
    if (sanitized) skip();
    double bytes = (peak_bytes(&many_tasks) - peak_bytes(NULL)) / tasks;
    print_message("%.1f bytes a task\n", bytes);
    assert_true(bytes <= MOST_BYTES_OF_TASK);
}

/* Sizes of slots are as those of a model: the last stage has the largest ones. */
static void test_bytes_of_a_rank(void **state)
{
    (void)state;
    static int64_t act_bytes[MANY_RANKS][PP_ACT_PARTS];
    struct pp_plan_spec spec = many_tasks;
    spec.ranks = MANY_RANKS;
    spec.microbatches = FEW_MICROBATCHES;
    spec.recv_buffers = 2;
    spec.act_bytes[0] = act_bytes;
    for (int s = 0; s < MANY_RANKS; s++) act_bytes[s][PP_ACT_LAYERS] = s + 1 < MANY_RANKS ? 1 : 2;
    if (sanitized) skip();
    double bytes = (peak_bytes(&spec) - peak_bytes(NULL)) / MANY_RANKS;
    print_message("%.0f bytes a rank\n", bytes);
    assert_true(bytes <= MOST_BYTES_OF_RANK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_bytes_of_a_task), cmocka_unit_test(test_bytes_of_a_rank)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
