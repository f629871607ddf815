/* SPDX-License-Identifier: Apache-2.0
 *
 * Tables for people, lines of text, and sizes of memory.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/base/memory_text.h"
#include "core/base/text_table.h"
#include "core/base/wrap.h"

/* A table whose cells are given row by row. */
struct given {
    int ncolumns;
    const char *const *cells;
};

static const char *given_cell(const void *of, int64_t row, int column, char buf[PP_CELL_BYTES])
{
    const struct given *given = of;
    (void)buf;
    return given->cells[row * given->ncolumns + column];
}

/* What is printed; the caller frees it. */
static char *printed(const struct pp_text_column *columns, int ncolumns, const char *const *cells, int64_t nrows)
{
    const struct given given = {ncolumns, cells};
    char *text = NULL;
    size_t size;
    FILE *out = open_memstream(&text, &size);
    assert_non_null(out);
    pp_text_table_print(&(struct pp_text_table){columns, ncolumns, nrows, .cell = given_cell, .of = &given}, out);
    assert_int_equal(fclose(out), 0);
    return text;
}

static void must_print(const struct pp_text_column *columns, int ncolumns, const char *const *cells, int64_t nrows,
                       const char *wanted)
{
    char *text = printed(columns, ncolumns, cells, nrows);
    assert_string_equal(text, wanted);
    free(text);
}

static const struct pp_text_column simple[] = {
    {"schedule", .left = true, .stays = true}, {"P"}, {"peak", "MiB"}, {"fits", .aside = true}};
enum { SIMPLE = 4 };

static void test_the_same_in_all_rows(void **state)
{
    (void)state;
    const char *const cells[] = {"gpipe", "4", "10.5", "yes", "1f1b", "4", "10.5", "yes"};
    must_print(simple, SIMPLE, cells, 2,
               "All: P 4, peak 10.5 MiB, fits yes.\n"
               "schedule\n"
               "gpipe\n"
               "1f1b\n");
}

static void test_a_column_that_stays(void **state)
{
    (void)state;
    const char *const cells[] = {"gpipe", "4", "10.5", "yes", "gpipe", "2", "9.0", "no"};
    must_print(simple, SIMPLE, cells, 2,
               "schedule  P  peak MiB  fits\n"
               "gpipe     4      10.5   yes\n"
               "gpipe     2       9.0    no\n");
}

static void test_empty_columns(void **state)
{
    (void)state;
    const char *const cells[] = {"gpipe", "-", "-", "-", "1f1b", "-", "9.0", "-"};
    must_print(simple, SIMPLE, cells, 2,
               "schedule  peak MiB\n"
               "gpipe            -\n"
               "1f1b           9.0\n");
}

/* Of one row only what is told aside; of none nothing. */
static void test_few_rows(void **state)
{
    (void)state;
    const char *const cells[] = {"gpipe", "4", "10.5", "yes"};
    must_print(simple, SIMPLE, cells, 1,
               "All: fits yes.\n"
               "schedule  P  peak MiB\n"
               "gpipe     4      10.5\n");
    must_print(simple, SIMPLE, cells, 0, "");
}

static void test_a_rounded_zero_has_no_sign(void **state)
{
    (void)state;
    const char *const cells[] = {"-0.0", "4", "-0.5", "-", "-", "-0", "-0.00", "x"};
    must_print(simple, SIMPLE, cells, 2,
               "schedule  P  peak MiB  fits\n"
               "0.0       4      -0.5     -\n"
               "-         0      0.00     x\n");
}

