/* SPDX-License-Identifier: Apache-2.0
 *
 * What names the work of a run: equal for equal work, however it was spelled.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/database/db_query.h"
#include "kernels/model.h"
#include "schedules/schedule.h"

static void parse(const char *line, char *words, struct pp_config *config)
{
    char *argv[64] = {words}, *save;
    int argc = 1;
    sprintf(words, "ppsim %s", line);
    for (char *word = strtok_r(words, " ", &save); (word = strtok_r(NULL, " ", &save));) argv[argc++] = word;
    if (pp_config_parse(PP_PPSIM, argc, argv, config, NULL) != PP_OK)
        fail_msg("'%s': %s", line, pp_message());
}

/* Of a run with a plan. */
static void workload(const char *line, char buf[PP_WORKLOAD_BYTES])
{
    static struct pp_config config;
    char words[1024];
    struct pp_job *job;
    struct pp_point *points;
    int npoints;
    parse(line, words, &config);
    assert_int_equal(pp_points(&config, &pp_schedules, &points, &npoints), PP_OK);
    if (pp_job_create(&config, points, &pp_schedules, &pp_model_ops, false, NULL, &job) != PP_OK)
        fail_msg("'%s': %s", line, pp_message());
    assert_int_equal(pp_db_workload(&config, job, buf), PP_OK);
    pp_job_free(job);
    free(points);
}

