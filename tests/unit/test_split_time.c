/* SPDX-License-Identifier: Apache-2.0
 *
 * --split time: what embedding, layers and decoder take, from times of calls that are made by hand.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/database/split_time.h"
#include "kernels/kernels.h"
#include "kernels/model.h"
#include "schedules/schedule.h"

enum { LAYERS = 3 };

static void split_with(int rows, int chunks, int stages, const char *checkpoint, const struct pp_call_times *times,
                       double layer_ns[LAYERS + 2])
{
    static struct pp_config config;
    struct pp_point point;
    char text[200], *argv[24] = {"ppsim"};
    int argc = 1;
    snprintf(
        text, sizeof text,
        "--preset lab --activation gelu --layers %d --split time --stages %d --rows %d --chunks %d --checkpoint %s",
        LAYERS, stages, rows, chunks, checkpoint);
    for (char *word = strtok(text, " "); word; word = strtok(NULL, " ")) argv[argc++] = word;
    if (pp_config_parse(PP_PPSIM, argc, argv, &config, NULL) != PP_OK) fail_msg("%s", pp_message());
    if (pp_points_first(&config, &pp_schedules, &point) != PP_OK) fail_msg("%s", pp_message());
    double *found;
    if (pp_split_time_by(&config, &config, &point, &pp_model_ops, times, &found) != PP_OK) fail_msg("%s", pp_message());
    memcpy(layer_ns, found, (LAYERS + 2) * sizeof *layer_ns);
    free(found);
}

static void split(int rows, int chunks, const struct pp_call_times *times, double layer_ns[LAYERS + 2])
{
    split_with(rows, chunks, 2, "never", times, layer_ns);
}

/* A call takes as long as it has rows; `from` is the only kernel that takes any time. */
static pp_status rows_ns(void *from, const struct pp_call *call, double *out)
{
    const int *kernel = from;
    *out = call->kernel == *kernel ? call->n[0] : 0;
    return PP_OK;
}

/* Where chunks do not divide the rows, times are those of the largest microbatch. */
static void test_rows_of_the_largest_microbatch(void **state)
{
    (void)state;
    static const int cases[][3] = {{20, 8, 3}, {16, 8, 2}, {17, 8, 3}, {7, 4, 2}, {5, 1, 5}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int embed = PP_KERNEL_EMBED, attention = PP_KERNEL_ATTENTION;
        const struct pp_call_times of_embed = {rows_ns, &embed}, of_attention = {rows_ns, &attention};
        const double rows = cases[i][2];
        double ns[LAYERS + 2];
        split(cases[i][0], cases[i][1], &of_embed, ns);
        assert_true(ns[0] == rows && ns[1] == 0 && ns[LAYERS] == 0 && ns[LAYERS + 1] == 0);
        split(cases[i][0], cases[i][1], &of_attention, ns);
        assert_true(ns[0] == 0 && ns[1] == rows && ns[LAYERS] == rows && ns[LAYERS + 1] == 0);
    }
}

/* Stages in the middle copy what they receive and what they send. Where that takes longest, a layer with the embedding
 * takes less time than one without it, and so does one with the decoder: these then take none, and not less. */
static void test_nothing_takes_less_than_no_time(void **state)
{
    (void)state;
    int copy = PP_KERNEL_COPY;
    const struct pp_call_times times = {rows_ns, &copy};
    double ns[LAYERS + 2];
    split(4, 2, &times, ns);
    for (int l = 1; l <= LAYERS; l++) assert_true(ns[l] > 0);
    assert_true(ns[0] == 0 && ns[LAYERS + 1] == 0);
}

/* How often a kernel runs for each row of a microbatch, in the middle layer and in the decoder. */
static double times_run(int kernel, int stages, const char *checkpoint, bool decoder)
{
    const struct pp_call_times times = {rows_ns, &kernel};
    double ns[LAYERS + 2], once[LAYERS + 2];
    const int at = decoder ? LAYERS + 1 : 2;
    split_with(8, 4, stages, "never", &times, once);
    split_with(8, 4, stages, checkpoint, &times, ns);
    assert_true(once[at] > 0);
    return ns[at] / once[at];
}

/* What a checkpoint mode runs again counts: of M - 1 of M microbatches, or of all. Of layers:N it counts where stages
 * have N layers at most on average. */
static void test_what_is_run_again(void **state)
{
    (void)state;
    static const struct {
        const char *checkpoint;
        int stages;
        double attention, gelu, loss;
    } cases[] = {{"never", 3, 1, 1, 1},
                 {"layers", 3, 2, 2, 2},
                 {"layers:1", 3, 2, 2, 1},
                 {"layers:7", 2, 2, 2, 1},
                 {"layers:1", 2, 1, 1, 1},
                 {"always", 3, 2, 2, 2},
                 {"except_last", 3, 1.75, 1.75, 1.75},
                 {"activation", 3, 1, 2, 1}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *checkpoint = cases[i].checkpoint;
        const int stages = cases[i].stages;
        assert_true(times_run(PP_KERNEL_ATTENTION, stages, checkpoint, false) == cases[i].attention);
        assert_true(times_run(PP_KERNEL_GELU, stages, checkpoint, false) == cases[i].gelu);
        assert_true(times_run(PP_KERNEL_CROSS_ENTROPY, stages, checkpoint, true) == cases[i].loss);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_rows_of_the_largest_microbatch),
                                       cmocka_unit_test(test_nothing_takes_less_than_no_time),
                                       cmocka_unit_test(test_what_is_run_again)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
