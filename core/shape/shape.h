/* SPDX-License-Identifier: Apache-2.0
 *
 * The shape of the Transformer: the numbers that describe a model, and what follows from these alone.
 *
 * The letters D, T, N and C are those of core/plan/plan.h.
 */
#ifndef PP_CORE_SHAPE_SHAPE_H
#define PP_CORE_SHAPE_SHAPE_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "core/base/status.h"
#include "core/shape/optimizer.h"
#include "core/shape/rope.h"
#include "core/shape/zero.h"

/* PP_FP8 is PP_BF16 but for products of layers' linears, whose factors are FP8 (kernels/program_linear.c). */
enum pp_precision { PP_FP32, PP_TF32, PP_BF16, PP_FP8, PP_PRECISIONS };
extern const char *const pp_precision_names[];
/* Are activations, and the weights that products read, bfloat16? */
static inline bool pp_in_bf16(int precision) { return precision == PP_BF16 || precision == PP_FP8; }
/* Bytes of one number of an activation (enum pp_precision). */
static inline int pp_element_bytes(int precision) { return pp_in_bf16(precision) ? 2 : 4; }

enum pp_mask { PP_MASK_NONE, PP_MASK_CAUSAL };
/* What attention keeps for its backward. */
enum pp_attention_kind {
    PP_ATTENTION_MATH, /* the probabilities */
    PP_ATTENTION_FLASH /* as FlashAttention: what is needed to compute the probabilities again */
};
/* Where a layer has its norms: behind the residual additions (post), or before its parts (pre). */
enum pp_norm { PP_NORM_LAST, PP_NORM_FIRST };
enum pp_normalization { PP_LAYERNORM, PP_RMSNORM };
/* GELU (Hendrycks and Gimpel, 2016): exact, or approximated with a hyperbolic tangent, as in GPT-2. */
enum pp_activation { PP_RELU, PP_GELU, PP_SWIGLU, PP_GELU_TANH };
extern const char *const pp_activation_names[];
/* Which linear layers have a bias: all; none; all but the decoder (GPT-2); or in_proj alone (Qwen2). */
enum pp_bias { PP_BIAS, PP_NO_BIAS, PP_BIAS_LAYERS, PP_BIAS_QKV };
extern const char *const pp_bias_words[]; /* for the names of work in profiles: " nobias", ...; "" for PP_BIAS */
/* How positions enter the model: sines and cosines are added to the embedding (Vaswani et al. 2017); queries and keys
 * of each layer are rotated (Su et al. 2021); or a learnt vector for each position is added to the embedding (GPT). */
enum pp_positions { PP_POSITIONS_SINUSOIDAL, PP_POSITIONS_ROPE, PP_POSITIONS_LEARNED };

/* Context parallelism: how workers get what attention needs of the tokens of other workers. See pp_shape.context. */
enum pp_context_kind { PP_CONTEXT_ALL_TO_ALL, PP_CONTEXT_ALL_GATHER, PP_CONTEXT_RING };
extern const char *const pp_context_kind_names[];
extern const char *const pp_context_kind_words[]; /* for the names of work: " all_gather", ...; "" for the default */

/* The Transformer language model: embedding, positions, encoder layers, a last norm (if norms stand first in the
 * layers), decoder. Layers are those of torch.nn.TransformerEncoderLayer, except for kv_heads, head_dim, positions,
 * qk_norm, kv_lora_rank, experts and PP_SWIGLU. With PP_SWIGLU linear1 makes 2 d_ff numbers of a token, of which the
 * first d_ff are gates (Shazeer, 2020, "GLU Variants Improve Transformer").
 * An int that has neither an enum nor a number, such as qk_norm, is 0 or 1: options that are choices write ints. */
