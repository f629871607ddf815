/* SPDX-License-Identifier: Apache-2.0
 *
 * Block times: what files may say, and how blocks are cut into stages.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/job/blocks.h"
#include "core/options/times_file.h"

#define HEADER "forward_ms\tinput_ms\tweight_ms"

static const char *written(const char *text)
{
    static const char path[] = "blocks.tsv";
    FILE *out = fopen(path, "w");
    assert_non_null(out);
    assert_true(fputs(text, out) >= 0);
    assert_int_equal(fclose(out), 0);
    return path;
}

static struct pp_blocks *read_text(const char *text)
{
    struct pp_blocks *blocks;
    if (pp_blocks_read(written(text), &blocks) != PP_OK) fail_msg("%s", pp_message());
    return blocks;
}

static void test_what_a_file_says(void **state)
{
    (void)state;
    struct pp_blocks *plain = read_text("\xef\xbb\xbf\n# ours\r\n" HEADER "\r\n1\t2\t3.5\r\n\r\n.5\t0\t1e1\r\n");
    assert_int_equal(plain->n, 2);
    assert_true(plain->block[0].forward_ms == 1 && plain->block[0].backward_ms == 5.5);
    assert_true(plain->block[1].forward_ms == 0.5 && plain->block[1].weight_ms == 10);
    assert_false(plain->sized || plain->stepped);
    assert_true(plain->hop_ms == 0);

    struct pp_blocks *full = read_text("block\tstate_mib\tkept_mib\tnote\tstep_ms\tbackward_ms\t" HEADER
                                       "\nthe first\t1\t2\tany text\t3\t4\t5\t6\t7");
    const struct pp_block *b = full->block;
    assert_true(full->sized && full->stepped);
    assert_true(b->state_mib == 1 && b->kept_mib == 2 && b->step_ms == 3 && b->backward_ms == 4);
    assert_true(b->forward_ms == 5 && b->input_ms == 6 && b->weight_ms == 7);
    assert_true(full->hash != plain->hash);

    struct pp_blocks *hop;
    assert_int_equal(pp_blocks_read("blocks.tsv,0.25", &hop), PP_OK);
    assert_true(hop->hop_ms == 0.25 && hop->hash == full->hash);
    pp_blocks_free(plain);
    pp_blocks_free(full);
    pp_blocks_free(hop);
    pp_blocks_free(NULL);
}

static void test_what_names_a_file(void **state)
{
    (void)state;
    static const struct {
        const char *times;
        size_t length;
    } rows[] = {{"b.tsv", 5}, {"b.tsv,1.5", 5}, {"b.tsv,c", 7},  {"./1,2,3", 5},   {"/a", 2},
                {"-a", 2},    {"1,2,3", 0},     {".5,1,1", 0},   {"-1,2,3", 0},    {"1e2,1,1", 0},
                {"1;2;3", 0}, {"9gpu.tsv", 0},  {"8gpu.tsv", 8}, {"8gpu.tsv,1", 8}};
    FILE *out = fopen("8gpu.tsv", "w");
    unlink("b.tsv,1.5"); /* of an earlier run */
    assert_non_null(out);
    assert_int_equal(fclose(out), 0);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (pp_times_file(rows[i].times) != rows[i].length)
            fail_msg("%s: %zu", rows[i].times, pp_times_file(rows[i].times));
    out = fopen("b.tsv,1.5", "w");
    assert_non_null(out);
    assert_int_equal(fclose(out), 0);
    assert_int_equal(pp_times_file("b.tsv,1.5"), 9);
}

