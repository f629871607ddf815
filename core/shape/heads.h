/* SPDX-License-Identifier: Apache-2.0
 *
 * Heads of attention: how many columns a token has in each matrix of a layer's attention. Pure functions of the shape.
 */
#ifndef PP_CORE_SHAPE_HEADS_H
#define PP_CORE_SHAPE_HEADS_H

#include "core/shape/shape.h"

/* Heads of keys and values. */
static inline int pp_kv_heads(const struct pp_shape *shape) { return shape->kv_heads ? shape->kv_heads : shape->heads; }

/* Has the model multi-head latent attention? */
static inline bool pp_shape_is_latent(const struct pp_shape *shape) { return shape->kv_lora_rank > 0; }

/* Columns of a head's query, and of its key. */
static inline int pp_head_dim(const struct pp_shape *shape)
{
    if (pp_shape_is_latent(shape)) return shape->qk_nope_head_dim + shape->qk_rope_head_dim;
    return shape->head_dim ? shape->head_dim : shape->d_model / shape->heads;
}

/* Columns of each head's query and key that PP_POSITIONS_ROPE rotates, and columns before them, which stay as they are;
 * those behind them stay, too. */
static inline int pp_rotary_dim(const struct pp_shape *shape)
{
    if (pp_shape_is_latent(shape)) return shape->qk_rope_head_dim;
    return shape->rotary_dim ? shape->rotary_dim : pp_head_dim(shape);
}
static inline int pp_unrotated_dim(const struct pp_shape *shape)
{
    return pp_shape_is_latent(shape) ? shape->qk_nope_head_dim : 0;
}

/* Columns of a head's value. */
static inline int pp_value_dim(const struct pp_shape *shape)
{
    return pp_shape_is_latent(shape) ? shape->v_head_dim : pp_head_dim(shape);
}

/* Columns of attention's output for a token, all heads together; d_model, unless heads have a width of their own. */
static inline int pp_attended_width(const struct pp_shape *shape) { return shape->heads * pp_value_dim(shape); }

/* Columns of the queries of a token. */
static inline int pp_query_width(const struct pp_shape *shape) { return shape->heads * pp_head_dim(shape); }

/* Columns of the keys and values of a token. */
static inline int64_t pp_keys_width(const struct pp_shape *shape)
{
    return (int64_t)pp_kv_heads(shape) * (pp_head_dim(shape) + pp_value_dim(shape));
}

/* Latent attention: columns of a token's keys, without the part that all heads share, and values. */
static inline int pp_latent_kv_width(const struct pp_shape *shape)
{
    return shape->heads * (shape->qk_nope_head_dim + shape->v_head_dim);
}

/* Columns of the queries and keys of a token. */
static inline int64_t pp_qk_width(const struct pp_shape *shape)
{
    return (shape->heads + (int64_t)pp_kv_heads(shape)) * pp_head_dim(shape);
}

/* Columns of the queries, keys and values of a token. */
static inline int64_t pp_qkv_width(const struct pp_shape *shape)
{
    return pp_query_width(shape) + pp_keys_width(shape);
}

/* Do attention kernels of other software (FlashAttention-2 and later) have heads of so many columns of keys, and of
 * values, on tensor cores? */
static inline bool pp_others_attend(int columns, int values)
{
    return columns % 8 == 0 && values % 8 == 0 && columns <= 256 && values <= 256;
}

#endif
