/* SPDX-License-Identifier: Apache-2.0
 *
 * Inside the model: the activation slot, what a stage keeps of a microbatch from its forward to its backward.
 *
 * Sizes:
 *
 *   T    rows * seq: the worker's tokens of the microbatch. A context rank has a part of each row: seq is then its part
 *   T'   T, or where each tensor rank has a part of the tokens (pp_shape.sequence) that part
 *   d    columns of the residual stream
 *   q    columns of a token's queries, keys and values (pp_qkv_width): 3 c, or less where heads share keys and values
 *   k    columns of its queries and keys (pp_qk_width)
 *   c    columns of what attention makes (pp_attended_width): d, unless heads have a width of their own
 *   ff   columns of the feed-forward (d_ff); a1: columns of linear1's output: ff, with swiglu 2 ff
 *   rq, rkv   columns of latent vectors: of queries (q_lora_rank), of keys and values (kv_lora_rank)
 *   s    columns of the part of keys that all heads share (qk_rope_head_dim); dh: columns of a head's query
 *   E, K, S   experts, choices of a token, places in all experts (S = E * pp_expert_capacity)
 *   g    columns of the feed-forward beside experts (shared_ff); g1: of its first output: g, with swiglu 2 g
 *
 * Tensor ranks have their part of heads, ff, g and vocabulary (pp_model.local), and places of their own experts.
 * Elements are activations (bfloat16 in bf16, else float32) unless the table says float or int32. Each buffer is
 * aligned to 64 bytes.
 *
 * Of each layer:
 *
 *   buffer     shape                     kept                holds; -> what the backward makes of it
 *   x          [T', d]                   [1]                 what in_proj reads
 *   qkv        [T, q]                                        queries, keys and values -> their gradient, dqkv
 *   kept       [T, k]                    qk_norm             queries and keys before their norm
 *   q_a        [T, rq]                   latent              q_a_proj's output -> its gradient
 *   q_n        [T, rq]                   latent              the same normalised, which q_b_proj reads
 *   q_rstd     [T] float                 latent              of that norm
 *   kv_a       [T, rkv + s]              latent              kv_a_proj's output -> its gradient
 *   kv_n       [T, rkv]                  latent              the same normalised, which kv_b_proj reads
 *   kv_rstd    [T] float                 latent              of that norm
 *   dq         [T, heads * dh]           latent, split       gradient at q_b_proj's (or q_proj's) output
 *   dkv        [T, pp_latent_kv_width]   latent, split       gradient at kv_b_proj's output
 *   p          [rows, heads, seq, seq]   attention math      probabilities
 *   lse        [rows, heads, seq] float  attention flash     log of sums of exponentials (calls_attention.h)
 *   ctx        [T, c]                                        what attention makes
 *   ctx_there  [T, c]                    flash, all to all   the same of all tokens and a part of the heads
 *   xhat1      [T', d]                                       norm1's xhat -> norm last: gradient at out_proj's output
 *   rstd1      [T'] float                                    of norm1
 *   y1         [T', d]                                       what linear1 reads
 *   xhat2      [T', d]                                       norm2's xhat -> norm last: gradient at linear2's output;
 *                                                            norm first: gradient at out_proj's output
 *   rstd2      [T'] float                                    of norm2
 *   dz2        [T', d]                   split, norm first   gradient at linear2's output
 *   a          [T, a1]                   not relu            linear1's output -> swiglu: its gradient
 *   u          [T, ff]                   [2]                 what linear2 reads
 *   dh         [T, ff]                   split, not swiglu   gradient at linear1's output
 *
 *   [1] norm first, or without checkpoint_layers: where layers end with their norms, the checkpoint is x.
 *   [2] unless activation_again: then it is scratch, made again of a.
 *   split: I and W are tasks of their own, so what I makes and W reads is kept here; else it is scratch.
 *   p, lse, with all-to-all context: of whole rows and a part of the heads. lse is as many numbers, p C times as many.
 *
 * These up to dz2 lie at the same place in every layer. In a layer with experts a, u and dh have S rows in the place of
 * T, u is as the gates have weighed it, and there are besides:
 *
 *   probabilities   [T, E] float        router's probabilities      choices   [T, K] int32     chosen experts
 *   gates           [T, K] float        weights of the choices      places    [T, K] int32     places of the choices
 *   holds           [S] int32           choices in the places       counts    [E] float        choices of each expert
 *   droute          [T, E]              split: gradient at the router's output
 *
 * What the places hold, [S, d], is scratch: dispatched from y1 as often as a product reads it. Beside experts:
 *
 *   shared_a        [T, g1]             as a                        shared_u  [T, g]           as u, weighed by gate
 *   shared_dh       [T, g]              as dh                       shared_gate  [T] float     where there is a gate
 *   shared_dlogit   [T]                 split: gradient at the gate's logit
 *
 * Where expert ranks share the experts (pp_shape.expert_parallel), rows of a, u and dh are those of the worker's
 * experts: of each expert those that worker after worker has sent. What came from other workers is kept:
 *
 *   received        [S, d]              what linear1 reads          received_gates  [S] float  gates of these rows
 *   received_dy     [S, d]              split: the gradient at linear2's output
 *
 * Behind the layers, in a stage with the decoder, and in one with the embedding:
 *
 *   xhat, rstd      [T', d], [T'] float   norm first: of the norm before the decoder
 *   decoder_input   [T', d]
 *   logits          [T, padded vocab] float
 *   dlogits         [T, padded vocab]   bf16: a buffer of its own; else the logits become their gradient
 *   input_grad      [T', d]             split, with the embedding: gradient at the embedding's output
 *
 * Evaluation keeps nothing for a backward: all layers use the buffers of one, which has room for either kind. So they
 * do with checkpoint_layers: F writes the input of each layer to PP_MEM_CKPT; B makes the buffers of one layer again
 * from there, and goes back through it, before it turns to the layer before. The first `again` layers of a stage do the
 * same with checkpoints in the slot, which come before the buffers of the other layers, and the buffers of their one
 * layer in scratch.
 *
 * A slot may hold several microbatches: in each buffer their rows lie one behind the other, so that a W reads those of
 * all as one matrix. Not with experts, whose places are of one microbatch.
 */
