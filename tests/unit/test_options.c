/* SPDX-License-Identifier: Apache-2.0 */
#include "core/options/options.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

struct sample {
    bool flag;
    int number, choice, any;
    uint64_t seed;
    int64_t bytes;
    double real;
    const char *text;
    struct pp_ints choices, ints;
    struct pp_texts texts;
    struct pp_reals reals;
    double amount;
};

#define AT(field) offsetof(struct sample, field)

static const struct pp_opt rows[] = {
    {"flag", PP_OPT_FLAG, AT(flag), PP_ALL_TOOLS, "One", NULL, NULL, 0, 0, NULL, "a flag"},
    {"number", PP_OPT_INT, AT(number), PP_ALL_TOOLS, "One", NULL, "7", 1, 10, NULL, "a number"},
    {"choice", PP_OPT_CHOICE, AT(choice), PP_ALL_TOOLS, "One", NULL, "beta", 0, 0, "alpha|beta", "a choice"},
    {"seed", PP_OPT_SEED, AT(seed), PP_ALL_TOOLS, "Two", NULL, "1", 0, 0, NULL, "a seed"},
    {"bytes", PP_OPT_BYTES, AT(bytes), PP_ALL_TOOLS, "Two", NULL, NULL, 0, 0, NULL, "a size"},
    {"real", PP_OPT_REAL, AT(real), PP_ALL_TOOLS, "Two", NULL, "0.1", 0, 1, NULL, "a real"},
    {"text", PP_OPT_TEXT, AT(text), PP_ALL_TOOLS, "Two", "FILE", NULL, 0, 0, NULL, "a text"},
    {"choices", PP_OPT_CHOICES, AT(choices), PP_ALL_TOOLS, "Two", NULL, NULL, 0, 0, "alpha|beta|some:N",
     "some choices"},
    {"ints", PP_OPT_INTS, AT(ints), PP_ALL_TOOLS, "Two", NULL, "1,2", 1, 64, NULL, "numbers"},
    {"texts", PP_OPT_TEXTS, AT(texts), PP_ALL_TOOLS, "Two", NULL, NULL, 0, 0, NULL, "words"},
    {"reals", PP_OPT_REALS, AT(reals), PP_ALL_TOOLS, "Two", NULL, NULL, 0.5, 8, NULL, "reals"},
    {"amount", PP_OPT_AMOUNT, AT(amount), PP_ALL_TOOLS, "Two", NULL, NULL, 1, 1e18, NULL, "many"},
    {"any", PP_OPT_INT, AT(any), PP_ALL_TOOLS, "Two", NULL, NULL, 0, 0, NULL, "a number without limits"},
    {"elsewhere", PP_OPT_FLAG, AT(flag), PP_PPEXEC, "Two", NULL, NULL, 0, 0, NULL, "not of ppsim"},
    {"others", PP_OPT_FLAG, AT(flag), PP_ALL_TOOLS & ~PP_PPSIM, "Two", NULL, NULL, 0, 0, NULL, "not of ppsim"},
};

enum { ROWS = sizeof rows / sizeof *rows };

/* Result of one parse. */
struct parsed {
    struct sample sample;
    bool set[ROWS];
    const char *operand;
};

/* Parses `line`, words apart by one blank. The words live in a static buffer until the next call. */
static pp_status parse(const char *line, struct parsed *out)
{
    static char words[4 * PP_OPTION_TEXT];
    char *argv[32] = {"ppsim"};
    int argc = 1;
    snprintf(words, sizeof words, "%s", line);
    for (char *word = strtok(words, " "); word; word = strtok(NULL, " ")) argv[argc++] = word;
    memset(out, 0, sizeof *out);
    const struct pp_options_call call = {rows, ROWS, PP_PPSIM, &out->sample, out->set, &out->operand};
    return pp_options_parse(&call, argc, argv);
}

static void defaults_come_from_the_table(void **state)
{
    (void)state;
    struct parsed p;
    assert_int_equal(parse("", &p), PP_OK);
    assert_int_equal(p.sample.number, 7);
    assert_int_equal(p.sample.choice, 1);
    assert_true(p.sample.real == 0.1);
    assert_int_equal(p.sample.ints.n, 2);
    assert_null(p.sample.text);
    for (int i = 0; i < ROWS; i++) assert_false(p.set[i]);
}

