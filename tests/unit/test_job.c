/* SPDX-License-Identifier: Apache-2.0
 *
 * Jobs: order of a sweep, refusals with advice, and what a job is made of, for real presets.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/job/job.h"
#include "kernels/model.h"
#include "schedules/schedule.h"

static struct pp_config config;

/* Options as one string, separated by blanks. */
static void configure(const char *options)
{
    static char text[512];
    static char *argv[64];
    int argc = 0;
    argv[argc++] = (char *)"ppsim";
    strncpy(text, options, sizeof text - 1);
    for (char *word = strtok(text, " "); word; word = strtok(NULL, " ")) argv[argc++] = word;
    if (pp_config_parse(PP_PPSIM, argc, argv, &config, NULL) != PP_OK) fail_msg("%s", pp_message());
}

static pp_status create(struct pp_job **job, bool evaluate)
{
    struct pp_point *points = NULL;
    int n;
    pp_status status = pp_points(&config, &pp_schedules, &points, &n);
    if (status == PP_OK) status = pp_job_create(&config, &points[0], &pp_schedules, &pp_model_ops, evaluate, NULL, job);
    free(points);
    return status;
}

static void test_sweep_order(void **state)
{
    (void)state;
    struct pp_point *points;
    int n;
    configure("--schedule gpipe,interleaved,gpipe --stages 1,2,1 --chunks 4,2,4 --checkpoint never,never");
    assert_int_equal(pp_points(&config, &pp_schedules, &points, &n), PP_OK);
    assert_int_equal(n, 8);
    static const struct pp_point expected[8] = {
        {"gpipe", 1, 1, 4},       {"gpipe", 1, 1, 2},       {"gpipe", 2, 1, 4},       {"gpipe", 2, 1, 2},
        {"interleaved", 1, 2, 4}, {"interleaved", 1, 2, 2}, {"interleaved", 2, 2, 4}, {"interleaved", 2, 2, 2}};
    for (int i = 0; i < n; i++) {
        assert_string_equal(points[i].schedule, expected[i].schedule);
        assert_int_equal(points[i].ranks, expected[i].ranks);
        assert_int_equal(points[i].virtual_stages, expected[i].virtual_stages);
        assert_int_equal(points[i].chunks, expected[i].chunks);
        assert_int_equal(points[i].checkpoint, PP_CHECKPOINT_NEVER);
    }
    free(points);
    configure("--schedule 1F1B,gpipe,1f1b,GPipe");
    assert_int_equal(pp_points(&config, &pp_schedules, &points, &n), PP_OK);
    assert_int_equal(n, 2);
    assert_string_equal(points[0].schedule, "1F1B");
    assert_string_equal(points[1].schedule, "gpipe");
    free(points);
    configure("--schedule zb-auto:4,ZB-auto:4,zb-auto,zb-auto:5,zb-auto:04");
    assert_int_equal(pp_points(&config, &pp_schedules, &points, &n), PP_OK);
    assert_int_equal(n, 3);
    assert_string_equal(points[2].schedule, "zb-auto:5");
    free(points);
    configure("--schedule interleaved --tensor 1,2 --stages 1,4 --virtual 3,2");
    assert_int_equal(pp_points(&config, &pp_schedules, &points, &n), PP_OK);
    assert_int_equal(n, 8);
    for (int i = 0; i < n; i++) {
        assert_int_equal(points[i].tensor, i < 4 ? 1 : 2);
        assert_int_equal(points[i].ranks, i / 2 % 2 ? 4 : 1);
        assert_int_equal(points[i].virtual_stages, i % 2 ? 2 : 3);
    }
    free(points);
    configure("--chunks 4,2 --checkpoint always,never");
    assert_int_equal(pp_points(&config, &pp_schedules, &points, &n), PP_OK);
    assert_int_equal(n, 4);
    for (int i = 0; i < n; i++) {
        assert_int_equal(points[i].chunks, i < 2 ? 4 : 2);
        assert_int_equal(points[i].checkpoint, i % 2 ? PP_CHECKPOINT_NEVER : PP_CHECKPOINT_ALWAYS);
    }
    free(points);
}

static pp_status find_any(const char *name, struct pp_schedule_found *out)
{
    *out = (struct pp_schedule_found){name, 0, 2};
    return PP_OK;
}

