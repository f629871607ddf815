/* SPDX-License-Identifier: Apache-2.0
 *
 * What differs from layer to layer of a model: pure functions of its shape and the number of a layer, counted from 0.
 */
#ifndef PP_CORE_SHAPE_LAYERS_H
#define PP_CORE_SHAPE_LAYERS_H

#include "core/shape/shape.h"

/* The two kinds of layers: with one feed-forward, and with experts. */
enum pp_layer_kind { PP_LAYER_DENSE, PP_LAYER_EXPERTS, PP_LAYER_KINDS };

/* How many of the model's first n layers have experts. */
static inline int pp_layers_with_experts(const struct pp_shape *shape, int n)
{
    const int every = shape->experts_every > 1 ? shape->experts_every : 1, behind = n - shape->dense_layers;
    return shape->experts && behind > 0 ? (behind - 1) / every + 1 : 0;
}
static inline bool pp_layer_has_experts(const struct pp_shape *shape, int layer)
{
    return pp_layers_with_experts(shape, layer + 1) > pp_layers_with_experts(shape, layer);
}
static inline enum pp_layer_kind pp_layer_kind(const struct pp_shape *shape, int layer)
{
    return pp_layer_has_experts(shape, layer) ? PP_LAYER_EXPERTS : PP_LAYER_DENSE;
}
/* How many layers of a kind the model has. */
static inline int pp_layers_of_kind(const struct pp_shape *shape, enum pp_layer_kind kind)
{
    const int experts = pp_layers_with_experts(shape, shape->layers);
    return kind == PP_LAYER_EXPERTS ? experts : shape->layers - experts;
}

/* The shape of the same model, if all its layers were of this kind. In a model without experts all layers are dense:
 * its shape is returned for either kind. */
struct pp_shape pp_shape_of_kind(const struct pp_shape *shape, enum pp_layer_kind kind);

/* The window of a layer; 0: it has none. */
static inline int pp_layer_window(const struct pp_shape *shape, int layer)
{
    const bool skipped = shape->window_skip > 0 && (layer + 1) % shape->window_skip == 0;
    return skipped ? 0 : shape->window;
}

/* How a layer looks: 0 .. PP_LAYER_LOOKS - 1. Layers that look the same compute the same, each with tensors of its own.
 */
enum { PP_LAYER_LOOKS = 2 * PP_LAYER_KINDS };
static inline int pp_layer_look(const struct pp_shape *shape, int layer)
{
    return 2 * (int)pp_layer_kind(shape, layer) + (pp_layer_window(shape, layer) > 0);
}

#endif