#ifndef PP_KERNELS_SLOT_H
#define PP_KERNELS_SLOT_H

#include "core/model/model.h"

/* A buffer of an activation slot. row_bytes: of one row of the batch; 0: the buffer is not made of rows. */
struct pp_buffer {
    int64_t offset, row_bytes;
};

/* Offsets of a layer's buffers count from where those of layer l of the stage begin: `others`, and layer_bytes of each
 * layer from number `again` to l - 1. Arrays are indexed by enum pp_layer_kind. */
struct pp_slot {
    struct pp_buffer q_a, q_n, q_rstd, kv_a, kv_n, kv_rstd, dq, dkv;
    struct pp_buffer x, qkv, kept, p, lse, ctx, ctx_there, xhat1, rstd1, y1, xhat2, rstd2, dz2;
    struct pp_buffer a[PP_LAYER_KINDS], u[PP_LAYER_KINDS], dh[PP_LAYER_KINDS];
    struct pp_buffer probabilities, choices, gates, places, holds, counts, droute;
    struct pp_buffer shared_a, shared_u, shared_dh, shared_gate, shared_dlogit;
    struct pp_buffer received, received_gates, received_dy;
    int64_t layer_bytes[PP_LAYER_KINDS]; /* 0: all layers use the buffers of one, or the stage has no such layer */
    bool activation_again;               /* there is no u */
    int again;                           /* the first layers of the stage, of which nothing but a checkpoint is kept */
    struct pp_buffer checkpoint;         /* of the first of these; the next ones are checkpoint_bytes further on each */
    int64_t checkpoint_bytes;
    int64_t others; /* where the buffers of the other layers begin */
    struct pp_buffer xhat, rstd, decoder_input, logits, dlogits, input_grad;
    int64_t begin[PP_ACT_PARTS]; /* where its parts begin (enum pp_act_part); parts without bytes begin at its end */
    int64_t bytes;
};

/* pp_slot.bytes of a slot that is too large to be counted; no program is written for it. */
#define PP_SLOT_ENDLESS (INT64_C(1) << 61)

/* Where what layer l of the stage keeps in the slot begins; l = layers: where it ends. Not where all layers use the
 * buffers of one. */
int64_t pp_slot_layer(const struct pp_model *model, const struct pp_stage *stage, const struct pp_slot *slot, int l);

void pp_slot_layout(const struct pp_model *model, int stage, const struct pp_program_spec *spec, struct pp_slot *out);

#endif
