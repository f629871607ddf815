/* SPDX-License-Identifier: Apache-2.0
 *
 * The presets, as option values in the words of the command line:
 *   tutorial, tutorial-12   the PyTorch pipeline tutorials
 *   small                   a small model of our own
 *   lab                     a small exercise on constant sequences
 *   gpt-small               the smallest GPT-2 (Radford et al., 2019)
 *   gpt-1.3b, -6.7b, -175b  sizes of GPT-3 (Brown et al., 2020, table 2.1). The first one has 16 heads: the 24 heads of
 *                           128 columns in the table are not the 2048 columns of the model. In GPT-3 every other layer
 *                           has a sparser attention; here all layers have full attention
 *   llama-2-7b              Llama 2 (Touvron et al., 2023)
 *   llama-3-8b, -70b, -405b Llama 3 (Grattafiori et al., 2024)
 *   mistral-7b              Mistral 7B (Jiang et al., 2023), of version 0.1, which has a window
 *   mistral-nemo-12b        sizes as given by Mistral AI (2024)
 *   mixtral-8x7b            Mixtral (Jiang et al., 2024)
 *   qwen3-8b, -30b-a3b      Qwen3 (Yang et al., 2025)
 *   qwen2-57b-a14b          Qwen2 (Yang et al., 2024)
 *   glm-4.5-air             GLM-4.5 (GLM-4.5 Team, 2025), without the layer that predicts one token more. Its sizes,
 *                           biases and rope-theta are those of its published configuration, after rows were made
 *                           longer; aux-loss is that of the report's section 2.4
 *   deepseek-v2-lite, -v3   DeepSeek-V2 and V3 (DeepSeek-AI, 2024), before rows were made longer; V3 without the layer
 *                           that predicts one token more, and in bf16 in place of FP8. Sizes are those of their
 *                           published configurations; the deviation of initial weights is that of the reports, and so
 *                           are V3's optimizer and learning rate (section 4.2)
 *
 * Training: the GPT presets have learning rate, betas, decay and clipping of GPT-3. The Llama presets have those of
 * their reports, except for the schedule of the learning rate; Llama 3's report has no decay, clipping or epsilon, so
 * these are Llama 2's. All others but deepseek-v3 train like llama-3-8b (how mistral-nemo-12b was trained is not
 * published). Mixtral's and Qwen's presets have the sizes, and mixtures the weight of the routers' loss, of their
 * published configurations; mixtures have the default --capacity-factor, though those models drop no tokens. All but
 * the first four, and DeepSeek's, begin with GPT-2's initial weights, whose standard deviation is also the
 * initializer_range in the published configurations of Llama, Mistral, Mixtral, Qwen2 and Qwen3.
 *
 * Schedule: all but the first five begin with 1f1b, since no device has memory for all microbatches of a large model at
 * once, which gpipe holds.
 */
#include "core/options/config.h"

#include <string.h>

#include "core/options/listing.h"

struct setting {
    const char *option, *value;
};

enum { MAX_SETTINGS = 36 };

