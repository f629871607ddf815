/* SPDX-License-Identifier: Apache-2.0
 *
 * Words, vocabulary and token numbers of tests/golden/text/ against tests/oracle/text.py, which wrote tokens.json
 * there. The text has quotes, Latin, Greek and Cyrillic capitals, line breaks as <br />, tabs and empty lines.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>
#include <jansson.h>

#include "exec/tokenize.h"
#include "exec/vocabulary.h"

#define GOLDEN PP_TEST_FILES "/golden/text/"

static pp_status count_word(void *arg, const char *word, size_t length)
{
    int32_t number;
    return pp_vocabulary_add(arg, word, length, &number);
}

struct reading {
    const struct pp_vocabulary *vocabulary;
    json_t *expected; /* array of token numbers */
    size_t n;
};

static pp_status compare_word(void *arg, const char *word, size_t length)
{
    struct reading *reading = arg;
    json_int_t expected = json_integer_value(json_array_get(reading->expected, reading->n));
    if (pp_vocabulary_find(reading->vocabulary, word, length) != expected)
        fail_msg("word %zu is '%.*s', number %d instead of %d", reading->n, (int)length, word,
                 (int)pp_vocabulary_find(reading->vocabulary, word, length), (int)expected);
    reading->n++;
    return PP_OK;
}

static struct pp_vocabulary *load_vocabulary(void)
{
    struct pp_vocabulary *vocabulary = NULL;
    int32_t *map = NULL;
    assert_int_equal(pp_vocabulary_create(&vocabulary), PP_OK);
    assert_int_equal(pp_tokenize_file(GOLDEN "train.txt", count_word, vocabulary), PP_OK);
    assert_int_equal(pp_vocabulary_rank(vocabulary, &map), PP_OK);
    free(map);
    return vocabulary;
}

static void tokens_as_the_oracle(void **state)
{
    (void)state;
    json_t *golden = json_load_file(GOLDEN "tokens.json", 0, NULL);
    assert_non_null(golden);
    struct pp_vocabulary *vocabulary = load_vocabulary();
    json_t *words = json_object_get(golden, "vocabulary");
    assert_int_equal(pp_vocabulary_size(vocabulary), json_array_size(words));
    for (size_t i = 0; i < json_array_size(words); i++) {
        json_t *word = json_array_get(words, i);
        assert_int_equal(pp_vocabulary_find(vocabulary, json_string_value(word), json_string_length(word)), i);
    }
    static const char *const parts[] = {"train", "valid", "test"};
    for (int i = 0; i < 3; i++) {
        char path[4096];
        struct reading reading = {.vocabulary = vocabulary, .expected = json_object_get(golden, parts[i])};
        snprintf(path, sizeof path, GOLDEN "%s.txt", parts[i]);
        assert_int_equal(pp_tokenize_file(path, compare_word, &reading), PP_OK);
        assert_int_equal(reading.n, json_array_size(reading.expected));
    }
    pp_vocabulary_free(vocabulary);
    json_decref(golden);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(tokens_as_the_oracle)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