struct pp_shape {
    int d_model, heads, d_ff, layers, vocab;
    int mask;      /* enum pp_mask */
    int attention; /* enum pp_attention_kind */
    double dropout;
    bool scale_embedding; /* the embedding is multiplied by sqrt(d_model) */
    bool residual_only;   /* dropout only on the two residual branches (preset lab); else wherever torch has it */
    bool lab_init;        /* initial weights of preset lab, see kernels/model.h */
    int precision;        /* enum pp_precision */
    int optimizer;        /* enum pp_optimizer */
    /* The decoder's weight has memory for this multiple of words, filled with zeros beyond the vocabulary, so that rows
     * of logits are aligned. 0 and 1: no padding. */
    int vocab_multiple;
    int norm, activation; /* enum pp_norm, enum pp_activation */
    int normalization;    /* enum pp_normalization; queries and keys (qk_norm) have a norm of their own */
    double norm_epsilon;  /* of all norms; 0: PP_NORM_EPSILON */
    int bias;             /* enum pp_bias: of linear layers. The biases of norms are there in any case */
    /* Data parallelism (struct pp_plan). Here `replicas` counts the workers that hold the same dense parameters, D C;
     * if they shard in groups (zero), those of one group. 0 and 1: one. */
    int replicas;
    int shard_groups; /* number of these groups; 0 and 1: one */
    int zero;         /* enum pp_zero */
    bool bf16_sums;   /* gradients are rounded to bfloat16 to be summed (pp_sent_bytes()) */
    /* Heads of keys and values, a divisor of heads: each serves heads / kv_heads heads of queries (grouped-query
     * attention, Ainslie et al. 2023). 0: as many as heads. */
    int kv_heads;
    int head_dim; /* columns of a head; 0: d_model / heads */
    /* Multi-head latent attention (DeepSeek-AI 2024, "DeepSeek-V2", 2.1; Megatron-LM's MLASelfAttention); 0 in
     * kv_lora_rank: there is none. Each token's keys and values are made from a latent vector of kv_lora_rank columns,
     * its queries from one of q_lora_rank columns, or, if that is 0, straight from the stream. Latent vectors are
     * divided by their root mean square. A query and a key have qk_nope_head_dim columns that are not rotated, and
     * behind these qk_rope_head_dim columns that are; the rotated columns of the keys are the same for all heads. A
     * value has v_head_dim columns. Linear layers have no biases, and kv_heads and head_dim are 0. */
    int kv_lora_rank, q_lora_rank, qk_nope_head_dim, qk_rope_head_dim, v_head_dim;
    /* Queries and keys are divided by their root mean square, head by head, with one weight for all heads of queries
     * and one for all heads of keys (Henry et al. 2020, "Query-Key Normalization for Transformers"; as in Qwen3). */
    int qk_norm;
    double score_factor; /* attention's scores are multiplied by this and divided by sqrt(head_dim); 0: 1 */
    int positions;       /* enum pp_positions */
    double rope_theta;   /* PP_POSITIONS_ROPE: the base of the frequencies */
    int rotary_dim;      /* PP_POSITIONS_ROPE: the first columns of each head, which are rotated; 0: all */
    struct pp_rope_scaling rope_scaling;
    int max_positions; /* PP_POSITIONS_LEARNED: number of positions, at least the tokens of any row */
    /* Sliding window (Beltagy et al. 2020, "Longformer"; Mistral 7B), only with PP_MASK_CAUSAL. A token sees itself and
     * the window - 1 tokens before it; 0: all tokens before it. With window_skip = N > 0 the N-th, 2 N-th ... layer of
     * the model has no window (Megatron-LM's --window-attn-skip-freq). Of one layer: pp_layer_window(). */
    int window, window_skip;
    /* Tensor parallelism: T, the workers that share the tensors of a stage (struct pp_plan); 0 and 1: no sharing.
     * Tensors are cut as in Megatron-LM:
     *   by rows       in_proj (by heads), linear1, embedding and decoder (by words)
     *   by columns    out_proj (by heads), linear2
     *   not cut       norms, learnt positions, biases that are added after a sum
     * Experts are not cut: each worker has some of them. */
    int tensor;
    /* Sequence parallelism (Korthikanti et al. 2022, "Reducing Activation Recomputation in Large Transformer Models"):
     * where tensor parallelism cuts nothing (norms, dropout of residuals, the activations between layers and between
     * stages) each tensor rank has a part of the tokens. An all-gather of the tokens comes before products with cut
     * tensors, and a reduce-scatter after them. Without effect if T = 1. */
    bool sequence;
    /* The collectives of tensor ranks are cut into at most this many pieces of the tokens, and run beside products of
     * other pieces (pp_sum_pieces()); 0 and 1: in one piece, before and after the products. */
    int sum_pieces;
    /* The decoder's weight is the embedding's (Press and Wolf 2017, "Using the Output Embedding to Improve Language
     * Models"; GPT-2): one parameter, of which the first and the last stage have a copy each. */
    int tied;
    double init_std; /* standard deviation of initial weights (kernels/model.h); 0: other initial weights */
    /* Mixture of experts (Shazeer et al. 2017; GShard, Lepikhin et al. 2020; Mixtral, Jiang et al. 2024): a layer has
     * `experts` feed-forwards of d_ff columns instead of one, without biases; 0: the layer has one feed-forward.
     *   A router, which is one more linear layer, sends each token to the experts_per_token experts that it finds
     *   likeliest. The token gets the sum of their outputs, weighted by the probabilities of these experts, scaled so
     *   that they add up to 1 (but see gates_of_all).
     *   An expert takes at most capacity_factor times its even share of a microbatch's tokens, rounded up, and ignores
     *   those that come later (pp_expert_capacity()).
     *   aux_loss is the weight of each layer's load-balancing loss (Fedus et al. 2021, "Switch Transformers",
     *   equation 4).
     * Each tensor rank has an equal number of whole experts. */
    int experts, experts_per_token;
    double capacity_factor, aux_loss;
    /* Which layers of a model with experts have them (pp_layer_has_experts()). The first dense_layers layers have none.
     * Of the layers behind these the first one has experts, and from there on every experts_every-th. A layer without
     * experts has one feed-forward of dense_ff columns. */
    int dense_layers;
    int experts_every; /* 0 and 1: each of them */
    int dense_ff;      /* 0: d_ff */
    /* Columns of a shared expert in each layer with experts: a feed-forward that all tokens go through, and whose
     * output is added to that of the experts (Dai et al. 2024, "DeepSeekMoE"; Megatron-LM's
     * --moe-shared-expert-intermediate-size). 0: there is none. Tensor ranks cut it like the feed-forward of a layer
     * without experts. */
    int shared_ff;
    /* As in Qwen2's mixtures (Yang et al. 2024, "Qwen2 Technical Report"; Hugging Face's Qwen2MoeSparseMoeBlock): the
     * output of the shared expert is multiplied by the logistic function of one more linear layer of the token. */
    int shared_gate;
    /* As there: outputs of experts are weighted by their probabilities among all experts, instead of among the token's
     * chosen ones (Megatron-LM's --moe-router-pre-softmax). */
    int gates_of_all;
    /* As in DeepSeek-V3 (DeepSeek-AI 2024, "DeepSeek-V3 Technical Report", 2.1.2; Megatron-LM's
     * --moe-router-score-function sigmoid): an expert's probability is the logistic function of its logit, whatever the
     * others' are. The load-balancing loss divides the probabilities of each token by their sum. */
    int sigmoid_scores;
    double gate_scale; /* times all gates (Megatron-LM's --moe-router-topk-scaling-factor); 0: 1 */
    /* Groups of experts (DeepSeek-AI 2024, "DeepSeek-V2", 2.2.2, and "DeepSeek-V3 Technical Report", 2.1.2;
     * Megatron-LM's --moe-router-num-groups and --moe-router-group-topk): successive experts are in expert_groups
     * groups of equal size; 0 and 1: in one. A token chooses experts of its best groups_per_token groups alone. The
     * score of a group is the sum of the two highest scores of its experts, or, with group_by_best, the highest one. */
    int expert_groups, groups_per_token;
    int group_by_best;
    /* Balancing without a loss (Wang et al. 2024, "Auxiliary-Loss-Free Load Balancing Strategy for Mixture-of-Experts";
     * DeepSeek-V3; Megatron-LM's --moe-router-enable-expert-bias): an expert has a bias, which is added to its
     * probability where tokens choose experts, and counts nowhere else. It has no gradient. Each step changes it by
     * expert_bias_rate: up where fewer tokens of the batch than the mean have chosen the expert, down where more have.
     * The bias is a tensor of the model (pp_tensor.loads). */
    int expert_bias;
    double expert_bias_rate;
    /* Expert parallelism (GShard; Megatron-LM): N, the workers that share the experts of a stage; 0 and 1: no sharing.
     * Each of them has rows of its own, and whole copies of all other parameters. Tokens are sent to the workers of
     * their experts, and back. N T divides `experts`. */
    int expert_parallel;
    /* What expert ranks exchange is cut by experts into at most so many pieces (pp_exchange_pieces()). They run beside
     * products of other pieces, of the shared expert, and of gradients of weights (Hwang et al. 2023, "Tutel";
     * Megatron-LM's --moe-shared-expert-overlap). 0: products wait for all. */
    int exchange_pieces;
    /* Context parallelism: C, the workers that have the same rows, and an equal part of their tokens each; 0 and 1: a
     * worker has whole rows.
     *   PP_CONTEXT_ALL_TO_ALL (Jacobs et al. 2023, "DeepSpeed Ulysses"; Megatron-LM's --cp-comm-type a2a): a worker's
     *   part is contiguous. Before attention workers exchange all heads of their own tokens for all tokens of an equal
     *   part of the heads, and back after it. C T divides heads and kv_heads.
     *   PP_CONTEXT_ALL_GATHER (Dubey et al. 2024, "The Llama 3 Herd of Models", 3.3.2; Megatron-LM's --cp-comm-type
     *   all_gather), only with PP_ATTENTION_FLASH: a row is cut into 2 C chunks, and worker c has chunks c and
     *   2 C - 1 - c, so that with a causal mask all have equally much to do. Workers gather the keys and values of all
     *   tokens.
     *   PP_CONTEXT_RING (Liu et al. 2023, "Ring Attention with Blockwise Transformers"; Megatron-LM's --cp-comm-type
     *   p2p), only with PP_ATTENTION_FLASH, without dropout of scores and without a window: the same two chunks. Keys
     *   and values go around in a ring, beside attention of those that came before. */
    int context;
    int context_kind; /* enum pp_context_kind */
};