static void test_spellings(void **state)
{
    (void)state;
    static const struct {
        const char *one, *other;
        bool same;
    } cases[] = {
        {"--times 5,5,5", "--times 5.0,5,5.00,0", true},
        {"--times 5,5,5", "--times 5,5,5,1", false},
        {"--times 5,5,5", "--times 5,5,5.0000001", false},
        {"--times 1,1,1 --straggler 1:1.50 --jitter 2.0", "--times 1,1,1 --straggler 01:1.5 --jitter 2", true},
        {"--times 1,1,1 --jitter 2", "--times 1,1,1 --jitter 2.0000001", false},
        {"--dropout 0.2", "--dropout .20", true},
        {"--dropout 0.2", "--dropout 0.20000001", false},
        {"--layers 4", "--layers 4 --split 2,2", true},
        {"--positions learned", "--positions learned --max-positions 35", true},
        {"--positions learned", "--positions learned --max-positions 36", false},
        {"--norm-epsilon 0.00001 --qk-norm no", "--seed 1", true},
        {"--norm-epsilon 1e-6", "--norm-epsilon 1.0e-06", true},
        {"--norm-epsilon 1e-6", "--norm-epsilon 1.00001e-6", false},
        {"--qk-norm yes", "--qk-norm no", false},
        {"--device cpu --vocab-multiple 1", "--device cpu", true},
        {"--device cuda --vocab-multiple 128", "--device cuda", true},
        {"--vocab-multiple 64", "--vocab-multiple 32", false},
        {"--machine h100 --replicas 16 --host-order replicas", "--machine h100 --replicas 16", false},
        {"--bias qkv", "--bias layers", false},
        {"--layers 4 --split 3,1", "--layers 4 --split 03,1", true},
        {"--layers 4 --split 3,1", "--layers 4 --split 1,3", false},
        {"--layers 4", "--layers 4 --split 3,1", false},
        {"--layers 8 --stages 4 --d-model 20 --d-ff 20 --vocab 200 --split parameters",
         "--layers 8 --stages 4 --d-model 20 --d-ff 20 --vocab 200 --split 1,3,3,1", true},
        {"--layers 200 --stages 64 --virtual 2 --schedule interleaved --rows 64 --chunks 64 --split parameters "
         "--d-model 8",
         "--layers 200 --stages 64 --virtual 2 --schedule interleaved --rows 64 --chunks 64 --d-model 8", false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char one[PP_WORKLOAD_BYTES], other[PP_WORKLOAD_BYTES];
        workload(cases[i].one, one);
        workload(cases[i].other, other);
        if (cases[i].same != (strcmp(one, other) == 0))
            fail_msg("'%s' and '%s': %s, %s", cases[i].one, cases[i].other, one, other);
    }
}

/* What stands last counts, however much comes before it. */
static void test_long(void **state)
{
    (void)state;
    char line[2][1024], text[2][PP_WORKLOAD_BYTES], cut[256] = "";
    for (int s = 0; s < 37; s++) strcat(cut, "100,");
    for (int i = 0; i < 2; i++) {
        snprintf(
            line[i], sizeof line[i],
            "--precision bf16 --layers 4000 --d-model 1024 --heads 16 --kv-heads 8 --norm pre --normalization rmsnorm "
            "--activation gelu-tanh --bias layers --positions rope --rope-theta 1234567.5 --qk-norm yes --norm-epsilon "
            "1.2345678e-7 --dropout 0.12345678 "
            "--stages 40 --chunks 1 --split %s100,%s --attention flash",
            cut, i ? "99,101" : "101,99");
        workload(line[i], text[i]);
    }
    assert_string_not_equal(text[0], text[1]);
}

static void test_text(void **state)
{
    (void)state;
    static const struct {
        const char *line, *text;
    } cases[] = {
        {"", "2l d200 h2 f200 v28782 causal p0.2 20x35 uniform"},
        {"--preset lab --precision tf32", "tf32 lab 2l d12 h4 f24 v100 none p0.1 4x9 uniform"},
        {"--precision bf16 --optimizer adamw", "bf16 adamw 2l d200 h2 f200 v28782 causal p0.2 20x35 uniform"},
        {"--positions rope --rotary-dim 50", "2l d200 h2 f200 v28782 causal rope10000of50 p0.2 20x35 uniform"},
        {"--positions rope --rotary-dim 100", "2l d200 h2 f200 v28782 causal rope10000 p0.2 20x35 uniform"},
        {"--positions rope --rope-factor 8 --rope-original-tokens 64",
         "2l d200 h2 f200 v28782 causal rope10000/8:1:4:64 p0.2 20x35 uniform"},
        {"--positions rope --rope-factor 8 --rope-scaling yarn --rope-original-tokens 64 --score-factor 1.5",
         "2l d200 h2 f200 v28782 causal scores*1.5 rope10000/yarn8:1:32:64 p0.2 20x35 uniform"},
        {"--positions rope --rope-factor 8 --rope-scaling yarn --rope-truncate no --rope-attention-factor 1.5",
         "2l d200 h2 f200 v28782 causal rope10000/yarn8*1.5:1:32:8192- p0.2 20x35 uniform"},
        {"--positions rope --rope-factor 8 --rope-scaling linear",
         "2l d200 h2 f200 v28782 causal rope10000/linear8 p0.2 20x35 uniform"},
        {"--vocab-multiple 64", "2l d200 h2 f200 v28782/64 causal p0.2 20x35 uniform"},
        {"--attention math", "2l d200 h2 f200 v28782 causal p0.2 20x35 uniform"},
        {"--attention flash", "2l d200 h2 f200 v28782 causal flash p0.2 20x35 uniform"},
        {"--window-size 0", "2l d200 h2 f200 v28782 causal p0.2 20x35 uniform"},
        {"--window-size 16 --attention flash", "2l d200 h2 f200 v28782 causal window16 flash p0.2 20x35 uniform"},
        {"--window-size 16 --window-attn-skip-freq 2", "2l d200 h2 f200 v28782 causal window16/2 p0.2 20x35 uniform"},
        {"--norm post --activation relu", "2l d200 h2 f200 v28782 causal p0.2 20x35 uniform"},
        {"--normalization rmsnorm --activation swiglu --bias no",
         "2l d200 h2 f200 v28782 causal rmsnorm swiglu nobias p0.2 20x35 uniform"},
        {"--norm pre --activation gelu", "2l d200 h2 f200 v28782 causal pre gelu p0.2 20x35 uniform"},
        {"--activation gelu-tanh", "2l d200 h2 f200 v28782 causal gelu-tanh p0.2 20x35 uniform"},
        {"--kv-heads 2 --positions sinusoidal", "2l d200 h2 f200 v28782 causal p0.2 20x35 uniform"},
        {"--kv-heads 1 --positions rope", "2l d200 h2 kv1 f200 v28782 causal rope10000 p0.2 20x35 uniform"},
        {"--positions learned --bias layers", "2l d200 h2 f200 v28782 causal layerbias learned35 p0.2 20x35 uniform"},
        {"--positions learned --max-positions 64", "2l d200 h2 f200 v28782 causal learned64 p0.2 20x35 uniform"},
        {"--bias no --experts 8 --experts-per-token 1 --capacity-factor 2.0",
         "2l d200 h2 f200 x8k1c2 v28782 causal nobias p0.2 20x35 uniform"},
        {"--bias no --experts 8 --router-score sigmoid --expert-bias yes --gate-scale 2.5",
         "2l d200 h2 f200 x8k2lc1.25*2.5b0.001 v28782 causal nobias p0.2 20x35 uniform"},
        {"--bias no --experts 8 --expert-groups 4 --groups-per-token 2 --group-score best",
         "2l d200 h2 f200 x8k2c1.25g2/4m v28782 causal nobias p0.2 20x35 uniform"},
        {"--bias no --experts 8 --gates all --shared-ff 64 --shared-gate yes",
         "2l d200 h2 f200 x8k2ac1.25s64g v28782 causal nobias p0.2 20x35 uniform"},
        {"--bias no --experts 8 --router-score sigmoid --gate-scale 2.5 --shared-ff 64",
         "2l d200 h2 f200 x8k2lc1.25s64*2.5 v28782 causal nobias p0.2 20x35 uniform"},
        {"--bias no --experts 8 --dense-layers 1 --dense-ff 800",
         "2l d200 h2 f200 x8k2c1.25 dense1f800 v28782 causal nobias p0.2 20x35 uniform"},
        {"--bias no --experts 8 --experts-every 2",
         "2l d200 h2 f200 x8k2c1.25 dense0/2 v28782 causal nobias p0.2 20x35 uniform"},
        {"--normalization rmsnorm --norm-epsilon 1e-6 --qk-norm yes --bias qkv",
         "2l d200 h2 f200 v28782 causal rmsnorm eps1e-06 qknorm qkvbias p0.2 20x35 uniform"},
        {"--layers 4 --split 3,1", "4l d200 h2 f200 v28782 causal p0.2 20x35 3,1"},
        {"--times 5,5.50,5,1 --straggler 1:1.5 --jitter 1", "5,5.5,5,1 ms, rank 1:1.5, jitter 1 %"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[PP_WORKLOAD_BYTES];
        workload(cases[i].line, text);
        assert_string_equal(text, cases[i].text);
    }
}

/* The program that has the devices says how many workers share one. */
static void test_shared_devices(void **state)
{
    (void)state;
    struct pp_config config;
    struct pp_job job = {.sharers = 2};
    char words[1024], text[PP_WORKLOAD_BYTES];
    parse("", words, &config);
    assert_int_equal(pp_db_workload(&config, &job, text), PP_OK);
    assert_string_equal(text, "2l d200 h2 f200 v28782 causal p0.2 20x35 uniform share 1/2");
    job.sharers = 1;
    assert_int_equal(pp_db_workload(&config, &job, text), PP_OK);
    assert_string_equal(text, "2l d200 h2 f200 v28782 causal p0.2 20x35 uniform");
}

/* A profile is of several plans: it has what --split asked for. */
static void test_without_a_plan(void **state)
{
    (void)state;
    static struct pp_config config;
    char words[1024], text[PP_WORKLOAD_BYTES];
    parse("--split parameters", words, &config);
    assert_int_equal(pp_db_workload(&config, NULL, text), PP_OK);
    assert_string_equal(text, "2l d200 h2 f200 v28782 causal p0.2 20x35 parameters");
    parse("--times 1,1", words, &config);
    assert_int_equal(pp_db_workload(&config, NULL, text), PP_USAGE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_spellings), cmocka_unit_test(test_long),
                                       cmocka_unit_test(test_text), cmocka_unit_test(test_shared_devices),
                                       cmocka_unit_test(test_without_a_plan)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
