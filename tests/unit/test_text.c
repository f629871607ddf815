/* SPDX-License-Identifier: Apache-2.0
 *
 * Texts that are put together: what fits, and what does not.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "core/base/text.h"

static void test_pieces(void **state)
{
    (void)state;
    char buf[8] = "before";
    struct pp_text text = pp_text_in(buf, sizeof buf);
    assert_string_equal(buf, "");
    assert_string_equal(pp_text_between(&text, ", "), "");
    pp_text_add(&text, "%d", 12);
    pp_text_add(&text, "%s%s", pp_text_between(&text, ", "), "abc");
    assert_true(pp_text_fits(&text) && text.used == 7);
    assert_string_equal(buf, "12, abc");
}

/* The first piece that does not fit is cut off, and so are all behind it; the byte behind the buffer is not touched. */
static void test_what_does_not_fit_is_counted(void **state)
{
    (void)state;
    char buf[9] = "........";
    struct pp_text text = pp_text_in(buf, 8);
    buf[8] = '!';
    pp_text_add(&text, "1234567");
    assert_true(pp_text_fits(&text));
    pp_text_add(&text, "89");
    assert_true(!pp_text_fits(&text) && text.used == 9);
    pp_text_add(&text, "%s", "0");
    assert_int_equal(text.used, 10);
    assert_string_equal(buf, "1234567");
    assert_int_equal(buf[8], '!');
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_pieces),
                                       cmocka_unit_test(test_what_does_not_fit_is_counted)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