/* Takes away all that only layers with experts have: each layer then has one feed-forward of d_ff columns. (shape.c) */
void pp_shape_drop_experts(struct pp_shape *shape);

/* Capacity of an expert: the most tokens that it takes, if a microbatch has `tokens` tokens; 1 to `tokens`. */
static inline int64_t pp_expert_capacity(const struct pp_shape *shape, int64_t tokens)
{
    const double even = (double)tokens * shape->experts_per_token / shape->experts,
                 most = shape->capacity_factor * even * (1 - 1e-12); /* rounding: 1.1 * 100 must not be above 110 */
    const int64_t whole = most < (double)tokens ? (int64_t)most : tokens;
    return whole + (whole < tokens && (whole == 0 || (double)whole < most));
}

static inline double pp_gate_scale(const struct pp_shape *shape)
{
    return shape->gate_scale > 0 ? shape->gate_scale : 1;
}

/* Output columns of the first linear layer of a feed-forward of ff columns, gates of SwiGLU included; and those of
 * linear1. */
static inline int pp_gated_width(const struct pp_shape *shape, int ff)
{
    return shape->activation == PP_SWIGLU ? 2 * ff : ff;
}
static inline int pp_linear1_width(const struct pp_shape *shape) { return pp_gated_width(shape, shape->d_ff); }