/* Lists that are full make 2^32 configurations. */
static void test_endless_sweep(void **state)
{
    (void)state;
    static char names[PP_LIST_MAX][16];
    const struct pp_schedules any = {.find = find_any};
    struct pp_ints *const lists[] = {&config.tensor, &config.stages, &config.virtual_stages, &config.chunks};
    struct pp_point *points = NULL;
    int n;
    configure("--checkpoint never,except_last,always,layers");
    for (int i = 0; i < PP_LIST_MAX; i++) {
        snprintf(names[i], sizeof names[i], "s%d", i);
        config.schedule.v[i] = names[i];
        for (int k = 0; k < 4; k++) lists[k]->v[i] = i + 1;
    }
    config.schedule.n = PP_LIST_MAX;
    for (int k = 0; k < 4; k++) lists[k]->n = PP_LIST_MAX;
    assert_int_equal(pp_points(&config, &any, &points, &n), PP_USAGE);
    assert_non_null(strstr(pp_message(), "4294967296"));
}

static void refuse(const char *options, const char *text)
{
    struct pp_job *job = NULL;
    configure(options);
    assert_int_equal(create(&job, true), PP_USAGE);
    assert_null(job);
    if (!strstr(pp_message(), text)) fail_msg("\"%s\" does not contain \"%s\"", pp_message(), text);
}

static void test_refusals(void **state)
{
    (void)state;
    refuse("--stages 3", "3 stages (--stages 3 x --virtual 1) need as many layers, and the model has 2");
    refuse("--chunks 21", "more than the 20 rows");
    refuse("--schedule interleavd", "did you mean \"interleaved\"");
    refuse("--schedule interleaved --layers 8 --stages 4 --rows 9 --chunks 9", "--chunks 1, 2, 3");
    refuse("--schedule gpipe --virtual 2 --layers 4", "--virtual must be 1");
}

static void test_heads_that_cannot_be_shared(void **state)
{
    (void)state;
#define MODEL "--tokens 36 --d-model 24 --heads 12 --d-ff 96 "
    struct pp_job *job;
    refuse(MODEL "--context-parallel 9", "--context-parallel 9 does not divide --heads 12");
    refuse(MODEL "--context-parallel 4 --tensor 2", "--context-parallel 4 x --tensor 2 does not divide --heads 12");
    refuse(MODEL "--context-parallel 6 --kv-heads 4", "--context-parallel 6 does not divide --kv-heads 4");
    refuse(MODEL "--context-parallel 3 --tensor 2 --kv-heads 3", "--tensor 2 does not divide --kv-heads 3");
    refuse(MODEL "--context-parallel 2 --tensor 2 --kv-heads 6",
           "--context-parallel 2 x --tensor 2 does not divide --kv-heads 6");
    configure(MODEL "--context-parallel 6 --tensor 2"); /* a head each */
    if (create(&job, true) != PP_OK) fail_msg("%s", pp_message());
    pp_job_free(job);
}

/* Numbers that each are possible, and together more than sizes and counts can hold. */
static void test_too_large(void **state)
{
    (void)state;
    refuse("--stages 40000 --virtual 60000 --chunks 1", "2400000000 stages");
    refuse("--stages 65536 --layers 65536 --replicas 65536", "4294967296 workers");
    refuse("--tokens 64 --heads 64 --d-model 64 --stages 1024 --layers 1024 --replicas 65536 --context-parallel 64",
           "--context-parallel 64 are 4294967296 workers");
    refuse("--layers 65536 --d-model 4194304 --d-ff 4194304 --heads 1 --stages 1 --chunks 1", "parameters");
    refuse("--rows 64 --chunks 1 --tokens 16777216 --heads 200", "too large to be counted");
    refuse("--rows 8 --chunks 1 --tokens 16777216 --heads 200", "1 EiB");
    refuse("--rows 4 --chunks 4 --tokens 16777216 --heads 1 --replicas 65536", "1 EiB");
    refuse("--rows 16 --chunks 16 --tokens 16777216 --heads 8 --d-ff 256 --tensor 8 --replicas 8", "1 EiB");
}

static void test_receive_buffers(void **state)
{
    (void)state;
    static const struct {
        const char *options;
        int train, eval;
    } cases[] = {{"--rows 8 --chunks 8", 2, 2},
                 {"--rows 8 --chunks 8 --recv-buffers 3", 3, 3},
                 {"--rows 8 --chunks 8 --eval-rows 5 --recv-buffers 0", 8, 5}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct pp_job *job;
        configure(cases[i].options);
        if (create(&job, true) != PP_OK) fail_msg("%s: %s", cases[i].options, pp_message());
        assert_int_equal(job->train->recv_buffers, cases[i].train);
        assert_int_equal(job->eval->recv_buffers, cases[i].eval);
        int64_t slots = 0;
        for (int p = 0; p < job->train->npools; p++)
            if (job->train->pools[p].kind == PP_POOL_RECV) slots += job->train->pools[p].slots;
        assert_int_equal(slots, 2 * cases[i].train); /* forward and backward */
        pp_job_free(job);
    }
}

