/* SPDX-License-Identifier: Apache-2.0
 *
 * Folders of tokens: the first byte says how large the vocabulary is, the rest is both the training and the validation
 * part. What was read is below the vocabulary, and is as long as was foretold.
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

static void check_words(const struct pp_data *data, int64_t bytes)
{
    fuzz_must(pp_data_bytes(data) == bytes, "a survey finds the bytes that are kept");
    for (int part = 0; part < PP_PARTS; part++)
        for (int64_t i = 0; i < data->length[part]; i++)
            fuzz_must(data->words[part][i] >= 0 && data->words[part][i] < config.model.vocab,
                      "a token is below the vocabulary");
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    static const char *const names[] = {"train.bin", "val.bin"};
    struct pp_data *data = NULL;
    char path[320];
    int64_t surveyed = 0;
    if (size == 0) return 0;
    config.model.vocab = 2 << bytes[0] % 24;
    for (int i = 0; i < 2; i++) fuzz_write(fuzz_path(names[i], path, sizeof path), bytes + 1, size - 1);
    pp_status found = pp_data_survey(&config, &surveyed);
    if (pp_data_load(&config, &data) == PP_OK) {
        fuzz_must(found == PP_OK, "what can be read can be surveyed");
        check_words(data, surveyed);
        pp_data_free(data);
    }
    return 0;
}
