/* SPDX-License-Identifier: Apache-2.0
 *
 * Names of programs in tables: what they share is told once.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "kernels/short_names.h"

enum { MOST = 8 };

static void check(const char *const *names, int n, int room, const char *left_out, const char *const *expected)
{
    struct pp_short_names made;
    assert_int_equal(pp_short_names_make(names, n, room, &made), PP_OK);
    assert_string_equal(made.left_out, left_out);
    for (int i = 0; i < n; i++) assert_string_equal(made.names[i], expected[i]);
    pp_short_names_free(&made);
}

/* Of a step also what only some tasks of microbatches lack; and the same word behind "B" is another one. */
static void what_all_microbatches_share_is_left_out(void **state)
{
    (void)state;
    const char *const names[] = {
        "F 2l+emb d64 h4 ff128 v1000 causal pre seq16 rows2", "F 2l d64 h4 ff128 causal pre seq16 rows2",
        "B 2l d64 h4 ff128 causal pre again2 seq16 rows1", "STEP 2l+dec d64 ff128 v1000 pre adamw"};
    const char *const expected[] = {"F 2l+emb v1000 rows2", "F 2l rows2", "B 2l again2 rows1",
                                    "STEP 2l+dec v1000 adamw"};
    check(names, 4, 48, "d64 h4 ff128 causal pre seq16", expected);
    check(names, 4, (int)strlen(names[0]), "", names);
    check(names, 4, (int)strlen(names[0]) - 1, "d64 h4 ff128 causal pre seq16", expected);
}

static void a_word_is_not_a_part_of_another(void **state)
{
    (void)state;
    const char *const names[] = {"F 1l d64 h4 seq16 rows2", "F 1l d64 h4x32 seq160 rows2"};
    const char *const expected[] = {"F 1l h4 seq16 rows2", "F 1l h4x32 seq160 rows2"};
    check(names, 2, 10, "d64", expected);
}

static void names_of_one_task_and_of_steps_alone_say_what_is_done(void **state)
{
    (void)state;
    const char *const one[] = {"F 1l d64 seq16 rows2"}, *const left[] = {"F 1l rows2"};
    check(one, 1, 10, "d64 seq16", left);
    const char *const steps[] = {"STEP 1l+emb d64 ff128 v1000", "NORM 1l d64 ff128"};
    check(steps, 2, 10, "", steps);
    check(steps, 0, 10, "", steps);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(what_all_microbatches_share_is_left_out),
                                       cmocka_unit_test(a_word_is_not_a_part_of_another),
                                       cmocka_unit_test(names_of_one_task_and_of_steps_alone_say_what_is_done)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
