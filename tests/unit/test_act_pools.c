/* SPDX-License-Identifier: Apache-2.0
 *
 * Activation pools: of all ways to cut the sizes of a rank into pools, the plan has the one with the fewest bytes; and
 * of a model's stages no rank has more than it uses at once.
 */
#include "config_case.h"
#include "core/job/job.h"
#include "kernels/model.h"
#include "plan_case.h"
#include "schedules/schedule.h"

enum { MOST_STAGES = 12, SIZES = 3 };
static const int64_t sizes[SIZES] = {1000, 700, 40};

/* The sizes of all parts of the slots of all stages. */
typedef int64_t slot_parts[PP_ACT_PARTS];

/* Parts that may share pools: from number `first` to `last`. */
struct sharing {
    int first, last;
};
static const struct sharing sharings[] = {{PP_ACT_LAYERS, PP_ACT_LAYERS}, {PP_ACT_MORE, PP_ACT_ENDS}};

/* The most slots of some sizes that a rank holds at once, counted in the finished plan. */
static int held_at_once(const struct pp_plan *plan, int rank, struct sharing parts, const slot_parts *bytes,
                        int64_t from, int64_t to)
{
    int held = 0, most = 0;
    for (int64_t t = 0; t < plan->ntasks; t++) {
        const struct pp_task *task = &plan->tasks[t];
        int slots = 0;
        for (int part = parts.first; part <= parts.last && task->lane == rank && task->act >= 0; part++)
            slots +=
                plan->acts[task->act][part] >= 0 && bytes[task->stage][part] <= from && bytes[task->stage][part] >= to;
        if (task->flags & PP_TASK_TAKE_ACT) held += slots;
        if (held > most) most = held;
        if (task->flags & PP_TASK_FREE_ACT) held -= slots;
    }
    return most;
}

/* cuts: bit i: sizes i and i + 1 are in different pools. */
static int64_t bytes_with(const struct pp_plan *plan, int rank, struct sharing parts, const slot_parts *bytes,
                          unsigned cuts)
{
    int64_t sum = 0;
    for (int first = 0, last; first < SIZES; first = last + 1) {
        last = first;
        while (last < SIZES - 1 && !(cuts >> last & 1)) last++;
        int64_t largest = 0;
        for (int i = 0; i < plan->stages * PP_ACT_PARTS; i++) {
            const int s = i / PP_ACT_PARTS, part = i % PP_ACT_PARTS;
            if (plan->stage_rank[s] != rank || part < parts.first || part > parts.last) continue;
            const int64_t size = bytes[s][part];
            if (size <= sizes[first] && size >= sizes[last] && size > largest) largest = size;
        }
        sum += largest * held_at_once(plan, rank, parts, bytes, sizes[first], sizes[last]);
    }
    return sum;
}

/* Of the plan's pools for these parts. */
static int64_t bytes_of(const struct pp_plan *plan, int rank, struct sharing parts, const slot_parts *bytes)
{
    int64_t sum = 0;
    for (int p = 0; p < plan->npools; p++) {
        const struct pp_pool *pool = &plan->pools[p];
        int64_t largest = 0;
        if (pool->kind != PP_POOL_ACT || pool->rank != rank) continue;
        for (int s = 0; s < plan->stages; s++)
            for (int part = parts.first; part <= parts.last; part++)
                if (plan->stage_rank[s] == rank && plan->act_pool[s][part] == pool->key && bytes[s][part] > largest)
                    largest = bytes[s][part];
        sum += largest * pool->slots;
    }
    return sum;
}

static void check_rank(const struct pp_plan *plan, int rank, struct sharing parts, const slot_parts *bytes)
{
    const int64_t taken = bytes_of(plan, rank, parts, bytes);
    int64_t least = INT64_MAX;
    for (unsigned cuts = 0; cuts < 1u << (SIZES - 1); cuts++) {
        const int64_t other = bytes_with(plan, rank, parts, bytes, cuts);
        if (other < least) least = other;
    }
    if (taken != least)
        fail_msg("%s P%d V%d M%d, rank %d, part %d: %lld bytes, and %lld would do", plan->schedule, plan->ranks,
                 plan->virtual_stages, plan->microbatches, rank, parts.first, (long long)taken, (long long)least);
}

/* Tasks have slots of those parts that have bytes, from the pools of their stage. */
static void check_slots(const struct pp_plan *plan, const slot_parts *bytes)
{
    for (int64_t i = 0; i < plan->ntasks; i++) {
        const struct pp_task *t = &plan->tasks[i];
        assert_int_equal(t->act >= 0, t->kind <= PP_W || t->kind == PP_R);
        for (int part = 0; part < PP_ACT_PARTS && t->act >= 0; part++) {
            const int32_t *act = plan->acts[t->act];
            int p = 0;
            assert_int_equal(act[part] >= 0, bytes[t->stage][part] > 0);
            if (act[part] < 0) continue;
            while (act[part] >= plan->pools[p].first + plan->pools[p].slots) p++;
            assert_int_equal(plan->pools[p].kind, PP_POOL_ACT);
            assert_int_equal(plan->pools[p].rank, plan->stage_rank[t->stage]);
            assert_int_equal(plan->pools[p].key, plan->act_pool[t->stage][part]);
            for (int other = 0; other < part; other++) assert_true(act[part] != act[other]);
        }
    }
}

