/* SPDX-License-Identifier: Apache-2.0
 *
 * Inside the model: activation slots and the writer of programs, shared by program_forward.c, program_backward.c,
 * program_attention.c, program_experts.c, program_shared.c, program_sums.c, program_step.c and model_program.c.
 *
 * Training slot, per layer of the stage (T tokens of all its rows, each buffer aligned to 64 bytes; elements are those
 * of the precision, but float32 for rstd and logits):
 *   x [T,d]  qkv [T,q]  P [rows,heads,seq,seq]  ctx [T,c]  xhat1 [T,d]  rstd1 [T]  y1 [T,d]  u [T,ff]
 *   xhat2 [T,d]  rstd2 [T]
 * q = pp_qkv_width(): 3d, or less where heads share keys and values; c = pp_context_width(): d, unless heads have a
 * width of their own. flash has lse [rows,heads,seq] in the place of P, float32.
 * Where queries and keys are normalised, kept [T,k], k = pp_qk_width(), has them as they were before.
 * With gelu of either kind also a [T,ff], what it is of, with swiglu a [T,2*ff]. Where layers begin with their norms x
 * is the first norm's output and y1 the second's: what products read; the residual stream itself is scratch, and the
 * last stage holds xhat and rstd of the norm before the decoder.
 * The backward pass works in place: qkv becomes dqkv, xhat1 the gradient at the attention's output, xhat2 the
 * gradient at linear2's output (norm first: xhat2 that at the attention's output, and linear2's is scratch). A split
 * backward keeps the gradient at linear1's output besides (dh [T,ff]; norm first: and linear2's, dz2 [T,d]), and the
 * first stage the gradient at the embedding's output. With swiglu that at linear1's output takes a's place, split or
 * not. The last stage holds the decoder's input and the logits (as many columns as the padded vocabulary), which become
 * their own gradient; bf16 has a second buffer for that. Evaluation keeps nothing for a backward pass: all layers use
 * the buffers of one. So they do where the inputs of layers are checkpoints: F writes those on its way, B makes the
 * buffers of one layer again from its checkpoint and goes back through it before it turns to the layer before. Where
 * layers end with their norms that checkpoint is x. Of the first layers of a stage alone (again) it is the same, but
 * that their checkpoints are in the slot, before the buffers of the other layers, and their one layer in scratch.
 *
 * With E experts, K of a token, S places in all of them (pp_expert_capacity), a slot has, of float32 and int32 whatever
 * the precision, probabilities [T,E], choices, gates and places [T,K], holds [S] and counts [E], and a, u and dh are of
 * S rows: u as the gates have weighed it. What places hold is scratch [S,d], dispatched from y1 as often as a product
 * reads it, and so is the gradient at linear2's output. A split backward keeps the gradient at the router's output
 * besides (droute [T,E]). The feed-forward beside experts (pp_shape.shared_ff, g columns) has a, u and dh of its own:
 * shared_a, shared_u and shared_dh, of T rows and g columns. With a gate (pp_shape.shared_gate) u is as this has
 * weighed it, and besides there is shared_gate [T], float32, and in a split backward shared_dlogit [T].
 *
 * Where N workers share the experts (pp_shape.expert_parallel), each gives its tokens their places as above, and what
 * places of others' experts hold is sent to these workers: what linear1 reads then is kept, received [S,d], with the
 * gates of these rows, received_gates [S], and in a split backward the gradients at linear2's output, received_dy
 * [S,d]. Rows are of the worker's experts, of each those of worker after worker, and so are those of a, u and dh.
 *
 * Where workers share the tensors (pp_shape.tensor) heads, ff and vocabulary are a worker's part (pp_model.local), and
 * what products over a part make is summed before anything else reads it: [T,d] behind the embedding, out_proj and
 * linear2, and of gradients behind the decoder, linear1 and in_proj.
 *
 * Where each of them has a part of the tokens (pp_shape.sequence), x, xhat1, rstd1, y1, xhat2, rstd2, dz2, xhat, rstd,
 * the decoder's input and the gradient at the embedding's output are of that part, and so is the stream. Sums are
 * scattered then, and what products over a part of the tensors read is gathered before, in scratch [T,d]: forward x and
 * y1 and the decoder's input, backward these once more, and the gradients at the outputs of linear2 and the attention.
 *
 * Where C workers have parts of the same rows (pp_shape.context), T are a worker's tokens, in all of the above: as many
 * numbers as attention has then, of all tokens of its rows, but of a part of its heads. What in_proj makes is scratch,
 * and qkv, P and lse are those of attention; qkv becomes dqkv of T in the end. ctx is of T, and with flash, whose
 * backward reads it, there is that of all tokens, too (ctx_there). What is exchanged is scratch [T,q], twice. Where
 * they gather keys and values (pp_shape_gathers_keys), qkv, lse and ctx are of T and of all heads, as without them.
 * What is gathered is scratch: [C T,2k] for the k columns of keys, and on the way back as much for gradients, forward
 * [T,2k] for the worker's own.
 *
 * A slot may hold several microbatches: in each buffer their rows lie one behind the other, so that a W program reads
 * those of all as one matrix. Not with experts, whose places are of one microbatch.
 */
