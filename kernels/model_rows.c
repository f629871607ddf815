/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/model_rows.h"

#include <math.h>

const struct pp_tensor_row pp_embedding_rows[PP_EMBEDDING_ROWS] = {
    [PP_EMBEDDING_WEIGHT] = {"embedding.weight", {DIM_VOCAB, DIM_D}, {RULE_TENTH, RULE_NORMAL}, OF_ANY, PP_SPLIT_ROWS},
    [PP_POSITIONS_WEIGHT] = {"positions.weight", {DIM_POSITIONS, DIM_D}, {RULE_TENTH, RULE_NORMAL}, OF_POSITIONS},
};

const struct pp_tensor_row pp_layer_rows[PP_LAYER_ROWS] = {
    [PP_IN_PROJ_WEIGHT] =
        {"self_attn.in_proj_weight", {DIM_QKV, DIM_D}, {RULE_XAVIER, RULE_FAN_D}, OF_IN_PROJ, PP_SPLIT_ROWS},
    [PP_IN_PROJ_BIAS] =
        {"self_attn.in_proj_bias", {DIM_QKV, DIM_NONE}, {RULE_ZERO, RULE_FAN_D}, OF_QKV_BIAS, PP_SPLIT_ROWS},
    [PP_Q_PROJ_WEIGHT] =
        {"self_attn.q_proj.weight", {DIM_QUERIES, DIM_D}, {RULE_FAN_D, RULE_FAN_D}, OF_Q_STREAM, PP_SPLIT_ROWS},
    [PP_Q_A_PROJ_WEIGHT] = {"self_attn.q_a_proj.weight", {DIM_Q_RANK, DIM_D}, {RULE_FAN_D, RULE_FAN_D}, OF_Q_LATENT},
    [PP_Q_B_PROJ_WEIGHT] = {"self_attn.q_b_proj.weight",
                            {DIM_QUERIES, DIM_Q_RANK},
                            {RULE_FAN_Q_RANK, RULE_FAN_Q_RANK},
                            OF_Q_LATENT,
                            PP_SPLIT_ROWS},
    [PP_KV_A_PROJ_WEIGHT] = {"self_attn.kv_a_proj.weight", {DIM_KV_LATENT, DIM_D}, {RULE_FAN_D, RULE_FAN_D}, OF_LATENT},
    [PP_KV_B_PROJ_WEIGHT] = {"self_attn.kv_b_proj.weight",
                             {DIM_KV, DIM_KV_RANK},
                             {RULE_FAN_KV_RANK, RULE_FAN_KV_RANK},
                             OF_LATENT,
                             PP_SPLIT_ROWS},
    [PP_OUT_PROJ_WEIGHT] = {"self_attn.out_proj.weight",
                            {DIM_D, DIM_ATTENDED},
                            {RULE_FAN_ATTENDED, RULE_FAN_ATTENDED},
                            OF_ANY,
                            PP_SPLIT_COLUMNS},
    [PP_OUT_PROJ_BIAS] = {"self_attn.out_proj.bias", {DIM_D, DIM_NONE}, {RULE_ZERO, RULE_FAN_ATTENDED}, OF_BIAS},
    [PP_ROUTER_WEIGHT] = {"router.weight", {DIM_EXPERTS, DIM_D}, {RULE_FAN_D, RULE_FAN_D}, OF_EXPERTS},
    [PP_ROUTER_EXPERT_BIAS] = {"router.expert_bias", {DIM_EXPERTS, DIM_NONE}, {RULE_ZERO, RULE_ZERO}, OF_EXPERT_BIAS},
    [PP_LINEAR1_WEIGHT] = {"linear1.weight", {DIM_LINEAR1, DIM_D}, {RULE_FAN_D, RULE_FAN_D}, OF_ANY, PP_SPLIT_ROWS},
    [PP_LINEAR1_BIAS] = {"linear1.bias", {DIM_LINEAR1, DIM_NONE}, {RULE_FAN_D, RULE_FAN_D}, OF_BIAS, PP_SPLIT_ROWS},
    [PP_LINEAR2_WEIGHT] =
        {"linear2.weight", {DIM_LINEAR2, DIM_FF}, {RULE_FAN_FF, RULE_FAN_FF}, OF_ANY, PP_SPLIT_COLUMNS},
    [PP_LINEAR2_BIAS] = {"linear2.bias", {DIM_D, DIM_NONE}, {RULE_FAN_FF, RULE_FAN_FF}, OF_BIAS},
    [PP_SHARED1_WEIGHT] =
        {"shared.linear1.weight", {DIM_SHARED1, DIM_D}, {RULE_FAN_D, RULE_FAN_D}, OF_SHARED, PP_SPLIT_ROWS},
    [PP_SHARED2_WEIGHT] =
        {"shared.linear2.weight", {DIM_D, DIM_SHARED}, {RULE_FAN_SHARED, RULE_FAN_SHARED}, OF_SHARED, PP_SPLIT_COLUMNS},
    [PP_SHARED_GATE_WEIGHT] = {"shared.gate.weight", {DIM_ONE, DIM_D}, {RULE_FAN_D, RULE_FAN_D}, OF_SHARED_GATE},
    [PP_Q_A_NORM_WEIGHT] = {"self_attn.q_a_norm.weight", {DIM_Q_RANK, DIM_NONE}, {RULE_ONE, RULE_ONE}, OF_Q_LATENT},
    [PP_KV_A_NORM_WEIGHT] = {"self_attn.kv_a_norm.weight", {DIM_KV_RANK, DIM_NONE}, {RULE_ONE, RULE_ONE}, OF_LATENT},
    [PP_Q_NORM_WEIGHT] = {"self_attn.q_norm.weight", {DIM_HEAD, DIM_NONE}, {RULE_ONE, RULE_ONE}, OF_QK_NORM},
    [PP_K_NORM_WEIGHT] = {"self_attn.k_norm.weight", {DIM_HEAD, DIM_NONE}, {RULE_ONE, RULE_ONE}, OF_QK_NORM},
    [PP_NORM1_WEIGHT] = {"norm1.weight", {DIM_D, DIM_NONE}, {RULE_ONE, RULE_ONE}},
    [PP_NORM1_BIAS] = {"norm1.bias", {DIM_D, DIM_NONE}, {RULE_ZERO, RULE_ZERO}, OF_LAYERNORM},
    [PP_NORM2_WEIGHT] = {"norm2.weight", {DIM_D, DIM_NONE}, {RULE_ONE, RULE_ONE}},
    [PP_NORM2_BIAS] = {"norm2.bias", {DIM_D, DIM_NONE}, {RULE_ZERO, RULE_ZERO}, OF_LAYERNORM},
};