static void check_plan(const struct pp_plan_spec *spec)
{
    struct pp_plan *plan = build(spec);
    const slot_parts *bytes = spec->act_bytes[plan->split_backward];
    assert_int_equal(pp_plan_check(plan), PP_OK);
    check_slots(plan, bytes);
    for (int r = 0; r < plan->ranks; r++)
        for (int i = 0; i < 2; i++) check_rank(plan, r, sharings[i], bytes);
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
        slot_parts act_bytes[2][MOST_STAGES];
        const int p = 1 + turn / SCHEDULES % 4, v = schedules[turn % SCHEDULES].virtual_stages;
        struct pp_plan_spec spec = spec_of(schedules[turn % SCHEDULES].name, p, v, p * (1 + turn % 4));
        for (int s = 0; s < 2 * p * v; s++)
            for (int part = 0; part < PP_ACT_PARTS; part++) {
                random = random * 1664525 + 1013904223;
                const int size = (int)((random >> 16) % (part == PP_ACT_LAYERS ? SIZES : SIZES + 1));
                act_bytes[s % 2][s / 2][part] = size < SIZES ? sizes[size] : 0;
            }
        spec.act_bytes[0] = act_bytes[0];
        spec.act_bytes[1] = act_bytes[1];
        spec.checkpoint = checkpoints[turn / 3 % 3];
        spec.training = turn % 5 > 0;
        check_plan(&spec);
    }
}

/* Of each rank, or with a percentage of the fullest one: has it no more than it uses at once? */
static void check_arenas(const char *words, const struct pp_job *job, int inputs, double percent)
{
    const struct pp_layout *layout = job->layout;
    const int64_t allowed = inputs * pp_layout_align(pp_hidden_bytes(&job->model->shape, 1, job->config->tokens));
    int64_t most = 0, peak = 0;
    for (int r = 0; r < layout->ranks; r++) {
        const int64_t over = layout->arena_bytes[r] - layout->live_peak_bytes[r];
        if (percent == 0 && over > allowed) fail_msg("%s: rank %d: %lld bytes over", words, r, (long long)over);
        if (layout->arena_bytes[r] > most) most = layout->arena_bytes[r];
        if (layout->live_peak_bytes[r] > peak) peak = layout->live_peak_bytes[r];
    }
    const double over = 100 * ((double)most / (double)peak - 1);
    if (percent > 0 && !(over <= percent)) fail_msg("%s: %.2f %% over", words, over);
}

/* No more than what a rank uses at once, where one stage of a rank has whatever its others have: the embedding, the
 * decoder, or some layers, and more. What may be left over: `inputs` of a stage, where one stage has the embedding, and
 * another the decoder; and `percent`, where one stage has fewer layers than the others, and the logits: these and the
 * layers that it lacks are not there at once, but have places of their own (docs/MEMORY.md, "Activation slots"). */
static void test_jobs(void **state)
{
#define SMALL "--preset small --rows 16 --chunks 16 --schedule "
#define LLAMA "--preset llama-3-8b --machine h100 --precision bf16 --rows 32 --chunks 32 --stages 4 --schedule "
    static const struct {
        const char *words;
        int inputs;
        double percent;
    } jobs[] = {
        {SMALL "interleaved --layers 8 --virtual 2 --stages 4", 0, 0},
        {SMALL "interleaved --layers 16 --virtual 4 --stages 4", 0, 0},
        {SMALL "interleaved-zb --layers 16 --virtual 2 --stages 4", 0, 0},
        {SMALL "interleaved-zb --layers 16 --virtual 2 --stages 2 --precision bf16", 0, 0},
        {SMALL "interleaved --layers 17 --virtual 2 --stages 4 --split 3,2,2,2,2,2,2,2", 0, 0},
        {SMALL "interleaved-zb --layers 14 --virtual 2 --stages 4 --split 2,2,2,2,1,1,2,2", 0, 0},
        {SMALL "v-half --layers 8 --stages 4", 1, 0},
        {SMALL "zbv --layers 16 --stages 4", 1, 0},
        {LLAMA "interleaved --virtual 2 --split 4,4,4,4,4,4,4,4", 0, 0},
        {LLAMA "interleaved --virtual 2 --split 5,4,4,4,4,4,4,3", 0, 0.1},
        {LLAMA "zbv --split 5,4,4,4,4,4,4,3", 1, 3},
        {LLAMA "v-half --split 5,4,4,4,4,4,4,3", 1, 3},
        {LLAMA "interleaved-zb --virtual 2 --split 5,4,4,4,4,4,4,3", 0, 5},
        {LLAMA "interleaved-zb --virtual 2 --split parameters", 0, 12},
    };
    (void)state;
    for (size_t i = 0; i < sizeof jobs / sizeof *jobs; i++) {
        char words[200];
        struct pp_config config;
        struct pp_point *points;
        struct pp_job *job;
        int n;
        snprintf(words, sizeof words, "%s --no-eval", jobs[i].words);
        assert_int_equal(parse(PP_PPSIM, words, &config), PP_OK);
        assert_int_equal(pp_points(&config, &pp_schedules, &points, &n), PP_OK);
        if (pp_job_create(&config, points, &pp_schedules, &pp_model_ops, false, NULL, &job) != PP_OK)
            fail_msg("%s: %s", words, pp_message());
        check_arenas(words, job, jobs[i].inputs, jobs[i].percent);
        pp_job_free(job);
        free(points);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_fewest_bytes), cmocka_unit_test(test_jobs)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
