/* SPDX-License-Identifier: Apache-2.0
 *
 * Arrays that grow; text that anybody wrote.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/base/printable.h"
#include "core/base/status.h"

/* AddressSanitizer: what cannot be allocated is NULL, as elsewhere. */
__attribute__((visibility("default"))) const char *__asan_default_options(void);
const char *__asan_default_options(void) { return "allocator_may_return_null=1"; }

static void test_elements_stay(void **state)
{
    enum { N = 10000 };
    int *v = NULL, moves = 0;
    int64_t room = 0;
    (void)state;
    for (int i = 0; i < N; i++) {
        const int64_t before = room;
        assert_int_equal(PP_GROW(&v, i + 1, &room), PP_OK);
        assert_true(room > i);
        moves += room != before;
        v[i] = i;
    }
    for (int i = 0; i < N; i++) assert_int_equal(v[i], i);
    assert_true(moves < 16);
    free(v);
}

static void test_many_at_once(void **state)
{
    double *v = NULL;
    int64_t room = 0;
    (void)state;
    assert_int_equal(PP_GROW(&v, 1000, &room), PP_OK);
    assert_true(room >= 1000);
    v[999] = 1;
    free(v);
}

static void test_refused(void **state)
{
    double *v = NULL;
    int64_t room = 0;
    (void)state;
    assert_int_equal(PP_GROW(&v, 1, &room), PP_OK);
    v[0] = 5;
    const int64_t before = room;
    const double *const there = v;
    assert_int_equal(PP_GROW(&v, INT64_MAX / 16, &room), PP_NOMEM);
    assert_non_null(strstr(pp_message(), "cannot allocate"));
    assert_int_equal(room, before);
    assert_ptr_equal(v, there);
    assert_true(v[0] == 5);
    free(v);
}

static void test_printable(void **state)
{
    (void)state;
    static const struct {
        const char *text, *printable;
    } cases[] = {{"", ""},
                 {"plain ~ text", "plain ~ text"},
                 {"\t a\nb\x1b[31m\x7f", "? a?b?[31m?"},
                 {"\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80", "\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80"},
                 {"\xc2\x9b \xc2\xa0", "?? \xc2\xa0"},                     /* a control character of two bytes */
                 {"\xff \x80 \xc3 \xe2\x82", "? ? ? ??"},                  /* no UTF-8 */
                 {"\xc1\x81 \xe0\x80\x8a \xed\xa0\x80", "?? ??? ???"},     /* too long, a surrogate */
                 {"\xf4\x90\x80\x80 \xf8\x88\x80\x80\x80", "???? ?????"}}; /* too large */
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[32];
        assert_true(strlen(cases[i].text) < sizeof text);
        memcpy(text, cases[i].text, strlen(cases[i].text) + 1);
        assert_string_equal(pp_printable(text), cases[i].printable);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_elements_stay),
        cmocka_unit_test(test_many_at_once),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_printable),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