#ifndef PP_KERNELS_MODEL_PROGRAM_H
#define PP_KERNELS_MODEL_PROGRAM_H

#include "kernels/kernels.h"
#include "kernels/model.h"

/* A buffer of an activation slot. */
struct pp_buffer {
    int64_t offset, row_bytes; /* row_bytes: of one row of the batch */
};

/* Those of layer l (within the stage) are others + (l - again) * layer_bytes further on. */
struct pp_slot {
    struct pp_buffer x, qkv, kept, p, lse, ctx, ctx_there, xhat1, rstd1, y1, a, u, xhat2, rstd2, dh, dz2;
    struct pp_buffer probabilities, choices, gates, places, holds, counts, droute; /* of experts */
    struct pp_buffer shared_a, shared_u, shared_dh, shared_gate, shared_dlogit;    /* beside them */
    struct pp_buffer received, received_gates, received_dy;                        /* where workers share them */
    int64_t layer_bytes;
    bool activation_again;            /* there is no u: it is scratch, made again of a */
    int again;                        /* the first layers of the stage, of which nothing but a checkpoint is kept */
    struct pp_buffer checkpoint;      /* of the first one; those of the others are checkpoint_bytes further on each */
    int64_t checkpoint_bytes, others; /* others: where the buffers of the other layers begin */
    struct pp_buffer xhat, rstd;      /* of the norm before the decoder */
    struct pp_buffer decoder_input, logits, dlogits;
    struct pp_buffer input_grad; /* gradient at the embedding's output */
    int64_t bytes;
};

/* bytes of a slot that is too large to be counted; no program is written for it. */
#define PP_SLOT_ENDLESS (INT64_C(1) << 61)

void pp_slot_layout(const struct pp_model *model, int stage, const struct pp_program_spec *spec, struct pp_slot *out);

/* Tensors of one layer in model order. */
enum pp_layer_tensor {
    PP_IN_PROJ_WEIGHT,
    PP_IN_PROJ_BIAS,
    PP_OUT_PROJ_WEIGHT,
    PP_OUT_PROJ_BIAS,
    PP_ROUTER_WEIGHT,
    PP_LINEAR1_WEIGHT,
    PP_LINEAR1_BIAS,
    PP_LINEAR2_WEIGHT,
    PP_LINEAR2_BIAS,
    PP_SHARED1_WEIGHT,
    PP_SHARED2_WEIGHT,
    PP_SHARED_GATE_WEIGHT,
    PP_Q_NORM_WEIGHT,
    PP_K_NORM_WEIGHT,
    PP_NORM1_WEIGHT,
    PP_NORM1_BIAS,
    PP_NORM2_WEIGHT,
    PP_NORM2_BIAS
};

/* Tensors behind the layers. */
enum pp_last_tensor { PP_LAST_NORM_WEIGHT, PP_LAST_NORM_BIAS, PP_DECODER_WEIGHT, PP_DECODER_BIAS };

/* Places of a layer where dropout may stand. */
enum pp_dropout_place { PP_DROP_ATTENTION, PP_DROP_RESIDUAL1, PP_DROP_ACTIVATION, PP_DROP_RESIDUAL2, PP_DROP_PLACES };

