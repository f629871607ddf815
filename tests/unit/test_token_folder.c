/* SPDX-License-Identifier: Apache-2.0
 *
 * Folders of tokens: both widths, the names of the files, and what is refused, with the file and the place in it.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "exec/data.h"

static void write_bytes(const char *path, const void *bytes, size_t n)
{
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, n, file), n);
    assert_int_equal(fclose(file), 0);
}

static void write_tokens(const char *path, const int32_t *tokens, int64_t n, int width)
{
    unsigned char *bytes = malloc((size_t)(n * width));
    for (int64_t i = 0; i < n; i++)
        for (int b = 0; b < width; b++) bytes[i * width + b] = (unsigned char)((uint32_t)tokens[i] >> (8 * b));
    write_bytes(path, bytes, (size_t)(n * width));
    free(bytes);
}

static const int32_t train[] = {3, 0, 49, 256 % 50, 7, 7}, valid[] = {1, 2, 3, 4}, test[] = {48, 2};

#define COUNT(array) ((int64_t)(sizeof(array) / sizeof *(array)))

static struct pp_config new_folder(int vocabulary, int width)
{
    static const char *const names[] = {"train.bin", "val.bin", "valid.bin", "test.bin", "train.txt"};
    char path[40];
    mkdir("tokens", 0777);
    for (int i = 0; i < COUNT(names); i++) {
        snprintf(path, sizeof path, "tokens/%s", names[i]);
        remove(path);
    }
    write_tokens("tokens/train.bin", train, COUNT(train), width);
    write_tokens("tokens/val.bin", valid, COUNT(valid), width);
    return (struct pp_config){.data = "tokens", .model.vocab = vocabulary, .rows = 2, .tokens = 3, .replicas = 1};
}

static struct pp_data *load(struct pp_config config)
{
    struct pp_data *data = NULL;
    int64_t bytes = 0;
    const int vocabulary = config.model.vocab;
    if (pp_data_load(&config, &data) != PP_OK) fail_msg("%s", pp_message());
    assert_int_equal(data->vocabulary, vocabulary);
    assert_int_equal(pp_data_survey(&config, &bytes), PP_OK);
    assert_int_equal(bytes, pp_data_bytes(data));
    assert_int_equal(config.model.vocab, vocabulary);
    return data;
}

static void refuse(struct pp_config config, const char *what)
{
    struct pp_data *data = NULL;
    assert_int_equal(pp_data_load(&config, &data), PP_INPUT);
    assert_null(data);
    if (!strstr(pp_message(), what)) fail_msg("'%s' is not in: %s", what, pp_message());
}

static void expect_part(const struct pp_data *data, enum pp_part part, const int32_t *words, int64_t n)
{
    assert_int_equal(data->length[part], n);
    assert_memory_equal(data->words[part], words, (size_t)n * sizeof *words);
}

static void tokens_of_two_and_four_bytes(void **state)
{
    (void)state;
    for (int width = 2; width <= 4; width += 2) {
        static const int32_t wide[] = {65536, 127999, 1, 0, 70000};
        struct pp_config config = new_folder(width == 2 ? 65536 : 128000, width);
        struct pp_data *data = load(config);
        expect_part(data, PP_PART_TRAIN, train, COUNT(train));
        expect_part(data, PP_PART_VALID, valid, COUNT(valid));
        pp_data_free(data);
        if (width == 2) continue;
        write_tokens("tokens/train.bin", wide, COUNT(wide), width);
        data = load(config);
        expect_part(data, PP_PART_TRAIN, wide, COUNT(wide));
        pp_data_free(data);
    }
}

/* More than is read at once. */
static void a_long_file(void **state)
{
    (void)state;
    enum { MANY = 100001 };
    int32_t *tokens = malloc(MANY * sizeof *tokens);
    struct pp_config config = new_folder(50, 2);
    for (int i = 0; i < MANY; i++) tokens[i] = i % 49;
    write_tokens("tokens/train.bin", tokens, MANY, 2);
    struct pp_data *data = load(config);
    expect_part(data, PP_PART_TRAIN, tokens, MANY);
    pp_data_free(data);
    tokens[MANY - 2] = 50;
    write_tokens("tokens/train.bin", tokens, MANY, 2);
    refuse(config, "tokens/train.bin: token 99999, at byte 199998, is 50, but --vocab is 50");
    free(tokens);
}