static void test_what_goes_without_saying(void **state)
{
    (void)state;
    static const struct pp_text_column columns[] = {{"name", .stays = true},
                                                    {"T", .usual = "1"},
                                                    {"zero", .gaps = true, .usual = "0"},
                                                    {"chunks", .twin = "M"},
                                                    {"M"}};
    const char *const usual[] = {"a", "1", "-", "4", "4", "b", "1", "0", "8", "8"};
    must_print(columns, 5, usual, 2, "name  M\n   a  4\n   b  8\n");
    const char *const unusual[] = {"a", "2", "-", "5", "4", "b", "2", "1", "8", "8"};
    must_print(columns, 5, unusual, 2, "All: T 2, zero 1.\nname  chunks  M\n   a       5  4\n   b       8  8\n");
    const char *const mixed[] = {"a", "1", "0", "4", "4", "b", "2", "1", "8", "4"};
    must_print(columns, 5, mixed, 2,
               "All: M 4.\nname  T  zero  chunks\n   a  1     0       4\n   b  2     1       8\n");
    const char *const one[] = {"a", "1", "0", "4", "4"};
    must_print(columns, 5, one, 1, "name  M\n   a  4\n");
}

/* "-" beside figures is a difference, unless the column has gaps. */
static void test_an_empty_cell_is_told_apart(void **state)
{
    (void)state;
    static const struct pp_text_column columns[] = {{"name", .stays = true}, {"x"}};
    const char *const first[] = {"a", "-", "b", "7", "c", "7"}, *const last[] = {"a", "7", "b", "7", "c", "-"};
    must_print(columns, 2, first, 3, "name  x\n   a  -\n   b  7\n   c  7\n");
    must_print(columns, 2, last, 3, "name  x\n   a  7\n   b  7\n   c  -\n");
}

/* In a table of more than 80 columns, headings that are wider than their cells are broken where this is narrowest. */
static void test_headings_of_two_lines(void **state)
{
    (void)state;
    static const struct pp_text_column columns[] = {{"a name that is long enough for a line of its own", .left = true},
                                                    {"above bound", "%"},
                                                    {"bubble", "%"},
                                                    {"ms/batch"},
                                                    {"times from", .left = true}};
    const char *const cells[] = {"first name of those that are long and not broken",
                                 "0.0",
                                 "27.27",
                                 "1.000",
                                 "profile",
                                 "second",
                                 "1.0",
                                 "7.27",
                                 "2.000",
                                 "a machine far away"};
    must_print(columns, 5, cells, 2,
               "                                                    above  bubble\n"
               "a name that is long enough for a line of its own  bound %       %  ms/batch  times from\n"
               "first name of those that are long and not broken      0.0   27.27     1.000  profile\n"
               "second                                                1.0    7.27     2.000  a machine far away\n");
}

/* 100 columns are not too wide, 101 are. */
static void test_too_wide(void **state)
{
    (void)state;
    static const struct pp_text_column columns[] = {
        {"name", .left = true}, {"steps", .spare = 1}, {"makespan", "ms", .spare = 2}, {"ms/batch"}};
    char wide[PP_CELL_BYTES], *text;
    memset(wide, 'x', sizeof wide - 1);
    wide[sizeof wide - 1] = '\0';
    const char *const fits[] = {wide, "1", "222222222222222222", "3", "other", "4", "55555555", "6"};
    text = printed(columns, 4, fits, 2); /* 63 + 2 + 5 + 2 + 18 + 2 + 8 */
    assert_non_null(strstr(text, "makespan"));
    assert_null(strstr(text, "Left out"));
    free(text);
    const char *const too_wide[] = {wide, "1", "2222222222222222222", "3", "other", "4", "5", "6"};
    text = printed(columns, 4, too_wide, 2);
    assert_non_null(strstr(text, "steps  ms/batch\n"));
    assert_non_null(strstr(text, "\nLeft out, for lack of room: makespan ms; --format tsv has all.\n"));
    free(text);
}

/* Columns that say something together, such as both ends of a range, go together. */
static void test_columns_of_one_number_go_together(void **state)
{
    (void)state;
    static const struct pp_text_column columns[] = {
        {"name", .left = true}, {"p5", .spare = 1}, {"p95", .spare = 1}, {"steps", .spare = 2}, {"ms/batch"}};
    char wide[PP_CELL_BYTES];
    memset(wide, 'x', sizeof wide - 1);
    wide[sizeof wide - 1] = '\0';
    const char *const cells[] = {wide,
                                 "11111111111111",
                                 "222222222222",
                                 "3",
                                 "4", /* 63 + 16 + 14 + 10 */
                                 "other",
                                 "5",
                                 "6",
                                 "7",
                                 "8"};
    char *text = printed(columns, 5, cells, 2);
    assert_null(strstr(text, " p5 "));
    assert_non_null(strstr(text, "\nLeft out, for lack of room: p5, p95, steps; --format tsv has all.\n"));
    free(text);
}

