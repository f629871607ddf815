/* SPDX-License-Identifier: Apache-2.0
 *
 * The Transformer as numbers: what a model is made of, and what follows from that alone.
 */
#ifndef PP_CORE_SHAPE_H
#define PP_CORE_SHAPE_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "core/optimizer.h"

enum pp_precision { PP_FP32, PP_TF32, PP_BF16, PP_PRECISIONS };
extern const char *const pp_precision_names[];
/* Bytes of an element of an activation. */
static inline int pp_element_bytes(int precision) { return precision == PP_BF16 ? 2 : 4; }

enum pp_mask { PP_MASK_NONE, PP_MASK_CAUSAL };
/* What attention keeps for its backward: the probabilities, or (flash) what they are made again from. */
enum pp_attention_kind { PP_ATTENTION_MATH, PP_ATTENTION_FLASH };
enum pp_norm { PP_NORM_LAST, PP_NORM_FIRST };
enum pp_normalization { PP_LAYERNORM, PP_RMSNORM };
/* GELU (Hendrycks and Gimpel, 2016): exact, or by a hyperbolic tangent, as GPT-2 has it. */
enum pp_activation { PP_RELU, PP_GELU, PP_SWIGLU, PP_GELU_TANH };
extern const char *const pp_activation_names[];
/* Which linears have one: all, none, (GPT-2) those of layers and not the decoder, or (Qwen2) in_proj alone. */
enum pp_bias { PP_BIAS, PP_NO_BIAS, PP_BIAS_LAYERS, PP_BIAS_QKV };
extern const char *const pp_bias_words[]; /* in names of work and its parts: " nobias", ...; of all "" */
/* How a model knows where a word stands: sines and cosines added to the embedding (Vaswani et al. 2017), queries and
 * keys of each layer rotated (Su et al. 2021), or a row of weights for each place, added to the embedding (GPT). */
enum pp_positions { PP_POSITIONS_SINUSOIDAL, PP_POSITIONS_ROPE, PP_POSITIONS_LEARNED };

/* How workers that have parts of the tokens of a row get what attention needs of the others'. */
enum pp_context_kind { PP_CONTEXT_ALL_TO_ALL, PP_CONTEXT_ALL_GATHER };
extern const char *const pp_context_kind_names[];

/* The Transformer language model: embedding, positions, encoder layers, a norm where the layers begin with theirs,
 * decoder (torch.nn.TransformerEncoderLayer, but for what is said of kv_heads, head_dim and positions). swiglu:
 * linear1 makes 2 d_ff numbers of a token, of which the first d_ff are gates (Shazeer, 2020, "GLU Variants Improve
 * Transformer"). */
