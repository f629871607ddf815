/* SPDX-License-Identifier: Apache-2.0
 *
 * The compute order of every rank, as the CSV that ppkit writes, against PyTorch's and Megatron-LM's for the cases in
 * tests/golden/orders/ (made by tests/oracle/make_orders.py). A case there is a line "# P V M", or "# P V M N" for
 * NAME:N, and then one row per rank: "0F0,0F1,0B0,...".
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "schedules/csv.h"
#include "schedules/schedule.h"

enum { ROW_MAX = 16384 };

/* The plan as CSV; the caller frees it. */
static char *build_csv(const struct pp_plan_spec *spec)
{
    struct pp_plan *plan = NULL;
    if (pp_schedules.build(spec, &plan) != PP_OK) {
        print_error("%s P=%d V=%d M=%d: %s\n", spec->schedule, spec->ranks, spec->virtual_stages, spec->microbatches,
                    pp_message());
        return NULL;
    }
    char *text = NULL;
    size_t size = 0;
    FILE *memory = open_memstream(&text, &size);
    assert_non_null(memory);
    assert_int_equal(pp_plan_csv(plan, memory), PP_OK);
    fclose(memory);
    pp_plan_free(plan);
    return text;
}

static void compare_case(const struct pp_plan_spec *spec, FILE *golden)
{
    char expected[ROW_MAX];
    char *csv = build_csv(spec), *rest = csv;
    assert_non_null(csv);
    for (int rank = 0; rank < spec->ranks; rank++) {
        const char *row = strsep(&rest, "\n");
        assert_non_null(row);
        assert_non_null(fgets(expected, sizeof expected, golden));
        expected[strcspn(expected, "\n")] = '\0';
        if (strcmp(row, expected) != 0)
            fail_msg("%s P=%d V=%d M=%d rank %d:\n  ppkit  %s\n  golden %s", spec->schedule, spec->ranks,
                     spec->virtual_stages, spec->microbatches, rank, row, expected);
    }
    assert_string_equal(rest, "");
    free(csv);
}

static void compare_file(void **state)
{
    const char *file = *state;
    char path[4096], line[ROW_MAX], name[PP_SCHEDULE_NAME];
    snprintf(path, sizeof path, "%s/golden/orders/%s.csv", PP_TEST_FILES, file);
    FILE *golden = fopen(path, "r");
    assert_non_null(golden);
    int cases = 0;
    while (fgets(line, sizeof line, golden)) {
        struct pp_plan_spec spec = {.schedule = file, .replicas = 1, .training = true};
        int turn, n = sscanf(line, "# %d %d %d %d", &spec.ranks, &spec.virtual_stages, &spec.microbatches, &turn);
        assert_true(n == 3 || n == 4);
        if (n == 4) {
            snprintf(name, sizeof name, "interleaved:%d", turn);
            spec.schedule = name;
        }
        compare_case(&spec, golden);
        cases++;
    }
    fclose(golden);
    assert_true(cases > 25);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        {"gpipe as PyTorch", compare_file, NULL, NULL, "gpipe"},
        {"1f1b as PyTorch", compare_file, NULL, NULL, "1f1b"},
        {"interleaved as PyTorch", compare_file, NULL, NULL, "interleaved"},
        {"interleaved:N as Megatron-LM", compare_file, NULL, NULL, "interleaved-megatron"},
        {"interleaved-zb as PyTorch", compare_file, NULL, NULL, "interleaved-zb"},
        {"zbv as PyTorch", compare_file, NULL, NULL, "zbv"},
        {"dualpipev as PyTorch", compare_file, NULL, NULL, "dualpipev"},
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
