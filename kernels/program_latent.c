/* SPDX-License-Identifier: Apache-2.0
 *
 * Latent attention (DeepSeek-AI 2024, "DeepSeek-V2", 2.1): what stands between the stream and qkv in the place of
 * in_proj. Products make of each token a latent vector of its queries, and one of its keys and values with the part of
 * the key that all heads share; these are normalised, and more products make queries, keys and values of all heads,
 * which are joined to qkv. Rotation and attention are those of other models (program_attention.c).
 *
 * Without a latent vector of queries, these are made of the stream.
 *
 * Tensor ranks have all tokens and a part of the heads. Each rank makes the same latent vectors of all tokens; on the
 * way back the gradients at these vectors are summed over the ranks, and then all ranks have the same again.
 * Megatron-LM does so, too (MLASelfAttention), but with sequence parallelism a rank makes those of its tokens alone.
 */
#include "kernels/model_program.h"

/* A latent vector: the product that makes it, its norm, the product that makes all heads of it. */
struct latent {
    enum pp_layer_tensor a, norm, b;
    int rank, shared;              /* columns of the vector; behind it */
    int width;                     /* columns of what is made of it */
    struct pp_buffer made, normal; /* the vector, [T, rank + shared]; after the norm, [T, rank] */
    struct pp_buffer rstd;         /* of the norm, [T] float */
};

static struct latent of_queries(const struct pp_writer *w)
{
    const struct pp_shape *shape = &w->model->local;
    return (struct latent){.a = PP_Q_A_PROJ_WEIGHT,
                           .norm = PP_Q_A_NORM_WEIGHT,
                           .b = PP_Q_B_PROJ_WEIGHT,
                           .rank = shape->q_lora_rank,
                           .width = pp_query_width(shape),
                           .made = w->slot.q_a,
                           .normal = w->slot.q_n,
                           .rstd = w->slot.q_rstd};
}

static struct latent of_keys(const struct pp_writer *w)
{
    const struct pp_shape *shape = &w->model->local;
    return (struct latent){.a = PP_KV_A_PROJ_WEIGHT,
                           .norm = PP_KV_A_NORM_WEIGHT,
                           .b = PP_KV_B_PROJ_WEIGHT,
                           .rank = shape->kv_lora_rank,
                           .shared = shape->qk_rope_head_dim,
                           .width = pp_latent_kv_width(shape),
                           .made = w->slot.kv_a,
                           .normal = w->slot.kv_n,
                           .rstd = w->slot.kv_rstd};
}

static bool has_query_vector(const struct pp_writer *w) { return w->model->local.q_lora_rank > 0; }

void pp_writer_take_latent(struct pp_writer *w, bool back)
{
    const struct pp_shape *shape = &w->model->local;
    if (!pp_shape_is_latent(shape) || w->stage->layers == 0) return;
    if (!back || !w->split) {
        w->latent.q = pp_writer_activations(w, pp_query_width(shape));
        w->latent.kv = pp_writer_activations(w, pp_latent_kv_width(shape));
    }
    if (!back) return;
    if (has_query_vector(w)) w->latent.dq_a = pp_writer_activations(w, shape->q_lora_rank);
    w->latent.dkv_a = pp_writer_activations(w, shape->kv_lora_rank);
    w->latent.dshared = pp_writer_activations(w, shape->qk_rope_head_dim);
}

/* The gradients at the outputs of the products that make queries, and keys and values. */
static struct pp_ref dq_of(const struct pp_writer *w, int l)
{
    return w->split ? pp_ref_act(w, l, w->slot.dq) : w->latent.q;
}
static struct pp_ref dkv_of(const struct pp_writer *w, int l)
{
    return w->split ? pp_ref_act(w, l, w->slot.dkv) : w->latent.kv;
}

static void write_product(struct pp_writer *w, const struct pp_token_product *p)
{
    pp_writer_linear(w, &(struct pp_linear){.kernel = p->kernel,
                                            .mode = p->mode,
                                            .mnk = {(int)w->tokens, p->n, p->k},
                                            .c = p->c,
                                            .a = p->a,
                                            .b = p->weight});
}