static void test_bad_files(void **state)
{
    (void)state;
    static const struct {
        const char *text, *message;
    } bad[] = {
        {"", "has no block"},
        {HEADER "\n", "has no block"},
        {"1\t2\t3\n", "line 1: there is no column forward_ms"},
        {"forward_ms\tinput_ms\n1\t2\n", "no column weight_ms"},
        {"forward_ms input_ms weight_ms\n1 2 3\n", "with tabs between them"},
        {HEADER "\n0x10\t2\t3\n", "\"0x10\" is no number"},
        {HEADER "\tinput_ms\n1\t2\t3\t4\n", "column input_ms is there twice"},
        {HEADER "\n1\t2\n", "line 2: there are 2 fields, and 3 columns"},
        {HEADER "\n1\t2\t3\t4\n", "there are 4 fields, and 3 columns"},
        {HEADER "\n1\t2\t\n", "weight_ms: \"\" is no number"},
        {HEADER "\n1\t-2\t3\n", "input_ms: \"-2\" is no number"},
        {HEADER "\n1\t2\t3 ms\n", "weight_ms: \"3 ms\" is no number"},
        {HEADER "\nnan\t2\t3\n", "forward_ms: \"nan\" is no number"},
        {HEADER "\n1\t2e9\t3\n", "input_ms: 2e9 is more than 1e+09"},
        {HEADER "\n0\t0\t0\n0\t0\t0\n", "nothing takes any time"},
    };
    struct pp_blocks *blocks;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(pp_blocks_read(written(bad[i].text), &blocks), PP_INPUT);
        assert_null(blocks);
        if (!strstr(pp_message(), bad[i].message)) fail_msg("%s\n%s", bad[i].message, pp_message());
    }
    assert_int_equal(pp_blocks_read("nowhere.tsv", &blocks), PP_USAGE);
    assert_non_null(strstr(pp_message(), "nowhere.tsv"));
    assert_int_equal(pp_blocks_read(".", &blocks), PP_IO);
    FILE *out = fopen("zero.tsv", "w");
    assert_non_null(out);
    static const char zero[] = HEADER "\n1\t2\0\t3\n";
    assert_int_equal(fwrite(zero, 1, sizeof zero - 1, out), sizeof zero - 1);
    assert_int_equal(fclose(out), 0);
    assert_int_equal(pp_blocks_read("zero.tsv", &blocks), PP_INPUT);
}

static void test_too_many(void **state)
{
    (void)state;
    static char text[40000] = HEADER "\n";
    struct pp_blocks *blocks;
    for (int i = 0; i < PP_MOST_BLOCKS; i++) strcat(text + 10 + 6 * i, "1\t1\t1\n");
    blocks = read_text(text);
    assert_int_equal(blocks->n, PP_MOST_BLOCKS);
    pp_blocks_free(blocks);
    strcat(text, "1\t1\t1\n");
    assert_int_equal(pp_blocks_read(written(text), &blocks), PP_INPUT);
    assert_non_null(strstr(pp_message(), "more than 4096"));
}

static void check_cut(const struct pp_blocks *blocks, const char *split, int stages, const int *ranks,
                      const char *expected)
{
    int counts[8];
    char text[64] = "";
    if (pp_blocks_cut(blocks, split, (struct pp_cut_way){.even = PP_EVEN_RANKS}, stages, ranks, counts) != PP_OK)
        fail_msg("%s", pp_message());
    for (int s = 0; s < stages; s++) sprintf(text + strlen(text), s ? ",%d" : "%d", counts[s]);
    assert_string_equal(text, expected);
}

static void refuse_cut(const struct pp_blocks *blocks, const char *split, int stages, const char *message)
{
    const int ranks[] = {0, 1, 2, 3, 4, 5, 6, 7};
    int counts[8];
    assert_int_equal(pp_blocks_cut(blocks, split, (struct pp_cut_way){.even = PP_EVEN_RANKS}, stages, ranks, counts),
                     PP_USAGE);
    if (!strstr(pp_message(), message)) fail_msg("%s\n%s", message, pp_message());
}

