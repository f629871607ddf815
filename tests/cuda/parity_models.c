/* SPDX-License-Identifier: Apache-2.0
 *
 * The tiny models whose steps are compared (parity_model.c).
 */
#include "parity.h"

#include "kernels/model.h"

/* Mixtral's experts, Qwen2's and DeepSeek's, in layers of this shape. In FP8 tokens go to all of them: what is rounded
 * so much would change choices. */
static void check_mixtures(const struct parity_device *d, int precision, struct pp_shape shape)
{
    shape.experts = 3;
    shape.experts_per_token = precision == PP_FP8 ? shape.experts : 2;
    shape.capacity_factor = 1;
    shape.aux_loss = 0.01;
    parity_steps(d, precision, &shape, false);
    shape.shared_ff = 40;
    shape.shared_gate = shape.gates_of_all = true;
    parity_steps(d, precision, &shape, true);
    shape.dense_layers = 1;
    shape.dense_ff = 56;
    shape.sigmoid_scores = true;
    shape.gates_of_all = false;
    shape.gate_scale = 2.5;
    parity_steps(d, precision, &shape, true);
}

void parity_model(const struct parity_device *d, int precision)
{
    const bool fp8 = precision == PP_FP8;
    const struct pp_shape tutorial = {.d_model = fp8 ? 32 : 24,
                                      .heads = 2,
                                      .d_ff = fp8 ? 48 : 40,
                                      .layers = 2,
                                      .vocab = 101,
                                      .mask = PP_MASK_CAUSAL,
                                      .dropout = 0.2,
                                      .scale_embedding = true,
                                      .vocab_multiple = 64};
    const struct pp_shape lab = {.d_model = 12,
                                 .heads = 3,
                                 .d_ff = 18,
                                 .layers = 2,
                                 .vocab = 37,
                                 .dropout = 0.1,
                                 .residual_only = true,
                                 .lab_init = true};
    struct pp_shape gpt = tutorial, gelu = tutorial, first = lab, flash = tutorial, llama, gpt2;
    gpt.norm = first.norm = PP_NORM_FIRST;
    gpt.activation = gelu.activation = PP_GELU;
    gpt.attention = flash.attention = PP_ATTENTION_FLASH;
    flash.activation = PP_GELU_TANH;
    llama = gpt;
    llama.normalization = PP_RMSNORM;
    llama.activation = PP_SWIGLU;
    llama.bias = PP_NO_BIAS;
    llama.heads = 4;
    llama.kv_heads = 2;
    llama.positions = PP_POSITIONS_ROPE;
    llama.rope_theta = 1000;
    llama.scale_embedding = false;
    parity_steps(d, precision, &tutorial, false);
    check_mixtures(d, precision, llama);
    if (fp8) return; /* all but products of linears is as in bf16 */
    llama.qk_norm = true;
    llama.norm_epsilon = 1e-3;
    llama.window = 5;
    llama.window_skip = 2;
    llama.rotary_dim = 2;
    llama.rope_scaling =
        (struct pp_rope_scaling){.kind = PP_ROPE_YARN, .factor = 4, .low = 1, .high = 8, .tokens = 64, .truncate = 1};
    llama.score_factor = 1.5;
    gelu.kv_heads = 1;
    gpt2 = gpt;
    gpt2.bias = PP_BIAS_LAYERS;
    gpt2.positions = PP_POSITIONS_LEARNED;
    gpt2.max_positions = 33;
    gpt2.scale_embedding = false;
    parity_steps(d, precision, &tutorial, true);
    parity_steps(d, precision, &flash, false);
    parity_steps(d, precision, &gpt, false);
    parity_steps(d, precision, &llama, true);
    parity_steps(d, precision, &gelu, false);
    parity_steps(d, precision, &gpt2, true);
    parity_steps(d, precision, &first, true);
    parity_steps(d, precision, &lab, false);
}