static void values_stand_apart_or_behind_an_equals_sign(void **state)
{
    (void)state;
    struct parsed p;
    assert_int_equal(parse("--number=3 --choice alpha --flag --text=a=b --ints 4,8,16 --texts x,yy file", &p), PP_OK);
    assert_int_equal(p.sample.number, 3);
    assert_int_equal(p.sample.choice, 0);
    assert_true(p.sample.flag);
    assert_string_equal(p.sample.text, "a=b");
    assert_int_equal(p.sample.ints.n, 3);
    assert_int_equal(p.sample.ints.v[2], 16);
    assert_int_equal(p.sample.texts.n, 2);
    assert_string_equal(p.sample.texts.v[1], "yy");
    assert_string_equal(p.operand, "file");
    assert_true(p.set[0] && p.set[1] && p.set[2] && !p.set[3]);
}

static void the_last_one_counts(void **state)
{
    (void)state;
    struct parsed p;
    assert_int_equal(parse("--number 3 --number 4 --ints 5 --ints 6,7", &p), PP_OK);
    assert_int_equal(p.sample.number, 4);
    assert_int_equal(p.sample.ints.n, 2);
    assert_int_equal(p.sample.ints.v[0], 6);
}

static void two_dashes_end_the_options(void **state)
{
    (void)state;
    struct parsed p;
    assert_int_equal(parse("-- --flag", &p), PP_OK);
    assert_false(p.sample.flag);
    assert_string_equal(p.operand, "--flag");
}

static void sizes_have_units(void **state)
{
    (void)state;
    static const struct {
        const char *line;
        int64_t bytes;
    } cases[] = {{"--bytes 1048576", 1048576},
                 {"--bytes 3B", 3},
                 {"--bytes 3K", 3072},
                 {"--bytes 3KiB", 3072},
                 {"--bytes 3KB", 3000},
                 {"--bytes 1.5M", 1572864},
                 {"--bytes 3MiB", 3145728},
                 {"--bytes 3MB", 3000000},
                 {"--bytes 80G", 85899345920},
                 {"--bytes 3GiB", 3221225472},
                 {"--bytes 3GB", 3000000000},
                 {"--bytes 3T", 3298534883328},
                 {"--bytes 3TiB", 3298534883328},
                 {"--bytes 3TB", 3000000000000},
                 {"--bytes 4194304T", 1LL << 62}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct parsed p;
        assert_int_equal(parse(cases[i].line, &p), PP_OK);
        assert_int_equal(p.sample.bytes, cases[i].bytes);
    }
}

static void amounts_have_decimal_units(void **state)
{
    (void)state;
    static const struct {
        const char *line;
        double amount;
    } cases[] = {{"--amount 300e9", 300e9}, {"--amount 15T", 15e12},  {"--amount 2B", 2e9},
                 {"--amount 2G", 2e9},      {"--amount 500M", 500e6}, {"--amount 1.5K", 1500}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct parsed p;
        assert_int_equal(parse(cases[i].line, &p), PP_OK);
        assert_true(p.sample.amount == cases[i].amount);
    }
}

