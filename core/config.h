/* SPDX-License-Identifier: Apache-2.0
 *
 * The options of all programs (one table, config_rows.c) and the presets. Every number of a preset is an option; an
 * option that was given beats the preset wherever it stands.
 */
#ifndef PP_CORE_CONFIG_H
#define PP_CORE_CONFIG_H

#include "core/learning_rate.h"
#include "core/options.h"
#include "core/plan.h"
#include "core/program.h"

enum pp_format { PP_FORMAT_TABLE, PP_FORMAT_TSV, PP_FORMAT_JSON };
enum pp_style { PP_STYLE_TUTORIAL, PP_STYLE_LAB };

enum { PP_BUCKET_BYTES = 25 << 20 /* of --bucket-size, as torch.nn.parallel.DistributedDataParallel has it */ };

struct pp_config {
    /* model */
    const char *preset;
    int d_model, heads, d_ff, layers, vocab, mask, style; /* enum pp_mask, enum pp_style */
    int attention;                                        /* enum pp_attention_kind */
    int norm, activation;                                 /* enum pp_norm, enum pp_activation */
    int normalization, bias;                              /* enum pp_normalization, enum pp_bias */
    int kv_heads, positions;                              /* 0: as many as heads; enum pp_positions */
    int head_dim;                                         /* 0: d_model / heads */
    int max_positions;                                    /* 0: as many as tokens */
    int qk_norm;                                          /* 1: queries and keys are normalised */
    int experts, experts_per_token;                       /* 0 experts: one feed-forward */
    double capacity_factor, aux_loss;
    int shared_ff, shared_gate, gates_of_all; /* of experts; 0: no feed-forward beside them, no gate of that */
    int precision, vocab_multiple; /* enum pp_precision; 0: as the device wants it */
    double dropout, rope_theta, norm_epsilon;
    double init_std; /* 0: initial weights as `style` has them */
    /* batch and optimizer */
    int rows, tokens, epochs, max_batches, eval_batches, eval_rows, warmup; /* warmup -1: default */
    double lr, clip, lr_decay;
    struct pp_lr_options over_steps; /* what becomes of lr */
    int optimizer;                   /* enum pp_optimizer */
    struct pp_adamw_options adamw;
    /* pipeline */
    struct pp_texts schedule;
    struct pp_ints tensor;
    struct pp_ints stages, virtual_stages, chunks, checkpoint; /* the last: enum pp_checkpoint */
    struct pp_ints micro_batch_size;                           /* none: as the chunks are */
    int batch_w;
    bool sequence_parallel;             /* workers of a rank have parts of the tokens */
    struct pp_ints overlap_tensor_sums; /* pieces in which their sums run beside products; 1: they do not */
    int tie_embeddings;                 /* 1: the decoder's weight is the embedding's */
    struct pp_ints zero; /* 1: replicas share what the optimizer does and keeps; 3: and parameters and gradients */
    struct pp_ints shard_degree;     /* ... in groups of so many, or all that there are; 0: all */
    bool overlap_param_gather;       /* parameters are gathered beside the forward */
    bool overlap_grad_reduce;        /* gradients are summed beside their backward */
    bool grad_reduce_in_bf16;        /* ... as bfloat16 numbers */
    int64_t bucket_size;             /* ... in parts whose layers have so many bytes */
    int replicas, recv_buffers;      /* recv_buffers -1: default (2; unlimited with --times alone) */
    int expert_parallel;             /* so many of the replicas share the experts of a layer */
    struct pp_ints context_parallel; /* so many workers share the tokens of rows: pp_config_context() */
    int cp_comm_type;                /* enum pp_context_kind */
    const char *split;
    double *layer_ns; /* --split time: see core/split_time.h; else NULL */
    /* data and files */
    const char *data; /* NULL: generated */
    uint64_t seed;
    const char *init, *save, *db;
    int generated_tokens;
    int save_every; /* 0: never */
    bool resume;
    /* running */
    const char *device, *transport, *blas_core;
    const char *algorithms; /* a file of the device's */
    int gpus;               /* 0: all there are; ppsim: one for each worker */
    int threads, trace_steps, log_interval;
    bool no_eval;
    /* simulating */
    const char *times, *straggler; /* see core/given_times.h */
    double jitter;                 /* percent */
    int host_order;                /* 1: a host has replicas of a rank, before it has other ranks */
    const char *profile, *emit;
    struct pp_texts machine; /* none: not asked: pp_config_machine() */
    bool draw;
    int64_t memory;         /* 0: not asked */
    struct pp_ints workers; /* numbers of devices; none: not asked */
    int global_rows, top;   /* 0: not asked */
    struct pp_reals price;  /* of a device for an hour, of all machines or each: pp_config_price() */
    double train_tokens;    /* of a whole training; 0: unknown */
    /* profiling */
    double seconds; /* time spent on each shape, in all rounds together */
    int rounds;
    /* reporting */
    const char *plots;  /* folder; NULL: beside the database */
    const char *chrome; /* file for Chrome trace JSON */
    bool no_plots, profiles;
    int run; /* 0: newest */
    bool why;
    /* all */
    int format;
    bool list, version, help;
    bool set[128]; /* which rows of pp_config_rows were given on the command line */
};

