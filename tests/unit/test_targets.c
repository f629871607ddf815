/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/split.h"
#include "sim/targets.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "kernels/model.h"
#include "schedules/schedule.h"
#include "sim/ranking.h"

struct fixture {
    struct pp_config config;
    struct pp_predictor common;
    struct pp_target *targets;
    int n;
};

/* `line`: words apart by one blank. */
static pp_status find(struct fixture *f, const char *line)
{
    static char words[512];
    char *argv[32] = {"ppsim"};
    int argc = 1;
    snprintf(words, sizeof words, "%s", line);
    for (char *word = strtok(words, " "); word; word = strtok(NULL, " ")) argv[argc++] = word;
    *f = (struct fixture){0};
    if (pp_config_parse(PP_PPSIM, argc, argv, &f->config, NULL) != PP_OK) fail_msg("%s", pp_message());
    f->common = (struct pp_predictor){.config = &f->config, .schedules = &pp_schedules, .ops = &pp_model_ops};
    const pp_status status = pp_targets_check(&f->config);
    return status == PP_OK ? pp_targets_find(&f->common, &f->targets, &f->n) : status;
}

static void release(struct fixture *f) { pp_targets_free(f->targets, f->n); }

static void without_a_machine_there_is_one_target(void **state)
{
    struct fixture f;
    (void)state;
    assert_int_equal(find(&f, "--preset lab --price 3"), PP_OK);
    assert_int_equal(f.n, 1);
    const struct pp_target *t = f.targets;
    assert_ptr_equal(t->predictor.config, &t->config);
    assert_null(pp_config_machine(&t->config));
    assert_string_equal(t->predictor.machine.name, "cpu");
    assert_true(pp_config_price(&t->config) == 3 && pp_predict_memory(&t->predictor) == 0);
    release(&f);
}

static void each_machine_has_its_own(void **state)
{
    static const struct {
        const char *machine, *device;
        double price;
        bool limited;
    } expected[] = {{"h200", "cuda", 3, true}, {"cpu", "cpu", 0.25, false}, {"a100", "cuda", 1.5, true}};
    struct fixture f;
    (void)state;
    assert_int_equal(find(&f, "--preset lab --machine h200,cpu,a100 --price 3,0.25,1.5"), PP_OK);
    assert_int_equal(f.n, 3);
    for (int i = 0; i < 3; i++) {
        const struct pp_target *t = &f.targets[i];
        assert_ptr_equal(t->predictor.config, &t->config);
        assert_int_equal(t->config.machine.n, 1);
        assert_string_equal(pp_config_machine(&t->config), expected[i].machine);
        assert_string_equal(t->predictor.machine.name, expected[i].machine);
        assert_string_equal(t->config.device, expected[i].device);
        assert_true(pp_config_price(&t->config) == expected[i].price && t->config.price.n == 1);
        assert_int_equal(pp_predict_memory(&t->predictor) > 0, expected[i].limited);
        assert_string_equal(t->impossible, "");
    }
    assert_true(pp_predict_memory(&f.targets[0].predictor) > pp_predict_memory(&f.targets[2].predictor));
    release(&f);
}

static void one_price_is_for_all(void **state)
{
    struct fixture f;
    (void)state;
    assert_int_equal(find(&f, "--preset lab --machine h100,a100 --price 2"), PP_OK);
    for (int i = 0; i < 2; i++) assert_true(pp_config_price(&f.targets[i].config) == 2);
    release(&f);
    assert_int_equal(find(&f, "--preset lab --machine h100,a100"), PP_OK);
    for (int i = 0; i < 2; i++) assert_true(pp_config_price(&f.targets[i].config) == 0);
    release(&f);
}

static void what_no_machine_can_have_is_refused(void **state)
{
    static const struct {
        const char *options, *message;
    } cases[] = {{"--price 1,2", "--price has 2 prices, but --machine names none"},
                 {"--machine h100 --price 1,2,3", "--price has 3 prices, but --machine names one machine"},
                 {"--machine h100,a100 --price 1,2,3", "--price has 3 prices for 2 machines"},
                 {"--machine h100,h100,a100 --price 1,2,3", "--price has 3 prices for 2 machines"},
                 {"--machine h100,h101", "there is no machine \"h101\""},
                 {"--machine h100 --device cpu", "machine h100 has GPUs, and --device cpu is another device"},
                 {"--machine cpu --device cuda", "machine cpu has no GPUs, and --device cuda is another device"},
                 {"--machine h100 --threads 2", "data sheet of machine h100"}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct fixture f;
        assert_int_equal(find(&f, cases[i].options), PP_USAGE);
        if (!strstr(pp_message(), cases[i].message)) fail_msg("'%s' gave '%s'", cases[i].options, pp_message());
        release(&f);
    }
}

