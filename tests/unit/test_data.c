/* SPDX-License-Identifier: Apache-2.0
 *
 * Words, vocabulary, and the data that needs no file.
 */
#include <errno.h>
#include <math.h>
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

#include "core/base/utf8.h"
#include "exec/data.h"
#include "exec/tokenize.h"

static void write_bytes(const char *path, const char *bytes, size_t n)
{
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, n, file), n);
    assert_int_equal(fclose(file), 0);
}

static void write_text(const char *path, const char *text) { write_bytes(path, text, strlen(text)); }

/* --- words --- */

static pp_status join(void *arg, const char *word, size_t length)
{
    char *text = arg;
    if (*text) strcat(text, "|");
    strncat(text, word, length);
    return PP_OK;
}

static void expect_words(const char *text, const char *words)
{
    char got[400] = "";
    write_text("words.txt", text);
    assert_int_equal(pp_tokenize_file("words.txt", join, got), PP_OK);
    assert_string_equal(got, words);
}

static void words_by_the_rules(void **state)
{
    (void)state;
    expect_words("Hello, World!", "hello|,|world|!");
    expect_words("it's (a) test?\n", "it|'|s|(|a|)|test|?");
    expect_words("a;b:c d<br />e <br/> f", "a|b|c|d|e|<br/>|f");
    expect_words("\"quoted\" wo\"rd <br\" />x", "quoted|word|x");
    expect_words("3.5 , U.S. -- <unk>", "3|.|5|,|u|.|s|.|--|<unk>");
    expect_words("\n \t \r\n", "");
    expect_words("no newline at the end", "no|newline|at|the|end");
    expect_words("\xc3\x89T\xc3\x89 \xc5\x81\xc3\x93\xc4\x8f", "\xc3\xa9t\xc3\xa9|\xc5\x82\xc3\xb3\xc4\x8f");
    expect_words("thin\xe2\x80\x89space nbsp\xc2\xa0word \xf0\x9f\x98\x80", "thin|space|nbsp|word|\xf0\x9f\x98\x80");
}

static void expect_refusal(const char *bytes, size_t n, const char *what)
{
    char got[400] = "";
    write_bytes("bad.txt", bytes, n);
    assert_int_equal(pp_tokenize_file("bad.txt", join, got), PP_INPUT);
    assert_non_null(strstr(pp_message(), "bad.txt"));
    if (!strstr(pp_message(), what)) fail_msg("'%s' is not in: %s", what, pp_message());
}

static void what_is_no_text_is_refused(void **state)
{
    (void)state;
    expect_refusal("good\nbad \xff\n", 11, "line 2, byte 5: not valid UTF-8");
    expect_refusal("\xc3", 1, "line 1");                  /* cut off */
    expect_refusal("\xc0\xaf", 2, "not valid UTF-8");     /* overlong */
    expect_refusal("\xed\xa0\x80", 3, "not valid UTF-8"); /* a surrogate */
    expect_refusal("a\n\nb\0c\n", 7, "line 3: a NUL byte");
    assert_int_equal(pp_tokenize_file("missing.txt", join, NULL), PP_INPUT);
    mkdir("folder", 0777);
    assert_int_equal(pp_tokenize_file("folder", join, NULL), PP_INPUT);
    assert_non_null(strstr(pp_message(), "is a folder"));
    mkfifo("pipe", 0666);
    assert_int_equal(pp_tokenize_file("pipe", join, NULL), PP_INPUT); /* at once, though nobody writes */
    assert_non_null(strstr(pp_message(), "is a pipe"));
}

static void code_points_go_around(void **state)
{
    (void)state;
    unsigned char bytes[4];
    uint32_t back = 0;
    for (uint32_t code = 1; code < 0x110000; code++) {
        if (code >= 0xd800 && code < 0xe000) continue;
        size_t n = pp_utf8_encode(code, bytes);
        if (pp_utf8_decode(bytes, n, &back) != n || back != code) fail_msg("U+%04X became U+%04X", code, back);
        if (n > 1 && pp_utf8_decode(bytes, n - 1, &back) != 0) fail_msg("U+%04X cut off was taken", code);
    }
}

/* --- a folder --- */

static struct pp_config config_of(const char *data)
{
    return (struct pp_config){.data = data,
                              .rows = 2,
                              .tokens = 3,
                              .replicas = 1,
                              .model.vocab = 50,
                              .eval_rows = 2,
                              .seed = 1,
                              .generated_tokens = 20000,
                              .model.mask = PP_MASK_CAUSAL};
}

static void make_folder(void)
{
    mkdir("text", 0777);
    write_text("text/train.txt", "b b b c c <unk> zz\n\n a. a\xc3\xa9 a\xc3\xa9\n");
    write_text("text/valid.txt", "a b c never\n");
    write_text("text/test.txt", "zz b\nseen?\n");
}

/* b 3; then twice c and a-acute, by code point a\xc3\xa9 before c; then once . a zz */
static void a_folder_is_read(void **state)
{
    (void)state;
    static const int32_t train[] = {1, 1, 1, 3, 3, 0, 6, 5, 4, 2, 2}, valid[] = {5, 1, 3, 0}, test[] = {6, 1, 0, 0};
    struct pp_config config = config_of("text");
    struct pp_data *data = NULL;
    make_folder();
    assert_int_equal(pp_data_load(&config, &data), PP_OK);
    assert_int_equal(data->vocabulary, 7);
    assert_int_equal(data->length[PP_PART_TRAIN], 11);
    assert_memory_equal(data->words[PP_PART_TRAIN], train, sizeof train);
    assert_memory_equal(data->words[PP_PART_VALID], valid, sizeof valid);
    assert_int_equal(data->length[PP_PART_TEST], 4);
    assert_memory_equal(data->words[PP_PART_TEST], test, sizeof test);
    pp_data_free(data);
}

