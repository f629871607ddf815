/* SPDX-License-Identifier: Apache-2.0
 *
 * The cut that ppsim takes for blocks, against all cuts that there are, each predicted alone.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "dice.h"
#include "kernels/model.h"
#include "schedules/schedule.h"
#include "sim/predict.h"

enum { CASES = 100, MOST_BLOCKS = 11, MOST_RANKS = 4 };

static uint64_t dice = 1;

static double between(double low, double high) { return low + (high - low) * random_below(&dice, 10001) / 10000; }

/* Layers of equal or of other times between an embedding that takes little and a head that takes up to two layers. */
static void write_blocks(const char *path, int blocks, bool equal)
{
    const double layer = between(8, 12), head = between(0.3, 2) * layer;
    FILE *out = fopen(path, "w");
    assert_non_null(out);
    fprintf(out, "block\tforward_ms\tinput_ms\tweight_ms\n");
    fprintf(out, "embedding\t%.4f\t%.4f\t%.4f\n", between(0, 2), between(0, 2), between(0, 1));
    for (int i = 0; i < blocks - 2; i++) {
        const double ms = layer * (equal ? 1 : between(0.6, 1.4));
        fprintf(out, "layer %d\t%.4f\t%.4f\t%.4f\n", i, ms, ms, 0.9 * ms);
    }
    fprintf(out, "head\t%.4f\t%.4f\t%.4f\n", head, head, head);
    assert_int_equal(fclose(out), 0);
}

static double step_ns(const struct pp_config *config, const struct pp_point *point)
{
    struct pp_predictor p = {.config = config, .schedules = &pp_schedules, .ops = &pp_model_ops};
    struct pp_prediction prediction;
    if (pp_machine_find(NULL, &p.machine) != PP_OK) fail_msg("%s", pp_message());
    if (pp_predict(&p, point, false, &prediction) != PP_OK) fail_msg("%s", pp_message());
    const double ns = (double)prediction.result.batch_ns;
    pp_prediction_free(&prediction);
    return ns;
}

/* The quickest of all lists that begin with list[0..length). */
static double quickest(const struct pp_config *config, const struct pp_point *point, const char *list, int stages,
                       int left)
{
    char longer[64];
    double best = INFINITY;
    if (stages == 1) {
        struct pp_config listed = *config;
        snprintf(longer, sizeof longer, "%s%d", list, left);
        listed.split = longer;
        listed.set[pp_config_row_of(PP_OPTION(split)) - pp_config_rows] = true;
        return step_ns(&listed, point);
    }
    for (int n = 1; n <= left - stages + 1; n++) {
        snprintf(longer, sizeof longer, "%s%d,", list, n);
        best = fmin(best, quickest(config, point, longer, stages - 1, left - n));
    }
    return best;
}

/* How much slower the cut is that is taken, as a part of the quickest. */
static double regret_of(const char *schedule, int ranks, int chunks, int blocks, bool equal)
{
    static char path[] = "blocks.tsv", *argv[] = {"ppsim", "--times", path};
    const struct pp_point point = {schedule, ranks, 1, chunks};
    struct pp_config config;
    struct pp_blocks *read;
    write_blocks(path, blocks, equal);
    if (pp_config_parse(PP_PPSIM, 3, argv, &config, NULL) != PP_OK) fail_msg("%s", pp_message());
    if (pp_blocks_read(path, &read) != PP_OK) fail_msg("%s", pp_message());
    config.blocks = read;
    const double taken = step_ns(&config, &point), best = quickest(&config, &point, "", ranks, blocks);
    pp_blocks_free(read);
    return taken / best - 1;
}

static void check_regret(bool equal, double most_mean, double most)
{
    static const char *const schedules[] = {"1f1b", "gpipe", "zb-h1", "1f1b"};
    double sum = 0, worst = 0;
    for (int i = 0; i < CASES; i++) {
        const int ranks = 3 + random_below(&dice, MOST_RANKS - 2), chunks = 4 << random_below(&dice, 3);
        const double regret = regret_of(schedules[i % 4], ranks, chunks, MOST_BLOCKS - random_below(&dice, 4), equal);
        assert_true(regret > -1e-9); /* the cut that is taken is one of all */
        sum += regret;
        worst = fmax(worst, regret);
    }
    print_message("%s layers: %.2f %% slower than the quickest cut on average, at most %.2f %%\n",
                  equal ? "equal" : "other", 100 * sum / CASES, 100 * worst);
    assert_true(sum / CASES < most_mean && worst < most);
}

static void cuts_of_equal_layers_are_nearly_the_quickest(void **state)
{
    (void)state;
    check_regret(true, 0.002, 0.03);
}

static void cuts_of_other_layers_are_nearly_the_quickest(void **state)
{
    (void)state;
    check_regret(false, 0.005, 0.1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(cuts_of_equal_layers_are_nearly_the_quickest),
                                       cmocka_unit_test(cuts_of_other_layers_are_nearly_the_quickest)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