struct preset {
    const char *name, *summary;
    struct setting settings[MAX_SETTINGS]; /* the last one is empty */
    const char *like;                      /* the preset whose values the others are; NULL: there is none */
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
    {"gpt-small", "12 layers, d 768, 1.24e8 parameters, GPT-2 small; 16 x 1024 tokens, 2 stages, 8 chunks",
     {{"d-model", "768"}, {"heads", "12"}, {"d-ff", "3072"}, {"layers", "12"}, {"vocab", "50257"}, {"dropout", "0.1"},
      {"norm", "pre"}, {"activation", "gelu-tanh"}, {"bias", "layers"}, {"positions", "learned"},
      {"tie-embeddings", "yes"}, {"mask", "causal"}, {"attention", "flash"}, {"style", "tutorial"},
      {"optimizer", "adamw"}, {"adam-beta2", "0.95"}, {"weight-decay", "0.1"}, {"clip", "1"}, {"lr-decay", "1"},
      {"lr", "6e-4"}, {"init-std", "0.02"}, {"rows", "16"}, {"tokens", "1024"}, {"stages", "2"}, {"chunks", "8"},
      {"replicas", "1"}, {"checkpoint", "never"}, {"epochs", "1"}, {"max-batches", "50"}, {"eval-rows", "1"},
      {"eval-batches", "10"}}},
    {"gpt-1.3b", "24 layers, d 2048, 1.32e9 parameters, GPT-3 XL; 32 x 2048 tokens, 4 stages, 16 chunks",
     {{"d-model", "2048"}, {"heads", "16"}, {"d-ff", "8192"}, {"layers", "24"}, {"lr", "2e-4"}, {"stages", "4"},
      {"chunks", "16"}}, "gpt-6.7b"},
    {"gpt-6.7b", "32 layers, d 4096, 6.66e9 parameters, GPT-3 6.7B; 32 x 2048 tokens, 8 stages, 32 chunks",
     {{"d-model", "4096"}, {"heads", "32"}, {"d-ff", "16384"}, {"layers", "32"}, {"dropout", "0"}, {"lr", "1.2e-4"},
      {"rows", "32"}, {"tokens", "2048"}, {"stages", "8"}, {"chunks", "32"}, {"schedule", "1f1b"}}, "gpt-small"},
    {"gpt-175b", "96 layers, d 12288, 1.75e11 parameters, GPT-3 175B; 32 x 2048 tokens, 8 stages x tensor 8",
     {{"d-model", "12288"}, {"heads", "96"}, {"d-ff", "49152"}, {"layers", "96"}, {"lr", "6e-5"}, {"tensor", "8"}},
     "gpt-6.7b"},
    {"llama-2-7b", "32 layers, d 4096, 6.74e9 parameters, Llama 2 7B; 32 x 4096 tokens, 8 stages, 32 chunks",
     {{"d-model", "4096"}, {"heads", "32"}, {"d-ff", "11008"}, {"layers", "32"},
      {"vocab", "32000"}, {"dropout", "0"}, {"norm", "pre"}, {"normalization", "rmsnorm"},
      {"activation", "swiglu"}, {"bias", "no"}, {"positions", "rope"}, {"rope-theta", "10000"},
      {"mask", "causal"}, {"attention", "flash"}, {"style", "tutorial"}, {"optimizer", "adamw"},
      {"adam-beta2", "0.95"}, {"adam-eps", "1e-5"}, {"weight-decay", "0.1"}, {"clip", "1"}, {"lr-decay", "1"},
      {"lr", "3e-4"}, {"init-std", "0.02"}, {"rows", "32"}, {"tokens", "4096"}, {"stages", "8"}, {"chunks", "32"},
      {"schedule", "1f1b"}, {"replicas", "1"}, {"checkpoint", "never"}, {"epochs", "1"}, {"max-batches", "50"},
      {"eval-rows", "1"}, {"eval-batches", "10"}}},
    {"llama-3-8b", "32 layers, d 4096, 8.03e9 parameters, Llama 3 8B; 16 x 8192 tokens, 8 stages, 16 chunks",
     {{"kv-heads", "8"}, {"d-ff", "14336"}, {"vocab", "128256"}, {"rope-theta", "500000"}, {"rows", "16"},
      {"tokens", "8192"}, {"chunks", "16"}}, "llama-2-7b"},
    {"llama-3-70b", "80 layers, d 8192, 7.06e10 parameters, Llama 3 70B; 32 x 8192 tokens, 16 stages, 32 chunks",
     {{"d-model", "8192"}, {"heads", "64"}, {"d-ff", "28672"}, {"layers", "80"}, {"lr", "1.5e-4"}, {"rows", "32"},
      {"stages", "16"}, {"chunks", "32"}}, "llama-3-8b"},
    {"llama-3-405b", "126 layers, d 16384, 4.06e11 parameters, Llama 3 405B; 32 x 8192 tokens, 16 stages x tensor 8",
     {{"d-model", "16384"}, {"heads", "128"}, {"d-ff", "53248"}, {"layers", "126"}, {"lr", "8e-5"}, {"tensor", "8"}},
     "llama-3-70b"},
    {"mistral-7b", "32 layers, d 4096, window 4096, 7.24e9 parameters, Mistral 7B; 16 x 8192 tokens, 8 stages",
     {{"kv-heads", "8"}, {"d-ff", "14336"}, {"window-size", "4096"}, {"rows", "16"}, {"tokens", "8192"},
      {"chunks", "16"}}, "llama-2-7b"},
    {"mistral-nemo-12b", "40 layers, d 5120, 1.22e10 parameters, Mistral Nemo; 16 x 8192 tokens, 8 stages, 16 chunks",
     {{"d-model", "5120"}, {"head-dim", "128"}, {"layers", "40"}, {"vocab", "131072"}, {"rope-theta", "1000000"}},
     "llama-3-8b"},
    {"mixtral-8x7b", "32 layers, d 4096, 8 experts, 4.67e10 parameters; 32 x 4096 tokens, 8 stages x tensor 2",
     {{"kv-heads", "8"}, {"d-ff", "14336"}, {"experts", "8"}, {"experts-per-token", "2"}, {"aux-loss", "0.02"},
      {"rope-theta", "1000000"}, {"tensor", "2"}}, "llama-2-7b"},
    {"qwen3-8b", "36 layers, d 4096, 8.19e9 parameters, Qwen3 8B; 32 x 4096 tokens, 4 stages, 32 chunks",
     {{"kv-heads", "8"}, {"d-ff", "12288"}, {"layers", "36"}, {"vocab", "151936"}, {"rope-theta", "1000000"},
      {"qk-norm", "yes"}, {"norm-epsilon", "1e-6"}, {"stages", "4"}}, "llama-2-7b"},
    {"qwen3-30b-a3b", "48 layers, d 2048, 128 experts, 3.05e10 parameters; 32 x 4096 tokens, 8 stages x tensor 2",
     {{"d-model", "2048"}, {"kv-heads", "4"}, {"head-dim", "128"}, {"d-ff", "768"}, {"layers", "48"},
      {"experts", "128"}, {"experts-per-token", "8"}, {"aux-loss", "0.001"}, {"vocab", "151936"},
      {"qk-norm", "yes"}, {"norm-epsilon", "1e-6"}}, "mixtral-8x7b"},
    {"qwen2-57b-a14b", "28 layers, d 3584, 64 experts, 5.74e10 parameters; 32 x 4096 tokens, 14 stages x tensor 2",
     {{"d-model", "3584"}, {"heads", "28"}, {"kv-heads", "4"}, {"d-ff", "2560"}, {"layers", "28"}, {"bias", "qkv"},
      {"experts", "64"}, {"experts-per-token", "8"}, {"gates", "all"}, {"shared-ff", "20480"}, {"shared-gate", "yes"},
      {"aux-loss", "0.001"}, {"vocab", "151936"}, {"norm-epsilon", "1e-6"}, {"stages", "14"}}, "mixtral-8x7b"},
    {"glm-4.5-air", "46 layers, d 4096, 128 experts, 1.07e11 parameters; 32 x 4096 tokens, 23 stages x tensor 2",
     {{"heads", "96"}, {"kv-heads", "8"}, {"head-dim", "128"}, {"d-ff", "1408"}, {"layers", "46"}, {"bias", "qkv"},
      {"rotary-dim", "64"}, {"experts", "128"}, {"experts-per-token", "8"}, {"router-score", "sigmoid"},
      {"expert-bias", "yes"}, {"shared-ff", "1408"}, {"dense-layers", "1"}, {"dense-ff", "10944"},
      {"aux-loss", "0.0001"}, {"vocab", "151552"}, {"stages", "23"}}, "mixtral-8x7b"},
    {"deepseek-v2-lite", "27 layers, d 2048, 64 experts, 1.57e10 parameters; 32 x 4096 tokens, 9 stages, 32 chunks",
     {{"d-model", "2048"}, {"heads", "16"}, {"kv-heads", "0"}, {"kv-lora-rank", "512"}, {"qk-nope-head-dim", "128"},
      {"qk-rope-head-dim", "64"}, {"v-head-dim", "128"}, {"d-ff", "1408"}, {"layers", "27"}, {"experts", "64"},
      {"experts-per-token", "6"}, {"gates", "all"}, {"shared-ff", "2816"}, {"dense-layers", "1"}, {"dense-ff", "10944"},
      {"aux-loss", "0.001"}, {"vocab", "102400"}, {"norm-epsilon", "1e-6"}, {"rope-theta", "10000"},
      {"init-std", "0.006"}, {"stages", "9"}, {"tensor", "1"}}, "mixtral-8x7b"},
    {"deepseek-v3", "61 layers, d 7168, 256 experts, 6.71e11 parameters; 32 x 4096 tokens, 16 stages, 32 chunks",
     {{"d-model", "7168"}, {"heads", "128"}, {"q-lora-rank", "1536"}, {"d-ff", "2048"}, {"layers", "61"},
      {"experts", "256"}, {"experts-per-token", "8"}, {"gates", "chosen"}, {"router-score", "sigmoid"},
      {"gate-scale", "2.5"}, {"expert-groups", "8"}, {"groups-per-token", "4"}, {"expert-bias", "yes"},
      {"shared-ff", "2048"}, {"dense-layers", "3"}, {"dense-ff", "18432"}, {"aux-loss", "0.0001"}, {"vocab", "129280"},
      {"optimizer", "adamw-bf16"}, {"lr", "2.2e-4"}, {"stages", "16"}}, "deepseek-v2-lite"},
};