/* C [T, n] = A [T, k] * weight [n, k]' */
static void write_forward(struct pp_writer *w, int l, enum pp_layer_tensor weight, struct pp_token_product p)
{
    p.kernel = PP_KERNEL_GEMM_NT;
    p.weight = pp_ref_weight(w, l, weight);
    write_product(w, &p);
}

/* C [T, n] = A [T, k] * weight [k, n], or added to C. */
static void write_gradient(struct pp_writer *w, int l, enum pp_layer_tensor weight, struct pp_token_product p)
{
    p.kernel = PP_KERNEL_GEMM_NN;
    p.weight = pp_ref_weight(w, l, weight);
    write_product(w, &p);
}

static struct pp_call *write_norm(struct pp_writer *w, enum pp_kernel kernel, const struct latent *v)
{
    struct pp_call *call = pp_writer_call(w, kernel);
    call->latent = (struct pp_latent_dims){.rows = w->rows, .seq = w->seq, .rank = v->rank, .shared = v->shared};
    call->eps = (float)pp_norm_epsilon(&w->model->local);
    return call;
}

static struct pp_call *write_heads(struct pp_writer *w, enum pp_kernel kernel)
{
    const struct pp_shape *shape = &w->model->local;
    struct pp_call *call = pp_writer_call(w, kernel);
    call->heads = (struct pp_heads_dims){.rows = w->rows,
                                         .seq = w->seq,
                                         .heads = shape->heads,
                                         .still = shape->qk_nope_head_dim,
                                         .shared = shape->qk_rope_head_dim,
                                         .values = shape->v_head_dim,
                                         .rank = shape->kv_lora_rank};
    return call;
}

/* From x [T, d] by the latent vector to what all heads have of it. */
static void write_vector(struct pp_writer *w, int l, const struct latent *v, struct pp_ref x, struct pp_ref to)
{
    const struct pp_ref made = pp_ref_act(w, l, v->made), normal = pp_ref_act(w, l, v->normal);
    write_forward(w, l, v->a,
                  (struct pp_token_product){.c = made, .n = v->rank + v->shared, .a = x, .k = w->model->local.d_model});
    write_norm(w, PP_KERNEL_LATENT_NORM, v)->at.latent_norm = (struct pp_latent_norm_refs){
        .y = normal, .rstd = pp_ref_act(w, l, v->rstd), .x = made, .gamma = pp_ref_layer(w, PP_MEM_PARAM, l, v->norm)};
    write_forward(w, l, v->b, (struct pp_token_product){.c = to, .n = v->width, .a = normal, .k = v->rank});
}

void pp_write_latent(struct pp_writer *w, int l, struct pp_ref x)
{
    const struct latent queries = of_queries(w), keys = of_keys(w);
    const int d = w->model->local.d_model;
    x = pp_writer_gather(w, 0, x);
    if (has_query_vector(w))
        write_vector(w, l, &queries, x, w->latent.q);
    else
        write_forward(w, l, PP_Q_PROJ_WEIGHT,
                      (struct pp_token_product){.c = w->latent.q, .n = queries.width, .a = x, .k = d});
    write_vector(w, l, &keys, x, w->latent.kv);
    write_heads(w, PP_KERNEL_JOIN_HEADS)->at.join_heads = (struct pp_join_heads_refs){
        .qkv = pp_ref_in_proj(w, l), .q = w->latent.q, .kv = w->latent.kv, .x = pp_ref_act(w, l, keys.made)};
}

/* From the gradient at what all heads have, dy, to that at the latent vector, in its place. dnormal: scratch; dshared:
 * the gradient at what stands behind the vector. Both are summed over the tensor ranks. */
