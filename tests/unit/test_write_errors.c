/* SPDX-License-Identifier: Apache-2.0
 *
 * Streams of which one write has failed: what is said when they are closed, and the next ones have succeeded.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include <errno.h>

#include "analysis/plot.h"
#include "schedules/builder.h"
#include "schedules/csv.h"

/* The first write fails; as in the C library 0 bytes are an error. */
static ssize_t write_but_first(void *cookie, const char *data, size_t size)
{
    (void)data;
    errno = ENOSPC;
    return (*(int *)cookie)++ > 0 ? (ssize_t)size : 0;
}

/* All that is written is a call, at once. */
static FILE *failing(int *calls)
{
    *calls = 0;
    FILE *out = fopencookie(calls, "w", (cookie_io_functions_t){.write = write_but_first});
    assert_non_null(out);
    assert_int_equal(setvbuf(out, NULL, _IONBF, 0), 0);
    return out;
}

static void check_message(void)
{
    if (!strstr(pp_message(), "not all of it could be written")) fail_msg("%s", pp_message());
}

static void test_a_picture_is_refused_without_the_reason_of_another_call(void **state)
{
    (void)state;
    const struct pp_plots plots = {.folder = "."};
    int calls;
    FILE *out = failing(&calls);
    fputs("1\n", out);
    fputs("2\n", out);
    errno = ENOENT; /* of something else */
    assert_int_equal(pp_plot_close(&plots, "some.dat", out), PP_IO);
    check_message();
}

static void test_a_schedule_is_refused_without_the_reason_of_another_call(void **state)
{
    (void)state;
    const struct pp_plan_spec spec = {
        .schedule = "gpipe", .ranks = 2, .virtual_stages = 1, .microbatches = 2, .replicas = 1, .recv_buffers = 2};
    struct pp_plan *plan;
    int calls;
    FILE *out = failing(&calls);
    assert_int_equal(pp_plan_build(&spec, &plan), PP_OK);
    assert_int_equal(pp_plan_csv(plan, out), PP_IO);
    check_message();
    assert_true(calls > 1);
    pp_plan_free(plan);
    (void)fclose(out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_picture_is_refused_without_the_reason_of_another_call),
        cmocka_unit_test(test_a_schedule_is_refused_without_the_reason_of_another_call),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
