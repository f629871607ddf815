/* SPDX-License-Identifier: Apache-2.0
 *
 * Files of algorithms: what is refused. (test_products.c reads what was written, algorithm_files.test uses such files.)
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "kernels/cuda/algorithms.h"

#define TITLE "ppkit algorithms 1"

/* A file with this title and a line for this product. */
static pp_status read_algorithm(const char *title, const char *product)
{
    struct pp_algorithms read;
    FILE *out = fopen("algorithms", "w");
    assert_non_null(out);
    fprintf(out, "%s\ngpu a GPU\ncublas %zu\n", title, cublasLtGetVersion());
    fprintf(out, "%s fp32 narrow align 16,16,16 sms 0 algorithm %0128d # the best\n", product, 0);
    assert_int_equal(fclose(out), 0);
    pp_algorithms_begin(&read, "a GPU");
    const pp_status status = pp_algorithms_read(&read, "algorithms");
    assert_int_equal(read.n, status == PP_OK);
    pp_algorithms_free(&read);
    return status;
}

static void test_a_file_of_another_kind_is_none(void **state)
{
    (void)state;
    static const char *const titles[] = {"ppkit algorithms 10", "ppkit algorithms 2", "ppkit algorithms", "",
                                         TITLE "\n"};
    assert_int_equal(read_algorithm(TITLE, "gemm_nt 27x36x12 times8"), PP_OK);
    for (size_t i = 0; i < sizeof titles / sizeof *titles; i++) {
        if (read_algorithm(titles[i], "gemm_nt 27x36x12") != PP_INPUT) fail_msg("title %s", titles[i]);
        assert_non_null(strstr(pp_message(), "algorithms is no file of algorithms"));
    }
}

static void test_a_file_that_ends_within_its_head_is_none(void **state)
{
    (void)state;
    static const char *const heads[] = {"", TITLE "\n", TITLE "\ngpu a GPU\n"};
    for (size_t i = 0; i < sizeof heads / sizeof *heads; i++) {
        struct pp_algorithms read;
        FILE *out = fopen("algorithms", "w");
        assert_non_null(out);
        fputs(heads[i], out);
        assert_int_equal(fclose(out), 0);
        pp_algorithms_begin(&read, "a GPU");
        assert_int_equal(pp_algorithms_read(&read, "algorithms"), PP_INPUT);
        assert_non_null(strstr(pp_message(), "algorithms is no file of algorithms"));
        pp_algorithms_free(&read);
    }
}

static void test_numbers_are_whole_and_no_larger_than_an_int(void **state)
{
    (void)state;
    static const char *const products[] = {"gemm_nt 4294967323x36x12",
                                           "gemm_nt 2147483648x36x12",
                                           "gemm_nt 27x99999999999999999999x12",
                                           "gemm_nt 27x36x-1",
                                           "gemm_nt 27x36",
                                           "gemm_nt 27x36x12 times",
                                           "gemm_nt 27x36x12 times4294967304",
                                           "gemm_no 27x36x12"};
    assert_int_equal(read_algorithm(TITLE, "gemm_nt 2147483647x36x12"), PP_OK);
    for (size_t i = 0; i < sizeof products / sizeof *products; i++) {
        if (read_algorithm(TITLE, products[i]) != PP_INPUT) fail_msg("%s", products[i]);
        assert_non_null(strstr(pp_message(), "algorithms, line 4, is no algorithm"));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_file_of_another_kind_is_none),
        cmocka_unit_test(test_a_file_that_ends_within_its_head_is_none),
        cmocka_unit_test(test_numbers_are_whole_and_no_larger_than_an_int),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