/* Parameters by the workers that hold them. With expert parallelism the experts' parameters (PP_EXPERTS) are held by
 * fewer workers than all other parameters (PP_DENSE), so collectives on gradients and parameters work on each set by
 * itself. Without expert parallelism all parameters are PP_DENSE. */
enum pp_param_set { PP_DENSE, PP_EXPERTS, PP_PARAM_SETS };

/* N, at least 1. */
static inline int pp_shape_expert_parallel(const struct pp_shape *shape)
{
    return shape->expert_parallel > 1 ? shape->expert_parallel : 1;
}

/* Number of workers that hold the same parameters of a set, and sum their gradients or shard them (in one group). */
static inline int pp_shape_replicas(const struct pp_shape *shape, enum pp_param_set set)
{
    const int all = shape->replicas > 1 ? shape->replicas : 1, experts = pp_shape_expert_parallel(shape);
    if (set == PP_DENSE) return all;
    return all > experts ? all / experts : 1;
}

/* Number of equal parts into which each tensor of a set is divided in memory. With ZeRO they are the shares of the
 * workers. Without ZeRO the norm is still computed part by part, so that it has the same bits as with ZeRO; but only
 * for up to PP_NORM_PARTS replicas, since more sums would cost time. A part has a multiple of PP_PART_LINE elements. */
