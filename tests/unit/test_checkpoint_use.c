/* SPDX-License-Identifier: Apache-2.0
 *
 * What --checkpoint saves: the arena without checkpoints, as it is told from a plan with them, is that of the job which
 * has none; and where the remark is made.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/job/checkpoint_use.h"
#include "kernels/model.h"
#include "schedules/builder.h"
#include "schedules/schedule.h"

/* NULL where the schedule refuses the shape. */
static struct pp_job *make(struct pp_config *config, const char *schedule, const char *checkpoint, const char *rest)
{
    char text[256], *argv[64] = {"ppsim"};
    int argc = 1, n;
    struct pp_point *points;
    struct pp_job *job = NULL;
    snprintf(text, sizeof text, "--schedule %s --checkpoint %s %s", schedule, checkpoint, rest);
    for (char *word = strtok(text, " "); word; word = strtok(NULL, " ")) argv[argc++] = word;
    if (pp_config_parse(PP_PPSIM, argc, argv, config, NULL) != PP_OK) fail_msg("%s", pp_message());
    assert_int_equal(pp_points(config, &pp_schedules, &points, &n), PP_OK);
    pp_status status = pp_job_create(config, points, &pp_schedules, &pp_model_ops, true, NULL, &job);
    free(points);
    if (status != PP_OK && status != PP_USAGE) fail_msg("%s", pp_message());
    return job;
}

static int64_t fullest(const struct pp_layout *layout)
{
    int64_t most = 0;
    for (int r = 0; r < layout->ranks; r++)
        if (layout->arena_bytes[r] > most) most = layout->arena_bytes[r];
    return most;
}

/* How many modes the schedule was asked for; those that save nothing are counted. */
static int compare(const char *schedule, const char *rest, int *useless)
{
    static const char *const modes[] = {"except_last", "always", "activation", "layers", "layers:2"};
    struct pp_config config[2];
    struct pp_job *never = make(&config[0], schedule, "never", rest);
    if (!never) return 0;
    const int n = never->train->split_backward ? 3 : 5;
    for (int i = 0; i < n; i++) {
        struct pp_job *job = make(&config[1], schedule, modes[i], rest);
        struct pp_checkpoint_use use;
        char remark[256];
        assert_non_null(job);
        assert_int_equal(pp_checkpoint_use(job, &pp_schedules, &use), PP_OK);
        assert_int_equal(pp_checkpoint_remark(job, &pp_schedules, remark, sizeof remark), PP_OK);
        assert_int_equal(use.bytes, fullest(job->layout));
        if (use.never_bytes != fullest(never->layout))
            fail_msg("%s %s %s: %lld never %lld, is %lld", schedule, modes[i], rest, (long long)use.bytes,
                     (long long)use.never_bytes, (long long)fullest(never->layout));
        assert_int_equal(*remark != '\0', fullest(job->layout) >= fullest(never->layout));
        *useless += *remark != '\0';
        pp_job_free(job);
    }
    pp_job_free(never);
    return n;
}

static void test_all_schedules(void **state)
{
    (void)state;
    static const char *const shapes[] = {"--stages 2 --chunks 1", "--stages 4 --chunks 8", "--stages 4 --chunks 7",
                                         "--stages 2 --chunks 8 --batch-w 3", "--stages 8 --chunks 16"};
    const struct pp_schedule *schedule;
    int done = 0, useless = 0;
    for (int i = 0; (schedule = pp_schedule_at(i)); i++)
        for (size_t k = 0; k < sizeof shapes / sizeof *shapes; k++) {
            char rest[160];
            snprintf(rest, sizeof rest,
                     "--preset lab --activation gelu --layers 16 --rows 16 --eval-rows 4 --tokens 32 %s", shapes[k]);
            done += compare(schedule->name, rest, &useless);
        }
    if (done < 60 || useless < 5 || useless > done * 2 / 3) fail_msg("%d of %d save nothing", useless, done);
}