static void test_presets(void **state)
{
    (void)state;
    static const struct {
        const char *options;
        int64_t parameters;
        int microbatches;
    } cases[] = {
        {"--preset tutorial", 1041444974, 7},
        {"--preset tutorial-12", 1444261998, 7},
        {"--preset small", 12025582, 4},
        {"--preset lab", 5068, 2},
        {"--preset gpt-small", 124439808, 8},
        {"--preset gpt-1.3b", 1315723264, 16},
        {"--preset gpt-6.7b", 6658404352, 32},
        {"--preset llama-2-7b", 6738415616, 32},
        {"--preset llama-3-8b", 8030261248, 16},
        {"--preset llama-3-70b", 70553706496, 32},
        {"--preset mistral-7b", 7241732096, 16},
        {"--preset mistral-nemo-12b", 12247782400, 16},
        {"--preset gpt-175b", 174604259328, 32},
        {"--preset llama-3-405b", 405853388800, 32},
        {"--preset mixtral-8x7b", 46702792704, 32},
        {"--preset qwen3-8b", 8190735360, 32},
        {"--preset qwen3-30b-a3b", 30532122624, 32},
        {"--preset qwen2-57b-a14b", 57408658944, 32},
        {"--preset glm-4.5-air", 106852251264, 32},
        {"--preset deepseek-v2-lite", 15706484224, 32},
        {"--preset deepseek-v3", 671026419200, 32},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct pp_job *job = NULL;
        configure(cases[i].options);
        if (create(&job, true) != PP_OK) fail_msg("%s: %s", cases[i].options, pp_message());
        assert_int_equal(job->model->parameters, cases[i].parameters);
        assert_int_equal(job->train->microbatches, cases[i].microbatches);
        int64_t fixed = 0;
        for (int r = 0; r < job->layout->ranks; r++) {
            fixed += job->layout->bytes[r][PP_BYTES_PARAM] + job->layout->bytes[r][PP_BYTES_GRAD];
            assert_true(job->layout->live_peak_bytes[r] <= job->layout->arena_bytes[r]);
        }
        assert_true(job->train->members * fixed >= 8 * job->model->parameters);
        pp_job_free(job);
    }
}

/* What results depend on is part of the key, and defaults leave no trace in it. */
static void test_accumulation_key(void **state)
{
    (void)state;
    static const struct {
        const char *options, *key;
    } cases[] = {
        {"--preset small --threads 1", "D1 M4 threads 1 rows 4x5"},
        {"--preset small --threads 1 --vocab-multiple 2", "D1 M4 threads 1 rows 4x5"},
        {"--preset small --threads 1 --vocab-multiple 128", "D1 M4 threads 1 logits 28800 rows 4x5"},
        {"--preset small --threads 1 --attention flash", "D1 M4 threads 1 flash rows 4x5"},
        {"--preset tutorial --threads 2 --precision bf16 --batch-w 4", "D2 M7 threads 2 bf16 rows 6x3 1x2 batch-w 4"},
        {"--preset small --threads 4096 --precision tf32 --attention flash --replicas 65536 --rows 1000003 --chunks "
         "1000 "
         "--batch-w 1000 --vocab-multiple 128",
         "D65536 M1000 threads 4096 tf32 logits 28800 flash rows 999x1001 1x4 batch-w 1000"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct pp_job *job;
        configure(cases[i].options);
        if (create(&job, false) != PP_OK) fail_msg("%s: %s", cases[i].options, pp_message());
        assert_string_equal(job->accumulation_key, cases[i].key);
        pp_job_free(job);
    }
}

/* Eleven microbatches do not suit the training of interleaved on 4 ranks, but its evaluation. */
static void test_evaluation_plan(void **state)
{
    (void)state;
    struct pp_job *job = NULL;
    configure("--schedule interleaved --layers 8 --stages 4 --rows 12 --chunks 12 --eval-rows 11");
    assert_int_equal(create(&job, true), PP_OK);
    assert_int_equal(job->train->microbatches, 12);
    assert_int_equal(job->eval->microbatches, 11);
    assert_false(job->eval->training);
    assert_non_null(job->phase[PP_EVAL].programs);
    for (int i = 0; i < PP_PHASES; i++) assert_true(!job->phase[i].plan == (i != PP_TRAIN && i != PP_EVAL));
    pp_job_free(job);
}

/* Shorter last batches: programs of their own over the same slots, and once for equal lengths. */
static void test_tails(void **state)
{
    (void)state;
    static const struct pp_tails cases[] = {{3, 5, 7}, {3, 5, 5}, {0, 0, 7}};
    const struct pp_point point = {"1f1b", 2, 1, 4};
    configure("--preset small");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct pp_job *job = NULL, *whole = NULL;
        const struct pp_tails *tails = &cases[i];
        assert_int_equal(pp_job_create(&config, &point, &pp_schedules, &pp_model_ops, true, tails, &job), PP_OK);
        assert_int_equal(job->phase[PP_TRAIN_TAIL].seq, tails->train);
        assert_int_equal(job->phase[PP_VALID_TAIL].seq, tails->valid);
        assert_int_equal(job->phase[PP_TEST_TAIL].seq, tails->test == tails->valid ? 0 : tails->test);
        if (job->phase[PP_TEST_TAIL].plan) assert_ptr_equal(job->phase[PP_TEST_TAIL].plan, job->eval);
        assert_int_equal(pp_job_create(&config, &point, &pp_schedules, &pp_model_ops, true, NULL, &whole), PP_OK);
        for (int r = 0; r < 2; r++)
            assert_true(job->layout->arena_bytes[r] == whole->layout->arena_bytes[r] &&
                        job->layout->live_peak_bytes[r] == whole->layout->live_peak_bytes[r]);
        pp_job_free(job);
        pp_job_free(whole);
    }
}

