/* SPDX-License-Identifier: Apache-2.0
 *
 * Schedules as CSV: what is written is read as the same plan, and nothing is guessed.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "schedules/builder.h"
#include "schedules/csv.h"
#include "schedules/csv_read.h"

static pp_status parse(const char *text, struct pp_csv_schedule *out)
{
    FILE *in = fmemopen((void *)text, strlen(text), "r");
    assert_non_null(in);
    pp_status status = pp_csv_parse(in, "mine.csv", out);
    fclose(in);
    return status;
}

/* A plan, written as CSV into a file and named by its path, is the same plan. */
static void round_trip(const struct pp_schedule *schedule, int ranks, int virtual_stages, int microbatches)
{
    struct pp_plan_spec spec = {.schedule = schedule->name,
                                .ranks = ranks,
                                .virtual_stages = virtual_stages,
                                .microbatches = microbatches,
                                .replicas = 1,
                                .recv_buffers = 2,
                                .training = true};
    struct pp_plan *plan, *again;
    static int files;
    char path[32];
    if (pp_schedule_check(spec.schedule, ranks, virtual_stages, microbatches) != PP_OK) return;
    snprintf(path, sizeof path, "./mine%d.csv", files++); /* each is read once */
    FILE *out = fopen(path, "w");
    assert_non_null(out);
    assert_int_equal(pp_plan_build(&spec, &plan), PP_OK);
    assert_int_equal(pp_plan_csv(plan, out), PP_OK);
    fclose(out);
    spec.schedule = path;
    if (pp_plan_build(&spec, &again) != PP_OK) fail_msg("%s: %s", schedule->name, pp_message());
    assert_true(plan->hash == again->hash);
    assert_memory_equal(again->schedule, path + 2, strlen(path + 2));
    assert_int_equal(again->schedule[strlen(path + 2)], '#');
    pp_plan_free(again);
    /* An evaluation runs the forwards of as many microbatches as it has. */
    spec.training = false;
    spec.microbatches = (microbatches + 1) / 2;
    if (pp_plan_build(&spec, &again) != PP_OK) fail_msg("%s: %s", schedule->name, pp_message());
    assert_int_equal(pp_plan_check(again), PP_OK);
    pp_plan_free(again);
    /* In training it has its own number. */
    spec.training = true;
    spec.microbatches = microbatches + 1;
    assert_int_equal(pp_plan_build(&spec, &again), PP_USAGE);
    assert_int_equal(pp_schedule_check(path, ranks, virtual_stages + 1, microbatches), PP_USAGE);
    assert_non_null(strstr(pp_message(), path));
    pp_plan_free(plan);
    remove(path);
}

static void test_round_trip(void **state)
{
    (void)state;
    const struct pp_schedule *schedule;
    for (int i = 0; (schedule = pp_schedule_at(i)); i++)
        for (int ranks = 1; ranks <= 4; ranks++)
            for (int v = 1; v <= 2; v++)
                for (int m = 1; m <= 9; m += 4) round_trip(schedule, ranks, v, m);
}

static void write_text(const char *path, const char *text)
{
    FILE *out = fopen(path, "w");
    assert_non_null(out);
    fputs(text, out);
    assert_int_equal(fclose(out), 0);
}

/* All plans of a process are of the same orders, and a file that is wrong stays so, too. */
static void test_read_once(void **state)
{
    (void)state;
    struct pp_schedule_found found;
    static const char *const paths[] = {"./once.csv", "./wrong.csv", "./stuck.csv"};
    static const struct {
        const char *first, *later;
        pp_status status;
    } cases[] = {{"0F0,0B0\n", "nonsense\n", PP_OK},
                 {"nonsense\n", "0F0,0B0\n", PP_INPUT},
                 {"0B0,0F0\n", "0F0,0B0\n", PP_INPUT}};
    for (int i = 0; i < 3; i++)
        for (int again = 0; again < 3; again++) {
            write_text(paths[i], again ? cases[i].later : cases[i].first);
            assert_int_equal(pp_schedules.find(paths[i], &found), cases[i].status);
            if (cases[i].status != PP_OK) assert_non_null(strstr(pp_message(), paths[i]));
        }
    for (int i = 0; i < 3; i++) remove(paths[i]);
}