/* All lines begin with the spaces that are asked for, and these count for the width. */
static void test_indent(void **state)
{
    (void)state;
    static const struct pp_text_column columns[] = {
        {"name", .left = true}, {"P"}, {"pred.", .group = "ms/batch", .spare = 1}, {"meas.", .group = "ms/batch"}};
    char wide[PP_CELL_BYTES], wanted[600], *text = NULL;
    size_t size;
    memset(wide, 'w', sizeof wide - 1);
    wide[sizeof wide - 1] = '\0';
    /* 2 + 63 + 2 + 28 + 2 + 5 columns are too many; without the indent they would not be. */
    const char *const cells[] = {wide, "4", "9999999999999999999999999999", "1.0", "b", "4", "2.0", "2.0"};
    const struct given given = {4, cells};
    FILE *out = open_memstream(&text, &size);
    assert_non_null(out);
    pp_text_table_print(&(struct pp_text_table){columns, 4, 2, .indent = 2, .cell = given_cell, .of = &given}, out);
    assert_int_equal(fclose(out), 0);
    snprintf(wanted, sizeof wanted,
             "  All: P 4.\n"
             "  %63s  ms/batch\n"
             "  %-63s     meas.\n"
             "  %s       1.0\n"
             "  %-63s       2.0\n"
             "  Left out, for lack of room: ms/batch pred.; --format tsv has all.\n",
             "", "name", wide, "b");
    assert_string_equal(text, wanted);
    free(text);
}

/* Where a part of a group had no room, its heading widens what is left of it. */
static void test_the_rest_of_a_group(void **state)
{
    (void)state;
    static const struct pp_text_column columns[] = {{"name", .left = true},
                                                    {"pred.", .group = "process MiB", .spare = 1},
                                                    {"meas.", .group = "process MiB"},
                                                    {"x"}};
    char wide[PP_CELL_BYTES], pred[31], wanted[1000];
    memset(wide, 'w', sizeof wide - 1);
    wide[sizeof wide - 1] = '\0';
    memset(pred, '9', sizeof pred - 1);
    pred[sizeof pred - 1] = '\0';
    const char *const cells[] = {wide, pred, "1.0", "1", "b", "2.0", "2.0", "2"};
    snprintf(wanted, sizeof wanted,
             "%63s  process MiB\n"
             "%-63s        meas.  x\n"
             "%s          1.0  1\n"
             "%-63s          2.0  2\n"
             "Left out, for lack of room: process MiB pred.; --format tsv has all.\n",
             "", "name", wide, "b");
    must_print(columns, 4, cells, 2, wanted);
}

/* Neighbours of one group share a heading. A group that is wider than its columns widens the last one. No line ends
 * with spaces. */
static void test_groups(void **state)
{
    (void)state;
    static const struct pp_text_column columns[] = {{"kind", .left = true, .stays = true},
                                                    {"pred.", .group = "ms/batch", .stays = true},
                                                    {"meas.", .group = "ms/batch", .stays = true},
                                                    {"x", .group = "all ranks"},
                                                    {"y"}};
    const char *const cells[] = {"F", "1.0", "2.0", "3", "4", "B", "1.0", "2.5", "4", "5"};
    must_print(columns, 5, cells, 2,
               "      - ms/batch -  all ranks\n"
               "kind  pred.  meas.          x  y\n"
               "F       1.0    2.0          3  4\n"
               "B       1.0    2.5          4  5\n");
    const char *const empty[] = {"F", "-", "-", "-", "4", "B", "-", "-", "-", "5"};
    must_print(columns, 5, empty, 2, "kind  y\nF     4\nB     5\n");
    const char *const half[] = {"F", "-", "2.0", "-", "4", "B", "-", "2.5", "-", "5"};
    must_print(columns, 5, half, 2, "      ms/batch\nkind     meas.  y\nF          2.0  4\nB          2.5  5\n");
}