/* Writes one program. out->calls has room for all calls of any kind. */
struct pp_writer {
    const struct pp_model *model;
    const struct pp_stage *stage;
    struct pp_stage_part part; /* of the stage */
    struct pp_slot slot;
    int rows, seq;       /* seq: of a row, that the worker has */
    int row_seq;         /* that attention has: all */
    int64_t tokens;      /* rows * seq */
    int64_t capacity;    /* of an expert; 0: there are none */
    int part_seq;        /* of these seq, where the workers of a rank have parts of the tokens */
    int64_t part_tokens; /* rows * part_seq */
    bool by_tokens;      /* they do */
    int sum_pieces;      /* pp_sum_pieces() of the worker's tokens, or of its part */
    bool training, split, clip;
    bool clears;             /* what fills shares up is cleared, see program_shards.c */
    bool checkpoints;        /* the inputs of layers are kept, and nothing else */
    struct pp_ref again;     /* slot.again: scratch for the buffers of one layer */
    struct pp_ref u;         /* slot.activation_again: scratch for one layer's */
    struct pp_ref shared_u;  /* ... as well, beside experts */
    struct pp_ref full[2];   /* parts: scratch for the tokens of all [T,d] */
    struct pp_ref own;       /* parts of several pieces, backward: scratch for the worker's, one behind the other */
    struct pp_ref pieces[2]; /* context: scratch for what attention reads and makes [T,q], or for keys and values */
    struct pp_program *out;
    int room; /* for so many calls; those behind it overwrite each other */
};

static inline struct pp_ref pp_ref_to(enum pp_region region, int64_t offset)
{
    return (struct pp_ref){region, offset, 0};
}

/* The tensor itself: of layer l, behind the layers; NULL where the model does not have it. */
const struct pp_tensor *pp_writer_layer_tensor(const struct pp_writer *w, int l, enum pp_layer_tensor tensor);
const struct pp_tensor *pp_writer_last_tensor(const struct pp_writer *w, enum pp_last_tensor tensor);
/* Its place in the parameter or gradient region, and that of its bfloat16 copy; no memory where there is none. */
struct pp_ref pp_ref_tensor(enum pp_region region, const struct pp_tensor *t);
struct pp_ref pp_ref_copy(const struct pp_tensor *t);
/* The worker's share of what lies there, with the others'. */
struct pp_ref pp_ref_share(const struct pp_writer *w, const struct pp_tensor *t, struct pp_ref ref, int element_bytes);
/* Tensor of layer l of the stage, in the parameter or gradient region; the embedding; learnt positions; a tensor behind
 * the layers. No memory where the model does not have it. */
struct pp_ref pp_ref_layer(const struct pp_writer *w, enum pp_region region, int l, enum pp_layer_tensor tensor);
struct pp_ref pp_ref_embedding(const struct pp_writer *w, enum pp_region region);
struct pp_ref pp_ref_positions(const struct pp_writer *w, enum pp_region region);
struct pp_ref pp_ref_last(const struct pp_writer *w, enum pp_region region, enum pp_last_tensor tensor);
/* The weights of the same, as products read them. */
struct pp_ref pp_ref_weight(const struct pp_writer *w, int l, enum pp_layer_tensor tensor);
struct pp_ref pp_ref_decoder_weight(const struct pp_writer *w);
/* Buffer of the activation slot; that of layer l. */
static inline struct pp_ref pp_ref_slot(struct pp_buffer buffer)
{
    return (struct pp_ref){PP_MEM_ACT, buffer.offset, buffer.row_bytes};
}
static inline struct pp_ref pp_ref_act(const struct pp_writer *w, int l, struct pp_buffer buffer)
{
    const struct pp_slot *slot = &w->slot;
    if (l < slot->again) return pp_ref_to(PP_MEM_WORK, w->again.offset + buffer.offset);
    const int64_t layer = slot->others + (l - slot->again) * slot->layer_bytes;
    return pp_ref_slot((struct pp_buffer){layer + buffer.offset, buffer.row_bytes});
}

/* What linear2 of layer l reads. */
static inline struct pp_ref pp_ref_u(const struct pp_writer *w, int l)
{
    return w->slot.activation_again ? w->u : pp_ref_act(w, l, w->slot.u);
}

/* Has layer l of the stage, or what is behind the last one, a checkpoint: its input? */
static inline bool pp_writer_keeps(const struct pp_writer *w, int l)
{
    return l < (w->checkpoints ? pp_stage_checkpoints(w->stage) : w->slot.again);
}
static inline struct pp_ref pp_ref_checkpoint(const struct pp_writer *w, int l)
{
    const struct pp_slot *slot = &w->slot;
    if (slot->again) return pp_ref_slot((struct pp_buffer){l * slot->checkpoint_bytes, slot->checkpoint.row_bytes});
    return pp_ref_to(PP_MEM_CKPT, l * pp_checkpoint_bytes(&w->model->local, w->rows, w->row_seq));
}
/* What in_proj of layer l reads. */
static inline struct pp_ref pp_ref_x(const struct pp_writer *w, int l)
{
    const bool kept = pp_writer_keeps(w, l) && w->model->shape.norm == PP_NORM_LAST;
    return kept ? pp_ref_checkpoint(w, l) : pp_ref_act(w, l, w->slot.x);
}