/* A machine of GPUs is one for cuda, and one without for cpu. */
static void a_machine_is_one_for_its_device(void **state)
{
    static const char *const of_h100[] = {"", " --device auto", " --device cuda"};
    struct fixture f;
    (void)state;
    for (int i = 0; i < 3; i++) {
        char line[96];
        snprintf(line, sizeof line, "--preset lab --machine h100%s", of_h100[i]);
        assert_int_equal(find(&f, line), PP_OK);
        assert_string_equal(f.targets[0].config.device, "cuda");
        release(&f);
    }
    assert_int_equal(find(&f, "--preset lab --machine h100,cpu --device cpu"), PP_OK);
    assert_non_null(strstr(f.targets[0].impossible, "--device cpu is another device"));
    assert_string_equal(f.targets[1].impossible, "");
    assert_string_equal(f.targets[1].config.device, "cpu");
    release(&f);
}

/* What no other options would mend fails for all. */
static void a_file_that_is_damaged_is_an_error(void **state)
{
    static const char *const machines[] = {"h100", "h100,cpu"};
    (void)state;
    for (int i = 0; i < 2; i++) {
        struct fixture f;
        char line[96];
        snprintf(line, sizeof line, "--preset lab --machine %s --profile damaged.tsv", machines[i]);
        FILE *file = fopen("damaged.tsv", "w");
        assert_true(file && fputs("no profile\n", file) >= 0 && fclose(file) == 0);
        assert_int_equal(find(&f, line), PP_INPUT);
        release(&f);
        assert_int_equal(remove("damaged.tsv"), 0);
    }
}

static void of_several_one_may_be_impossible(void **state)
{
    struct fixture f;
    (void)state;
    assert_int_equal(find(&f, "--preset lab --machine h100,cpu --transport mpi"), PP_OK);
    assert_non_null(strstr(f.targets[0].impossible, "moves no data of device cuda"));
    assert_non_null(strstr(f.targets[1].impossible, "data sheet of machine cpu"));
    release(&f);
}

static void layers_have_times_of_their_machine(void **state)
{
    struct fixture f;
    double ns[2];
    (void)state;
    assert_int_equal(find(&f, "--preset gpt-small --machine a100,h100 --split time"), PP_OK);
    for (int i = 0; i < 2; i++) {
        const struct pp_predictor *p = &f.targets[i].predictor;
        const struct pp_point point = {.tensor = 1, .chunks = 1};
        struct pp_config cut;
        double *layer_ns;
        assert_int_equal(pp_split_begin(p, &point, &cut, &layer_ns), PP_OK);
        ns[i] = cut.layer_ns[1];
        assert_null(p->config->layer_ns);
        free(layer_ns);
    }
    assert_true(ns[0] > ns[1]);
    release(&f);
}

/* The first of each number of workers of each target, cheapest first. */
static void the_best_of_each_machine_stay(void **state)
{
    static const struct {
        int target, workers, cost;
    } of[] = {{0, 2, 7}, {0, 2, 5}, {1, 2, 6}, {0, 4, 4}, {1, 4, 9}, {1, 4, 8}, {0, 4, 4}},
      left[] = {{0, 4, 4}, {0, 2, 5}, {1, 2, 6}, {1, 4, 8}};
    enum { ROWS = sizeof of / sizeof *of, LEFT = sizeof left / sizeof *left };
    static const struct pp_config config = {.top = 1, .price = {1, {1}}};
    (void)state;
    for (int several = 0; several < 2; several++) {
        struct pp_row rows[ROWS];
        int64_t n = ROWS;
        for (int i = 0; i < ROWS; i++)
            rows[i] = (struct pp_row){json_integer(i), .workers = of[i].workers, .value = of[i].cost,
                                      .target = several ? of[i].target : 0};
        assert_int_equal(pp_rank(rows, &n, &config), PP_OK);
        assert_int_equal(n, several ? LEFT : 2);
        for (int i = 0; i < n; i++) {
            const struct pp_row *r = &rows[i];
            assert_int_equal(r->target, left[i].target);
            assert_int_equal(r->workers, left[i].workers);
            assert_true(r->value == left[i].cost);
            assert_int_equal(of[json_integer_value(r->json)].cost, left[i].cost);
            pp_row_free(&rows[i]);
        }
    }
}

