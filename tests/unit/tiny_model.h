/* SPDX-License-Identifier: Apache-2.0
 *
 * Small models of every kind of layer, and the comparison of two ways to run one.
 */
#ifndef PP_TESTS_TINY_MODEL_H
#define PP_TESTS_TINY_MODEL_H

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/unit/model_runner.h"

static const struct pp_shape tiny = {.d_model = 12,
                                     .heads = 3,
                                     .d_ff = 20,
                                     .layers = 2,
                                     .vocab = 17,
                                     .dropout = 0.2,
                                     .mask = PP_MASK_CAUSAL,
                                     .scale_embedding = true};

/* The kinds of layers: norm last or first, relu, gelu, or Llama's parts, with biases or (norm first) without; and norm
 * first with heads that share keys and values and are rotated, with biases and all of Llama's parts; and GPT-2's
 * positions, biases and GELU; and Llama's parts with Qwen2's biases and a window in every second layer, with Qwen3's
 * norms of queries and keys, and with latent attention: norm first and values narrower than keys, or norm last, wider
 * ones, and a latent vector of queries. Behind those the kinds with experts, whose slots hold one microbatch, and which
 * depend on what is in it: norm last with gelu, and norm first with Mixtral's parts; not all choices have places; and
 * both with a feed-forward beside them, of which the second has a gate. The last two have layers without experts among
 * those with, which are wider or narrower: first a dense one, and logistic scores, as DeepSeek's; or first one with
 * experts, as with Megatron-LM's --moe-layer-freq 2. */
enum { SHARED_AND_ROTATED = 6, LLAMA, GPT2, QWEN2, QWEN3, LATENT, LATENT_LAST, KINDS };
enum { EXPERTS = KINDS, MIXTRAL, EXPERTS_BESIDE, MIXTRAL_BESIDE, DENSE_FIRST, EXPERTS_FIRST, ALL_KINDS };

/* The kinds up to GPT-2's, which are made from no other one. */
static inline struct pp_shape plain_kind(struct pp_shape shape, int kind)
{
    shape.norm = kind % 2 || kind >= SHARED_AND_ROTATED ? PP_NORM_FIRST : PP_NORM_LAST;
    shape.activation = kind == SHARED_AND_ROTATED || kind == GPT2 ? PP_GELU_TANH : kind == LLAMA ? PP_SWIGLU : kind / 2;
    if (shape.activation == PP_SWIGLU) {
        shape.normalization = PP_RMSNORM;
        shape.bias = kind % 2 ? PP_NO_BIAS : PP_BIAS;
    }
    if (kind == GPT2) {
        shape.positions = PP_POSITIONS_LEARNED;
        shape.max_positions = 9;
        shape.bias = PP_BIAS_LAYERS;
    }
    if (kind != SHARED_AND_ROTATED && kind != LLAMA) return shape;
    shape.d_model = 16;
    shape.heads = 4;
    shape.kv_heads = 2;
    shape.positions = PP_POSITIONS_ROPE;
    shape.rope_theta = 50;
    return shape;
}

static inline struct pp_shape qwen(struct pp_shape shape, int kind)
{
    shape.bias = kind == QWEN2 ? PP_BIAS_QKV : PP_NO_BIAS;
    shape.qk_norm = kind == QWEN3;
    shape.rotary_dim = kind == QWEN2 ? 2 : 0; /* of 4 columns */
    shape.window = kind == QWEN2 ? 3 : 0;     /* of 7 tokens */
    shape.window_skip = 2;
    shape.norm_epsilon = 1e-2; /* which no test takes for another one */
    shape.rope_scaling =
        (struct pp_rope_scaling){PP_ROPE_YARN, .factor = 4, .low = 1, .high = 8, .tokens = 64, .magnitude = 0.9};
    shape.score_factor = kind == QWEN3 ? 0.5 : 0;
    return shape;
}

static inline struct pp_shape latent(struct pp_shape shape, int kind)
{
    shape.kv_heads = 0;
    shape.bias = PP_NO_BIAS;
    shape.norm = kind == LATENT ? PP_NORM_FIRST : PP_NORM_LAST;
    shape.kv_lora_rank = 5;
    shape.q_lora_rank = kind == LATENT ? 0 : 7;
    shape.qk_nope_head_dim = 3;
    shape.qk_rope_head_dim = 2;
    shape.v_head_dim = kind == LATENT ? 4 : 6;
    shape.norm_epsilon = 1e-2;
    return shape;
}