enum { PP_NORM_PARTS = 16, PP_PART_LINE = 32 };
static inline int pp_shape_parts(const struct pp_shape *shape, enum pp_param_set set)
{
    return shape->zero || shape->replicas <= PP_NORM_PARTS ? pp_shape_replicas(shape, set) : 1;
}

/* Sets the fields of data parallelism. zero: enum pp_zero. replicas: workers that hold the same dense parameters;
 * group: of these so many shard among each other. */
static inline void pp_shape_share(struct pp_shape *shape, int zero, int replicas, int group)
{
    shape->zero = group > 1 ? zero : PP_ZERO_NONE;
    shape->replicas = shape->zero ? group : replicas;
    shape->shard_groups = shape->zero ? replicas / group : 1;
}

/* Number of groups that shard; each of them holds all parts. At least 1. */
static inline int pp_shape_shard_groups(const struct pp_shape *shape)
{
    return shape->zero && shape->shard_groups > 1 ? shape->shard_groups : 1;
}

/* T, at least 1. */
static inline int pp_shape_tensor(const struct pp_shape *shape) { return shape->tensor > 1 ? shape->tensor : 1; }

/* C, at least 1. */
static inline int pp_shape_context(const struct pp_shape *shape) { return shape->context > 1 ? shape->context : 1; }

/* Is it context parallelism in which workers have parts of the heads in attention; in which they gather keys and
 * values; in which these go around? */
static inline bool pp_shape_parts_heads(const struct pp_shape *shape)
{
    return pp_shape_context(shape) > 1 && shape->context_kind == PP_CONTEXT_ALL_TO_ALL;
}
static inline bool pp_shape_gathers_keys(const struct pp_shape *shape)
{
    return pp_shape_context(shape) > 1 && shape->context_kind == PP_CONTEXT_ALL_GATHER;
}
static inline bool pp_shape_rings_keys(const struct pp_shape *shape)
{
    return pp_shape_context(shape) > 1 && shape->context_kind == PP_CONTEXT_RING;
}
/* Has each of so many workers two chunks of each row? kind: enum pp_context_kind. */
static inline bool pp_context_halves_rows(int kind, int context)
{
    return context > 1 && kind != PP_CONTEXT_ALL_TO_ALL;
}
static inline bool pp_shape_halves_rows(const struct pp_shape *shape)
{
    return pp_context_halves_rows(shape->context_kind, shape->context);
}
/* PP_USAGE where context parallelism of this kind cannot compute the model's attention. */
pp_status pp_shape_check_context(const struct pp_shape *shape) PP_MUST_CHECK;
/* What names of work say of context parallelism: pp_context_kind_words[]. */
static inline const char *pp_shape_context_words(const struct pp_shape *shape)
{
    return pp_context_kind_words[pp_shape_context(shape) > 1 ? shape->context_kind : PP_CONTEXT_ALL_TO_ALL];
}
/* Chunks into which context parallelism cuts a row; each worker has equally many. */
static inline int pp_shape_chunks(const struct pp_shape *shape)
{
    return pp_shape_context(shape) * (pp_shape_halves_rows(shape) ? 2 : 1);
}

