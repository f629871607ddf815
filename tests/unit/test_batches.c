/* SPDX-License-Identifier: Apache-2.0
 *
 * Data as workers see it: columns, replicas, batches, and parts of their rows.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "exec/data.h"

static struct pp_data counting(int64_t n)
{
    struct pp_data data = {.vocabulary = (int)n};
    data.words[PP_PART_TRAIN] = malloc((size_t)n * sizeof(int32_t));
    data.length[PP_PART_TRAIN] = n;
    for (int64_t i = 0; i < n; i++) data.words[PP_PART_TRAIN][i] = (int32_t)i;
    return data;
}

static pp_status cut(const struct pp_data *data, struct pp_batch_cut cut, struct pp_batches *out)
{
    return pp_batches_cut(data, PP_PART_TRAIN, &cut, out);
}

/* All, for one replica. */
static pp_status cut_rows(const struct pp_data *data, int rows, int seq, struct pp_batches *out)
{
    return cut(data, (struct pp_batch_cut){.rows = rows, .seq = seq, .replicas = 1}, out);
}

/* 47 words in 2 rows: 23 each, the last is cut off. With 3 words a batch: 22 targets = 7 batches and one of 1. */
static void columns_and_a_shorter_last_batch(void **state)
{
    (void)state;
    struct pp_data data = counting(47);
    struct pp_batches b;
    int32_t in[6], out[6];
    static const int32_t second_in[] = {3, 4, 5, 26, 27, 28}, second_out[] = {4, 5, 6, 27, 28, 29};
    static const int32_t last_in[] = {21, 44}, last_out[] = {22, 45};
    assert_int_equal(cut_rows(&data, 2, 3, &b), PP_OK);
    assert_int_equal(b.count, 8);
    assert_int_equal(b.tail_seq, 1);
    pp_batches_get(&b, 1, in, out);
    assert_memory_equal(in, second_in, sizeof second_in);
    assert_memory_equal(out, second_out, sizeof second_out);
    assert_int_equal(pp_batches_seq(&b, 6), 3);
    assert_int_equal(pp_batches_seq(&b, 7), 1);
    pp_batches_get(&b, 7, in, out);
    assert_memory_equal(in, last_in, sizeof last_in);
    assert_memory_equal(out, last_out, sizeof last_out);
    assert_int_equal(cut(&data, (struct pp_batch_cut){.rows = 2, .seq = 3, .replicas = 1, .limit = 8}, &b), PP_OK);
    assert_int_equal(b.tail_seq, 1); /* a limit that takes all batches takes the last one too */
    assert_int_equal(cut(&data, (struct pp_batch_cut){.rows = 2, .seq = 3, .replicas = 1, .limit = 4}, &b), PP_OK);
    assert_int_equal(b.count, 4);
    assert_int_equal(b.tail_seq, 0);
    free(data.words[PP_PART_TRAIN]);
}

/* Of the 23 words of a row, replica k of 2 has words 11k .. 11k+10. */
static void replicas_divide_time(void **state)
{
    (void)state;
    struct pp_data data = counting(47);
    struct pp_batches b;
    int32_t in[6], out[6];
    static const int32_t first_in[] = {11, 12, 13, 34, 35, 36};
    assert_int_equal(cut(&data, (struct pp_batch_cut){.rows = 2, .seq = 3, .replicas = 2, .replica = 1}, &b), PP_OK);
    assert_int_equal(b.count, 4); /* 10 targets = 3 batches and one of 1 */
    assert_int_equal(b.tail_seq, 1);
    pp_batches_get(&b, 0, in, NULL);
    assert_memory_equal(in, first_in, sizeof first_in);
    pp_batches_get(&b, 3, NULL, out);
    assert_int_equal(out[0], 21); /* never a word of the next replica */
    free(data.words[PP_PART_TRAIN]);
}

static void short_texts_are_refused(void **state)
{
    (void)state;
    struct pp_data data = counting(7);
    struct pp_batches b;
    assert_int_equal(cut_rows(&data, 4, 3, &b), PP_INPUT);
    assert_non_null(strstr(pp_message(), "7 words"));
    assert_int_equal(cut_rows(&data, 3, 35, &b), PP_OK);
    assert_int_equal(b.count, 1);
    assert_int_equal(b.tail_seq, 1);
    assert_int_equal(cut(&data, (struct pp_batch_cut){.rows = 3, .seq = 1, .replicas = 2, .replica = 0}, &b), PP_INPUT);
    free(data.words[PP_PART_TRAIN]);
}

/* As many as a folder of tokens can have; nobody looks at the words. */
static void more_batches_than_can_be_counted_are_refused(void **state)
{
    (void)state;
    const struct pp_data data = {.length = {(INT64_C(1) << 32) + 9}};
    struct pp_batches b;
    assert_int_equal(cut_rows(&data, 1, 1, &b), PP_INPUT);
    assert_non_null(strstr(pp_message(), "4294967304 batches"));
    assert_int_equal(cut_rows(&data, 1, 3, &b), PP_OK);
    assert_int_equal(b.count, 1431655768);
    assert_int_equal(cut(&data, (struct pp_batch_cut){.rows = 1, .seq = 1, .replicas = 1, .limit = 9}, &b), PP_OK);
    assert_int_equal(b.count, 9);
}

/* What the part of each row that one of so many workers has is, put next to the others': all but the last words of a
 * batch, where these are not a multiple of the parts. halves: a part is the chunk of that number and the same from the
 * end. whole: batches that are not shared. */
