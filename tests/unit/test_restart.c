/* SPDX-License-Identifier: Apache-2.0
 *
 * Checkpoint files: around once, those of other runs, and how they are written.
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

#include "restart_case.h"

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
    } cases[] = {{"--lr", true},          {"accumulation key", true}, {"--precision", true}, {"--dropout", true},
                 {"--layers", false},     {"--optimizer", false},     {"--mask", false},     {"data", false},
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

/* What a checkpoint says of one model in other words than this run would is no difference. */
static void one_model_in_several_spellings(void **state)
{
    (void)state;
    static const struct pp_notes plain_model = {.n = 9,
                                                .v = {{"--d-model", "32"},
                                                      {"--heads", "4"},
                                                      {"--layers", "4"},
                                                      {"--positions", "learned"},
                                                      {"--tokens", "64"},
                                                      {"--d-ff", "40"},
                                                      {"--experts", "4"},
                                                      {"--dense-layers", "1"},
                                                      {"--window-size", "8"}}};
    static const struct {
        const char *option, *written, *canonical, *other;
    } cases[] = {{"--head-dim", "8", "0", "6"},        {"--kv-heads", "4", "0", "2"},
                 {"--dense-ff", "40", "0", "20"},      {"--max-positions", "64", "0", "65"},
                 {"--experts-every", "9", "3", "2"},   {"--window-attn-skip-freq", "5", "0", "4"},
                 {"--adam-beta1", "0.8", "0.9", NULL}, {"--rope-theta", "5", "10000", NULL}};
    struct pp_restart_state read;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct pp_notes theirs = plain_model, mine = plain_model;
        pp_notes_add(&theirs, cases[i].option, cases[i].written);
        pp_notes_add(&mine, cases[i].option, cases[i].canonical);
        save_as(&theirs, &plain);
        if (read_it(&mine, &read) != PP_OK) fail_msg("%s: %s", cases[i].option, pp_message());
        if (!cases[i].other) continue;
        strcpy(mine.v[mine.n - 1].value, cases[i].other);
        refused(&mine, cases[i].option);
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

/* --resume-changed may let numbers to learn by differ, never what says which tensors there are, or what they mean. */
static void what_the_weights_mean_never_changes(void **state)
{
    (void)state;
    static const char *const meaning[] = {"d-model",
                                          "heads",
                                          "head-dim",
                                          "kv-heads",
                                          "d-ff",
                                          "experts",
                                          "shared-ff",
                                          "gates",
                                          "layers",
                                          "norm",
                                          "normalization",
                                          "norm-epsilon",
                                          "qk-norm",
                                          "activation",
                                          "bias",
                                          "vocab",
                                          "mask",
                                          "style",
                                          "positions",
                                          "rope-theta",
                                          "rotary-dim",
                                          "optimizer",
                                          "tie-embeddings",
                                          "shared-gate",
                                          "experts-per-token",
                                          "rope-factor",
                                          "rope-scaling",
                                          "rope-truncate",
                                          "rope-attention-factor",
                                          "score-factor",
                                          "rope-low-freq-factor",
                                          "rope-high-freq-factor",
                                          "rope-original-tokens",
                                          "router-score",
                                          "expert-bias",
                                          "expert-groups",
                                          "groups-per-token",
                                          "group-score",
                                          "gate-scale",
                                          "dense-layers",
                                          "experts-every",
                                          "dense-ff",
                                          "window-size",
                                          "window-attn-skip-freq"};
    for (size_t i = 0; i < sizeof meaning / sizeof *meaning; i++) {
        const struct pp_opt *row = pp_config_row(meaning[i]);
        assert_non_null(row);
        if (!(row->traits & PP_OPT_FIXED) || row->traits & PP_OPT_CHANGES) fail_msg("--%s", row->name);
    }
    for (int i = 0; i < pp_config_nrows; i++) {
        const struct pp_opt *row = &pp_config_rows[i];
        if (row->traits & PP_OPT_CHANGES && !(row->traits & PP_OPT_FIXED)) fail_msg("--%s", row->name);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_the_weights_mean_never_changes),
        cmocka_unit_test(around_once),
        cmocka_unit_test(numbers_that_are_none_come_back),
        cmocka_unit_test(without_best_weights_it_is_a_weights_file),
        cmocka_unit_test(no_file),
        cmocka_unit_test(all_fixed_options_fit),
        cmocka_unit_test(another_run),
        cmocka_unit_test(what_may_change),
        cmocka_unit_test(one_model_in_several_spellings),
        cmocka_unit_test(the_learning_rate_follows),
        cmocka_unit_test(other_batches_begin_with_an_epoch),
        cmocka_unit_test(a_long_list_of_differences_fits),
        cmocka_unit_test(notes_that_do_not_fit_are_no_file),
        cmocka_unit_test(what_a_killed_writer_leaves_is_in_nobodys_way),
        cmocka_unit_test(the_one_before_stays_until_the_next_is_whole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
