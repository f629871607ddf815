/* SPDX-License-Identifier: Apache-2.0
 *
 * Programs that classes of a phase have together: each is, call by call, what is written for the class alone; or, where
 * calls stand once, does the same.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include "config_case.h"
#include "core/job/job.h"
#include "kernels/model.h"
#include "phase_case.h"
#include "schedules/schedule.h"

/* Returns how many classes that compute have the program of another one. */
static int check_phase(const struct pp_job *job, const struct pp_phase *phase)
{
    int together = 0;
    for (int c = 0; c < phase->plan->nclasses; c++) {
        const int same = phase->same_as[c];
        assert_in_range(same, 0, c);
        assert_int_equal(phase->same_as[same], same);
        assert_true(phase->programs[c].calls == phase->programs[same].calls);
        together += same < c;
        if (pp_kinds[phase->plan->classes[c].kind].computes) check_alone(job, phase, c);
    }
    return together;
}

static int count_calls(const struct pp_phase *phase)
{
    int n = 0;
    for (int c = 0; c < phase->plan->nclasses; c++) n += phase->same_as[c] == c ? phase->programs[c].ncalls : 0;
    return n;
}

static int shorter; /* jobs that have fewer calls, if each stands once */

/* Such a job does and needs the same. */
static void check_once(const struct pp_job *whole)
{
    struct pp_job *job;
    assert_int_equal(pp_job_begin(whole->config, &whole->point, &pp_schedules, &pp_model_ops, &job), PP_OK);
    job->once = true;
    assert_int_equal(pp_job_complete(job, &pp_schedules, true, NULL), PP_OK);
    check_phase(job, &job->phase[PP_TRAIN]);
    check_phase(job, &job->phase[PP_EVAL]);
    shorter += count_calls(&job->phase[PP_TRAIN]) < count_calls(&whole->phase[PP_TRAIN]);
    for (int r = 0; r < whole->layout->ranks; r++)
        assert_int_equal(job->layout->arena_bytes[r], whole->layout->arena_bytes[r]);
    pp_job_free(job);
}

/* Checks all phases of a run; returns what check_phase() says of training. */
static int check(const char *options)
{
    struct pp_config config;
    struct pp_point *points;
    struct pp_job *job;
    int n;
    if (parse(PP_PPEXEC, options, &config) != PP_OK) fail_msg("%s: %s", options, pp_message());
    assert_int_equal(pp_points(&config, &pp_schedules, &points, &n), PP_OK);
    assert_int_equal(n, 1);
    if (pp_job_create(&config, points, &pp_schedules, &pp_model_ops, true, NULL, &job) != PP_OK)
        fail_msg("%s: %s", options, pp_message());
    const int together = check_phase(job, &job->phase[PP_TRAIN]);
    check_phase(job, &job->phase[PP_EVAL]);
    check_once(job);
    pp_job_free(job);
    free(points);
    return together;
}

#define SMALL                                                                                                          \
    "--preset small --d-model 16 --heads 4 --d-ff 24 --vocab 21 --tokens 12 --rows 4 --eval-rows 2 --dropout 0 "

/* Of four stages of two layers the two in the middle are alike, in F, B, NORM and STEP at least. */
static void test_alike(void **state)
{
    static const struct {
        const char *options;
        bool shorter; /* with calls once: not where layers of a stage differ, or are each a part of it in all tasks */
    } all[] = {
        {"--layers 8 --stages 4 --chunks 2", true},
        {"--layers 8 --stages 4 --chunks 3 --checkpoint always", true}, /* microbatches of two sizes */
        {"--layers 8 --stages 4 --chunks 2 --checkpoint layers", true},
        {"--layers 8 --stages 4 --chunks 2 --checkpoint layers:1", false},
        {"--layers 8 --stages 4 --chunks 2 --replicas 2 --zero 3", false},
        {"--layers 8 --stages 4 --chunks 2 --replicas 2 --zero 1 --overlap-grad-reduce --bucket-size 1k", true},
        {"--layers 8 --stages 4 --chunks 2 --tensor 2 --sequence-parallel", true},
        {"--layers 8 --stages 4 --chunks 2 --context-parallel 2", true},
        {"--layers 8 --stages 4 --chunks 2 --optimizer adamw --precision fp8 --device cuda", true},
        {"--layers 8 --stages 2 --virtual 2 --schedule interleaved --chunks 2 --tie-embeddings yes", true},
        {"--layers 8 --stages 4 --chunks 4 --schedule zb-h1 --batch-w 2", true},
        {"--layers 8 --stages 4 --chunks 2 --experts 3 --bias no", true},
        {"--layers 8 --stages 4 --chunks 2 --experts 3 --experts-every 2 --bias no", false},
        {"--layers 8 --stages 4 --chunks 2 --window-size 3 --window-attn-skip-freq 2", false},
        {"--layers 20 --stages 4 --chunks 2 --replicas 2 --zero 3 --checkpoint layers:2 --window-size 3 "
         "--window-attn-skip-freq 5",
         true},
        {"--layers 20 --stages 4 --chunks 2 --replicas 2 --zero 2 --experts 3 --experts-every 2 --bias no --split "
         "4,6,6,4",
         true},
        {"--layers 24 --stages 4 --chunks 2 --replicas 2 --zero 3 --window-size 3 --window-attn-skip-freq 3", true},
        /* parts of 3, 4, 3 and 4 layers */
        {"--layers 56 --stages 4 --chunks 2 --replicas 2 --zero 1 --overlap-grad-reduce --bucket-size 20k", true},
    };
    (void)state;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        char options[512];
        snprintf(options, sizeof options, SMALL "%s", all[i].options);
        shorter = 0;
        const int together = check(options);
        if (together < 4) fail_msg("%s: only %d classes have the program of another one", options, together);
        if (shorter != all[i].shorter) fail_msg("%s: calls stand once: %d", options, shorter);
    }
}

/* Dropout, windows or experts make layers differ: then stages of as many layers have programs of their own. */
static void test_different(void **state)
{
    (void)state;
    assert_int_equal(check(SMALL "--layers 8 --stages 4 --chunks 2 --dropout 0.2"), 0);
    assert_int_equal(check(SMALL "--layers 4 --stages 4 --chunks 2 --window-size 3 --window-attn-skip-freq 2"), 0);
    assert_int_equal(check(SMALL "--layers 4 --stages 4 --chunks 2 --experts 3 --experts-every 2 --bias no"), 0);
    assert_int_equal(check(SMALL "--layers 7 --stages 4 --chunks 2 --split 2,1,3,1"), 0);
    shorter = 0; /* where nobody asks for the numbers of layers, those of the stages in the middle are alike */
    assert_int_equal(check(SMALL "--layers 4 --stages 4 --chunks 2 --dropout 0.2"), 0);
    assert_int_equal(shorter, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_alike),
        cmocka_unit_test(test_different),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
