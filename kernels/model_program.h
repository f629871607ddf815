/* SPDX-License-Identifier: Apache-2.0
 *
 * Inside the model: the writer of programs. model_program.c begins and ends a program, and has what all others share;
 * between, one file writes each family of calls:
 *
 *   program_forward.c     F, R: layers on their way forward, the embedding, the decoder and the loss
 *   program_backward.c    B, I, W
 *   program_attention.c   attention between in_proj and out_proj, and what context ranks exchange for it
 *   program_ring.c        the same where keys and values go around in a ring
 *   program_latent.c      what latent attention has in the place of in_proj
 *   program_experts.c     the feed-forward of layers with experts
 *   program_places.c      the way of tokens to the places of experts, and back
 *   program_shared.c      the feed-forward beside experts
 *   program_sums.c        what tensor ranks sum and gather, and the products beside which it stands
 *   program_linear.c      products of linears, which are FP8 in models of that precision
 *   program_layers.c      which layers of a stage are written, where calls stand once
 *   program_step.c        NORM, STEP
 *   program_shards.c      PUT_PARAM, ADD_GRAD, and what a B clears, where workers keep shares alone
 *   signature.c           the name of the whole program
 *
 * Letters in shapes (T, d, ff, E, K, S ...) are those of kernels/slot.h. A ref of region PP_MEM_NONE, "no memory",
 * stands for what a model or a call does not have.
 */
#ifndef PP_KERNELS_MODEL_PROGRAM_H
#define PP_KERNELS_MODEL_PROGRAM_H

#include "core/shape/pieces.h"
#include "kernels/kernels.h"
#include "kernels/model.h"
#include "kernels/model_tensors.h"
#include "kernels/program_layers.h"
#include "kernels/program_linear.h"
#include "kernels/program_places.h"
#include "kernels/program_ring.h"
#include "kernels/program_shared.h"
#include "kernels/slot.h"

/* Places of a layer where dropout may stand. */
enum pp_dropout_place { PP_DROP_ATTENTION, PP_DROP_RESIDUAL1, PP_DROP_ACTIVATION, PP_DROP_RESIDUAL2, PP_DROP_PLACES };

/* Scratch of latent attention. q and kv are the products' of all heads, before they are joined to qkv; or, backward,
 * their gradients, unless the slot has these (split). */
struct pp_latent_scratch {
    struct pp_ref q;       /* [T, heads * (qk_nope_head_dim + qk_rope_head_dim)] */
    struct pp_ref kv;      /* [T, heads * (qk_nope_head_dim + v_head_dim)] */
    struct pp_ref dq_a;    /* [T, q_lora_rank]: gradient at the norm's output */
    struct pp_ref dkv_a;   /* [T, kv_lora_rank]: the same */
    struct pp_ref dshared; /* [T, qk_rope_head_dim]: gradient at the part of the keys that all heads share */
};