/* What torch.distributed.pipelining prints of two ranks: idle cells, pairs, and all that moves data. */
static void test_dialect(void **state)
{
    (void)state;
    struct pp_csv_schedule got;
    assert_int_equal(parse("\xef\xbb\xbf"
                           "0UNSHARD,0F0,0SEND_F0,,(0F1;0B0)OVERLAP_F_B ,0SEND_F1,0WAIT_SEND_F0,0RECV_B0, 0B1,\r\n"
                           "1RECV_F0, \"1F0\",1I0,\"\",1SEND_B0,1W0,1RECV_F1,1F1,1B1,"
                           "1REDUCE_GRAD,1WAIT_REDUCE_GRAD,1RESHARD\n"
                           "\n,,,\n",
                           &got),
                     PP_OK);
    assert_int_equal(got.ranks, 2);
    assert_int_equal(got.virtual_stages, 1);
    assert_int_equal(got.microbatches, 2);
    assert_int_equal(got.orders[0].n, 4);
    assert_int_equal(got.orders[1].n, 5);
    static const struct pp_op first[] = {{0, 0, PP_F, 0}, {0, 1, PP_F, 0}, {0, 0, PP_B, 0}, {0, 1, PP_B, 0}};
    for (int i = 0; i < 4; i++) {
        assert_int_equal(got.orders[0].ops[i].kind, first[i].kind);
        assert_int_equal(got.orders[0].ops[i].microbatch, first[i].microbatch);
    }
    pp_csv_free(&got);
}

static void test_refused(void **state)
{
    (void)state;
    static const struct {
        const char *text, *says;
    } cases[] = {
        {"", "holds no computation"},
        {"\n\n", "holds no computation"},
        {"0UNSHARD\n", "holds no computation"},
        {"0F0,0B0,F1\n", "mine.csv, row 1: cell 3 (\"F1\"): an action begins with the number of a stage"},
        {"0F0,0X0\n", "row 1: cell 2 (\"0X0\"): there is no such action"},
        {"0F0,0f0\n", "there is no such action"},
        {"(0F0)OVERLAP_F_B,0B0\n", "a pair is written"},
        {"0F0,(0B0;0F1;0B1)OVERLAP_F_B\n", "a pair is written"},
        {"0F0,0B\n", "ends with the number of a microbatch"},
        {"0F0,0B0x\n", "something stands behind the action"},
        {"0F0,0REDUCE_GRAD0\n", "something stands behind the action"},
        {"0F0,0B0 0F1\n", "something stands behind the action"},
        {"0F0,0BW0\n", "write it anew"},
        {"-1F0\n", "begins with the number of a stage"},
        {"65536F0\n", "begins with the number of a stage"},
        {"0F99999999999999999999\n", "ends with the number of a microbatch"},
        {"(0F0;0B0)\n", "a pair is written"},
        {"(0F0;0B0\n", "a pair is written"},
        {"0F0,0B0\n0F1,0B1\n", "row 2: cell 1 (\"0F1\"): that stage is in an earlier row, too"},
        {"0F0,0B0\n2F0,2B0\n", "stage 1 is missing: the last one is 2"},
        {"0F0,1F0,1B0,0B0\n2F0,2B0\n", "rank 0 has 2 of 3 stages; each of 2 ranks must have as many"},
        {"0F0,0B0\n\n1F0,1B0\n", "row 2: no computation"},
        {"0F1,0F2,0B0,0B1\n", "row 1: stage 0 has backwards from microbatch 0 on, but no forward of it"},
        {"0F0,\x1b[2J\n", "(\"?[2J\")"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct pp_csv_schedule got;
        assert_int_equal(parse(cases[i].text[0] ? cases[i].text : "\n", &got), PP_INPUT);
        if (!strstr(pp_message(), cases[i].says)) fail_msg("%s: %s", cases[i].text, pp_message());
        pp_csv_free(&got);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_read_once),
        cmocka_unit_test(test_dialect),
        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
