/* SPDX-License-Identifier: Apache-2.0
 *
 * Checkpoint files: around once, other runs, and every way in which a file can be wrong.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "exec/restart.h"

enum { FLOATS = 6 + 3, MOST = 1 << 16 };

#define FILE_NAME "run.checkpoint"

static struct pp_tensor tensors[] = {
    {.name = "embedding.weight", .ndim = 2, .shape = {2, 3}, .elements = 6},
    {.name = "decoder.bias", .ndim = 1, .shape = {3}, .elements = 3},
};
static const struct pp_model model = {.ntensors = 2, .tensors = tensors, .parameters = FLOATS};
static const float values[FLOATS] = {1, -2, 3.5f, 0, 1e-30f, 6, 7, 8, 9};
static const struct pp_notes identity = {.n = 3, .v = {{"--seed", "1"}, {"data", "ab12"}, {"device", "a cpu"}}};
static const struct pp_restart_state evaluated = {
    .step = 7,
    .learning_rate = 0.1 + 0.2,
    .best_loss = 1.0 / 3,
    .totals = {.epoch_loss = 1e300 / 3, .interval_loss = 0.7, .interval_steps = 2}};
static const struct pp_restart_state plain = {.step = 0, .learning_rate = 5, .best_loss = INFINITY};

static void save(const struct pp_restart_state *state)
{
    struct pp_weights_writer *writer = NULL;
    assert_int_equal(pp_restart_create(FILE_NAME, &identity, &model, state, &writer), PP_OK);
    assert_int_equal(pp_weights_append(writer, values, FLOATS), PP_OK);
    if (state->best_loss < INFINITY) assert_int_equal(pp_weights_append(writer, values, FLOATS), PP_OK);
    assert_int_equal(pp_weights_commit(writer), PP_OK);
}

static pp_status read_it(const struct pp_notes *mine, struct pp_restart_state *state)
{
    bool found = false;
    pp_status status = pp_restart_read(FILE_NAME, mine, &model, state, &found);
    assert_true(found);
    return status;
}

static void refused(const struct pp_notes *mine, const char *what)
{
    struct pp_restart_state state;
    assert_int_equal(read_it(mine, &state), PP_INPUT);
    if (!strstr(pp_message(), what)) fail_msg("'%s' is not in: %s", what, pp_message());
    assert_non_null(strstr(pp_message(), "--resume: "));
    assert_non_null(strstr(pp_message(), FILE_NAME));
}

static void around_once(void **state)
{
    (void)state;
    const struct pp_restart_state *cases[] = {&evaluated, &plain};
    for (int i = 0; i < 2; i++) {
        struct pp_restart_state read;
        save(cases[i]);
        assert_int_equal(read_it(&identity, &read), PP_OK);
        assert_int_equal(read.step, cases[i]->step);
        assert_true(read.learning_rate == cases[i]->learning_rate && read.best_loss == cases[i]->best_loss);
        assert_true(read.totals.epoch_loss == cases[i]->totals.epoch_loss);
        assert_true(read.totals.interval_loss == cases[i]->totals.interval_loss);
        assert_int_equal(read.totals.interval_steps, cases[i]->totals.interval_steps);
    }
}

static void numbers_that_are_none_come_back(void **state)
{
    (void)state;
    struct pp_restart_state read, diverged = plain;
    diverged.totals.epoch_loss = NAN;
    save(&diverged);
    assert_int_equal(read_it(&identity, &read), PP_OK);
    assert_true(isnan(read.totals.epoch_loss));
}

static void without_best_weights_it_is_a_weights_file(void **state)
{
    (void)state;
    struct pp_weights_reader *reader = NULL;
    save(&plain);
    assert_int_equal(pp_weights_open(FILE_NAME, &model, &reader), PP_OK);
    pp_weights_close(reader);
}

static void no_file(void **state)
{
    (void)state;
    struct pp_restart_state read;
    bool found = true;
    unlink(FILE_NAME);
    assert_int_equal(pp_restart_read(FILE_NAME, &identity, &model, &read, &found), PP_OK);
    assert_false(found);
}

/* --- of another run --- */