/* A program that is being written. */
struct pp_writer {
    const struct pp_model *model;
    const struct pp_stage *stage;
    struct pp_stage_part part; /* of the stage: the layers that the program is about */
    struct pp_slot slot;
    int rows;                   /* of the microbatch */
    int seq;                    /* tokens of a row that the worker has */
    int row_seq;                /* tokens of a whole row */
    int64_t tokens;             /* T: rows * seq */
    int64_t capacity;           /* places of an expert; 0: no layer of the stage has experts */
    bool by_tokens;             /* each tensor rank has a part of the tokens (pp_shape_parts_tokens) */
    int part_seq;               /* tokens of a row for which the worker has room then; else seq */
    int64_t part_tokens;        /* T': rows * part_seq */
    int sum_pieces;             /* pp_sum_pieces() of part_tokens */
    bool training, split, clip; /* as in struct pp_program_spec; split: I and W are programs of their own */
    bool clears;                /* zeros that fill shares up are written, see program_shards.c */
    bool checkpoints;           /* the inputs of layers are kept, and nothing else */
    bool rounds;                /* the program rounds weights to FP8 */
    bool adds;                  /* it adds to gradients */
    int beside;                 /* number of the last exchange of experts that is under way; 0: none is */
    /* Scratch, in PP_MEM_WORK: */
    struct pp_ref again;    /* slot.again: the buffers of one layer */
    struct pp_ref u;        /* slot.activation_again: u of one layer */
    struct pp_ref shared_u; /* the same of the feed-forward beside experts */
    struct pp_ref full[2];  /* by_tokens: [T, d] of all tensor ranks' tokens */
    struct pp_ref own;      /* by_tokens, several pieces, backward: [T', d], the worker's part of each piece in turn */
    struct pp_latent_scratch latent;
    struct pp_ref pieces[2]; /* context: [T, q], what attention reads and makes; or keys and values */
    struct pp_ring_scratch ring;
    struct pp_fp8_scratch fp8; /* behind all other scratch of the program */
    struct pp_layers layers;
    struct pp_program *out;
    int room; /* out->calls has memory for so many calls; each further one overwrites the first, and is counted */
};

static inline struct pp_ref pp_ref_to(enum pp_region region, int64_t offset)
{
    return (struct pp_ref){region, 0, offset};
}
static inline struct pp_ref pp_ref_further(struct pp_ref ref, int64_t bytes)
{
    ref.offset += bytes;
    return ref;
}

/* A tensor of layer l of the stage; a tensor behind the layers. NULL where the model does not have it. */
const struct pp_tensor *pp_writer_layer_tensor(const struct pp_writer *w, int l, enum pp_layer_tensor tensor);
const struct pp_tensor *pp_writer_last_tensor(const struct pp_writer *w, enum pp_last_tensor tensor);
/* The place of a tensor in the parameter or gradient region, and that of its bfloat16 copy; no memory where there is
 * none. */
struct pp_ref pp_ref_tensor(enum pp_region region, const struct pp_tensor *t);
struct pp_ref pp_ref_copy(const struct pp_tensor *t);
/* ref: the first of the replicas' shares of a tensor, which lie one behind the other. Returns the worker's own. */
struct pp_ref pp_ref_share(const struct pp_writer *w, const struct pp_tensor *t, struct pp_ref ref, int element_bytes);
/* In the parameter or gradient region: a tensor of layer l of the stage; the embedding; learnt positions; a tensor
 * behind the layers. No memory where the model does not have it. */
struct pp_ref pp_ref_layer(const struct pp_writer *w, enum pp_region region, int l, enum pp_layer_tensor tensor);
struct pp_ref pp_ref_embedding(const struct pp_writer *w, enum pp_region region);
struct pp_ref pp_ref_positions(const struct pp_writer *w, enum pp_region region);
struct pp_ref pp_ref_last(const struct pp_writer *w, enum pp_region region, enum pp_last_tensor tensor);
/* Weights as products read them: the bfloat16 copy where there is one. */
struct pp_ref pp_ref_weight(const struct pp_writer *w, int l, enum pp_layer_tensor tensor);
struct pp_ref pp_ref_decoder_weight(const struct pp_writer *w);
/* The kind of layer l of the stage; what a worker computes of it. */
static inline enum pp_layer_kind pp_writer_kind(const struct pp_writer *w, int l)
{
    return pp_layer_kind(&w->model->shape, w->stage->first_layer + l);
}
static inline const struct pp_shape *pp_writer_shape(const struct pp_writer *w, int l)
{
    return &w->model->local_kind[pp_writer_kind(w, l)];
}

