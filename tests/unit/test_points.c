/* SPDX-License-Identifier: Apache-2.0
 *
 * Points of --overlap-tensor-sums: a list of numbers of pieces, or what suits the microbatches.
 */
#include <stdlib.h>

#include "kernels/model.h"
#include "schedules/schedule.h"
#include "tests/unit/config_case.h"

static void configure(struct pp_config *config, const char *line)
{
    if (parse(PP_PPSIM, line, config) != PP_OK) fail_msg("%s", pp_message());
}

static void test_sweep_of_pieces(void **state)
{
    struct pp_config config;
    struct pp_point *points;
    int n;
    (void)state;
    configure(&config, "--schedule gpipe,1f1b --tensor 2,1,4 --overlap-tensor-sums 4,1 --stages 1,2");
    assert_int_equal(pp_points(&config, &pp_schedules, &points, &n), PP_OK);
    assert_int_equal(n, 20); /* where nobody sums, one number of pieces is enough */
    for (int i = 0; i < n; i++) {
        static const int tensor[] = {2, 2, 2, 2, 1, 1, 4, 4, 4, 4}, pieces[] = {4, 4, 1, 1, 1, 1, 4, 4, 1, 1};
        assert_string_equal(points[i].schedule, i < 10 ? "gpipe" : "1f1b");
        assert_int_equal(points[i].tensor, tensor[i % 10]);
        assert_int_equal(points[i].sum_pieces, pieces[i % 10]);
        assert_int_equal(points[i].ranks, i % 2 ? 2 : 1);
    }
    char text[PP_POINT_TEXT];
    assert_string_equal(pp_point_text(&points[7], text),
                        "gpipe, 2 stages x tensor 4, sums in up to 4 pieces, 4 chunks");
    free(points);
}

/* 0 chooses by the bytes of a microbatch's stream: rows tokens d bytes. */
static void test_pieces_that_suit(void **state)
{
    static const struct {
        const char *options;
        int pieces[3]; /* of 4, 2 and 1 chunks of 4 rows */
    } cases[] = {{"--tokens 4096 --d-model 1024 --precision bf16", {1, 1, 2}},
                 {"--tokens 4096 --d-model 4096 --precision bf16", {2, 2, 4}},
                 {"--tokens 4096 --d-model 4096", {2, 4, 4}},
                 {"--tokens 4094 --d-model 4096 --precision bf16", {1, 2, 2}},
                 {"--tokens 8192 --d-model 8192 --precision bf16 --context-parallel 4", {2, 2, 4}}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct pp_config config;
        struct pp_point *points;
        char line[256];
        int n;
        snprintf(line, sizeof line, "--schedule gpipe --stages 1 --rows 4 --chunks 4,2,1 --tensor 4,1 %s %s",
                 "--overlap-tensor-sums 0 --heads 8", cases[i].options);
        configure(&config, line);
        assert_int_equal(pp_points(&config, &pp_schedules, &points, &n), PP_OK);
        assert_int_equal(n, 6);
        for (int c = 0; c < 6; c++) assert_int_equal(points[c].sum_pieces, c < 3 ? cases[i].pieces[c] : 1);
        free(points);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_sweep_of_pieces), cmocka_unit_test(test_pieces_that_suit)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
