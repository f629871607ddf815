/* SPDX-License-Identifier: Apache-2.0
 *
 * Inside the model: the tensors that models are made of, as rows of tables.
 */
#ifndef PP_KERNELS_MODEL_ROWS_H
#define PP_KERNELS_MODEL_ROWS_H

#include "kernels/model.h"
#include "kernels/model_tensors.h"

/* A dimension of a tensor, in terms of the shape. DIM_LINEAR1, DIM_LINEAR2: columns of the outputs of these; of all
 * experts, where there are such. DIM_SHARED, DIM_SHARED1: of shared_ff, as DIM_FF and DIM_LINEAR1 are of d_ff. */
enum pp_dim {
    DIM_NONE,
    DIM_D,
    DIM_QKV,
    DIM_ATTENDED,
    DIM_FF,
    DIM_LINEAR1,
    DIM_LINEAR2,
    DIM_EXPERTS,
    DIM_SHARED,
    DIM_SHARED1,
    DIM_ONE,
    DIM_VOCAB,
    DIM_POSITIONS,
    DIM_HEAD,
    DIM_QUERIES,  /* of all heads */
    DIM_KV,       /* own columns of the keys, and values, of all heads: what the latent vector of these makes */
    DIM_Q_RANK,   /* of the latent vector of queries */
    DIM_KV_RANK,  /* of that of keys and values */
    DIM_KV_LATENT /* the same with the part of the keys that all heads share */
};

/* How the bound of a tensor follows from the shape. */
enum pp_rule {
    RULE_ZERO,
    RULE_ONE,
    RULE_TENTH,
    RULE_XAVIER,
    RULE_FAN_D,
    RULE_FAN_ATTENDED,
    RULE_FAN_FF,
    RULE_FAN_SHARED,
    RULE_FAN_Q_RANK,
    RULE_FAN_KV_RANK,
    RULE_NORMAL
};

/* What a model must have for a tensor to be in it; several may be set. OF_BIAS: of layers, but for that of in_proj. */
enum {
    OF_ANY = 0,
    OF_BIAS = 1,
    OF_LAYERNORM = 2,
    OF_LAST_NORM = 4,
    OF_DECODER_BIAS = 8,
    OF_POSITIONS = 16,
    OF_EXPERTS = 32,
    OF_QKV_BIAS = 64,
    OF_QK_NORM = 128,
    OF_SHARED = 256,
    OF_SHARED_GATE = 512,
    OF_EXPERT_BIAS = 1024,
    OF_IN_PROJ = 2048,   /* queries, keys and values are made by one product */
    OF_LATENT = 4096,    /* latent attention */
    OF_Q_LATENT = 8192,  /* ... with a latent vector of queries */
    OF_Q_STREAM = 16384  /* ... without */
};

struct pp_tensor_row {
    const char *name;
    enum pp_dim dim[2];
    enum pp_rule rule[2]; /* tutorial, lab; with init_std see pp_row_init() */
    unsigned of;
    enum pp_split split; /* where tensor ranks share it (model.c) */
};

extern const struct pp_tensor_row pp_embedding_rows[PP_EMBEDDING_ROWS];
extern const struct pp_tensor_row pp_layer_rows[PP_LAYER_ROWS];
extern const struct pp_tensor_row pp_last_rows[PP_LAST_ROWS];

int64_t pp_dim_size(const struct pp_shape *shape, enum pp_dim dim);
/* Has the model the tensor? */
bool pp_has_row(const struct pp_shape *shape, const struct pp_tensor_row *row);
/* Sets the tensor's initial weights. */
void pp_row_init(const struct pp_shape *shape, const struct pp_tensor_row *row, struct pp_tensor *tensor);

#endif
