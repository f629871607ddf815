/* SPDX-License-Identifier: Apache-2.0
 *
 * The presets: what each sets, in the words of the command line. tutorial and tutorial-12 are the PyTorch pipeline
 * tutorials, lab is a small exercise on constant sequences; small is ours.
 */
#include "core/config.h"

#include <string.h>

#include "core/main.h"

struct setting {
    const char *option, *value;
};

enum { MAX_SETTINGS = 26 };

struct preset {
    const char *name, *summary;
    struct setting settings[MAX_SETTINGS]; /* ends with an empty one */
};

static const struct preset presets[] = {
    {"tutorial", "8 layers, d 4096, 1.04e9 parameters; 20 x 35 tokens, 2 replicas of 2 stages, 8 chunks",
     {{"d-model", "4096"}, {"heads", "16"}, {"d-ff", "4096"}, {"layers", "8"}, {"vocab", "28782"},
      {"mask", "none"}, {"dropout", "0.2"}, {"style", "tutorial"}, {"rows", "20"}, {"tokens", "35"},
      {"lr", "5"}, {"clip", "0.5"}, {"lr-decay", "0.95"}, {"stages", "2"}, {"replicas", "2"}, {"chunks", "8"},
      {"checkpoint", "never"}, {"epochs", "3"}, {"max-batches", "50"}, {"eval-batches", "50"}}},
    {"tutorial-12", "12 layers, d 4096, 1.44e9 parameters; 20 x 25 tokens, 2 stages, 8 chunks, checkpoints",
     {{"d-model", "4096"}, {"heads", "16"}, {"d-ff", "4096"}, {"layers", "12"}, {"vocab", "28782"},
      {"mask", "none"}, {"dropout", "0.2"}, {"style", "tutorial"}, {"rows", "20"}, {"tokens", "25"},
      {"lr", "5"}, {"clip", "0.5"}, {"lr-decay", "0.95"}, {"stages", "2"}, {"replicas", "1"}, {"chunks", "8"},
      {"checkpoint", "except_last"}, {"epochs", "3"}, {"max-batches", "50"}, {"eval-batches", "50"}}},
    {"small", "2 layers, d 200, 12.0e6 parameters, causal; 20 x 35 tokens, 2 stages, 4 chunks",
     {{"d-model", "200"}, {"heads", "2"}, {"d-ff", "200"}, {"layers", "2"}, {"vocab", "28782"},
      {"mask", "causal"}, {"dropout", "0.2"}, {"style", "tutorial"}, {"rows", "20"}, {"tokens", "35"},
      {"lr", "5"}, {"clip", "0.5"}, {"lr-decay", "0.95"}, {"stages", "2"}, {"replicas", "1"}, {"chunks", "4"},
      {"checkpoint", "never"}, {"epochs", "1"}, {"max-batches", "0"}, {"eval-batches", "0"}}},
    {"lab", "2 layers, d 12, 5068 parameters; 4 x 9 tokens of constant sequences, 2 stages, 2 chunks",
     {{"d-model", "12"}, {"heads", "4"}, {"d-ff", "24"}, {"layers", "2"}, {"vocab", "100"},
      {"mask", "none"}, {"dropout", "0.1"}, {"style", "lab"}, {"rows", "4"}, {"tokens", "9"},
      {"lr", "0.01"}, {"clip", "0"}, {"lr-decay", "1"}, {"stages", "2"}, {"replicas", "1"}, {"chunks", "2"},
      {"checkpoint", "never"}, {"epochs", "200"}, {"max-batches", "0"}, {"eval-batches", "0"},
      {"data", "constant"}}},
};

enum { PRESETS = sizeof presets / sizeof *presets };

void pp_config_list_presets(FILE *out)
{
    for (int i = 0; i < PRESETS; i++) pp_list_row(out, presets[i].name, "%s", presets[i].summary);
}

static const struct setting *find_settings(const char *name)
{
    for (int i = 0; i < PRESETS; i++)
        if (strcmp(presets[i].name, name) == 0) return presets[i].settings;
    return NULL;
}

static int row_index(const char *option)
{
    for (int i = 0; i < pp_config_nrows; i++)
        if (strcmp(pp_config_rows[i].name, option) == 0) return i;
    return -1;
}

const struct pp_opt *pp_config_row(const char *option)
{
    int i = row_index(option);
    return i < 0 ? NULL : &pp_config_rows[i];
}

pp_status pp_config_apply_preset(struct pp_config *config)
{
    const struct setting *s = find_settings(config->preset);
    if (!s) return pp_fail(PP_USAGE, "--preset: there is no '%s', only %s", config->preset, PP_PRESET_NAMES);
    for (; s->option; s++) {
        int i = row_index(s->option);
        if (i < 0) return pp_fail(PP_INTERNAL, "preset %s sets --%s, which is no option", config->preset, s->option);
        if (!config->set[i]) PP_TRY(pp_options_set(&pp_config_rows[i], s->value, config));
    }
    return PP_OK;
}

const char *pp_config_text(const struct pp_config *config, const char *option, char *buf, size_t size)
{
    int i = row_index(option);
    return i < 0 ? "" : pp_options_text(&pp_config_rows[i], config, buf, size);
}

bool pp_config_given(const struct pp_config *config, const char *option)
{
    int i = row_index(option);
    return i >= 0 && config->set[i];
}