extern const struct pp_opt pp_config_rows[];
extern const int pp_config_nrows;

/* Parses, applies the preset, checks what can be checked without other folders (heads divide d_model, ...). With
 * --help, --version or --list only the flag is looked at by the caller. */
pp_status pp_config_parse(unsigned tool, int argc, char **argv, struct pp_config *out, const char **operands,
                          int max_operands, int *noperands) PP_MUST_CHECK;
/* --help and --version: prints the answer and returns true if either was asked. */
bool pp_config_answer(const struct pp_config *config, const struct pp_program_info *program, FILE *out);
/* Sets what the preset sets and the command line did not give (presets.c; pp_config_parse calls it). */
pp_status pp_config_apply_preset(struct pp_config *config) PP_MUST_CHECK;
/* The row of an option (without dashes); NULL if there is none. */
const struct pp_opt *pp_config_row(const char *option);
/* Was the option (without dashes) given on the command line? */
bool pp_config_given(const struct pp_config *config, const char *option);
/* The option's value as text; "" where there is no such option. */
const char *pp_config_text(const struct pp_config *config, const char *option, char *buf, size_t size);
/* What --device auto has found: what follows the device and was not given, is set. Before any shape is made. */
void pp_config_found_device(struct pp_config *config, const char *device);
void pp_config_shape(const struct pp_config *config, struct pp_shape *out);
/* C. Of a list, which ppsim alone takes and makes configs of one from (sim/ways.h), the first. */
int pp_config_context(const struct pp_config *config);
/* Of lists that ppsim alone takes and makes configs of one from (sim/targets.h), the first; NULL, 0: none was given. */
const char *pp_config_machine(const struct pp_config *config);
double pp_config_price(const struct pp_config *config);
/* PP_USAGE where so many replicas are no whole groups that share experts. (Of experts the model says it.) */
pp_status pp_config_check_replicas(const struct pp_config *config, int replicas) PP_MUST_CHECK;
/* Copies of the pipeline that have all experts: replicas, or groups of so many as share theirs; C times as many. */
int pp_config_copies(const struct pp_config *config);
/* That have all parameters but other ranks' experts: all replicas, C times as many. */
int pp_config_holders(const struct pp_config *config);
/* Of the copies so many share, where each `degree` replicas do (0: all). */
int pp_config_shard_group(const struct pp_config *config, int degree);
/* Sets how they do, by a stage of ZeRO. */
void pp_config_share(const struct pp_config *config, int zero, int degree, struct pp_shape *shape);
/* PP_USAGE where replicas are no whole groups of so many, or those that share experts not in one. */
pp_status pp_config_check_shard_degree(const struct pp_config *config, int degree) PP_MUST_CHECK;
/* Are gradients summed in parts, beside the backward that makes them? Times that are given are of whole tasks. */
bool pp_config_sums_parts(const struct pp_config *config);
/* Are they rounded to bfloat16 for that? */
bool pp_config_sums_bf16(const struct pp_config *config);
/* Places that have a row of weights, where positions are learnt. */
int pp_config_max_positions(const struct pp_config *config);

/* Where --micro-batch-size was given: makes `chunks` those that the rows take. Again after `rows` have changed. */
void pp_config_cut_rows(struct pp_config *config);

/* What no range of one option can say (config_check.c; pp_config_parse calls it). tool: enum pp_tool. */
pp_status pp_config_check(const struct pp_config *config, unsigned tool) PP_MUST_CHECK;
/* PP_USAGE for values of lists that are impossible beside the other options, and for the first --context-parallel.
 * pp_config_check() lets a list pass of which any value is possible. */
pp_status pp_config_check_values(const struct pp_config *config, int checkpoint, int zero) PP_MUST_CHECK;
/* Is it told how long a rank takes, and not what a model takes? */
bool pp_config_gives_times(const struct pp_config *config);
/* PP_USAGE for names by which SQLite opens something else than the file of that name. */
pp_status pp_config_check_database(const char *path) PP_MUST_CHECK;

/* Warns of options that change nothing of any configuration, as there is only one worker, or no GPU, of what they are
 * for. */
void pp_config_remarks(const struct pp_config *config);

/* Receive buffers of a channel in a plan of so many microbatches: what was asked, 0 standing for one for each; where
 * nothing was, `standard`. */
int pp_config_recv_buffers(const struct pp_config *config, int microbatches, int standard);

/* The presets (presets.c describes each), and a line about each for --list. */
#define PP_PRESET_NAMES                                                                                                \
    "tutorial|tutorial-12|small|lab|gpt-small|gpt-1.3b|gpt-6.7b|gpt-175b|llama-2-7b|llama-3-8b|llama-3-70b|"           \
    "llama-3-405b|mistral-nemo-12b|mixtral-8x7b|qwen3-8b|qwen3-30b-a3b|qwen2-57b-a14b"
void pp_config_list_presets(FILE *out);

#endif