/* The plan that a schedule finds by times: the model's operations, or those that are given; nothing else counts. */
static void test_timed_schedule(void **state)
{
    (void)state;
#define ZB "--schedule zb-auto:6 --layers 4 --stages 4 --rows 12 --chunks 12 "
    static const struct {
        const char *one, *other;
        bool same;
    } cases[] = {
        {ZB, ZB "--threads 2 --transport mpi --gpus 3 --seed 5 --precision tf32", true},
        {ZB, ZB "--device delay", true},
        {ZB, ZB "--vocab 50", false}, /* the last stage is not the slowest any more */
        {ZB, ZB "--device delay --times 1,2,1", false},
        {ZB "--device delay --times 1,2,1", ZB "--device delay --times 2,4,2 --straggler 1:3 --jitter 7", true},
        {ZB "--device delay --times 1,2,1", ZB "--device delay --times 1,2,1,2", false},
        {ZB "--device delay --times 1,1,1", ZB "--device delay --times 1,2,1", false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct pp_job *job;
        uint64_t hash[2];
        for (int k = 0; k < 2; k++) {
            configure(k ? cases[i].other : cases[i].one);
            if (create(&job, true) != PP_OK) fail_msg("%s", pp_message());
            hash[k] = job->train->hash;
            for (int p = 0; p < job->train->npools; p++)
                if (job->train->pools[p].kind == PP_POOL_ACT) assert_true(job->train->pools[p].slots <= 6);
            pp_job_free(job);
        }
        if ((hash[0] == hash[1]) != cases[i].same) fail_msg("%s | %s", cases[i].one, cases[i].other);
    }
    refuse("--schedule gpipe:3", "schedule gpipe takes no number, such as :3");
}

/* PP_CONTEXT_SIZE holds the longest: a name that fills the plan's field, the longest mode, any number of sharers. */
static void test_context(void **state)
{
    (void)state;
    static const char name[] = "a_name_of_as_many_as_31_byt.csv";
    char context[PP_CONTEXT_SIZE], expected[256];
    struct pp_plan plan;
    const struct pp_job job = {.config = &config, .train = &plan};
    assert_int_equal(sizeof name, sizeof plan.schedule);
    memcpy(plan.schedule, name, sizeof name);
    for (int mode = 0; mode <= PP_CHECKPOINTS; mode++) {
        char text[PP_CHECKPOINT_TEXT];
        plan.checkpoint = mode < PP_CHECKPOINTS ? mode : PP_CHECKPOINT_SOME_LAYERS + 65535;
        snprintf(expected, sizeof expected, "%s %s share 1/%d", name, pp_checkpoint_text(plan.checkpoint, text),
                 INT32_MAX);
        assert_string_equal(pp_job_context(&job, INT32_MAX, context, sizeof context), expected);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sweep_order),     cmocka_unit_test(test_endless_sweep),
        cmocka_unit_test(test_refusals),        cmocka_unit_test(test_heads_that_cannot_be_shared),
        cmocka_unit_test(test_too_large),       cmocka_unit_test(test_receive_buffers),
        cmocka_unit_test(test_presets),         cmocka_unit_test(test_accumulation_key),
        cmocka_unit_test(test_evaluation_plan), cmocka_unit_test(test_tails),
        cmocka_unit_test(test_timed_schedule),  cmocka_unit_test(test_context)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