/* A buffer of the activation slot; layer l's own of a buffer that each layer has. */
static inline struct pp_ref pp_ref_slot(const struct pp_writer *w, struct pp_buffer buffer)
{
    int part = PP_ACT_PARTS - 1;
    while (buffer.offset < w->slot.begin[part]) part--;
    return (struct pp_ref){PP_MEM_ACT + part, 0, buffer.offset - w->slot.begin[part], buffer.row_bytes};
}
static inline struct pp_ref pp_ref_act(const struct pp_writer *w, int l, struct pp_buffer buffer)
{
    const struct pp_slot *slot = &w->slot;
    if (l < slot->again) return pp_ref_to(PP_MEM_WORK, w->again.offset + buffer.offset);
    const int64_t layer = pp_slot_layer(w->model, w->stage, slot, l);
    return pp_ref_slot(w, (struct pp_buffer){layer + buffer.offset, buffer.row_bytes});
}

/* u of layer l, which linear2 reads: in the slot, or in scratch. */
static inline struct pp_ref pp_ref_u(const struct pp_writer *w, int l)
{
    return w->slot.activation_again ? w->u : pp_ref_act(w, l, w->slot.u[pp_writer_kind(w, l)]);
}

/* Is the input of layer l of the stage kept as a checkpoint? l = layers: the input of what is behind the last layer. */
static inline bool pp_writer_keeps(const struct pp_writer *w, int l)
{
    return l < (w->checkpoints ? pp_stage_checkpoints(w->stage) : w->slot.again);
}
static inline struct pp_ref pp_ref_checkpoint(const struct pp_writer *w, int l)
{
    const struct pp_slot *slot = &w->slot;
    const struct pp_buffer own = {l * slot->checkpoint_bytes, slot->checkpoint.row_bytes};
    if (slot->again) return pp_ref_slot(w, own);
    return pp_ref_to(PP_MEM_CKPT, l * pp_checkpoint_bytes(&w->model->local, w->rows, w->row_seq));
}
/* x of layer l, which in_proj reads: where layers end with their norms, a checkpoint if there is one. */
static inline struct pp_ref pp_ref_x(const struct pp_writer *w, int l)
{
    const bool kept = pp_writer_keeps(w, l) && w->model->shape.norm == PP_NORM_LAST;
    return kept ? pp_ref_checkpoint(w, l) : pp_ref_act(w, l, w->slot.x);
}

/* These take scratch, which is the program's to its end, and return its place: so many bytes; activations [T, width];
 * a stream [T', d]. */
struct pp_ref pp_writer_scratch(struct pp_writer *w, int64_t bytes);
struct pp_ref pp_writer_activations(struct pp_writer *w, int width);
struct pp_ref pp_writer_stream(struct pp_writer *w);
/* Places in all experts of a layer: S. */
static inline int64_t pp_writer_place_rows(const struct pp_writer *w) { return w->model->local.experts * w->capacity; }
/* Takes scratch for u, or the gradient there, of any layer of the stage: [T, ff], with experts [S, ff]. */
struct pp_ref pp_writer_inner(struct pp_writer *w);
/* The same beside experts, [T, g]; no memory if the stage has no such feed-forward. */
struct pp_ref pp_writer_shared_inner(struct pp_writer *w);
/* Takes scratch for what places hold, [S, d]; no memory if the stage has no experts. */
struct pp_ref pp_writer_places(struct pp_writer *w);
/* Takes w->again, where some layers are made again; it lies at the same place in all parts of a task. reads_u: takes
 * w->u and w->shared_u, where activations are made again. */
void pp_writer_take_again(struct pp_writer *w, bool reads_u);
/* Takes w->pieces, where workers have parts of the same rows. back: of a program that has gradients of attention. */
void pp_writer_take_pieces(struct pp_writer *w, bool back);
/* Appends a call of the model's precision and returns it; the caller sets its dimensions, scalars and operands. */
struct pp_call *pp_writer_call(struct pp_writer *w, enum pp_kernel kernel);
/* Appends a norm, a residual, or the gradient of one, over the worker's tokens of the stream. */
struct pp_call *pp_writer_pass(struct pp_writer *w, enum pp_kernel kernel, bool plain);
/* to = from, both streams [T', d]. */
void pp_writer_copy(struct pp_writer *w, struct pp_ref to, struct pp_ref from);
/* Returns the call; C is float32 where the caller sets gemm.wide. */
struct pp_call *pp_writer_gemm(struct pp_writer *w, enum pp_kernel kernel, const int mnk[3], enum pp_gemm_mode mode,
                               struct pp_ref c, struct pp_ref a, struct pp_ref b);