_Static_assert(PP_IN_PROJ_BIAS == PP_IN_PROJ_WEIGHT + 1 && PP_OUT_PROJ_BIAS == PP_OUT_PROJ_WEIGHT + 1 &&
                   PP_LINEAR1_BIAS == PP_LINEAR1_WEIGHT + 1 && PP_LINEAR2_BIAS == PP_LINEAR2_WEIGHT + 1,
               "a bias stands behind its weight");

/* Behind the layers. The norm, nn.TransformerEncoder's, is of the output of layers that begin with theirs. */
const struct pp_tensor_row pp_last_rows[PP_LAST_ROWS] = {
    [PP_LAST_NORM_WEIGHT] = {"norm.weight", {DIM_D, DIM_NONE}, {RULE_ONE, RULE_ONE}, OF_LAST_NORM},
    [PP_LAST_NORM_BIAS] = {"norm.bias", {DIM_D, DIM_NONE}, {RULE_ZERO, RULE_ZERO}, OF_LAST_NORM | OF_LAYERNORM},
    [PP_DECODER_WEIGHT] =
        {"decoder.weight", {DIM_VOCAB, DIM_D}, {RULE_TENTH, RULE_FAN_D}, OF_ANY, PP_SPLIT_ROWS}, /* see is_copy() */
    [PP_DECODER_BIAS] =
        {"decoder.bias", {DIM_VOCAB, DIM_NONE}, {RULE_ZERO, RULE_FAN_D}, OF_DECODER_BIAS, PP_SPLIT_ROWS},
};

int64_t pp_dim_size(const struct pp_shape *shape, enum pp_dim dim)
{
    const int64_t experts = shape->experts ? shape->experts : 1;
    const int64_t size[] = {[DIM_NONE] = 1,
                            [DIM_D] = shape->d_model,
                            [DIM_QKV] = pp_qkv_width(shape),
                            [DIM_ATTENDED] = pp_attended_width(shape),
                            [DIM_FF] = shape->d_ff,
                            [DIM_LINEAR1] = experts * pp_linear1_width(shape),
                            [DIM_LINEAR2] = experts * shape->d_model,
                            [DIM_EXPERTS] = shape->experts,
                            [DIM_SHARED] = shape->shared_ff,
                            [DIM_SHARED1] = pp_gated_width(shape, shape->shared_ff),
                            [DIM_ONE] = 1,
                            [DIM_VOCAB] = shape->vocab,
                            [DIM_POSITIONS] = shape->max_positions,
                            [DIM_HEAD] = pp_head_dim(shape),
                            [DIM_QUERIES] = pp_query_width(shape),
                            [DIM_KV] = pp_latent_kv_width(shape),
                            [DIM_Q_RANK] = shape->q_lora_rank,
                            [DIM_KV_RANK] = shape->kv_lora_rank,
                            [DIM_KV_LATENT] = shape->kv_lora_rank + shape->qk_rope_head_dim};
    return size[dim];
}