struct pp_shape {
    int d_model, heads, d_ff, layers, vocab;
    int mask;      /* enum pp_mask */
    int attention; /* enum pp_attention_kind */
    double dropout;
    bool scale_embedding; /* multiply by sqrt(d_model) */
    /* dropout only on the two residual branches (the lab's layer), else everywhere torch has it */
    bool residual_only;
    bool lab_init; /* the lab's initialisation, see kernels/model.h */
    int precision; /* enum pp_precision */
    int optimizer; /* enum pp_optimizer */
    /* The decoder has memory for a multiple of so many words, zero beyond the vocabulary: aligned rows of logits.
     * 0 and 1: none. */
    int vocab_multiple;
    int norm, activation; /* enum pp_norm (post, pre), enum pp_activation: of the layers */
    int normalization;    /* enum pp_normalization: of all norms but those of queries and keys */
    double norm_epsilon;  /* of all norms; 0: PP_NORM_EPSILON */
    int bias;             /* enum pp_bias; norms keep theirs */
    int replicas;         /* that train the model together, or share, those with other experts too; 0 and 1: one */
    int shard_groups;     /* that share (struct pp_plan), which sum shares in equal pieces; 0 and 1: one */
    bool zero;            /* of several replicas each keeps and steps a share (struct pp_plan) */
    bool shards;          /* zero, and of gradients it keeps nothing else (struct pp_plan) */
    bool shard_params;    /* shards, and nothing else of parameters (struct pp_plan) */
    bool bf16_sums;       /* what replicas sum of gradients is rounded to bfloat16 (pp_sent_bytes) */
    /* Heads of keys and values, a divisor of heads: each serves the queries of heads / kv_heads (Ainslie et al. 2023).
     * 0: as many as heads. */
    int kv_heads;
    int head_dim; /* columns of a head; 0: d_model / heads */
    /* Queries and keys are normalised by their root mean square, head by head, with one weight for all heads of queries
     * and one for those of keys (Henry et al. 2020, "Query-Key Normalization for Transformers"; as Qwen3 has it). */
    bool qk_norm;
    int positions;     /* enum pp_positions */
    double rope_theta; /* of rotations: the base of their frequencies */
    int max_positions; /* learned: places that have a row of weights, at least the tokens of any row */
    /* Workers that share the tensors of a stage (struct pp_plan); 0 and 1: one has them. As Megatron-LM cuts them:
     * heads and columns of linear1 by rows of in_proj and linear1 and by columns of out_proj and linear2, the
     * vocabulary by rows of embedding and decoder; of experts each has some, whole. Norms, learnt positions, and biases
     * behind sums, are whole in each. */
    int tensor;
    /* Sequence parallelism (Korthikanti et al. 2022, "Reducing Activation Recomputation in Large Transformer Models"):
     * of what is not cut so, norms, dropout of residuals and the stream between layers and stages, each of these
     * workers has a part of the tokens. All tokens are gathered before products over a part of the tensors, and summed
     * by parts behind them. Without effect on one worker. */
    bool sequence;
    /* Sums and gathering over these workers stand beside products in at most so many pieces of the tokens
     * (pp_sum_pieces); 0 and 1: behind and before them, as a whole. */
    int sum_pieces;
    /* The decoder's weight is the embedding's (Press and Wolf 2017, "Using the Output Embedding to Improve Language
     * Models"; GPT-2): one parameter, of which the first and the last stage have a copy each. */
    bool tied;
    double init_std; /* initial weights: 0, or what is normal with this deviation (kernels/model.h) */
    /* Mixture of experts (Shazeer et al. 2017; GShard, Lepikhin et al. 2020; Mixtral, Jiang et al. 2024): a layer has
     * so many feed-forwards of d_ff columns in the place of one; 0: it has one. A router, one more linear, gives each
     * token to the experts_per_token that it finds likeliest, and adds what they make, weighed by its probabilities of
     * these alone, which add up to 1. Of the tokens of a microbatch an expert takes its share, were all shares equal,
     * times capacity_factor, rounded up; what comes later it leaves out. aux_loss: weight of the loss that makes a
     * router even (Fedus et al. 2021, "Switch Transformers", equation 4), of each layer. Tensor ranks have whole
     * experts, an equal number each, and there are no biases. */
    int experts, experts_per_token;
    double capacity_factor, aux_loss;
    /* Columns of one feed-forward more in each layer with experts, which all tokens go through: what it makes is added
     * to what experts make (Dai et al. 2024, "DeepSeekMoE"; Megatron-LM's --moe-shared-expert-intermediate-size). 0:
     * there is none. Tensor ranks cut it as they do the one of a layer without experts. */
    int shared_ff;
    /* As Qwen2's mixtures have it (Yang et al. 2024, "Qwen2 Technical Report"; Hugging Face's Qwen2MoeSparseMoeBlock):
     * shared_gate: what that one makes is weighed by the logistic function of one more linear of a token. gates_of_all:
     * what experts make is weighed by their probabilities among all experts, not among a token's chosen ones
     * (Megatron-LM's --moe-router-pre-softmax). */
    bool shared_gate, gates_of_all;
    /* Expert parallelism (GShard; Megatron-LM's): so many workers of a stage share its experts, each has rows of its
     * own and of all else what it would have without, and tokens go to where their experts are, and back; 0 and 1: each
     * has all. Times `tensor` a divisor of experts. */
    int expert_parallel;
    /* Context parallelism: so many workers have the same rows, and of these an equal part of the tokens each; 0 and 1:
     * each has all. All to all (Jacobs et al. 2023, "DeepSpeed Ulysses"; Megatron-LM's --cp-comm-type a2a): parts lie
     * one behind the other. For attention they exchange that for all tokens of an equal part of their heads, and back.
     * Times `tensor` a divisor of heads and kv_heads. All gather (Dubey et al. 2024, "The Llama 3 Herd of Models",
     * 3.3.2; Megatron-LM's --cp-comm-type all_gather), with flash alone: of a row's 2 C chunks worker c has c and
     * 2 C - 1 - c, so that behind a causal mask all have as much to do. They gather the keys and values of all. */
    int context;
    int context_kind; /* enum pp_context_kind */
};

