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
#include "exec/weights_sums.h"

/* OWN_NOTES: the version and the numbers of the state, which a checkpoint has beside its run's identity. */
enum { FLOATS = 6 + 3, MOST = 1 << 16, OWN_NOTES = 9 };

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
    .epoch = 2,
    .batch = 3,
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
    pp_status status = pp_restart_read(FILE_NAME, mine, &model, false, state, &found);
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
        assert_int_equal(read.epoch, cases[i]->epoch);
        assert_int_equal(read.batch, cases[i]->batch);
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
    assert_int_equal(pp_restart_read(FILE_NAME, &identity, &model, false, &read, &found), PP_OK);
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
    refused(&mine, "with other options: --seed was 1 and is 2; give the old ones");
    strcpy(mine.v[1].value, "cd34");
    refused(&mine, "of another run: --seed was 1 and is 2, data was ab12 and is cd34;");
    mine = identity;
    strcpy(mine.v[2].value, "another cpu"); /* a warning */
    assert_int_equal(read_it(&mine, &read), PP_OK);
    mine = identity;
    pp_notes_add(&mine, "--new-option", "3");
    refused(&mine, "no checkpoint of this version: it has no '--new-option'");
}

/* As --resume-changed reads it. */
static pp_status read_changed(const struct pp_notes *mine, struct pp_restart_state *state)
{
    bool found;
    return pp_restart_read(FILE_NAME, mine, &model, true, state, &found);
}

static void save_as(const struct pp_notes *notes, const struct pp_restart_state *state)
{
    struct pp_weights_writer *writer = NULL;
    assert_int_equal(pp_restart_create(FILE_NAME, notes, &model, state, &writer), PP_OK);
    for (int i = 0; i < (state->best_loss < INFINITY ? 2 : 1); i++)
        assert_int_equal(pp_weights_append(writer, values, FLOATS), PP_OK);
    assert_int_equal(pp_weights_commit(writer), PP_OK);
}

static void what_may_change(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        bool may;
    } cases[] = {{"--lr", true},     {"accumulation key", true}, {"--precision", true}, {"--dropout", true},
                 {"--layers", false}, {"--optimizer", false},     {"--mask", false},      {"data", false},
                 {"--of-tomorrow", false}};
    struct pp_restart_state read;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct pp_notes theirs = {0}, mine = {0};
        pp_notes_add(&theirs, cases[i].name, "1");
        pp_notes_add(&mine, cases[i].name, "2");
        save_as(&theirs, &evaluated);
        refused(&mine, cases[i].may ? "--resume-changed" : "of another run");
        if (!strstr(pp_message(), "was 1 and is 2")) fail_msg("%s", pp_message());
        assert_int_equal(read_changed(&mine, &read), cases[i].may ? PP_OK : PP_INPUT);
    }
}

static void the_learning_rate_follows(void **state)
{
    (void)state;
    struct pp_notes mine = {.n = 1, .v = {{"--lr", "0.5"}}}, other = mine;
    struct pp_restart_state read, decayed = evaluated;
    decayed.learning_rate = 0.5 * 0.9;
    save_as(&mine, &decayed);
    assert_int_equal(read_changed(&mine, &read), PP_OK);
    assert_true(read.learning_rate == decayed.learning_rate);
    strcpy(other.v[0].value, "2");
    assert_int_equal(read_changed(&other, &read), PP_OK);
    assert_true(fabs(read.learning_rate - 2 * 0.9) < 1e-15);
    strcpy(mine.v[0].value, "0");
    decayed.learning_rate = 0;
    save_as(&mine, &decayed);
    assert_int_equal(read_changed(&other, &read), PP_OK);
    assert_true(read.learning_rate == 2);
}

static void other_batches_begin_with_an_epoch(void **state)
{
    (void)state;
    static const char *const names[] = {"rows of all replicas", "--tokens"};
    struct pp_restart_state read, between = evaluated;
    between.batch = 0;
    for (int i = 0; i < 2; i++) {
        struct pp_notes theirs = {0}, mine = {0};
        pp_notes_add(&theirs, names[i], "6");
        pp_notes_add(&mine, names[i], "12");
        save_as(&theirs, &evaluated);
        assert_int_equal(read_changed(&mine, &read), PP_INPUT);
        assert_non_null(strstr(pp_message(), "it is inside an epoch, after 3 of its batches"));
        save_as(&theirs, &between);
        assert_int_equal(read_changed(&mine, &read), PP_OK);
    }
}