/* ---- program_sums.c ----
 *
 * Where tensor ranks have parts of the tokens (by_tokens), what products over a part of the tensors read is gathered in
 * w->full[] before, and what they make is summed there and scattered. Forward programs have full[0] alone. On the way
 * back the gradient at a linear's output is gathered in the first, and stays there until the gradient of that linear's
 * weight is made; all else uses the second. */
enum { PP_FULL_GRADIENTS, PP_FULL_OTHERS };

/* A product with tokens as rows: C [T, n] = A [T, k] times a weight, [n, k]' (GEMM_NT) or [k, n] (GEMM_NN). wide: C is
 * float32 whatever the precision. */
struct pp_token_product {
    enum pp_kernel kernel;
    enum pp_gemm_mode mode;
    struct pp_ref c, a, weight;
    int n, k;
    bool wide;
    bool plain; /* as in struct pp_linear */
};

/* Takes w->full[0 .. n-1] and, with n = 2, w->own; nothing unless by_tokens. */
void pp_writer_take_full(struct pp_writer *w, int n);
/* Sums memory [rows, width] over the tensor ranks, if there are several. wide: float32 whatever the precision. */
void pp_writer_all_reduce(struct pp_writer *w, struct pp_ref memory, int64_t rows, int width, bool wide);
/* x is the worker's stream. Returns that of all tokens, [T, d]: gathered in w->full[full], or x itself unless
 * by_tokens. */
struct pp_ref pp_writer_gather(struct pp_writer *w, int full, struct pp_ref x);
/* The same in two steps: calls that are written between them may run beside the gathering. */
struct pp_ref pp_writer_start_gather(struct pp_writer *w, int full, struct pp_ref x);
void pp_writer_end_gather(struct pp_writer *w);
/* The product, where p->a is the worker's stream: gathered first, as pp_writer_gather() does. */
void pp_write_gathered_product(struct pp_writer *w, int full, const struct pp_token_product *p);
/* The product, and the sum of what it makes in all tensor ranks. Unless by_tokens the sum is in p->c, which is
 * returned; else the worker's part of it is in `to`, or, where that has no memory, in scratch until the next sum. */
struct pp_ref pp_write_summed_product(struct pp_writer *w, int full, const struct pp_token_product *p,
                                      struct pp_ref to);
/* The same of a gradient, which p->mode writes or adds to p->c. Returns where it is: p->c, or, by_tokens and written,
 * perhaps elsewhere. */
struct pp_ref pp_write_summed_gradient(struct pp_writer *w, const struct pp_token_product *p);
/* The sum over the tensor ranks of what calls that are no such product have made: in x [T, d], or, by_tokens, from
 * w->full[0] to x. */
void pp_write_sum(struct pp_writer *w, struct pp_ref x);
/* The same of a gradient: in c, or, by_tokens, from w->full[PP_FULL_OTHERS], and added to c with PP_GEMM_ADD. Returns
 * where it is. alike: all tensor ranks have made the same, so nothing is summed. */
struct pp_ref pp_write_gradient_sum(struct pp_writer *w, enum pp_gemm_mode mode, struct pp_ref c, bool alike);

/* ---- attention, norms, layers ---- */

