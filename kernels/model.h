/* SPDX-License-Identifier: Apache-2.0
 *
 * The Transformer language model of PyTorch's pipeline tutorials as data (struct pp_model) and as programs (lists of
 * kernel calls).
 *
 * Tensors. Names, shapes and initial distributions are those of nn.Embedding, nn.TransformerEncoderLayer, nn.LayerNorm
 * or nn.RMSNorm, and nn.Linear. A tensor that a shape does not have (a bias, say) takes no memory and no number: those
 * after it move up.
 *   - swiglu: linear1 is one nn.Linear(d, 2 * ff): its first ff rows make the gates, the others what the gates open.
 *   - kv_heads: in_proj has fewer rows of keys and values.
 *   - experts: linear1 is [experts * linear1's columns, d] and linear2 [experts * d, ff], one expert behind the other,
 *     each as the one feed-forward of other models. The router is nn.Linear(d, experts), initialised as other linears
 *     of d.
 *   - shared_ff: a feed-forward of its own beside experts, shared.linear1 and shared.linear2; shared.gate is
 *     nn.Linear(d, 1).
 *   - kv_lora_rank: in the place of in_proj there are the nn.Linears kv_a_proj (d, kv_lora_rank + qk_rope_head_dim) and
 *     kv_b_proj, and q_a_proj and q_b_proj, or q_proj alone: those of Hugging Face's DeepseekV3Attention, but with the
 *     rotated columns of queries and keys in the order of Llama's. q_a_norm and kv_a_norm are nn.RMSNorm.
 *   - learnt positions: one more nn.Embedding, initialised as that of the words.
 *
 * Scale. Words are multiplied by sqrt(d_model) to weigh them against the sines and cosines that are added to them
 * (scale_embedding). With rotary positions nothing is added, so they are not, as in Llama; nor with learnt positions,
 * as in GPT-2.
 *
 * Initial values.
 *   - style tutorial: embedding and decoder uniform +-0.1, decoder bias 0, in_proj xavier-uniform, attention biases 0,
 *     the rest as nn.Linear.
 *   - style lab (lab_init): embedding normal(0, 1), every linear and its bias uniform +-1/sqrt(fan_in); q, k and v
 *     count as three linears.
 *   - init_std, whatever the style: embedding, positions, linears and decoder normal(0, init_std), but out_proj and
 *     linear2, which write to the residual stream, normal(0, init_std / sqrt(2 layers)); all biases 0 (GPT-2;
 *     Megatron-LM's scaled initialisation).
 *   - norms begin with weight 1 and bias 0.
 */
#ifndef PP_KERNELS_MODEL_H
#define PP_KERNELS_MODEL_H

#include "core/model/model.h"

/* See struct pp_model_ops. The caller releases the model with pp_model_free (NULL is fine). */
pp_status pp_model_create_cut(const struct pp_shape *shape, const struct pp_cut *cut,
                              struct pp_model **out) PP_MUST_CHECK;
/* The same where each stage has a rank of its own. For tests. */
pp_status pp_model_create(const struct pp_shape *shape, int stages, const char *split, const double *layer_ns,
                          struct pp_model **out) PP_MUST_CHECK;
void pp_model_free(struct pp_model *model);
pp_status pp_model_program(const struct pp_model *model, const struct pp_class *cls, const struct pp_program_spec *spec,
                           struct pp_program *out) PP_MUST_CHECK;
void pp_model_act_parts(const struct pp_model *model, int stage, const struct pp_program_spec *spec,
                        int64_t bytes[PP_ACT_PARTS]);
/* Of all parts together. For tests. */
int64_t pp_model_act_bytes(const struct pp_model *model, int stage, const struct pp_program_spec *spec);

extern const struct pp_model_ops pp_model_ops;

/* PP_USAGE with a message where no model has this shape. */
pp_status pp_shape_check(const struct pp_shape *shape) PP_MUST_CHECK;
/* PP_USAGE with a message where a microbatch of the class is too large for programs. */
pp_status pp_model_check_size(const struct pp_model *model, const struct pp_class *cls, int seq) PP_MUST_CHECK;

/* Initial values of one tensor (index in model->tensors), out: [elements]. Every element is a function of seed,
 * tensor index and element index alone, so any cut into stages starts from the same weights. Normal ones are made of
 * uniform ones in double, by log(), cos() and sin(), and then rounded: their last bits are the C library's. For tests.
 */
void pp_model_init_tensor(const struct pp_model *model, int tensor, uint64_t seed, float *out);
/* The same, of what one worker has of it, out: [local_elements]; zero where that fills up what cannot be shared evenly.
 * It draws no others: T workers together draw each element about once. */
void pp_model_init_local(const struct pp_model *model, int tensor, uint64_t seed, int member, float *out);

/* Cuts shape->layers into layers_out[stages] (struct pp_cut). */
pp_status pp_model_cut(const struct pp_shape *shape, const struct pp_cut *cut, int *layers_out) PP_MUST_CHECK;

/* Elements of the embedding with learnt positions, of layer number `layer`, and of the decoder with its bias and, where
 * there is one, the norm before it. */
int64_t pp_shape_embedding(const struct pp_shape *shape);
int64_t pp_shape_layer(const struct pp_shape *shape, int layer);
int64_t pp_shape_decoder(const struct pp_shape *shape);

/* The place of a tensor (enum pp_layer_tensor) among those of a layer, if all layers of the shape are of one kind; and
 * of one behind the layers (enum pp_last_tensor) among those. -1: the model does not have it. */
int pp_shape_layer_place(const struct pp_shape *shape, int tensor);
int pp_shape_last_place(const struct pp_shape *shape, int tensor);

#endif