static void a_long_list_of_differences_fits(void **state)
{
    (void)state;
    struct pp_notes mine = {0};
    char name[PP_NOTE_NAME], text[PP_NOTE_VALUE];
    struct pp_weights_writer *writer = NULL;
    memset(text, 'x', sizeof text);
    text[sizeof text - 1] = '\0';
    for (int i = 0; i < PP_NOTES - OWN_NOTES; i++) {
        snprintf(name, sizeof name, "--%d", i);
        pp_notes_add(&mine, name, text);
    }
    assert_int_equal(pp_restart_create(FILE_NAME, &mine, &model, &plain, &writer), PP_OK);
    assert_int_equal(pp_weights_append(writer, values, FLOATS), PP_OK);
    assert_int_equal(pp_weights_commit(writer), PP_OK);
    for (int i = 0; i < mine.n; i++) memset(mine.v[i].value, 'y', sizeof text - 1);
    refused(&mine, "--0 was xxx");
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
    for (int i = 0; i < PP_NOTES - OWN_NOTES + 1; i++) pp_notes_add(&full, "--seed", "1");
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

/* All that a run reads when it goes on. */
static pp_status read_all(void)
{
    struct pp_weights_reader *reader = NULL;
    struct pp_restart_state read;
    float got[6];
    PP_TRY(read_it(&identity, &read));
    struct pp_tensor all[4] = {tensors[0], tensors[1], tensors[0], tensors[1]};
    const struct pp_model file = {.ntensors = 4, .tensors = all, .parameters = 2 * FLOATS};
    for (int i = 2; i < 4; i++) snprintf(all[i].name, sizeof all[i].name, "best.%.50s", tensors[i - 2].name);
    PP_TRY(pp_weights_open(FILE_NAME, &file, &reader));
    pp_status status = PP_OK;
    for (int i = 0; i < 4 && status == PP_OK; i++) status = pp_weights_read(reader, i, 0, all[i].elements, got);
    pp_weights_close(reader);
    return status;
}

/* One byte of the file is another one: header, checksums, weights, best weights. */
static void one_byte_anywhere(void **state)
{
    (void)state;
    static const unsigned char flips[] = {0x01, 0x10, 0x20, 0x80, 0xff};
    static char bytes[MOST];
    save(&evaluated);
    assert_int_equal(read_all(), PP_OK);
    const size_t n = slurp(bytes);
    for (size_t i = 0; i < n; i++)
        for (size_t f = 0; f < sizeof flips; f++) {
            bytes[i] = (char)(bytes[i] ^ flips[f]);
            spill(bytes, n);
            if (read_all() == PP_OK) fail_msg("byte %zu of %zu, changed by %02x, is not seen", i, n, flips[f]);
            assert_non_null(strstr(pp_message(), FILE_NAME));
            bytes[i] = (char)(bytes[i] ^ flips[f]);
        }
}

static void the_damaged_tensor_is_named(void **state)
{
    (void)state;
    static const struct {
        int from_end; /* byte */
        const char *what;
    } cases[] = {{1, "'best.decoder.bias'"}, {24, "'best.embedding.weight'"}, {40, "'decoder.bias'"},
                 {72, "'embedding.weight' has not the checksum that it was written with (in bytes "}};
    static char bytes[MOST];
    save(&evaluated);
    const size_t n = slurp(bytes);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *at = &bytes[n - (size_t)cases[i].from_end];
        *at ^= 4;
        spill(bytes, n);
        assert_int_equal(read_all(), PP_INPUT);
        if (!strstr(pp_message(), cases[i].what)) fail_msg("'%s' is not in: %s", cases[i].what, pp_message());
        *at ^= 4;
    }
}

/* As a program would have written the header that is there now. */
static void mend_header(char *bytes)
{
    uint64_t length;
    memcpy(&length, bytes, sizeof length);
    char *header = bytes + sizeof length, *digits = pp_sums_find(header, length);
    assert_non_null(digits);
    pp_sum_write(pp_sum_of_header(header, length, digits), digits);
}

/* As a file is without checksums, which names none. Same length, so that the header stays in its place. */
static void forget_sums(char *bytes, size_t n, const char *version)
{
    char *at = memmem(bytes, n, "\"crc32 of", 9);
    assert_non_null(at);
    memcpy(at, "\"cut32 of", 9);
    at = memmem(bytes, n, "checkpoint\":\"2\"", 15);
    assert_non_null(at);
    at[13] = version[0];
}

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
        {"\"epoch\":\"2\"", "\"epoch\":\"-\"", "its 'epoch' is -"},
        {"\"batches of the epoch\":\"3\"", "\"batches of the epoch\":\".\"", "its 'batches of the epoch' is ."},
        {"line\":\"2\"", "line\":\"-\"", "is damaged"},
        {"\"learning rate\":\"0x", "\"learning rate\":\"0z", "'learning rate'"},
        {"\"best validation loss\":\"0x1.5555555555555p-2\"", "\"best validation loss\":\"inf\"                 ",
         "'best.embedding.weight'"},
        {"\"best.decoder.bias\"", "\"next.decoder.bias\"", "'best.decoder.bias'"},
        {"\"__metadata__\"", "\"__metadatum_\"", "no 'ppkit checkpoint'"},
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
        mend_header(bytes);
        spill(bytes, n);
        refused(&identity, cases[i].what);
    }
}

/* The first version has none; the second always does. */
static void without_checksums(void **state)
{
    (void)state;
    static char bytes[MOST];
    static const char *const versions[] = {"1", "2", "3"}, *const what[] = {NULL, "no checksums", "of version 3"};
    for (int i = 0; i < 3; i++) {
        save(&evaluated);
        const size_t n = slurp(bytes);
        forget_sums(bytes, n, versions[i]);
        spill(bytes, n);
        if (what[i])
            refused(&identity, what[i]);
        else
            assert_int_equal(read_all(), PP_OK);
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
        cmocka_unit_test(what_may_change),
        cmocka_unit_test(the_learning_rate_follows),
        cmocka_unit_test(other_batches_begin_with_an_epoch),
        cmocka_unit_test(a_long_list_of_differences_fits),
        cmocka_unit_test(notes_that_do_not_fit_are_no_file),
        cmocka_unit_test(truncated_anywhere),
        cmocka_unit_test(one_byte_anywhere),
        cmocka_unit_test(the_damaged_tensor_is_named),
        cmocka_unit_test(without_checksums),
        cmocka_unit_test(spoilt_state),
        cmocka_unit_test(other_kinds_of_files),
        cmocka_unit_test(what_a_killed_writer_leaves_is_in_nobodys_way),
        cmocka_unit_test(the_one_before_stays_until_the_next_is_whole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
