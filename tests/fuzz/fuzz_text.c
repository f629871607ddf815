/* SPDX-License-Identifier: Apache-2.0
 *
 * Folders of texts: the input up to a byte 0xff is the training text, then come validation and test. What was read can
 * be cut into batches, and every word has a number of the vocabulary.
 */
#include "exec/data.h"
#include "tests/fuzz/fuzz.h"

static struct pp_config config;

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    static const char *const words[] = {"ppexec"};
    (void)argc, (void)argv;
    fuzz_config(PP_PPEXEC, words, 1, &config);
    config.data = fuzz_folder();
    return 0;
}

static void check_batches(const struct pp_data *data)
{
    enum { ROWS = 2, SEQ = 3 };
    const struct pp_batch_cut cut = {.rows = ROWS, .seq = SEQ, .replicas = 2, .replica = 1};
    int32_t inputs[ROWS * SEQ], targets[ROWS * SEQ];
    for (enum pp_part part = 0; part < PP_PARTS; part++) {
        struct pp_batches batches;
        if (!data->words[part] || pp_batches_cut(data, part, &cut, &batches) != PP_OK) continue;
        for (int i = 0; i < batches.count; i++) {
            pp_batches_get(&batches, i, inputs, targets);
            for (int k = 0; k < ROWS * pp_batches_seq(&batches, i); k++)
                fuzz_must(inputs[k] >= 0 && inputs[k] < data->vocabulary && targets[k] >= 0 &&
                              targets[k] < data->vocabulary,
                          "a word has a number of the vocabulary");
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    static const char *const names[PP_PARTS] = {"train.txt", "valid.txt", "test.txt"};
    struct pp_data *data = NULL;
    struct pp_config sized = config;
    char path[320];
    for (int part = 0; part < PP_PARTS; part++) {
        const uint8_t *end = size ? memchr(bytes, 0xff, size) : NULL;
        size_t n = end ? (size_t)(end - bytes) : size;
        fuzz_write(fuzz_path(names[part], path, sizeof path), bytes, n);
        bytes += n + (end != NULL);
        size -= n + (end != NULL);
    }
    pp_status shaped = pp_data_set_vocabulary(&sized);
    if (pp_data_load(&config, &data) == PP_OK) {
        fuzz_must(shaped == PP_OK && sized.model.vocab == data->vocabulary, "all programs see the same vocabulary");
        check_batches(data);
        pp_data_free(data);
    }
    return 0;
}
