/* SPDX-License-Identifier: Apache-2.0
 *
 * Checkpoint files, read for a run with two options and a model of two tensors. What is accepted has a state that a run
 * can have.
 */
#include "exec/restart.h"
#include "tests/fuzz/fuzz.h"

static char path[320];

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc, (void)argv;
    fuzz_path("file.checkpoint", path, sizeof path);
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct pp_tensor tensors[] = {{.name = "a", .ndim = 2, .shape = {2, 3}, .elements = 6},
                                         {.name = "b.bias", .ndim = 1, .shape = {3}, .elements = 3}};
    static const struct pp_model model = {.ntensors = 2, .tensors = tensors, .parameters = 9};
    static const struct pp_notes identity = {.n = 2, .v = {{"--seed", "1"}, {"data", "ab12"}}};
    struct pp_restart_state state;
    bool found;
    fuzz_write(path, data, size);
    if (pp_restart_read(path, &identity, &model, size % 2, &state, &found) != PP_OK) {
        fuzz_must(strstr(pp_message(), path) != NULL, "a refusal names the file");
        return 0;
    }
    fuzz_must(found, "an accepted file is there");
    fuzz_must(state.step >= 0 && state.totals.interval_steps >= 0, "counts are counts");
    fuzz_must(state.epoch >= -1 && (state.epoch < 0) == (state.batch < 0), "the place in an epoch is known or not");
    return 0;
}
