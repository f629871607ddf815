/* SPDX-License-Identifier: Apache-2.0
 *
 * A test program whose argument says which of its tests run.
 */
#ifndef PP_TESTS_TEST_FILTER_H
#define PP_TESTS_TEST_FILTER_H

#include <fnmatch.h>
#include <stdio.h>

/* Include cmocka.h, and what that needs, before. Sets the filter of CMocka, which takes it for a success if no test
 * matches. False, with a message, if none does. */
static inline bool filter_tests(const char *pattern, const struct CMUnitTest *tests, size_t n)
{
    cmocka_set_test_filter(pattern);
    for (size_t i = 0; i < n; i++)
        if (fnmatch(pattern, tests[i].name, 0) == 0) return true;
    fprintf(stderr, "no test matches %s\n", pattern);
    return false;
}

#endif