static void test_cuts(void **state)
{
    (void)state;
    const int each[] = {0, 1, 2, 3, 4, 5, 6}, loop[] = {0, 1, 0, 1}, vee[] = {0, 1, 1, 0};
    struct pp_blocks *blocks = read_text(HEADER "\n1\t0\t0\n3\t0\t0\n3\t0\t0\n3\t0\t0\n3\t0\t0\n3\t0\t0\n9\t0\t0\n"),
                     *one = read_text(HEADER "\n1\t1\t1\n");
    check_cut(blocks, "time", 1, each, "7");
    check_cut(blocks, "time", 2, each, "5,2"); /* 13 and 12 */
    check_cut(blocks, "time", 3, each, "3,3,1");
    check_cut(blocks, "time", 7, each, "1,1,1,1,1,1,1");
    check_cut(blocks, "uniform", 2, each, "4,3");
    check_cut(blocks, "2,5", 2, each, "2,5");
    check_cut(one, "time", 1, each, "1");
    check_cut(one, "1", 1, each, "1");
    for (int i = 0; i < 2; i++) {
        const int *ranks = i ? vee : loop;
        int counts[4];
        double ms[2] = {0};
        struct pp_block stages[4];
        assert_int_equal(pp_blocks_cut(blocks, "time", (struct pp_cut_way){.even = PP_EVEN_RANKS}, 4, ranks, counts),
                         PP_OK);
        pp_blocks_add_up(blocks, 4, counts, stages);
        for (int s = 0; s < 4; s++) assert_true(counts[s] >= 1);
        assert_int_equal(counts[0] + counts[1] + counts[2] + counts[3], 7);
        for (int s = 0; s < 4; s++) ms[ranks[s]] += stages[s].forward_ms;
        assert_true(ms[0] + ms[1] == 25 && ms[0] >= 12 && ms[1] >= 12); /* 12 and 13 is the best there is */
    }
    int counts[4];
    assert_int_equal(pp_blocks_cut(blocks, "time", (struct pp_cut_way){.even = PP_EVEN_STAGES}, 4, loop, counts),
                     PP_OK);
    assert_true(counts[0] == 2 && counts[1] == 2 && counts[2] == 2 && counts[3] == 1); /* 4, 6, 6, 9 */
    refuse_cut(blocks, "time", 8, "need at least as many blocks, and --times has 7");
    refuse_cut(blocks, "3,3", 2, "the numbers add up to 6, the model has 7 blocks");
    refuse_cut(blocks, "0,7", 2, "expected time, uniform, or the blocks of each of the 2 stages");
    refuse_cut(blocks, "parameters", 2, "expected time, uniform, or the blocks");
    refuse_cut(blocks, "3,2,2", 2, "there are 2 stages");
    pp_blocks_free(blocks);
    pp_blocks_free(one);
}

/* What differs by less than a tenth is noise: of forty such blocks two stages get twenty each, whichever half is the
 * slower one. By a fifth it is not: 21.6 and 22.4. */
static void test_noise_moves_no_cut(void **state)
{
    (void)state;
    enum { HALF = 20 };
    static const struct {
        const char *before, *behind, *cut;
    } cases[] = {{"1.08", "1", "20,20"}, {"1", "1.08", "20,20"}, {"1.2", "1", "18,22"}, {"1", "1.2", "22,18"}};
    const int ranks[] = {0, 1};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[1000] = HEADER "\n";
        for (int b = 0; b < 2 * HALF; b++)
            sprintf(text + strlen(text), "%s\t0\t0\n", b < HALF ? cases[i].before : cases[i].behind);
        struct pp_blocks *blocks = read_text(text);
        check_cut(blocks, "time", 2, ranks, cases[i].cut);
        pp_blocks_free(blocks);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_a_file_says),
        cmocka_unit_test(test_what_names_a_file),
        cmocka_unit_test(test_bad_files),
        cmocka_unit_test(test_too_many),
        cmocka_unit_test(test_cuts),
        cmocka_unit_test(test_noise_moves_no_cut),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