static void expect_load_failure(struct pp_config config, pp_status status, const char *what)
{
    struct pp_data *data = NULL;
    assert_int_equal(pp_data_load(&config, &data), status);
    if (!strstr(pp_message(), what)) fail_msg("'%s' is not in: %s", what, pp_message());
}

static void bad_folders_are_refused(void **state)
{
    (void)state;
    struct pp_config config = config_of("text");
    struct pp_data *data = NULL;
    make_folder();
    unlink("text/valid.txt");
    expect_load_failure(config, PP_INPUT, "text/valid.txt");
    config.no_eval = true;
    assert_int_equal(pp_data_load(&config, &data), PP_OK);
    assert_null(data->words[PP_PART_VALID]);
    pp_data_free(data);
    write_text("text/train.txt", "\n  \n\n");
    expect_load_failure(config, PP_INPUT, "text/train.txt holds no words");
    expect_load_failure(config_of("nowhere"), PP_INPUT, "no folder 'nowhere'");
    expect_load_failure(config_of("words.txt"), PP_INPUT, "no folder 'words.txt'");
}

/* Whatever went wrong before: the name of such a file is never looked for. */
static void a_path_that_is_too_long_is_told(void **state)
{
    (void)state;
    char here[4095]; /* of the folder alone it is not */
    for (size_t i = 0; i < sizeof here; i++) here[i] = "./"[i % 2];
    here[sizeof here - 1] = '\0';
    errno = ENOENT;
    expect_load_failure(config_of(here), PP_INPUT, "--data: the path is too long");
}

/* --- constant --- */

/* Two replicas of 2 rows see what one of 4 rows sees, each its half of the rows. */
static void constant_sequences(void **state)
{
    (void)state;
    struct pp_config config = config_of("constant");
    struct pp_data *data = NULL;
    int32_t in[6], out[6];
    config.replicas = 2;
    assert_int_equal(pp_data_load(&config, &data), PP_OK);
    for (int replica = 0; replica < 2; replica++) {
        struct pp_batches b;
        const struct pp_batch_cut cut = {.rows = 2, .seq = 3, .replicas = 2, .replica = replica};
        assert_int_equal(pp_batches_cut(data, PP_PART_TRAIN, &cut, &b), PP_OK);
        assert_int_equal(b.count, 3);
        assert_int_equal(b.tail_seq, 0);
        for (int i = 0; i < 3; i++) {
            pp_batches_get(&b, i, in, out);
            for (int w = 0; w < 6; w++) {
                assert_int_equal(in[w], (i * 2 + replica) * 2 + w / 3);
                assert_int_equal(out[w], in[w]);
            }
        }
    }
    assert_null(data->words[PP_PART_VALID]);
    pp_data_free(data);
}

/* --- generated --- */

/* Entropy of a word after its predecessor, as counted: bounds the loss of any model that sees only one word back. */
static double conditional_entropy(const struct pp_data *data, int vocabulary)
{
    int *pairs = calloc((size_t)vocabulary * (size_t)vocabulary, sizeof *pairs),
        *singles = calloc((size_t)vocabulary, sizeof *singles);
    const int32_t *words = data->words[PP_PART_TRAIN];
    int64_t n = data->length[PP_PART_TRAIN] - 1;
    double sum = 0;
    for (int64_t i = 0; i < n; i++) {
        pairs[words[i] * vocabulary + words[i + 1]]++;
        singles[words[i]]++;
    }
    for (int i = 0; i < vocabulary; i++)
        for (int j = 0; j < vocabulary; j++)
            if (pairs[i * vocabulary + j])
                sum -= pairs[i * vocabulary + j] * log((double)pairs[i * vocabulary + j] / singles[i]);
    free(pairs);
    free(singles);
    return sum / (double)n;
}

static void generated_text_can_be_learned(void **state)
{
    (void)state;
    for (int vocabulary = 2; vocabulary <= 50; vocabulary += 16) {
        struct pp_config config = config_of(NULL);
        struct pp_data *data = NULL, *again = NULL, *other = NULL;
        config.model.vocab = vocabulary;
        assert_int_equal(pp_data_load(&config, &data), PP_OK);
        assert_int_equal(pp_data_load(&config, &again), PP_OK);
        config.seed = 2;
        assert_int_equal(pp_data_load(&config, &other), PP_OK);
        double entropy = conditional_entropy(data, vocabulary);
        if (!(fabs(entropy - data->reachable_loss) <= 0.02))
            fail_msg("vocabulary %d: entropy %g, said %g", vocabulary, entropy, data->reachable_loss);
        assert_int_equal(data->length[PP_PART_VALID], 2000);
        size_t bytes = (size_t)data->length[PP_PART_TRAIN] * sizeof(int32_t);
        assert_memory_equal(data->words[PP_PART_TRAIN], again->words[PP_PART_TRAIN], bytes);
        assert_true(memcmp(data->words[PP_PART_TRAIN], other->words[PP_PART_TRAIN], bytes) != 0);
        for (int64_t i = 0; i < data->length[PP_PART_TRAIN]; i++)
            assert_in_range(data->words[PP_PART_TRAIN][i], 0, vocabulary - 1);
        pp_data_free(data);
        pp_data_free(again);
        pp_data_free(other);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(words_by_the_rules),      cmocka_unit_test(what_is_no_text_is_refused),
        cmocka_unit_test(code_points_go_around),   cmocka_unit_test(a_folder_is_read),
        cmocka_unit_test(bad_folders_are_refused), cmocka_unit_test(a_path_that_is_too_long_is_told),
        cmocka_unit_test(constant_sequences),      cmocka_unit_test(generated_text_can_be_learned),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
