/* SPDX-License-Identifier: Apache-2.0
 *
 * Activation pools: of all ways to cut the sizes of a rank into pools, the plan has the one with the fewest bytes; and
 * a rank of stages that need as much as each other has no more slots than it holds at once.
 */
#include "config_case.h"
#include "core/job/job.h"
#include "kernels/model.h"
#include "plan_case.h"
#include "schedules/schedule.h"

enum { MOST_STAGES = 12, SIZES = 3 };
static const int64_t sizes[SIZES] = {1000, 700, 40};

/* The most slots that a rank's stages of some sizes hold at once, counted in the finished plan. */
static int held_at_once(const struct pp_plan *plan, int rank, const int64_t *act_bytes, int64_t from, int64_t to)
{
    int held = 0, most = 0;
    for (int64_t t = 0; t < plan->ntasks; t++) {
        const struct pp_task *task = &plan->tasks[t];
        if (task->lane != rank || task->act < 0) continue;
        if (act_bytes[task->stage] > from || act_bytes[task->stage] < to) continue;
        held += (task->flags & PP_TASK_TAKE_ACT) != 0;
        if (held > most) most = held;
        held -= (task->flags & PP_TASK_FREE_ACT) != 0;
    }
    return most;
}

/* cuts: bit i: sizes i and i + 1 are in different pools. */
static int64_t bytes_with(const struct pp_plan *plan, int rank, const int64_t *act_bytes, unsigned cuts)
{
    int64_t bytes = 0;
    for (int first = 0, last; first < SIZES; first = last + 1) {
        last = first;
        while (last < SIZES - 1 && !(cuts >> last & 1)) last++;
        int64_t largest = 0;
        for (int s = 0; s < plan->stages; s++)
            if (plan->stage_rank[s] == rank && act_bytes[s] <= sizes[first] && act_bytes[s] >= sizes[last] &&
                act_bytes[s] > largest)
                largest = act_bytes[s];
        bytes += largest * held_at_once(plan, rank, act_bytes, sizes[first], sizes[last]);
    }
    return bytes;
}

static int64_t bytes_of(const struct pp_plan *plan, int rank, const int64_t *act_bytes)
{
    int64_t bytes = 0;
    for (int p = 0; p < plan->npools; p++) {
        const struct pp_pool *pool = &plan->pools[p];
        int64_t largest = 0;
        if (pool->kind != PP_POOL_ACT || pool->rank != rank) continue;
        for (int s = 0; s < plan->stages; s++)
            if (plan->stage_rank[s] == rank && plan->act_pool[s] == pool->key && act_bytes[s] > largest)
                largest = act_bytes[s];
        bytes += largest * pool->slots;
    }
    return bytes;
}

static void check_plan(const struct pp_plan_spec *spec)
{
    struct pp_plan *plan = build(spec);
    const int64_t *act_bytes = spec->act_bytes[plan->split_backward];
    assert_int_equal(pp_plan_check(plan), PP_OK);
    for (int r = 0; r < plan->ranks; r++) {
        const int64_t bytes = bytes_of(plan, r, act_bytes);
        int64_t least = INT64_MAX;
        for (unsigned cuts = 0; cuts < 1u << (SIZES - 1); cuts++) {
            const int64_t other = bytes_with(plan, r, act_bytes, cuts);
            if (other < least) least = other;
        }
        if (bytes != least)
            fail_msg("%s P%d V%d M%d, rank %d: %lld bytes, and %lld would do", spec->schedule, spec->ranks,
                     spec->virtual_stages, spec->microbatches, r, (long long)bytes, (long long)least);
    }
    pp_plan_free(plan);
}

/* Two tables: for plans without W tasks, and with them. */
static void test_fewest_bytes(void **state)
{
    static const struct {
        const char *name;
        int virtual_stages;
    } schedules[] = {{"gpipe", 1}, {"interleaved", 2}, {"interleaved", 3}, {"interleaved-zb", 3},
                     {"bfs", 3},   {"zbv", 2},         {"v-half", 2},      {"v-min", 2}};
    static const int checkpoints[] = {PP_CHECKPOINT_NEVER, PP_CHECKPOINT_ALWAYS, PP_CHECKPOINT_EXCEPT_LAST};
    enum { SCHEDULES = sizeof schedules / sizeof *schedules, TURNS = 480 };
    uint32_t random = 1;
    (void)state;
    for (int turn = 0; turn < TURNS; turn++) {
        int64_t act_bytes[2][MOST_STAGES];
        const int p = 1 + turn / SCHEDULES % 4, v = schedules[turn % SCHEDULES].virtual_stages;
        struct pp_plan_spec spec = spec_of(schedules[turn % SCHEDULES].name, p, v, p * (1 + turn % 4));
        for (int s = 0; s < 2 * p * v; s++) {
            random = random * 1664525 + 1013904223;
            act_bytes[s % 2][s / 2] = sizes[(random >> 16) % SIZES];
        }
        spec.act_bytes[0] = act_bytes[0];
        spec.act_bytes[1] = act_bytes[1];
        spec.checkpoint = checkpoints[turn / 3 % 3];
        spec.training = turn % 5 > 0;
        check_plan(&spec);
    }
}

/* In a whole backward the first stage needs as much as those behind it, though it has the embedding. */
static void test_job(void **state)
{
    struct pp_config config;
    struct pp_point *points;
    struct pp_job *job;
    int n;
    (void)state;
    assert_int_equal(parse(PP_PPSIM,
                           "--preset small --layers 8 --schedule interleaved --stages 4 --virtual 2 --rows 16 "
                           "--chunks 16 --no-eval",
                           &config),
                     PP_OK);
    assert_int_equal(pp_points(&config, &pp_schedules, &points, &n), PP_OK);
    assert_int_equal(pp_job_create(&config, points, &pp_schedules, &pp_model_ops, false, NULL, &job), PP_OK);
    for (int r = 0; r < 3; r++) assert_int_equal(job->layout->arena_bytes[r], job->layout->live_peak_bytes[r]);
    pp_job_free(job);
    free(points);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_fewest_bytes), cmocka_unit_test(test_job)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