/* Places of an expert for so many tokens of a microbatch: one at least, and at most one for each. */
static inline int64_t pp_expert_capacity(const struct pp_shape *shape, int64_t tokens)
{
    const double even = (double)tokens * shape->experts_per_token / shape->experts,
                 most = shape->capacity_factor * even * (1 - 1e-12); /* 1.1 times 100 is not a bit more than 110 */
    const int64_t whole = most < (double)tokens ? (int64_t)most : tokens;
    return whole + (whole < tokens && (whole == 0 || (double)whole < most));
}

/* Stages that may have no layers, but the embedding or the decoder: two, unless each has as many as the others. */
static inline int pp_split_ends(const char *split) { return split && strcmp(split, "uniform") != 0 ? 2 : 0; }

/* Columns of the first output of a feed-forward of ff columns; of linear1's. */
static inline int pp_gated_width(const struct pp_shape *shape, int ff)
{
    return shape->activation == PP_SWIGLU ? 2 * ff : ff;
}
static inline int pp_linear1_width(const struct pp_shape *shape) { return pp_gated_width(shape, shape->d_ff); }

/* Parameters, by which replicas have the same ones: where workers share experts (expert_parallel), only some have the
 * same experts, and all have the same of everything else. Without that, all are of the first set. */
enum pp_param_set { PP_DENSE, PP_EXPERTS, PP_PARAM_SETS };

/* Workers that share the experts of a stage. */
static inline int pp_shape_expert_parallel(const struct pp_shape *shape)
{
    return shape->expert_parallel > 1 ? shape->expert_parallel : 1;
}

/* Replicas that have the same of a set: who share it, or sum its gradients. */
static inline int pp_shape_replicas(const struct pp_shape *shape, enum pp_param_set set)
{
    const int all = shape->replicas > 1 ? shape->replicas : 1, experts = pp_shape_expert_parallel(shape);
    if (set == PP_DENSE) return all;
    return all > experts ? all / experts : 1;
}

/* Equal parts in which each tensor lies in memory: the shares of the replicas. A norm is made of the sums of parts,
 * also where there are no shares, so that both ways have the same bits; not of so many that these sums would matter. */
enum { PP_NORM_PARTS = 16, PP_PART_LINE = 32 /* elements, of which a part has a multiple */ };
static inline int pp_shape_parts(const struct pp_shape *shape, enum pp_param_set set)
{
    return shape->zero || shape->replicas <= PP_NORM_PARTS ? pp_shape_replicas(shape, set) : 1;
}

/* Sets how replicas share, each `group` of them: by a stage of ZeRO, 0: not at all. */
static inline void pp_shape_share(struct pp_shape *shape, int zero, int replicas, int group)
{
    shape->zero = zero > 0 && group > 1;
    shape->shards = zero >= 2 && group > 1;
    shape->shard_params = zero == 3 && group > 1;
    shape->replicas = shape->zero ? group : replicas;
    shape->shard_groups = shape->zero ? replicas / group : 1;
}

/* Groups of replicas that share, each of which has all parts. */
static inline int pp_shape_shard_groups(const struct pp_shape *shape)
{
    return shape->zero && shape->shard_groups > 1 ? shape->shard_groups : 1;
}

/* Workers that share the tensors of a stage. */
static inline int pp_shape_tensor(const struct pp_shape *shape) { return shape->tensor > 1 ? shape->tensor : 1; }

/* Workers that have parts of the same rows. */
static inline int pp_shape_context(const struct pp_shape *shape) { return shape->context > 1 ? shape->context : 1; }

/* Do they gather keys and values, and have two chunks of a row each? */
static inline bool pp_shape_gathers_keys(const struct pp_shape *shape)
{
    return pp_shape_context(shape) > 1 && shape->context_kind == PP_CONTEXT_ALL_GATHER;
}
/* Chunks of a row that they share: each has as many. */
static inline int pp_shape_chunks(const struct pp_shape *shape)
{
    return pp_shape_context(shape) * (pp_shape_gathers_keys(shape) ? 2 : 1);
}

/* Workers of a rank: those that share its tensors, or its experts. */
static inline int pp_shape_sharers(const struct pp_shape *shape)
{
    return pp_shape_tensor(shape) * pp_shape_expert_parallel(shape);
}

/* Experts whose matrices a worker has. */
static inline int pp_own_experts(const struct pp_shape *shape) { return shape->experts / pp_shape_sharers(shape); }

/* Does each of these workers have a part of the tokens, where tensors are whole? */
static inline bool pp_shape_parts_tokens(const struct pp_shape *shape)
{
    return shape->sequence && pp_shape_tensor(shape) > 1;
}

