/* SPDX-License-Identifier: Apache-2.0
 *
 * What ppprof prints for programs: one record a line, whatever stands in a name.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>

#include "core/options/config.h"
#include "kernels/profile_print.h"

static char *printed(int format, const struct pp_link_profile *links)
{
    struct pp_profile profile = {0};
    char *text;
    size_t size;
    FILE *out = open_memstream(&text, &size);
    assert_int_equal(pp_profile_print(out, format, &profile, links), PP_OK);
    fclose(out);
    return text;
}

static const struct pp_link_profile links = {
    .nsamples = 1,
    .samples = {{.name = "inproc \"p2p\"",
                 .context = "warm\\cold",
                 .load = 2,
                 .bytes = 4096,
                 .count = 9,
                 .median_ns = 20000000000,
                 .mean_ns = 7,
                 .p5_ns = 5,
                 .p95_ns = 95,
                 .min_ns = 4}},
    .nfigures = 2,
    .figures = {{"inproc p2p", "ns_per_byte", 0.12345678912345}, {"worker", "cost", 3}}};

static void test_json(void **state)
{
    (void)state;
    char *text = printed(PP_FORMAT_JSON, &links);
    const char *first = "[\n  {\"what\": \"link\", \"name\": \"inproc \\\"p2p\\\"\", \"context\": \"warm\\\\cold\", "
                        "\"load\": 2, \"bytes\": 4096, \"count\": 9, \"median_ns\": 20000000000, \"mean_ns\": 7, "
                        "\"p5_ns\": 5, \"p95_ns\": 95, \"min_ns\": 4, \"gflops\": null, \"residual_ns\": null, "
                        "\"host_ns\": null, \"value\": null},\n  {\"what\": \"parameter\"";
    assert_int_equal(strncmp(text, first, strlen(first)), 0);
    assert_non_null(strstr(text, "\"value\": 0.1234567891},\n"));
    assert_non_null(strstr(text, "\"value\": 3},\n"));
    json_t *all = json_loads(text, 0, NULL);
    assert_int_equal(json_array_size(all), 1 + 2 + 3); /* and the reference kernel, before, during and after */
    assert_string_equal(json_string_value(json_object_get(json_array_get(all, 0), "name")), links.samples[0].name);
    json_decref(all);
    free(text);
}

static void test_tsv(void **state)
{
    (void)state;
    char *text = printed(PP_FORMAT_TSV, &links);
    const char *lines = "what\tname\tcontext\tload\tbytes\tcount\tmedian_ns\tmean_ns\tp5_ns\tp95_ns\tmin_ns\tgflops\t"
                        "residual_ns\thost_ns\tvalue\n"
                        "link\tinproc \"p2p\"\twarm\\cold\t2\t4096\t9\t20000000000\t7\t5\t95\t4\t\t\t\t\n"
                        "parameter\tinproc p2p\tns_per_byte\t\t\t\t\t\t\t\t\t\t\t\t0.1234567891\n";
    assert_int_equal(strncmp(text, lines, strlen(lines)), 0);
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_json), cmocka_unit_test(test_tsv)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