/* Does the program have dropout? */
static inline bool pp_writer_drops(const struct pp_writer *w) { return w->training && w->model->local.dropout > 0; }
/* Sets the call's dropout, site and p, unless the model has none at that place. */
void pp_writer_dropout(const struct pp_writer *w, struct pp_call *call, int l, enum pp_dropout_place place);
/* Where in_proj of layer l writes. */
struct pp_ref pp_ref_in_proj(const struct pp_writer *w, int l);
/* Attention of layer l: from what in_proj has written to ctx, which out_proj reads. scratch: of
 * pp_writer_attention_scratch(). */
void pp_write_attention(struct pp_writer *w, int l, struct pp_ref scratch);
/* From dctx, the gradient at out_proj's input, to dqkv, that at in_proj's output, in the place of qkv. */
void pp_write_attention_grad(struct pp_writer *w, int l, struct pp_ref dctx, struct pp_ref scratch);
/* Latent attention of layer l, program_latent.c. From x, the worker's stream, to what in_proj writes in other models.
 * From the gradient there to that at x, which mode writes to `out` or adds; returns where it is. The gradients of the
 * weights; x: [T, d], of all tokens. */
void pp_write_latent(struct pp_writer *w, int l, struct pp_ref x);
struct pp_ref pp_write_latent_grad(struct pp_writer *w, int l, enum pp_gemm_mode mode, struct pp_ref out);
void pp_write_latent_weights(struct pp_writer *w, int l, struct pp_ref x);
/* Takes w->latent, where the model has latent attention. back: of a program that has gradients of inputs. */
void pp_writer_take_latent(struct pp_writer *w, bool back);
/* Takes the scratch that calls of attention ask for. */
struct pp_ref pp_writer_attention_scratch(struct pp_writer *w);
/* Does the model normalise first? Is its activation swiglu? */
static inline bool pp_writer_norm_first(const struct pp_writer *w) { return w->model->shape.norm == PP_NORM_FIRST; }
static inline bool pp_writer_swiglu(const struct pp_writer *w) { return w->model->shape.activation == PP_SWIGLU; }
/* Does the model rotate queries and keys (and add no positions to the embedding)? */
static inline bool pp_writer_rotates(const struct pp_writer *w)
{
    return w->model->shape.positions == PP_POSITIONS_ROPE;
}
/* Sets scale and dropout of the embedding, or of its gradient. */
void pp_writer_embedding(const struct pp_writer *w, struct pp_call *call);

/* Scratch of layers on their way forward. */
struct pp_scratch {
    struct pp_ref attention;
    struct pp_expert_places at;
    struct pp_ref stream; /* norm first: [T', d], the residual stream, to which layers add */
    struct pp_ref z2;     /* norm first: [T', d], linear2's output */
};

/* Writes F, or with recompute R. */
void pp_write_forward(struct pp_writer *w, bool recompute);
/* Writes layer l once more from its checkpoint, as far as its backward needs it; of the stage with the decoder behind
 * its last layer the decoder, too. l = -1: the decoder alone, of a stage without layers. */
void pp_write_layer_again(struct pp_writer *w, int l, const struct pp_scratch *scratch);
/* Writes I (input_grads), W (weight_grads), or B (both). */
void pp_write_backward(struct pp_writer *w, bool input_grads, bool weight_grads);

/* Writes NORM, STEP. */
void pp_write_norm(struct pp_writer *w);
void pp_write_step(struct pp_writer *w);
/* Rows and columns of a tensor, or of one of its parts: there rows are as long as they can be. */
struct pp_matrix_dims pp_writer_extent(const struct pp_tensor *t, bool part);

/* Writes PUT_PARAM; ADD_GRAD; of a B, zeros over what fills shares up in its slot of gradients. */
void pp_write_put(struct pp_writer *w, const struct pp_class *cls);
void pp_write_take(struct pp_writer *w, const struct pp_class *cls);
void pp_write_clear(struct pp_writer *w, const struct pp_class *cls);