/* Tokens of a row of `seq` that a worker has, but for attention: all, or its part. */
static inline int pp_own_tokens(const struct pp_shape *shape, int seq) { return seq / pp_shape_context(shape); }

/* Of these the tokens for which it has room there: all, or a part, rounded up. A microbatch's part is as many for each
 * of its rows: of its tokens, row after row, those from tensor rank times the part on; of each piece of the tokens
 * (pp_sum_pieces) such a part. */
static inline int pp_part_tokens(const struct pp_shape *shape, int seq)
{
    const int parts = pp_shape_parts_tokens(shape) ? pp_shape_tensor(shape) : 1;
    return (pp_own_tokens(shape, seq) + parts - 1) / parts;
}

enum { PP_SUM_PIECES_MAX = 64 };

/* Pieces that were asked for, where there is a second worker. */
static inline int pp_shape_sum_pieces(const struct pp_shape *shape)
{
    return pp_shape_tensor(shape) > 1 && shape->sum_pieces > 1 ? shape->sum_pieces : 1;
}

/* Equal pieces of what a worker has of a microbatch, so many tokens, or room for them: the most that divide these. */
static inline int pp_sum_pieces(const struct pp_shape *shape, int64_t tokens)
{
    int pieces = pp_shape_sum_pieces(shape);
    while (tokens % pieces) pieces--;
    return pieces;
}

/* Sums of squares that make a tensor's norm: for each tensor rank, of each part of all that the others have of it. */
static inline int pp_shape_rank_sums(const struct pp_shape *shape)
{
    const int parts = pp_shape_parts(shape, PP_DENSE), experts = pp_shape_expert_parallel(shape);
    return parts > experts ? parts : experts;
}
static inline int pp_shape_sums(const struct pp_shape *shape)
{
    return pp_shape_tensor(shape) * pp_shape_rank_sums(shape);
}

/* The stage of ZeRO; 0: replicas share nothing. */
static inline int pp_shape_zero(const struct pp_shape *shape)
{
    return shape->zero + shape->shards + shape->shard_params;
}

/* Weights that have a bfloat16 copy are there in float32 for the share alone: only the step reads them so. */
static inline bool pp_shape_splits_weights(const struct pp_shape *shape)
{
    return shape->zero && shape->precision == PP_BF16;
}

/* nn.LayerNorm's default, and what Llama 2 gives its RMSNorm. */
#define PP_NORM_EPSILON 1e-5
static inline double pp_norm_epsilon(const struct pp_shape *shape)
{
    return shape->norm_epsilon > 0 ? shape->norm_epsilon : PP_NORM_EPSILON;
}

static inline int pp_kv_heads(const struct pp_shape *shape) { return shape->kv_heads ? shape->kv_heads : shape->heads; }

static inline int pp_head_dim(const struct pp_shape *shape)
{
    return shape->head_dim ? shape->head_dim : shape->d_model / shape->heads;
}

/* What attention makes of a token, all heads together; d_model, unless heads have columns of their own number. */
static inline int pp_context_width(const struct pp_shape *shape) { return shape->heads * pp_head_dim(shape); }

/* Queries and keys of a token. */
static inline int64_t pp_qk_width(const struct pp_shape *shape)
{
    return (shape->heads + (int64_t)pp_kv_heads(shape)) * pp_head_dim(shape);
}

/* Queries, keys and values of a token. */
static inline int64_t pp_qkv_width(const struct pp_shape *shape)
{
    return (shape->heads + 2 * (int64_t)pp_kv_heads(shape)) * pp_head_dim(shape);
}

/* Columns of a row of logits in memory. */
static inline int pp_padded_vocab(const struct pp_shape *shape)
{
    const int m = shape->vocab_multiple > 1 ? shape->vocab_multiple : 1;
    return (shape->vocab + m - 1) / m * m;
}

/* What a worker sends to another stage, and keeps at checkpoints, of so many rows, which have `seq` tokens as a
 * whole. */
static inline int64_t pp_hidden_bytes(const struct pp_shape *shape, int64_t rows, int seq)
{
    return rows * pp_part_tokens(shape, seq) * shape->d_model * pp_element_bytes(shape->precision);
}

/* Of a checkpoint of layers: from the input of one to that of the next. */
static inline int64_t pp_checkpoint_bytes(const struct pp_shape *shape, int64_t rows, int seq)
{
    return (pp_hidden_bytes(shape, rows, seq) + 63) / 64 * 64;
}

#endif