bool pp_has_row(const struct pp_shape *shape, const struct pp_tensor_row *row)
{
    static const unsigned biases[] = {[PP_BIAS] = OF_QKV_BIAS | OF_BIAS | OF_DECODER_BIAS,
                                      [PP_NO_BIAS] = 0,
                                      [PP_BIAS_LAYERS] = OF_QKV_BIAS | OF_BIAS,
                                      [PP_BIAS_QKV] = OF_QKV_BIAS};
    const unsigned latent = OF_LATENT | (shape->q_lora_rank ? OF_Q_LATENT : OF_Q_STREAM);
    const unsigned had = biases[shape->bias] | (pp_shape_is_latent(shape) ? latent : OF_IN_PROJ) |
                         (shape->qk_norm ? OF_QK_NORM : 0) |
                         (shape->positions == PP_POSITIONS_LEARNED ? OF_POSITIONS : 0) |
                         (shape->normalization == PP_LAYERNORM ? OF_LAYERNORM : 0) |
                         (shape->norm == PP_NORM_FIRST ? OF_LAST_NORM : 0) | (shape->experts ? OF_EXPERTS : 0) |
                         (shape->shared_ff ? OF_SHARED : 0) | (shape->shared_gate ? OF_SHARED_GATE : 0) |
                         (shape->expert_bias ? OF_EXPERT_BIAS : 0);
    return !(row->of & ~had);
}

static int place_of(const struct pp_shape *shape, const struct pp_tensor_row *rows, int row)
{
    int place = 0;
    if (!pp_has_row(shape, &rows[row])) return -1;
    for (int i = 0; i < row; i++) place += pp_has_row(shape, &rows[i]);
    return place;
}

int pp_shape_layer_place(const struct pp_shape *shape, int tensor) { return place_of(shape, pp_layer_rows, tensor); }
int pp_shape_last_place(const struct pp_shape *shape, int tensor) { return place_of(shape, pp_last_rows, tensor); }

static int64_t rows_elements(const struct pp_shape *shape, const struct pp_tensor_row *rows, int n)
{
    int64_t sum = 0;
    for (int i = 0; i < n; i++)
        if (pp_has_row(shape, &rows[i])) sum += pp_dim_size(shape, rows[i].dim[0]) * pp_dim_size(shape, rows[i].dim[1]);
    return sum;
}

int64_t pp_shape_embedding(const struct pp_shape *shape)
{
    return rows_elements(shape, pp_embedding_rows, PP_EMBEDDING_ROWS);
}

int64_t pp_shape_layer(const struct pp_shape *shape, int layer)
{
    const struct pp_shape all = pp_shape_of_kind(shape, pp_layer_kind(shape, layer));
    return rows_elements(&all, pp_layer_rows, PP_LAYER_ROWS);
}

int64_t pp_shape_decoder(const struct pp_shape *shape) { return rows_elements(shape, pp_last_rows, PP_LAST_ROWS); }

static enum pp_rule rule_of(const struct pp_shape *shape, const struct pp_tensor_row *row)
{
    const enum pp_rule rule = row->rule[shape->lab_init];
    if (shape->init_std == 0 || rule == RULE_ONE) return rule;
    return row->dim[1] == DIM_NONE ? RULE_ZERO : RULE_NORMAL;
}

/* Of normal weights. What writes into the residual stream is what tensor ranks cut by
 * columns, where there are no experts. */
static double deviation(const struct pp_shape *shape, const struct pp_tensor_row *row)
{
    if (shape->init_std == 0) return 1;
    return row->split == PP_SPLIT_COLUMNS ? shape->init_std / sqrt(2. * shape->layers) : shape->init_std;
}

void pp_row_init(const struct pp_shape *shape, const struct pp_tensor_row *row, struct pp_tensor *tensor)
{
    const enum pp_rule rule = rule_of(shape, row);
    const double d = shape->d_model;
    const struct {
        enum pp_init init;
        double bound;
    } init[] = {[RULE_ZERO] = {PP_INIT_ZERO, 0},
                [RULE_ONE] = {PP_INIT_ONE, 1},
                [RULE_TENTH] = {PP_INIT_UNIFORM, 0.1},
                [RULE_XAVIER] = {PP_INIT_UNIFORM, sqrt(6 / (d + (double)pp_qkv_width(shape)))},
                [RULE_FAN_D] = {PP_INIT_UNIFORM, 1 / sqrt(d)},
                [RULE_FAN_ATTENDED] = {PP_INIT_UNIFORM, 1 / sqrt(pp_attended_width(shape))},
                [RULE_FAN_FF] = {PP_INIT_UNIFORM, 1 / sqrt(shape->d_ff)},
                [RULE_FAN_SHARED] = {PP_INIT_UNIFORM, 1 / sqrt(shape->shared_ff ? shape->shared_ff : 1)},
                [RULE_FAN_Q_RANK] = {PP_INIT_UNIFORM, 1 / sqrt(shape->q_lora_rank ? shape->q_lora_rank : 1)},
                [RULE_FAN_KV_RANK] = {PP_INIT_UNIFORM, 1 / sqrt(shape->kv_lora_rank ? shape->kv_lora_rank : 1)},
                [RULE_NORMAL] = {PP_INIT_NORMAL, deviation(shape, row)}};
    tensor->init = init[rule].init;
    tensor->bound = init[rule].bound;
}