/* Cheapest first; those that cost as much stay in the order in which they were. */
static void equal_rows_keep_their_order(void **state)
{
    enum { ROWS = 9 };
    static const struct pp_config config = {0};
    static const int order[ROWS] = {0, 3, 6, 1, 2, 4, 5, 7, 8};
    struct pp_row rows[ROWS];
    int64_t n = ROWS;
    (void)state;
    for (int i = 0; i < ROWS; i++) rows[i] = (struct pp_row){.workers = i, .value = i % 3 ? 5 : 4};
    assert_int_equal(pp_rank(rows, &n, &config), PP_OK);
    assert_int_equal(n, ROWS);
    for (int i = 0; i < ROWS; i++) assert_int_equal(rows[i].workers, order[i]);
}

/* What fits goes first, however slow; where nothing does, what needs least. */
static void rows_that_do_not_fit_go_last(void **state)
{
    enum { ROWS = 4 };
    static const struct pp_config config = {0};
    (void)state;
    for (int fitting = 0; fitting < 2; fitting++) {
        static const int some[ROWS] = {3, 1, 0, 2}, none[ROWS] = {1, 3, 2, 0};
        struct pp_row rows[ROWS];
        int64_t n = ROWS;
        for (int i = 0; i < ROWS; i++)
            rows[i] = (struct pp_row){.workers = i,
                                      .value = (double[]){2, 7, 3, 6}[i],
                                      .device_bytes = (int[]){40, 10, 30, 20}[i],
                                      .too_large = !fitting || i % 2 == 0};
        assert_int_equal(pp_rank(rows, &n, &config), PP_OK);
        for (int i = 0; i < ROWS; i++) assert_int_equal(rows[i].workers, fitting ? some[i] : none[i]);
    }
}

/* Of hundreds of thousands, too: that took more than 40 s where each was compared with all. The values are all numbers
 * below ROWS, once each. */
static void the_best_of_many_stay(void **state)
{
    enum { ROWS = 400009, STEP = 7919, GROUPS = 6, TOP = 3 }; /* ROWS is a prime */
    static const struct pp_config config = {.top = TOP};
    struct pp_row *rows = calloc(ROWS, sizeof *rows);
    int64_t n = ROWS;
    (void)state;
    assert_non_null(rows);
    for (int64_t i = 0; i < ROWS; i++) {
        const int value = (int)(i * STEP % ROWS), group = value % GROUPS;
        rows[i] = (struct pp_row){.value = value, .workers = group / 2, .target = group % 2};
    }
    assert_int_equal(pp_rank(rows, &n, &config), PP_OK);
    assert_int_equal(n, GROUPS * TOP);
    for (int i = 0; i < n; i++) {
        assert_true(rows[i].value == i);
        assert_int_equal(rows[i].workers * 2 + rows[i].target, i % GROUPS);
    }
    free(rows);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(without_a_machine_there_is_one_target),
                                       cmocka_unit_test(each_machine_has_its_own),
                                       cmocka_unit_test(one_price_is_for_all),
                                       cmocka_unit_test(what_no_machine_can_have_is_refused),
                                       cmocka_unit_test(a_machine_is_one_for_its_device),
                                       cmocka_unit_test(a_file_that_is_damaged_is_an_error),
                                       cmocka_unit_test(of_several_one_may_be_impossible),
                                       cmocka_unit_test(layers_have_times_of_their_machine),
                                       cmocka_unit_test(the_best_of_each_machine_stay),
                                       cmocka_unit_test(equal_rows_keep_their_order),
                                       cmocka_unit_test(rows_that_do_not_fit_go_last),
                                       cmocka_unit_test(the_best_of_many_stay)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