/* Takes scratch for the whole program, in bytes, for so many activations per token, or for a stream [T,d] of the
 * worker's part of the tokens; returns its place. */
struct pp_ref pp_writer_scratch(struct pp_writer *w, int64_t bytes);
struct pp_ref pp_writer_activations(struct pp_writer *w, int width);
struct pp_ref pp_writer_stream(struct pp_writer *w);
/* Rows that linear1 and linear2 are of, in all: the tokens, or the worker's places. */
static inline int64_t pp_writer_inner_rows(const struct pp_writer *w)
{
    return w->capacity ? w->model->local.experts * w->capacity : w->tokens;
}
/* Takes scratch for what the activation makes of these, or a gradient there. */
struct pp_ref pp_writer_inner(struct pp_writer *w);
/* The same beside experts: nothing where nothing is. */
struct pp_ref pp_writer_shared_inner(struct pp_writer *w);
/* Takes scratch for a row of d numbers for each place, if there are any. */
struct pp_ref pp_writer_places(struct pp_writer *w);
/* Takes w->again, where some layers are made again, at the same place in all parts of a task; or w->u, where that is
 * read. */
void pp_writer_take_again(struct pp_writer *w, bool reads_u);
/* Takes w->pieces, where workers have parts of the same rows. back: of a program that has gradients of attention. */
void pp_writer_take_pieces(struct pp_writer *w, bool back);
/* Appends a call of the model's precision and returns it; the caller sets its dimensions, scalars and operands. */
struct pp_call *pp_writer_call(struct pp_writer *w, enum pp_kernel kernel);
/* A norm, a residual, or a gradient of these, over the worker's tokens. */
struct pp_call *pp_writer_pass(struct pp_writer *w, enum pp_kernel kernel, bool plain);
/* to = from, of the worker's tokens [T,d]. */
void pp_writer_copy(struct pp_writer *w, struct pp_ref to, struct pp_ref from);
/* Returns the call; C is float32 where the caller sets gemm.wide. */
struct pp_call *pp_writer_gemm(struct pp_writer *w, enum pp_kernel kernel, const int mnk[3], enum pp_gemm_mode mode,
                               struct pp_ref c, struct pp_ref a, struct pp_ref b);

/* program_sums.c. w->full on the way back: where workers have parts of the tokens, gradients at outputs are gathered in
 * the first, from the moment they are there until their linears' weights have theirs; sums are made in the second, and
 * inputs gathered. Forward there is one. */
enum { PP_FULL_GRADIENTS, PP_FULL_OTHERS };

/* A product of the tokens' rows: C [T,n] = A [T,k] times a weight, [n,k]' (GEMM_NT) or [k,n] (GEMM_NN). wide: C is
 * float32 whatever the precision. */
struct pp_token_product {
    enum pp_kernel kernel;
    enum pp_gemm_mode mode;
    struct pp_ref c, a, weight;
    int n, k;
    bool wide;
};

/* Takes w->full[0 .. n-1], where workers have parts of the tokens, and with the second one w->own. */
void pp_writer_take_full(struct pp_writer *w, int n);
/* Sums memory [rows, width] over the workers that share the tensors, if there are several. wide: float32 whatever the
 * precision. */
void pp_writer_all_reduce(struct pp_writer *w, struct pp_ref memory, int64_t rows, int width, bool wide);
/* All tokens of x [T,d], of which the worker has its own: x itself, or gathered in w->full[full]. */
struct pp_ref pp_writer_gather(struct pp_writer *w, int full, struct pp_ref x);
/* The same in two: what is called between the two may run beside it. */
struct pp_ref pp_writer_start_gather(struct pp_writer *w, int full, struct pp_ref x);
void pp_writer_end_gather(struct pp_writer *w);
/* C = A weight of all tokens, of which the worker has its own in A, gathered as by pp_writer_gather(). */
void pp_write_gathered_product(struct pp_writer *w, int full, const struct pp_token_product *p);
/* The sum of what the workers make: in C, where C is returned, or, where they have parts of the tokens, the worker's of
 * it in `to`; where that has no memory, somewhere in scratch until the next sum. */
struct pp_ref pp_write_summed_product(struct pp_writer *w, int full, const struct pp_token_product *p,
                                      struct pp_ref to);