static void write_vector_grad(struct pp_writer *w, int l, const struct latent *v, struct pp_ref dy,
                              struct pp_ref dnormal, struct pp_ref dshared)
{
    write_gradient(w, l, v->b, (struct pp_token_product){.c = dnormal, .n = v->rank, .a = dy, .k = v->width});
    pp_writer_all_reduce(w, dnormal, w->tokens, v->rank, false);
    if (v->shared) pp_writer_all_reduce(w, dshared, w->tokens, v->shared, false);
    write_norm(w, PP_KERNEL_LATENT_NORM_GRAD, v)->at.latent_norm_grad =
        (struct pp_latent_norm_grad_refs){.x = pp_ref_act(w, l, v->made),
                                          .rstd = pp_ref_act(w, l, v->rstd),
                                          .dy = dnormal,
                                          .dshared = dshared,
                                          .gamma = pp_ref_layer(w, PP_MEM_PARAM, l, v->norm),
                                          .gamma_grad = pp_ref_layer(w, PP_MEM_GRAD, l, v->norm)};
}

struct pp_ref pp_write_latent_grad(struct pp_writer *w, int l, enum pp_gemm_mode mode, struct pp_ref out)
{
    const struct latent queries = of_queries(w), keys = of_keys(w);
    const struct pp_ref none = {0}, dq = dq_of(w, l), dkv = dkv_of(w, l);
    const struct pp_ref to = w->by_tokens ? w->full[PP_FULL_OTHERS] : out;
    const int d = w->model->local.d_model;
    write_heads(w, PP_KERNEL_SPLIT_HEADS)->at.split_heads = (struct pp_split_heads_refs){
        .dqkv = pp_ref_act(w, l, w->slot.qkv), .dq = dq, .dkv = dkv, .dshared = w->latent.dshared};
    write_vector_grad(w, l, &keys, dkv, w->latent.dkv_a, w->latent.dshared);
    write_gradient(w, l, keys.a,
                   (struct pp_token_product){.mode = w->by_tokens ? PP_GEMM_WRITE : mode,
                                             .c = to,
                                             .n = d,
                                             .a = pp_ref_act(w, l, keys.made),
                                             .k = keys.rank + keys.shared});
    if (has_query_vector(w)) {
        write_vector_grad(w, l, &queries, dq, w->latent.dq_a, none);
        const struct pp_ref dq_a = pp_ref_act(w, l, queries.made);
        write_gradient(w, l, queries.a,
                       (struct pp_token_product){.mode = PP_GEMM_ADD, .c = to, .n = d, .a = dq_a, .k = queries.rank});
    } else {
        const enum pp_gemm_mode add = pp_shape_tensor(&w->model->local) > 1 ? PP_GEMM_ADD_ONCE : PP_GEMM_ADD;
        write_gradient(w, l, PP_Q_PROJ_WEIGHT,
                       (struct pp_token_product){.mode = add, .c = to, .n = d, .a = dq, .k = queries.width});
    }
    return pp_write_gradient_sum(w, mode, out, has_query_vector(w));
}

/* Of a weight [m, n], from the gradient at its output [T, m] and its input [T, n]. */
static void write_weight_grad(struct pp_writer *w, int l, enum pp_layer_tensor weight, struct pp_weight_grads g)
{
    g.weight = pp_ref_layer(w, PP_MEM_GRAD, l, weight);
    pp_write_weight_grads(w, &g);
}

static void write_vector_weights(struct pp_writer *w, int l, const struct latent *v, struct pp_ref dy, struct pp_ref x)
{
    const struct pp_ref normal = pp_ref_act(w, l, v->normal), dmade = pp_ref_act(w, l, v->made);
    const int d = w->model->local.d_model;
    write_weight_grad(w, l, v->b, (struct pp_weight_grads){.dy = dy, .m = v->width, .input = normal, .n = v->rank});
    write_weight_grad(w, l, v->a, (struct pp_weight_grads){.dy = dmade, .m = v->rank + v->shared, .input = x, .n = d});
}

void pp_write_latent_weights(struct pp_writer *w, int l, struct pp_ref x)
{
    const struct latent queries = of_queries(w), keys = of_keys(w);
    const int d = w->model->local.d_model;
    if (has_query_vector(w))
        write_vector_weights(w, l, &queries, dq_of(w, l), x);
    else
        write_weight_grad(w, l, PP_Q_PROJ_WEIGHT,
                          (struct pp_weight_grads){.dy = dq_of(w, l), .m = queries.width, .input = x, .n = d});
    write_vector_weights(w, l, &keys, dkv_of(w, l), x);
}