/* Members of a rank (struct pp_plan): T N. */
static inline int pp_shape_sharers(const struct pp_shape *shape)
{
    return pp_shape_tensor(shape) * pp_shape_expert_parallel(shape);
}

/* Is sequence parallelism in effect? */
static inline bool pp_shape_parts_tokens(const struct pp_shape *shape)
{
    return shape->sequence && pp_shape_tensor(shape) > 1;
}

/* Tokens of a row of `seq` tokens that a worker has outside attention: all, or with context parallelism its part. */
static inline int pp_own_tokens(const struct pp_shape *shape, int seq) { return seq / pp_shape_context(shape); }

/* Tokens of a row for which a worker has room where sequence parallelism divides the tokens: pp_own_tokens() / T,
 * rounded up. The tokens of a microbatch lie row after row; tensor rank t has those from number t * rows *
 * pp_part_tokens() on. If they are cut into pieces (pp_sum_pieces()), it has such a part of each piece. */
static inline int pp_part_tokens(const struct pp_shape *shape, int seq)
{
    const int parts = pp_shape_parts_tokens(shape) ? pp_shape_tensor(shape) : 1;
    return (pp_own_tokens(shape, seq) + parts - 1) / parts;
}

/* Sums of squares from which the norm of one tensor is made: those of one tensor rank, and those of all T. A rank has a
 * sum for each part (pp_shape_parts()), or for each expert rank if there are more of them. */
static inline int pp_shape_rank_sums(const struct pp_shape *shape)
{
    const int parts = pp_shape_parts(shape, PP_DENSE), experts = pp_shape_expert_parallel(shape);
    return parts > experts ? parts : experts;
}
static inline int pp_shape_sums(const struct pp_shape *shape)
{
    return pp_shape_tensor(shape) * pp_shape_rank_sums(shape);
}

/* Does a worker keep the float32 values of weights that have a bfloat16 copy for its own share only? Nothing but the
 * optimizer step reads them. */
static inline bool pp_shape_splits_weights(const struct pp_shape *shape)
{
    return shape->zero && pp_in_bf16(shape->precision);
}

/* Has a worker FP8 copies of weights (pp_tensor.offset8), which a step makes once? Not where it keeps nothing but its
 * share of weights: there each task rounds what was gathered for it. */
static inline bool pp_shape_keeps_fp8(const struct pp_shape *shape)
{
    return shape->precision == PP_FP8 && shape->zero < PP_ZERO_PARAMETERS;
}

/* The default of torch.nn.LayerNorm; Llama 2 uses it for its RMSNorm, too. */
#define PP_NORM_EPSILON 1e-5
static inline double pp_norm_epsilon(const struct pp_shape *shape)
{
    return shape->norm_epsilon > 0 ? shape->norm_epsilon : PP_NORM_EPSILON;
}

/* Groups of experts that tokens choose from; 0: they choose from all experts. */
static inline int pp_shape_expert_groups(const struct pp_shape *shape)
{
    return shape->expert_groups > 1 && shape->groups_per_token < shape->expert_groups ? shape->expert_groups : 0;
}

/* Columns of a row of logits in memory: the vocabulary, padded to vocab_multiple. */
static inline int pp_padded_vocab(const struct pp_shape *shape)
{
    const int m = shape->vocab_multiple > 1 ? shape->vocab_multiple : 1;
    return (shape->vocab + m - 1) / m * m;
}

/* Bytes of the activation between two stages, of a worker and `rows` rows of `seq` tokens: what a transfer sends and a
 * checkpoint of a stage's input keeps. */
static inline int64_t pp_hidden_bytes(const struct pp_shape *shape, int64_t rows, int seq)
{
    return rows * pp_part_tokens(shape, seq) * shape->d_model * pp_element_bytes(shape->precision);
}

/* PP_CHECKPOINT_LAYERS: bytes between the inputs of two successive layers in a checkpoint slot. */
static inline int64_t pp_checkpoint_bytes(const struct pp_shape *shape, int64_t rows, int seq)
{
    return (pp_hidden_bytes(shape, rows, seq) + 63) / 64 * 64;
}

#endif