/* The same of a gradient, written to C or added (p->mode); where it is written, it may lie elsewhere. Returns where. */
struct pp_ref pp_write_summed_gradient(struct pp_writer *w, const struct pp_token_product *p);
/* What the workers of a rank made of x [T,d] without a product that could stand beside: their sum in x, or, where they
 * have parts of the tokens, from w->full[0]. */
void pp_write_sum(struct pp_writer *w, struct pp_ref x);
/* The same of a gradient, as far as what made it with this mode has not added it to c; from w->full[PP_FULL_OTHERS].
 * Returns where it lies then. */
struct pp_ref pp_write_gradient_sum(struct pp_writer *w, enum pp_gemm_mode mode, struct pp_ref c);

/* Does it drop anything? */
static inline bool pp_writer_drops(const struct pp_writer *w) { return w->training && w->model->local.dropout > 0; }
/* Sets the call's dropout, site and p, unless the model has none at that place. */
void pp_writer_dropout(const struct pp_writer *w, struct pp_call *call, int l, enum pp_dropout_place place);
/* Where in_proj of layer l writes. */
struct pp_ref pp_ref_in_proj(const struct pp_writer *w, int l);
/* Attention of layer l, of what in_proj has written: -> ctx, as out_proj reads it. scratch: of attention. */
void pp_write_attention(struct pp_writer *w, int l, struct pp_ref scratch);
/* dctx, at out_proj's input, -> dqkv, at in_proj's output, over qkv. */
void pp_write_attention_grad(struct pp_writer *w, int l, struct pp_ref dctx, struct pp_ref scratch);
/* Attention's scratch. */
struct pp_ref pp_writer_attention_scratch(struct pp_writer *w);
/* Does the model normalise first? Is its activation swiglu? */
static inline bool pp_writer_norm_first(const struct pp_writer *w) { return w->model->shape.norm == PP_NORM_FIRST; }
static inline bool pp_writer_swiglu(const struct pp_writer *w) { return w->model->shape.activation == PP_SWIGLU; }
/* Does it rotate queries and keys, and add no positions? */
static inline bool pp_writer_rotates(const struct pp_writer *w)
{
    return w->model->shape.positions == PP_POSITIONS_ROPE;
}
/* Sets scale and dropout of the embedding, or of its gradient. */
void pp_writer_embedding(const struct pp_writer *w, struct pp_call *call);

/* Scratch for places of experts. */
struct pp_expert_places {
    struct pp_ref places; /* what experts read, and what they make [S,d] */
    struct pp_ref sent;   /* where workers share these: what is sent to them, and what comes back [S,d] */
    struct pp_ref gates;  /* ... as well, float32 [S] */
};
/* Takes what the model needs of it: nothing without experts. */
struct pp_expert_places pp_writer_expert_places(struct pp_writer *w);

/* Scratch of layers on their way forward. */
struct pp_scratch {
    struct pp_ref attention;
    struct pp_expert_places at;
    struct pp_ref stream; /* norm first: the residual stream [T,d], to which layers add */
    struct pp_ref z2;     /* norm first: linear2's output [T,d] */
};

/* F (or R where recompute is set), B, I, W. */
void pp_write_forward(struct pp_writer *w, bool recompute);
/* Layer l once more from its checkpoint, as far as its backward needs it; behind the last one of all, the decoder. -1:
 * of a stage without layers. */
void pp_write_layer_again(struct pp_writer *w, int l, const struct pp_scratch *scratch);
void pp_write_backward(struct pp_writer *w, bool input_grads, bool weight_grads);
/* Gradient of weight [m,n] and bias [m], if there is one, of a linear from dy [T,m] and its input [T,n]. */
void pp_write_weight_grads(struct pp_writer *w, struct pp_ref weight, struct pp_ref bias, struct pp_ref dy, int m,
                           struct pp_ref input, int n);

/* NORM, STEP. Calls of NORM for each tensor: for all its parts, or the share. */
void pp_write_norm(struct pp_writer *w);
void pp_write_step(struct pp_writer *w);
int pp_norm_calls(const struct pp_shape *shape);
/* Rows and columns of a tensor, or of one of its parts: there rows are as long as they can be. */
struct pp_matrix_dims pp_writer_extent(const struct pp_tensor *t, bool part);

/* program_shards.c: PUT_PARAM; ADD_GRAD; of B, what fills shares up in its slot of gradients. */
void pp_write_put(struct pp_writer *w, const struct pp_class *cls);
void pp_write_take(struct pp_writer *w, const struct pp_class *cls);
void pp_write_clear(struct pp_writer *w, const struct pp_class *cls);

