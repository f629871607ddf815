/* SPDX-License-Identifier: Apache-2.0
 *
 * Texts, line by line; also of streams that fail.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include <errno.h>

#include "core/base/lines.h"

static char taken[256]; /* all lines, each with a bar behind it */

static pp_status take(void *arg, char *line)
{
    (void)arg;
    const size_t used = strlen(taken);
    snprintf(taken + used, sizeof taken - used, "%s|", line);
    return strcmp(line, "no") ? PP_OK : pp_fail(PP_INPUT, "that is no line");
}

static pp_status read_all(FILE *in, int *number)
{
    assert_non_null(in);
    taken[0] = '\0';
    const pp_status status = pp_lines_each(in, number, take, NULL);
    assert_int_equal(fclose(in), 0);
    return status;
}

static FILE *text_of(const char *text, size_t size) { return fmemopen((char *)text, size, "r"); /* it is only read */ }

static void test_lines_have_neither_ends_nor_a_mark(void **state)
{
    (void)state;
    static const char text[] = "\xef\xbb\xbf"
                               "one\r\n\ntwo\n\xef\xbb\xbfthree\r";
    int number;
    assert_int_equal(read_all(text_of(text, sizeof text - 1), &number), PP_OK);
    assert_string_equal(taken, "one||two|\xef\xbb\xbfthree|");
}

static void test_the_line_that_fails_is_the_last_and_has_its_number(void **state)
{
    (void)state;
    static const char text[] = "one\nno\ntwo\n", zero[] = "one\nt\0o\n";
    int number;
    assert_int_equal(read_all(text_of(text, sizeof text - 1), &number), PP_INPUT);
    assert_string_equal(taken, "one|no|");
    assert_int_equal(number, 2);
    assert_int_equal(read_all(text_of(zero, sizeof zero - 1), &number), PP_INPUT);
    assert_string_equal(taken, "one|");
    assert_int_equal(number, 2);
}

/* A text in parts, of which one cannot be read; the next one can. */
static const char *const parts[] = {"one\ntw", NULL, "o\nthree\n", ""};

static ssize_t read_part(void *cookie, char *data, size_t size)
{
    const char *part = parts[(*(int *)cookie)++];
    if (!part) {
        errno = EIO;
        return -1;
    }
    assert_true(strlen(part) <= size);
    memcpy(data, part, strlen(part));
    return (ssize_t)strlen(part);
}

static void test_a_line_that_cannot_be_read_to_its_end_is_none(void **state)
{
    (void)state;
    int part = 0, number;
    FILE *in = fopencookie(&part, "r", (cookie_io_functions_t){.read = read_part});
    assert_int_equal(read_all(in, &number), PP_IO);
    assert_string_equal(taken, "one|");
    assert_int_equal(number, 2);
    assert_non_null(strstr(pp_message(), strerror(EIO)));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lines_have_neither_ends_nor_a_mark),
        cmocka_unit_test(test_the_line_that_fails_is_the_last_and_has_its_number),
        cmocka_unit_test(test_a_line_that_cannot_be_read_to_its_end_is_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