static void mistakes_are_named(void **state)
{
    (void)state;
    static const struct {
        const char *line, *message;
    } cases[] = {
        {"--amount 15Q", "'15Q' is not a number such as 300e9, 300B or 15T"},
        {"--amount 15TB", "'15TB' is not a number"},
        {"--amount T", "'T' is not a number"},
        {"--amount 2e6T", "2e6T is outside"},
        {"--text -", "'-' is no name"},
        {"--numbre 3", "did you mean --number?"},
        {"--num 3", "did you mean --number?"}, /* never abbreviated */
        {"--completely-different", "--help lists"},
        {"--elsewhere", "an option of ppexec, not of ppsim"},
        {"--others", "an option of ppexec, ppprof and ppreport, not of ppsim"},
        {"-n 3", "two dashes"},
        {"--number", "value is missing"},
        {"--number three", "not a whole number"},
        {"--number 3x", "not a whole number"},
        {"--number 11", "11 is outside 1..10"},
        {"--number 0", "--number: 0 is below 1"},
        {"--number 99999999999999999999", "is outside 1..10"},
        {"--number -99999999999999999999", "is below 1"},
        {"--any 2147483648", "too large a number"},
        {"--any -99999999999999999999", "too small a number"},
        {"--ints 1,-99999999999", "--ints: -99999999999 is below 1"},
        {"--flag=yes", "takes no value"},
        {"--choice gamma", "there is no 'gamma'"},
        {"--choice alpa", "did you mean alpha?"},
        {"--choices beta,alpa", "did you mean alpha?"},
        {"--choices some:0", "there is no 'some:0'"},
        {"--choices some:1x", "there is no 'some:1x'"},
        {"--choices some:65537", "there is no 'some:65537'"},
        {"--choices some:N", "there is no 'some:N'"},
        {"--choices beta,", "empty entry"},
        {"--seed -1", "0 to 2^64 - 1"},
        {"--bytes 3X", "not a size"},
        {"--bytes -3", "no size"},
        {"--bytes 4194305T", "4194305T is no size"}, /* more than 2^62 */
        {"--real nan", "not a number"},
        {"--real 1e999", "not a number"},
        {"--real 0.5x", "not a number"},
        {"--real 2", "outside 0..1"},
        {"--text=", "empty"},
        {"--ints 1,,2", "empty entry"},
        {"--ints 1,", "empty entry"},
        {"--ints 1,65", "outside 1..64"},
        {"--reals 1,,2", "empty entry"},
        {"--reals 1,2x", "'2x' is not a number"},
        {"--reals 1,0", "--reals: 0 is below 0.5"},
        {"--reals 1,nan", "not a number"},
        {"one two", "'two' is neither"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct parsed p;
        assert_int_equal(parse(cases[i].line, &p), PP_USAGE);
        if (!strstr(pp_message(), cases[i].message)) fail_msg("'%s' gave '%s'", cases[i].line, pp_message());
    }
}

static void numbers_are_decimal(void **state)
{
    (void)state;
    static const char *const lines[] = {"--amount 0x1B" /* 27 */, "--bytes 0x1p30B", "--real 0X0.8", "--real +0x0",
                                        "--reals 1,0x2"};
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        struct parsed p;
        assert_int_equal(parse(lines[i], &p), PP_USAGE);
        if (!strstr(pp_message(), "' is not a number")) fail_msg("'%s' gave '%s'", lines[i], pp_message());
    }
}

/* Also where both are spelled differently. */
static void what_a_list_names_twice_is_there_once(void **state)
{
    (void)state;
    struct parsed p;
    assert_int_equal(parse("--ints 4,2,04,4,8 --texts b,a,b,bb --choices beta,some:12,alpha,beta,some:12,some:1", &p),
                     PP_OK);
    const struct {
        const char *option, *text;
    } kept[] = {{"ints", "4,2,8"}, {"texts", "b,a,bb"}, {"choices", "beta,some:12,alpha,some:1"}};
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++)
        for (int row = 0; row < ROWS; row++) {
            char text[PP_OPTION_TEXT];
            if (strcmp(rows[row].name, kept[i].option) != 0) continue;
            assert_string_equal(pp_options_text(&rows[row], &p.sample, text), kept[i].text);
        }
}

static void reals_are_all_there(void **state)
{
    (void)state;
    char text[PP_OPTION_TEXT];
    int row = 0;
    struct parsed p;
    assert_int_equal(parse("--reals 2,1.5,2,2.0,0.7", &p), PP_OK);
    assert_int_equal(p.sample.reals.n, 5);
    assert_true(p.sample.reals.v[1] == 1.5 && p.sample.reals.v[3] == 2);
    while (strcmp(rows[row].name, "reals") != 0) row++;
    assert_string_equal(pp_options_text(&rows[row], &p.sample, text), "2,1.5,2,2,0.7");
    assert_int_equal(parse("", &p), PP_OK);
    assert_int_equal(p.sample.reals.n, 0);
}

/* However long they are. */
static void texts_are_not_cut(void **state)
{
    (void)state;
    char line[3 * PP_OPTION_TEXT] = "--text ", buf[PP_OPTION_TEXT];
    int row = 0;
    struct parsed p;
    memset(line + strlen(line), 'x', 2 * PP_OPTION_TEXT);
    assert_int_equal(parse(line, &p), PP_OK);
    while (strcmp(rows[row].name, "text") != 0) row++;
    assert_int_equal(strlen(pp_options_text(&rows[row], &p.sample, buf)), 2 * PP_OPTION_TEXT);
}

static void a_list_may_be_full_but_not_more(void **state)
{
    (void)state;
    char line[512] = "--ints 1";
    struct parsed p;
    for (int i = 2; i <= PP_LIST_MAX; i++) snprintf(line + strlen(line), 16, ",%d", i);
    assert_int_equal(parse(line, &p), PP_OK);
    assert_int_equal(p.sample.ints.n, PP_LIST_MAX);
    strcat(line, ",3");
    assert_int_equal(parse(line, &p), PP_USAGE);
}