static void another_run(void **state)
{
    (void)state;
    struct pp_notes mine = identity;
    struct pp_restart_state read;
    save(&plain);
    strcpy(mine.v[0].value, "2");
    refused(&mine, "of another run: --seed is 1 there and 2 here;");
    strcpy(mine.v[1].value, "cd34");
    refused(&mine, "--seed is 1 there and 2 here, data is ab12 there and cd34 here");
    mine = identity;
    strcpy(mine.v[2].value, "another cpu"); /* a warning */
    assert_int_equal(read_it(&mine, &read), PP_OK);
    mine = identity;
    pp_notes_add(&mine, "--new-option", "3");
    refused(&mine, "no checkpoint of this version: it has no '--new-option'");
}

static void a_long_list_of_differences_fits(void **state)
{
    (void)state;
    struct pp_notes mine = {0};
    char name[PP_NOTE_NAME], text[PP_NOTE_VALUE];
    struct pp_weights_writer *writer = NULL;
    memset(text, 'x', sizeof text);
    text[sizeof text - 1] = '\0';
    for (int i = 0; i < PP_NOTES - 6; i++) {
        snprintf(name, sizeof name, "--%d", i);
        pp_notes_add(&mine, name, text);
    }
    assert_int_equal(pp_restart_create(FILE_NAME, &mine, &model, &plain, &writer), PP_OK);
    assert_int_equal(pp_weights_append(writer, values, FLOATS), PP_OK);
    assert_int_equal(pp_weights_commit(writer), PP_OK);
    for (int i = 0; i < mine.n; i++) memset(mine.v[i].value, 'y', sizeof text - 1);
    refused(&mine, "--0 is xxx");
}

/* Nothing is written then: a file without one of them would be taken for that of another run, or not. */
static void notes_that_do_not_fit_are_no_file(void **state)
{
    (void)state;
    static struct pp_notes many, full; /* a further note would be written behind them */
    char name[PP_NOTE_NAME + 1] = "", text[PP_NOTE_VALUE + 1] = "";
    struct pp_weights_writer *writer = NULL;
    memset(name, 'n', PP_NOTE_NAME);
    memset(text, 'x', PP_NOTE_VALUE);
    for (int i = 0; i < PP_NOTES + 3; i++) pp_notes_add(&many, "--seed", "1");
    assert_int_equal(many.n, PP_NOTES);
    assert_int_equal(pp_notes_check(&many), PP_INTERNAL);
    for (int i = 0; i < PP_NOTES - 5; i++) pp_notes_add(&full, "--seed", "1");
    assert_int_equal(pp_notes_check(&full), PP_OK);
    struct pp_notes long_name = identity, long_text = identity;
    pp_notes_add(&long_name, name, "1");
    pp_notes_add(&long_text, "--data", text);
    const struct pp_notes *cases[] = {&many, &full, &long_name, &long_text};
    unlink(FILE_NAME);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(pp_restart_create(FILE_NAME, cases[i], &model, &plain, &writer), PP_INTERNAL);
        assert_null(writer);
        assert_int_equal(access(FILE_NAME, F_OK), -1);
        assert_int_equal(access(FILE_NAME ".part", F_OK), -1);
    }
}

/* --- damaged --- */

static size_t slurp(char *bytes)
{
    FILE *file = fopen(FILE_NAME, "rb");
    assert_non_null(file);
    size_t n = fread(bytes, 1, MOST, file);
    assert_int_equal(fclose(file), 0);
    return n;
}

static void spill(const char *bytes, size_t n)
{
    FILE *file = fopen(FILE_NAME, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, n, file), n);
    assert_int_equal(fclose(file), 0);
}

/* Wherever a file ends too early, it is refused with a message that names it. */
static void truncated_anywhere(void **state)
{
    (void)state;
    static char bytes[MOST];
    save(&evaluated);
    for (size_t n = slurp(bytes), kept = 0; kept < n; kept++) {
        spill(bytes, kept);
        refused(&identity, FILE_NAME);
    }
}