static void test_remark(void **state)
{
    (void)state;
    static const struct {
        const char *schedule, *checkpoint, *part;
    } rows[] = {
        {"zb-h1", "always", "zb-h1, 4 stages, 8 chunks: --checkpoint always saves no memory: the fullest rank needs"},
        {"zb-h1", "except_last", "with never, for what R makes again is kept until W"},
        {"zb-h1", "never", ""},
        {"1f1b", "always", ""},
        {"1f1b", "layers", ""},
        {"1f1b --activation gelu", "activation", ""},
        {"zb-h1 --activation gelu", "activation", ""},
        {"1f1b --activation swiglu", "activation", ""},
        {"v-half", "always", ""}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct pp_config config;
        char remark[256];
        struct pp_job *job = make(&config, rows[i].schedule, rows[i].checkpoint,
                                  "--preset lab --layers 16 --rows 16 --tokens 32 --stages 4 --chunks 8");
        assert_int_equal(pp_checkpoint_remark(job, &pp_schedules, remark, sizeof remark), PP_OK);
        if (*rows[i].part ? !strstr(remark, rows[i].part) : *remark) fail_msg("%s: %s", rows[i].schedule, remark);
        pp_job_free(job);
    }
}

static struct pp_plan *plan_of(const char *schedule, int p, int v, int m, int checkpoint)
{
    struct pp_plan *plan = NULL;
    const struct pp_plan_spec spec = {.schedule = schedule,
                                      .ranks = p,
                                      .virtual_stages = v,
                                      .microbatches = m,
                                      .replicas = 1,
                                      .checkpoint = checkpoint,
                                      .recv_buffers = 2,
                                      .training = true,
                                      .optimizer = true};
    const pp_status status = pp_schedule_check(schedule, p, v, m) == PP_OK ? pp_plan_build(&spec, &plan) : PP_USAGE;
    if (status != PP_OK && status != PP_USAGE) fail_msg("%s", pp_message());
    return plan;
}

/* Without R: F and B have a slot for themselves, and B ends with the checkpoint. */
static void check_layers(const struct pp_plan *layers, const struct pp_plan *never)
{
    const int turn = PP_TASK_TAKE_ACT | PP_TASK_FREE_ACT | PP_TASK_TAKE_CKPT | PP_TASK_FREE_CKPT;
    assert_int_equal(pp_plan_check(layers), PP_OK);
    assert_int_equal(layers->ntasks, never->ntasks);
    for (int64_t i = 0; i < layers->ntasks; i++) {
        const struct pp_task *task = &layers->tasks[i];
        assert_int_not_equal(task->kind, PP_R);
        if (task->kind != PP_F && task->kind != PP_B) continue;
        assert_true(task->ckpt >= 0);
        assert_int_equal(task->flags & turn, turn & ~(task->kind == PP_F ? PP_TASK_FREE_CKPT : PP_TASK_TAKE_CKPT));
    }
    for (int i = 0; i < layers->npools; i++)
        assert_true(layers->pools[i].kind != PP_POOL_ACT || layers->pools[i].slots == 1);
}

/* Plans with W are refused. */
static void test_layers(void **state)
{
    (void)state;
    int whole = 0, split = 0;
    for (int i = 0; pp_schedule_at(i); i++)
        for (int shape = 0; shape < 5 * 2 * 9; shape++) {
            const int p = 1 + shape % 5, v = 1 + shape / 5 % 2, m = 1 + shape / 10;
            struct pp_plan *never = plan_of(pp_schedule_at(i)->name, p, v, m, PP_CHECKPOINT_NEVER);
            struct pp_plan *layers = plan_of(pp_schedule_at(i)->name, p, v, m, PP_CHECKPOINT_LAYERS);
            if (never) assert_int_equal(layers == NULL, never->split_backward);
            if (layers) check_layers(layers, never);
            whole += layers != NULL;
            split += never && !layers;
            pp_plan_free(never);
            pp_plan_free(layers);
        }
    assert_true(whole > 100 && split > 100);
}

/* Evaluation keeps no checkpoints, however large its microbatches are. */
static void test_evaluation(void **state)
{
    (void)state;
    static const char *const modes[] = {"always", "layers"};
    for (int i = 0; i < 2; i++) {
        struct pp_config config;
        int64_t bytes[2];
        for (int large = 0; large < 2; large++) {
            char rest[128];
            snprintf(rest, sizeof rest, "--preset lab --rows 4 --chunks 4 --stages 2 --eval-rows %d", large ? 64 : 4);
            struct pp_job *job = make(&config, "gpipe", modes[i], rest);
            bytes[large] = job->layout->bytes[1][PP_BYTES_CKPT];
            pp_job_free(job);
        }
        assert_true(bytes[0] > 0 && bytes[0] == bytes[1]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_all_schedules), cmocka_unit_test(test_remark),
                                       cmocka_unit_test(test_layers), cmocka_unit_test(test_evaluation)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