static void values_print_as_text_that_parses_back(void **state)
{
    (void)state;
    struct parsed p, again;
    assert_int_equal(parse("", &again), PP_OK);
    assert_int_equal(parse("--number 9 --choice alpha --seed 0xffffffffffffffff --bytes 3G --real 0.30000000000000004 "
                           "--text t --choices beta,alpha --ints 3,1 --texts a,b --reals 0.7,0.7 --amount 15T "
                           "--flag",
                           &p),
                     PP_OK);
    for (int i = 0; i < ROWS; i++) {
        char buf[PP_OPTION_TEXT], other[PP_OPTION_TEXT];
        const char *text = pp_options_text(&rows[i], &p.sample, buf);
        assert_int_equal(pp_options_set(&rows[i], text, &again.sample), PP_OK);
        assert_string_equal(text, pp_options_text(&rows[i], &again.sample, other));
    }
    assert_true(again.sample.seed == UINT64_MAX);
    assert_int_equal(parse("--bytes 80g --amount 15t", &p), PP_OK);
    assert_true(p.sample.bytes == 80LL << 30 && p.sample.amount == 15e12);
    assert_int_equal(parse("--seed 010", &p), PP_OK);
    assert_true(p.sample.seed == 10);
    assert_true(again.sample.real == 0.1 + 0.2);
}

static void help_shows_options_of_the_program_by_group(void **state)
{
    (void)state;
    static const struct pp_program_info info = {PP_PPSIM, "ppsim", "Does things.",
                                                "[DB]",   "More.", "ppsim --flag\tdo it\n"};
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    pp_options_help(rows, ROWS, &info, out);
    fclose(out);
    assert_non_null(strstr(text, "Usage: ppsim [OPTION]... [DB]\nDoes things.\n"));
    assert_non_null(strstr(text, "\nOne:\n  --flag"));
    assert_non_null(strstr(text, "  --number=N                a number (default 7)\n"));
    assert_non_null(strstr(text, "--choice=alpha|beta"));
    assert_non_null(strstr(text, "  ppsim --flag\n        do it\n"));
    assert_null(strstr(text, "elsewhere"));
    free(text);
}

static void the_nearest_is_named_only_if_near(void **state)
{
    (void)state;
    char buf[64];
    assert_string_equal(pp_nearest("gpip", "1f1b|gpipe|interleaved", buf, sizeof buf), "gpipe");
    assert_string_equal(pp_nearest("inter", "1f1b|gpipe|interleaved", buf, sizeof buf), "interleaved");
    assert_null(pp_nearest("zebra", "1f1b|gpipe|interleaved", buf, sizeof buf));
    assert_null(pp_nearest("x", NULL, buf, sizeof buf));
}

static void numbers_are_as_short_as_they_may_be(void **state)
{
    (void)state;
    static const double values[] = {0, 5, 5.0000001, 0.1, 1.0 / 3, 1e300, 123456789};
    static const char *const texts[] = {"0", "5", "5.0000001", "0.1", "0.3333333333333333", "1e+300", "123456789"};
    char buf[PP_REAL_BYTES];
    for (size_t i = 0; i < sizeof values / sizeof *values; i++)
        assert_string_equal(pp_real_text(values[i], buf), texts[i]);
}

static void programs_are_known_by_name(void **state)
{
    (void)state;
    assert_int_equal(pp_tool_named("ppexec"), PP_PPEXEC);
    assert_int_equal(pp_tool_named("ppreport"), PP_PPREPORT);
    assert_int_equal(pp_tool_named("pp"), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(defaults_come_from_the_table),
        cmocka_unit_test(values_stand_apart_or_behind_an_equals_sign),
        cmocka_unit_test(the_last_one_counts),
        cmocka_unit_test(two_dashes_end_the_options),
        cmocka_unit_test(sizes_have_units),
        cmocka_unit_test(amounts_have_decimal_units),
        cmocka_unit_test(mistakes_are_named),
        cmocka_unit_test(numbers_are_decimal),
        cmocka_unit_test(what_a_list_names_twice_is_there_once),
        cmocka_unit_test(reals_are_all_there),
        cmocka_unit_test(texts_are_not_cut),
        cmocka_unit_test(a_list_may_be_full_but_not_more),
        cmocka_unit_test(values_print_as_text_that_parses_back),
        cmocka_unit_test(help_shows_options_of_the_program_by_group),
        cmocka_unit_test(the_nearest_is_named_only_if_near),
        cmocka_unit_test(numbers_are_as_short_as_they_may_be),
        cmocka_unit_test(programs_are_known_by_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
