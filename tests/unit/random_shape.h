/* SPDX-License-Identifier: Apache-2.0
 *
 * Random small models: all that layers can be made of, and how workers share them. Most sizes are multiples of 16.
 */
#ifndef PP_TESTS_RANDOM_SHAPE_H
#define PP_TESTS_RANDOM_SHAPE_H

#include "kernels/model.h"
#include "tests/unit/dice.h"

/* A multiple of 16 up to 16 * most; of five sizes one is 8 more. */
static inline int random_size(uint64_t *dice, int most)
{
    return 16 * (1 + random_below(dice, most)) + 8 * (random_below(dice, 5) == 0);
}

static inline void draw_workers(struct pp_shape *shape, uint64_t *dice)
{
    shape->tensor = 1 << random_below(dice, 3);
    shape->sequence = random_below(dice, 2);
    if (random_below(dice, 2)) shape->sum_pieces = 1 << random_below(dice, 3);
    if (random_below(dice, 3) == 0) shape->context = 2;
    if (shape->attention == PP_ATTENTION_FLASH) shape->context_kind = random_below(dice, 2);
    if (random_below(dice, 3)) return;
    shape->replicas = 4;
    shape->zero = PP_ZERO_OPTIMIZER;
    if (random_below(dice, 4) > 0) shape->zero = random_below(dice, 3) > 0 ? PP_ZERO_PARAMETERS : PP_ZERO_GRADIENTS;
}

/* In place of the heads of other models. */
static inline void draw_latent(struct pp_shape *shape, uint64_t *dice)
{
    shape->kv_heads = shape->head_dim = 0;
    shape->qk_norm = false;
    shape->bias = PP_NO_BIAS;
    shape->positions = PP_POSITIONS_ROPE;
    shape->kv_lora_rank = random_size(dice, 3);
    shape->q_lora_rank = random_below(dice, 2) * random_size(dice, 3);
    shape->qk_nope_head_dim = random_size(dice, 2);
    shape->qk_rope_head_dim = random_size(dice, 1);
    shape->v_head_dim = random_size(dice, 2);
}

static inline void draw_experts(struct pp_shape *shape, uint64_t *dice)
{
    shape->bias = PP_NO_BIAS;
    shape->experts = 8;
    shape->experts_per_token = 1 + random_below(dice, 3);
    shape->capacity_factor = random_below(dice, 2) ? 16 : 1.25; /* room for all tokens; or for an uneven number */
    shape->expert_parallel = 1 << random_below(dice, 2);
    shape->exchange_pieces = random_below(dice, 5);
    shape->expert_bias = random_below(dice, 2);
    if (random_below(dice, 2)) shape->shared_ff = 4 * random_size(dice, 2);
    shape->shared_gate = shape->shared_ff && random_below(dice, 2);
    if (shape->layers == 1 || random_below(dice, 2)) return;
    shape->dense_layers = random_below(dice, shape->layers);
    shape->experts_every = 1 + random_below(dice, 2);
    shape->dense_ff = 4 * random_size(dice, 2);
}

/* Of fp32; pp_shape_check() may refuse it. */
static inline struct pp_shape random_shape(uint64_t *dice)
{
    struct pp_shape shape = {.heads = 4, .vocab = random_below(dice, 2) ? 96 : 101, .rope_theta = 10000};
    shape.d_model = random_size(dice, 4);
    shape.head_dim = random_below(dice, 2) * random_size(dice, 2);
    shape.kv_heads = random_below(dice, 3) == 0 ? 2 : 0;
    shape.d_ff = 2 * random_size(dice, 4);
    shape.layers = 1 + random_below(dice, 5);
    shape.attention = random_below(dice, 2);
    shape.positions = random_below(dice, 3);
    shape.max_positions = 64;
    shape.norm = random_below(dice, 2);
    shape.activation = random_below(dice, 4);
    shape.normalization = random_below(dice, 2);
    shape.bias = random_below(dice, 2) ? PP_BIAS : PP_NO_BIAS;
    shape.qk_norm = random_below(dice, 3) == 0;
    shape.dropout = random_below(dice, 2) * 0.1;
    shape.tied = random_below(dice, 2);
    shape.optimizer = random_below(dice, PP_OPTIMIZERS);
    shape.vocab_multiple = random_below(dice, 2) ? 128 : 0;
    draw_workers(&shape, dice);
    if (random_below(dice, 4) == 0) draw_latent(&shape, dice);
    if (random_below(dice, 2)) draw_experts(&shape, dice);
    return shape;
}

#endif