/* What is between the two linears of a feed-forward. */
struct pp_inner {
    int rows, seq;      /* rows * seq rows: tokens, or places of experts (seq 1) */
    int width;          /* columns of u */
    struct pp_ref a, u; /* what linear1 makes; what linear2 reads: with relu the same memory */
    struct pp_ref bias; /* of linear1; no memory with experts */
};
/* In layer l: of its feed-forward, or of its experts; of the feed-forward beside experts. */
struct pp_inner pp_inner_of(const struct pp_writer *w, int l);
struct pp_inner pp_shared_inner_of(const struct pp_writer *w, int l);
/* Dimensions of the activation function, or of its gradient. */
struct pp_activation_dims pp_inner_dims(const struct pp_writer *w, const struct pp_inner *inner);
/* The activation function of layer l, from a to u. again: a has its bias already. The gradient: from du, that at u, to
 * dh, that at linear1's output. dh is the memory of du, or with swiglu that of a. */
void pp_write_activation(struct pp_writer *w, int l, const struct pp_inner *inner, bool again);
void pp_write_activation_grad(struct pp_writer *w, int l, const struct pp_inner *inner, struct pp_ref du,
                              struct pp_ref dh);

/* Scratch of experts on the way back. No memory for what the slot has (split), or the model does not have. */
struct pp_expert_scratch {
    struct pp_ref dy;           /* [S, d]: gradient at linear2's output; not where slot.received_dy has it */
    struct pp_expert_places at; /* other rows of places; split, without expert ranks: at.places is the memory of dy */
    struct pp_ref there;        /* [S] float, where expert ranks share the experts: gradients at received gates */
    struct pp_ref dgates;       /* [T, K] float: gradients at the gates */
    struct pp_ref droute;       /* [T, E]: gradient at the router's output; not if split */
    /* Of the feed-forward beside experts: */
    struct pp_ref shared_du;     /* [T, g]: gradient at u; if split with swiglu alone */
    struct pp_ref shared_dgate;  /* [T] float: gradient at the gate */
    struct pp_ref shared_dlogit; /* [T]: gradient at the gate's logit; not if split */
};
struct pp_expert_scratch pp_writer_expert_scratch(struct pp_writer *w, bool input_grads);

/* u of layer l's experts once more from a, weighed by the gates. */
void pp_write_experts_inner_again(struct pp_writer *w, int l);
/* The feed-forward of a layer with experts, from x to z, both streams [T', d]; where z has no memory, as far as the
 * backward needs it. */
void pp_write_experts(struct pp_writer *w, int l, struct pp_ref x, struct pp_ref z, const struct pp_expert_places *at);
struct pp_experts_grad {
    struct pp_ref dz;       /* [T, d]: gradient at its output, of all tokens */
    struct pp_ref du, dh;   /* of pp_write_activation_grad(); du [S, ff] */
    enum pp_gemm_mode mode; /* what becomes of `out`, the gradient at x */
    struct pp_ref out;
    bool weights; /* the program has pp_write_expert_weights() of the layer, too */
};
/* Its gradients: from g->dz to g->dh, to that at the router's output, and to that at x; returns where that is. With
 * g->weights it may write a part of pp_write_expert_weights(). */
struct pp_ref pp_write_experts_grad(struct pp_writer *w, int l, const struct pp_expert_scratch *scratch,
                                    const struct pp_experts_grad *g);
struct pp_expert_weights_grad {
    struct pp_ref dz, dh, x; /* dz, dh as above; x: [T, d], what the experts have read, of all tokens */
    bool inputs;             /* pp_write_experts_grad() of the layer stands before it in the program */
};
/* The gradients of its weights. */
void pp_write_expert_weights(struct pp_writer *w, int l, const struct pp_expert_scratch *scratch,
                             const struct pp_expert_weights_grad *g);

/* Writes pp_program.signature. kind: enum pp_kind. */
pp_status pp_write_signature(const struct pp_writer *w, int kind) PP_MUST_CHECK;

#endif