static inline struct pp_shape with_experts(struct pp_shape shape, int experts, int chosen, double capacity_factor)
{
    shape.bias = PP_NO_BIAS;
    shape.experts = experts;
    shape.experts_per_token = chosen;
    shape.capacity_factor = capacity_factor;
    shape.aux_loss = 0.02;
    return shape;
}

static inline struct pp_shape all_experts(struct pp_shape shape, int kind)
{
    return kind == EXPERTS ? with_experts(shape, 3, 2, 0.9) : with_experts(shape, 5, 2, 1);
}

static inline struct pp_shape experts_beside(struct pp_shape shape, int kind)
{
    shape.shared_ff = 28;
    shape.shared_gate = shape.gates_of_all = kind == MIXTRAL_BESIDE;
    return shape;
}

static inline struct pp_shape dense_first(struct pp_shape shape, int kind)
{
    (void)kind;
    shape.dense_layers = 1;
    shape.dense_ff = 36;
    shape.sigmoid_scores = true;
    shape.gates_of_all = false;
    shape.gate_scale = 2.5;
    shape.expert_bias = true;
    shape.expert_bias_rate = 0.125;
    shape.experts = 6;
    shape.expert_groups = 3;
    shape.groups_per_token = 2;
    return shape;
}

static inline struct pp_shape experts_first(struct pp_shape shape, int kind)
{
    (void)kind;
    shape.experts_every = 2;
    shape.dense_ff = 8;
    return shape;
}

static inline struct pp_shape of_kind(struct pp_shape shape, int kind)
{
    static const struct {
        int from; /* another kind, and what differs from it */
        struct pp_shape (*change)(struct pp_shape shape, int kind);
    } made[ALL_KINDS] = {[QWEN2] = {LLAMA, qwen},
                         [QWEN3] = {LLAMA, qwen},
                         [LATENT] = {LLAMA, latent},
                         [LATENT_LAST] = {LLAMA, latent},
                         [EXPERTS] = {2, all_experts},
                         [MIXTRAL] = {LLAMA, all_experts},
                         [EXPERTS_BESIDE] = {EXPERTS, experts_beside},
                         [MIXTRAL_BESIDE] = {MIXTRAL, experts_beside},
                         [DENSE_FIRST] = {MIXTRAL_BESIDE, dense_first},
                         [EXPERTS_FIRST] = {EXPERTS, experts_first}};
    if (!made[kind].change) return plain_kind(shape, kind);
    return made[kind].change(of_kind(shape, made[kind].from), kind);
}

/* 5 rows in 2 chunks: 3 and 2; 7 tokens. */
static inline struct runner make_runner(struct pp_shape shape, int stages)
{
    return (struct runner){.shape = shape, .stages = stages, .rows = 5, .seq = 7, .chunks = 2};
}

/* Runs `other` beside the fused two-stage run of the same shape; compares loss and every gradient. tolerance 0: bit
 * for bit. */
static inline void compare_runs(struct runner one, struct runner other, float tolerance)
{
    runner_open(&one);
    runner_open(&other);
    const double loss = runner_gradients(&one), other_loss = runner_gradients(&other);
    if (tolerance == 0) assert_true(loss == other_loss);
    assert_true(fabs(loss - other_loss) <= 1e-5 * fabs(loss));
    for (int i = 0; i < one.model->ntensors; i++) {
        const int64_t n = one.model->tensors[i].elements;
        const float *a = runner_tensor(&one, one.grad, i), *b = runner_tensor(&other, other.grad, i);
        float most = 1e-3f;
        for (int64_t k = 0; k < n; k++) most = fmaxf(most, fabsf(a[k]));
        for (int64_t k = 0; k < n; k++)
            if (!(fabsf(a[k] - b[k]) <= tolerance * most))
                fail_msg("%s[%lld]: %g and %g", one.model->tensors[i].name, (long long)k, (double)a[k], (double)b[k]);
    }
    runner_close(&one);
    runner_close(&other);
}

#endif
