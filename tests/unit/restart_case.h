/* SPDX-License-Identifier: Apache-2.0
 *
 * A checkpoint of a model of two tensors, for tests of checkpoint files. To be included once, behind cmocka.h.
 */
#ifndef PP_TESTS_RESTART_CASE_H
#define PP_TESTS_RESTART_CASE_H

#include <math.h>
#include <string.h>

#include "exec/restart.h"

/* OWN_NOTES: the version and the numbers of the state, which a checkpoint has beside its run's identity. */
enum { FLOATS = 6 + 3, OWN_NOTES = 9 };

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

static inline void save(const struct pp_restart_state *state)
{
    struct pp_weights_writer *writer = NULL;
    assert_int_equal(pp_restart_create(FILE_NAME, &identity, &model, state, &writer), PP_OK);
    assert_int_equal(pp_weights_append(writer, values, FLOATS), PP_OK);
    if (state->best_loss < INFINITY) assert_int_equal(pp_weights_append(writer, values, FLOATS), PP_OK);
    assert_int_equal(pp_weights_commit(writer), PP_OK);
}

static inline pp_status read_it(const struct pp_notes *mine, struct pp_restart_state *state)
{
    bool found = false;
    pp_status status = pp_restart_read(FILE_NAME, mine, &model, false, state, &found);
    assert_true(found);
    return status;
}

static inline void refused(const struct pp_notes *mine, const char *what)
{
    struct pp_restart_state state;
    assert_int_equal(read_it(mine, &state), PP_INPUT);
    if (!strstr(pp_message(), what)) fail_msg("'%s' is not in: %s", what, pp_message());
    assert_non_null(strstr(pp_message(), "--resume: "));
    assert_non_null(strstr(pp_message(), FILE_NAME));
}

#endif
