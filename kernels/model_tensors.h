/* SPDX-License-Identifier: Apache-2.0
 *
 * Inside the model: the numbers of its tensors, before the layers, of one layer, and behind them, in model order. What
 * they are: kernels/model_rows.c. Behind the weight of a linear layer stands its bias, if it can have one.
 */
#ifndef PP_KERNELS_MODEL_TENSORS_H
#define PP_KERNELS_MODEL_TENSORS_H

enum pp_embedding_tensor { PP_EMBEDDING_WEIGHT, PP_POSITIONS_WEIGHT, PP_EMBEDDING_ROWS };

enum pp_layer_tensor {
    PP_IN_PROJ_WEIGHT,
    PP_IN_PROJ_BIAS,
    PP_Q_PROJ_WEIGHT,
    PP_Q_A_PROJ_WEIGHT,
    PP_Q_B_PROJ_WEIGHT,
    PP_KV_A_PROJ_WEIGHT,
    PP_KV_B_PROJ_WEIGHT,
    PP_OUT_PROJ_WEIGHT,
    PP_OUT_PROJ_BIAS,
    PP_ROUTER_WEIGHT,
    PP_ROUTER_EXPERT_BIAS,
    PP_LINEAR1_WEIGHT,
    PP_LINEAR1_BIAS,
    PP_LINEAR2_WEIGHT,
    PP_LINEAR2_BIAS,
    PP_SHARED1_WEIGHT,
    PP_SHARED2_WEIGHT,
    PP_SHARED_GATE_WEIGHT,
    PP_Q_A_NORM_WEIGHT,
    PP_KV_A_NORM_WEIGHT,
    PP_Q_NORM_WEIGHT,
    PP_K_NORM_WEIGHT,
    PP_NORM1_WEIGHT,
    PP_NORM1_BIAS,
    PP_NORM2_WEIGHT,
    PP_NORM2_BIAS,
    PP_LAYER_ROWS
};

enum pp_last_tensor { PP_LAST_NORM_WEIGHT, PP_LAST_NORM_BIAS, PP_DECODER_WEIGHT, PP_DECODER_BIAS, PP_LAST_ROWS };

#endif