static void check_shared(const struct pp_batches *whole, int parts, bool halves)
{
    const int chunks = halves ? 2 * parts : parts;
    int32_t all_in[40], all_out[40], in[40], out[40];
    for (int part = 0; part < parts; part++) {
        struct pp_batches b = *whole;
        assert_int_equal(pp_batches_share(&b, parts, part, halves), PP_OK);
        assert_int_equal(b.count, pp_batches_seq(whole, whole->count - 1) < chunks ? whole->count - 1 : whole->count);
        for (int i = 0; i < b.count; i++) {
            const int row = pp_batches_seq(whole, i), chunk = row / chunks, own = chunk * (chunks / parts);
            assert_int_equal(pp_batches_seq(&b, i), chunk * chunks);
            memset(in, -1, sizeof in);
            memset(out, -1, sizeof out);
            pp_batches_get(whole, i, all_in, all_out);
            pp_batches_get(&b, i, in, out);
            for (int w = 0; w < b.rows * own; w++) {
                const int first = w % own < chunk ? part * chunk : (chunks - 1 - part) * chunk;
                const int at = w / own * row + first + w % own % chunk;
                assert_int_equal(in[w], all_in[at]);
                assert_int_equal(out[w], all_out[at]);
            }
            assert_int_equal(in[b.rows * own], -1); /* and no more */
            assert_int_equal(out[b.rows * own], -1);
        }
    }
}

/* Of 12 words in a row; the last batch has 1 to 11 or, 79 words, none. */
static void parts_of_rows_are_whole_rows_together(void **state)
{
    (void)state;
    static const int shares[] = {1, 2, 3, 4, 6, 12};
    for (int words = 75; words <= 98; words++) {
        struct pp_data data = counting(words);
        for (int replicas = 1; replicas <= 2; replicas++)
            for (size_t i = 0; i < sizeof shares / sizeof *shares; i++) {
                struct pp_batches b;
                assert_int_equal(
                    cut(&data,
                        (struct pp_batch_cut){.rows = 3, .seq = 12, .replicas = replicas, .replica = replicas - 1}, &b),
                    PP_OK);
                if (b.count > 1 || pp_batches_seq(&b, 0) >= shares[i]) check_shared(&b, shares[i], false);
                const int chunks = 2 * shares[i];
                if (12 % chunks == 0 && (b.count > 1 || pp_batches_seq(&b, 0) >= chunks))
                    check_shared(&b, shares[i], true);
            }
        free(data.words[PP_PART_TRAIN]);
    }
}

/* By hand: two rows of 12 words, 0 .. 11 and 12 .. 23; batches of 6 words, and 4 of the 5 that are left. */
static void a_last_batch_loses_what_parts_do_not_divide(void **state)
{
    (void)state;
    struct pp_data data = counting(24);
    struct pp_batches b;
    int32_t in[6], out[6];
    static const int32_t first_in[] = {3, 4, 5, 15, 16, 17}, last_in[] = {8, 9, 20, 21}, last_out[] = {9, 10, 21, 22};
    assert_int_equal(cut_rows(&data, 2, 6, &b), PP_OK);
    assert_int_equal(pp_batches_share(&b, 2, 1, false), PP_OK);
    assert_int_equal(b.count, 2);
    assert_int_equal(b.tail_seq, 4);
    pp_batches_get(&b, 0, in, out);
    assert_memory_equal(in, first_in, sizeof first_in);
    pp_batches_get(&b, 1, in, out);
    assert_memory_equal(in, last_in, sizeof last_in);
    assert_memory_equal(out, last_out, sizeof last_out);
    assert_int_equal(cut_rows(&data, 2, 6, &b), PP_OK);
    assert_int_equal(pp_batches_share(&b, 6, 5, false), PP_OK); /* 5 words are no batch for six */
    assert_int_equal(b.count, 1);
    assert_int_equal(b.tail_seq, 0);
    pp_batches_get(&b, 0, NULL, out);
    assert_int_equal(out[0], 6);
    assert_int_equal(out[1], 18);
    free(data.words[PP_PART_TRAIN]);
}

static void rows_too_short_to_be_shared_are_refused(void **state)
{
    (void)state;
    struct pp_data data = counting(12);
    struct pp_batches b;
    assert_int_equal(cut_rows(&data, 2, 12, &b), PP_OK); /* one batch of 5 words */
    assert_int_equal(pp_batches_share(&b, 6, 0, false), PP_INPUT);
    assert_non_null(strstr(pp_message(), "rows of 5 words are too short to be shared by --context-parallel 6"));
    assert_int_equal(cut_rows(&data, 2, 12, &b), PP_OK);
    assert_int_equal(pp_batches_share(&b, 4, 0, false), PP_OK);
    assert_int_equal(pp_batches_seq(&b, 0), 4);
    free(data.words[PP_PART_TRAIN]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(columns_and_a_shorter_last_batch),
        cmocka_unit_test(replicas_divide_time),
        cmocka_unit_test(short_texts_are_refused),
        cmocka_unit_test(more_batches_than_can_be_counted_are_refused),
        cmocka_unit_test(parts_of_rows_are_whole_rows_together),
        cmocka_unit_test(a_last_batch_loses_what_parts_do_not_divide),
        cmocka_unit_test(rows_too_short_to_be_shared_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