enum { PRESETS = sizeof presets / sizeof *presets };

json_t *pp_config_list_presets(void)
{
    json_t *rows = json_array();
    for (int i = 0; i < PRESETS; i++) rows = pp_json_append(rows, pp_list_row(presets[i].name, presets[i].summary));
    return rows;
}

static const struct preset *find_preset(const char *name)
{
    for (int i = 0; name && i < PRESETS; i++)
        if (strcmp(presets[i].name, name) == 0) return &presets[i];
    return NULL;
}

/* The preset's value of an option, or that of the preset that it is like; NULL: neither has one. */
static const char *value_of(const struct preset *preset, const char *option)
{
    for (; preset; preset = find_preset(preset->like))
        for (const struct setting *s = preset->settings; s->option; s++)
            if (strcmp(s->option, option) == 0) return s->value;
    return NULL;
}

/* The preset's learning rate is for its own optimizer: one of another kind gets a rate of its own, unless --lr was
 * given. */
static void set_other_rate(struct pp_config *config, const struct preset *preset)
{
    const double rate = pp_optimizers[config->model.optimizer].learning_rate;
    const char *own = value_of(preset, "optimizer");
    for (int i = 0; own && i < PP_OPTIMIZERS; i++)
        if (strcmp(own, pp_optimizers[i].name) == 0 && pp_optimizers[i].learning_rate == rate) return;
    if (rate > 0 && !pp_config_given(config, lr)) config->lr = rate;
}

/* The preset's factor on the rate after each epoch is for a rate that does not fall by itself. */
static void leave_decay(struct pp_config *config)
{
    if (config->over_steps.schedule != PP_LR_CONSTANT && !pp_config_given(config, lr_decay)) config->lr_decay = 1;
}

pp_status pp_config_apply_preset(struct pp_config *config)
{
    const struct preset *preset = find_preset(config->preset);
    if (!preset) return pp_fail(PP_USAGE, "--preset: there is no '%s', only %s", config->preset, PP_PRESET_NAMES);
    bool set[sizeof config->set];
    memcpy(set, config->set, sizeof set);
    for (const struct preset *p = preset; p; p = find_preset(p->like))
        for (const struct setting *s = p->settings; s->option; s++) {
            const struct pp_opt *row = pp_config_row(s->option);
            if (!row) return pp_fail(PP_INTERNAL, "preset %s sets --%s, which is no option", p->name, s->option);
            if (!set[row - pp_config_rows]) PP_TRY(pp_options_set(row, s->value, config));
            set[row - pp_config_rows] = true;
        }
    set_other_rate(config, preset);
    leave_decay(config);
    return PP_OK;
}