/* Same length, so that the header stays in its place. */
static void spoilt_state(void **state)
{
    (void)state;
    static const struct {
        const char *from, *to, *what;
    } cases[] = {
        {"\"step\":\"7\"", "\"step\":\"x\"", "its 'step' is x"},
        {"\"step\":\"7\"", "\"step\":\"\" ", "its 'step' is "},
        {"\"step\":\"7\"", "\"stop\":\"7\"", "its 'step' is missing"},
        {"\"step\":\"7\"", "\"step\":77 ", "its 'step' is missing"},
        {"line\":\"2\"", "line\":\"-\"", "is damaged"},
        {"\"learning rate\":\"0x", "\"learning rate\":\"0z", "'learning rate'"},
        {"\"best validation loss\":\"0x1.5555555555555p-2\"", "\"best validation loss\":\"inf\"                 ",
         "'best.embedding.weight'"},
        {"\"best.decoder.bias\"", "\"next.decoder.bias\"", "'best.decoder.bias'"},
        {"\"__metadata__\"", "\"__metadatum_\"", "no '--seed'"},
        {"\"--seed\":\"1\"", "\"--sead\":\"1\"", "no '--seed'"},
        {"\"F32\"", "\"F16\"", "F16"},
    };
    static char bytes[MOST];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        save(&evaluated);
        size_t n = slurp(bytes);
        char *at = memmem(bytes, n, cases[i].from, strlen(cases[i].from));
        if (!at) fail_msg("%s is not in the file", cases[i].from);
        assert_int_equal(strlen(cases[i].from), strlen(cases[i].to));
        memcpy(at, cases[i].to, strlen(cases[i].to));
        spill(bytes, n);
        refused(&identity, cases[i].what);
    }
}

static void other_kinds_of_files(void **state)
{
    (void)state;
    spill("nonsense", 8);
    refused(&identity, "no safetensors file");
    unlink(FILE_NAME);
    mkdir(FILE_NAME, 0777);
    refused(&identity, "not a regular file");
    rmdir(FILE_NAME);
}

/* --- writing --- */

static void what_a_killed_writer_leaves_is_in_nobodys_way(void **state)
{
    (void)state;
    struct pp_restart_state read;
    FILE *left = fopen(FILE_NAME ".part", "wb");
    assert_non_null(left);
    for (int i = 0; i < 10000; i++) fputc('x', left);
    fclose(left);
    save(&evaluated);
    assert_int_equal(read_it(&identity, &read), PP_OK);
    assert_int_equal(access(FILE_NAME ".part", F_OK), -1);
}

static void the_one_before_stays_until_the_next_is_whole(void **state)
{
    (void)state;
    struct pp_weights_writer *writer = NULL;
    struct pp_restart_state read;
    save(&evaluated);
    assert_int_equal(pp_restart_create(FILE_NAME, &identity, &model, &plain, &writer), PP_OK);
    assert_int_equal(pp_weights_append(writer, values, 3), PP_OK);
    assert_int_equal(read_it(&identity, &read), PP_OK);
    assert_int_equal(read.step, 7);
    pp_weights_discard(writer);
    assert_int_equal(read_it(&identity, &read), PP_OK);
    assert_int_equal(access(FILE_NAME ".part", F_OK), -1);
}

static void all_fixed_options_fit(void **state)
{
    (void)state;
    int fixed = 0;
    for (int i = 0; i < pp_config_nrows; i++) fixed += (pp_config_rows[i].traits & PP_OPT_FIXED) != 0;
    assert_in_range(fixed, 30, PP_NOTES - 16); /* numbers, and what else is noted */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(around_once),
        cmocka_unit_test(numbers_that_are_none_come_back),
        cmocka_unit_test(without_best_weights_it_is_a_weights_file),
        cmocka_unit_test(no_file),
        cmocka_unit_test(all_fixed_options_fit),
        cmocka_unit_test(another_run),
        cmocka_unit_test(a_long_list_of_differences_fits),
        cmocka_unit_test(notes_that_do_not_fit_are_no_file),
        cmocka_unit_test(truncated_anywhere),
        cmocka_unit_test(spoilt_state),
        cmocka_unit_test(other_kinds_of_files),
        cmocka_unit_test(what_a_killed_writer_leaves_is_in_nobodys_way),
        cmocka_unit_test(the_one_before_stays_until_the_next_is_whole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