/* Each code point takes one column, however many bytes it has. */
static void test_code_points(void **state)
{
    (void)state;
    static const struct pp_text_column columns[] = {{"name", .left = true}, {"x"}};
    const char *const cells[] = {"b\xc3\xa9ta", "1", "alphabet", "2"};
    must_print(columns, 2, cells, 2, "name      x\nb\xc3\xa9ta      1\nalphabet  2\n");
    assert_int_equal(pp_text_width("b\xc3\xa9ta \xe2\x82\xac"), 6);
}

static void must_wrap(const char *text, int column, int indent, const char *wanted)
{
    char lines[1000];
    FILE *out = fmemopen(lines, sizeof lines, "w");
    assert_non_null(out);
    pp_wrap(out, text, column, indent);
    assert_int_equal(fclose(out), 0);
    assert_string_equal(lines, wanted);
}

static void test_wrap(void **state)
{
    (void)state;
#define FORTY "1234567890123456789012345678901234567890"
#define ACCENTS "\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9"
    must_wrap("", 0, 2, "\n");
    must_wrap("two  words", 0, 2, "two words\n");
    must_wrap(FORTY " 123456789012345678901234567890123456789", 0, 2,
              FORTY " 123456789012345678901234567890123456789\n");
    must_wrap(FORTY " " FORTY, 0, 2, FORTY "\n  " FORTY "\n");
    must_wrap(FORTY " 1234567890", 29, 4, FORTY " 1234567890\n"); /* 29 + 40 + 1 + 10 */
    must_wrap(FORTY " 1234567890", 30, 4, FORTY "\n    1234567890\n");
    must_wrap("a " FORTY FORTY FORTY " b", 0, 0, "a\n" FORTY FORTY FORTY "\nb\n");
    must_wrap(FORTY " 1234567890123456789012345678 " ACCENTS, 0, 2,
              FORTY " 1234567890123456789012345678 " ACCENTS "\n"); /* 80 columns, 90 bytes */
    must_wrap(FORTY " " FORTY " 2.5 %, c", 0, 2, FORTY "\n  " FORTY " 2.5 %, c\n");
    must_wrap(FORTY " 12345678901234567890123456789012345 2.5 %, c", 0, 2,
              FORTY " 12345678901234567890123456789012345\n  2.5 %, c\n"); /* 2.5 alone had room: 40 + 36 + 4 */
}

static void must_say(double bytes, const char *wanted)
{
    char text[PP_MEMORY_TEXT];
    assert_string_equal(pp_memory_text(bytes, text), wanted);
}

static void test_memory(void **state)
{
    (void)state;
    must_say(0, "0.0 KiB");
    must_say(155648, "152.0 KiB");
    must_say(10 * 0x1p20 - 1024, "10239.0 KiB");
    must_say(10 * 0x1p20, "10.0 MiB");
    must_say(10 * 0x1p30 - 0x1p20, "10239.0 MiB");
    must_say(10 * 0x1p30, "10.00 GiB");
    must_say(77075578880.0, "71.78 GiB");
    assert_string_equal(pp_memory_unit(20 * 0x1p40)->name, "GiB");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_same_in_all_rows),
        cmocka_unit_test(test_a_column_that_stays),
        cmocka_unit_test(test_empty_columns),
        cmocka_unit_test(test_few_rows),
        cmocka_unit_test(test_a_rounded_zero_has_no_sign),
        cmocka_unit_test(test_what_goes_without_saying),
        cmocka_unit_test(test_an_empty_cell_is_told_apart),
        cmocka_unit_test(test_headings_of_two_lines),
        cmocka_unit_test(test_too_wide),
        cmocka_unit_test(test_columns_of_one_number_go_together),
        cmocka_unit_test(test_indent),
        cmocka_unit_test(test_groups),
        cmocka_unit_test(test_the_rest_of_a_group),
        cmocka_unit_test(test_code_points),
        cmocka_unit_test(test_wrap),
        cmocka_unit_test(test_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