static void the_validation_part_is_the_test_where_there_is_none(void **state)
{
    (void)state;
    struct pp_config config = new_folder(50, 2);
    struct pp_data *data = load(config);
    expect_part(data, PP_PART_TEST, valid, COUNT(valid));
    assert_non_null(strstr(data->summary, "6 training, 4 validation, 4 test (there is no test.bin"));
    pp_data_free(data);
    assert_int_equal(rename("tokens/val.bin", "tokens/valid.bin"), 0);
    write_tokens("tokens/test.bin", test, COUNT(test), 2);
    data = load(config);
    expect_part(data, PP_PART_VALID, valid, COUNT(valid));
    expect_part(data, PP_PART_TEST, test, COUNT(test));
    assert_null(strstr(data->summary, "test.bin"));
    pp_data_free(data);
    unlink("tokens/valid.bin");
    config.no_eval = true;
    data = load(config);
    assert_null(data->words[PP_PART_VALID]);
    pp_data_free(data);
}

static void equal_tokens_have_equal_hashes(void **state)
{
    (void)state;
    struct pp_data *narrow = load(new_folder(65536, 2)), *wide = load(new_folder(65537, 4));
    int32_t changed[COUNT(train)];
    memcpy(changed, train, sizeof changed);
    assert_int_equal(pp_data_hash(narrow), pp_data_hash(wide));
    pp_data_free(wide);
    changed[5] = 8;
    struct pp_config config = new_folder(65536, 2);
    write_tokens("tokens/train.bin", changed, COUNT(changed), 2);
    wide = load(config);
    assert_true(pp_data_hash(narrow) != pp_data_hash(wide));
    pp_data_free(wide);
    pp_data_free(narrow);
}

static void bad_files_are_refused(void **state)
{
    (void)state;
    struct pp_config config = new_folder(49, 2);
    refuse(config, "tokens/train.bin: token 2, at byte 4, is 49, but --vocab is 49");
    config.model.vocab = 128256; /* of four bytes */
    refuse(config, "tokens/train.bin: token 1, at byte 4, is 393265, but --vocab is 128256");
    write_bytes("tokens/train.bin", "abcdef", 6);
    refuse(config, "tokens/train.bin has 6 bytes, but with --vocab 128256 a token has 4");
    config = new_folder(50, 2);
    write_bytes("tokens/val.bin", "a\0b", 3);
    refuse(config, "tokens/val.bin has 3 bytes, but with --vocab 50 a token has 2");
    write_bytes("tokens/val.bin", "", 0);
    refuse(config, "evaluation (--no-eval trains without): tokens/val.bin holds no tokens");
    write_tokens("tokens/valid.bin", valid, COUNT(valid), 2);
    refuse(config, "tokens holds val.bin and valid.bin");
    unlink("tokens/val.bin");
    unlink("tokens/valid.bin");
    refuse(config, "cannot open tokens/val.bin");
    mkdir("tokens/val.bin", 0777);
    refuse(config, "tokens/val.bin is a folder");
    rmdir("tokens/val.bin");
    mkfifo("tokens/val.bin", 0666);
    refuse(config, "tokens/val.bin is a pipe"); /* at once, though nobody writes */
    config = new_folder(50, 2);
    write_bytes("tokens/train.txt", "a b c\n", 6);
    refuse(config, "tokens holds train.txt, a text, and train.bin, tokens");
    unlink("tokens/train.txt");
    unlink("tokens/train.bin");
    refuse(config, "tokens holds neither train.txt, for a text, nor train.bin");
}

/* Small numbers of four bytes, where two are expected: every other token would be 0. */
static void tokens_that_are_too_wide_are_noticed(void **state)
{
    (void)state;
    int32_t many[64];
    struct pp_config config = new_folder(50, 2);
    for (int i = 0; i < COUNT(many); i++) many[i] = i % 50;
    write_tokens("tokens/train.bin", many, COUNT(many), 4);
    refuse(config, "tokens/train.bin: every other token is 0");
    write_tokens("tokens/train.bin", many, 31, 4); /* too few to judge */
    pp_data_free(load(config));
    write_tokens("tokens/train.bin", many, COUNT(many), 2);
    pp_data_free(load(config));
    memset(many, 0, sizeof many); /* of nothing but zeros nobody can tell, and the rule says two bytes */
    write_tokens("tokens/train.bin", many, COUNT(many), 2);
    pp_data_free(load(config));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tokens_of_two_and_four_bytes),
        cmocka_unit_test(a_long_file),
        cmocka_unit_test(the_validation_part_is_the_test_where_there_is_none),
        cmocka_unit_test(equal_tokens_have_equal_hashes),
        cmocka_unit_test(bad_files_are_refused),
        cmocka_unit_test(tokens_that_are_too_wide_are_noticed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