/* Between the two linears of a feed-forward: `rows` times `seq` rows. */
struct pp_inner {
    int rows, seq, width; /* columns of u */
    struct pp_ref a, u;   /* what the first makes; what the second reads: with relu the same */
    struct pp_ref bias;   /* of the first; none with experts */
};
/* Of layer l: of its feed-forward, or of its experts; of the one beside experts. */
struct pp_inner pp_inner_of(const struct pp_writer *w, int l);
struct pp_inner pp_shared_inner_of(const struct pp_writer *w, int l);
/* Dimensions of its activation function. */
struct pp_activation_dims pp_inner_dims(const struct pp_writer *w, const struct pp_inner *inner);
/* The activation of layer l, a -> u; again: of an a that has its bias. Its gradient, from du, that at u, -> dh, which
 * is the same memory unless it is that of a. */
void pp_write_activation(struct pp_writer *w, int l, const struct pp_inner *inner, bool again);
void pp_write_activation_grad(struct pp_writer *w, int l, const struct pp_inner *inner, struct pp_ref du,
                              struct pp_ref dh);

/* Experts on the way back: scratch. */
struct pp_expert_scratch {
    struct pp_ref dy;           /* [S,d], the gradient at linear2's output, unless it is in the slot */
    struct pp_expert_places at; /* other rows of places; in plans that cut backwards in two the same memory as dy */
    struct pp_ref there;        /* where workers share the experts: gradients at received gates, float32 [S] */
    struct pp_ref dgates;       /* [T,K], float32 */
    struct pp_ref droute;       /* [T,E], in other plans */
    /* beside experts: [T,g], in other plans, and with swiglu; [T], float32; [T], in other plans */
    struct pp_ref shared_du, shared_dgate, shared_dlogit;
};
struct pp_expert_scratch pp_writer_expert_scratch(struct pp_writer *w, bool input_grads);

/* What linear2 of layer l reads, of linear1's output, or, again, of what it has become: u. */
void pp_write_inner(struct pp_writer *w, int l, bool again);
void pp_write_weighing(struct pp_writer *w, int l); /* its second half, of experts: by gates, in place */
/* x [T,d], the worker's, -> z; where that has no memory only as far as the backward needs it. */
void pp_write_experts(struct pp_writer *w, int l, struct pp_ref x, struct pp_ref z, const struct pp_expert_places *at);
/* dz, of all tokens, -> dh and the gradient at the router's output, and the gradient at x, written to `out` or added;
 * returns where it is. du [S,ff], dh: as pp_write_activation_grad() has them. */
struct pp_ref pp_write_experts_grad(struct pp_writer *w, int l, const struct pp_expert_scratch *scratch,
                                    struct pp_ref dz, const struct pp_ref du_dh[2], enum pp_gemm_mode mode,
                                    struct pp_ref out);
/* Those of weights. dz, x: of all tokens. left: scratch->dy is what the gradient of inputs has left there. */
void pp_write_expert_weights(struct pp_writer *w, int l, const struct pp_expert_scratch *scratch, bool left,
                             struct pp_ref dz, struct pp_ref dh, struct pp_ref x);

/* program_shared.c: the feed-forward beside experts, of all tokens; nothing where there is none. x -> u, and what that
 * makes, added to z. */
void pp_write_shared_up(struct pp_writer *w, int l, struct pp_ref x);
void pp_write_shared_down(struct pp_writer *w, int l, struct pp_ref z);
void pp_write_shared_again(struct pp_writer *w, int l); /* its u once more, of its a */
/* Takes what it needs of the scratch. */
void pp_writer_shared_scratch(struct pp_writer *w, struct pp_expert_scratch *scratch);
/* dz -> the gradient at its first output, and that of its gate at x, which is the same in all workers of a rank, added
 * to dx; then the rest, of which each worker has a part. */
void pp_write_shared_grad(struct pp_writer *w, int l, const struct pp_expert_scratch *scratch, struct pp_ref dz,
                          struct pp_ref dx);
void pp_write_shared_input_grad(struct pp_writer *w, int l, const struct pp_expert_scratch *scratch, struct pp_ref dx);
/* Those of its weights, behind that. */
void pp_write_shared_weights(struct pp_writer *w, int l, const struct pp_expert_scratch *scratch, struct pp_ref dz,
                             struct pp_ref x);

/* signature.c: pp_program.signature. */
pp_status pp_write_signature(const struct pp_writer *w, int kind) PP_MUST_CHECK;

#endif
