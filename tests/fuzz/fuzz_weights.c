/* SPDX-License-Identifier: Apache-2.0
 *
 * safetensors files, read for a model of two tensors. A file that was accepted can be read to the end, unless a tensor
 * has not its checksum.
 */
#include "exec/weights.h"
#include "tests/fuzz/fuzz.h"

static char path[320];

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc, (void)argv;
    fuzz_path("file.safetensors", path, sizeof path);
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct pp_tensor tensors[] = {{.name = "a", .ndim = 2, .shape = {2, 3}, .elements = 6},
                                         {.name = "b.bias", .ndim = 1, .shape = {3}, .elements = 3}};
    static const struct pp_model model = {.ntensors = 2, .tensors = tensors, .parameters = 9};
    struct pp_weights_reader *reader = NULL;
    float values[6];
    fuzz_write(path, data, size);
    if (pp_weights_open(path, &model, &reader) != PP_OK) {
        fuzz_must(strstr(pp_message(), path) != NULL, "a refusal names the file");
        return 0;
    }
    for (int i = 0; i < 2; i++) {
        if (pp_weights_read(reader, i, 0, tensors[i].elements, values) == PP_OK) continue;
        fuzz_must(pp_weights_has_sums(reader), "an accepted tensor is there");
        fuzz_must(strstr(pp_message(), path) && strstr(pp_message(), tensors[i].name), "what is damaged is named");
    }
    pp_weights_close(reader);
    return 0;
}
